// The connection against a fake server that the test controls, with mocked time.

import assert from 'node:assert/strict';
import { mock, test, type TestContext } from 'node:test';
import { Client, TidewireError, type ClientOptions, type State } from '../src/index.js';
import { AuthAction, ConnectionAction, Topic } from '../src/protocol.js';
import { fakeSockets, settle, type FakeSocket } from './fake-socket.js';

const PING = { topic: Topic.Connection, action: ConnectionAction.Ping };
const AUTH_REQUEST = { topic: Topic.Auth, action: AuthAction.Request };

/** Advances the time in small steps: a timer that is set by another timer is counted from the end of a step. */
function pass(ms: number): void {
  const step = ms < 100 ? 1 : 50;
  for (; ms > 0; ms -= step) mock.timers.tick(Math.min(step, ms));
}

interface Stage {
  client: Client;
  sockets: FakeSocket[];
  last(): FakeSocket;
  states: State[];
  errors: TidewireError[];
}

function stage(t: TestContext, options: ClientOptions = {}): Stage {
  mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  t.after(() => mock.timers.reset());
  t.mock.method(Math, 'random', () => 1);
  const { sockets, webSocket, last } = fakeSockets();
  const client = new Client('server:1', { webSocket, ...options });
  const states: State[] = [];
  const errors: TidewireError[] = [];
  client.onState((state) => states.push(state));
  client.onError((error) => errors.push(error));
  t.after(() => client.close());
  return { client, sockets, last, states, errors };
}

async function opened(t: TestContext, options: ClientOptions = {}): Promise<Stage> {
  const set = stage(t, options);
  const connected = set.client.connect();
  await set.last().logsIn();
  await connected;
  set.states.length = 0;
  return set;
}

test('nothing happens before connect', (t) => {
  const { client, sockets } = stage(t);
  client.event.subscribe('news', () => {});
  assert.deepEqual([sockets.length, client.state], [0, 'closed']);
});

test('a login goes through its states, and announces batches and jumps', async (t) => {
  const { client, last, states } = stage(t, { auth: { username: 'ada' } });
  const connected = client.connect();
  assert.equal(last().url, 'ws://server:1/deepstream');
  last().opens();
  const [challenge] = last().take();
  assert.deepEqual([challenge?.action, challenge?.batches, challenge?.jumps], [ConnectionAction.Challenge, true, true]);
  last().says({ topic: Topic.Connection, action: ConnectionAction.Accept });
  await settle();
  assert.deepEqual(last().take(), [{ ...AUTH_REQUEST, data: '{"username":"ada"}' }]);
  last().says({ topic: Topic.Auth, action: AuthAction.Successful, data: '{"color":"red"}' });
  await connected;
  assert.deepEqual(states, ['connecting', 'authenticating', 'open']);
  assert.deepEqual(client.loginData, { color: 'red' });
});

test('reconnect delays double up to the longest, each with a random part', async (t) => {
  const { client, sockets, last, states } = await opened(t, { reconnectMinMs: 100, reconnectMaxMs: 1_000 });
  last().ends();
  for (const wait of [100, 200, 400, 800, 1_000, 1_000]) {
    const count = sockets.length;
    pass(wait - 1);
    assert.equal(sockets.length, count, `no attempt before ${wait} ms`);
    pass(1);
    assert.equal(sockets.length, count + 1, `an attempt after ${wait} ms`);
    last().ends();
  }
  t.mock.method(Math, 'random', () => 0.5);
  pass(1_000);
  last().ends();
  const count = sockets.length;
  pass(500);
  assert.equal(sockets.length, count + 1, 'half of the delay');
  await last().logsIn();
  assert.equal(client.state, 'open');
  assert.deepEqual(states.slice(0, 3), ['waiting', 'connecting', 'waiting']);
});

test('the delay also grows if the server accepts each connection and closes it', async (t) => {
  const { sockets, last } = await opened(t, { reconnectMinMs: 100, reconnectMaxMs: 10_000 });
  for (const wait of [100, 200, 400]) {
    last().ends(1008);
    pass(wait - 1);
    const count = sockets.length;
    pass(1);
    assert.equal(sockets.length, count + 1);
    await last().logsIn();
  }
});

