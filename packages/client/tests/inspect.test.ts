// What `inspect` records, against a fake server that sends exactly the messages of the test.

import assert from 'node:assert/strict';
import { mock, test, type TestContext } from 'node:test';
import { Client, type TidewireError } from '../src/index.js';
import { inspect, type Inspector } from '../src/inspect.js';
import { openQuery } from '../src/live-query.js';
import { AuthAction, ConnectionAction, RecordAction, Topic, type Message } from '../src/protocol.js';
import { fakeSockets, settle, type FakeSocket } from './fake-socket.js';

interface Stage {
  client: Client;
  inspector: Inspector;
  last(): FakeSocket;
  errors: TidewireError[];
}

function stage(t: TestContext): Stage {
  mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  t.after(() => mock.timers.reset());
  t.mock.method(Math, 'random', () => 1);
  const { webSocket, last } = fakeSockets();
  const client = new Client('server:1', { webSocket, reconnectMinMs: 10, auth: { password: 'secret' } });
  const errors: TidewireError[] = [];
  client.onError((error) => errors.push(error));
  t.after(() => client.close());
  return { client, inspector: inspect(client), last, errors };
}

/** The session after the login, with the value of the record `todo`. */
async function opened(t: TestContext): Promise<Stage> {
  const set = stage(t);
  void set.client.connect();
  await set.last().logsIn();
  set.client.record.open('todo');
  await settle();
  set.last().says(record(RecordAction.ReadResponse, { name: 'todo', version: 1, data: '{"title":"milk"}' }));
  set.last().take();
  return set;
}

const record = (action: number, fields: Partial<Message> = {}): Message => ({ topic: Topic.Record, action, ...fields });
const whatOf = ({ entries }: Inspector): string[] => entries.map(({ kind, what, name }) => [kind, what, ...(name ? [name] : [])].join(' '));

test('messages and states are recorded in their order, without heartbeats and credentials', async (t) => {
  const { client, inspector, last } = stage(t);
  void client.connect();
  await last().logsIn();
  client.event.emit('news', { text: 'hello' });
  last().pongs();
  const expected = [
    'state connecting',
    'sent connection challenge',
    'received connection accept',
    'state authenticating',
    'sent login request',
    'received login accepted',
    'state open',
    'sent event emit news',
  ];
  assert.deepEqual(whatOf(inspector), expected);
  assert.equal(inspector.entries.at(-1)?.data, '{"text":"hello"}');
  assert.doesNotMatch(JSON.stringify(inspector.entries), /secret/);
  assert.equal(inspect(client), inspector);
});

test('queries and their refusals have words', async (t) => {
  const { client, inspector, last } = await opened(t);
  openQuery(client.record, 'cards', { limit: -1 }, { onEnd: () => {} });
  const { correlationId = '' } = last().take().at(-1) ?? {};
  last().says({ topic: Topic.Query, action: 100, correlationId, isError: true, data: '{"message":"the limit is negative"}' });
  const [sent, refused] = inspector.entries.filter(({ what }) => what.startsWith('query'));
  assert.deepEqual([sent?.what, sent?.name, sent?.data], ['query subscribe', 'cards', '{"limit":-1}']);
  assert.equal(refused?.code, 'INVALID_QUERY');
});

test('edits are pending until the server confirms them, and a repeated write is a retry', async (t) => {
  const { client, inspector, last } = await opened(t);
  const todo = client.record.open('todo');
  todo.set('title', 'bread');
  todo.set('done', true);
  const edit = (path: string, value: unknown, isSent: boolean): object => ({ name: 'todo', changes: [{ path, value }], isSent });
  assert.deepEqual(inspector.pending, [edit('title', 'bread', true), edit('done', true, false)]);
  const isRetry = (): Array<boolean | undefined> => inspector.entries.filter(({ what, kind }) => kind === 'sent' && what === 'record patch').map((entry) => entry.isRetry);
  last().ends();
  mock.timers.tick(10);
  last().opens();
  last().says({ topic: Topic.Connection, action: ConnectionAction.Accept });
  await settle();
  last().says({ topic: Topic.Auth, action: AuthAction.Successful });
  last().says(record(RecordAction.ReadResponse, { name: 'todo', version: 1, data: '{"title":"milk"}' }));
  assert.deepEqual(isRetry(), [undefined, true]);
  const confirm = (): void => {
    const { correlationId = '' } = last().take().at(-1) ?? {};
    last().says(record(RecordAction.WriteAcknowledgement, { name: 'todo', correlationId }));
  };
  confirm();
  assert.deepEqual(inspector.pending, [edit('done', true, true)]);
  confirm();
  assert.deepEqual([inspector.pending, isRetry()], [[], [undefined, true, undefined]]);
});

