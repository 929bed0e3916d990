// Unconfirmed edits in live results, against a fake server: before its answers, after refusals, and in rare orders of its messages.

import assert from 'node:assert/strict';
import { mock, test, type TestContext } from 'node:test';
import { Client, type RecordHandle, type TidewireError } from '../src/index.js';
import { openQuery, type QueryChange, type QueryHandle, type QueryInput, type Row } from '../src/live-query.js';
import { QueryAction, RecordAction, Topic, type Message } from '../src/protocol.js';
import { fakeSockets, settle, type FakeSocket } from './fake-socket.js';

interface Card {
  at: number;
  done?: boolean;
}

interface Stage {
  client: Client;
  last(): FakeSocket;
  errors: TidewireError[];
}

async function opened(t: TestContext): Promise<Stage> {
  mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  t.after(() => mock.timers.reset());
  const { webSocket, last } = fakeSockets();
  const client = new Client('server:1', { webSocket });
  const errors: TidewireError[] = [];
  client.onError((error) => errors.push(error));
  t.after(() => client.close());
  const connected = client.connect();
  await last().logsIn();
  await connected;
  return { client, last, errors };
}

const row = (id: string, data: Card, version = 1): Row => ({ id, version, data });
const changed = (...changes: object[]): Message => ({ topic: Topic.Query, action: QueryAction.Changed, name: 'k', data: JSON.stringify(changes) });
const write = (last: FakeSocket): Message => last.take().find(({ topic, version }) => topic === Topic.Record && version !== undefined) ?? assert.fail('no write was sent');
const confirmed = ({ name = '', correlationId = '' }: Message): Message => {
  return { topic: Topic.Record, action: RecordAction.WriteAcknowledgement, name, correlationId, isWriteAck: true };
};
const denied = ({ name = '', correlationId = '', action }: Message): Message => {
  return { topic: Topic.Record, action: 115, name, correlationId, originalAction: action, isError: true };
};

/** A live query with these rows, and the changes since then. */
async function live({ client, last }: Stage, query: QueryInput, ...rows: Row[]): Promise<{ handle: QueryHandle; seen: string[]; shown(): string }> {
  const handle = openQuery(client.record, 'cards', query);
  const { correlationId = '' } = last().take().find(({ action }) => action === QueryAction.Subscribe) ?? {};
  last().says({ topic: Topic.Query, action: QueryAction.Snapshot, correlationId, name: 'k', data: JSON.stringify({ rows }) });
  await handle.ready;
  const seen: string[] = [];
  handle.subscribe((_rows, changes: readonly QueryChange[]) => seen.push(changes.map(({ kind, row, index }) => `${kind} ${row.id} ${index}`).join()));
  await settle();
  seen.length = 0;
  const shown = (): string => (handle.rows ?? []).map(({ id, data }) => `${id}${(data as Card).at}`).join();
  return { handle, seen, shown };
}

/** An open record of the collection with this value, and the module for edits loaded. */
async function record({ client, last }: Stage, id: string, value: Card, version = 1): Promise<RecordHandle<Card>> {
  const name = `cards/${id}`;
  const handle = client.record.open(name) as RecordHandle<Card>;
  await settle();
  last().says({ topic: Topic.Record, action: RecordAction.ReadResponse, name, version, data: JSON.stringify(value) });
  await handle.ready;
  await import('../src/local-edits.js');
  await settle();
  last().take();
  return handle;
}

test('an edit shows at once, moves the row, and stays while the server confirms it in either order', async (t) => {
  const stage = await opened(t);
  const { handle, seen, shown } = await live(stage, { sort: ['at'] }, row('a', { at: 1 }), row('b', { at: 2 }), row('c', { at: 3 }));
  const b = await record(stage, 'b', { at: 2 });
  const [first] = handle.rows ?? [];
  b.set('at', 9);
  assert.deepEqual([shown(), seen.splice(0)], ['a1,c3,b9', ['moved c 1,changed b 2']]);
  assert.equal(handle.rows?.[0], first);
  // The result has the edit before the confirmation.
  const sent = write(stage.last());
  stage.last().says(changed({ type: 'changed', index: 2, row: row('b', { at: 9 }, 2) }), confirmed(sent));
  await settle();
  assert.deepEqual([shown(), handle.rows?.[2]?.version, seen.splice(0)], ['a1,c3,b9', 2, ['changed b 2']]);
  // The confirmation arrives before the result has the edit.
  b.set('at', 0);
  stage.last().says(confirmed(write(stage.last())));
  await settle();
  assert.deepEqual([shown(), seen.splice(0)], ['b0,a1,c3', ['changed b 0,moved a 1,moved c 2']]);
  stage.last().says(changed({ type: 'changed', index: 0, row: row('b', { at: 0 }, 3) }));
  assert.deepEqual([shown(), handle.rows?.[0]?.version], ['b0,a1,c3', 3]);
  // Afterwards only the server decides, although the record is open.
  stage.last().says(changed({ type: 'removed', id: 'b' }));
  assert.equal(shown(), 'a1,c3');
});