test('after a long session the delays are short again', async (t) => {
  const { sockets, last } = await opened(t, { reconnectMinMs: 100, reconnectMaxMs: 1_000, heartbeatIntervalMs: 500 });
  last().ends();
  pass(100);
  await last().logsIn();
  for (let beat = 0; beat < 3; beat += 1) {
    pass(500);
    last().pongs();
  }
  last().ends();
  pass(100);
  assert.equal(sockets.length, 3);
});

test('a socket that does not open is given up', async (t) => {
  const { client, last, sockets } = stage(t, { connectTimeoutMs: 1_000, reconnectMinMs: 10 });
  void client.connect();
  pass(1_000);
  assert.deepEqual([client.state, last().isClosed], ['waiting', true]);
  pass(10);
  assert.equal(sockets.length, 2);
});

test('heartbeats are sent at their interval after answers, however long the answers take', async (t) => {
  const { last, states } = await opened(t, { heartbeatIntervalMs: 100, staleAfterMs: 4_000 });
  for (let beat = 0; beat < 50; beat += 1) {
    pass(99);
    assert.deepEqual(last().take(), []);
    pass(1);
    assert.deepEqual(last().take(), [PING]);
    last().pongs();
  }
  assert.deepEqual(states, []);
});

test('a heartbeat without an answer makes the connection stale, and then ends it', async (t) => {
  const { last, states, client } = await opened(t);
  pass(15_000);
  assert.deepEqual(last().take(), [PING]);
  pass(4_000);
  assert.deepEqual(states, ['stale']);
  const socket = last();
  pass(4_000);
  assert.deepEqual([states.at(-1), socket.isClosed], ['waiting', true]);
  pass(500);
  assert.equal(client.state, 'connecting');
});

test('an answer that comes late, but before the connection is given up, is followed by the next heartbeat', async (t) => {
  const { client, last } = stage(t);
  void client.connect();
  last().opens();
  last().says({ topic: Topic.Connection, action: ConnectionAction.Accept });
  await settle();
  last().take();
  pass(15_000);
  assert.deepEqual(last().take(), [PING]);
  pass(7_999);
  last().pongs();
  pass(15_000);
  assert.deepEqual([client.state, last().take()], ['authenticating', [PING]]);
});

test('any message shows that a stale connection flows again', async (t) => {
  const { last, states } = await opened(t);
  pass(19_000);
  last().says({ topic: Topic.Event, action: 2, name: 'other' });
  assert.deepEqual(states, ['stale', 'open']);
  last().take();
  pass(15_000);
  assert.deepEqual(last().take(), [PING]);
});

test('heartbeats are also sent while the server delays the login', async (t) => {
  const { client, last } = stage(t);
  void client.connect();
  last().opens();
  last().take();
  for (let beat = 0; beat < 3; beat += 1) {
    pass(15_000);
    assert.deepEqual(last().take(), [PING]);
    last().pongs();
  }
  assert.equal(client.state, 'connecting');
  pass(15_000 + 8_000);
  assert.equal(client.state, 'waiting');
});

test('after a pause a round trip checks the connection before it is open again', async (t) => {
  const { client, last, states } = await opened(t);
  client.check();
  assert.deepEqual([states, last().take()], [['checking'], [PING]]);
  // A message that was still in the network proves nothing, and a message that the app sends during the check waits.
  last().says({ topic: Topic.Event, action: 2, name: 'old' });
  client.event.emit('news', 1);
  assert.deepEqual([client.state, last().take().length], ['checking', 0]);
  last().pongs();
  assert.deepEqual(states, ['checking', 'open']);
  assert.deepEqual(last().take().map(({ name }) => name), ['news']);
});

test('the answer to an older heartbeat does not count', async (t) => {
  const { client, last } = await opened(t);
  pass(15_000);
  client.check();
  last().pongs();
  assert.equal(client.state, 'checking');
  last().pongs();
  assert.equal(client.state, 'open');
});

