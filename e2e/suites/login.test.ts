// Login and the life of a connection: accepted and refused logins with their answers, states, pausing and closing.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import { C, close, connect, inState, open, record } from '../harness/client.ts';
import { covers } from '../harness/coverage.ts';
import { fresh, freshUser } from '../harness/names.ts';
import { post } from '../harness/http.ts';
import { JsonPeer } from '../harness/json-peer.ts';
import { RawPeer } from '../harness/raw.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { DEADLINE_MS, Inbox, happens, isPending, within } from '../harness/wait.ts';

const { AUTH, CONNECTION, EVENT } = C.TOPIC;
/** The login timeout. Long, because a busy machine may delay a login of a test. */
const LOGIN_MS = 3_000;

describe('login without configuration', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start();
  });
  after(() => server.dispose());

  test('any client may log in, with or without details', async (t) => {
    const client = await connect(t, server, { login: false });
    assert.equal(await client.login(), null);
    assert.equal(client.getConnectionState(), C.CONNECTION_STATE.OPEN);
    const other = await connect(t, server, { login: false });
    assert.equal(await other.login({ username: freshUser(), any: ['thing'] }), null);
    covers(['DeepstreamClient.login', 'DeepstreamClient.getConnectionState'], 'success');
  });

  test('the callback form of login receives the outcome', async (t) => {
    const client = await connect(t, server, { login: false });
    const outcome = new Inbox<[boolean, unknown]>('login callback');
    client.login((success, data) => outcome.push([success, data]));
    assert.deepEqual(await outcome.next(), [true, null]);
    const other = await connect(t, server, { login: false });
    other.login({ username: freshUser() }, (success, data) => outcome.push([success, data]));
    assert.deepEqual(await outcome.next(), [true, null]);
  });

  test('a connection passes through its states in order', async (t) => {
    const client = open(server.address, { lazyConnect: true });
    atEnd(t, () => close(client));
    const states = new Inbox<string>('states');
    client.on('connectionStateChanged', states.push);
    await within(DEADLINE_MS, client.login(), 'login');
    client.close();
    await states.find((state) => state === C.CONNECTION_STATE.CLOSED);
    const expected = ['AWAITING_CONNECTION', 'CHALLENGING', 'AWAITING_AUTHENTICATION', 'AUTHENTICATING', 'OPEN'];
    assert.deepEqual(states.seen, [...expected, 'CLOSING', 'CLOSED']);
    covers('DeepstreamClient.close', 'success');
  });

  test('login details given before the connection is open are used when it opens', async (t) => {
    const client = open(server.address);
    atEnd(t, () => close(client));
    assert.equal(await within(DEADLINE_MS, client.login({ username: freshUser() }), 'login'), null);
    covers('DeepstreamClient.login', 'before login');
  });

  test('a client that was closed stays closed', async (t) => {
    const client = await connect(t, server, { errors: ['IS_CLOSED'] });
    client.close();
    await inState(client, C.CONNECTION_STATE.CLOSED);
    const login = client.login();
    const other = await connect(t, server);
    await other.record.has(fresh('record'));
    assert.equal(await isPending(Promise.resolve(login)), true);
    assert.equal(client.getConnectionState(), C.CONNECTION_STATE.CLOSED);
    client.close();
    await client.errors.find(({ event }) => event === 'IS_CLOSED');
    covers(['DeepstreamClient.login', 'DeepstreamClient.close', 'DeepstreamClient.getConnectionState'], 'after close');
  });

  test('a client may close before it logged in', async (t) => {
    const client = await connect(t, server, { login: false });
    assert.equal(client.getConnectionState(), C.CONNECTION_STATE.AWAITING_AUTHENTICATION);
    client.close();
    await inState(client, C.CONNECTION_STATE.CLOSED);
    covers(['DeepstreamClient.close', 'DeepstreamClient.getConnectionState'], 'before login');
  });

  test('a paused client is offline and catches up when it resumes', async (t) => {
    const name = fresh('record');
    const [writer, reader] = [await connect(t, server), await connect(t, server)];
    const [written, read] = [await record(writer, name), await record(reader, name)];
    reader.pause();
    await inState(reader, C.CONNECTION_STATE.OFFLINE);
    await written.setWithAck('while', 'offline');
    await within(DEADLINE_MS, reader.resume() as Promise<void>, 'resume');
    assert.equal(reader.getConnectionState(), C.CONNECTION_STATE.OPEN);
    const values = new Inbox<unknown>('values');
    read.subscribe('while', values.push, true);
    await values.find((value) => value === 'offline');
    covers(['DeepstreamClient.pause', 'DeepstreamClient.resume'], 'success');
  });

  test('resuming calls a callback, too', async (t) => {
    const client = await connect(t, server);
    client.pause();
    await inState(client, C.CONNECTION_STATE.OFFLINE);
    const resumed = new Inbox<unknown>('resume callback');
    client.resume(resumed.push);
    assert.equal(await resumed.next(), undefined);
  });

  test('ids of a client are unique', async (t) => {
    const client = await connect(t, server, { login: false });
    const ids = Array.from({ length: 1_000 }, () => client.getUid());
    assert.equal(new Set(ids).size, 1_000);
    covers('DeepstreamClient.getUid', 'success');
  });

  test('a client is an emitter', async (t) => {
    const client = await connect(t, server, { login: false });
    const every = new Inbox<unknown>('every time');
    const first = new Inbox<unknown>('first time');
    client.on('custom', every.push);
    client.once('custom', first.push);
    assert.equal(client.hasListeners('custom'), true);
    assert.deepEqual(client.eventNames(), ['error', 'custom']);
    client.emit('custom', 1);
    client.emit('custom', 2);
    assert.deepEqual([every.seen, first.seen], [[1, 2], [1]]);
    const context = {};
    client.on('scoped', every.push, context);
    client.removeContext(context);
    client.off('custom', every.push);
    client.emit('custom', 3);
    assert.deepEqual(every.seen, [1, 2]);
    const methods = ['on', 'once', 'off', 'emit', 'hasListeners', 'eventNames', 'removeContext'] as const;
    covers(methods.map((method) => `Emitter.${method}` as const), 'success');
  });

  const noQuery = againstOriginal && 'deepstream refuses the upgrade';
  test('a query string in the address is ignored', { skip: noQuery }, async (t) => {
    const client = open(`${server.address}?token=abc`);
    atEnd(t, () => close(client));
    await within(DEADLINE_MS, client.login(), 'login');
  });
});

