// Attacks with many names: subscriptions, patterns, providers, and names that are only read.

import { C } from '../../../harness/client.ts';
import type { Said } from '../../peer.ts';
import { bursts, sendBurst, type Burst, type Seat, type WorkAttack } from '../attack.ts';
import { burst, framed, type Connection } from '../connection.ts';
import { WITHOUT_MEMORY_LIMIT, WITHOUT_WORK_LIMITS } from '../limit.ts';
import { rules, seedRecords } from '../seed.ts';

const { TOPIC, EVENT_ACTION, RECORD_ACTION, RPC_ACTION, PRESENCE_ACTION } = C;

const ONLY_REQUESTED = { because: 'a shard keeps at most 256 KiB of records that were only requested, whatever its memory budget' };
const USED_ONCE = { because: 'a shard keeps at most 4 MiB of idle records that were used once, whatever its memory budget' };

/** The most names of one session, equal to the default of `limits.subscriptions_max`. */
const SESSION_NAMES = 100_000;

const names = (count: number, prefix: string, bytes = 0): string[] => Array.from({ length: count }, (_, index) => `${prefix}/${index}`.padEnd(bytes, 'n'));

/** A bulk message, and the kind of message that answers it. */
function bulk(topic: number, action: number, list: string[]): Burst {
  const bytes = framed({ topic, action, names: list, correlationId: '1' });
  return { bytes, answers: [[topic, action]], count: 1, touchedBytes: bytes.length };
}

/** A number for each set of names, so that all names are new. */
let setCount = 0;
const freshPrefix = (seat: Seat): string => `${seat.index}-${(setCount += 1)}`;

/** Takes as many names as a session may have, in messages of `perMessage` names; false if the connection ends first. */
async function take(seat: Seat, connection: Connection, perMessage: number, message: (number: number) => Burst): Promise<boolean> {
  for (let number = 0; number < Math.floor(SESSION_NAMES / perMessage); number += 1) {
    if (!(await sendBurst(seat, connection, message(number)))) return false;
  }
  return true;
}

/** Takes and holds as many names of 1 KB as a session may have; repeats this when the server closes the connection. */
function holdLongNames(topic: number, action: number): WorkAttack['prepare'] {
  return (seat) => () => seat.withConnections(async (connection) => {
    const prefix = freshPrefix(seat);
    await take(seat, connection, 900, (number) => bulk(topic, action, names(900, `${prefix}/${number}`, 1_000)));
    await connection.until(() => seat.isOver);
  });
}

/** Alternates two bulk messages; the second one undoes the first. */
function inTurns(topic: number, actions: [number, number], count: number, prefix: string): WorkAttack['prepare'] {
  return bursts((seat) => {
    const list = names(count, `${prefix}/${seat.index}`);
    const both = actions.map((action) => bulk(topic, action, list));
    return (round) => both[round % 2] as Burst;
  });
}

/** Opens one connection at a time, performs `act` on it and ends it. */
async function comeAndGo(seat: Seat, act: (connection: Connection) => Promise<unknown>): Promise<void> {
  while (!seat.isOver) {
    const connection = await Promise.race([seat.connect(), seat.over()]);
    if (!connection) continue;
    await act(connection);
    seat.complete(1, 1_000);
    seat.release(connection);
  }
}

