// The attacks: what each tries, which limit stands against it, which metric says so, and what it does where that limit is
// switched off.

import { deflateRawSync } from 'node:zlib';
import { setTimeout as pause } from 'node:timers/promises';
import { C } from '../harness/client.ts';
import type { ServerOptions } from '../harness/server.ts';
import { Peer } from './peer.ts';

/** What an attacker's process is told. */
export interface Target {
  address: string;
  tlsAddress: string;
  isOver: () => boolean;
}

export interface Attack {
  name: string;
  /** The option that bounds it, or what does. */
  limit: string;
  /** A metric of the server that grows, with its labels. */
  metric: string;
  /** Whether the server speaks TLS besides. */
  isEncrypted?: boolean;
  options?: ServerOptions;
  /** The limit switched off; or why it can't be. */
  off: ServerOptions | { because: string };
  /** What is measured: what `run` gives, bytes by which the server grows, events that reach others, or a gauge at its highest. */
  harm: 'reached' | 'memory' | 'floods' | `tidewire_${string}`;
  /** With the limit the harm is at most this, without it more. */
  bound: number;
  /** Attacks until it is over; the number is the harm where the attacker knows it. */
  run: (target: Target) => Promise<number>;
}

const { TOPIC, CONNECTION_ACTION, AUTH_ACTION, EVENT_ACTION, RECORD_ACTION, RPC_ACTION } = C;
/** One second each on every commit; ten for the proof. */
export const SECONDS = Number(process.env['ATTACK_SECONDS'] ?? 1);
const MEBIBYTE = 1 << 20;
const NO_LIMIT = 'no option turns the check off';

/** `count` times the same at once, and the largest of what they give. */
async function together(count: number, attack: (index: number) => Promise<number>): Promise<number> {
  return Math.max(...(await Promise.all(Array.from({ length: count }, (_, index) => attack(index)))));
}

/** Holds as many connections as it gets; the most that were open at once. */
async function hold(target: Target, open: (index: number) => Promise<Peer | undefined>, wanted: number): Promise<number> {
  const held: Peer[] = [];
  let most = 0;
  for (let index = 0; !target.isOver(); index += 1) {
    const peer = held.length < wanted ? await open(index) : (await pause(50), undefined);
    if (peer) held.push(peer);
    else await pause(1);
    held.splice(0, held.length, ...held.filter(({ isOpen }) => isOpen));
    most = Math.max(most, held.length);
  }
  held.forEach((peer) => peer.end());
  return most;
}

/** Logs in again whenever the connection is gone, and does something all the time. */
async function keepOn(target: Target, act: (peer: Peer, round: number) => Promise<void>, details: object = {}): Promise<number> {
  let done = 0;
  for (let round = 0; !target.isOver(); ) {
    const peer = await Peer.login(target.address, details);
    while (peer?.isOpen && !target.isOver()) {
      await act(peer, round);
      round += 1;
      done += 1;
    }
    peer?.end();
    if (!peer) await pause(10);
  }
  return done;
}

const emit = (name: string, data: string) => ({ topic: TOPIC.EVENT, action: EVENT_ACTION.EMIT, name, data });
const subscribe = (names: string[]) => {
  return { topic: TOPIC.EVENT, action: EVENT_ACTION.SUBSCRIBE, names, correlationId: '1' };
};
const write = (name: string, data: string, more: object = {}) => {
  return { topic: TOPIC.RECORD, action: RECORD_ACTION.CREATEANDUPDATE, name, version: -1, data, ...more };
};
const names = (count: number, prefix: string): string[] => Array.from({ length: count }, (_, i) => `${prefix}/${i}`);
const TEXT = 'x'.repeat(10_000);
/** The control pairs count what comes here. */
export const CONTROL_FLOOD = 'control/flood';

const refused = (cause: string): string => `tidewire_refused_messages_total{cause="${cause}"}`;

