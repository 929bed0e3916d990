// One record against a fake server that sends exactly the messages of the test, in orders that are too rare with a real server.

import assert from 'node:assert/strict';
import { mock, test, type TestContext } from 'node:test';
import { Client, type OpenOptions, type RecordHandle, type TidewireError } from '../src/index.js';
import { ConnectionAction, RecordAction, Topic, type Message } from '../src/protocol.js';
import { fakeSockets, settle, type FakeSocket } from './fake-socket.js';

interface Todo {
  title?: string;
  count?: number;
  tags?: string[];
  [key: string]: unknown;
}

interface Stage {
  client: Client<{ records: { todo: Todo } }>;
  record: RecordHandle<Todo>;
  last(): FakeSocket;
  errors: TidewireError[];
  /** Opens another session, in which the record has this value. Returns the messages that the client sends at once. */
  returns(version: number, value: unknown): Promise<Message[]>;
}

const message = (action: number, fields: Partial<Message> = {}): Message => ({ topic: Topic.Record, action, name: 'todo', ...fields });
const read = (version: number, value: unknown): Message => message(RecordAction.ReadResponse, { version, data: JSON.stringify(value) });
const update = (version: number, value: unknown): Message => message(RecordAction.Update, { version, data: JSON.stringify(value) });
const patch = (version: number, path: string, value: unknown): Message =>
  message(RecordAction.Patch, { version, path, data: JSON.stringify(value) });
/** The answer to a write. */
const answer = (action: number, { correlationId = '' }: Message, fields: Partial<Message> = {}): Message =>
  message(action, { correlationId, isWriteAck: true, ...fields });
const acknowledged = (write: Message): Message => answer(RecordAction.WriteAcknowledgement, write);
const exists = (write: Message, version: number, value: unknown): Message =>
  answer(RecordAction.VersionExists, write, { version, data: JSON.stringify(value) });
const denied = (write: Message): Message => answer(115, write, { isError: true, originalAction: write.action });

/** The only message that the client has sent. */
function sent(socket: FakeSocket): Message {
  const messages = socket.take();
  assert.equal(messages.length, 1, JSON.stringify(messages));
  return messages[0] as Message;
}

const shown = ({ action, version, path, data }: Message): unknown[] => [action, version, path, data];

async function opened(
  t: TestContext,
  version = 1,
  value: Todo = { title: 'old' },
  options: OpenOptions<Todo> = {},
  /** The limit of a message in bytes, if the server announces one. */
  messageBytesMax?: number,
): Promise<Stage> {
  mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  t.after(() => mock.timers.reset());
  t.mock.method(Math, 'random', () => 0);
  const { webSocket, last } = fakeSockets();
  const client = new Client<{ records: { todo: Todo } }>('server:1', { webSocket });
  const errors: TidewireError[] = [];
  client.onError((error) => errors.push(error));
  t.after(() => client.close());
  const logsIn = async (): Promise<void> => {
    last().opens();
    const limits = messageBytesMax === undefined ? {} : { data: JSON.stringify({ messageBytesMax }) };
    last().says({ topic: Topic.Connection, action: ConnectionAction.Accept, ...limits });
    await settle();
    last().says({ topic: Topic.Auth, action: 3 });
    await settle();
  };
  const record = client.record.open('todo', options);
  void client.connect();
  const reads = async (at: number, now: unknown): Promise<Message[]> => {
    await logsIn();
    const said = last().take();
    const asks = options.create === false ? RecordAction.SubscribeAndRead : RecordAction.SubscribeCreateAndRead;
    const subscribe = said.find(({ action }) => action === asks);
    assert.deepEqual(subscribe?.names, ['todo']);
    last().says(message(asks, { correlationId: subscribe?.correlationId ?? '', isAck: true }), read(at, now));
    return said;
  };
  await reads(version, value);
  if (version >= 0) await record.ready;
  const returns = async (at: number, now: unknown): Promise<Message[]> => {
    last().ends();
    mock.timers.tick(0);
    return reads(at, now);
  };
  return { client, record, last, errors, returns };
}

test('a write carries the version that it expects to make, and is confirmed by its key', async (t) => {
  const { record, last } = await opened(t);
  const done = record.setWithAck('title', 'new');
  await settle();
  const write = sent(last());
  assert.deepEqual(shown(write), [RecordAction.Patch, 2, 'title', '"new"']);
  assert.equal(write.isWriteAck, true);
  assert.equal(write.key, write.correlationId);
  assert.deepEqual([record.value, record.version, record.isSaved], [{ title: 'new' }, 1, false]);
  last().says(acknowledged(write));
  await done;
  assert.deepEqual([record.value, record.version, record.isSaved], [{ title: 'new' }, 2, true]);
});

test('edits made while a write is in flight are sent together, each kind in its message', async (t) => {
  const { record, last } = await opened(t);
  const next = async (...expected: unknown[]): Promise<void> => {
    await settle();
    const write = sent(last());
    assert.deepEqual(shown(write), expected);
    last().says(acknowledged(write));
  };
  record.set('title', 'a');
  record.set('title', 'b');
  record.set('tags[1]', 'x');
  record.set('count', undefined);
  await next(RecordAction.Patch, 2, 'title', '"a"');
  await next(RecordAction.PatchMulti, 3, undefined, '[{"path":"title","data":"b"},{"path":"tags[1]","data":"x"},{"path":"count"}]');
  record.set('title', undefined);
  record.set({ title: 'whole' });
  record.set('count', 1);
  await next(RecordAction.Erase, 4, 'title', undefined);
  await next(RecordAction.Update, 5, undefined, '{"title":"whole","count":1}');
  const updated = record.update((todo) => ({ ...todo, count: (todo.count ?? 0) + 1 }));
  await next(RecordAction.Update, 6, undefined, '{"title":"whole","count":2}');
  await updated;
  const patched = record.patch({ title: 'p', count: 3 });
  await next(RecordAction.PatchMulti, 7, undefined, '[{"path":"title","data":"p"},{"path":"count","data":3}]');
  await patched;
  assert.deepEqual(record.value, { title: 'p', count: 3 });
});

