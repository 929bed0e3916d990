// Patterns of events against a fake server that sends exactly the messages of the test.

import assert from 'node:assert/strict';
import { mock, test, type TestContext } from 'node:test';
import { Client, type TidewireError } from '../src/index.js';
import { subscribePattern } from '../src/patterns.js';
import { AuthAction, ConnectionAction, EventAction, Topic, type Message } from '../src/protocol.js';
import { fakeSockets, settle, type FakeSocket } from './fake-socket.js';

interface Stage {
  client: Client;
  last(): FakeSocket;
  errors: TidewireError[];
}

async function opened(t: TestContext): Promise<Stage> {
  mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  t.after(() => mock.timers.reset());
  t.mock.method(Math, 'random', () => 0);
  const { webSocket, last } = fakeSockets();
  const client = new Client('server:1', { webSocket, reconnectMinMs: 10 });
  const errors: TidewireError[] = [];
  client.onError((error) => errors.push(error));
  t.after(() => client.close());
  const connected = client.connect();
  await last().logsIn();
  await connected;
  return { client, last, errors };
}

const event = (action: number, fields: Partial<Message> = {}): Message => ({ topic: Topic.Event, action, ...fields });
const emitted = (name: string, data: string): Message => event(EventAction.Emit, { name, data });

/** Acknowledges the last message that the client has sent, and returns it. */
function acknowledges(socket: FakeSocket): Message {
  const message = socket.take().at(-1);
  assert.ok(message, 'the client has sent something');
  socket.says(event(message.action, { correlationId: message.correlationId ?? '', isAck: true }));
  return message;
}

test('a pattern is requested once, and each callback that it matches is called', async (t) => {
  const { client, last } = await opened(t);
  const seen: unknown[] = [];
  const subscriptions = ['a/*', 'a/*', 'a/**', '*/b', '**', 'a/*/c'].map((pattern) =>
    subscribePattern(client.event, pattern, (name, payload, context) => seen.push([pattern, name, payload, context.name])),
  );
  await settle();
  const { action, names } = acknowledges(last());
  assert.deepEqual([action, names], [EventAction.SubscribePatterns, ['a/*', 'a/**', '*/b', '**', 'a/*/c']]);
  await Promise.all(subscriptions.map(({ ready }) => ready));
  last().says(emitted('a/b', '1'));
  const of = (name: string, payload: unknown, ...patterns: string[]): unknown[] => patterns.map((pattern) => [pattern, name, payload, name]);
  assert.deepEqual(seen.splice(0), of('a/b', 1, 'a/*', 'a/*', 'a/**', '*/b', '**'));
  for (const name of ['a', 'a/', 'a/x/c', 'a/x/c/d', 'b/a']) last().says(emitted(name, '2'));
  assert.deepEqual(seen.splice(0), [
    ...of('a', 2, '**'),
    ...of('a/', 2, 'a/*', 'a/*', 'a/**', '**'),
    ...of('a/x/c', 2, 'a/**', '**', 'a/*/c'),
    ...of('a/x/c/d', 2, 'a/**', '**'),
    ...of('b/a', 2, '**'),
  ]);
});

test('an event of a name and a pattern calls both, and keeps the position of the name only', async (t) => {
  const { client, last } = await opened(t);
  const seen: unknown[] = [];
  client.event.subscribe('kept/a', (_payload, { position }) => seen.push(position));
  subscribePattern(client.event, 'kept/*', (name, _payload, { position }) => seen.push([name, position]));
  await settle();
  last().says(event(EventAction.Position, { name: 'kept/a', epoch: 7, offset: 3 }));
  last().says(event(EventAction.Emit, { name: 'kept/a', offset: 4 }));
  last().says(event(EventAction.Emit, { name: 'kept/b', offset: 9 }));
  const position = { epoch: 7, offset: 4 };
  assert.deepEqual(seen, [position, ['kept/a', position], ['kept/b', undefined]]);
});

test('own events reach the patterns of the same client at once', async (t) => {
  const { client } = await opened(t);
  const seen: unknown[] = [];
  subscribePattern(client.event, 'a/*', (name, payload) => seen.push([name, payload]));
  client.event.emit('a/b', { own: true });
  client.event.emit('b/b');
  assert.deepEqual(seen, [['a/b', { own: true }]]);
});

test('a refused or revoked pattern ends, and is not requested again', async (t) => {
  const { client, last, errors } = await opened(t);
  const ends: string[] = [];
  const onEnd = ({ code }: TidewireError): unknown => ends.push(code);
  const bad = subscribePattern(client.event, '**/a', () => {}, { onEnd });
  const good = subscribePattern(client.event, 'a/*', () => {}, { onEnd });
  await settle();
  const correlationId = last().take().at(-1)?.correlationId ?? '';
  const refused = { originalAction: EventAction.SubscribePatterns, isError: true };
  last().says(event(124, { ...refused, name: '**/a', correlationId }));
  last().says(event(EventAction.SubscribePatterns, { correlationId, isAck: true }));
  await assert.rejects(bad.ready, { code: 'INVALID_PATTERN' });
  await good.ready;
  last().says(event(104, { ...refused, name: 'a/*' }));
  assert.deepEqual([ends, errors], [['INVALID_PATTERN', 'MESSAGE_DENIED'], []]);
  assert.throws(() => subscribePattern(client.event, '', () => {}), { code: 'INVALID_ARGUMENT' });
});

test('after a loss the pattern is requested again, and its subscribers learn of the gap', async (t) => {
  const { client, last } = await opened(t);
  const gaps: unknown[] = [];
  const removed = subscribePattern(client.event, 'b/*', () => {}, { onGap: (gap) => gaps.push(gap) });
  subscribePattern(client.event, 'a/*', () => {}, { onGap: (gap) => gaps.push(gap) });
  await settle();
  acknowledges(last());
  last().says(event(EventAction.PatternGap, { name: 'a/*', missed: 3 }));
  assert.deepEqual(gaps.splice(0), [{ pattern: 'a/*', missed: 3 }]);
  removed();
  await settle();
  assert.equal(acknowledges(last()).action, EventAction.UnsubscribePatterns);
  last().ends();
  mock.timers.tick(10);
  const socket = last();
  socket.opens();
  socket.says({ topic: Topic.Connection, action: ConnectionAction.Accept });
  await settle();
  socket.take();
  socket.says({ topic: Topic.Auth, action: AuthAction.Successful });
  await settle();
  const again = last().take().at(-1);
  assert.deepEqual([again?.action, again?.names, gaps], [EventAction.SubscribePatterns, ['a/*'], [{ pattern: 'a/*' }]]);
});