test('a connection that fails the check is replaced', async (t) => {
  const { client, sockets } = await opened(t, { checkTimeoutMs: 300, reconnectMinMs: 10 });
  client.check();
  pass(299);
  assert.equal(client.state, 'checking');
  pass(11);
  assert.equal(sockets.length, 2);
});

test('a client that waits for the next attempt dials at once when it is woken', async (t) => {
  const { client, last, sockets } = await opened(t);
  last().ends();
  client.check();
  assert.deepEqual([client.state, sockets.length], ['connecting', 2]);
});

test('a heartbeat that is much too late shows that the process was asleep', async (t) => {
  const { client, last } = await opened(t);
  mock.timers.setTime(Date.now() + 60_000);
  pass(1);
  assert.deepEqual([client.state, last().take()], ['checking', [PING]]);
});

for (const event of ['online', 'offline', 'pageshow']) {
  test(`the event ${event} of a page triggers a check of the connection, until the client is closed`, async (t) => {
    const page = new EventTarget();
    const watched = new Set<string>();
    Object.assign(globalThis, {
      addEventListener: (name: string, listener: () => void) => watched.add(name) && page.addEventListener(name, listener),
      removeEventListener: (name: string, listener: () => void) => watched.delete(name) && page.removeEventListener(name, listener),
    });
    t.after(() => {
      Reflect.deleteProperty(globalThis, 'addEventListener');
      Reflect.deleteProperty(globalThis, 'removeEventListener');
    });
    const { client, last } = await opened(t);
    page.dispatchEvent(new Event(event));
    assert.equal(client.state, 'checking');
    last().pongs();
    client.close();
    assert.equal(watched.size, 0);
  });
}

const FINAL: Array<[string, number, number, string]> = [
  ['a rejected connection', Topic.Connection, ConnectionAction.Reject, 'CONNECTION_REJECTED'],
  ['a login that came too late', Topic.Connection, ConnectionAction.AuthenticationTimeout, 'AUTHENTICATION_TIMEOUT'],
  ['too many attempts', Topic.Auth, AuthAction.TooManyAttempts, 'AUTH_REFUSED'],
  ['unusable credentials', Topic.Auth, AuthAction.InvalidMessageData, 'AUTH_REFUSED'],
  ['refused credentials', Topic.Auth, AuthAction.Unsuccessful, 'AUTH_REFUSED'],
];
for (const [what, topic, action, code] of FINAL) {
  test(`after ${what} the client stays away`, async (t) => {
    const { client, last, sockets } = stage(t);
    const connected = client.connect();
    last().opens();
    last().says({ topic: Topic.Connection, action: ConnectionAction.Accept });
    await settle();
    last().says({ topic, action, ...(topic === Topic.Auth && { data: '{"error":"no"}' }) });
    await assert.rejects(connected, { code, ...(topic === Topic.Auth && { data: { error: 'no' } }) });
    assert.deepEqual([client.state, client.closeReason?.code, last().isClosed], ['closed', code, true]);
    pass(600_000);
    assert.equal(sockets.length, 1);
    assert.throws(() => client.event.emit('news', 1), { code: 'CLOSED' });
    await assert.rejects(client.rpc.call('add'), { code: 'CLOSED' });
    const again = client.connect({ auth: { username: 'bob' } });
    await last().logsIn();
    await again;
  });
}

/** A signal that counts its listeners. */
function countedSignal(): { abort(reason?: unknown): void; signal: AbortSignal; listeners(): number } {
  const controller = new AbortController();
  let count = 0;
  const { signal } = controller;
  const add = signal.addEventListener.bind(signal);
  const remove = signal.removeEventListener.bind(signal);
  signal.addEventListener = (...args: Parameters<typeof add>) => ((count += 1), add(...args));
  signal.removeEventListener = (...args: Parameters<typeof remove>) => ((count -= 1), remove(...args));
  return { abort: (reason) => controller.abort(reason), signal, listeners: () => count };
}

