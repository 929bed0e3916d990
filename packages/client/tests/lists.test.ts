// Lists against a fake server that sends exactly the messages of the test: conflicts and losses at the worst moment.

import assert from 'node:assert/strict';
import { mock, test, type TestContext } from 'node:test';
import { Client, type TidewireError } from '../src/index.js';
import { openList, type ListHandle } from '../src/lists.js';
import { ConnectionAction, RecordAction, Topic, type Message } from '../src/protocol.js';
import { fakeSockets, settle, type FakeSocket } from './fake-socket.js';

interface Stage {
  list: ListHandle;
  last(): FakeSocket;
  /** Loses the connection and opens another session, in which the record has this version and value. */
  returns(version: number, value: unknown): Promise<void>;
}

const message = (action: number, fields: Partial<Message> = {}): Message => ({ topic: Topic.Record, action, name: 'list', ...fields });

async function opened(t: TestContext, value: unknown): Promise<Stage> {
  mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  t.after(() => mock.timers.reset());
  t.mock.method(Math, 'random', () => 0);
  const { webSocket, last } = fakeSockets();
  const client = new Client('server:1', { webSocket });
  const errors: TidewireError[] = [];
  client.onError((error) => errors.push(error));
  t.after(() => client.close());
  const list = openList(client.record, 'list');
  const logsIn = async (version: number, now: unknown): Promise<void> => {
    last().opens();
    last().says({ topic: Topic.Connection, action: ConnectionAction.Accept });
    await settle();
    last().says({ topic: Topic.Auth, action: 3 });
    await settle();
    last().take();
    last().says(message(RecordAction.ReadResponse, { version, data: JSON.stringify(now) }));
  };
  void client.connect();
  await logsIn(1, value);
  await list.ready;
  const returns = async (version: number, now: unknown): Promise<void> => {
    last().ends();
    mock.timers.tick(0);
    await logsIn(version, now);
  };
  return { list, last, returns };
}

/** The only write that the client has sent, and the entries that the write sets. */
async function written(socket: FakeSocket): Promise<{ write: Message; entries: unknown }> {
  await settle();
  const [write, ...more] = socket.take();
  assert.ok(write && more.length === 0);
  return { write, entries: JSON.parse(write.data ?? '') };
}

const answer = (write: Message, action: number, fields: Partial<Message> = {}): Message => {
  return message(action, { correlationId: write.correlationId as string, isWriteAck: true, ...fields });
};
const exists = (write: Message, version: number, value: unknown): Message => {
  return answer(write, RecordAction.VersionExists, { version, data: JSON.stringify(value) });
};

test('changes that lost a race are repeated on the newer entries', async (t) => {
  const { list, last } = await opened(t, ['a', 'b', 'a']);
  const changes = [list.remove('a', 2), list.add('x', 1)];
  assert.deepEqual(list.entries, ['a', 'x', 'b']);
  const first = await written(last());
  assert.deepEqual(first.entries, ['a', 'b']);
  last().says(exists(first.write, 2, ['new', 'a', 'b', 'a']));
  const again = await written(last());
  // The removal applies to the second "a", at its new index.
  assert.deepEqual(again.entries, ['new', 'x', 'a', 'b']);
  last().says(answer(again.write, RecordAction.WriteAcknowledgement));
  await Promise.all(changes);
  assert.deepEqual([list.entries, list.isSaved, list.version], [['new', 'x', 'a', 'b'], true, 3]);
});

for (const [what, now, isMade] of [
  ['made', ['a', 'x', 'y'], true],
  ['not made', ['a', 'y', 'z'], false],
] as const) {
  test(`after a loss the client looks for an addition that may have been made: ${what}`, async (t) => {
    const { list, last, returns } = await opened(t, ['a']);
    const added = list.add('x');
    await settle();
    last().take();
    await returns(3, now);
    const repeated = await written(last());
    last().says(exists(repeated.write, 3, now));
    await settle();
    if (!isMade) {
      const again = await written(last());
      assert.deepEqual(again.entries, ['a', 'y', 'z', 'x']);
      last().says(answer(again.write, RecordAction.WriteAcknowledgement));
    }
    await added;
    assert.deepEqual([last().take(), list.has('x'), list.isSaved], [[], true, true]);
  });
}

test('an invalid entry, an invalid index or a missing entry changes nothing', async (t) => {
  const { list, last } = await opened(t, ['a']);
  for (const wrong of [() => list.add(1 as never), () => list.add('b', 2), () => list.add('b', 0.5), () => list.remove('a', 1), () => list.set('a' as never), () => list.set([1] as never)]) {
    await assert.rejects(wrong, { code: 'INVALID_ARGUMENT' });
  }
  await list.remove('b', 0);
  await settle();
  assert.deepEqual([last().take(), list.entries], [[], ['a']]);
});

test('after its removal, or the end of the handle, a callback is not called', async (t) => {
  const { list, last } = await opened(t, {});
  const heard: unknown[] = [];
  const stop = list.onEntry((change) => heard.push(change));
  list.subscribe((entries) => heard.push(entries));
  await settle();
  assert.deepEqual(heard.splice(0), [[]]);
  // The server does not answer these changes, and the client is closed at the end of the test.
  list.add('a').catch(() => undefined);
  assert.deepEqual(heard.splice(0), [{ kind: 'added', entry: 'a', index: 0 }, ['a']]);
  stop();
  list.add('b').catch(() => undefined);
  assert.deepEqual(heard.splice(0), [['a', 'b']]);
  list.close();
  last().says(message(RecordAction.Update, { version: 7, data: '[]' }));
  assert.deepEqual(heard, []);
});
