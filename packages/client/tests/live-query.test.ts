// Queries against a fake server that sends exactly the messages of the test, in orders that are too rare with a real server.

import assert from 'node:assert/strict';
import { mock, test, type TestContext } from 'node:test';
import { Client, type ClientOptions, type TidewireError } from '../src/index.js';
import { fetchQuery, openQuery, type QueryChange, type QueryHandle, type QueryInput, type Row } from '../src/live-query.js';
import { queryText } from '../src/live-query/text.js';
import { ConnectionAction, QueryAction, Topic, type Message } from '../src/protocol.js';
import { fakeSockets, settle, type FakeSocket } from './fake-socket.js';

interface Stage {
  client: Client;
  last(): FakeSocket;
  errors: TidewireError[];
  /** Loses the connection with this close code, and opens another session. Returns what the client sends at once in it. */
  returns(code?: number): Promise<Message[]>;
}

async function opened(t: TestContext, options: ClientOptions = {}, messageBytesMax?: number): Promise<Stage> {
  mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  t.after(() => mock.timers.reset());
  t.mock.method(Math, 'random', () => 1);
  const { webSocket, last } = fakeSockets();
  const client = new Client('server:1', { webSocket, reconnectMinMs: 10, reconnectMaxMs: 40, ...options });
  const errors: TidewireError[] = [];
  client.onError((error) => errors.push(error));
  t.after(() => client.close());
  const connected = client.connect();
  await last().logsIn(messageBytesMax);
  await connected;
  const returns = async (code?: number): Promise<Message[]> => {
    last().ends(code);
    mock.timers.tick(10);
    last().opens();
    last().says({ topic: Topic.Connection, action: ConnectionAction.Accept });
    await settle();
    last().take();
    last().says({ topic: Topic.Auth, action: 3 });
    await settle();
    return last().take();
  };
  return { client, last, errors, returns };
}

const row = (id: string, version = 1): Row => ({ id, version, data: { at: version } });
const snapshot = (correlationId: string, name: string, ...rows: Row[]): Message => {
  return { topic: Topic.Query, action: QueryAction.Snapshot, correlationId, name, data: JSON.stringify({ rows }) };
};
const changed = (name: string, ...changes: object[]): Message => ({ topic: Topic.Query, action: QueryAction.Changed, name, data: JSON.stringify(changes) });
const refusal = (action: number, correlationId: string, data: object = { message: 'why' }): Message => {
  return { topic: Topic.Query, action, correlationId, isError: true, data: JSON.stringify(data) };
};
const UNAVAILABLE = 103;

/** The correlation ids of the subscriptions that the client has sent. */
function asked(socket: FakeSocket): string[] {
  const messages = socket.take();
  assert.ok(messages.every(({ topic, action }) => topic === Topic.Query && action === QueryAction.Subscribe), JSON.stringify(messages));
  return messages.map(({ correlationId = '' }) => correlationId);
}

/** An open query that has shown its first rows, and the changes since then. */
async function live({ client, last }: Stage, key: string, rows: Row[], query: QueryInput = {}): Promise<{ handle: QueryHandle; id: string; seen: string[] }> {
  const handle = openQuery(client.record, 'cards', query);
  const [id = ''] = asked(last());
  last().says(snapshot(id, key, ...rows));
  await handle.ready;
  const seen: string[] = [];
  handle.subscribe((_rows, changes: readonly QueryChange[]) => seen.push(changes.map(({ kind, row, index }) => `${kind} ${row.id} ${index}`).join()));
  await settle();
  seen.length = 0;
  return { handle, id, seen };
}
const ids = (rows: readonly Row[] | undefined): string | undefined => rows?.map(({ id }) => id).join();

test('changes apply in their order, and an unchanged row and result stay the same objects', async (t) => {
  const stage = await opened(t);
  const { handle, id, seen } = await live(stage, 'k', [row('a'), row('b'), row('c')]);
  const before = handle.rows;
  stage.last().says(changed('k', { type: 'removed', id: 'a' }, { type: 'changed', index: 0, row: row('c', 2) }, { type: 'added', index: 2, row: row('d') }));
  assert.deepEqual(handle.rows, [row('c', 2), row('b'), row('d')]);
  assert.deepEqual(seen, ['removed a 0,changed c 0,added d 2']);
  assert.equal(handle.rows?.[1], before?.[1]);
  assert.equal(ids(before), 'a,b,c');
  const after = handle.rows;
  stage.last().says(snapshot(id, 'k', row('c', 2), row('b'), row('d')));
  assert.equal(handle.rows, after);
  assert.equal(seen.length, 1);
});

