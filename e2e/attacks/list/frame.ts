// Attacks with WebSocket frames: too large, endless, half sent, malformed, compressed.

import { setTimeout as pause } from 'node:timers/promises';
import { deflateRawSync } from 'node:zlib';
import { type Attack, MEBIBYTE, NO_LIMIT, keepOn, together } from '../attack.ts';
import { Peer } from '../peer.ts';

/** Limits that allow messages of any size. */
const UNLIMITED = {
  limits: { message_bytes_max: 512 * MEBIBYTE, memory_bytes_max: 8_192 * MEBIBYTE, inflight_bytes_max: 1_024 * MEBIBYTE },
};

export const FRAMES: Attack[] = [
  {
    name: 'frames that are too large',
    limit: 'limits.message_bytes_max',
    metric: 'tidewire_protocol_errors_total',
    options: { limits: { message_bytes_max: 65_536 } },
    off: UNLIMITED,
    harm: 'memory',
    bound: 32 * MEBIBYTE,
    run: (target) => together(4, async () => {
      const chunk = Buffer.alloc(MEBIBYTE, 1);
      while (!target.isOver()) {
        const peer = await Peer.login(target.address);
        await peer?.frame(chunk, { announced: BigInt(100 * MEBIBYTE) });
        for (let part = 0; part < 98 && peer?.isOpen && !target.isOver(); part += 1) await peer.write(chunk);
        if (!peer?.isOpen) await pause(50);
        peer?.end();
      }
      return 0;
    }),
  },
  {
    name: 'messages of endless fragments',
    limit: 'limits.message_bytes_max',
    metric: 'tidewire_protocol_errors_total',
    options: { limits: { message_bytes_max: 65_536 } },
    off: UNLIMITED,
    harm: 'memory',
    bound: 32 * MEBIBYTE,
    run: (target) => together(4, async () => {
      const chunk = Buffer.alloc(60_000, 1);
      while (!target.isOver()) {
        const peer = await Peer.login(target.address);
        await peer?.frame(chunk, { isLast: false });
        for (let part = 0; part < 2_000 && peer?.isOpen && !target.isOver(); part += 1) {
          await peer.frame(chunk, { opcode: 0, isLast: false });
        }
        if (!peer?.isOpen) await pause(50);
        peer?.end();
      }
      return 0;
    }),
  },
  {
    name: 'many messages that are half sent',
    limit: 'limits.memory_bytes_max',
    metric: 'tidewire_slow_disconnects_total',
    options: { limits: { memory_bytes_max: 8 * MEBIBYTE }, cacheBytesMax: MEBIBYTE },
    off: { limits: { memory_bytes_max: 8_192 * MEBIBYTE } },
    harm: 'memory',
    bound: 40 * MEBIBYTE,
    run: (target) => together(100, async () => {
      const most = Buffer.alloc(900_000, 1);
      while (!target.isOver()) {
        const peer = await Peer.login(target.address);
        await peer?.frame(most, { announced: 1_000_000n });
        while (peer?.isOpen && !target.isOver()) await pause(100);
        peer?.end();
        await pause(100);
      }
      return 0;
    }),
  },
  {
    name: 'frames that announce more than there is memory',
    limit: 'nothing is allocated because a length announces it',
    metric: 'tidewire_protocol_errors_total',
    off: { because: NO_LIMIT },
    harm: 'memory',
    bound: 16 * MEBIBYTE,
    run: (target) => keepOn(target, (peer) => peer.frame(Buffer.alloc(16), { announced: 1n << 62n }).then(() => peer.hears(/$^/)).then(() => {})),
  },
  {
    name: 'frames that are not masked, or have reserved bits',
    limit: 'RFC 6455',
    metric: 'tidewire_protocol_errors_total',
    off: { because: NO_LIMIT },
    harm: 'memory',
    bound: 16 * MEBIBYTE,
    run: (target) => keepOn(target, async (peer, round) => {
      await peer.frame(Buffer.alloc(100), round % 2 === 0 ? { isMasked: false } : { reserved: 7 });
      await peer.hears(/$^/);
    }),
  },
  {
    name: 'small frames that inflate to large messages',
    limit: 'limits.message_bytes_max, counted after inflating',
    metric: 'tidewire_protocol_errors_total',
    options: { compression: true },
    off: { compression: true, ...UNLIMITED, auth: { login_bytes_max: '512MiB' } },
    harm: 'memory',
    bound: 32 * MEBIBYTE,
    run: (target) => together(4, async () => {
      const bomb = deflateRawSync(Buffer.alloc(100 * MEBIBYTE)).subarray(0, -4);
      while (!target.isOver()) {
        const peer = await Peer.upgrade(target.address, { 'Sec-WebSocket-Extensions': 'permessage-deflate' });
        await peer?.frame(bomb, { reserved: 4 });
        await peer?.hears(/$^/);
        peer?.end();
        await pause(20);
      }
      return 0;
    }),
  },
  {
    name: 'bytes that are not a message',
    limit: 'a frame that can not be decoded takes nothing with it',
    metric: 'tidewire_undecodable_frames_total',
    off: { because: NO_LIMIT },
    harm: 'memory',
    bound: 64 * MEBIBYTE,
    run: (target) => keepOn(target, async (peer, round) => {
      await peer.frame(Buffer.alloc(1 + (round % 3_000), 0xff));
      if (round % 50 === 0) await pause(1);
    }),
  },
];
