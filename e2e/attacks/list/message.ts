// Attacks with the content of messages: JSON, names, patterns, their number, and messages that need permission rules.

import { setTimeout as pause } from 'node:timers/promises';
import { C } from '../../harness/client.ts';
import { type Attack, CONTROL_FLOOD, NO_LIMIT, emit, listen, names, over, refused, say, subscribe, subscribePatterns, write } from '../attack.ts';
import { Peer } from '../peer.ts';

const { TOPIC, RPC_ACTION } = C;

/** Permission rules for `record` and `event`, in addition to rules that allow everything. */
const permissions = (record: object, event: object): string => {
  const all = { create: true, read: true, write: true, delete: true, listen: true, notify: true };
  return JSON.stringify({
    record: { '*': all, ...record },
    event: { '*': { publish: true, subscribe: true, listen: true }, ...event },
    rpc: { '*': { provide: true, request: true } },
    presence: { '*': { allow: true } },
  });
};

/** A rule that reads 20 other records at once. */
const COSTLY = permissions({ 'costly/*': { create: `[${names(20, 'asked').map((name) => `_('${name}')`).join(', ')}].length === 20` } }, {});

/** Names whose FNV-1a hashes agree in their low bits, as an attacker would choose them for a table with a known hash. */
function collidingNames(count: number): string[] {
  const found: string[] = [];
  for (let number = 0; found.length < count; number += 1) {
    const name = `n${number}`;
    let hash = 0x811c9dc5;
    for (let i = 0; i < name.length; i += 1) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
    if ((hash & 0xff) === 0) found.push(name);
  }
  return found;
}

