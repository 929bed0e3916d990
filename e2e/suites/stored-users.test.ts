// Users that the server keeps in its record store: sign-up, logins of the unmodified client, and changes by an operator. No client can
// reach them as records.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { ADMIN_KEY, admin } from '../harness/admin.ts';
import { atEnd } from '../harness/cleanup.ts';
import { C, close, connect, subscribed, type TestClient } from '../harness/client.ts';
import { batch, post, url } from '../harness/http.ts';
import { fresh } from '../harness/names.ts';
import { RawPeer } from '../harness/raw.ts';
import { Server, againstOriginal, binary, type ServerOptions } from '../harness/server.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';

const PASSWORD = 'correct horse battery';
const SIGN_UP = '/api/auth/sign-up';
/** The prefix of the records of users. */
const RESERVED = '\u0001user/';
/** The errors that the client reports when its session is revoked. */
const REVOKED = ['TOO_MANY_AUTH_ATTEMPTS', 'IS_CLOSED', 'CONNECTION_ERROR'];

/** A server that stores users. Sign-up has no rate limit unless the test sets one. */
function keeping(test: TestContext, store: Record<string, unknown> = {}, options: ServerOptions = {}): Promise<Server> {
  const auth = { chain: ['store'], attempts_max: 100, store: { sign_up: true, sign_up_rate: 'none', ...store } };
  return Server.during(test, { auth, adminKey: ADMIN_KEY, logLevel: 'debug', ...options });
}

/** Signs up a user. Returns the status, and the code of a refusal. */
async function signUp(server: Server, username: string, password = PASSWORD): Promise<[number, string | undefined]> {
  const answer = await post(server, SIGN_UP, { username, password });
  const text = await answer.text();
  return [answer.status, text.startsWith('{') ? JSON.parse(text).code : undefined];
}

/** The answer to a login: true, or the reason of the refusal. */
async function outcome(test: TestContext, server: Server, login: Record<string, unknown>): Promise<unknown> {
  const client = await connect(test, server, { login: false });
  const answer = new Promise<unknown>((done) => client.login(login as C.JSONObject, (success: boolean, data: unknown) => done(success || data)));
  const given = await within(DEADLINE_MS, answer, 'an answer to the login');
  close(client);
  return given;
}

function loggedIn(test: TestContext, server: Server, username: string, password = PASSWORD): Promise<TestClient> {
  return connect(test, server, { login: { username, password }, errors: REVOKED });
}

const isOut = (client: TestClient): Promise<unknown> => {
  return eventually(() => client.getConnectionState() !== C.CONNECTION_STATE.OPEN, 'the session has ended');
};

const refused = { reason: 'INVALID_AUTHENTICATION_DETAILS' };