test('an aborted connect closes the socket, and nothing remains', async (t) => {
  const { client, last, sockets, states } = stage(t);
  const { abort, signal, listeners } = countedSignal();
  const connected = client.connect({ signal });
  abort('left the page');
  await assert.rejects(connected, { code: 'ABORTED', cause: 'left the page' });
  assert.deepEqual([client.state, client.closeReason?.code, last().isClosed, listeners()], ['closed', 'ABORTED', true, 0]);
  pass(600_000);
  assert.deepEqual([sockets.length, states], [1, ['connecting', 'closed']]);
  await assert.rejects(client.connect({ signal }), { code: 'ABORTED' });
  assert.equal(sockets.length, 1);
  const again = client.connect();
  await last().logsIn();
  await again;
});

test('a connect that is late closes the client, also between two attempts', async (t) => {
  const { client, last, sockets } = stage(t, { reconnectMinMs: 400 });
  const connected = client.connect({ timeoutMs: 500 });
  last().ends();
  pass(400);
  assert.equal(sockets.length, 2);
  pass(100);
  await assert.rejects(connected, { code: 'TIMEOUT', message: /500 ms/ });
  assert.deepEqual([client.state, client.closeReason?.code, last().isClosed], ['closed', 'TIMEOUT', true]);
  pass(600_000);
  assert.equal(sockets.length, 2);
});

test('a further connect that gives up leaves the attempts of the first one alone', async (t) => {
  const { client, last } = stage(t);
  const connected = client.connect();
  const { abort, signal, listeners } = countedSignal();
  const [aborted, late] = [client.connect({ signal }), client.connect({ timeoutMs: 10 })];
  abort();
  pass(10);
  await assert.rejects(aborted, { code: 'ABORTED' });
  await assert.rejects(late, { code: 'TIMEOUT' });
  const other = countedSignal();
  const patient = client.connect({ signal: other.signal, timeoutMs: 1_000 });
  await last().logsIn();
  await Promise.all([connected, patient]);
  assert.deepEqual([client.state, listeners(), other.listeners()], ['open', 0, 0]);
  pass(1_000);
  other.abort();
  assert.equal(client.state, 'open');
});

test('a session that was lost returns, although a connect has given up waiting for it', async (t) => {
  const { client, last } = await opened(t, { reconnectMinMs: 100 });
  last().ends();
  const late = client.connect({ timeoutMs: 50 });
  pass(50);
  await assert.rejects(late, { code: 'TIMEOUT' });
  assert.equal(client.state, 'waiting');
  pass(50);
  await last().logsIn();
  assert.equal(client.state, 'open');
});

/** Replaces `fetch`; returns the requests. Each is answered with `status`. */
function answers(t: TestContext, status: number): Array<[string, RequestInit]> {
  const requests: Array<[string, RequestInit]> = [];
  t.mock.method(globalThis, 'fetch', async (url: string, init: RequestInit) => {
    requests.push([url, init]);
    return new Response('see the option\n', { status, headers: { 'content-type': 'text/plain', 'content-length': '15' } });
  });
  return requests;
}

/** Waits until a report has arrived: the module of the diagnosis is loaded by the runtime. */
function reported(client: Client): Promise<TidewireError> {
  return new Promise((done) => client.onError(done));
}

test('after two failures the cause is found by a request without credentials, and reported once', async (t) => {
  const lines = t.mock.method(console, 'error', () => {});
  const requests = answers(t, 404);
  const { client, last, errors } = stage(t, { auth: { token: 'secret' }, reconnectMinMs: 10 });
  const reasons: unknown[] = [];
  client.onState((state, reason) => reason && reasons.push([state, reason.code]));
  void client.connect();
  const report = reported(client);
  last().ends();
  pass(10);
  await settle();
  assert.equal(requests.length, 0);
  last().ends();
  const problem = await report;
  assert.deepEqual([problem.code, client.problem, client.state], ['PATH_NOT_FOUND', problem, 'waiting']);
  assert.match(problem.message, /server:1 answers 404 for the path \/deepstream: see the option$/);
  assert.deepEqual(reasons, [['waiting', 'CONNECTION_LOST'], ['waiting', 'CONNECTION_LOST'], ['waiting', 'PATH_NOT_FOUND']]);
  // Node writes its warnings to the console too.
  assert.equal(lines.mock.calls.filter(({ arguments: [line] }) => line === problem.message).length, 1);
  const [url, init] = requests[0] ?? assert.fail('a request');
  assert.deepEqual([url, init.credentials, init.headers, init.referrerPolicy], ['http://server:1/deepstream', 'omit', undefined, 'no-referrer']);
  // The next failures have the cause as their reason. It is examined again after four of them, and not reported again.
  for (const ms of [20, 40]) {
    pass(ms);
    last().ends();
  }
  assert.deepEqual(reasons.at(-1), ['waiting', 'PATH_NOT_FOUND']);
  while (requests.length < 2) await new Promise((done) => setImmediate(done));
  pass(80);
  await last().logsIn();
  assert.deepEqual([client.state, client.problem, errors.length], ['open', undefined, 1]);
});