test('an edit after which the query no longer selects the record removes the row, and one after which it does adds it', async (t) => {
  const stage = await opened(t);
  const { shown } = await live(stage, { where: { done: { $ne: true } }, sort: ['at'] }, row('a', { at: 1 }), row('b', { at: 2 }));
  const a = await record(stage, 'a', { at: 1 });
  const x = await record(stage, 'x', { at: 0, done: true });
  a.set('done', true);
  assert.equal(shown(), 'b2');
  x.set({ at: 5 });
  assert.equal(shown(), 'b2,x5');
  const writes = stage.last().take().filter(({ version }) => version !== undefined);
  stage.last().says(...writes.map(confirmed));
  await settle();
  assert.equal(shown(), 'b2,x5');
  stage.last().says(changed({ type: 'removed', id: 'a' }), changed({ type: 'added', index: 1, row: row('x', { at: 5 }, 2) }));
  assert.equal(shown(), 'b2,x5');
});

test('the confirmation of a row that has left calls no callback', async (t) => {
  const stage = await opened(t);
  const { shown, seen } = await live(stage, { where: { done: { $ne: true } } }, row('a', { at: 1 }), row('b', { at: 2 }));
  const a = await record(stage, 'a', { at: 1 });
  a.set('done', true);
  stage.last().says(changed({ type: 'removed', id: 'a' }), confirmed(write(stage.last())));
  await settle();
  mock.timers.tick(2_000);
  assert.deepEqual([shown(), seen], ['b2', ['removed a 0,moved b 0']]);
});

test('a refused edit is rolled back', async (t) => {
  const stage = await opened(t);
  const { shown, seen } = await live(stage, { sort: ['at'] }, row('a', { at: 1 }), row('b', { at: 2 }));
  const a = await record(stage, 'a', { at: 1 });
  a.set('at', 7);
  assert.equal(shown(), 'b2,a7');
  stage.last().says(denied(write(stage.last())));
  await settle();
  assert.equal(shown(), 'a1,b2');
  assert.deepEqual([stage.errors.map(({ code }) => code), seen.length], [['MESSAGE_DENIED'], 2]);
});

test('in a window a new row pushes the last one out, and rows beyond its ends are left to the server', async (t) => {
  const stage = await opened(t);
  const { shown } = await live(stage, { sort: ['at'], offset: 1, limit: 2 }, row('b', { at: 2 }), row('c', { at: 4 }));
  const x = await record(stage, 'x', { at: 100 });
  x.set('at', 3);
  assert.equal(shown(), 'b2,x3');
  x.set('at', 50);
  assert.equal(shown(), 'b2,c4');
  // Whether another record is before it is unknown.
  x.set('at', 1);
  assert.equal(shown(), 'b2,c4');
  const b = await record(stage, 'b', { at: 2 });
  b.set('at', 3);
  assert.equal(shown(), 'b3,c4');
});

test('with selected parts a row changes in its place, and a new one waits for the server', async (t) => {
  const stage = await opened(t);
  const { handle } = await live(stage, { sort: ['at'], select: ['done'] }, row('a', {} as Card), row('b', {} as Card));
  const a = await record(stage, 'a', { at: 1 });
  const x = await record(stage, 'x', { at: 1 });
  a.set({ at: 9, done: true });
  x.set('at', 2);
  assert.deepEqual(handle.rows?.map(({ id, data }) => [id, data]), [['a', { done: true }], ['b', {}]]);
});

test('a confirmed edit that the result never gets does not stay, and its timer ends with it', async (t) => {
  const stage = await opened(t);
  const { shown } = await live(stage, { sort: ['at'] }, row('a', { at: 1 }));
  const x = await record(stage, 'x', { at: 5 });
  x.set('at', 6);
  stage.last().says(confirmed(write(stage.last())));
  await settle();
  assert.equal(shown(), 'a1,x6');
  mock.timers.tick(1_999);
  assert.equal(shown(), 'a1,x6');
  mock.timers.tick(1);
  assert.equal(shown(), 'a1');
});

test('edits of a closed record, of a record that is deleted, and of other collections', async (t) => {
  const stage = await opened(t);
  const { shown, handle } = await live(stage, { sort: ['at'] }, row('a', { at: 1 }), row('b', { at: 2 }));
  const a = await record(stage, 'a', { at: 1 });
  const other = await record(stage, 'deeper/a', { at: 1 });
  other.set('at', 9);
  a.set('at', 3);
  a.close();
  assert.equal(shown(), 'b2,a3');
  stage.last().says({ topic: Topic.Record, action: RecordAction.Deleted, name: 'cards/a' });
  assert.equal(shown(), 'a1,b2', 'the result of the server counts');
  stage.last().says(changed({ type: 'removed', id: 'a' }));
  assert.equal(shown(), 'b2');
  const b = await record(stage, 'b', { at: 2 });
  handle.close();
  b.set('at', 4);
  assert.equal(shown(), 'b2');
});

test('the module is loaded only for records of a collection with a live query, and finds earlier edits', async (t) => {
  const stage = await opened(t);
  const { queriesOf } = await import('../src/live-query/queries.js');
  const outside = await record(stage, 'x/y', { at: 1 });
  const { shown } = await live(stage, { sort: ['at'] }, row('a', { at: 1 }));
  await import('../src/local-edits.js');
  await settle();
  assert.equal(queriesOf(stage.client.record).local, undefined);
  outside.set('at', 2);
  const second = stage.client.record.open('cards/a') as RecordHandle<Card>;
  second.set('at', 4);
  await settle();
  stage.last().says({ topic: Topic.Record, action: RecordAction.ReadResponse, name: 'cards/a', version: 1, data: '{"at":1}' });
  await import('../src/local-edits.js');
  await settle();
  assert.equal(shown(), 'a4');
});
