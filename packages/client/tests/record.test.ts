// One record against a server that says exactly what the test wants: orders of messages that the real one shows too seldom.

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
  /** The client is in another session, in which the record has this value. Gives back what it has said at once. */
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

async function opened(t: TestContext, version = 1, value: Todo = { title: 'old' }, options: OpenOptions<Todo> = {}): Promise<Stage> {
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
    last().says({ topic: Topic.Connection, action: ConnectionAction.Accept });
    await settle();
    last().says({ topic: Topic.Auth, action: 3 });
    await settle();
  };
  const record = client.record.open('todo', options);
  void client.connect();
  const reads = async (at: number, now: unknown): Promise<Message[]> => {
    await logsIn();
    const said = last().take();
    const subscribe = said.find(({ action }) => action === RecordAction.SubscribeCreateAndRead);
    assert.deepEqual(subscribe?.names, ['todo']);
    last().says(message(RecordAction.SubscribeCreateAndRead, { correlationId: subscribe?.correlationId ?? '', isAck: true }), read(at, now));
    return said;
  };
  await reads(version, value);
  await record.ready;
  const returns = async (at: number, now: unknown): Promise<Message[]> => {
    last().ends();
    mock.timers.tick(0);
    return reads(at, now);
  };
  return { client, record, last, errors, returns };
}