/** Replaces `fetch`: `answer` is the list of denials; without it the server has no such page. */
function denials(t: TestContext, answer?: object[]): { asked(): string[] } {
  const respond = async (): Promise<Response> => (answer ? Response.json(answer) : new Response('', { status: 404 }));
  const { mock } = t.mock.method(globalThis, 'fetch', respond);
  return { asked: () => mock.calls.map((call) => String(call.arguments[0])) };
}

/** The server refuses the last write of the record `todo`. */
async function refuses(last: () => FakeSocket): Promise<void> {
  const { correlationId = '' } = last().take().at(-1) ?? {};
  last().says(record(115, { name: 'todo', correlationId, originalAction: RecordAction.Patch, isError: true }));
  await settle();
}

test('merges and refusals are marked', async (t) => {
  denials(t);
  const { client, inspector, last, errors } = await opened(t);
  client.record.open('todo').set('title', 'bread');
  const write = last().take().at(-1);
  const answer = { name: 'todo', correlationId: write?.correlationId ?? '' };
  last().says(record(RecordAction.VersionExists, { ...answer, version: 2, data: '{"title":"rice"}' }));
  const merge = inspector.entries.find(({ isMerge }) => isMerge);
  assert.deepEqual([merge?.what, merge?.version, merge?.data], ['record version exists', 2, '{"title":"rice"}']);
  await refuses(last);
  const refusal = inspector.entries.find(({ code, kind }) => code === 'MESSAGE_DENIED' && kind === 'received');
  assert.deepEqual([refusal?.what, refusal?.name], ['record patch refused', 'todo']);
  assert.deepEqual([errors.map(({ code }) => code), inspector.entries.at(-1)?.kind], [['MESSAGE_DENIED'], 'error']);
});

test('a refusal gets the rule that denied it', async (t) => {
  const { asked } = denials(t, [
    { name: 'other', by: 'rules.yml:9:1' },
    { name: 'todo', by: 'rules.yml:2:3 "todo" write: false' },
    { name: 'todo', by: 'an older one' },
  ]);
  const { client, inspector, last } = await opened(t);
  const seen: Array<string | undefined> = [];
  inspector.onEntry(({ what, rule }) => what === 'record patch refused' && seen.push(rule));
  client.record.open('todo').set('title', 'bread');
  await refuses(last);
  assert.deepEqual(asked(), ['http://server:1/denials']);
  const rule = 'rules.yml:2:3 "todo" write: false';
  assert.deepEqual(seen, [undefined, rule]);
  assert.deepEqual(inspector.entries.flatMap((entry) => entry.rule ?? []), [rule]);
});

test('a server that does not list its denials gets one request', async (t) => {
  const { asked } = denials(t);
  const { client, inspector, last } = await opened(t);
  for (const title of ['bread', 'rice']) {
    client.record.open('todo').set('title', title);
    await refuses(last);
  }
  const refusals = inspector.entries.filter(({ what }) => what === 'record patch refused');
  assert.deepEqual([refusals.map(({ rule }) => rule), asked().length], [[undefined, undefined], 1]);
});

test('a callback gets each entry, the oldest entries are removed, and a closed inspector records nothing', async (t) => {
  const { client, inspector, last } = await opened(t);
  const seen: number[] = [];
  const stop = inspector.onEntry(({ number }) => seen.push(number));
  for (let count = 0; count < 600; count += 1) client.event.emit('tick', count);
  assert.deepEqual([seen.length, inspector.entries.length, inspector.entries.at(-1)?.number], [600, 500, seen.at(-1)]);
  stop();
  inspector.close();
  client.event.emit('tick', 1);
  last().says(record(RecordAction.Update, { name: 'todo', version: 2, data: '{}' }));
  assert.deepEqual([seen.length, inspector.entries.at(-1)?.number], [600, seen.at(-1)]);
  assert.notEqual(inspect(client), inspector);
});

test('errors without a callback of the app still go to the console', async (t) => {
  const lines = t.mock.method(console, 'error', () => {});
  const { webSocket, last } = fakeSockets();
  const client = new Client('server:1', { webSocket });
  t.after(() => client.close());
  const inspector = inspect(client);
  void client.connect();
  await last().logsIn();
  client.event.subscribe('news', () => {
    throw new Error('of the app');
  });
  client.event.emit('news');
  assert.deepEqual([lines.mock.callCount(), inspector.entries.at(-1)?.code], [1, 'CALLBACK_FAILED']);
});