test('a change of another client that follows the write shows that the write was made', async (t) => {
  const { record, last } = await opened(t);
  record.set('title', 'mine');
  await settle();
  const write = sent(last());
  last().says(patch(3, 'count', 1));
  assert.deepEqual([record.value, record.version, record.isSaved], [{ title: 'mine', count: 1 }, 3, false]);
  last().says(acknowledged(write));
  assert.deepEqual([record.value, record.version, record.isSaved], [{ title: 'mine', count: 1 }, 3, true]);
  last().says(patch(4, 'title', 'theirs'));
  assert.deepEqual([record.value, record.version], [{ title: 'theirs', count: 1 }, 4]);
});

test('an edit that lost a race is repeated at its path, on the new value', async (t) => {
  const { record, last } = await opened(t);
  const done = record.setWithAck('title', 'mine');
  await settle();
  const write = sent(last());
  last().says(patch(2, 'count', 1), exists(write, 2, { title: 'old', count: 1 }));
  const again = sent(last());
  assert.deepEqual(shown(again), [RecordAction.Patch, 3, 'title', '"mine"']);
  assert.notEqual(again.key, write.key);
  last().says(acknowledged(again));
  await done;
  assert.deepEqual([record.value, record.version], [{ title: 'mine', count: 1 }, 3]);
});

test('a conflict without a value refuses the edits of that write, and the client reads the record again', async (t) => {
  for (const merge of ['local', 'remote', () => assert.fail('there is nothing to merge')] as const) {
    await t.test(typeof merge === 'string' ? merge : 'function', async (t) => {
      const { record, last, errors } = await opened(t, 1, { title: 'old' }, { merge });
      const heard: unknown[] = [];
      record.subscribe((value) => heard.push(value));
      record.set('title', 'made');
      await settle();
      const made = sent(last());
      // Both edits are sent together in the next write.
      const first = [record.setWithAck('title', 'mine'), record.setWithAck('count', 1)];
      last().says(acknowledged(made));
      const write = sent(last());
      assert.equal(write.action, RecordAction.PatchMulti);
      const later = record.setWithAck('tags', ['later']);
      const denial = answer(RecordAction.VersionExists, write, { version: 7 });
      const refusal = Promise.all(first.map((one) => assert.rejects(one, { code: 'CONFLICT', subject: 'todo' })));
      last().says(denial);
      await refusal;
      // The record shows the last value that the session could read, with the remaining edits.
      assert.deepEqual([record.value, record.version, record.isSaved], [{ title: 'made', tags: ['later'] }, 2, false]);
      assert.deepEqual(last().take().map(({ action }) => action), [RecordAction.Read]);
      assert.ok(!heard.includes(undefined));
      last().says(read(8, { title: 'theirs' }));
      const again = sent(last());
      assert.deepEqual(shown(again), [RecordAction.Patch, 9, 'tags', '["later"]']);
      last().says(acknowledged(again));
      await later;
      assert.deepEqual([record.value, record.version, record.isSaved, errors], [{ title: 'theirs', tags: ['later'] }, 9, true, []]);
    });
  }
});

test('a record ends with the denial if a conflict reveals that the right to read was revoked', async (t) => {
  const ends: string[] = [];
  const { record, last } = await opened(t, 1, { title: 'old' }, { onEnd: ({ code }) => ends.push(code) });
  const first = record.setWithAck('title', 'mine');
  await settle();
  const later = record.setWithAck('count', 1);
  const refusals = [assert.rejects(first, { code: 'CONFLICT' }), assert.rejects(later, { code: 'MESSAGE_DENIED' })];
  last().says(answer(RecordAction.VersionExists, sent(last()), { version: 2 }));
  assert.equal(sent(last()).action, RecordAction.Read);
  last().says(message(115, { originalAction: RecordAction.Read, isError: true }));
  await Promise.all(refusals);
  assert.deepEqual([ends, record.value], [['MESSAGE_DENIED'], undefined]);
});

test('a repeated write that meets a conflict without a value may have been made', async (t) => {
  const { record, last, returns } = await opened(t);
  const done = record.setWithAck('title', 'mine');
  await settle();
  const write = sent(last());
  const refusal = assert.rejects(done, { code: 'WRITE_UNKNOWN', subject: 'todo' });
  await returns(1, { title: 'old' });
  last().take();
  last().says(answer(RecordAction.VersionExists, write, { version: 2 }));
  await refusal;
  assert.deepEqual([record.value, record.isSaved], [{ title: 'old' }, true]);
});