test('a session that is lost causes no request, however often it fails to return', async (t) => {
  const requests = answers(t, 404);
  const { client, last } = await opened(t, { reconnectMinMs: 10, reconnectMaxMs: 10 });
  for (let failures = 0; failures < 5; failures += 1) {
    last().ends();
    pass(10);
  }
  for (let turn = 0; turn < 20; turn += 1) await new Promise((done) => setImmediate(done));
  assert.deepEqual([requests.length, client.problem], [0, undefined]);
});

test('a refused login is explained if the server explains it', async (t) => {
  const { client, last } = stage(t);
  const connected = client.connect();
  last().opens();
  last().says({ topic: Topic.Connection, action: ConnectionAction.Accept });
  await settle();
  last().says({ topic: Topic.Auth, action: AuthAction.Unsuccessful, data: '{"error":"no","explanation":"the token has expired"}' });
  await assert.rejects(connected, { code: 'AUTH_REFUSED', message: 'the server refused the credentials: the token has expired' });
});

test('a revoked login ends an open session with its reason', async (t) => {
  const { client, last } = await opened(t);
  const data = '{"code":"LOGIN_REVOKED","error":"gone"}';
  last().says({ topic: Topic.Auth, action: AuthAction.Unsuccessful, data }, { topic: Topic.Auth, action: AuthAction.TooManyAttempts });
  assert.deepEqual(client.closeReason?.data, JSON.parse(data));
});

test('credentials that are larger than the server accepts are refused for good', async (t) => {
  const { client, last, sockets } = stage(t, { auth: { token: 'x'.repeat(600) } });
  const known = client.connect();
  last().opens();
  last().take();
  last().says({ topic: Topic.Connection, action: ConnectionAction.Accept, data: '{"messageBytesMax":500}' });
  await assert.rejects(known, { code: 'TOO_LARGE' });
  assert.deepEqual([client.state, client.closeReason?.code, last().take()], ['closed', 'TOO_LARGE', []]);
  const unknown = client.connect();
  last().opens();
  last().says({ topic: Topic.Connection, action: ConnectionAction.Accept });
  await settle();
  last().ends(1009);
  await assert.rejects(unknown, { code: 'TOO_LARGE' });
  pass(60_000);
  assert.equal(sockets.length, 2);
});

test('redirects are followed, and the next attempt begins at the first address', async (t) => {
  const { client, last } = stage(t, { reconnectMinMs: 10 });
  const connected = client.connect();
  const first = last();
  first.opens();
  first.says({ topic: Topic.Connection, action: ConnectionAction.Redirect, url: 'wss://other:2/path' });
  assert.deepEqual([last().url, first.isClosed], ['wss://other:2/path', true]);
  await last().logsIn();
  await connected;
  last().ends();
  pass(10);
  assert.equal(last().url, 'ws://server:1/deepstream');
});

test('circular redirects end in a delay', (t) => {
  const { client, last, sockets } = stage(t);
  void client.connect();
  for (let step = 0; step < 6; step += 1) {
    last().opens();
    last().says({ topic: Topic.Connection, action: ConnectionAction.Redirect, url: 'ws://server:1' });
  }
  assert.deepEqual([client.state, sockets.length], ['waiting', 6]);
});

