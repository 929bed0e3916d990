// Signed tokens: a real OpenID Connect issuer with discovery and key rotation, outages of the issuer, `tidewire token`, and the answers
// to refused clients.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { C, connect, inState, type TestClient } from '../harness/client.ts';
import { AUDIENCE, Issuer } from '../harness/issuer.ts';
import { fresh } from '../harness/names.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';

const SECRET = 'a secret of the e2e suite, long enough for HMAC';

/** A server that trusts the issuer. */
function trusting(test: TestContext, issuer: Issuer, options: Record<string, unknown> = {}): Promise<Server> {
  const jwt = { issuer: issuer.url, discover: true, audience: [AUDIENCE], keys_refresh_pause: '200ms', ...options };
  return Server.during(test, { auth: { chain: ['jwt'], retry_delay: '100ms', jwt }, readyAt: '/health', logLevel: 'debug' });
}

/** The answer to a login with this token: true, or the reason of the refusal. */
async function outcome(test: TestContext, server: Server, login: Record<string, unknown>): Promise<unknown> {
  const client = await connect(test, server, { login: false });
  const answer = new Promise<unknown>((done) => {
    client.login(login as C.JSONObject, (success: boolean, data: unknown) => done(success || data));
  });
  return within(DEADLINE_MS, answer, 'an answer to the login');
}

/** The users that the server shows as online while `client` is connected. */
async function userOf(test: TestContext, server: Server, client: TestClient): Promise<string[]> {
  const watcher = await connect(test, server, { login: { token: server.token('--user', 'watcher') } });
  return eventuallyValue(async () => (await watcher.presence.getAll()) as string[], (all) => all.length > 0, client);
}

async function eventuallyValue<T>(read: () => Promise<T>, holds: (value: T) => boolean, _keep: unknown): Promise<T> {
  let value = await read();
  await eventually(async () => holds((value = await read())), 'the value is there');
  return value;
}

const refusal = (error: string): object => ({ reason: { error } });