test('another key replaces the one before, whose changes no longer concern the query', async (t) => {
  const stage = await opened(t);
  const { handle, id, seen } = await live(stage, 'old', [row('a'), row('b')]);
  stage.last().says(snapshot(id, 'new', row('b'), row('c')));
  assert.deepEqual(seen, ['removed a 0,moved b 0,added c 1']);
  stage.last().says(changed('old', { type: 'removed', id: 'b' }));
  stage.last().says(changed('new', { type: 'removed', id: 'c' }));
  assert.equal(ids(handle.rows), 'b');
});

test('a change that contradicts the rows makes the client request all of them again', async (t) => {
  const stage = await opened(t);
  const { handle, id } = await live(stage, 'k', [row('a')]);
  const wrong = [
    { type: 'removed', id: 'x' },
    { type: 'added', index: 0, row: row('a', 2) },
    { type: 'changed', index: 0, row: row('x') },
    { type: 'added', index: 2, row: row('x') },
  ];
  let current = id;
  for (const change of wrong) {
    stage.last().says(changed('k', change));
    const [end, again] = stage.last().take();
    assert.deepEqual([end?.action, end?.correlationId, again?.action], [QueryAction.Unsubscribe, current, QueryAction.Subscribe]);
    current = again?.correlationId ?? '';
    assert.equal(ids(handle.rows), 'a');
    stage.last().says(changed('k', { type: 'removed', id: 'a' }));
    assert.equal(ids(handle.rows), 'a', 'changes before the new rows do not count');
    stage.last().says(snapshot(current, 'k', row('a')));
  }
  stage.last().says(changed('k', { type: 'added', index: 1, row: row('b') }));
  assert.equal(ids(handle.rows), 'a,b');
});

test('while the server is unavailable the rows stay, and the client asks again with growing delays', async (t) => {
  const stage = await opened(t);
  const reports: Array<string | undefined> = [];
  const handle = openQuery(stage.client.record, 'cards', {}, { onUnavailable: (error) => reports.push(error?.code) });
  let [id = ''] = asked(stage.last());
  for (const delay of [10, 20, 40, 40]) {
    stage.last().says(refusal(UNAVAILABLE, id));
    assert.equal(handle.error?.code, 'QUERY_UNAVAILABLE');
    mock.timers.tick(delay - 1);
    assert.deepEqual(stage.last().take(), []);
    mock.timers.tick(1);
    [id = ''] = asked(stage.last());
  }
  stage.last().says(snapshot(id, 'k', row('a')));
  await handle.ready;
  assert.deepEqual([handle.error, ids(handle.rows)], [undefined, 'a']);
  // The server may also end a query that it has answered. The delays start again.
  stage.last().says(refusal(UNAVAILABLE, id), changed('k', { type: 'removed', id: 'a' }));
  assert.deepEqual([handle.error?.code, ids(handle.rows)], ['QUERY_UNAVAILABLE', 'a']);
  mock.timers.tick(10);
  const [again = ''] = asked(stage.last());
  stage.last().says(snapshot(again, 'k', row('a')));
  assert.deepEqual(reports, [...Array(4).fill('QUERY_UNAVAILABLE'), undefined, 'QUERY_UNAVAILABLE', undefined]);
  assert.deepEqual(stage.errors, []);
});

test('a query that waits is asked once after a loss, and not after its end', async (t) => {
  const stage = await opened(t);
  const [handle, other] = [openQuery(stage.client.record, 'cards'), openQuery(stage.client.record, 'others')];
  for (const id of asked(stage.last())) stage.last().says(refusal(UNAVAILABLE, id));
  const sent = await stage.returns();
  assert.deepEqual(sent.map(({ action, name }) => [action, name]), [[QueryAction.Subscribe, 'cards'], [QueryAction.Subscribe, 'others']]);
  mock.timers.tick(100);
  assert.deepEqual(stage.last().take(), []);
  stage.last().says(refusal(UNAVAILABLE, sent[0]?.correlationId ?? ''));
  handle.close();
  other.close();
  mock.timers.tick(100);
  assert.deepEqual(stage.last().take().map(({ action, correlationId }) => [action, correlationId]), [[QueryAction.Unsubscribe, sent[1]?.correlationId]]);
});

