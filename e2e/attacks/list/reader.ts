// Attacks by slow readers: WebSockets, streams of server-sent events, HTTP responses.

import { setTimeout as pause } from 'node:timers/promises';
import { type Attack, type Target, MEBIBYTE, TEXT, emit, keepOn, linger, refusedRequests, say, subscribe } from '../attack.ts';
import { Peer, request } from '../peer.ts';

const FLOOD = 'attack/flood';
/** Large outboxes, because the kernel buffers megabytes before the server has to. */
const LARGE_OUTBOXES = { outbox_bytes_max: 4_096 * MEBIBYTE, memory_bytes_max: 8_192 * MEBIBYTE };

/** Publishes for readers that do not read. `stir` makes a reader send something, so that it notices a disconnect. */
async function flood(target: Target, sleepers: number, dial: () => Promise<Peer | undefined>, stir: (peer: Peer) => Promise<void>): Promise<number> {
  const asleep = Array.from({ length: sleepers }, async () => {
    while (!target.isOver()) {
      const peer = await dial();
      peer?.sleep();
      while (peer?.isOpen && !target.isOver()) {
        await pause(100);
        await Promise.race([stir(peer), pause(10)]);
      }
      peer?.end();
    }
  });
  const said = await say(target, () => emit(FLOOD, JSON.stringify(TEXT)), { burst: 50, pauseMs: 2 });
  await Promise.all(asleep);
  return said;
}

export const READERS: Attack[] = [
  {
    name: 'a reader that does not read',
    limit: 'limits.outbox_bytes_max',
    metric: 'tidewire_slow_disconnects_total',
    off: { limits: LARGE_OUTBOXES },
    harm: 'tidewire_outbox_bytes',
    bound: 16 * MEBIBYTE,
    run: async (target) => {
      const publisher = await Peer.login(target.address);
      const data = JSON.stringify(TEXT);
      return keepOn(target, async (peer) => {
        await peer.say(subscribe([FLOOD]));
        peer.sleep();
        while (peer.isOpen && !target.isOver()) {
          for (let i = 0; i < 50; i += 1) await publisher?.say(emit(FLOOD, data));
          await pause(2);
        }
      });
    },
  },
  {
    name: 'many readers that do not read, each within its limit',
    limit: 'limits.memory_bytes_max',
    metric: 'tidewire_slow_disconnects_total',
    options: { limits: { memory_bytes_max: 16 * MEBIBYTE, outbox_bytes_max: 4 * MEBIBYTE }, cacheBytesMax: MEBIBYTE },
    off: { limits: LARGE_OUTBOXES },
    harm: 'tidewire_outbox_bytes',
    bound: 32 * MEBIBYTE,
    run: (target) => flood(target, 20, async () => {
      const peer = await Peer.login(target.address);
      await peer?.say(subscribe([FLOOD]));
      return peer;
    }, (peer) => peer.frame(Buffer.alloc(0), { opcode: 10 })),
  },
  {
    name: 'streams without a reader',
    limit: 'limits.outbox_lagging_bytes',
    metric: 'tidewire_lags_total',
    off: { limits: { ...LARGE_OUTBOXES, outbox_lagging_bytes: 2_048 * MEBIBYTE } },
    harm: 'tidewire_http_session_bytes',
    bound: 16 * MEBIBYTE,
    run: (target) => flood(target, 10, () => Peer.saying(target.address, request(`GET /sse?event=${FLOOD}`)), async () => {}),
  },
  {
    name: 'responses without a reader',
    limit: 'http.connection_timeout',
    metric: refusedRequests('slow_connection'),
    options: { http: { connection_timeout: '200ms' } },
    off: { http: { connection_timeout: '10m' } },
    harm: 'reached',
    bound: 1_500,
    run: async (target) => {
      const record = JSON.stringify({ text: TEXT.repeat(9) });
      await Peer.ask(target.address, request('PUT /records/attack', { 'Content-Type': 'application/json' }, record));
      return linger(10, target, async () => {
        const peer = await Peer.dial(target.address);
        peer?.sleep();
        await peer?.write(request('GET /records/attack').repeat(200));
        return peer;
      }, ' ');
    },
  },
];
