// Events, rpc and presence against a fake server that sends exactly the messages of the test, in orders that are too rare with a real
// server.

import assert from 'node:assert/strict';
import { mock, test, type TestContext } from 'node:test';
import { Client, type ClientOptions, type TidewireError } from '../src/index.js';
import { presenceOf } from '../src/presence.js';
import { ConnectionAction, EventAction, PresenceAction, RpcAction, Topic, type Message } from '../src/protocol.js';
import { RpcError, RpcReject, provide } from '../src/provide.js';
import { fakeSockets, settle, type FakeSocket } from './fake-socket.js';

interface Stage {
  client: Client;
  last(): FakeSocket;
  errors: TidewireError[];
  /** Loses the connection and opens another session. */
  returns(): Promise<void>;
}

async function opened(t: TestContext, options: ClientOptions = {}, messageBytesMax?: number): Promise<Stage> {
  mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  t.after(() => mock.timers.reset());
  t.mock.method(Math, 'random', () => 0);
  const { webSocket, last } = fakeSockets();
  const client = new Client('server:1', { webSocket, reconnectMinMs: 10, ...options });
  const errors: TidewireError[] = [];
  client.onError((error) => errors.push(error));
  t.after(() => client.close());
  const connected = client.connect();
  await last().logsIn(messageBytesMax);
  await connected;
  const returns = async (): Promise<void> => {
    last().ends();
    mock.timers.tick(10);
    await logsInAgain(last());
  };
  return { client, last, errors, returns };
}

/** Like `logsIn`, but keeps the messages that the client sends at once in the new session. */
async function logsInAgain(socket: FakeSocket): Promise<void> {
  socket.opens();
  socket.says({ topic: Topic.Connection, action: ConnectionAction.Accept });
  await settle();
  socket.take();
  socket.says({ topic: Topic.Auth, action: 3 });
  await settle();
}

const event = (action: number, fields: Partial<Message> = {}): Message => ({ topic: Topic.Event, action, ...fields });
const rpc = (action: number, fields: Partial<Message> = {}): Message => ({ topic: Topic.Rpc, action, ...fields });
const presence = (action: number, fields: Partial<Message> = {}): Message => ({ topic: Topic.Presence, action, ...fields });

/** The last message that the client has sent to `socket`. */
function asked(socket: FakeSocket): Message {
  const message = socket.take().at(-1);
  assert.ok(message, 'the client has sent something');
  return message;
}

test('names of one turn are sent together, and a name removed in the same turn is not sent', async (t) => {
  const { client, last } = await opened(t);
  client.event.subscribe('a', () => {});
  const dropped = client.event.subscribe('b', () => {});
  client.event.subscribe('c', () => {});
  client.event.subscribe('c', () => {});
  dropped();
  await settle();
  const sent = last().take();
  assert.deepEqual(sent.map(({ action, names }) => [action, names]), [[EventAction.Subscribe, ['a', 'c']]]);
});

test('five thousand names are sent in messages of a thousand', async (t) => {
  const { client, last } = await opened(t);
  for (let i = 0; i < 5_000; i += 1) client.event.subscribe(`name/${i}`, () => {});
  await settle();
  assert.deepEqual(last().take().map(({ names }) => names?.length), [1_000, 1_000, 1_000, 1_000, 1_000]);
});

test('a subscription is ready with the acknowledgement, refused by its own error, and refused as a whole without a name', async (t) => {
  const { client, last, errors } = await opened(t);
  const [good, bad] = [client.event.subscribe('good', () => {}), client.event.subscribe('bad', () => {})];
  await settle();
  const { correlationId = '' } = asked(last());
  const denied = { originalAction: EventAction.Subscribe, correlationId, isError: true };
  last().says(event(104, { ...denied, name: 'bad' }), event(EventAction.Subscribe, { correlationId, isAck: true }));
  await good.ready;
  await assert.rejects(bad.ready, { code: 'MESSAGE_DENIED', subject: 'bad' });
  assert.deepEqual([client.event.names, errors.map(({ code }) => code)], [['good'], ['MESSAGE_DENIED']]);
  const late = client.event.subscribe('late', () => {});
  await settle();
  last().says(event(105, { originalAction: EventAction.Subscribe, correlationId: asked(last()).correlationId ?? '', isError: true }));
  await assert.rejects(late.ready, { code: 'INVALID_MESSAGE_DATA' });
});

