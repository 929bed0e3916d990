// Floods against the rate limits: events, writes, unanswered calls, presence queries, patterns that are added and removed.

import { C } from '../../harness/client.ts';
import { type Attack, CONTROL_FLOOD, emit, refused, say, together, write } from '../attack.ts';

const { TOPIC, RECORD_ACTION, RPC_ACTION, PRESENCE_ACTION } = C;
/** Messages that a rate of 100 a second admits in addition: the burst, which is one second's worth, and those of two late seconds. */
const HUNDREDS = 300;

export const RATES: Attack[] = [
  {
    name: 'a connection that publishes too much',
    limit: 'rates.connection.publish',
    metric: refused('connection_rate'),
    // The control pairs publish 100 events a second.
    options: { rates: { connection: { publish: '500/s' } } },
    off: {},
    harm: 'floods',
    // Both pairs receive each event; the first second's worth is the burst.
    bound: 2 * 500 * 2,
    boundPerSecond: 2 * 500,
    run: (target) => say(target, () => emit(CONTROL_FLOOD, '1'), { burst: 20 }),
  },
  {
    name: 'a user whose connections write too much together',
    limit: 'rates.user.write',
    metric: refused('user_rate'),
    options: { rates: { user: { write: '200/s' } } },
    off: {},
    harm: 'tidewire_records',
    bound: 10 + 200 * 2,
    boundPerSecond: 200,
    run: (target) => together(10, (index) => {
      return say(target, (round) => write(`attack/${index}/${round}`, '{}'), { burst: 20, details: { username: 'mallory' } });
    }),
  },
  {
    name: 'calls without an answer',
    limit: 'rates.connection.call',
    metric: refused('connection_rate'),
    options: { rates: { connection: { call: '100/s' } } },
    off: {},
    harm: 'tidewire_messages_received_total{topic="rpc"}',
    bound: HUNDREDS,
    boundPerSecond: 100,
    run: (target) => say(target, (round) => {
      return { topic: TOPIC.RPC, action: RPC_ACTION.REQUEST, name: `nobody/${round}`, correlationId: `${round}`, data: '1' };
    }, { burst: 20 }),
  },
  {
    name: 'endless presence queries',
    limit: 'rates.connection.read',
    metric: refused('connection_rate'),
    options: { rates: { connection: { read: '100/s' } } },
    off: {},
    harm: 'tidewire_messages_received_total{topic="presence"}',
    bound: HUNDREDS,
    boundPerSecond: 100,
    run: (target) => say(target, () => ({ topic: TOPIC.PRESENCE, action: PRESENCE_ACTION.QUERY_ALL, correlationId: '1' }), { burst: 20 }),
  },
  {
    name: 'patterns that come and go',
    limit: 'rates.connection.subscribe',
    metric: refused('connection_rate'),
    options: { rates: { connection: { subscribe: '100/s' } } },
    off: {},
    harm: 'tidewire_messages_received_total{topic="record"}',
    // Removing a pattern costs no permit.
    bound: 2 * HUNDREDS,
    boundPerSecond: 2 * 100,
    run: (target) => say(target, (round) => {
      const action = round % 2 === 0 ? RECORD_ACTION.LISTEN : RECORD_ACTION.UNLISTEN;
      return { topic: TOPIC.RECORD, action, name: `^come/${round >> 1}` };
    }, { burst: 20 }),
  },
];