export const ATTACKS: Attack[] = [
  {
    name: 'pages of a foreign origin',
    limit: 'network.origins',
    metric: 'tidewire_origin_refusals_total',
    off: { origins: ['*'] },
    harm: 'reached',
    bound: 0,
    run: (target) => hold(target, () => Peer.upgrade(target.address, { Origin: 'https://evil.example' }), 20),
  },
  {
    name: 'a domain of the attacker that points to the server',
    limit: 'network.hosts',
    metric: 'tidewire_origin_refusals_total',
    off: { hosts: ['evil.example'] },
    harm: 'reached',
    bound: 0,
    run: (target) => hold(target, () => Peer.upgrade(target.address, { Host: 'evil.example' }), 20),
  },
  {
    name: 'all connections for one address',
    limit: 'limits.connections_per_address_max',
    metric: 'tidewire_address_refusals_total',
    options: { limits: { connections_per_address_max: 50 } },
    off: {},
    harm: 'reached',
    bound: 50,
    run: (target) => hold(target, () => Peer.upgrade(target.address), 200),
  },
  {
    name: 'an address that forges those of others',
    limit: 'network.trusted_proxies',
    metric: 'tidewire_address_refusals_total',
    options: { limits: { connections_per_address_max: 50 } },
    off: { limits: { connections_per_address_max: 50 }, trustedProxies: ['127.0.0.0/8'] },
    harm: 'reached',
    bound: 50,
    run: (target) => {
      const forged = (index: number) => ({ 'X-Forwarded-For': `192.0.2.${index % 250}`, Forwarded: `for=192.0.2.${index % 250}` });
      return hold(target, (index) => Peer.upgrade(target.address, forged(index)), 200);
    },
  },
  {
    name: 'all connections that there are',
    limit: 'limits.connections_max',
    metric: 'tidewire_connection_refusals_total',
    options: { limits: { connections_max: 100 } },
    off: {},
    harm: 'reached',
    bound: 100,
    run: (target) => hold(target, (index) => Peer.upgrade(target.address, {}, `127.0.1.${index % 200}`), 200),
  },
  {
    name: 'TLS handshakes that never end',
    limit: 'http.head_timeout',
    metric: 'tidewire_tls_handshake_failures_total',
    isEncrypted: true,
    options: { http: { head_timeout: '300ms' } },
    off: { http: { head_timeout: '10m' } },
    harm: 'reached',
    bound: 1_000,
    run: (target) => together(50, async () => {
      let longest = 0;
      while (!target.isOver()) {
        const peer = await Peer.dial(target.tlsAddress);
        if (!peer) continue;
        // A record of a handshake that announces more than ever comes.
        await peer.write(Uint8Array.of(0x16, 3, 1, 2, 0, 1));
        while (peer.isOpen && !target.isOver()) await pause(20);
        longest = Math.max(longest, peer.lifeMs);
        peer.end();
      }
      return longest;
    }),
  },
  {
    name: 'garbage in place of TLS handshakes',
    limit: 'a handshake is checked from its first byte',
    metric: 'tidewire_tls_handshake_failures_total',
    isEncrypted: true,
    off: { because: NO_LIMIT },
    harm: 'memory',
    bound: 64 * MEBIBYTE,
    run: async (target) => {
      while (!target.isOver()) {
        const peer = await Peer.dial(target.tlsAddress);
        await peer?.write(Buffer.concat([Uint8Array.of(0x16, 3, 1, 2, 0), Buffer.alloc(512, 7)]));
        await peer?.hears(/./s);
        peer?.end();
      }
      return 0;
    },
  },
  {
    name: 'frames that are too large',
    limit: 'limits.message_bytes_max',
    metric: 'tidewire_protocol_errors_total',
    options: { limits: { message_bytes_max: 65_536 } },
    off: { limits: { message_bytes_max: 512 * MEBIBYTE, memory_bytes_max: 8_192 * MEBIBYTE, inflight_bytes_max: 1_024 * MEBIBYTE } },
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
    off: { limits: { message_bytes_max: 512 * MEBIBYTE, memory_bytes_max: 8_192 * MEBIBYTE, inflight_bytes_max: 1_024 * MEBIBYTE } },
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
    off: {
      compression: true,
      limits: { message_bytes_max: 512 * MEBIBYTE, memory_bytes_max: 8_192 * MEBIBYTE, inflight_bytes_max: 1_024 * MEBIBYTE },
    },
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
    name: 'a reader that does not read',
    limit: 'limits.outbox_bytes_max',
    metric: 'tidewire_slow_disconnects_total',
    off: { limits: { outbox_bytes_max: 4_096 * MEBIBYTE, memory_bytes_max: 8_192 * MEBIBYTE } },
    harm: 'tidewire_outbox_bytes',
    bound: 16 * MEBIBYTE,
    run: async (target) => {
      const publisher = await Peer.login(target.address);
      const data = JSON.stringify(TEXT);
      return keepOn(target, async (peer) => {
        await peer.say(subscribe(['attack/flood']));
        peer.sleep();
        while (peer.isOpen && !target.isOver()) {
          for (let i = 0; i < 50; i += 1) await publisher?.say(emit('attack/flood', data));
          await pause(2);
        }
      });
    },
  },
  {
    name: 'guessing passwords',
    limit: 'auth.attempts_max and penalty',
    metric: 'tidewire_penalty_waits_total',
    options: { users: {}, authAttemptsMax: 3, penalty: { wait_min: '1s' } },
    off: { users: {}, authAttemptsMax: 1_000_000, penalty: { wait_max: '0s' } },
    harm: 'reached',
    bound: 100,
    run: async (target) => {
      let guesses = 0;
      while (!target.isOver()) {
        const peer = await Peer.upgrade(target.address);
        await peer?.say({ topic: TOPIC.CONNECTION, action: CONNECTION_ACTION.CHALLENGE, url: target.address });
        await Promise.race([peer?.hearsFrames(1), over(target)]);
        while (peer?.isOpen && !target.isOver()) {
          const before = peer.received.length;
          await peer.say({ topic: TOPIC.AUTH, action: AUTH_ACTION.REQUEST, data: JSON.stringify({ username: 'admin', password: `${guesses}` }) });
          const isAnswered = await Promise.race([peer.hearsBytes((bytes) => bytes.length > before), over(target)]);
          if (isAnswered) guesses += 1;
        }
        peer?.end();
      }
      return guesses;
    },
  },
  {
    name: 'coming back at once after being closed',
    limit: 'penalty',
    metric: 'tidewire_penalty_waits_total',
    options: { penalty: { wait_min: '1s' } },
    off: { penalty: { wait_max: '0s' } },
    harm: 'reached',
    bound: 20,
    run: async (target) => {
      let logins = 0;
      while (!target.isOver()) {
        const peer = await Promise.race([Peer.login(target.address), over(target)]);
        if (!(peer instanceof Peer)) continue;
        logins += 1;
        await peer.frame(Buffer.alloc(1), { reserved: 7 });
        await peer.hears(/$^/);
      }
      return logins;
    },
  },
  {
    name: 'JSON that nests',
    limit: 'limits.nesting_max',
    metric: refused('too_deep'),
    off: { limits: { nesting_max: 1_000_000 } },
    harm: 'floods',
    bound: 0,
    run: (target) => keepOn(target, async (peer) => {
      await peer.say(emit(CONTROL_FLOOD, `${'['.repeat(2_000)}${']'.repeat(2_000)}`));
      await pause(1);
    }),
  },
  {
    name: 'malformed JSON',
    limit: 'every payload is checked where it enters',
    metric: refused('malformed'),
    off: { because: NO_LIMIT },
    harm: 'floods',
    bound: 0,
    run: (target) => keepOn(target, async (peer, round) => {
      const texts = ['{"a":', '{a:1}', '[1,]', '"\ud800', 'nul', '1e', '{"__proto__":}', '\u0000'];
      await peer.say(emit(CONTROL_FLOOD, texts[round % texts.length] as string));
      await pause(1);
    }),
  },
  {
    name: 'names that are too long',
    limit: 'limits.name_bytes_max',
    metric: refused('names'),
    off: { limits: { name_bytes_max: 1_000_000 } },
    harm: 'tidewire_subscribed_names',
    bound: 10,
    run: (target) => keepOn(target, async (peer, round) => {
      await peer.say(subscribe([`${'n'.repeat(2_000)}${round}`]));
      await pause(1);
    }),
  },
  {
    name: 'too many names in a message',
    limit: 'limits.bulk_names_max',
    metric: refused('bulk_names'),
    options: { limits: { bulk_names_max: 100 } },
    off: {},
    harm: 'tidewire_subscribed_names',
    bound: 10,
    run: (target) => keepOn(target, async (peer, round) => {
      await peer.say(subscribe(names(1_000, `${round}`)));
      await pause(20);
    }),
  },
  {
    name: 'subscriptions without end',
    limit: 'limits.subscriptions_max',
    metric: refused('subscriptions'),
    options: { limits: { subscriptions_max: 500 } },
    off: { limits: { subscriptions_max: 10_000_000 } },
    harm: 'tidewire_subscribed_names',
    bound: 520,
    run: (target) => keepOn(target, async (peer, round) => {
      await peer.say(subscribe(names(100, `${round}`)));
      await pause(5);
    }),
  },
  {
    name: 'patterns without end',
    limit: 'limits.subscriptions_max',
    metric: refused('subscriptions'),
    options: { limits: { subscriptions_max: 100 } },
    off: {},
    harm: 'tidewire_listen_patterns',
    // Every shard knows all patterns.
    bound: 300,
    run: (target) => keepOn(target, async (peer, round) => {
      await peer.say({ topic: TOPIC.EVENT, action: EVENT_ACTION.LISTEN, name: `^p${round}/(a+)+$` });
      await pause(1);
    }),
  },
  {
    name: 'calls without end',
    limit: 'limits.calls_max',
    metric: refused('calls'),
    options: { limits: { calls_max: 20 }, rpcAcceptTimeoutMs: 60_000 },
    off: { rpcAcceptTimeoutMs: 60_000 },
    harm: 'tidewire_running_calls',
    bound: 20,
    run: async (target) => {
      const provider = await Peer.login(target.address);
      await provider?.say({ topic: TOPIC.RPC, action: RPC_ACTION.PROVIDE, names: ['attack/rpc'], correlationId: '1' });
      await provider?.hearsBytes((bytes) => bytes.includes('1'));
      return keepOn(target, async (peer, round) => {
        await peer.say({ topic: TOPIC.RPC, action: RPC_ACTION.REQUEST, name: 'attack/rpc', correlationId: `${round}`, data: '1' });
        await pause(1);
      });
    },
  },
  {
    name: 'a record that grows by patches',
    limit: 'limits.record_bytes_max',
    metric: refused('too_large'),
    options: { limits: { record_bytes_max: 65_536 } },
    off: { limits: { record_bytes_max: 512 * MEBIBYTE } },
    harm: 'tidewire_record_bytes',
    bound: MEBIBYTE / 4,
    run: (target) => keepOn(target, async (peer, round) => {
      const patch = { topic: TOPIC.RECORD, action: RECORD_ACTION.CREATEANDPATCH, name: 'attack/record', version: -1 };
      await peer.say({ ...patch, path: `field${round}`, data: JSON.stringify(TEXT) });
      await pause(1);
    }),
  },
  {
    name: 'a list with one entry far away',
    limit: 'limits.record_bytes_max',
    metric: refused('too_large'),
    options: { limits: { record_bytes_max: 65_536 } },
    off: { limits: { record_bytes_max: 16 * MEBIBYTE } },
    harm: 'tidewire_record_bytes',
    bound: 2 * MEBIBYTE,
    run: (target) => keepOn(target, async (peer, round) => {
      const patch = { topic: TOPIC.RECORD, action: RECORD_ACTION.CREATEANDPATCH, version: -1, data: '1' };
      await peer.say({ ...patch, name: `attack/list${round % 10}`, path: 'list[100000]' });
      await pause(20);
    }),
  },
  {
    name: 'a connection that publishes too much',
    limit: 'rates.connection.publish',
    metric: refused('connection_rate'),
    // The control pairs publish a hundred a second.
    options: { rates: { connection: { publish: '500/s' } } },
    off: {},
    harm: 'floods',
    // Both pairs get each of them; the first second's worth is the burst.
    bound: 2 * 500 * (2 + SECONDS),
    run: (target) => keepOn(target, async (peer) => {
      for (let i = 0; i < 20; i += 1) await Promise.race([peer.say(emit(CONTROL_FLOOD, '1')), over(target)]);
      await pause(1);
    }),
  },
  {
    name: 'a user whose connections write too much together',
    limit: 'rates.user.write',
    metric: refused('user_rate'),
    options: { rates: { user: { write: '200/s' } } },
    off: {},
    harm: 'tidewire_records',
    bound: 10 + 200 * (2 + SECONDS),
    run: (target) => together(10, (index) => keepOn(target, async (peer, round) => {
      for (let i = 0; i < 20; i += 1) await Promise.race([peer.say(write(`attack/${index}/${round}/${i}`, '{}')), over(target)]);
      await pause(1);
    }, { username: 'mallory' })),
  },
  {
    name: 'bytes that are no message',
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

/** Resolves once the attack is over, with false. */
async function over(target: Target): Promise<false> {
  while (!target.isOver()) await pause(20);
  return false;
}