test('a revoked right ends the subscription, which is not requested again', async (t) => {
  const { client, last, errors, returns } = await opened(t);
  const ends: string[] = [];
  const { ready } = client.event.subscribe('news', () => {}, { onEnd: ({ code }) => ends.push(code) });
  await settle();
  last().says(event(EventAction.Subscribe, { correlationId: asked(last()).correlationId ?? '', isAck: true }));
  await ready;
  last().says(event(104, { name: 'news', originalAction: EventAction.Subscribe, isError: true }));
  assert.deepEqual([ends, errors, client.event.names], [['MESSAGE_DENIED'], [], []]);
  await returns();
  assert.deepEqual(last().take(), []);
});

test('a refusal of an older request does not end a newer one', async (t) => {
  const { client, last } = await opened(t);
  const first = client.event.subscribe('news', () => {});
  await settle();
  const { correlationId = '' } = asked(last());
  first();
  await settle();
  const second = client.event.subscribe('news', () => {});
  await settle();
  const newer = asked(last()).correlationId ?? '';
  last().says(event(104, { name: 'news', originalAction: EventAction.Subscribe, correlationId, isError: true }));
  last().says(event(EventAction.Subscribe, { correlationId: newer, isAck: true }));
  await second.ready;
});

test('a name that is dropped and added again in one turn is requested again', async (t) => {
  const { client, last } = await opened(t);
  const first = client.event.subscribe('kept', () => {});
  await settle();
  const { correlationId = '' } = asked(last());
  last().says(event(EventAction.Subscribe, { correlationId, isAck: true }));
  await first.ready;
  first();
  const from = { epoch: 1, offset: 7 };
  const second = client.event.subscribe('kept', () => {}, { from });
  let isReady = false;
  void second.ready.then(() => (isReady = true));
  await settle();
  const said = last().take();
  assert.deepEqual(said.map(({ action, positions }) => [action, positions]), [
    [EventAction.Unsubscribe, undefined],
    [EventAction.Subscribe, [{ name: 'kept', ...from }]],
  ]);
  last().says(event(EventAction.Unsubscribe, { correlationId: said[0]?.correlationId ?? '', isAck: true }));
  await settle();
  assert.equal(isReady, false);
  last().says(event(EventAction.Subscribe, { correlationId: said[1]?.correlationId ?? '', isAck: true }));
  await second.ready;
});

test('events with history continue after the last one, even if its position is partly known', async (t) => {
  const { client, last, returns } = await opened(t);
  const gaps: unknown[] = [];
  client.event.subscribe('kept', () => {}, { onGap: (gap) => gaps.push(gap) });
  await settle();
  const position = async (): Promise<unknown> => {
    await returns();
    return asked(last()).positions?.[0];
  };
  assert.deepEqual(asked(last()).positions, [{ name: 'kept' }]);
  last().says(event(EventAction.Position, { name: 'kept', epoch: 7, offset: 3 }));
  assert.deepEqual(await position(), { name: 'kept', epoch: 7, offset: 3 });
  last().says(event(EventAction.Emit, { name: 'kept', offset: 4 }), event(EventAction.Emit, { name: 'kept', offset: 9 }));
  assert.deepEqual(await position(), { name: 'kept', epoch: 7, offset: 9 });
  // The connection is lost between a gap and the event after it.
  last().says(event(EventAction.Gap, { name: 'kept', missed: 2, epoch: 8, offset: 12 }));
  assert.deepEqual(await position(), { name: 'kept', epoch: 8, offset: 11 });
  // A lagging subscriber keeps its position.
  last().says(event(EventAction.Gap, { name: 'kept', missed: 5 }));
  assert.deepEqual(await position(), { name: 'kept', epoch: 8, offset: 11 });
  // The server no longer keeps a history.
  last().says(event(EventAction.Gap, { name: 'kept' }));
  assert.deepEqual(await position(), { name: 'kept' });
  const known = [{ name: 'kept', missed: 2 }, { name: 'kept', missed: 5 }, { name: 'kept' }];
  // The last lost connection is another gap: without a history, the client does not know which events it missed.
  assert.deepEqual(gaps, [...known, { name: 'kept' }]);
});