test('a refusal ends its query for all handles and no other query', async (t) => {
  const stage = await opened(t);
  const { handle: other } = await live(stage, 'k', [row('a')]);
  const ends: string[] = [];
  const onEnd = ({ code }: TidewireError): unknown => ends.push(code);
  const options = { onEnd };
  const handles = [openQuery(stage.client.record, 'cards', { limit: 1 }, options), openQuery(stage.client.record, 'cards', { limit: 1 }, options)];
  const [id = ''] = asked(stage.last());
  stage.last().says(refusal(100, id, { message: 'the limit is bad', at: '/limit', fault: 'bad-limit' }));
  const error = { code: 'INVALID_QUERY', message: /the limit is bad/, subject: 'cards', data: { at: '/limit', fault: 'bad-limit' } };
  for (const handle of handles) await assert.rejects(handle.ready, error);
  assert.deepEqual([ends, stage.errors, ids(other.rows)], [['INVALID_QUERY', 'INVALID_QUERY'], [], 'a']);
  // A late answer to the refused query, and the end of its handles, concern no newer query.
  const again = openQuery(stage.client.record, 'cards', { limit: 1 });
  const [newer = ''] = asked(stage.last());
  stage.last().says(snapshot(id, 'x', row('late')));
  for (const handle of handles) handle.close();
  assert.deepEqual([stage.last().take(), again.rows], [[], undefined]);
  stage.last().says(snapshot(newer, 'y', row('b')));
  assert.equal(ids(again.rows), 'b');
  const sent = await stage.returns();
  assert.equal(sent.length, 2);
  stage.last().says(refusal(104, sent[0]?.correlationId ?? ''));
  assert.deepEqual(stage.errors.map(({ code }) => code), ['QUERY_RULE'], 'without onEnd, onError gets the error');
});

test('an answer of one request does not reach another: live queries and queries with one answer have different ids', async (t) => {
  const stage = await opened(t);
  const handle = openQuery(stage.client.record, 'cards');
  const once = fetchQuery(stage.client.record, 'cards', {}, { count: true });
  const [live, read] = stage.last().take();
  assert.deepEqual([live?.action, read?.action, read?.data], [QueryAction.Subscribe, QueryAction.ReadAndCount, '{}']);
  assert.notEqual(live?.correlationId, read?.correlationId);
  stage.last().says({ topic: Topic.Query, action: QueryAction.Result, correlationId: read?.correlationId ?? '', data: '{"rows":[],"count":7}' });
  assert.deepEqual(await once, { rows: [], count: 7 });
  assert.equal(handle.rows, undefined);
  const refused = fetchQuery(stage.client.record, 'cards');
  stage.last().says(refusal(101, stage.last().take()[0]?.correlationId ?? ''));
  await assert.rejects(refused, { code: 'QUERY_TOO_LARGE' });
  // It has no effect on the server, so a new session asks again.
  const repeated = fetchQuery(stage.client.record, 'cards');
  const sent = await stage.returns();
  const again = sent.find(({ action }) => action === QueryAction.Read);
  stage.last().says({ topic: Topic.Query, action: QueryAction.Result, correlationId: again?.correlationId ?? '', data: '{"rows":[]}' });
  assert.deepEqual(await repeated, { rows: [], count: undefined });
});

test('differently written queries with one key of the server get its changes each', async (t) => {
  const stage = await opened(t);
  const { handle: one } = await live(stage, 'k', [row('a')], { where: { done: false } });
  const { handle: other } = await live(stage, 'k', [row('a')], { where: { done: { $eq: false } } });
  stage.last().says(changed('k', { type: 'added', index: 1, row: row('b') }));
  assert.deepEqual([ids(one.rows), ids(other.rows)], ['a,b', 'a,b']);
  one.close();
  stage.last().says(changed('k', { type: 'removed', id: 'a' }));
  assert.deepEqual([ids(one.rows), ids(other.rows)], ['a,b', 'b']);
});

test('a query that was opened and closed without a connection is not sent, and one that is open is sent once', async (t) => {
  mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  t.after(() => mock.timers.reset());
  const { webSocket, last } = fakeSockets();
  const client = new Client('server:1', { webSocket });
  t.after(() => client.close());
  openQuery(client.record, 'dropped').close();
  const handle = openQuery(client.record, 'cards');
  void client.connect();
  last().opens();
  last().says({ topic: Topic.Connection, action: ConnectionAction.Accept });
  await settle();
  openQuery(client.record, 'more');
  last().take();
  last().says({ topic: Topic.Auth, action: 3 });
  assert.deepEqual(last().take().map(({ name }) => name), ['cards', 'more']);
  // While the client checks the connection, messages wait.
  client.check();
  last().take();
  openQuery(client.record, 'third');
  handle.close();
  assert.deepEqual(last().take(), []);
  last().pongs();
  assert.deepEqual(last().take().map(({ action }) => action), [QueryAction.Subscribe, QueryAction.Unsubscribe]);
});

