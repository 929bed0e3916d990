// Logins that a real HTTP server decides, in the format of deepstream's handler: the requests, the meaning of the answers, and outages of
// that server.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { describe, test, type TestContext } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import { C, connect, inState } from '../harness/client.ts';
import { command, post } from '../harness/http.ts';
import { freePort } from '../harness/ports.ts';
import { RawPeer } from '../harness/raw.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, within } from '../harness/wait.ts';

interface Asked {
  method: string | undefined;
  headers: IncomingHttpHeaders;
  body: { connectionData: { remoteAddress: string; headers: Record<string, string>; referer: string | null }; authData: Record<string, unknown> };
}

type Reply = [status: number, body?: string | object, headers?: Record<string, string>];

/** A server that decides logins. Tests may replace `reply`. */
class Hook {
  readonly asked = new Inbox<Asked>('requests to the webhook');
  reply: (asked: Asked) => Reply | Promise<Reply> = () => [200];
  /** Requests without an answer yet. `openMax` is their largest number at once. */
  #open = 0;
  openMax = 0;
  #server = createServer((request, response) => void this.#answer(request, response));

  static async during(test: TestContext): Promise<Hook> {
    const hook = new Hook(await freePort());
    await hook.listen();
    atEnd(test, () => hook.stop());
    return hook;
  }

  private constructor(readonly port: number) {}