test('an app continues from a stored position', async (t) => {
  const { client, last } = await opened(t);
  const places: unknown[] = [];
  client.event.subscribe('kept', (_payload, { position }) => places.push(position), { from: { epoch: 5, offset: 1 } });
  assert.throws(() => client.event.subscribe('kept', () => {}, { from: { epoch: 5, offset: 0 } }), { code: 'INVALID_ARGUMENT' });
  await settle();
  assert.deepEqual(asked(last()).positions, [{ name: 'kept', epoch: 5, offset: 1 }]);
  last().says(event(EventAction.Position, { name: 'kept', epoch: 5, offset: 1 }), event(EventAction.Emit, { name: 'kept', offset: 2 }));
  assert.deepEqual(places, [{ epoch: 5, offset: 2 }]);
});

test('an event of a former subscription does not come twice', async (t) => {
  const { client, last } = await opened(t);
  const first = client.event.subscribe('kept', () => {});
  await settle();
  last().says(event(EventAction.Position, { name: 'kept', epoch: 5, offset: 1 }));
  first();
  const places: unknown[] = [];
  client.event.subscribe('kept', (_payload, { position }) => places.push(position?.offset), { from: { epoch: 5, offset: 1 } });
  await settle();
  // The server publishes this event before it reads that the client has unsubscribed, and again after the position of the new subscription.
  last().says(event(EventAction.Emit, { name: 'kept', offset: 2 }));
  last().says(event(EventAction.Position, { name: 'kept', epoch: 5, offset: 1 }));
  for (const offset of [2, 3]) last().says(event(EventAction.Emit, { name: 'kept', offset }));
  assert.deepEqual(places, [2, 3]);
});

test('events wait for a connection, in order, until a deadline', async (t) => {
  const { client, last, errors, returns } = await opened(t, { requestTimeoutMs: 5_000, pendingMax: 3 });
  last().ends();
  client.event.emit('late', 1);
  mock.timers.setTime(Date.now() + 5_000);
  client.event.emit('news', 2);
  client.event.emit('news', 3);
  assert.throws(() => client.event.emit('news', 4), { code: 'TOO_MANY_PENDING', message: /raise pendingMax/ });
  mock.timers.tick(10);
  await logsInAgain(last());
  assert.deepEqual(last().take().map(({ name, data }) => [name, data]), [['news', '2'], ['news', '3']]);
  assert.deepEqual(errors.map(({ code, subject }) => [code, subject]), [['TIMEOUT', 'late']]);
  await returns();
  assert.deepEqual(last().take(), []);
});

test('a value that is not JSON is refused by the call', async (t) => {
  const { client } = await opened(t);
  const circle: unknown[] = [];
  circle.push(circle);
  for (const value of [circle, () => 1, 1n, Symbol('s')]) {
    assert.throws(() => client.event.emit('news', value), { code: 'INVALID_ARGUMENT' });
    await assert.rejects(client.rpc.call('add', value), { code: 'INVALID_ARGUMENT' });
  }
  for (const name of ['', 1, undefined]) {
    assert.throws(() => client.event.emit(name as string), { code: 'INVALID_ARGUMENT' });
    assert.throws(() => client.event.subscribe(name as string, () => {}), { code: 'INVALID_ARGUMENT' });
    assert.throws(() => provide(client.rpc, name as string, () => 1), { code: 'INVALID_ARGUMENT' });
    assert.throws(() => presenceOf(client).subscribe(name as string, () => {}), { code: 'INVALID_ARGUMENT' });
    await assert.rejects(client.rpc.call(name as string), { code: 'INVALID_ARGUMENT' });
  }
  await assert.rejects(presenceOf(client).query([]), { code: 'INVALID_ARGUMENT' });
  for (const nothing of [undefined, 'text']) {
    assert.throws(() => client.event.subscribe('news', nothing as never), { code: 'INVALID_ARGUMENT' });
    assert.throws(() => provide(client.rpc, 'add', nothing as never), { code: 'INVALID_ARGUMENT' });
    assert.throws(() => presenceOf(client).subscribeAll(nothing as never), { code: 'INVALID_ARGUMENT' });
  }
});