export const MESSAGES: Attack[] = [
  {
    name: 'JSON that nests',
    limit: 'limits.nesting_max',
    metric: refused('too_deep'),
    off: { limits: { nesting_max: 1_000_000 } },
    harm: 'floods',
    bound: 0,
    run: (target) => say(target, () => emit(CONTROL_FLOOD, `${'['.repeat(2_000)}${']'.repeat(2_000)}`)),
  },
  {
    name: 'malformed JSON',
    limit: 'every payload is checked where it enters',
    metric: refused('malformed'),
    off: { because: NO_LIMIT },
    harm: 'floods',
    bound: 0,
    run: (target) => {
      const texts = ['{"a":', '{a:1}', '[1,]', '"\ud800', 'nul', '1e', '{"__proto__":}', '\u0000'];
      return say(target, (round) => emit(CONTROL_FLOOD, texts[round % texts.length] as string));
    },
  },
  {
    name: 'names that are too long',
    limit: 'limits.name_bytes_max',
    metric: refused('names'),
    off: { limits: { name_bytes_max: 1_000_000 } },
    harm: 'tidewire_subscribed_names',
    bound: 10,
    run: (target) => say(target, (round) => subscribe([`${'n'.repeat(2_000)}${round}`])),
  },
  {
    name: 'too many names in a message',
    limit: 'limits.bulk_names_max',
    metric: refused('bulk_names'),
    options: { limits: { bulk_names_max: 100 } },
    off: {},
    harm: 'tidewire_subscribed_names',
    bound: 10,
    run: (target) => say(target, (round) => subscribe(names(1_000, `${round}`)), { pauseMs: 20 }),
  },
  {
    name: 'subscriptions without end',
    limit: 'limits.subscriptions_max',
    metric: refused('subscriptions'),
    options: { limits: { subscriptions_max: 500 } },
    off: { limits: { subscriptions_max: 10_000_000 } },
    harm: 'tidewire_subscribed_names',
    bound: 520,
    run: (target) => say(target, (round) => subscribe(names(100, `${round}`)), { pauseMs: 5 }),
  },
  {
    name: 'names that were chosen to collide',
    limit: 'the key of every hash is new at each start',
    metric: refused('subscriptions'),
    options: { limits: { subscriptions_max: 5_000 } },
    off: { because: 'there is no fixed hash that could be chosen' },
    harm: 'tidewire_subscribed_names',
    bound: 5_020,
    run: (target) => {
      const colliding = collidingNames(10_000);
      return say(target, (round) => {
        const from = (round * 500) % colliding.length;
        return subscribe(colliding.slice(from, from + 500));
      }, { pauseMs: 5 });
    },
  },
  {
    name: 'patterns without end',
    limit: 'limits.patterns_max',
    metric: refused('patterns'),
    options: { limits: { patterns_max: 100 } },
    off: { limits: { patterns_max: 1_000_000 } },
    harm: 'tidewire_listen_patterns',
    // Each pattern counts on every shard.
    bound: 300,
    run: (target) => say(target, (round) => listen(`^p${round}/(a+)+$`)),
  },
  {
    name: 'patterns of events without end',
    limit: 'limits.event_patterns_max',
    metric: refused('event_patterns'),
    options: { limits: { event_patterns_max: 100 } },
    off: { limits: { event_patterns_max: 1_000_000 } },
    harm: 'tidewire_event_patterns',
    bound: 300,
    run: (target) => say(target, (round) => subscribePatterns(names(100, `${round}`).map((name) => `${name}/*/**`)), { pauseMs: 5 }),
  },
  {
    name: 'patterns that are costly to compile',
    limit: 'bytes and depth of a compiled pattern',
    metric: refused('uncompilable'),
    off: { because: 'no option changes them; patterns are matched in linear time, and only patterns that need little memory are compiled' },
    harm: 'tidewire_listen_patterns',
    bound: 0,
    run: (target) => {
      const bombs = [
        '(((a{1,100}){1,100}){1,100}){1,100}', '(\\pL{1000}){1000}', `${'('.repeat(200)}a${')'.repeat(200)}`, '(?=a+)+b', '(a)\\1', 'x{1,1000000000}',
        Array.from({ length: 20 }, (_, i) => `(\\w{${i + 30}}|\\pL{${i + 30}})`).join(''),
      ];
      return say(target, (round) => listen(bombs[round % bombs.length] as string));
    },
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
      const call = { topic: TOPIC.RPC, action: RPC_ACTION.REQUEST, name: 'attack/rpc', data: '1' };
      return say(target, (round) => ({ ...call, correlationId: `${round}` }));
    },
  },
  {
    name: 'one forbidden name among many',
    limit: 'permissions: each name of a message is authorized separately',
    metric: refused('denied'),
    options: { permissions: permissions({}, { 'secret/*': { subscribe: false } }) },
    off: {},
    harm: 'reached',
    bound: 0,
    run: async (target) => {
      const publisher = await Peer.login(target.address);
      const isOver = over(target);
      let told = 0;
      for (let round = 0; !target.isOver(); round += 1) {
        const peer = await Promise.race([Peer.login(target.address), isOver]);
        if (!peer) continue;
        const open = names(50, `open/${round}`);
        await peer.say(subscribe([...open, 'secret/plan', ...names(50, `more/${round}`)]));
        // The events of one sender arrive in order: if 'for all' arrives first, the forbidden event was withheld.
        while (peer.isOpen && !target.isOver() && !peer.received.includes('for all')) {
          await publisher?.say(emit('secret/plan', '"for few"'));
          await publisher?.say(emit(open[0] as string, '"for all"'));
          await pause(5);
        }
        if (peer.received.includes('for few')) told += 1;
        peer.end();
      }
      publisher?.end();
      return told;
    },
  },
  {
    name: 'writes whose rule asks for many records',
    limit: 'limits.rule_reads_max',
    metric: refused('rule_failed'),
    options: { permissions: COSTLY },
    off: { permissions: COSTLY, limits: { rule_reads_max: 1_000 } },
    harm: 'tidewire_store_writes_total',
    // The control pairs write one record.
    bound: 1,
    run: (target) => say(target, (round) => write(`costly/${round}`, '{}')),
  },
];
