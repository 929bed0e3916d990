// The time of a revocation on a machine without other work, for a session with 10,000 subscriptions, for each auth type.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { admin } from '../harness/admin.ts';
import { AUTH_TYPES, enter, type Entrance } from '../harness/auth-types.ts';
import { C, inState, type TestClient } from '../harness/client.ts';
import { fresh } from '../harness/names.ts';
import { againstOriginal } from '../harness/server.ts';
import { Inbox, eventually } from '../harness/wait.ts';

/** The guaranteed limit for an optimized build. */
const LIMIT_MS = 100;
const SUBSCRIPTIONS = 10_000;

/** A client with all its subscriptions, the name of the first one, and the events that it receives there. */
async function listening(test: TestContext, entrance: Entrance, user: string): Promise<[TestClient, string, Inbox<unknown>]> {
  const client = await enter(test, entrance, entrance.entry(user));
  const names = Array.from({ length: SUBSCRIPTIONS }, () => fresh('event'));
  const [name, seen] = [names[0] as string, new Inbox<unknown>('events')];
  for (const other of names.slice(1)) client.event.subscribe(other, () => {});
  client.event.subscribe(name, seen.push);
  await client.wire.acknowledged('EVENT', C.EVENT_ACTION.SUBSCRIBE, name);
  return [client, name, seen];
}

describe('a revocation ends a session with 10,000 subscriptions in less than 100 ms', { skip: againstOriginal }, () => {
  for (const [type, begin] of Object.entries(AUTH_TYPES)) {
    test(`after a login by ${type}`, async (t) => {
      const entrance = await begin(t, {});
      const { server } = entrance;
      const times = [];
      for (const user of ['first', 'second', 'third']) {
        const [client, name, seen] = await listening(t, entrance, user);
        const publisher = await enter(t, entrance, entrance.entry('publisher'));
        publisher.event.emit(name, 'before');
        await seen.find((data) => data === 'before');
        const began = performance.now();
        const [status] = await admin(server, ...entrance.revocation(user));
        times.push(performance.now() - began);
        assert.ok(status < 300, `${status}`);
        publisher.event.emit(name, 'after');
        await publisher.presence.getAll();
        await eventually(() => client.getConnectionState() !== C.CONNECTION_STATE.OPEN, 'the session has ended');
        assert.ok(!seen.seen.includes('after'), 'the session receives nothing after the answer');
        publisher.close();
        await inState(publisher, C.CONNECTION_STATE.CLOSED);
      }
      t.diagnostic(`${type}: answered after ${times.map((time) => time.toFixed(1)).join(', ')} ms`);
      // Other processes may share the machine, so the shortest of the times is the closest to the server's own.
      if (server.binary.includes('release')) assert.ok(Math.min(...times) < LIMIT_MS, `${times}`);
    });
  }
});