test('a function returns credentials for every login, and once more after a refusal', async (t) => {
  const asked: unknown[] = [];
  const auth = ({ refusal }: { refusal: unknown }): object => ({ token: asked.push(refusal) });
  const { client, last } = stage(t, { auth, reconnectMinMs: 10 });
  const connected = client.connect();
  last().opens();
  last().says({ topic: Topic.Connection, action: ConnectionAction.Accept });
  await settle();
  last().says({ topic: Topic.Auth, action: AuthAction.Unsuccessful, data: '{"error":"TOKEN_EXPIRED"}' });
  await settle();
  const requests = last().take().filter(({ topic }) => topic === Topic.Auth);
  assert.deepEqual(requests.map(({ data }) => data), ['{"token":1}', '{"token":2}']);
  last().says({ topic: Topic.Auth, action: AuthAction.Successful });
  await connected;
  last().ends();
  pass(10);
  await last().logsIn();
  assert.deepEqual(asked, [undefined, { error: 'TOKEN_EXPIRED' }, undefined]);
});

test('a function whose credentials are refused twice is not called again', async (t) => {
  const { client, last } = stage(t, { auth: () => ({}) });
  const connected = client.connect();
  last().opens();
  last().says({ topic: Topic.Connection, action: ConnectionAction.Accept });
  for (let attempt = 0; attempt < 2; attempt += 1) {
    await settle();
    last().says({ topic: Topic.Auth, action: AuthAction.Unsuccessful });
  }
  await assert.rejects(connected, { code: 'AUTH_REFUSED' });
});

test('a failure of the function is reported, and the function is called again at the next attempt', async (t) => {
  let count = 0;
  const auth = async (): Promise<object> => {
    count += 1;
    if (count === 1) throw new Error('token server is down');
    return {};
  };
  const { client, last, errors } = stage(t, { auth, reconnectMinMs: 10 });
  const connected = client.connect();
  last().opens();
  last().says({ topic: Topic.Connection, action: ConnectionAction.Accept });
  await settle();
  assert.deepEqual([errors[0]?.code, client.state], ['AUTH_CALLBACK_FAILED', 'waiting']);
  pass(10);
  await last().logsIn();
  await connected;
});

test('a login is renewed in the open session when it is due', async (t) => {
  let count = 0;
  const auth = ({ renewIn }: { renewIn(ms: number): void }): object => {
    renewIn(60_000);
    return { token: (count += 1) };
  };
  const { last, sockets, errors } = await opened(t, { auth, heartbeatIntervalMs: 1e9 });
  for (const token of [2, 3]) {
    pass(60_000);
    await settle();
    assert.deepEqual(last().take(), [{ ...AUTH_REQUEST, data: `{"token":${token}}` }]);
    last().says({ topic: Topic.Auth, action: AuthAction.Successful });
    await settle();
  }
  assert.deepEqual([sockets.length, errors], [1, []]);
});

test('a renewal that was due without an open connection follows when it is open', async (t) => {
  let count = 0;
  const auth = ({ renewIn }: { renewIn(ms: number): void }): object => {
    count += 1;
    if (count === 1) renewIn(1_000);
    return {};
  };
  const { client, last } = stage(t, { auth });
  const connected = client.connect();
  pass(1_000);
  await last().logsIn();
  await connected;
  await settle();
  assert.equal(count, 2);
});

test('a refused renewal leaves the session as it is', async (t) => {
  const { client, last } = await opened(t);
  const renewed = client.renew({ username: 'mallory' });
  await settle();
  last().says({ topic: Topic.Auth, action: AuthAction.Unsuccessful, data: '{"code":"OTHER_USER"}' });
  await assert.rejects(renewed, { code: 'OTHER_USER' });
  assert.equal(client.state, 'open');
  const lost = client.renew();
  await settle();
  last().ends();
  await assert.rejects(lost, { code: 'CONNECTION_LOST' });
});

test('bytes that are not a message end the connection with an error', async (t) => {
  for (const data of ['text', new Uint8Array([9, 9, 9]).buffer]) {
    await t.test(typeof data, async (inner) => {
      const { client, last, errors } = await opened(inner);
      last().onmessage?.({ data } as never);
      assert.deepEqual([errors[0]?.code, client.state], ['INVALID_MESSAGE', 'waiting']);
    });
  }
});