test('a call ends with its answer, its deadline, its signal, or the connection', async (t) => {
  const { client, last } = await opened(t);
  const answered = client.rpc.call('add', { a: 1 });
  last().says(rpc(RpcAction.Response, { name: 'add', correlationId: asked(last()).correlationId ?? '', data: '3' }));
  assert.equal(await answered, 3);
  const late = client.rpc.call('add', 1, { timeoutMs: 200 });
  const lateId = asked(last()).correlationId ?? '';
  mock.timers.tick(200);
  await assert.rejects(late, { code: 'TIMEOUT', subject: 'add', message: /no answer came within 200 ms/ });
  // An answer that arrives too late settles no call.
  last().says(rpc(RpcAction.Response, { name: 'add', correlationId: lateId }));
  const control = new AbortController();
  const aborted = client.rpc.call('add', 1, { signal: control.signal });
  control.abort(new Error('not wanted'));
  await assert.rejects(aborted, /not wanted/);
  await assert.rejects(client.rpc.call('add', 1, { signal: control.signal }), /not wanted/);
  const lost = client.rpc.call('add', 1);
  last().ends();
  await assert.rejects(lost, { code: 'CONNECTION_LOST', message: /may have carried out/ });
  const closed = client.rpc.call('add', 1);
  client.close();
  await assert.rejects(closed, { code: 'CLOSED' });
});

test('a call without a connection is sent when there is one, or reports that there was none', async (t) => {
  const { client, last } = await opened(t, { pendingMax: 2 });
  last().ends();
  const late = client.rpc.call('late', 1, { timeoutMs: 1 });
  const call = client.rpc.call('add', 1);
  await assert.rejects(client.rpc.call('third', 1), { code: 'TOO_MANY_PENDING' });
  mock.timers.tick(1);
  await assert.rejects(late, { code: 'TIMEOUT', message: /there was no connection within 1 ms/ });
  mock.timers.tick(9);
  await logsInAgain(last());
  const sent = last().take();
  assert.deepEqual(sent.map(({ name }) => name), ['add']);
  last().says(rpc(RpcAction.Response, { correlationId: sent[0]?.correlationId ?? '' }));
  assert.equal(await call, undefined);
});

test('a call made while the connection is checked is sent in the next session if this one has ended', async (t) => {
  const { client, last } = await opened(t);
  client.check();
  const call = client.rpc.call('add', 1);
  client.event.emit('news', 2);
  last().ends();
  mock.timers.tick(10);
  await logsInAgain(last());
  const sent = last().take();
  assert.deepEqual(sent.map(({ name }) => name), ['news', 'add']);
  last().says(rpc(RpcAction.Response, { correlationId: sent[1]?.correlationId ?? '' }));
  assert.equal(await call, undefined);
});