describe('tokens of an issuer', { concurrency: 4, skip: againstOriginal }, () => {
  test('are accepted after discovery, and refused for another audience or after their expiry', async (t) => {
    const issuer = await Issuer.during(t, ['alice', 'bob']);
    const server = await trusting(t, issuer);
    assert.equal(await outcome(t, server, { token: await issuer.token('alice') }), true);
    const now = Math.floor(Date.now() / 1_000);
    assert.equal(await outcome(t, server, { token: issuer.forged({ sub: 'alice', exp: now + 60 }) }), true);
    // The server allows clocks to differ by 30 s.
    assert.deepEqual(await outcome(t, server, { token: issuer.forged({ sub: 'alice', exp: now - 40 }) }), refusal('TOKEN_EXPIRED'));
    for (const claims of [{ exp: now + 60, nbf: now + 60 }, {}, { exp: now + 60, iss: 'http://127.0.0.1:1' }, { exp: now + 60, sub: '' }]) {
      assert.deepEqual(await outcome(t, server, { token: issuer.forged({ sub: 'alice', ...claims }) }), refusal('INVALID_TOKEN'));
    }
    const other = await trusting(t, issuer, { audience: ['urn:somebody:else'] });
    assert.deepEqual(await outcome(t, other, { token: await issuer.token('alice') }), refusal('INVALID_TOKEN'));
    const [header, claims] = (await issuer.token('bob')).split('.') as [string, string];
    const [, , signature] = (await issuer.token('alice')).split('.') as [string, string, string];
    assert.deepEqual(await outcome(t, server, { token: `${header}.${claims}.${signature}` }), refusal('INVALID_TOKEN'));
    assert.deepEqual(await outcome(t, server, {}), refusal('MISSING_TOKEN'));
  });

  test('are accepted after the rotation of its keys, but tokens of the old key are not', async (t) => {
    const issuer = await Issuer.during(t, ['alice']);
    const server = await trusting(t, issuer);
    const old = await issuer.token('alice');
    assert.equal(await outcome(t, server, { token: old }), true);
    await issuer.rotate();
    await eventually(async () => (await outcome(t, server, { token: await issuer.token('alice') })) === true, 'the new key is known');
    assert.deepEqual(await outcome(t, server, { token: old }), refusal('INVALID_TOKEN'));
  });

  test('with known keys are accepted while it is down, and with unknown keys after it is back', async (t) => {
    const issuer = await Issuer.during(t, ['alice']);
    const server = await trusting(t, issuer);
    const known = await issuer.token('alice');
    assert.equal(await outcome(t, server, { token: known }), true);
    await issuer.rotate();
    const unknown = await issuer.token('alice');
    await issuer.stop();
    const client = await connect(t, server, { login: false, errors: ['CONNECTION_ERROR'] });
    const login = client.login({ token: unknown });
    await eventually(async () => (await server.metric('tidewire_logins_unavailable_total')) > 0, 'the login was postponed');
    const ready = (await (await server.get('/ready')).json()) as { ready: boolean; warnings: Array<{ code: string }> };
    assert.deepEqual([ready.ready, ready.warnings.map(({ code }) => code)], [true, ['jwt_keys']]);
    assert.equal(await outcome(t, server, { token: known }), true);
    await issuer.start();
    await within(DEADLINE_MS, login, 'the client logs in by itself');
    await inState(client, C.CONNECTION_STATE.OPEN);
  });

  test('wait if it is down from the start, and /ready reports that', async (t) => {
    const issuer = await Issuer.during(t, ['alice']);
    const token = await issuer.token('alice');
    await issuer.stop();
    const server = await trusting(t, issuer);
    const response = await server.get('/ready');
    const ready = (await response.json()) as { reasons: Array<{ code: string }> };
    assert.deepEqual([response.status, ready.reasons.map(({ code }) => code)], [503, ['jwt_keys']]);
    const client = await connect(t, server, { login: false, errors: ['CONNECTION_ERROR'] });
    const login = client.login({ token });
    await eventually(async () => (await server.metric('tidewire_logins_unavailable_total')) > 0, 'the login was postponed');
    await issuer.start();
    await within(DEADLINE_MS, login, 'the client logs in by itself');
    await eventually(async () => (await server.get('/ready')).ok, 'the server is ready');
  });

  test('end the session when they expire, and a new one is accepted', async (t) => {
    const issuer = await Issuer.during(t, ['alice']);
    const server = await trusting(t, issuer);
    assert.equal(await outcome(t, server, { token: await issuer.token('alice') }), true);
    // With the 30 s for clocks that differ, the token expires in 5 s.
    const short = issuer.forged({ sub: 'alice', exp: Math.floor(Date.now() / 1_000) - 25 });
    const client = await connect(t, server, { login: { token: short } });
    const over = new Promise((done) => client.on('reauthenticationFailure', done));
    await within(DEADLINE_MS, over, 'the client learns that its token has expired');
    await eventually(async () => (await server.metric('tidewire_expired_sessions_total')) === 1, 'the expiry is counted');
    await within(DEADLINE_MS, client.login({ token: await issuer.token('alice') }), 'a login with a new token');
    assert.equal(client.getConnectionState(), C.CONNECTION_STATE.OPEN);
  });

  test('with unknown keys do not flood it with requests', async (t) => {
    const issuer = await Issuer.during(t, ['alice']);
    const server = await trusting(t, issuer, { keys_refresh_pause: '1h' });
    assert.equal(await outcome(t, server, { token: await issuer.token('alice') }), true);
    const reads = issuer.keyReads;
    await issuer.rotate();
    const token = await issuer.token('alice');
    const outcomes = await Promise.all(Array.from({ length: 20 }, () => outcome(t, server, { token })));
    assert.deepEqual(outcomes, Array.from({ length: 20 }, () => refusal('INVALID_TOKEN')));
    assert.equal(issuer.keyReads, reads);
  });
});

describe('tokens of a secret', { concurrency: 4, skip: againstOriginal }, () => {
  const options = { auth: { chain: ['jwt'], jwt: { secret: SECRET, client_data_claims: ['theme'] } } };

  test('of `tidewire token` are accepted, with their user and data', async (t) => {
    const server = await Server.during(t, options);
    const client = await connect(t, server, { login: false });
    const data = await client.login({ token: server.token('--user', 'alice', '--claim', 'theme=dark') });
    assert.deepEqual(data, { theme: 'dark' });
    assert.deepEqual(await userOf(t, server, client), ['alice']);
  });

  test('never appear in the log, nor does the secret', async (t) => {
    const server = await Server.during(t, { ...options, logLevel: 'debug' });
    const right = server.token('--user', 'alice');
    const wrong = `${right}x`;
    const forged = server.token('--user', 'mallory', '--auth-jwt-secret', fresh('another secret of at least 32 bytes'));
    assert.equal(await outcome(t, server, { token: right }), true);
    assert.deepEqual(await outcome(t, server, { token: wrong }), refusal('INVALID_TOKEN'));
    assert.deepEqual(await outcome(t, server, { token: forged }), refusal('INVALID_TOKEN'));
    await server.prints(/the token's signature is wrong/);
    for (const text of [SECRET, ...[right, wrong, forged].flatMap((token) => token.split('.').slice(1))]) {
      assert.ok(!server.output.includes(text), 'the log has a secret');
    }
  });
});
