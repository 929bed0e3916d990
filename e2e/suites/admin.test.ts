// The admin API: its key and limits, revocation of users, tokens and keys on live connections and over a restart, and reload.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { appendFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { ADMIN_KEY as KEY, admin, listening, startWithAdmin as start, tokenOf } from '../harness/admin.ts';
import { C, connect, type TestClient } from '../harness/client.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';

/** The answer to a login: true, or the reason of the refusal. */
async function outcome(test: TestContext, server: Server, login: Record<string, unknown>): Promise<unknown> {
  const client = await connect(test, server, { login: false, errors: ['TOO_MANY_AUTH_ATTEMPTS', 'IS_CLOSED'] });
  const answer = new Promise<unknown>((done) => {
    client.login(login as C.JSONObject, (success: boolean, data: unknown) => done(success || data));
  });
  return within(DEADLINE_MS, answer, 'an answer to the login');
}

describe('the admin api', { concurrency: 4, skip: againstOriginal }, () => {
  test('prevents the start if its key is short, and is off without a key', async (t) => {
    const server = await Server.during(t);
    const args = ['start', '--config', server.configFile, '--port', '0', '--admin-key', 'hunter2'];
    const { status, stderr } = spawnSync(server.binary, args, { encoding: 'utf8' });
    assert.equal(status, 2, stderr);
    assert.match(stderr, /admin\.key.*32 characters/);
    assert.ok(!stderr.includes('hunter2'), 'the error does not show the key');
    const open = spawnSync(server.binary, ['start', '--config', server.configFile, '--admin-key', KEY, '--admin-host', '0.0.0.0'], { encoding: 'utf8' });
    assert.equal(open.status, 2, open.stderr);
    assert.match(open.stderr, /admin\.host.*loopback/);
  });

  test('accepts only its own key, and limits wrong keys', async (t) => {
    const server = await start(t);
    assert.equal((await admin(server, 'GET', '/status'))[0], 200);
    const wrong = async (key: string): Promise<unknown[]> => {
      const [status, body] = await admin(server, 'GET', '/nowhere', undefined, key);
      return [status, body.error.code];
    };
    for (const key of ['', 'x', KEY.slice(0, -1), `${KEY}x`]) assert.deepEqual(await wrong(key), [401, 'UNAUTHORIZED']);
    await eventually(async () => (await wrong('x'))[0] === 429, 'further wrong keys must wait');
    assert.equal((await admin(server, 'GET', '/status'))[0], 200);
    assert.ok(!server.output.includes(KEY), 'the log has the key');
  });

  test('explains the error in a request', async (t) => {
    const server = await start(t);
    const cases: Array<[string, string, unknown, number, string]> = [
      ['GET', '/nowhere', undefined, 404, 'NOT_FOUND'],
      ['DELETE', '/status', undefined, 405, 'METHOD_NOT_ALLOWED'],
      ['POST', '/revocations', '{', 400, 'INVALID_REQUEST'],
      ['POST', '/revocations', {}, 400, 'INVALID_REQUEST'],
      ['POST', '/revocations', { user: '' }, 400, 'INVALID_REQUEST'],
      ['POST', '/revocations', { user: 'a', token: 'b' }, 400, 'INVALID_REQUEST'],
      ['POST', '/revocations', { user: 'a', more: 1 }, 400, 'INVALID_REQUEST'],
      ['POST', '/revocations', { user: 'a', until: 1 }, 400, 'INVALID_REQUEST'],
      ['POST', '/revocations', { jwt: 'x' }, 400, 'INVALID_REQUEST'],
      ['POST', '/revocations', 'x'.repeat(70_000), 413, 'TOO_LARGE'],
      ['DELETE', '/revocations/user/nobody', undefined, 404, 'NOT_FOUND'],
    ];
    for (const [method, path, body, status, code] of cases) {
      const [got, answer] = await admin(server, method, path, body);
      assert.deepEqual([got, answer.error.code], [status, code], `${method} ${path} ${JSON.stringify(body)?.slice(0, 60)}`);
    }
    assert.deepEqual(await admin(server, 'GET', '/revocations'), [200, { revocations: [] }]);
  });

  test('revokes a user: all sessions of the user end for good, and only lifting undoes it, not a restart', async (t) => {
    const server = await start(t);
    const [first] = await listening(t, server, tokenOf(server, 'mallory/1'));
    const [second] = await listening(t, server, tokenOf(server, 'mallory/1'));
    const [other] = await listening(t, server, tokenOf(server, 'alice'));
    const [status, body] = await admin(server, 'POST', '/revocations', { user: 'mallory/1' });
    assert.deepEqual([status, body.kind, body.name, body.until], [201, 'user', 'mallory/1', null]);
    for (const client of [first, second]) {
      await eventually(() => client.getConnectionState() !== C.CONNECTION_STATE.OPEN, 'the session has ended');
    }
    assert.equal(other.getConnectionState(), C.CONNECTION_STATE.OPEN);
    const again = { token: tokenOf(server, 'mallory/1') };
    assert.notEqual(await outcome(t, server, again), true);
    other.close();
    await server.stop();
    await server.start();
    assert.notEqual(await outcome(t, server, again), true);
    const [, listed] = await admin(server, 'GET', '/revocations');
    assert.deepEqual(listed.revocations.map(({ kind, name }: { kind: string; name: string }) => [kind, name]), [['user', 'mallory/1']]);
    assert.deepEqual(await admin(server, 'DELETE', '/revocations/user/mallory%2F1'), [204, undefined]);
    assert.equal(await outcome(t, server, again), true);
  });

  test('revokes one token, by its id or as a whole, and no other token of its user', async (t) => {
    const server = await start(t);
    const [named, whole, kept] = ['t-1', 't-2', 't-3'].map((id) => tokenOf(server, 'alice', id)) as [string, string, string];
    const clients = [];
    for (const token of [named, whole, kept]) clients.push((await listening(t, server, token))[0]);
    assert.equal((await admin(server, 'POST', '/revocations', { token: 't-1' }))[0], 201);
    const [status, body] = await admin(server, 'POST', '/revocations', { jwt: whole });
    assert.deepEqual([status, body.kind, body.name], [201, 'token', 't-2']);
    const hour = Date.now() / 1_000 + 3_600;
    assert.ok(Math.abs(body.until - hour) < 120, 'the server keeps the revocation until the token would have expired');
    for (const client of clients.slice(0, 2)) {
      await eventually(() => client.getConnectionState() !== C.CONNECTION_STATE.OPEN, 'the session has ended');
    }
    assert.notEqual(await outcome(t, server, { token: named }), true);
    assert.notEqual(await outcome(t, server, { token: whole }), true);
    assert.equal(await outcome(t, server, { token: kept }), true);
    assert.equal((clients[2] as TestClient).getConnectionState(), C.CONNECTION_STATE.OPEN);
  });

  test('revokes the key of a backend, and accepts a new key after a reload', async (t) => {
    const program = await Server.during(t);
    const file = join(program.folder, 'keys.yml');
    const make = (id: string): string => {
      const { stdout, stderr } = spawnSync(program.binary, ['key', '--id', id], { encoding: 'utf8' });
      appendFileSync(file, stdout);
      return (/: (\S+)\n/.exec(stderr) as RegExpExecArray)[1] as string;
    };
    writeFileSync(file, '');
    const first = make('first');
    const server = await start(t, { auth: { chain: ['keys'], keys: { path: file } }, logLevel: 'info' });
    const client = await connect(t, server, { login: { key: first }, errors: ['TOO_MANY_AUTH_ATTEMPTS', 'IS_CLOSED', 'CONNECTION_ERROR'] });
    const second = make('second');
    assert.notEqual(await outcome(t, server, { key: second }), true);
    assert.equal((await admin(server, 'POST', '/reload'))[0], 202);
    await eventually(async () => (await outcome(t, server, { key: second })) === true, 'the new key is known');
    await server.prints(/reloaded/);
    assert.equal((await admin(server, 'POST', '/revocations', { key: 'first' }))[0], 201);
    await eventually(() => client.getConnectionState() !== C.CONNECTION_STATE.OPEN, 'the session has ended');
    assert.notEqual(await outcome(t, server, { key: first }), true);
    assert.equal(await outcome(t, server, { key: second }), true);
    for (const secret of [first, second].map((key) => key.split('.')[1] as string)) {
      assert.ok(!server.output.includes(secret), 'the log has a secret');
    }
  });
});