test('an edit is dropped if that is the merge strategy', async (t) => {
  const { record, last } = await opened(t, 1, { title: 'old' }, { merge: 'remote' });
  const done = record.setWithAck('title', 'mine');
  await settle();
  last().says(exists(sent(last()), 2, { title: 'theirs' }));
  await assert.rejects(done, { code: 'CONFLICT', subject: 'todo' });
  assert.deepEqual([record.value, record.isSaved, last().take()], [{ title: 'theirs' }, true, []]);
});

test('a merge function receives all three values; if it fails, the edit fails', async (t) => {
  const conflicts: unknown[] = [];
  const merge = (conflict: { remote: Todo }): Todo => {
    conflicts.push(conflict);
    if (conflicts.length > 1) throw new Error('no idea');
    return { ...conflict.remote, count: 2 };
  };
  const { record, last } = await opened(t, 1, { title: 'old' }, { merge });
  const done = record.setWithAck('title', 'mine');
  await settle();
  last().says(exists(sent(last()), 5, { title: 'theirs' }));
  assert.deepEqual(conflicts, [{ name: 'todo', remote: { title: 'theirs' }, local: { title: 'mine' }, base: { title: 'old' } }]);
  const merged = sent(last());
  assert.deepEqual(shown(merged), [RecordAction.Update, 6, undefined, '{"title":"theirs","count":2}']);
  last().says(acknowledged(merged));
  await done;
  const failed = record.setWithAck('title', 'mine');
  await settle();
  last().says(exists(sent(last()), 7, { title: 'last' }));
  await assert.rejects(failed, { code: 'CONFLICT', message: /no idea/ });
  assert.deepEqual(record.value, { title: 'last' });
});

test('edits that were refused together are tried separately, and only the bad one is rolled back', async (t) => {
  const { record, last, errors } = await opened(t);
  record.set('count', 0);
  const outcomes = Promise.allSettled([record.setWithAck('tags', ['good']), record.setWithAck('title', 'bad'), record.setWithAck('count', 1)]);
  await settle();
  last().says(acknowledged(sent(last())));
  last().says(denied(sent(last())));
  for (const isGood of [true, false, true]) {
    const write = sent(last());
    last().says(isGood ? acknowledged(write) : denied(write));
  }
  assert.deepEqual((await outcomes).map(({ status }) => status), ['fulfilled', 'rejected', 'fulfilled']);
  assert.deepEqual([record.value, record.version, errors], [{ title: 'old', count: 1, tags: ['good'] }, 4, []]);
  record.set('title', 'bad');
  await settle();
  last().says(denied(sent(last())));
  await settle();
  assert.deepEqual([record.value?.title, errors.map(({ code, subject }) => [code, subject])], ['old', [['MESSAGE_DENIED', 'todo']]]);
});

test('a write that may have been made is sent again unchanged', async (t) => {
  const { record, last, returns } = await opened(t);
  const done = record.setWithAck('title', 'mine');
  await settle();
  const write = sent(last());
  await returns(2, { title: 'mine' });
  assert.deepEqual(sent(last()), write);
  last().says(acknowledged(write));
  await done;
  assert.deepEqual([record.value, record.version], [{ title: 'mine' }, 2]);
});

test('a repeated write that was not made is applied to the newer value', async (t) => {
  const { record, last, returns } = await opened(t);
  const done = record.setWithAck('title', 'mine');
  await settle();
  last().take();
  await returns(4, { title: 'theirs' });
  last().says(exists(sent(last()), 4, { title: 'theirs' }));
  const again = sent(last());
  assert.deepEqual(shown(again), [RecordAction.Patch, 5, 'title', '"mine"']);
  last().says(acknowledged(again));
  await done;
});

/** The value with an incarnation that is larger than a safe integer. */
const INCARNATION = Uint8Array.of(135, 128, 128, 128, 128, 128, 128, 128, 16);
const readOf = (incarnation: Uint8Array, version: number, value: unknown): Message => ({ ...read(version, value), incarnation });
const unknown = (write: Message): Message => answer(RecordAction.WriteUnknown, write, { isError: true, originalAction: write.action });

/** A write that was sent to a server that has ended, and its repetition at the next one, where the record has another version. */
async function repeated(stage: Stage): Promise<Message> {
  const write = sent(stage.last());
  assert.deepEqual([write.incarnation, write.seenVersion], [undefined, undefined], 'a first attempt names no state');
  await stage.returns(30, { title: 'theirs', count: 9 });
  const again = sent(stage.last());
  assert.deepEqual(again, { ...write, incarnation: INCARNATION, seenVersion: 4 });
  stage.last().says(unknown(again));
  assert.equal(sent(stage.last()).action, RecordAction.Read);
  return again;
}

test('a repeated write names the state that the client had seen when it sent the write first', async (t) => {
  const { record, last, returns } = await opened(t);
  last().says(readOf(INCARNATION, 4, { title: 'old' }));
  const done = record.setWithAck('title', 'mine');
  await settle();
  const write = sent(last());
  for (const version of [9, 12]) {
    await returns(version, { title: 'theirs' });
    assert.deepEqual(sent(last()), { ...write, incarnation: INCARNATION, seenVersion: 4 });
  }
  last().says(acknowledged(write));
  await done;
});

test('an edit of a path of which the server does not know whether it was made is applied to the new value', async (t) => {
  const stage = await opened(t);
  const { record, last } = stage;
  last().says(readOf(INCARNATION, 4, { title: 'old' }));
  const done = record.setWithAck('title', 'mine');
  await settle();
  const first = await repeated(stage);
  last().says(readOf(INCARNATION, 31, { title: 'theirs', count: 10 }));
  const merged = sent(last());
  assert.deepEqual(shown(merged), [RecordAction.Patch, 32, 'title', '"mine"']);
  assert.notEqual(merged.key, first.key);
  last().says(acknowledged(merged));
  await done;
  assert.deepEqual([record.value, record.version], [{ title: 'mine', count: 10 }, 32]);
});