  async listen(): Promise<void> {
    this.#server.listen(this.port, '127.0.0.1');
    await once(this.#server, 'listening');
  }

  async stop(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.#open += 1;
    this.openMax = Math.max(this.openMax, this.#open);
    const body = await text(request);
    const asked = { method: request.method, headers: request.headers, body: body === '' ? {} : JSON.parse(body) } as Asked;
    this.asked.push(asked);
    const [status, reply = '', headers = {}] = await this.reply(asked);
    response.writeHead(status, headers).end(typeof reply === 'string' ? reply : JSON.stringify(reply));
    this.#open -= 1;
  }
}

function asking(test: TestContext, hook: Hook, options: Record<string, unknown> = {}, extra: object = {}): Promise<Server> {
  const webhook = { url: `http://127.0.0.1:${hook.port}/login`, retry_interval: '20ms', retry_attempts: 1, ...options };
  return Server.during(test, { auth: { chain: ['webhook'], retry_delay: '100ms', webhook, ...extra }, logLevel: 'debug' });
}

/** The answer to a login: whether it succeeded, and the data or reason that the client received. */
async function outcome(test: TestContext, server: Server, login: Record<string, unknown>): Promise<[boolean, unknown]> {
  const client = await connect(test, server, { login: false });
  const answer = new Promise<[boolean, unknown]>((done) => {
    client.login(login as C.JSONObject, (success: boolean, data: unknown) => done([success, data]));
  });
  return within(DEADLINE_MS, answer, 'an answer to the login');
}

const refused = (reason: unknown = 'INVALID_AUTHENTICATION_DETAILS'): [boolean, unknown] => [false, { reason }];

describe('the webhook', { concurrency: 4, skip: againstOriginal }, () => {
  test('receives the same request as from deepstream, with fields promoted to headers', async (t) => {
    const hook = await Hook.during(t);
    const server = await asking(t, hook, { promote_to_header: ['token', 'absent'] });
    assert.deepEqual(await outcome(t, server, { token: 'secret-1', deep: { a: [1, null] } }), [true, null]);
    const { method, headers, body } = await hook.asked.next();
    assert.deepEqual([method, headers['content-type'], headers['token'], headers['absent']], ['POST', 'application/json', 'secret-1', undefined]);
    assert.deepEqual(body.authData, { token: 'secret-1', deep: { a: [1, null] } });
    assert.equal(body.connectionData.remoteAddress, '127.0.0.1');
    assert.equal(body.connectionData.headers['host'], server.address);
    assert.equal(body.connectionData.referer, null);
    assert.ok(!server.output.includes('secret-1'), 'the log has a secret');
  });

  test('names the user of a login and its data', async (t) => {
    const hook = await Hook.during(t);
    const server = await asking(t, hook, { permitted_statuses: [200, 202] });
    const watcher = await connect(t, server, { login: {} });
    const cases: Array<[Reply, unknown, string | undefined]> = [
      [[200, 'alice'], null, 'alice'],
      [[202, { id: 'bob', clientData: { theme: 'dark' }, serverData: { role: 'admin' } }], { theme: 'dark' }, 'bob'],
      [[200, { id: 'carol', clientData: null }], null, 'carol'],
      [[200, {}], null, undefined],
      [[200], null, undefined],
    ];
    for (const [reply, data, user] of cases) {
      hook.reply = () => reply;
      const client = await connect(t, server, { login: false });
      assert.equal(JSON.stringify(await client.login()), JSON.stringify(data), JSON.stringify(reply));
      const online = (await watcher.presence.getAll()) as string[];
      if (user !== undefined) assert.ok(online.includes(user), `${user} is online`);
      client.close();
    }
    assert.ok(!((await watcher.presence.getAll()) as string[]).includes('OPEN'), 'a user without a name does not appear in presence');
  });

  test('returns a token for a login over HTTP, and clients and requests can log in with it', async (t) => {
    const hook = await Hook.during(t);
    const server = await asking(t, hook);
    const login = { username: 'alice', password: 'abcdefgh' };
    hook.reply = ({ body: { authData } }) => {
      const isRight = authData['password'] === login.password || authData['token'] === 'token-1';
      return isRight ? [200, { id: 'alice', token: 'token-1', clientData: { theme: 'dark' } }] : [403];
    };
    const answer = await post(server, '/api/auth', login);
    assert.equal(answer.status, 200);
    const given = (await answer.json()) as { token: string; clientData: unknown; ticket: string };
    assert.deepEqual({ token: given.token, clientData: given.clientData }, { token: 'token-1', clientData: { theme: 'dark' } });
    const { token } = given;
    const written = await command(server, { topic: 'record', action: 'write', recordName: 'a/b', data: { c: 1 } }, { token });
    assert.deepEqual(written, { success: true });
    const client = await connect(t, server, { login: false });
    assert.deepEqual(await client.login({ token }), { theme: 'dark' });
    assert.equal((await post(server, '/api/auth', { username: 'alice', password: 'wrong' })).status, 401);
    for (const [reply, expected] of [
      [{ id: 'bob' }, {}],
      [{ id: 'bob', token: null }, { token: null }],
      [{ id: 'bob', token: { a: 1 }, clientData: null }, { token: { a: 1 }, clientData: null }],
    ] as const) {
      hook.reply = () => [200, reply];
      const { ticket, ...fields } = (await (await post(server, '/api/auth', {})).json()) as Record<string, unknown>;
      assert.equal(typeof ticket, 'string');
      assert.deepEqual(fields, expected);
    }
  });

  test('is not asked about clients that have disconnected, and addresses take turns', async (t) => {
    const hook = await Hook.during(t);
    const server = await asking(t, hook, { requests_max: 1, timeout: '60s' });
    let answerFirst = (): void => undefined;
    const first = new Promise<void>((done) => (answerFirst = done));
    hook.reply = async ({ body: { authData } }) => {
      if (authData['username'] === 'first') await first;
      return [200, String(authData['username'])];
    };
    const from = (localAddress: string) => ({ url: `ws://${server.address}`, options: { localAddress } });
    const login = async (username: string, address: string): Promise<RawPeer> => {
      const peer = await RawPeer.challenge(server, from(address));
      peer.send({ topic: C.TOPIC.AUTH, action: C.AUTH_ACTION.REQUEST, data: JSON.stringify({ username }) });
      return peer;
    };
    await login('first', '127.0.0.2');
    await hook.asked.next();
    const crowd = await Promise.all(Array.from({ length: 20 }, (_, number) => login(`crowd-${number}`, '127.0.0.2')));
    const waiting = (count: number) => async (): Promise<boolean> => (await server.metric('tidewire_logins_waiting')) === count;
    await eventually(waiting(21), 'all logins wait');
    const rightful = await login('rightful', '127.0.0.3');
    await eventually(waiting(22), 'the rightful login waits');
    for (const peer of crowd.slice(5)) peer.abort();
    await eventually(waiting(7), 'disconnected clients no longer wait');
    answerFirst();
    await rightful.expect(C.TOPIC.AUTH, C.AUTH_ACTION.AUTH_SUCCESSFUL);
    await eventually(waiting(0), 'no login waits');
    const names = hook.asked.seen.map(({ body }) => body.authData['username']);
    assert.equal(names.length, 7);
    assert.ok(names.indexOf('rightful') <= 2, `${names}`);
    assert.equal(await server.metric('tidewire_logins_waiting_bytes'), 0);
  });

  test('logins beyond the limit of waiting logins are postponed', async (t) => {
    const hook = await Hook.during(t);
    const server = await asking(t, hook, { requests_max: 1, timeout: '60s' }, { waiting_per_address_max: 3, waiting_max: 4 });
    let answer = (): void => undefined;
    const answered = new Promise<void>((done) => (answer = done));
    hook.reply = async () => {
      await answered;
      return [200, 'anna'];
    };
    const login = async (localAddress: string): Promise<RawPeer> => {
      const peer = await RawPeer.challenge(server, { url: `ws://${server.address}`, options: { localAddress } });
      peer.send({ topic: C.TOPIC.AUTH, action: C.AUTH_ACTION.REQUEST, data: '{}' });
      return peer;
    };
    const putOff = (count: number) => async (): Promise<boolean> => (await server.metric('tidewire_logins_put_off_total')) === count;
    const peers = [];
    for (let count = 0; count < 3; count += 1) peers.push(await login('127.0.0.2'));
    await eventually(async () => (await server.metric('tidewire_logins_waiting')) === 3, 'three wait');
    const fourth = await login('127.0.0.2');
    assert.equal(await within(DEADLINE_MS, fourth.closed, 'the fourth of an address is closed'), 1013);
    await eventually(putOff(1), 'it was counted');
    peers.push(await login('127.0.0.3'));
    await eventually(async () => (await server.metric('tidewire_logins_waiting')) === 4, 'four wait');
    assert.equal(await within(DEADLINE_MS, (await login('127.0.0.4')).closed, 'the fifth is closed'), 1013);
    assert.equal((await post(server, '/api/auth', {})).status, 503);
    answer();
    for (const peer of peers) await peer.expect(C.TOPIC.AUTH, C.AUTH_ACTION.AUTH_SUCCESSFUL);
  });

  test('refuses with its own reason', async (t) => {
    const hook = await Hook.during(t);
    const server = await asking(t, hook, {}, { attempts_max: 20 });
    const cases: Array<[Reply, [boolean, unknown]]> = [
      [[403], refused()],
      [[403, 'go away'], refused({ error: 'go away' })],
      [[401, { code: 7 }], refused({ code: 7 })],
      [[201, 'alice'], refused({ error: 'alice' })],
      [[200, { isValid: false, clientData: { why: 'blocked' } }], refused({ why: 'blocked' })],
      [[200, { isValid: false, id: 'alice' }], refused()],
      [[200, { id: 'alice', expiresAt: 'soon' }], refused()],
    ];
    for (const [reply, expected] of cases) {
      hook.reply = () => reply;
      assert.deepEqual(await outcome(t, server, {}), expected, JSON.stringify(reply));
    }
  });

  test('may set the expiry of a login', async (t) => {
    const hook = await Hook.during(t);
    const server = await asking(t, hook);
    hook.reply = () => [200, { id: 'alice', expiresAt: Math.floor(Date.now() / 1_000) + 5 }];
    const client = await connect(t, server, { login: false });
    await client.login();
    hook.reply = () => [403, 'over'];
    const failure = new Promise((done) => client.on('reauthenticationFailure', done));
    await within(DEADLINE_MS, failure, 'the client learns that its login has expired');
  });

  test('is asked again after a failure, and the login succeeds', async (t) => {
    const hook = await Hook.during(t);
    const server = await asking(t, hook, { retry_statuses: [503], retry_attempts: 2 });
    const replies: Reply[] = [[503], [503, 'busy'], [200, 'alice']];
    hook.reply = () => replies.shift() as Reply;
    assert.deepEqual(await outcome(t, server, {}), [true, null]);
    assert.equal(hook.asked.seen.length, 3);
    assert.equal(await server.metric('tidewire_auth_webhook_failures_total'), 2);
  });

  test('that is down postpones logins, and they succeed when it is back', async (t) => {
    const hook = await Hook.during(t);
    const server = await asking(t, hook);
    await hook.stop();
    const client = await connect(t, server, { login: false, errors: ['CONNECTION_ERROR'] });
    const login = client.login();
    await eventually(async () => (await server.metric('tidewire_logins_unavailable_total')) > 0, 'the login was postponed');
    const ready = (await (await server.get('/ready')).json()) as { warnings: Array<{ code: string; text: string }> };
    assert.deepEqual(ready.warnings.map(({ code }) => code), ['auth_webhook']);
    assert.ok(!JSON.stringify(ready).includes('/login'), 'addresses may be secret');
    await hook.listen();
    await within(DEADLINE_MS, login, 'the client logs in by itself');
    await inState(client, C.CONNECTION_STATE.OPEN);
  });

  test('that gives invalid answers accepts no login', async (t) => {
    const hook = await Hook.during(t);
    const server = await asking(t, hook, { retry_attempts: 0 });
    const nonsense: Reply[] = [[200, '{"id":'], [200, '["alice"]'], [200, 'x'.repeat(300_000)]];
    for (const [index, reply] of nonsense.entries()) {
      hook.reply = () => reply;
      const client = await connect(t, server, { login: false, errors: ['CONNECTION_ERROR'] });
      void client.login().catch(() => {});
      const failed = async (): Promise<boolean> => (await server.metric('tidewire_logins_unavailable_total')) > index;
      await eventually(failed, `answer ${index} was not a valid answer`);
      client.close();
    }
    assert.equal(await server.metric('tidewire_logins_accepted_total'), 0);
  });

  test('receives at most the configured number of requests at once', async (t) => {
    const hook = await Hook.during(t);
    const server = await asking(t, hook, { requests_max: 2, timeout: '10s' });
    let release = (): void => {};
    const released = new Promise<void>((done) => (release = done));
    hook.reply = async () => {
      await released;
      return [200, 'alice'];
    };
    const logins = Array.from({ length: 6 }, () => outcome(t, server, {}));
    await hook.asked.count(2);
    release();
    assert.deepEqual(await Promise.all(logins), Array.from({ length: 6 }, () => [true, null]));
    assert.equal(hook.openMax, 2);
  });

  test('may redirect twice, but only on this machine', async (t) => {
    const hook = await Hook.during(t);
    const server = await asking(t, hook, { retry_attempts: 0 });
    const to = (location: string): Reply => [307, '', { location }];
    const replies: Reply[] = [to('/a'), to('/b'), [200, 'alice']];
    hook.reply = () => replies.shift() as Reply;
    assert.deepEqual(await outcome(t, server, { name: 'x' }), [true, null]);
    assert.deepEqual(hook.asked.seen.map(({ body }) => body.authData), Array.from({ length: 3 }, () => ({ name: 'x' })));
    hook.reply = () => to('http://192.0.2.1/steal');
    const client = await connect(t, server, { login: false, errors: ['CONNECTION_ERROR'] });
    void client.login().catch(() => {});
    await eventually(async () => (await server.metric('tidewire_logins_unavailable_total')) > 0, 'the server does not follow the redirect');
  });
});
