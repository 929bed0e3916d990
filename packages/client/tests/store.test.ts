// The shared store against a fake server: how many requests components cause, what they see, and when a subscription ends.

import assert from 'node:assert/strict';
import { mock, test, type TestContext } from 'node:test';
import { Client } from '../src/index.js';
import { AuthAction, ConnectionAction, RecordAction, RpcAction, ScopeAction, Topic, type Message } from '../src/protocol.js';
import { Calls, Joining, Store, arrival, follow, listEdits, partAt, pathText, publish, reader, recordEdits, recordKind, scopeOf, shownValue, stateText, type State } from '../src/store.js';
import { fakeSockets, settle, type FakeSocket } from './fake-socket.js';

interface Stage {
  client: Client;
  last(): FakeSocket;
}

async function opened(t: TestContext): Promise<Stage> {
  mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  t.after(() => mock.timers.reset());
  const { webSocket, last } = fakeSockets();
  const client = new Client('server:1', { webSocket });
  t.after(() => client.close());
  const connected = client.connect();
  await last().logsIn();
  await connected;
  return { client, last };
}

const record = (action: number, fields: Partial<Message> = {}): Message => ({ topic: Topic.Record, action, name: 'todo', ...fields });
const value = (version: number, data: unknown): Message => record(RecordAction.ReadResponse, { version, data: JSON.stringify(data) });
const todo = { kind: recordKind(), name: 'todo', part: partAt(undefined) };
const title = { ...todo, part: partAt(pathText('title')) };

/** The actions of the messages about the record that the client has sent since the last call. */
async function asked(last: () => FakeSocket): Promise<number[]> {
  await settle();
  return last().take().filter(({ topic }) => topic === Topic.Record).map(({ action }) => action);
}

test('components of a name share one subscription, which stays for the given time after the last one', async (t) => {
  const { client, last } = await opened(t);
  const scope = scopeOf(client, { keepMs: 1_000 });
  const [one, two]: [State<unknown>[], State<unknown>[]] = [[], []];
  const stops = [follow(scope, todo, (state) => one.push(state)), follow(scope, title, (state) => two.push(state))];
  assert.deepEqual(await asked(last), [RecordAction.SubscribeCreateAndRead]);
  last().says(value(1, { title: 'milk', done: false }));
  await settle();
  last().says(value(2, { title: 'milk', done: true }));
  await settle();
  assert.deepEqual(one.map((state) => state.value), [undefined, { title: 'milk', done: false }, { title: 'milk', done: true }]);
  assert.deepEqual(two.map((state) => state.value), [undefined, 'milk'], 'another part of the record has not changed');
  stops.forEach((stop) => stop());
  mock.timers.tick(999);
  assert.deepEqual(await asked(last), []);
  const late: State<unknown>[] = [];
  const stop = follow(scope, title, (state) => late.push(state));
  assert.deepEqual(late, [{ value: 'milk', isReady: true, error: undefined }]);
  stop();
  mock.timers.tick(1_000);
  assert.deepEqual(await asked(last), [RecordAction.Unsubscribe]);
  assert.equal(scope.store.find(todo.kind, 'todo'), undefined);
});

test('reading requests nothing, and returns the same object until the selection changes', async (t) => {
  const { client, last } = await opened(t);
  const scope = scopeOf(client, { keepMs: 0 });
  const read = reader(scope.store, title);
  const nothing = read();
  assert.deepEqual([nothing, await asked(last)], [{ value: undefined, isReady: false, error: undefined }, []]);
  follow(scope, todo, () => {});
  last().says(value(1, { title: 'milk' }));
  await settle();
  const milk = read();
  last().says(value(2, { title: 'milk', done: true }));
  await settle();
  assert.equal(read(), milk);
  assert.deepEqual([shownValue(nothing, 'initial'), shownValue(milk, 'initial')], ['initial', 'milk']);
});

test('without a name a component shows nothing, and its edits have a reason to fail', async (t) => {
  const { client, last } = await opened(t);
  const states: State<unknown>[] = [];
  follow(scopeOf(client, {}), { ...todo, name: undefined }, (state) => states.push(state))();
  assert.deepEqual([states.length, await asked(last)], [1, []]);
  const target = { store: Store.of(client), name: undefined };
  assert.throws(() => recordEdits(() => target).set('title', 'milk'), { message: 'there is no record to edit: useRecord has no name' });
  await assert.rejects(listEdits(() => target).add('milk'), { message: 'there is no list to change: useList has no name' });
  assert.throws(() => publish(client, undefined, 1), { message: 'there is no event to publish: useEvent has no name' });
});

test('a wait ends with the value, or with the refusal, and another one after a retry', async (t) => {
  const { client, last } = await opened(t);
  const scope = scopeOf(client, { keepMs: 1_000 });
  const refused = assert.rejects(arrival(scope, todo), { code: 'RECORD_CREATE_ERROR' });
  await settle();
  last().says(record(104, { originalAction: RecordAction.SubscribeCreateAndRead, isError: true }));
  await refused;
  await assert.rejects(arrival(scope, todo), { code: 'RECORD_CREATE_ERROR' });
  scope.store.find(todo.kind, 'todo')?.retry();
  const arrived = arrival(scope, todo);
  await settle();
  last().says(value(1, { title: 'milk' }));
  await arrived;
  assert.equal(reader(scope.store, title)().value, 'milk');
});