describe('stored users', { concurrency: 4, skip: againstOriginal && 'the original server has no stored users' }, () => {
  test('can sign up only if the option allows it', async (t) => {
    const server = await Server.during(t, { auth: { chain: ['store'] } });
    assert.equal((await signUp(server, 'anna'))[0], 404);
    assert.deepEqual(await outcome(t, server, { username: 'anna', password: PASSWORD }), refused);
  });

  test('sign up and log in, over WebSocket and over HTTP, also after a restart', async (t) => {
    const server = await keeping(t);
    const answer = await post(server, SIGN_UP, { username: 'änna', password: PASSWORD });
    assert.deepEqual([answer.status, await answer.json()], [201, { user: 'änna' }]);
    const client = await connect(t, server, { login: false });
    assert.equal(await client.login({ username: 'änna', password: PASSWORD }), null);
    await signUp(server, 'bert');
    const other = await loggedIn(t, server, 'bert');
    assert.deepEqual(await other.presence.getAll(), ['änna']);
    assert.equal((await batch(server, [{ topic: 'presence', action: 'query' }], { authData: { username: 'bert', password: PASSWORD } })).result, 'SUCCESS');
    assert.equal(await server.metric('tidewire_sign_ups_total'), 2);
    for (const one of [client, other]) one.close();
    await server.stop();
    await server.start();
    assert.equal(await outcome(t, server, { username: 'änna', password: PASSWORD }), true);
    assert.ok(!server.output.includes(PASSWORD), 'the log has a password');
  });

  test('get the same refusal for a wrong password and for an unknown name', async (t) => {
    const server = await keeping(t);
    await signUp(server, 'anna');
    const wrong = await outcome(t, server, { username: 'anna', password: `${PASSWORD}!` });
    assert.deepEqual(wrong, refused);
    assert.deepEqual(await outcome(t, server, { username: 'nobody', password: PASSWORD }), wrong);
    assert.deepEqual(await outcome(t, server, { username: `${RESERVED}anna`, password: PASSWORD }), wrong);
    const missing = { reason: { error: 'missing authentication parameter: username or/and password' } };
    assert.deepEqual(await outcome(t, server, { username: 'anna' }), missing);
    assert.equal((await post(server, '/api/auth', { username: 'anna', password: 'wrong' })).status, 401);
  });

  test('that request the same name at once: exactly one gets it', async (t) => {
    const server = await keeping(t);
    for (const name of ['first', 'second', 'third']) {
      const passwords = Array.from({ length: 6 }, (_, index) => `password ${index}`);
      const outcomes = await Promise.all(passwords.map((password) => signUp(server, name, password)));
      const codes = outcomes.map(([status]) => status).sort();
      assert.deepEqual(codes, [201, 409, 409, 409, 409, 409]);
      const winner = outcomes.findIndex(([status]) => status === 201);
      for (const [index, password] of passwords.entries()) {
        const { status } = await post(server, '/api/auth', { username: name, password });
        assert.equal(status, index === winner ? 200 : 401);
      }
    }
  });

  test('must have a valid name and password, and a refusal has a code', async (t) => {
    const server = await keeping(t);
    const cases: Array<[unknown, number, string]> = [
      [{ username: '', password: PASSWORD }, 422, 'INVALID_USERNAME'],
      [{ username: ' anna', password: PASSWORD }, 422, 'INVALID_USERNAME'],
      [{ username: `${RESERVED}anna`, password: PASSWORD }, 422, 'INVALID_USERNAME'],
      [{ username: 'OPEN', password: PASSWORD }, 422, 'INVALID_USERNAME'],
      [{ username: 'x'.repeat(257), password: PASSWORD }, 422, 'INVALID_USERNAME'],
      [{ username: 'anna', password: 'seven77' }, 422, 'INVALID_PASSWORD'],
      [{ username: 'anna', password: 'x'.repeat(1_025) }, 422, 'INVALID_PASSWORD'],
      [{ username: 'anna' }, 400, 'INVALID_SIGN_UP'],
      [{ username: 'anna', password: PASSWORD, serverData: { role: 'admin' } }, 400, 'INVALID_SIGN_UP'],
      [{ username: 7, password: PASSWORD }, 400, 'INVALID_SIGN_UP'],
      ['no json', 400, 'INVALID_SIGN_UP'],
    ];
    for (const [body, status, code] of cases) {
      const answer = await post(server, SIGN_UP, body);
      assert.deepEqual([answer.status, ((await answer.json()) as { code: string }).code], [status, code], JSON.stringify(body));
    }
    assert.equal((await fetch(url(server, SIGN_UP))).status, 405);
    assert.equal((await post(server, SIGN_UP, {}, { 'content-type': 'text/plain' })).status, 415);
    assert.equal((await post(server, SIGN_UP, {}, { origin: 'https://evil.example' })).status, 403);
  });

  test('can sign up only at the rate of their address', async (t) => {
    const server = await keeping(t, { sign_up_rate: '6/m burst 2' });
    assert.equal((await signUp(server, 'anna'))[0], 201);
    assert.equal((await signUp(server, 'anna'))[0], 409, 'a refused sign-up counts toward the rate, too');
    const answer = await post(server, SIGN_UP, { username: 'bert', password: PASSWORD });
    assert.deepEqual([answer.status, answer.headers.get('retry-after')], [429, '5']);
    assert.equal(await server.metric('tidewire_sign_ups_too_fast_total'), 1);
    assert.equal(await outcome(t, server, { username: 'anna', password: PASSWORD }), true);
  });

  test('are not accessible as records: neither to clients nor to rules', async (t) => {
    const permissions = `
presence: { '*': { allow: true } }
event: { '*': { publish: true, subscribe: true, listen: true } }
rpc: { '*': { provide: true, request: true } }
record:
  '*': { create: true, write: true, read: true, delete: true, listen: true }
  'probe/.*': { write: "_(data.of) !== null" }
`;
    const server = await keeping(t, {}, { permissions });
    await signUp(server, 'anna');
    const login = { authData: { username: 'anna', password: PASSWORD } };
    const authorization = `Basic ${Buffer.from(`anna:${PASSWORD}`).toString('base64')}`;
    const recordName = `${RESERVED}anna`;
    for (const more of [{ action: 'read' }, { action: 'head' }, { action: 'write', data: {} }, { action: 'write', path: 'password', data: 'x' }, { action: 'delete' }]) {
      const body = [{ topic: 'record', recordName, ...more }];
      assert.equal((await post(server, '/api', { ...login, body })).status, 400, JSON.stringify(more));
    }
    const body = [{ topic: 'record', action: 'notify', recordNames: [recordName] }];
    assert.equal((await post(server, '/api', { ...login, body })).status, 400);
    const stream = await fetch(url(server, `/sse?record=${encodeURIComponent(recordName)}`), { headers: { authorization } });
    assert.equal(stream.status, 400);
    const path = `/records/${encodeURIComponent(recordName)}`;
    for (const method of ['GET', 'PUT', 'DELETE', 'PATCH']) {
      const body = method === 'GET' || method === 'DELETE' ? {} : { body: '{}' };
      const type = method === 'PATCH' ? 'application/merge-patch+json' : 'application/json';
      const answer = await fetch(url(server, path), { method, headers: { authorization, 'content-type': type }, ...body });
      assert.equal(answer.status, 400, method);
    }
    const peer = await RawPeer.login(server, { username: 'anna', password: PASSWORD });
    const { RECORD } = C.TOPIC;
    for (const action of [C.RECORD_ACTION.SUBSCRIBECREATEANDREAD, C.RECORD_ACTION.SUBSCRIBEANDREAD, C.RECORD_ACTION.SUBSCRIBE]) {
      peer.send({ topic: RECORD, action, names: [recordName], correlationId: '1' });
      await peer.expect(RECORD, C.RECORD_ACTION.INVALID_MESSAGE_DATA);
      peer.received.take();
    }
    const probe = async (of: string): Promise<number> => {
      const body = JSON.stringify({ of });
      const headers = { authorization, 'content-type': 'application/json' };
      return (await fetch(url(server, `/records/probe/${fresh('record')}`), { method: 'PUT', headers, body })).status;
    };
    await fetch(url(server, '/records/known'), { method: 'PUT', headers: { authorization, 'content-type': 'application/json' }, body: '{}' });
    assert.equal(await probe('known'), 201);
    assert.equal(await probe(recordName), 403);
    assert.equal(await outcome(t, server, login.authData), true);
  });

  test('can be created, changed and listed by an operator, and rules see their server data', async (t) => {
    const permissions = `
presence: { '*': { allow: true } }
event: { '*': { publish: "user.data.role === 'admin'", subscribe: true, listen: true } }
rpc: { '*': { provide: true, request: true } }
record: { '*': { create: true, write: true, read: true, delete: true, listen: true } }
`;
    const server = await keeping(t, { user_prefix: 'local/' }, { permissions });
    const change = { password: PASSWORD, serverData: { role: 'admin' }, clientData: { theme: 'dark' } };
    const [status, made] = await admin(server, 'PUT', '/users/anna%2F1', change);
    assert.equal(status, 201);
    const { createdAt, changedAt, ...rest } = made;
    assert.deepEqual(rest, { name: 'anna/1', user: 'local/anna/1', serverData: { role: 'admin' }, clientData: { theme: 'dark' } });
    assert.ok(createdAt === changedAt && createdAt > 1_700_000_000);
    const client = await connect(t, server, { login: false });
    assert.deepEqual(await client.login({ username: 'anna/1', password: PASSWORD }), { theme: 'dark' });
    const event = { topic: 'event', action: 'emit', eventName: 'a', data: 1 };
    const login = { authData: { username: 'anna/1', password: PASSWORD } };
    assert.equal((await batch(server, [event], login)).result, 'SUCCESS');
    assert.deepEqual((await admin(server, 'PUT', '/users/anna%2F1', { serverData: null }))[0], 200);
    assert.equal((await batch(server, [event], login)).result, 'FAILURE', 'the next login has the new rights');
    assert.equal(client.getConnectionState(), C.CONNECTION_STATE.OPEN, 'changed data apply to later logins');
    await signUp(server, 'bert');
    assert.deepEqual(await admin(server, 'GET', '/users'), [200, { users: ['anna/1', 'bert'], more: false }]);
    assert.deepEqual(await admin(server, 'GET', '/users?after=anna%2F1'), [200, { users: ['bert'], more: false }]);
    const [, read] = await admin(server, 'GET', '/users/bert');
    assert.deepEqual([read.serverData, read.password], [null, undefined]);
    const wrong: Array<[string, string, unknown, number]> = [
      ['PUT', '/users/carl', { serverData: {} }, 404],
      ['PUT', '/users/carl', { password: 'short' }, 400],
      ['PUT', '/users/carl', { pasword: PASSWORD }, 400],
      ['PUT', '/users/OPEN', { password: PASSWORD }, 400],
      ['GET', '/users/carl', undefined, 404],
      ['DELETE', '/users/carl', undefined, 404],
      ['GET', '/users?before=a', undefined, 400],
      ['POST', '/users', {}, 405],
      ['POST', '/users/bert', {}, 405],
    ];
    for (const [method, path, body, code] of wrong) assert.equal((await admin(server, method, path, body))[0], code, `${method} ${path}`);
  });

  test('lose their sessions at once after a changed password or a deletion; others stay', async (t) => {
    const server = await keeping(t);
    for (const name of ['anna', 'bert']) await signUp(server, name);
    const [anna, bert, event] = [await loggedIn(t, server, 'anna'), await loggedIn(t, server, 'bert'), fresh('event')];
    const heard = await subscribed(anna, event);
    const password = `${PASSWORD} anew`;
    assert.equal((await admin(server, 'PUT', '/users/anna', { password }))[0], 200);
    bert.event.emit(event, 'after');
    await bert.presence.getAll();
    await isOut(anna);
    assert.deepEqual(heard.seen, [], 'the session receives nothing after the answer');
    assert.deepEqual(await outcome(t, server, { username: 'anna', password: PASSWORD }), refused);
    const again = await loggedIn(t, server, 'anna', password);
    const begin = performance.now();
    assert.equal((await admin(server, 'DELETE', '/users/anna'))[0], 204);
    t.diagnostic(`deleted in ${(performance.now() - begin).toFixed(1)} ms`);
    await isOut(again);
    assert.deepEqual(await outcome(t, server, { username: 'anna', password }), refused);
    assert.equal(bert.getConnectionState(), C.CONNECTION_STATE.OPEN);
    await server.stop();
    await server.start();
    assert.equal((await post(server, '/api/auth', { username: 'anna', password })).status, 401);
    assert.equal((await signUp(server, 'anna'))[0], 201, 'the name is free');
    assert.equal((await post(server, '/api/auth', { username: 'anna', password: PASSWORD })).status, 200);
  });

  test('can be managed by a command only while no server runs', async (t) => {
    const dataFolder = join(mkdtempSync(join(tmpdir(), 'tidewire-users-')), 'data');
    atEnd(t, () => rmSync(dirname(dataFolder), { recursive: true, force: true }));
    const permissions = JSON.stringify({
      record: { '*': { read: false } },
      event: { '*': { publish: "user.data.role === 'admin'" } },
      rpc: { '*': { request: false } },
      presence: { '*': { allow: false } },
    });
    const server = await keeping(t, {}, { dataFolder, permissions });
    const user = (args: string[], input = ''): [code: number | null, out: string, error: string] => {
      const place = ['--config', server.configFile, '--data', dataFolder];
      const { status, stdout, stderr } = spawnSync(server.binary, ['user', ...args, ...place], { input, encoding: 'utf8' });
      return [status, stdout, stderr];
    };
    const fails = (code: number, words: RegExp, args: string[], input = PASSWORD): void => {
      const [status, out, error] = user(args, input);
      assert.deepEqual([status, out], [code, ''], `${args.join(' ')}: ${error}`);
      assert.match(error, words);
      assert.equal(error.trim().split('\n').length, 1, 'one line');
    };
    await signUp(server, 'zoe');
    for (const args of [['list'], ['add', 'anna'], ['set-password', 'zoe'], ['remove', 'zoe']]) fails(4, /in use by process \d+.*admin API/, args);
    assert.deepEqual((await admin(server, 'GET', '/users'))[1].users, ['zoe'], 'nothing has changed');
    await server.stop();

    const data = ['--server-data', '{"role":"admin"}', '--client-data', '{"theme":"dark"}'];
    assert.deepEqual(user(['add', 'anna', ...data], `${PASSWORD}\n`), [0, 'added "anna"\n', '']);
    assert.equal(user(['add', 'bert'], PASSWORD)[0], 0);
    assert.equal(user(['set-password', 'zoe'], `${PASSWORD} anew`)[0], 0);
    assert.deepEqual(user(['list']), [0, 'anna\nbert\nzoe\n', '']);
    assert.equal(user(['remove', 'bert'])[0], 0);
    assert.deepEqual(user(['list']), [0, 'anna\nzoe\n', '']);
    fails(2, /a user with this name exists/, ['add', 'anna']);
    fails(2, /no user with this name exists/, ['set-password', 'bert']);
    fails(2, /no user with this name exists/, ['remove', 'bert']);
    fails(2, /a user name must have/, ['add', 'OPEN']);
    fails(2, /a password must have at least 8 characters/, ['add', 'carl'], 'short');
    fails(2, /no password on standard input/, ['add', 'carl'], '\n');
    fails(2, /--server-data is not JSON/, ['add', 'carl', '--server-data', '{']);
    fails(2, /NAME/, ['remove']);

    await server.start();
    const client = await connect(t, server, { login: false });
    assert.deepEqual(await client.login({ username: 'anna', password: PASSWORD }), { theme: 'dark' });
    const event = { topic: 'event', action: 'emit', eventName: 'a', data: 1 };
    assert.equal((await batch(server, [event], { authData: { username: 'anna', password: PASSWORD } })).result, 'SUCCESS');
    assert.equal(await outcome(t, server, { username: 'zoe', password: `${PASSWORD} anew` }), true);
    for (const [username, password] of [['zoe', PASSWORD], ['bert', PASSWORD]]) {
      assert.deepEqual(await outcome(t, server, { username, password }), refused);
    }
  });

  test('can be created by the command before the first start', async (t) => {
    const dataFolder = join(mkdtempSync(join(tmpdir(), 'tidewire-users-')), 'data');
    atEnd(t, () => rmSync(dirname(dataFolder), { recursive: true, force: true }));
    const run = (args: string[], input = ''): [number | null, string] => {
      const place = ['--auth-chain', 'store', '--permissions', 'allow_all', '--data', dataFolder];
      const { status, stderr } = spawnSync(binary(), ['user', ...args, ...place], { input, encoding: 'utf8' });
      return [status, stderr];
    };
    const [code, line] = run(['list']);
    assert.equal(code, 4);
    assert.match(line, /holds no store/);
    assert.deepEqual(run(['add', 'anna'], PASSWORD), [0, '']);
    const server = await Server.during(t, { auth: { chain: ['store'] }, dataFolder });
    assert.equal(await outcome(t, server, { username: 'anna', password: PASSWORD }), true);
    const inMemory = run(['list', '--store-kind', 'memory']);
    assert.deepEqual([inMemory[0], /admin API/.test(inMemory[1])], [2, true]);
  });
});