export const NAMES: WorkAttack[] = [
  {
    name: 'subscribed names of 1 KB',
    harm: 'memory',
    off: WITHOUT_MEMORY_LIMIT,
    prepare: holdLongNames(TOPIC.EVENT, EVENT_ACTION.SUBSCRIBE),
  },
  {
    name: 'provided rpc names of 1 KB',
    harm: 'memory',
    off: WITHOUT_MEMORY_LIMIT,
    prepare: holdLongNames(TOPIC.RPC, RPC_ACTION.PROVIDE),
  },
  {
    name: 'events of one message of 90,000 names',
    harm: 'latency',
    off: WITHOUT_WORK_LIMITS,
    prepare: inTurns(TOPIC.EVENT, [EVENT_ACTION.SUBSCRIBE, EVENT_ACTION.UNSUBSCRIBE], 90_000, 'e'),
  },
  {
    name: 'records of one message of 90,000 names',
    harm: 'latency',
    off: WITHOUT_WORK_LIMITS,
    prepare: inTurns(TOPIC.RECORD, [RECORD_ACTION.SUBSCRIBEANDHEAD, RECORD_ACTION.UNSUBSCRIBE], 90_000, 'r'),
  },
  {
    name: 'presence queries for 80,000 users',
    harm: 'latency',
    off: WITHOUT_WORK_LIMITS,
    prepare: bursts((seat) => {
      const bytes = framed({ topic: TOPIC.PRESENCE, action: PRESENCE_ACTION.QUERY, names: names(80_000, `u${seat.index}`), correlationId: '1' });
      const burst = { bytes, answers: [[TOPIC.PRESENCE, PRESENCE_ACTION.QUERY_RESPONSE] as [number, number]], count: 1, touchedBytes: 2 * bytes.length };
      return () => burst;
    }),
  },
  {
    name: 'subscriptions of one message whose rule reads another record',
    options: { permissions: rules({}, { 'guarded/*': { subscribe: "_('acl').open === true" } }) },
    harm: 'latency',
    off: WITHOUT_WORK_LIMITS,
    seed: (address) => seedRecords(address, ['acl'], '{"open":true}'),
    prepare: inTurns(TOPIC.EVENT, [EVENT_ACTION.SUBSCRIBE, EVENT_ACTION.UNSUBSCRIBE], 50_000, 'guarded'),
  },
  {
    name: 'versions of ever new names of 1 KB that may not be read',
    options: { permissions: rules({ 'secret/*': { read: false } }) },
    harm: 'memory',
    off: ONLY_REQUESTED,
    prepare: bursts((seat) => () => {
      const list = names(1_000, `secret/${freshPrefix(seat)}`, 1_000);
      const messages = list.map((name): Said => ({ topic: TOPIC.RECORD, action: RECORD_ACTION.HEAD, name }));
      return { bytes: burst(messages), answers: [[TOPIC.RECORD, RECORD_ACTION.MESSAGE_DENIED]], count: 1_000, touchedBytes: 1_000 };
    }),
  },
  {
    name: 'reads of ever new names of 1 KB',
    harm: 'memory',
    off: ONLY_REQUESTED,
    prepare: bursts((seat) => () => {
      const list = names(1_000, freshPrefix(seat), 1_000);
      const messages = list.map((name): Said => ({ topic: TOPIC.RECORD, action: RECORD_ACTION.READ, name }));
      return { bytes: burst(messages), answers: [[TOPIC.RECORD, RECORD_ACTION.RECORD_NOT_FOUND]], count: 1_000, touchedBytes: 1_000 };
    }),
  },
  {
    name: 'creations of ever new records',
    harm: 'memory',
    off: USED_ONCE,
    prepare: bursts((seat) => () => {
      const list = names(2_000, `new/${freshPrefix(seat)}`);
      const bytes = framed({ topic: TOPIC.RECORD, action: RECORD_ACTION.SUBSCRIBECREATEANDREAD, names: list, correlationId: '1' });
      return { bytes, answers: [[TOPIC.RECORD, RECORD_ACTION.READ_RESPONSE], [TOPIC.RECORD, RECORD_ACTION.MESSAGE_DENIED]], count: 2_000, touchedBytes: 100 };
    }),
  },
  {
    name: 'event patterns while events are ever new',
    harm: 'either',
    off: WITHOUT_WORK_LIMITS,
    prepare: (seat) => () => seat.withConnections(async (connection) => {
      const patterns = Array.from({ length: 1_000 }, (_, index): Said => ({ topic: TOPIC.EVENT, action: EVENT_ACTION.LISTEN, name: `${seat.index}p.*[${index % 10}]?(q${index})?${'q?'.repeat(index % 30)}` }));
      const listens = { bytes: burst(patterns), answers: [[TOPIC.EVENT, EVENT_ACTION.LISTEN] as [number, number]], count: 1_000, touchedBytes: 100 };
      if (!(await sendBurst(seat, connection, listens))) return;
      const prefix = `${seat.index}p${freshPrefix(seat)}`;
      await take(seat, connection, 5_000, (number) => bulk(TOPIC.EVENT, EVENT_ACTION.SUBSCRIBE, names(5_000, `${prefix}/${number}`)));
      await connection.until(() => seat.isOver);
    }),
  },
  {
    name: 'record patterns with 90,000 records, offered again',
    options: { listen: { rematch_interval: '2s' } },
    harm: 'latency',
    off: { listen: { rematch_interval: '2s' }, ...WITHOUT_WORK_LIMITS },
    prepare: (seat) => () => seat.withConnections(async (connection) => {
      const prefix = `${seat.index}w${freshPrefix(seat)}`;
      if (!(await take(seat, connection, 10_000, (number) => bulk(TOPIC.RECORD, RECORD_ACTION.SUBSCRIBEANDHEAD, names(9_000, `${prefix}/${number}`))))) return;
      const patterns = Array.from({ length: 1_000 }, (_, index): Said => ({ topic: TOPIC.RECORD, action: RECORD_ACTION.LISTEN, name: `[${seat.index}]w.*${index % 10}x?${'y?'.repeat(index % 20)}` }));
      await sendBurst(seat, connection, { bytes: burst(patterns), answers: [[TOPIC.RECORD, RECORD_ACTION.LISTEN]], count: 1_000, touchedBytes: 9_000 });
      await connection.until(() => seat.isOver);
    }),
  },
  {
    name: 'a pattern that comes and goes with 90,000 wanted records',
    harm: 'latency',
    off: { because: 'a turn makes at most a thousand steps of the searches for providers, whatever the limits on work' },
    prepare: (seat) => () => seat.withConnections(async (connection) => {
      const prefix = `c${freshPrefix(seat)}`;
      // All connections together want 90,000 records. With as many each, the memory budget ends the sessions, which another attack tests.
      const wanted = 90_000 / seat.shape.connections;
      const want = (number: number): Burst => bulk(TOPIC.RECORD, RECORD_ACTION.SUBSCRIBEANDHEAD, names(wanted / 10, `${prefix}/${number}`));
      if (!(await take(seat, connection, 10_000, want))) return;
      const turns = Array.from({ length: 20 }, (_, index): Said => {
        return { topic: TOPIC.RECORD, action: index % 2 === 0 ? RECORD_ACTION.LISTEN : RECORD_ACTION.UNLISTEN, name: `${prefix}/.*` };
      });
      const churn: Burst = {
        bytes: burst(turns), answers: [[TOPIC.RECORD, RECORD_ACTION.LISTEN], [TOPIC.RECORD, RECORD_ACTION.UNLISTEN]], count: 20, touchedBytes: wanted,
      };
      while (await sendBurst(seat, connection, churn));
    }),
  },
  {
    name: 'sessions that come and go with 100,000 provided rpc names of each connection',
    harm: 'latency',
    off: WITHOUT_WORK_LIMITS,
    prepare: (seat) => () => seat.withConnections(async (connection) => {
      const prefix = freshPrefix(seat);
      if (!(await take(seat, connection, 10_000, (number) => bulk(TOPIC.RPC, RPC_ACTION.PROVIDE, names(10_000, `${prefix}/${number}`))))) return;
      await comeAndGo(seat, (other) => sendBurst(seat, other, bulk(TOPIC.RPC, RPC_ACTION.PROVIDE, ['one more'])));
    }),
  },
  {
    name: 'the end of sessions with 90,000 records each',
    harm: 'latency',
    off: WITHOUT_WORK_LIMITS,
    prepare: (seat) => () => comeAndGo(seat, (connection) => {
      const prefix = freshPrefix(seat);
      return take(seat, connection, 10_000, (number) => bulk(TOPIC.RECORD, RECORD_ACTION.SUBSCRIBEANDHEAD, names(9_000, `${prefix}/${number}`)));
    }),
  },
];