test('a provider accepts, and answers, refuses, passes on or fails', async (t) => {
  const { client, last, errors } = await opened(t);
  const { ready } = provide(client.rpc, 'act', (how, { requestor }) => {
    if (how === 'refuse') throw new RpcError({ why: 'no' });
    if (how === 'hand on') throw new RpcReject();
    if (how === 'fail') throw new Error('secret');
    if (how === 'circle') {
      const circle: unknown[] = [];
      return circle.push(circle) && circle;
    }
    return requestor;
  });
  await settle();
  last().says(rpc(RpcAction.Provide, { correlationId: asked(last()).correlationId ?? '', isAck: true }));
  await ready;
  const answers: unknown[] = [];
  for (const how of ['answer', 'refuse', 'hand on', 'fail', 'circle']) {
    last().says(rpc(RpcAction.Request, { name: 'act', correlationId: how, data: JSON.stringify(how), requestorName: 'ada' }));
    await settle();
    const [accept, answer] = last().take();
    assert.deepEqual([accept?.action, accept?.correlationId, answer?.correlationId], [RpcAction.Accept, how, how]);
    answers.push([answer?.action, answer?.data]);
  }
  assert.deepEqual(answers, [
    [RpcAction.Response, '"ada"'],
    [RpcAction.RequestError, '{"why":"no"}'],
    [RpcAction.Reject, undefined],
    [RpcAction.RequestError, '"PROVIDER_FAILED"'],
    [RpcAction.RequestError, '"PROVIDER_FAILED"'],
  ]);
  assert.deepEqual(errors.map(({ code }) => code), ['PROVIDER_FAILED', 'PROVIDER_FAILED']);
});

test('a provider learns that its answer is not needed, and sends nothing in another session', async (t) => {
  const { client, last, returns } = await opened(t);
  let aborted = false;
  let finish = (): void => {};
  provide(client.rpc, 'slow', async (_argument, { signal }) => {
    signal.addEventListener('abort', () => (aborted = signal.aborted));
    await new Promise<void>((done) => (finish = done));
  });
  await settle();
  last().says(rpc(RpcAction.Request, { name: 'slow', correlationId: '1' }));
  await settle();
  await returns();
  assert.deepEqual([aborted, last().take().map(({ action }) => action)], [true, [RpcAction.Provide]]);
  finish();
  await settle();
  assert.deepEqual(last().take(), []);
});

test('an answer that is ready while the connection is checked is sent afterwards', async (t) => {
  const { client, last } = await opened(t);
  provide(client.rpc, 'echo', (argument) => argument);
  await settle();
  client.check();
  last().take();
  last().says(rpc(RpcAction.Request, { name: 'echo', correlationId: '1', data: '5' }));
  await settle();
  assert.deepEqual(last().take(), []);
  last().pongs();
  assert.deepEqual(last().take().map(({ action }) => action), [RpcAction.Accept, RpcAction.Response]);
});

test('a name is provided once, and a call of a name no longer provided is passed on', async (t) => {
  const { client, last } = await opened(t);
  const stop = provide(client.rpc, 'echo', (argument) => argument);
  assert.throws(() => provide(client.rpc, 'echo', () => 1), { code: 'INVALID_ARGUMENT', message: /provided by this client already/ });
  await settle();
  stop();
  stop();
  last().take();
  last().says(rpc(RpcAction.Request, { name: 'echo', correlationId: '1' }));
  assert.equal(asked(last()).action, RpcAction.Reject);
});

test('changes that overtake the answer about a user count, and changes during a loss are reported', async (t) => {
  const { client, last, returns } = await opened(t);
  const seen: boolean[] = [];
  const { ready } = presenceOf(client).subscribe('bob', (isOnline) => seen.push(isOnline));
  const learns = async (answer: boolean, ...before: Message[]): Promise<void> => {
    await settle();
    last().says(presence(PresenceAction.Subscribe, { correlationId: asked(last()).correlationId ?? '', isAck: true }));
    await settle();
    const { correlationId = '', names } = asked(last());
    assert.deepEqual(names, ['bob']);
    last().says(...before, presence(PresenceAction.QueryResponse, { correlationId, data: JSON.stringify({ bob: answer }) }));
    await settle();
  };
  await learns(false, presence(PresenceAction.Join, { name: 'bob' }));
  await ready;
  assert.deepEqual(seen, [true]);
  await returns();
  await learns(false);
  await returns();
  await learns(false);
  assert.deepEqual(seen, [true, false]);
});