test('a write says the version that it expects to make, and is confirmed by its key', async (t) => {
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

test('edits that come while a write is on its way travel together, each kind in its message', async (t) => {
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

test('a change of somebody else behind an own write shows that it was made', async (t) => {
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

test('an edit that was too slow is made again at its path, on the new value', async (t) => {
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

test('an edit is given up if that is the strategy', async (t) => {
  const { record, last } = await opened(t, 1, { title: 'old' }, { merge: 'remote' });
  const done = record.setWithAck('title', 'mine');
  await settle();
  last().says(exists(sent(last()), 2, { title: 'theirs' }));
  await assert.rejects(done, { code: 'CONFLICT', subject: 'todo' });
  assert.deepEqual([record.value, record.isSaved, last().take()], [{ title: 'theirs' }, true, []]);
});

test('a function that merges is told all three values; if it fails the edit does', async (t) => {
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

test('of edits that were refused together each is tried alone, and only the bad one is rolled back', async (t) => {
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

test('a write that may have been made is sent once more as it was', async (t) => {
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

test('a repeated write that was not made is made again on what came meanwhile', async (t) => {
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

test('after a restart that forgot keys, what looks like the own write is it, and else an update is not made twice', async (t) => {
  const { record, last, returns } = await opened(t, 1, { count: 1 });
  const add = (todo: Todo): Todo => ({ ...todo, count: (todo.count ?? 0) + 1 });
  const first = record.update(add);
  await settle();
  last().take();
  await returns(2, { count: 2 });
  last().says(exists(sent(last()), 2, { count: 2 }));
  await first;
  const second = record.update(add);
  await settle();
  last().take();
  await returns(4, { count: 9 });
  last().says(exists(sent(last()), 4, { count: 9 }));
  await assert.rejects(second, { code: 'WRITE_UNKNOWN' });
  assert.deepEqual([record.value, record.isSaved, last().take()], [{ count: 9 }, true, []]);
});

test('a repeated update whose version somebody else has made was not made, and is made again', async (t) => {
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

test('what changes nothing is not sent, unless it waits for the disk or for edits before it', async (t) => {
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

test('a change that is missing has the record read again, and one that is known is ignored', async (t) => {
  const { record, last } = await opened(t, 5);
  last().says(patch(5, 'title', 'known'), update(4, { title: 'older' }));
  assert.deepEqual([record.value, last().take()], [{ title: 'old' }, []]);
  last().says(patch(8, 'title', 'eight'));
  assert.equal(sent(last()).action, RecordAction.Read);
  // Nothing is written on a value that is known to be old.
  record.set('count', 1);
  await settle();
  assert.deepEqual(last().take(), []);
  last().says(read(9, { title: 'nine' }));
  assert.deepEqual([record.value, sent(last()).version], [{ title: 'nine', count: 1 }, 10]);
});

test('whoever lags is given the newest value, and goes on from it', async (t) => {
  const { record, last } = await opened(t);
  last().says(update(40, { title: 'jump' }), patch(41, 'count', 1));
  assert.deepEqual([record.value, record.version], [{ title: 'jump', count: 1 }, 41]);
});

test('notes about a record that is not here yet change nothing', async (t) => {
  const { client, last, errors } = await opened(t);
  const second = (client as Client).record.open('provided');
  await settle();
  last().says(message(RecordAction.HasProvider, { name: 'provided' }), message(117, { name: 'provided', originalAction: 25 }));
  assert.deepEqual([second.version, errors], [-1, []]);
  last().says(message(RecordAction.ReadResponse, { name: 'provided', version: 0, data: '{}' }));
  await second.ready;
  assert.deepEqual([second.version, second.value], [0, {}]);
});

test('behind the last version comes 1', async (t) => {
  const { record, last } = await opened(t, 2 ** 31 - 1);
  last().says(update(1, { title: 'one' }));
  assert.deepEqual([record.value, record.version], [{ title: 'one' }, 1]);
});

test('a server that is behind what the client has seen is believed', async (t) => {
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

test('a write that did not become durable in time is told, and the value is read again', async (t) => {
  const { record, last } = await opened(t);
  const done = record.setWithAck('title', 'mine');
  await settle();
  last().says(answer(105, sent(last()), { isError: true }));
  await assert.rejects(done, { code: 'RECORD_UPDATE_ERROR' });
  assert.equal(sent(last()).action, RecordAction.Read);
});

test('the order of keys is that of the newest value', async (t) => {
  const { record, last } = await opened(t, 1, { title: 'a', count: 1 });
  const before = record.value;
  last().says(update(2, { count: 1, title: 'a' }));
  assert.equal(JSON.stringify(record.value), '{"count":1,"title":"a"}');
  assert.notEqual(record.value, before);
});

test('what did not change stays the same object, and who watches a path hears of that only', async (t) => {
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

test('a record that is refused, that loses its right or is deleted is over', async (t) => {
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

test('a handle is let go when the last one is closed and everything is saved', async (t) => {
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

test('what can not be a record or a path is refused at once', async (t) => {
  const { record, last } = await opened(t);
  for (const value of ['text', 1, null, undefined]) {
    await assert.rejects(record.setWithAck(value as never), { code: 'INVALID_ARGUMENT' });
    await assert.rejects(record.update(() => value as never), { code: 'INVALID_ARGUMENT' });
  }
  for (const path of ['', ' . ', '__proto__.x', 'a.constructor', 'a[-1]', 'a[x]']) {
    await assert.rejects(record.setWithAck(path, 1), { code: 'INVALID_ARGUMENT', message: /is no path/ }, path);
    assert.throws(() => record.get(path), { code: 'INVALID_ARGUMENT' });
    assert.throws(() => record.subscribe(path, () => {}), { code: 'INVALID_ARGUMENT' });
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

test('a client that is closed rolls its edits back and tells', async (t) => {
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

test('so is one that is opened again while the connection is checked', async (t) => {
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

test('an edit with a key of its own is a write of its own under that key, behind which the record is read', async (t) => {
  const { client, record, last, returns } = await opened(t);
  const document = client.record.document('todo');
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
  assert.notEqual(again?.key, 'k1', 'it waits for the value');
  const repeated = sent(last());
  assert.equal(repeated.key, 'k1');
  // It was made before what others have done, and the client can't know that.
  last().says(acknowledged(repeated));
  await done;
  // The question waits for the proof that the connection lives.
  assert.deepEqual(last().take().map(({ action }) => action), [RecordAction.Read]);
  last().says(read(3, { title: 'new', count: 4, tags: [] }));
  assert.deepEqual(shown(sent(last())), [RecordAction.Patch, 4, 'count', '3']);
  assert.deepEqual(took.at(-1), [{ title: 'new', count: 4, tags: [] }, 3]);
});

test('a record is read again when the connection is proved, if it had to be while that was under way', async (t) => {
  const { client, record, last } = await opened(t);
  client.check();
  last().take();
  last().says(patch(3, 'title', 'two ahead'));
  assert.deepEqual(last().take(), []);
  last().pongs();
  assert.deepEqual(sent(last()).action, RecordAction.Read);
  last().says(read(3, { title: 'two ahead' }));
  assert.deepEqual(record.value, { title: 'two ahead' });
});