test('a closed client sends and receives nothing', async (t) => {
  const { client, last, states } = await opened(t);
  let heard = 0;
  client.event.subscribe('news', () => (heard += 1));
  await settle();
  client.close();
  client.close();
  last().says({ topic: Topic.Event, action: 2, name: 'news' });
  last().ends();
  pass(600_000);
  assert.deepEqual([states, heard], [['closed'], 0]);
  assert.equal(client.closeReason?.code, 'CLOSED');
});

test('connect is rejected if the client is closed in the meantime', async (t) => {
  const { client } = stage(t);
  const connected = client.connect();
  client.close();
  await assert.rejects(connected, { code: 'CLOSED' });
});

test('without any WebSocket the error names the solution', async (t) => {
  const original = Object.getOwnPropertyDescriptor(globalThis, 'WebSocket');
  Reflect.deleteProperty(globalThis, 'WebSocket');
  t.after(() => original && Object.defineProperty(globalThis, 'WebSocket', original));
  const client = new Client('server:1');
  await assert.rejects(client.connect(), { code: 'NO_WEBSOCKET', message: /install the package "ws" and pass its class/ });
  assert.equal(client.state, 'closed');
});

test('addresses', async (t) => {
  const expected: Record<string, string> = {
    'server:1': 'ws://server:1/deepstream',
    server: 'ws://server/deepstream',
    'ws://server:1/': 'ws://server:1/deepstream',
    'wss://server/path?query=1': 'wss://server/path?query=1',
    'http://[::1]:6020': 'ws://[::1]:6020/deepstream',
    'HTTPS://server': 'wss://server/deepstream',
  };
  for (const [address, url] of Object.entries(expected)) {
    const { webSocket, last } = fakeSockets();
    const client = new Client(address, { webSocket });
    void client.connect();
    assert.equal(last().url, url);
    client.close();
  }
  for (const address of ['', '/path', 'ftp://server']) {
    const { webSocket } = fakeSockets();
    await assert.rejects(new Client(address, { webSocket }).connect(), { code: 'INVALID_URL' });
  }
  Object.assign(globalThis, { location: { protocol: 'https:', host: 'app.example' } });
  t.after(() => Reflect.deleteProperty(globalThis, 'location'));
  for (const [address, url] of [[undefined, 'wss://app.example/deepstream'], ['/path', 'wss://app.example/path']]) {
    const { webSocket, last } = fakeSockets();
    const client = new Client(address, { webSocket });
    void client.connect();
    assert.equal(last().url, url);
    client.close();
  }
});

test('messages are refused if too many bytes wait in the socket', async (t) => {
  const { client, last } = await opened(t, { sendBufferBytesMax: 1_000 });
  last().bufferedAmount = 1_001;
  assert.throws(() => client.event.emit('news', 1), { code: 'OVERLOADED', message: /sendBufferBytesMax/ });
  await assert.rejects(client.rpc.call('add'), { code: 'OVERLOADED' });
  last().bufferedAmount = 1_000;
  client.event.emit('news', 1);
  assert.equal(last().take().length, 1);
});

test('a callback that fails does not stop others, and the failure is reported', async (t) => {
  const { client, last, errors } = await opened(t);
  let heard = 0;
  client.event.subscribe('news', () => {
    throw new Error('mine');
  });
  client.event.subscribe('news', () => (heard += 1));
  last().says({ topic: Topic.Event, action: 2, name: 'news' });
  assert.deepEqual([heard, errors.map(({ code }) => code)], [1, ['CALLBACK_FAILED']]);
});

test('without a listener errors go to the console', async (t) => {
  const said = t.mock.method(console, 'error', () => {});
  const { webSocket, last } = fakeSockets();
  const client = new Client('server:1', { webSocket });
  t.after(() => client.close());
  void client.connect();
  await last().logsIn();
  last().says({ topic: Topic.Event, action: 104, name: 'news', originalAction: 2, isError: true });
  assert.equal((said.mock.calls[0]?.arguments[0] as TidewireError).code, 'MESSAGE_DENIED');
});