test('all online users are known, also users who came and left in between', async (t) => {
  const { client, last, returns } = await opened(t);
  const seen: unknown[] = [];
  const { ready } = presenceOf(client).subscribeAll((users, change) => seen.push([[...users].sort(), change]));
  const learns = async (users: string[], ...before: Message[]): Promise<void> => {
    assert.equal(asked(last()).action, PresenceAction.SubscribeAll);
    last().says(presence(PresenceAction.SubscribeAll, { isAck: true }));
    await settle();
    assert.equal(asked(last()).action, PresenceAction.QueryAll);
    last().says(...before, presence(PresenceAction.QueryAllResponse, users.length > 0 ? { names: users } : {}));
    await settle();
  };
  await learns(['ada', 'bob'], presence(PresenceAction.LeaveAll, { name: 'bob' }), presence(PresenceAction.JoinAll, { name: 'eve' }));
  await ready;
  await returns();
  await learns(['eve', 'dan']);
  assert.deepEqual(seen, [
    [['ada', 'eve'], undefined],
    [['eve'], { user: 'ada', isOnline: false }],
    [['dan', 'eve'], { user: 'dan', isOnline: true }],
  ]);
});

test('presence queries are repeated after a loss, queries for all users one at a time', async (t) => {
  const { client, last, returns } = await opened(t);
  const answers = Promise.all([presenceOf(client).query(['bob']), presenceOf(client).all(), presenceOf(client).all()]);
  await settle();
  assert.equal(last().take().length, 2);
  await returns();
  const [query, all] = last().take();
  last().says(presence(PresenceAction.QueryResponse, { correlationId: query?.correlationId ?? '', data: '{"bob":true}' }));
  assert.equal(all?.action, PresenceAction.QueryAll);
  for (const user of ['ada', 'eve']) {
    last().says(presence(PresenceAction.QueryAllResponse, { names: [user] }));
    await settle();
  }
  assert.deepEqual(await answers, [{ bob: true }, ['ada'], ['eve']]);
});

test('refused presence queries and subscriptions are reported', async (t) => {
  const { client, last } = await opened(t);
  const denied = (originalAction: number, correlationId?: string): Message =>
    presence(102, { originalAction, isError: true, ...(correlationId !== undefined && { correlationId }) });
  const all = presenceOf(client).all();
  await settle();
  last().says(denied(PresenceAction.QueryAll));
  await assert.rejects(all, { code: 'MESSAGE_DENIED' });
  const query = presenceOf(client).query(['bob']);
  await settle();
  last().says(denied(PresenceAction.Query, asked(last()).correlationId));
  await assert.rejects(query, { code: 'MESSAGE_DENIED' });
  const ends: string[] = [];
  const { ready } = presenceOf(client).subscribeAll(() => {}, { onEnd: ({ code }) => ends.push(code) });
  last().says(denied(PresenceAction.SubscribeAll));
  await assert.rejects(ready, { code: 'MESSAGE_DENIED' });
  assert.deepEqual(ends, ['MESSAGE_DENIED']);
});

const LONG = 'x'.repeat(600);

test('a message larger than the server accepts is refused by the call, and never sent', async (t) => {
  const { client, last, errors } = await opened(t, {}, 500);
  const heard: unknown[] = [];
  client.event.subscribe('news', (payload) => heard.push(payload));
  await settle();
  last().take();
  assert.throws(() => client.event.emit('news', LONG), { code: 'TOO_LARGE', subject: 'news' });
  await assert.rejects(client.rpc.call('add', LONG), { code: 'TOO_LARGE', subject: 'add' });
  await assert.rejects(client.record.set('todo', { text: LONG }), { code: 'TOO_LARGE', subject: 'todo' });
  await assert.rejects(client.record.get(LONG), { code: 'TOO_LARGE' });
  await assert.rejects(client.record.delete(LONG), { code: 'TOO_LARGE' });
  await assert.rejects(presenceOf(client).query(Array.from({ length: 100 }, (_, at) => `user ${at}`)), { code: 'TOO_LARGE' });
  assert.deepEqual([last().take(), heard, errors], [[], [], []]);
  client.event.emit('news', 'short');
  assert.deepEqual([asked(last()).data, heard], ['"short"', ['short']]);
});