test('a query that is too large for the server fails, and is not sent again', async (t) => {
  const stage = await opened(t, {}, 200);
  const large = openQuery(stage.client.record, 'cards', { where: { text: 'x'.repeat(300) } });
  await assert.rejects(large.ready, { code: 'TOO_LARGE' });
  assert.equal(large.error?.code, 'TOO_LARGE');
  await assert.rejects(fetchQuery(stage.client.record, 'cards', { where: { text: 'x'.repeat(300) } }), { code: 'TOO_LARGE' });
  // The server has closed the connection because of the largest message without an answer.
  const { handle: answered } = await live(stage, 'k', [row('a')], { where: { text: 'x'.repeat(30) } });
  const small = openQuery(stage.client.record, 'cards', { limit: 1 });
  const middle = openQuery(stage.client.record, 'cards', { where: { text: 'x'.repeat(20) } });
  const sent = await stage.returns(1009);
  await assert.rejects(middle.ready, { code: 'TOO_LARGE' });
  assert.equal(sent.length, 2);
  assert.deepEqual([small.error, answered.error], [undefined, undefined]);
});

test('a closed client rejects queries, and continues them after the next connect()', async (t) => {
  const stage = await opened(t);
  const { handle } = await live(stage, 'k', [row('a')]);
  const waiting = openQuery(stage.client.record, 'others');
  const once = fetchQuery(stage.client.record, 'others');
  stage.client.close();
  await assert.rejects(waiting.ready, { code: 'CLOSED' });
  await assert.rejects(once, { code: 'CLOSED' });
  assert.throws(() => openQuery(stage.client.record, 'cards'), { code: 'CLOSED' });
  assert.equal(ids(handle.rows), 'a');
  void stage.client.connect();
  stage.last().opens();
  stage.last().says({ topic: Topic.Connection, action: ConnectionAction.Accept });
  await settle();
  stage.last().take();
  stage.last().says({ topic: Topic.Auth, action: 3 });
  const [first = '', second = ''] = asked(stage.last());
  stage.last().says(snapshot(first, 'k', row('b')), snapshot(second, 'l', row('c')));
  assert.deepEqual([ids(handle.rows), ids(waiting.rows)], ['b', 'c']);
});

test('a callback that closes handles or throws does not disturb the others', async (t) => {
  const stage = await opened(t);
  const { handle, seen } = await live(stage, 'k', []);
  const second = openQuery(stage.client.record, 'cards');
  second.subscribe((rows) => {
    if (rows.length > 0) throw new Error('broken');
  });
  const third = openQuery(stage.client.record, 'cards');
  const calls: unknown[] = [];
  third.subscribe((rows) => calls.push(ids(rows)));
  third.close();
  const stop = handle.subscribe((rows) => {
    if (rows.length > 0) handle.close();
  });
  await settle();
  stage.last().says(changed('k', { type: 'added', index: 0, row: row('a') }));
  stage.last().says(changed('k', { type: 'added', index: 1, row: row('b') }));
  stop();
  assert.deepEqual([seen, calls, ids(second.rows)], [['added a 0'], [], 'a,b']);
  assert.deepEqual(stage.errors.map(({ code }) => code), ['CALLBACK_FAILED', 'CALLBACK_FAILED']);
  assert.throws(() => handle.subscribe(() => {}), { code: 'CLOSED' });
  assert.throws(() => second.subscribe(undefined as never), { code: 'INVALID_ARGUMENT' });
});

test('documents are validated, and parts of documents are not', async (t) => {
  const stage = await opened(t, { validate: (kind, name) => new (class extends Error { code = `${kind} ${name}`; })() as TidewireError });
  await live(stage, 'k', [row('a'), row('b')]);
  await live(stage, 'l', [row('a')], { select: ['at'] });
  assert.deepEqual(stage.errors.map(({ code }) => code), ['record cards/a']);
});

test('equal queries have one text, and a query with a value that JSON lacks is refused', () => {
  const check = (query: object, text: string): void => assert.equal(queryText(query as QueryInput), text);
  check({}, '{}');
  check({ sort: { b: 1, a: -1 }, where: { b: { $lt: 2, $gt: 1 }, a: [{ d: 1, c: null }] } }, '{"sort":{"b":1,"a":-1},"where":{"a":[{"c":null,"d":1}],"b":{"$gt":1,"$lt":2}}}');
  check({ where: undefined, limit: undefined, select: undefined, sort: undefined }, '{"where":null}');
  check({ where: null }, '{"where":null}');
  check({ where: 'id', unknown: 1 }, '{"unknown":1,"where":"id"}');
  check({ where: { at: new Date(0) } }, '{"where":{"at":"1970-01-01T00:00:00.000Z"}}');
  const cycle: Record<string, unknown> = {};
  cycle['self'] = cycle;
  const bad = [undefined, null, [], 'x', { where: { room: undefined } }, { where: { $or: [{ a: undefined }] } }, { where: { a: [undefined] } }, { where: { a: NaN } },
    { where: { a: -Infinity } }, { where: { a: () => 1 } }, { where: { a: Symbol('a') } }, { where: { a: 1n } }, { where: { a: /x/ } }, { where: cycle }, { limit: NaN }];
  for (const query of bad) assert.throws(() => queryText(query as never), { code: 'INVALID_ARGUMENT' });
});