describe('login with a file of users', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start({
      users: {
        alice: { password: hashPassword('wonderland'), clientData: { color: 'blue' }, serverData: { role: 'admin' } },
        bob: { password: hashPassword('builder') },
        'ünï 日本': { password: hashPassword('pässwörd') },
      },
    });
  });
  after(() => server.dispose());

  test('the right password opens the connection and returns the client data', async (t) => {
    const client = await connect(t, server, { login: false });
    const changed = happens(client, 'clientDataChanged');
    assert.deepEqual(await client.login({ username: 'alice', password: 'wonderland' }), { color: 'blue' });
    assert.deepEqual((await changed)[0], { color: 'blue' });
  });

  test('a user without client data gets none', async (t) => {
    const client = await connect(t, server, { login: false });
    assert.equal(await client.login({ username: 'bob', password: 'builder' }), null);
  });

  test('names and passwords may be any text', async (t) => {
    const client = await connect(t, server, { login: false });
    assert.equal(await client.login({ username: 'ünï 日本', password: 'pässwörd' }), null);
  });

  test('a wrong password and an unknown user are refused alike', async (t) => {
    for (const details of [{ username: 'alice', password: 'wrong' }, { username: 'nobody', password: 'wonderland' }]) {
      const client = await connect(t, server, { login: false });
      const refused = client.login(details).then(
        () => assert.fail('logged in'),
        (reason: unknown) => reason,
      );
      assert.deepEqual(await refused, { reason: 'INVALID_AUTHENTICATION_DETAILS' });
      assert.equal(client.getConnectionState(), C.CONNECTION_STATE.AWAITING_AUTHENTICATION);
    }
    covers('DeepstreamClient.login', 'refusal');
  });

  test('the refusal names the missing details', async (t) => {
    const client = await connect(t, server, { login: false });
    const error = 'missing authentication parameter: username or/and password';
    await assert.rejects(client.login({ username: 'alice' }), (refusal) => {
      assert.deepEqual(refusal, { reason: { error } });
      return true;
    });
  });

  test('a connection may try again after a refusal', async (t) => {
    const client = await connect(t, server, { login: false });
    await assert.rejects(client.login({ username: 'alice', password: 'wrong' }));
    assert.deepEqual(await client.login({ username: 'alice', password: 'wonderland' }), { color: 'blue' });
  });

  test('the third refusal ends the connection for good', async (t) => {
    const client = await connect(t, server, { login: false, errors: ['TOO_MANY_AUTH_ATTEMPTS', 'IS_CLOSED'] });
    const details = { username: 'alice', password: 'wrong' };
    for (let attempt = 1; attempt <= 3; attempt += 1) await assert.rejects(client.login(details));
    await inState(client, C.CONNECTION_STATE.TOO_MANY_AUTH_ATTEMPTS);
    client.login(details, () => assert.fail('answered'));
    await client.errors.find(({ event }) => event === 'IS_CLOSED');
    assert.equal(client.getConnectionState(), C.CONNECTION_STATE.TOO_MANY_AUTH_ATTEMPTS);
  });

  test('the third refusal closes the socket', async () => {
    const peer = await RawPeer.challenge(server);
    for (let attempt = 1; attempt <= 3; attempt += 1) {
      peer.send({ topic: AUTH, action: C.AUTH_ACTION.REQUEST, data: '{"username":"alice","password":"wrong"}' });
      await peer.expectCount(AUTH, C.AUTH_ACTION.AUTH_UNSUCCESSFUL, attempt);
    }
    await peer.expect(AUTH, C.AUTH_ACTION.TOO_MANY_AUTH_ATTEMPTS);
    await within(DEADLINE_MS, peer.closed, 'the server closes');
  });
});