test('an update of which the server does not know whether it was made fails and is not made again', async (t) => {
  const stage = await opened(t);
  const { record, last } = stage;
  last().says(readOf(INCARNATION, 4, { count: 1 }));
  const update = record.update((todo) => ({ ...todo, count: (todo.count ?? 0) + 1 }));
  await settle();
  const failure = assert.rejects(update, { code: 'WRITE_UNKNOWN', subject: 'todo' });
  await repeated(stage);
  last().says(readOf(INCARNATION, 31, { count: 10 }));
  await failure;
  assert.deepEqual([record.value, record.isSaved, last().take()], [{ count: 10 }, true, []]);
});

test('a conflict of a repetition that names a state shows that the update was not made', async (t) => {
  const { record, last, returns } = await opened(t);
  last().says(readOf(INCARNATION, 4, { count: 1 }));
  const done = record.update((todo) => ({ ...todo, count: (todo.count ?? 0) + 1 }));
  await settle();
  last().take();
  await returns(5, { count: 2 });
  last().says(readOf(INCARNATION, 5, { count: 2 }));
  const again = last().take().at(-1) as Message;
  assert.equal(again.seenVersion, 4);
  // Another client has made an equal update.
  last().says(exists(again, 5, { count: 2 }));
  const merged = sent(last());
  assert.deepEqual(shown(merged), [RecordAction.Update, 6, undefined, '{"count":3}']);
  last().says(acknowledged(merged));
  await done;
});

test('if the connection is lost before the value arrives, the next session decides on its value', async (t) => {
  const stage = await opened(t, 1, { title: 'old' }, { merge: 'remote' });
  const { record, last, returns } = stage;
  last().says(readOf(INCARNATION, 4, { title: 'old' }));
  const done = assert.rejects(record.setWithAck('title', 'mine'), { code: 'WRITE_UNKNOWN' });
  await settle();
  await repeated(stage);
  await returns(33, { title: 'theirs' });
  await done;
  assert.deepEqual([record.value, last().take()], [{ title: 'theirs' }, []]);
});

test('after a restart that lost the keys, an equal value counts as the edit of a path', async (t) => {
  const { record, last, returns } = await opened(t, 1, { count: 1 });
  const edit = record.setWithAck('count', 2);
  await settle();
  last().take();
  await returns(2, { count: 2 });
  last().says(exists(sent(last()), 2, { count: 2 }));
  await edit;
  assert.deepEqual([record.value, record.isSaved, last().take()], [{ count: 2 }, true, []]);
});

for (const [what, version, count] of [['an equal value in the expected version', 2, 2], ['several newer versions', 4, 9]] as const) {
  test(`a repeated update that finds ${what} is unknown, and not made again`, async (t) => {
    const { record, last, returns } = await opened(t, 1, { count: 1 });
    const update = record.update((todo) => ({ ...todo, count: (todo.count ?? 0) + 1 }));
    await settle();
    last().take();
    await returns(version, { count });
    last().says(exists(sent(last()), version, { count }));
    await assert.rejects(update, { code: 'WRITE_UNKNOWN' });
    assert.deepEqual([record.value, record.isSaved, last().take()], [{ count }, true, []]);
  });
}

test('a repeated update whose version another client has written is made again', async (t) => {
  const { record, last, returns } = await opened(t, 1, { count: 1 });
  const done = record.update((todo) => ({ ...todo, count: (todo.count ?? 0) + 1 }));
  await settle();
  last().take();
  await returns(2, { title: 'theirs', count: 1 });
  last().says(exists(sent(last()), 2, { title: 'theirs', count: 1 }));
  const again = sent(last());
  assert.deepEqual(shown(again), [RecordAction.Update, 3, undefined, '{"title":"theirs","count":2}']);
  last().says(acknowledged(again));
  await done;
  assert.deepEqual(record.value, { title: 'theirs', count: 2 });
});

test('an edit that changes nothing is not sent, unless it waits for the disk or for earlier edits', async (t) => {
  const { record, last } = await opened(t, 1, { title: 'old', tags: ['a'] });
  record.set('title', 'old');
  record.set({ tags: ['a'], title: 'old' });
  record.set('count', undefined);
  await settle();
  assert.deepEqual([last().take(), record.isSaved], [[], true]);
  const done = record.setWithAck('title', 'old');
  await settle();
  const write = sent(last());
  assert.deepEqual(shown(write), [RecordAction.Patch, 2, 'title', '"old"']);
  record.set('title', 'old');
  assert.equal(record.isSaved, false);
  last().says(acknowledged(write));
  await done;
  assert.deepEqual(shown(sent(last())), [RecordAction.Patch, 3, 'title', '"old"']);
});

test('after a missing change the client reads the record again, and a known change is ignored', async (t) => {
  const { record, last } = await opened(t, 5);
  last().says(patch(5, 'title', 'known'), update(4, { title: 'older' }));
  assert.deepEqual([record.value, last().take()], [{ title: 'old' }, []]);
  last().says(patch(8, 'title', 'eight'));
  assert.equal(sent(last()).action, RecordAction.Read);
  // The client writes nothing on top of a value that it knows to be old.
  record.set('count', 1);
  await settle();
  assert.deepEqual(last().take(), []);
  last().says(read(9, { title: 'nine' }));
  assert.deepEqual([record.value, sent(last()).version], [{ title: 'nine', count: 1 }, 10]);
});

