// A version conflict without a value, as the unmodified client receives it: a session that may write a record, but may no longer read
// it, is behind another writer. docs/from-deepstream.md describes what the client does with it.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { LOCAL_WINS, REMOTE_WINS, type MergeStrategy } from '@deepstream/client/dist/src/record/merge-strategy.js';
import { C, connect, record } from '../harness/client.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { Inbox, isPending } from '../harness/wait.ts';

const NAME = 'box/letters';

/** Rules that allow everything. If `isShut`, only the owner may read in a box. */
function rules(isShut: boolean): string {
  const all = (...actions: string[]): Record<string, string | boolean> => Object.fromEntries(actions.map((action) => [action, true]));
  const record = all('create', 'read', 'write', 'delete', 'listen', 'notify');
  return JSON.stringify({
    presence: { '*': all('allow') },
    event: { '*': all('publish', 'subscribe', 'listen') },
    rpc: { '*': all('provide', 'request') },
    record: { '*': record, 'box/*': { ...record, read: isShut ? "user.id === 'owner'" : true } },
  });
}

describe('a conflict without a value', { concurrency: 3, skip: againstOriginal && 'deepstream sends the record' }, () => {
  /** A client at version 1 of a record. The owner has written version 2, which the client may not read. */
  async function behind(t: TestContext, mergeStrategy: MergeStrategy) {
    const server = await Server.during(t, { permissions: rules(false) });
    const owner = await connect(t, server, { login: { username: 'owner' } });
    await owner.record.setDataWithAck(NAME, { letter: 'first' });
    const client = await connect(t, server, {
      mergeStrategy,
      // The client reports the error of a merge strategy without a name.
      errors: ['MESSAGE_DENIED', 'undefined'],
    });
    const mine = await record(client, NAME);
    mine.on('error', () => undefined);
    server.setPermissions(rules(true));
    server.hangUp();
    await client.wire.receives(({ topic, action, name }) => topic === C.TOPIC.RECORD && action === C.RECORD_ACTION.MESSAGE_DENIED && name === NAME);
    await owner.record.setDataWithAck(NAME, { letter: 'secret' });
    const conflicts = new Inbox<C.Message>('conflicts');
    client.wire.onReceived((message) => message.action === C.RECORD_ACTION.VERSION_EXISTS && conflicts.push(message));
    return { owner, client, mine, conflicts };
  }

  const outcome = (promise: Promise<unknown> | void): Promise<unknown> => Promise.resolve(promise).then(() => 'made', (error: unknown) => error);

  for (const [name, strategy] of Object.entries({ REMOTE_WINS, LOCAL_WINS })) {
    test(`with ${name} the write is not made, its acknowledgement never comes, and the next write is made`, async (t) => {
      const { owner, mine, conflicts } = await behind(t, strategy);
      const first = outcome(mine.setWithAck('letter', 'mine'));
      const conflict = await conflicts.next();
      assert.deepEqual([conflict.version, conflict.data, conflict.parsedData], [2, undefined, undefined]);
      assert.deepEqual(await owner.record.snapshot(NAME), { letter: 'secret' });
      // The client continues from the version in the conflict, with its own value.
      assert.deepEqual([mine.get(), mine.version], [{ letter: 'mine' }, 2]);
      assert.equal(await outcome(mine.setWithAck('letter', 'again')), 'made');
      assert.deepEqual(await owner.record.snapshot(NAME), { letter: 'again' });
      assert.equal(await isPending(first), true);
    });
  }

  test('a strategy of the app gets undefined as the remote value, and its error fails the write', async (t) => {
    const calls: unknown[][] = [];
    const { owner, mine } = await behind(t, (...call) => {
      calls.push(call.slice(0, 4));
      call[4]('the box is shut', null as never);
    });
    assert.equal(await outcome(mine.setWithAck('letter', 'mine')), 'the box is shut');
    assert.deepEqual(calls, [[{ letter: 'mine' }, 2, undefined, 2]]);
    assert.deepEqual(await owner.record.snapshot(NAME), { letter: 'secret' });
  });

  test('a client that has not opened the record sends no version and never has a conflict', async (t) => {
    const server = await Server.during(t, { permissions: rules(true) });
    const owner = await connect(t, server, { login: { username: 'owner' } });
    await owner.record.setDataWithAck(NAME, { letter: 'secret' });
    const client = await connect(t, server);
    await client.record.setDataWithAck(NAME, { letter: 'dropped' });
    assert.deepEqual(await owner.record.snapshot(NAME), { letter: 'dropped' });
  });
});