describe('login limits', { concurrency: 8 }, () => {
  test('a client that does not log in in time is disconnected for good', async (t) => {
    const server = await Server.during(t, { loginTimeoutMs: LOGIN_MS });
    const client = await connect(t, server, { login: false, errors: ['AUTHENTICATION_TIMEOUT', 'IS_CLOSED'] });
    await inState(client, C.CONNECTION_STATE.AUTHENTICATION_TIMEOUT);
    client.login({}, () => assert.fail('answered'));
    await client.errors.find(({ event }) => event === 'IS_CLOSED');
  });

  test('the timeout after a refused login is longer than the timeout of the first one', async (t) => {
    const users = { alice: { password: hashPassword('wonderland') } };
    const server = await Server.during(t, { users, loginTimeoutMs: LOGIN_MS, auth: { chain: ['file'], retry_timeout: '5s' } });
    const [client, idle] = [await connect(t, server, { login: false, errors: ['AUTHENTICATION_TIMEOUT'] }), await RawPeer.challenge(server)];
    await assert.rejects(client.login({ username: 'alice', password: 'wrong' }));
    const refused = performance.now();
    // The idle socket connected after the client, so its login timeout ends after the client's.
    await within(DEADLINE_MS, idle.closed, 'the idle socket is closed');
    assert.equal(client.getConnectionState(), C.CONNECTION_STATE.AWAITING_AUTHENTICATION);
    await inState(client, C.CONNECTION_STATE.AUTHENTICATION_TIMEOUT);
    assert.ok(performance.now() - refused > 4_900, 'the time after a refusal was cut short');
    const other = await connect(t, server, { login: false });
    await assert.rejects(other.login({ username: 'alice', password: 'wrong' }));
    await other.login({ username: 'alice', password: 'wonderland' });
  });

  test('a login that exceeds its size limit closes the connection, or fails over HTTP', { skip: againstOriginal }, async (t) => {
    const server = await Server.during(t, { auth: { login_bytes_max: 2_000 } });
    const login = (bytes: number): string => JSON.stringify({ username: 'anna', more: Array(Math.floor(bytes / 3)).fill([]) });
    for (const [bytes, isTaken] of [[1_800, true], [3_000, false], [900_000, false]] as const) {
      const binary = await RawPeer.challenge(server);
      binary.send({ topic: AUTH, action: C.AUTH_ACTION.REQUEST, data: login(bytes) });
      const text = await JsonPeer.challenge(server);
      text.send({ topic: AUTH, action: C.AUTH_ACTION.REQUEST, data: login(bytes) });
      const answer = await post(server, '/api/auth', login(bytes));
      const batch = await post(server, '/api', { authData: JSON.parse(login(bytes)), body: [{ topic: 'presence', action: 'query' }] });
      if (isTaken) {
        await binary.expect(AUTH, C.AUTH_ACTION.AUTH_SUCCESSFUL);
        await text.expect(AUTH, C.AUTH_ACTION.AUTH_SUCCESSFUL);
        assert.deepEqual([answer.status, batch.status], [200, 200]);
      } else {
        assert.equal(await within(DEADLINE_MS, binary.closed, 'the server closes'), 1009);
        assert.equal((await within(DEADLINE_MS, text.closed, 'the server closes')).code, 1009);
        assert.deepEqual([answer.status, batch.status], [413, 413]);
        assert.ok((await answer.text()).includes('auth.login_bytes_max'));
      }
    }
    // After the login, a connection may send messages of up to limits.message_bytes_max.
    const peer = await RawPeer.login(server);
    peer.send({ topic: EVENT, action: C.EVENT_ACTION.EMIT, name: fresh('event'), data: JSON.stringify('x'.repeat(900_000)) });
    await peer.settle();
    peer.send({ topic: AUTH, action: C.AUTH_ACTION.REQUEST, data: login(3_000) });
    await peer.expect(AUTH, C.AUTH_ACTION.INVALID_MESSAGE_DATA);
  });

  test('a client that logs in in time stays connected', async (t) => {
    const server = await Server.during(t, { loginTimeoutMs: LOGIN_MS });
    const [client, idle] = [await connect(t, server), await RawPeer.challenge(server)];
    await within(DEADLINE_MS, idle.closed, 'the idle socket is closed');
    await client.record.has(fresh('record'));
    assert.equal(client.getConnectionState(), C.CONNECTION_STATE.OPEN);
  });

  test('the number of attempts can be configured', async (t) => {
    const users = { alice: { password: hashPassword('wonderland') } };
    const server = await Server.during(t, { users, authAttemptsMax: 1 });
    const client = await connect(t, server, { login: false, errors: ['TOO_MANY_AUTH_ATTEMPTS'] });
    await assert.rejects(client.login({ username: 'alice', password: 'wrong' }));
    await inState(client, C.CONNECTION_STATE.TOO_MANY_AUTH_ATTEMPTS);
  });
});