test('a lagging client receives the newest value, and continues from it', async (t) => {
  const { record, last } = await opened(t);
  last().says(update(40, { title: 'jump' }), patch(41, 'count', 1));
  assert.deepEqual([record.value, record.version], [{ title: 'jump', count: 1 }, 41]);
});

test('notifications about a record that has not arrived yet change nothing', async (t) => {
  const { client, last, errors } = await opened(t);
  const second = (client as Client).record.open('provided');
  await settle();
  last().says(message(RecordAction.HasProvider, { name: 'provided' }), message(117, { name: 'provided', originalAction: 25 }));
  assert.deepEqual([second.version, errors], [-1, []]);
  last().says(message(RecordAction.ReadResponse, { name: 'provided', version: 0, data: '{}' }));
  await second.ready;
  assert.deepEqual([second.version, second.value], [0, {}]);
});

test('version 1 follows the last version', async (t) => {
  const { record, last } = await opened(t, 2 ** 31 - 1);
  last().says(update(1, { title: 'one' }));
  assert.deepEqual([record.value, record.version], [{ title: 'one' }, 1]);
});

test('a server with an older version than the client has seen is trusted', async (t) => {
  const { record, last } = await opened(t, 9);
  const done = record.setWithAck('title', 'mine');
  await settle();
  last().says(answer(RecordAction.InvalidVersion, sent(last()), { version: 3, isError: true }));
  assert.equal(sent(last()).action, RecordAction.Read);
  last().says(read(3, { title: 'three' }));
  const again = sent(last());
  assert.equal(again.version, 4);
  last().says(acknowledged(again));
  await done;
});

test('a write that did not become durable in time is reported, and the value is read again', async (t) => {
  const { record, last } = await opened(t);
  const done = record.setWithAck('title', 'mine');
  await settle();
  last().says(answer(105, sent(last()), { isError: true }));
  await assert.rejects(done, { code: 'RECORD_UPDATE_ERROR' });
  assert.equal(sent(last()).action, RecordAction.Read);
});

test('the keys have the order of the newest value', async (t) => {
  const { record, last } = await opened(t, 1, { title: 'a', count: 1 });
  const before = record.value;
  last().says(update(2, { count: 1, title: 'a' }));
  assert.equal(JSON.stringify(record.value), '{"count":1,"title":"a"}');
  assert.notEqual(record.value, before);
});

test('unchanged parts stay the same object, and a path subscription receives only its changes', async (t) => {
  const { record, last } = await opened(t, 1, { title: 'old', tags: ['a'] });
  const tags = record.value?.tags;
  const heard: unknown[] = [];
  const [whole, titles] = [record.subscribe((value) => heard.push(value)), record.subscribe('title', (title) => heard.push(title))];
  await settle();
  assert.deepEqual(heard.splice(0), [{ title: 'old', tags: ['a'] }, 'old']);
  last().says(patch(2, 'count', 1));
  assert.equal(heard.splice(0).length, 1);
  last().says(update(3, { title: 'new', tags: ['a'], count: 1 }));
  assert.deepEqual(heard.splice(0), [{ title: 'new', tags: ['a'], count: 1 }, 'new']);
  assert.equal(record.value?.tags, tags);
  last().says(update(4, { count: 1, tags: ['a'], title: 'new' }));
  assert.deepEqual(heard.splice(0), [{ count: 1, tags: ['a'], title: 'new' }]);
  record.set('title', 'mine');
  await settle();
  assert.equal(heard.splice(0).length, 2);
  last().says(acknowledged(last().take().at(-1) as Message));
  assert.deepEqual(heard, []);
  whole();
  titles();
  last().says(update(6, {}));
  assert.deepEqual(heard, []);
});

test('a record that is refused, whose right is revoked, or that is deleted, ends', async (t) => {
  const ends: string[] = [];
  const { client, record, last } = await opened(t, 1, {}, { onEnd: ({ code }) => ends.push(code) });
  const pending = record.setWithAck('title', 'mine');
  pending.catch(() => undefined);
  await settle();
  last().take();
  last().says(message(115, { originalAction: RecordAction.SubscribeCreateAndRead, isError: true }));
  await assert.rejects(pending, { code: 'MESSAGE_DENIED' });
  assert.deepEqual([ends, record.value], [['MESSAGE_DENIED'], undefined]);
  const second = client.record.open('todo');
  await settle();
  last().says(read(1, {}));
  last().says(message(RecordAction.Deleted));
  await assert.rejects(second.setWithAck('title', 'late'), { code: 'RECORD_DELETED' });
  second.close();
  await settle();
  assert.deepEqual(last().take().map(({ action }) => action), [RecordAction.SubscribeCreateAndRead]);
});

test('a record is released when its last handle is closed and everything is saved', async (t) => {
  const { client, record, last } = await opened(t);
  const second = client.record.open('todo');
  record.set('title', 'mine');
  await settle();
  const write = sent(last());
  record.close();
  record.close();
  second.close();
  await settle();
  assert.deepEqual(last().take(), []);
  last().says(acknowledged(write));
  await settle();
  assert.equal(sent(last()).action, RecordAction.Unsubscribe);
  assert.throws(() => record.subscribe(() => {}), { code: 'CLOSED' });
  await assert.rejects(record.setWithAck('title', 'x'), { code: 'CLOSED' });
});