test('a wait connects the client, unless the app does that or has closed it', async () => {
  for (const autoConnect of [true, false]) {
    const { webSocket, sockets } = fakeSockets();
    const client = new Client('server:1', { webSocket });
    void arrival(scopeOf(client, { autoConnect }), todo).catch(() => undefined);
    assert.equal(sockets.length, autoConnect ? 1 : 0);
    client.close();
    await assert.rejects(arrival(scopeOf(client, {}), { ...todo, name: 'other' }), { code: 'CLOSED' });
    assert.equal(sockets.length, autoConnect ? 1 : 0);
  }
});

test('only the last call shows, and its value stays until the next answer', async (t) => {
  const { client, last } = await opened(t);
  const calls = new Calls(client, 'add');
  const seen: unknown[] = [];
  calls.subscribe(() => seen.push([calls.progress.value, calls.progress.isRunning]));
  const answers = [calls.call(1), calls.call(2)];
  await settle();
  const ids = last().take().map(({ correlationId }) => correlationId as string);
  const answer = (at: number, data: string): Message => ({ topic: Topic.Rpc, action: RpcAction.Response, name: 'add', correlationId: ids[at] as string, data });
  last().says(answer(1, '"second"'), answer(0, '"first"'));
  assert.deepEqual(await Promise.all(answers), ['first', 'second']);
  void calls.call(3);
  assert.deepEqual(seen, [[undefined, true], [undefined, true], ['second', false], ['second', true]]);
});

test('paths with the same steps have the same text, and a text path is not an array path', () => {
  assert.equal(pathText(['a', 0]), pathText(['a', 0]));
  assert.notEqual(pathText('a'), pathText(['a']));
  assert.equal(pathText(undefined), undefined);
});

test('a component joins a scope once in a turn, and another one replaces it as the same member', async (t) => {
  const { client, last } = await opened(t);
  const sent = async (): Promise<Array<[action: number, data?: unknown]>> => {
    await settle();
    return last().take().map(({ action, data }) => (data === undefined ? [action] : [action, JSON.parse(data as string)]));
  };
  const store = Store.of(client);
  const [one, two] = [new Joining(store, 'board'), new Joining(store, 'board')];
  // React mounts, unmounts and mounts again.
  one.show(stateText({ x: 0 }));
  one.show(undefined);
  one.show(stateText({ x: 1 }), { throttleMs: 20 });
  assert.deepEqual(await sent(), [[ScopeAction.Join, { x: 1 }]]);
  one.show(undefined);
  two.show(stateText({ x: 2 }), { throttleMs: 20 });
  assert.deepEqual(await sent(), []);
  mock.timers.tick(20);
  assert.deepEqual(await sent(), [[ScopeAction.Update, { x: 2 }]]);
  const errors: unknown[] = [];
  two.subscribe(() => errors.push(two.error?.code));
  const refusal = (action: number, originalAction: number): Message => ({ topic: Topic.Presence, action, originalAction, name: 'board', isError: true });
  last().says(refusal(121, ScopeAction.Update));
  two.show(stateText({ x: 3 }));
  mock.timers.tick(20);
  assert.deepEqual(await sent(), [[ScopeAction.Update, { x: 3 }]]);
  last().says(refusal(102, ScopeAction.Join));
  two.show(stateText({ x: 4 }));
  mock.timers.tick(20);
  assert.deepEqual(await sent(), [], 'a refused component does not ask with each state');
  assert.equal(two.error?.code, 'MESSAGE_DENIED');
  two.retry();
  assert.deepEqual(await sent(), [[ScopeAction.Join, { x: 4 }]]);
  assert.deepEqual(errors, ['STATE_TOO_LARGE', undefined, 'MESSAGE_DENIED', undefined]);
  two.show(undefined);
  assert.deepEqual(await sent(), [[ScopeAction.Leave]]);
  assert.deepEqual([stateText(undefined), stateText(null)], [undefined, 'null']);
  assert.throws(() => stateText(() => {}), { code: 'INVALID_ARGUMENT' });
});

test('a component whose client is closed joins with the newest state after the next login', async (t) => {
  const { client, last } = await opened(t);
  const joining = new Joining(Store.of(client), 'board');
  client.close();
  joining.show(stateText({ x: 1 }));
  await settle();
  joining.show(stateText({ x: 2 }));
  await settle();
  assert.equal(joining.error, undefined);
  const connected = client.connect();
  last().opens();
  last().says({ topic: Topic.Connection, action: ConnectionAction.Accept });
  await settle();
  last().says({ topic: Topic.Auth, action: AuthAction.Successful });
  await connected;
  await settle();
  const joins = last().take().filter(({ topic }) => topic === Topic.Presence);
  assert.deepEqual(joins.map(({ action, data }) => [action, data]), [[ScopeAction.Join, '{"x":2}']]);
  const broken = new Joining(Store.of(client), '');
  broken.show(stateText(1));
  await settle();
  assert.equal(broken.error?.code, 'INVALID_ARGUMENT');
});
