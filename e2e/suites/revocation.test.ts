// How fast a revocation is done on a machine that does nothing else: the session of whoever is revoked has 10,000 subscriptions.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { admin, listening, startWithAdmin as start, tokenOf } from '../harness/admin.ts';
import { C, connect, inState } from '../harness/client.ts';
import { againstOriginal } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';

/** What is promised, for a build that is optimised. */
const LIMIT_MS = 100;

describe('a revocation', { skip: againstOriginal }, () => {
  test('has ended a session with 10,000 subscriptions in less than 100 ms', async (t) => {
    const server = await start(t);
    const times = [];
    for (const user of ['first', 'second', 'third', 'fourth', 'fifth']) {
      const [client, name, seen] = await listening(t, server, tokenOf(server, user), 10_000);
      const publisher = await connect(t, server, { login: { token: tokenOf(server, 'publisher') } });
      publisher.event.emit(name, 'before');
      await seen.find((data) => data === 'before');
      const begin = performance.now();
      assert.equal((await admin(server, 'POST', '/revocations', { user }))[0], 201);
      times.push(performance.now() - begin);
      publisher.event.emit(name, 'after');
      await publisher.presence.getAll();
      await eventually(() => client.getConnectionState() !== C.CONNECTION_STATE.OPEN, 'the session has ended');
      assert.ok(!seen.seen.includes('after'), 'nothing is received after the answer');
      publisher.close();
      await inState(publisher, C.CONNECTION_STATE.CLOSED);
    }
    t.diagnostic(`answered after ${times.map((time) => time.toFixed(1)).join(', ')} ms`);
    // Others may share the machine; the best of five is the server's own time.
    if (server.binary.includes('release')) assert.ok(Math.min(...times) < LIMIT_MS, `${times}`);
  });
});