test('an invalid record or path is refused at once', async (t) => {
  const { record, last } = await opened(t);
  for (const value of ['text', 1, null, undefined]) {
    await assert.rejects(record.setWithAck(value as never), { code: 'INVALID_ARGUMENT' });
    await assert.rejects(record.update(() => value as never), { code: 'INVALID_ARGUMENT' });
  }
  const texts = ['', ' . ', '__proto__.x', 'a.constructor', 'a[-1]', 'a[x]', 'a..b', '.a', 'a.', 'a. .b', '[1]', 'a.[0]', 'a[]', 'a]0[', 'a[0]b'];
  const arrays = [[], ['__proto__'], ['a', 'constructor'], [-1], ['a', 1.5], [NaN], [null], [['a']], [2 ** 32]];
  for (const path of [...texts, ...arrays, 1, null, {}]) {
    const at = path as 'title';
    await assert.rejects(record.setWithAck(at, 'x'), { code: 'INVALID_ARGUMENT', message: /is not a path/ }, JSON.stringify(path));
    assert.throws(() => record.get(at), { code: 'INVALID_ARGUMENT' });
    assert.throws(() => record.subscribe(at, () => {}), { code: 'INVALID_ARGUMENT' });
    await assert.rejects(record.patch([['title', 'x'], [at, 'x']]), { code: 'INVALID_ARGUMENT' });
  }
  await assert.rejects(record.update(() => assert.fail('mine')), /mine/);
  assert.deepEqual([record.value, record.isSaved, last().take()], [{ title: 'old' }, true, []]);
});

test('records are read, written and deleted by their answers; a repetition after a loss has the same key', async (t) => {
  const { client, last, returns } = await opened(t);
  const [got, set] = [client.record.get('todo'), client.record.set('todo', { title: 'set' })];
  await settle();
  const [fetch, create] = last().take();
  assert.deepEqual([fetch?.action, create?.action, create?.version], [RecordAction.Fetch, RecordAction.CreateAndUpdate, -1]);
  last().says(message(RecordAction.Fetched, { correlationId: fetch?.correlationId ?? '', version: 1, data: '{"title":"got"}' }));
  assert.deepEqual(await got, { title: 'got' });
  assert.deepEqual((await returns(1, {})).find(({ action }) => action === RecordAction.CreateAndUpdate), create);
  last().take();
  const again = client.record.delete('todo');
  await settle();
  assert.equal(sent(last()).action, RecordAction.Delete);
  last().says(message(106, {}));
  await assert.rejects(again, { code: 'RECORD_DELETE_ERROR' });
  client.close();
  await assert.rejects(set, { code: 'CLOSED' });
});

test('a client that is closed rolls its edits back and reports them', async (t) => {
  const { client, record } = await opened(t);
  const done = record.setWithAck('title', 'mine');
  await settle();
  client.close();
  await assert.rejects(done, { code: 'CLOSED' });
  assert.deepEqual(record.value, { title: 'old' });
});

test('a record that is closed and opened again in one turn is read again', async (t) => {
  const { client, record, last } = await opened(t);
  record.close();
  const again = client.record.open('todo');
  await settle();
  assert.deepEqual(last().take().map(({ action, names }) => [action, names]), [
    [RecordAction.Unsubscribe, ['todo']],
    [RecordAction.SubscribeCreateAndRead, ['todo']],
  ]);
  last().says(read(2, { title: 'new' }));
  await again.ready;
  assert.deepEqual([again.value, again.version], [{ title: 'new' }, 2]);
});

test('a record that is opened again while the connection is checked is read again', async (t) => {
  const { client, record, last } = await opened(t);
  client.check();
  record.close();
  const again = client.record.open('todo');
  await settle();
  last().take();
  last().pongs();
  assert.deepEqual(last().take().map(({ action }) => action), [RecordAction.Unsubscribe, RecordAction.SubscribeCreateAndRead]);
  last().says(read(2, { title: 'new' }));
  await again.ready;
});

test('an edit with a given key is a separate write under that key, after which the record is read', async (t) => {
  const { client, record, last, returns } = await opened(t);
  const document = client.record.documents.get('todo');
  const took: unknown[] = [];
  if (document) document.took = (value, version) => took.push([value, version]);
  record.set('count', 1);
  record.set('count', 2);
  const done = document?.edit([{ path: 'title', value: 'new' }, { path: 'tags', value: [] }], undefined, 'k1');
  record.set('count', 3);
  await settle();
  last().says(acknowledged(sent(last())));
  last().says(acknowledged(sent(last())));
  const write = sent(last());
  assert.deepEqual(shown(write), [RecordAction.PatchMulti, -1, undefined, '[{"path":"title","data":"new"},{"path":"tags","data":[]}]']);
  assert.deepEqual([write.key, write.correlationId], ['k1', 'k1']);
  const [again] = (await returns(3, { title: 'new', count: 4, tags: [] })).slice(-1);
  assert.notEqual(again?.key, 'k1', 'the edit waits for the value');
  const repeated = sent(last());
  assert.equal(repeated.key, 'k1');
  // The server made this write before the other clients' writes, and the client can't know that.
  last().says(acknowledged(repeated));
  await done;
  // So the client reads the record again.
  assert.deepEqual(last().take().map(({ action }) => action), [RecordAction.Read]);
  last().says(read(3, { title: 'new', count: 4, tags: [] }));
  assert.deepEqual(shown(sent(last())), [RecordAction.Patch, 4, 'count', '3']);
  assert.deepEqual(took.at(-1), [{ title: 'new', count: 4, tags: [] }, 3]);
});