describe('bytes before and during login', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start();
  });
  after(() => server.dispose());

  const badDetails = ['{"username":', '', 'null', '42', '"text"', 'true', undefined];
  for (const data of badDetails) {
    const skip = againstOriginal && (data === '{"username":' || data === '') && 'it ends the process of deepstream';
    test(`login data ${JSON.stringify(data) ?? 'absent'} is refused and ends only that connection`, { skip }, async (t) => {
      const witness = await connect(t, server);
      const peer = await RawPeer.challenge(server);
      peer.send({ topic: AUTH, action: C.AUTH_ACTION.REQUEST, ...(data !== undefined && { data }) });
      await peer.expect(AUTH, C.AUTH_ACTION.INVALID_MESSAGE_DATA);
      await within(DEADLINE_MS, peer.closed, 'the server closes');
      assert.equal(await witness.record.has(fresh('record')), false);
    });
  }

  test('an AUTH message that is not a request is refused and ends the connection', async () => {
    const peer = await RawPeer.challenge(server);
    peer.send({ topic: AUTH, action: C.AUTH_ACTION.AUTH_SUCCESSFUL });
    await peer.expect(AUTH, C.AUTH_ACTION.INVALID_MESSAGE_DATA);
    await within(DEADLINE_MS, peer.closed, 'the server closes');
  });

  test('a message before the challenge is refused, and the challenge still works', async () => {
    const peer = await RawPeer.dial(server);
    peer.send({ topic: EVENT, action: C.EVENT_ACTION.EMIT, name: 'early', data: '1' });
    await peer.expect(CONNECTION, C.CONNECTION_ACTION.INVALID_MESSAGE);
    peer.sendBytes(new Uint8Array([0xff, 0xff, 0xff]));
    await peer.expectCount(CONNECTION, C.CONNECTION_ACTION.INVALID_MESSAGE, 2);
    peer.send({ topic: CONNECTION, action: C.CONNECTION_ACTION.CHALLENGE, url: 'x', protocolVersion: '0.1a' });
    await peer.expect(CONNECTION, C.CONNECTION_ACTION.ACCEPT);
    peer.close();
  });

  test('a message before the login is refused and has no effect', async (t) => {
    const name = fresh('event');
    const peer = await RawPeer.challenge(server);
    peer.send({ topic: EVENT, action: C.EVENT_ACTION.SUBSCRIBE, names: [name], correlationId: '0' });
    await peer.expect(AUTH, C.AUTH_ACTION.INVALID_MESSAGE);
    peer.send({ topic: AUTH, action: C.AUTH_ACTION.REQUEST, data: '{}' });
    await peer.expect(AUTH, C.AUTH_ACTION.AUTH_SUCCESSFUL);
    const client = await connect(t, server);
    client.event.emit(name, 1);
    await client.record.has(fresh('record'));
    await peer.settle();
    assert.deepEqual(peer.received.seen.filter(({ topic }) => topic === EVENT), []);
    peer.close();
  });

  const noRenewal = againstOriginal && 'deepstream answers that the topic is unknown';
  test('a second login on an open connection renews the first', { skip: noRenewal }, async () => {
    const peer = await RawPeer.login(server);
    const successes = peer.received.seen.filter(({ topic }) => topic === AUTH).length;
    peer.send({ topic: AUTH, action: C.AUTH_ACTION.REQUEST, data: '{}' });
    await peer.expectCount(AUTH, C.AUTH_ACTION.AUTH_SUCCESSFUL, successes + 1);
    await peer.settle();
    peer.close();
  });

  const noPong = againstOriginal && 'deepstream does not answer';
  test('the server answers PING also before the login', { skip: noPong }, async () => {
    const peer = await RawPeer.challenge(server);
    await peer.settle();
    peer.close();
  });
});