test('a waiting message is refused if it exceeds the limit of the new connection', async (t) => {
  mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  t.after(() => mock.timers.reset());
  const { webSocket, last } = fakeSockets();
  const client = new Client('server:1', { webSocket });
  const errors: TidewireError[] = [];
  client.onError((error) => errors.push(error));
  t.after(() => client.close());
  client.event.emit('first', LONG);
  client.event.emit('second', 'short');
  const call = client.rpc.call('add', LONG);
  const connected = client.connect();
  await last().logsIn(500);
  await connected;
  await assert.rejects(call, { code: 'TOO_LARGE' });
  assert.deepEqual(errors.map(({ code, subject }) => [code, subject]), [['TOO_LARGE', 'first']]);
  // Without a session, the limit of the last session applies.
  last().ends();
  assert.throws(() => client.event.emit('third', LONG), { code: 'TOO_LARGE' });
});

test('an answer that is larger than the server accepts fails its call, and is reported', async (t) => {
  const { client, last, errors } = await opened(t, {}, 500);
  provide(client.rpc, 'long', () => LONG);
  provide(client.rpc, 'wrong', () => {
    throw new RpcError(LONG);
  });
  await settle();
  for (const name of ['long', 'wrong']) {
    last().take();
    last().says(rpc(RpcAction.Request, { name, correlationId: '7' }));
    await settle();
    assert.deepEqual(last().take().map(({ action, data }) => [action, data]), [
      [RpcAction.Accept, undefined],
      [RpcAction.RequestError, '"TOO_LARGE"'],
    ]);
  }
  assert.deepEqual(errors.map(({ code, subject }) => [code, subject]), [
    ['TOO_LARGE', 'long'],
    ['TOO_LARGE', 'wrong'],
  ]);
});

test('names are sent in messages that the server accepts, and a name that fits in none is refused', async (t) => {
  const { client, last, errors } = await opened(t, {}, 500);
  const names = Array.from({ length: 40 }, (_, at) => `${at}-`.padEnd(50, 'n'));
  for (const name of names) client.event.subscribe(name, () => {});
  const refused = client.event.subscribe(LONG, () => {});
  await assert.rejects(refused.ready, { code: 'TOO_LARGE' });
  const sent = last().take();
  assert.deepEqual(sent.flatMap(({ names: some = [] }) => some), names);
  assert.ok(sent.length > 4, `${sent.length} messages`);
  assert.deepEqual(errors.map(({ code }) => code), ['TOO_LARGE']);
});

test('a call for which the server closes the connection fails, and others continue', async (t) => {
  const { client, last, errors } = await opened(t);
  const [large, small] = [client.record.get(LONG), client.record.get('small')];
  last().ends(1009);
  await assert.rejects(large, { code: 'TOO_LARGE' });
  mock.timers.tick(10);
  await logsInAgain(last());
  const { name, correlationId = '' } = asked(last());
  assert.equal(name, 'small');
  last().says({ topic: Topic.Record, action: 61, name: 'small', correlationId, version: 1, data: '{}' });
  assert.deepEqual(await small, {});
  const call = client.rpc.call('add', LONG);
  last().ends(1009);
  await assert.rejects(call, { code: 'TOO_LARGE', message: /bytes/ });
  assert.deepEqual(errors, []);
});

test('an answer or an event for which the server closes the connection is reported', async (t) => {
  const { client, last, errors, returns } = await opened(t);
  client.event.emit('news', LONG);
  last().ends(1009);
  mock.timers.tick(10);
  await logsInAgain(last());
  assert.deepEqual(last().take(), []);
  provide(client.rpc, 'long', () => LONG);
  await settle();
  last().says(rpc(RpcAction.Request, { name: 'long', correlationId: '7' }));
  await settle();
  last().ends(1009);
  assert.deepEqual(errors.map(({ code, subject }) => [code, subject]), [
    ['TOO_LARGE', 'news'],
    ['TOO_LARGE', 'long'],
  ]);
  mock.timers.tick(20);
  await logsInAgain(last());
  await returns();
  assert.equal(errors.length, 2);
});