test('a read that becomes necessary during the check of the connection follows the check', async (t) => {
  const { client, record, last } = await opened(t);
  client.check();
  last().take();
  last().says(patch(3, 'title', 'two ahead'));
  // The read waits until the server has proved that the connection is alive.
  assert.deepEqual(last().take(), []);
  last().pongs();
  assert.deepEqual(sent(last()).action, RecordAction.Read);
  last().says(read(3, { title: 'two ahead' }));
  assert.deepEqual(record.value, { title: 'two ahead' });
});

const LONG = 'x'.repeat(600);

test('an edit that is larger than the server accepts is refused before it is shown or sent', async (t) => {
  const { record, last, errors } = await opened(t, 1, { title: 'old' }, {}, 500);
  const seen: unknown[] = [];
  record.subscribe('title', (title) => seen.push(title));
  await settle();
  await assert.rejects(record.setWithAck('title', LONG), { code: 'TOO_LARGE', subject: 'todo', message: /more than the 500 that the server accepts/ });
  await assert.rejects(record.update((todo) => ({ ...todo, title: LONG })), { code: 'TOO_LARGE' });
  record.set('title', LONG);
  await settle();
  assert.deepEqual([errors.map(({ code }) => code), seen, last().take(), record.isSaved], [['TOO_LARGE'], ['old'], [], true]);
  await record.saved();
  record.set('title', 'short');
  assert.equal(sent(last()).data, '"short"');
});

test('edits that are too large together are sent in messages that fit', async (t) => {
  const { record, last } = await opened(t, 1, { title: 'old' }, {}, 500);
  const pieces = Array.from({ length: 9 }, (_, at) => `${at}`.repeat(100));
  const all = pieces.map((piece, at) => record.setWithAck(`tags[${at}]`, piece));
  const tooLarge = record.setWithAck('title', LONG);
  const behind = record.setWithAck('count', 1);
  // The first edit is sent alone, because no other edit waits at that moment.
  let messages = 0;
  for (let write = last().take()[0]; write; write = last().take()[0], messages += 1) {
    assert.ok(JSON.stringify(write).length < 700, `${JSON.stringify(write).length}`);
    last().says(acknowledged(write));
    await settle();
  }
  await Promise.all([...all, behind]);
  await assert.rejects(tooLarge, { code: 'TOO_LARGE' });
  assert.deepEqual(record.value, { title: 'old', tags: pieces, count: 1 });
  assert.ok(messages > 3 && messages < 9, `${messages} messages`);
});

test('an edit for which the server closes the connection is not sent again, and others are', async (t) => {
  const { client, record, last, errors, returns } = await opened(t);
  const large = record.setWithAck('title', LONG);
  const behind = record.setWithAck('count', 1);
  assert.equal(last().take().length, 1);
  last().ends(1009);
  await assert.rejects(large, { code: 'TOO_LARGE' });
  assert.deepEqual([record.value, client.state, errors], [{ title: 'old', count: 1 }, 'waiting', []]);
  mock.timers.tick(0);
  last().ends();
  mock.timers.tick(0);
  await returns(1, { title: 'old' });
  await settle();
  const write = last().take().at(-1) as Message;
  assert.deepEqual(shown(write), [RecordAction.Patch, 2, 'count', '1']);
  last().says(acknowledged(write));
  await behind;
  assert.deepEqual(record.value, { title: 'old', count: 1 });
});

test('of combined edits for which the server closes the connection the others are made', async (t) => {
  const { record, last, returns } = await opened(t);
  const first = record.setWithAck('count', 1);
  const all = [record.setWithAck('title', 'new'), record.setWithAck('tags[0]', LONG), record.setWithAck('count', 2)];
  last().says(acknowledged(sent(last())));
  assert.equal(sent(last()).action, RecordAction.PatchMulti);
  last().ends(1009);
  const results = Promise.allSettled([first, ...all]);
  mock.timers.tick(0);
  await returns(2, { title: 'old', count: 1 });
  for (let rounds = 0; rounds < 5; rounds += 1) {
    await settle();
    const write = last().take().at(-1);
    if (!write) break;
    if (write.data?.includes(LONG)) {
      last().ends(1009);
      mock.timers.tick(0);
      await returns(record.version, { title: 'new', count: 1 });
    } else last().says(acknowledged(write));
  }
  assert.deepEqual((await results).map((result) => (result.status === 'rejected' ? (result.reason as TidewireError).code : 'made')), ['made', 'made', 'TOO_LARGE', 'made']);
  assert.deepEqual(record.value, { title: 'new', count: 2 });
});

test('of several unanswered messages the largest is the one that was too large', async (t) => {
  const { client, record, last, errors, returns } = await opened(t);
  const small = record.setWithAck('title', 'new');
  client.event.emit('news', LONG);
  last().ends(1009);
  await settle();
  assert.deepEqual(errors.map(({ code, subject }) => [code, subject]), [['TOO_LARGE', 'news']]);
  mock.timers.tick(0);
  await returns(1, { title: 'old' });
  await settle();
  const again = last().take().at(-1) as Message;
  assert.equal(again.data, '"new"');
  last().says(acknowledged(again));
  await small;
});

