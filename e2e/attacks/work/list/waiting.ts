// Attacks with messages that wait or grow on their way: calls without an answer, large events to many recipients, presence queries for
// all users, and compressed messages.

import { deflateRawSync } from 'node:zlib';
import { getMessage } from '@deepstream/protobuf/dist/src/message-builder.js';
import { C } from '../../../harness/client.ts';
import type { Said } from '../../peer.ts';
import { ONLINE } from '../account.ts';
import { bursts, repeated, sendBurst, type Burst, type WorkAttack } from '../attack.ts';
import { burst, Connection, frame, framed } from '../connection.ts';
import { WITHOUT_MEMORY_LIMIT, WITHOUT_WORK_LIMITS } from '../limit.ts';

const { TOPIC, EVENT_ACTION, RPC_ACTION, PRESENCE_ACTION, CONNECTION_ACTION } = C;

/** Calls of `bytes` each; their provider, which is the caller, accepts them and never answers. */
function unansweredCalls(bytes: number, perBurst: number): WorkAttack['prepare'] {
  const data = JSON.stringify('x'.repeat(bytes));
  return (seat) => () => seat.withConnections(async (connection) => {
    const name = `call/${seat.index}`;
    const provide: Burst = {
      bytes: framed({ topic: TOPIC.RPC, action: RPC_ACTION.PROVIDE, names: [name], correlationId: '1' }), answers: [[TOPIC.RPC, RPC_ACTION.PROVIDE]], count: 1,
      touchedBytes: 0,
    };
    if (!(await sendBurst(seat, connection, provide))) return;
    let accepted = 0;
    // The provider receives the calls of one connection in the order in which they were made.
    connection.onFrame = (topic, action) => {
      if (topic !== TOPIC.RPC || action !== RPC_ACTION.REQUEST) return;
      connection.send(framed({ topic: TOPIC.RPC, action: RPC_ACTION.ACCEPT, name, correlationId: `c${accepted}` }));
      accepted += 1;
    };
    for (let round = 0; ; round += 1) {
      const calls = Array.from({ length: perBurst }, (_, index): Said => {
        return { topic: TOPIC.RPC, action: RPC_ACTION.REQUEST, name, correlationId: `c${round * perBurst + index}`, data };
      });
      const made: Burst = { bytes: burst(calls), answers: [[TOPIC.RPC, RPC_ACTION.REQUEST]], count: perBurst, touchedBytes: data.length };
      if (!(await sendBurst(seat, connection, made))) return;
    }
  });
}

/** Nested empty arrays that compress to about a thousandth of their size. */
const arrays = (bytes: number): string => `[${Array.from({ length: Math.floor(bytes / 3) }, () => '[]').join(',')}]`;

export const WAITING: WorkAttack[] = [
  {
    name: 'calls of 200 KB that are accepted and never answered',
    harm: 'memory',
    off: WITHOUT_MEMORY_LIMIT,
    prepare: unansweredCalls(200_000, 50),
  },
  {
    name: 'calls of 50 KB that are accepted and never answered',
    harm: 'memory',
    off: WITHOUT_MEMORY_LIMIT,
    prepare: unansweredCalls(50_000, 200),
  },
  {
    name: 'large events among ten connections',
    harm: 'latency',
    off: { because: 'the server encodes an event once, and all outboxes share its bytes, so a turn is short without the limit too' },
    prepare: (seat) => async () => {
      // Ten more connections read each event. The server closes readers that are too slow, so they come back.
      const subscribe = framed({ topic: TOPIC.EVENT, action: EVENT_ACTION.SUBSCRIBE, names: ['flood'], correlationId: '1' });
      const readers = Array.from({ length: 10 / seat.shape.connections }, () => seat.withConnections(async (reader) => {
        reader.send(subscribe);
        await reader.until(() => seat.isOver);
      }));
      const data = JSON.stringify('x'.repeat(300_000));
      const events = Array.from({ length: 10 }, (): Said => ({ topic: TOPIC.EVENT, action: EVENT_ACTION.EMIT, name: 'flood', data }));
      const flood = Buffer.concat([burst(events), framed({ topic: TOPIC.CONNECTION, action: CONNECTION_ACTION.PING })]);
      const again: Burst = { bytes: flood, answers: [[TOPIC.CONNECTION, CONNECTION_ACTION.PONG]], count: 1, touchedBytes: 11 * 10 * data.length };
      await seat.withConnections(async (connection) => {
        while (await sendBurst(seat, connection, again));
      });
      await Promise.all(readers);
    },
  },
  {
    name: 'presence queries for all of 1,000 users online',
    harm: 'latency',
    off: WITHOUT_WORK_LIMITS,
    prepare: (seat) => async () => {
      const online: Connection[] = [];
      for (let index = 0; index < ONLINE && seat.index === 0; index += 1) {
        const login = { username: `online-user-with-a-name-of-forty-bytes-${index}`, password: seat.login.password };
        const connection = await Connection.login(seat.address, login);
        if (connection !== undefined) online.push(connection);
      }
      const questions = Array.from({ length: 5_000 }, (): Said => ({ topic: TOPIC.PRESENCE, action: PRESENCE_ACTION.QUERY_ALL }));
      const asked: Burst = {
        bytes: burst(questions), answers: [[TOPIC.PRESENCE, PRESENCE_ACTION.QUERY_ALL_RESPONSE]], count: 5_000, touchedBytes: 44 * ONLINE,
      };
      await seat.withConnections(async (connection) => {
        while (await sendBurst(seat, connection, asked));
      });
      online.forEach((connection) => connection.end());
    },
  },
  {
    name: 'compressed messages of 1 MB of small arrays',
    options: { compression: true },
    harm: 'latency',
    off: { compression: true, ...WITHOUT_WORK_LIMITS },
    prepare: repeated(() => {
      const message = getMessage({ topic: TOPIC.EVENT, action: EVENT_ACTION.EMIT, name: 'arrays', data: arrays(1_000_000) }, false);
      // RFC 7692, 7.2.1: the sender removes the last four bytes of the empty block that ends a message.
      const deflated = deflateRawSync(message, { finishFlush: 2 }).subarray(0, -4);
      const ping = framed({ topic: TOPIC.CONNECTION, action: CONNECTION_ACTION.PING });
      const both = Buffer.concat([frame(deflated, { isCompressed: true }), ping]);
      const count = 20;
      return {
        bytes: Buffer.concat(Array.from({ length: count }, () => both)), answers: [[TOPIC.CONNECTION, CONNECTION_ACTION.PONG]], count,
        touchedBytes: message.length,
      };
    }, { 'Sec-WebSocket-Extensions': 'permessage-deflate; client_no_context_takeover; server_no_context_takeover' }),
  },
  {
    name: 'events of 1 MB of small arrays',
    harm: 'latency',
    off: { because: 'a turn reads at most 64 KiB of each socket, so few messages of 1 MB end in the same turn, whatever the limits on work' },
    prepare: bursts(() => {
      const count = 12;
      const data = arrays(1_000_000);
      const event = framed({ topic: TOPIC.EVENT, action: EVENT_ACTION.EMIT, name: 'arrays', data });
      const ping = framed({ topic: TOPIC.CONNECTION, action: CONNECTION_ACTION.PING });
      const sent: Burst = {
        bytes: Buffer.concat([...Array.from({ length: count }, () => event), ping]), answers: [[TOPIC.CONNECTION, CONNECTION_ACTION.PONG]], count: 1,
        touchedBytes: count * data.length,
      };
      return () => sent;
    }),
  },
];
