// Logins that a real HTTP server decides, as deepstream's handler asks it: what it gets, what its answers mean, and what happens
// while it is down.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { describe, test, type TestContext } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import { C, connect, inState } from '../harness/client.ts';
import { freePort } from '../harness/ports.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, within } from '../harness/wait.ts';

interface Asked {
  method: string | undefined;
  headers: IncomingHttpHeaders;
  body: { connectionData: { remoteAddress: string; headers: Record<string, string>; referer: string | null }; authData: Record<string, unknown> };
}

type Reply = [status: number, body?: string | object, headers?: Record<string, string>];

/** A server that decides logins; `reply` may be replaced. */
class Hook {
  readonly asked = new Inbox<Asked>('requests to the webhook');
  reply: (asked: Asked) => Reply | Promise<Reply> = () => [200];
  /** Requests that are being answered, and the most there were at once. */
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

/** What a login is answered: whether it got in, and what the client was told. */
async function outcome(test: TestContext, server: Server, login: Record<string, unknown>): Promise<[boolean, unknown]> {
  const client = await connect(test, server, { login: false });
  const answer = new Promise<[boolean, unknown]>((done) => {
    client.login(login as C.JSONObject, (success: boolean, data: unknown) => done([success, data]));
  });
  return within(DEADLINE_MS, answer, 'an answer to the login');
}

const refused = (reason: unknown = 'INVALID_AUTHENTICATION_DETAILS'): [boolean, unknown] => [false, { reason }];

describe('the webhook', { concurrency: 4, skip: againstOriginal }, () => {
  test('is asked with what deepstream sends, fields promoted to headers', async (t) => {
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

  test('lets in whom its answer names, with his data', async (t) => {
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
    assert.ok(!((await watcher.presence.getAll()) as string[]).includes('OPEN'), 'nobody sees the nameless');
  });

  test('keeps out whom it does not permit, with its reason', async (t) => {
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

  test('may say when a login ends', async (t) => {
    const hook = await Hook.during(t);
    const server = await asking(t, hook);
    hook.reply = () => [200, { id: 'alice', expiresAt: Math.floor(Date.now() / 1_000) + 5 }];
    const client = await connect(t, server, { login: false });
    await client.login();
    hook.reply = () => [403, 'over'];
    const failure = new Promise((done) => client.on('reauthenticationFailure', done));
    await within(DEADLINE_MS, failure, 'the client hears that its login is over');
  });

  test('is asked again after a failure, and gets through', async (t) => {
    const hook = await Hook.during(t);
    const server = await asking(t, hook, { retry_statuses: [503], retry_attempts: 2 });
    const replies: Reply[] = [[503], [503, 'busy'], [200, 'alice']];
    hook.reply = () => replies.shift() as Reply;
    assert.deepEqual(await outcome(t, server, {}), [true, null]);
    assert.equal(hook.asked.seen.length, 3);
    assert.equal(await server.metric('tidewire_auth_webhook_failures_total'), 2);
  });

  test('that is down puts logins off, and they get in when it is back', async (t) => {
    const hook = await Hook.during(t);
    const server = await asking(t, hook);
    await hook.stop();
    const client = await connect(t, server, { login: false, errors: ['CONNECTION_ERROR'] });
    const login = client.login();
    await eventually(async () => (await server.metric('tidewire_logins_unavailable_total')) > 0, 'the login was put off');
    const ready = (await (await server.get('/ready')).json()) as { warnings: Array<{ code: string; text: string }> };
    assert.deepEqual(ready.warnings.map(({ code }) => code), ['auth_webhook']);
    assert.ok(!JSON.stringify(ready).includes('/login'), 'addresses may be secret');
    await hook.listen();
    await within(DEADLINE_MS, login, 'the client logs in by itself');
    await inState(client, C.CONNECTION_STATE.OPEN);
  });

  test('that answers nonsense lets nobody in', async (t) => {
    const hook = await Hook.during(t);
    const server = await asking(t, hook, { retry_attempts: 0 });
    const nonsense: Reply[] = [[200, '{"id":'], [200, '["alice"]'], [200, 'x'.repeat(300_000)]];
    for (const [index, reply] of nonsense.entries()) {
      hook.reply = () => reply;
      const client = await connect(t, server, { login: false, errors: ['CONNECTION_ERROR'] });
      void client.login().catch(() => {});
      const failed = async (): Promise<boolean> => (await server.metric('tidewire_logins_unavailable_total')) > index;
      await eventually(failed, `answer ${index} was no answer`);
      client.close();
    }
    assert.equal(await server.metric('tidewire_logins_accepted_total'), 0);
  });

  test('is not asked for more logins at once than it was said to take', async (t) => {
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

  test('may redirect twice, within the machine', async (t) => {
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
    await eventually(async () => (await server.metric('tidewire_logins_unavailable_total')) > 0, 'it is not followed');
  });
});