test('array paths are sent as a text if one can express them, otherwise in a list of patches', async (t) => {
  const { record, last } = await opened(t);
  const next = async (expected: unknown[]): Promise<void> => {
    await settle();
    const write = sent(last());
    assert.deepEqual(shown(write), expected);
    last().says(acknowledged(write));
    await settle();
  };
  record.set(['tags', 1], 'x');
  await next([RecordAction.Patch, 2, 'tags[1]', '"x"']);
  record.set(['map', 'ann.lee@x.org'], 1);
  await next([RecordAction.PatchMulti, 3, undefined, '[{"path":["map","ann.lee@x.org"],"data":1}]']);
  assert.deepEqual(record.value, { title: 'old', tags: [null, 'x'], map: { 'ann.lee@x.org': 1 } });
  assert.equal(record.get(['map', 'ann.lee@x.org']), 1);
  for (const key of ['', ' a', 'a ', 'a[0]', 'a]', '.']) {
    record.set(['map', key, 'b'], true);
    await next([RecordAction.PatchMulti, record.version + 1, undefined, JSON.stringify([{ path: ['map', key, 'b'], data: true }])]);
    assert.equal(record.get(['map', key, 'b']), true);
    record.set(['map', key], undefined);
    await next([RecordAction.PatchMulti, record.version + 1, undefined, JSON.stringify([{ path: ['map', key] }])]);
  }
  void record.patch([
    ['title', 'new'],
    [['map', 'b.c'], 2],
    [['count'], undefined],
  ]);
  const list = '[{"path":"title","data":"new"},{"path":["map","b.c"],"data":2},{"path":"count"}]';
  await next([RecordAction.PatchMulti, record.version + 1, undefined, list]);
  assert.deepEqual(record.value, { title: 'new', tags: [null, 'x'], map: { 'ann.lee@x.org': 1, 'b.c': 2 } });
});

test('a subscription of an array path receives only changes at that path', async (t) => {
  const { record, last } = await opened(t, 1, { map: { 'a.b': 1 } });
  const seen: unknown[] = [];
  record.subscribe(['map', 'a.b'], (value) => seen.push(value));
  await settle();
  last().says(update(2, { map: { 'a.b': 1, other: 1 } }), update(3, { map: { 'a.b': 2, other: 1 } }));
  assert.deepEqual(seen, [1, 2]);
});

test('a record that must not be created is undefined until another client has written it', async (t) => {
  const { record, last, errors } = await opened(t, -1, {}, { create: false });
  const seen: unknown[] = [];
  record.subscribe((value) => seen.push(value));
  await assert.rejects(record.ready, { code: 'RECORD_NOT_FOUND', subject: 'todo' });
  assert.deepEqual([record.value, record.version, record.notFound?.code], [undefined, -1, 'RECORD_NOT_FOUND']);
  await assert.rejects(record.setWithAck('title', 'x'), { code: 'RECORD_NOT_FOUND' });
  await assert.rejects(record.update((todo) => todo), { code: 'RECORD_NOT_FOUND' });
  assert.deepEqual([last().take(), seen, errors], [[], [], []]);
  last().says(update(1, { title: 'there' }));
  assert.deepEqual([record.value, record.notFound, seen], [{ title: 'there' }, undefined, [{ title: 'there' }]]);
  record.set('title', 'mine');
  assert.deepEqual(shown(sent(last())), [RecordAction.Patch, 2, 'title', '"mine"']);
});

test('edits of a record that must not be created fail with it, also after a loss', async (t) => {
  const { record, last, returns } = await opened(t, 1, { title: 'old' }, { create: false });
  last().ends();
  const edit = record.setWithAck('title', 'new');
  mock.timers.tick(0);
  const seen: unknown[] = [];
  record.subscribe((value) => seen.push(value));
  last().ends();
  mock.timers.tick(0);
  await returns(-1, {});
  await assert.rejects(edit, { code: 'RECORD_NOT_FOUND' });
  assert.deepEqual([record.value, seen.at(-1), record.isSaved], [undefined, undefined, true]);
});

test('another handle that creates the record creates it for all', async (t) => {
  const { client, record, last } = await opened(t, -1, {}, { create: false });
  await assert.rejects(record.ready, { code: 'RECORD_NOT_FOUND' });
  const second = client.record.open('todo');
  await settle();
  const [unsubscribe, subscribe] = last().take();
  assert.deepEqual([unsubscribe?.action, subscribe?.action], [RecordAction.Unsubscribe, RecordAction.SubscribeCreateAndRead]);
  last().says(message(RecordAction.SubscribeCreateAndRead, { correlationId: subscribe?.correlationId ?? '', isAck: true }), read(0, {}));
  await second.ready;
  assert.deepEqual([second.value, record.value, record.notFound], [{}, {}, undefined]);
  record.set('title', 'x');
  assert.equal(sent(last()).version, 1);
});

test('a refusal is distinguished from a missing record', async (t) => {
  const { client, last } = await opened(t);
  const other = client.record.open('todo2' as 'todo', { create: false });
  await settle();
  const { correlationId = '' } = sent(last());
  last().says({ topic: Topic.Record, action: 115, name: 'todo2', isError: true, originalAction: RecordAction.SubscribeAndRead, correlationId });
  await assert.rejects(other.ready, { code: 'MESSAGE_DENIED' });
  assert.equal(other.notFound, undefined);
});
