// The HTTP API, compatible with deepstream's: batches of commands, logins, and every failure with its status and text.
// The rules decide by the prefix of the name (`harness/denials.ts`).

import assert from 'node:assert/strict';
import { request } from 'node:http';
import { after, before, describe, test } from 'node:test';
import { C, connect, list, record, subscribed, type RpcResponse, type TestClient } from '../harness/client.ts';
import { batch, command, post, url } from '../harness/http.ts';
import { fresh, freshUser } from '../harness/names.ts';
import { Server } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { Inbox } from '../harness/wait.ts';

const OK = { success: true };
/** The errors that a provider receives if it answers after the call has ended, as can happen on a busy machine. */
const LATE = ['UNKNOWN_CORRELATION_ID', 'INVALID_RPC_CORRELATION_ID'];

/** Registers a provider and waits until the server has confirmed it. */
async function provides(
  client: TestClient,
  name: string,
  provider: (data: unknown, response: RpcResponse) => void,
): Promise<void> {
  client.rpc.provide(name, provider as never);
  await client.wire.acknowledged('RPC', C.RPC_ACTION.PROVIDE, name);
}

describe('http api', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start({ denials: true, rpcAcceptTimeoutMs: 15_000, rpcResponseTimeoutMs: 15_000 });
  });
  after(() => server.dispose());

  describe('events', () => {
    test('an emitted event reaches subscribers with unchanged data', async (t) => {
      const name = fresh('event');
      const inbox = await subscribed(await connect(t, server), name);
      const data = { text: 'ä€𝄞', number: 1e21, deep: [null, true, { a: [] }] };
      assert.deepEqual(await command(server, { topic: 'event', action: 'emit', eventName: name, data }), OK);
      assert.deepEqual(await inbox.next(), data);
    });

    test('an event without data arrives without data', async (t) => {
      const name = fresh('event');
      const inbox = await subscribed(await connect(t, server), name);
      await command(server, { topic: 'event', action: 'emit', eventName: name });
      assert.equal(await inbox.next(), undefined);
    });

    test('of several events only the denied ones fail', async (t) => {
      const [free, refused] = [fresh('event'), fresh('nowrite/event')];
      const inbox = await subscribed(await connect(t, server), free);
      const emit = (eventName: string, data: unknown): object => ({ topic: 'event', action: 'emit', eventName, data });
      const answer = await batch(server, [emit(free, 1), emit(refused, 2), emit(free, 3), emit('broken/x', 4)]);
      assert.equal(answer.result, 'PARTIAL_SUCCESS');
      assert.deepEqual(answer.body, [
        OK,
        {
          success: false,
          errorTopic: 'event',
          errorEvent: 'MESSAGE_DENIED',
          errorAction: 'emit',
          error: "Message denied. Action 'emit' is not permitted.",
        },
        OK,
        {
          success: false,
          errorTopic: 'event',
          errorEvent: 103,
          error: 'An error occurred: MESSAGE_PERMISSION_ERROR.',
          errorParams: 'MESSAGE_PERMISSION_ERROR',
        },
      ]);
      assert.deepEqual([await inbox.next(), await inbox.next()], [1, 3]);
    });

    test('a rule that must read a record first decides each event of a batch', async () => {
      const gate = freshUser('gate');
      const emit = { topic: 'event', action: 'emit', eventName: `needs/${gate}/x` };
      const open = { topic: 'record', action: 'write', recordName: gate, data: { open: true } };
      assert.equal((await batch(server, [emit, emit])).result, 'FAILURE');
      await command(server, open);
      assert.equal((await batch(server, [emit, emit, emit])).result, 'SUCCESS');
    });

    test('5,000 events in one batch arrive in order', async (t) => {
      const name = fresh('event');
      const inbox = await subscribed(await connect(t, server), name);
      const numbers = Array.from({ length: 5_000 }, (_, index) => index);
      const commands = numbers.map((data) => ({ topic: 'event', action: 'emit', eventName: name, data }));
      const answer = await batch(server, commands);
      assert.equal(answer.result, 'SUCCESS');
      assert.equal(answer.body.length, 5_000);
      assert.deepEqual(await inbox.count(5_000), numbers);
    });
  });

  describe('records', () => {
    const write = (recordName: string, data: unknown, more: object = {}): object => {
      return { topic: 'record', action: 'write', recordName, data, ...more };
    };
    const read = (recordName: string): object => ({ topic: 'record', action: 'read', recordName });
    const head = (recordName: string): object => ({ topic: 'record', action: 'head', recordName });

    test('a record is written, read, queried for its version and deleted', async () => {
      const name = fresh('record');
      assert.deepEqual(await command(server, head(name)), { version: -1, ...OK });
      assert.deepEqual(await command(server, write(name, { a: 1 })), OK);
      assert.deepEqual(await command(server, read(name)), { version: 1, data: { a: 1 }, ...OK });
      assert.deepEqual(await command(server, write(name, { a: 2 }, { version: 2 })), OK);
      assert.deepEqual(await command(server, head(name)), { version: 2, ...OK });
      assert.deepEqual(await command(server, { topic: 'record', action: 'delete', recordName: name }), OK);
      assert.deepEqual(await command(server, read(name)), {
        success: false,
        errorTopic: 'record',
        errorEvent: 107,
        error: `Record read failed. Record "${name}" could not be found.`,
      });
    });

    test('a path of a record is written, and its subscribers receive the change', async (t) => {
      const name = fresh('record');
      await command(server, write(name, { a: { b: 1 }, c: 2 }));
      const theirs = await record(await connect(t, server), name);
      const seen = new Inbox<unknown>('changes');
      theirs.subscribe('a.b', seen.push);
      assert.deepEqual(await command(server, write(name, [7], { path: 'a.b' })), OK);
      assert.deepEqual(await seen.next(), [7]);
      assert.deepEqual(theirs.get(), { a: { b: [7] }, c: 2 });
    });

    test('an empty path means the whole record', async () => {
      const name = fresh('record');
      assert.deepEqual(await command(server, write(name, { x: 1 }, { path: '' })), OK);
      assert.deepEqual((await command(server, read(name)))['data'], { x: 1 });
    });

    test('a version that exists fails with the current version and value', async () => {
      const name = fresh('record');
      await command(server, write(name, { a: 1 }));
      await command(server, write(name, { a: 2 }));
      assert.deepEqual(await command(server, write(name, { a: 3 }, { version: 1 })), {
        success: false,
        errorTopic: 'record',
        errorEvent: 102,
        error: `Record update failed. Version 2 exists for record "${name}".`,
        currentVersion: 2,
        currentData: { a: 2 },
      });
    });

    test('a version that is too high is not valid', async () => {
      const name = fresh('record');
      await command(server, write(name, { a: 1 }));
      const outcome = await command(server, write(name, { a: 3 }, { version: 9 }));
      assert.equal(outcome['errorEvent'], 108);
      assert.equal(outcome['error'], `Record update failed. Version 1 is not valid for record "${name}".`);
      assert.equal(outcome['currentVersion'], 1);
    });

    test('a denial names the denied action', async () => {
      const name = fresh('denied/record');
      const denied = (action: string, number: number): object => ({
        success: false,
        errorTopic: 'record',
        errorEvent: 115,
        error: `Message denied. Action "${action}" is not permitted.`,
        action: number,
      });
      const commands = [
        read(name),
        head(name),
        write(name, {}),
        write(name, 1, { path: 'a' }),
        { topic: 'record', action: 'delete', recordName: name },
        { topic: 'record', action: 'notify', recordNames: [name] },
      ];
      const answer = await batch(server, commands);
      assert.equal(answer.result, 'FAILURE');
      assert.deepEqual(answer.body, [
        denied('READ', 3),
        denied('HEAD', 5),
        denied('CREATEANDUPDATE', 16),
        denied('CREATEANDPATCH', 17),
        denied('DELETE', 9),
        denied('NOTIFY', 2),
      ]);
    });

    test('data that the engine refuses fails with a reason', async () => {
      const deep = '['.repeat(70) + ']'.repeat(70);
      const text = `{"body":[{"topic":"record","action":"write","recordName":"${fresh('record')}","data":${deep}}]}`;
      const answer = (await (await post(server, '/api', text)).json()) as { body: Array<Record<string, unknown>> };
      assert.equal(answer.body[0]?.['error'], 'An error occurred: INVALID_MESSAGE_DATA.');
    });

    test('the answers to many commands for one record keep the order of the commands', async () => {
      const name = fresh('record');
      const commands = [read(name), head(name), read(name), head(`${name}x`), read(name)];
      await command(server, write(name, { a: 1 }));
      const { result, body } = await batch(server, commands);
      const whole = { version: 1, data: { a: 1 }, ...OK };
      assert.equal(result, 'SUCCESS');
      assert.deepEqual(body, [whole, { version: 1, ...OK }, whole, { version: -1, ...OK }, whole]);
    });

    test('a record can be notified', async () => {
      const name = fresh('record');
      await command(server, write(name, { a: 1 }));
      assert.deepEqual(await command(server, { topic: 'record', action: 'notify', recordNames: [name] }), OK);
    });

    test('a written value survives a kill', async (t) => {
      const own = await Server.during(t);
      await command(own, write('kept', { a: 1 }));
      await own.kill();
      await own.start();
      assert.deepEqual(await command(own, read('kept')), { version: 1, data: { a: 1 }, ...OK });
    });
  });

  test('lists are written, read and deleted', async (t) => {
    const name = fresh('list');
    const theirs = await list(await connect(t, server), name);
    const seen = new Inbox<string[]>('entries');
    theirs.subscribe(seen.push);
    const write = { topic: 'list', action: 'write', listName: name, data: ['a', 'b'] };
    assert.deepEqual(await command(server, write), OK);
    assert.deepEqual(await seen.next(), ['a', 'b']);
    const held = await command(server, { topic: 'list', action: 'read', listName: name });
    assert.deepEqual(held['data'], ['a', 'b']);
    assert.deepEqual(await command(server, { topic: 'list', action: 'delete', listName: name }), OK);
    assert.equal((await command(server, { topic: 'record', action: 'head', recordName: name }))['version'], -1);
  });

  describe('rpc', () => {
    const make = (rpcName: string, data?: unknown): object => ({ topic: 'rpc', action: 'make', rpcName, data });

    test('providers respond, with and without data', async (t) => {
      const name = fresh('rpc');
      await provides(await connect(t, server), name, (data, response) => response.send(data as never));
      const { body } = await batch(server, [make(name, { a: [1] }), make(name, null), make(name, 'x')]);
      assert.deepEqual(body, [{ data: { a: [1] }, ...OK }, { data: null, ...OK }, { data: 'x', ...OK }]);
    });

    test('errors of providers reach the caller', async (t) => {
      const name = fresh('rpc');
      await provides(await connect(t, server), name, (_data, response) => response.error('no luck'));
      const failed = { success: false, errorTopic: 'rpc', error: 'no luck' };
      assert.deepEqual(await command(server, make(name, 1)), failed);
    });

    test('a call fails without a provider, and with a provider that does not answer', async (t) => {
      const own = await Server.during(t, { denials: true, rpcAcceptTimeoutMs: 15_000, rpcResponseTimeoutMs: 200 });
      const [nobody, silent] = [fresh('rpc'), fresh('rpc')];
      await provides(await connect(t, own, { errors: LATE }), silent, () => undefined);
      const { body } = await batch(own, [make(nobody), make(silent), make('denied/rpc')]);
      assert.deepEqual(body, [
        {
          success: false,
          errorTopic: 'rpc',
          errorEvent: 100,
          error: `No provider was available to handle the RPC "${nobody}".`,
        },
        {
          success: false,
          errorTopic: 'rpc',
          errorEvent: 104,
          error: 'The RPC response timeout was exceeded by the provider.',
        },
        {
          success: false,
          errorTopic: 'rpc',
          errorEvent: 107,
          error: 'Message denied. Action "REQUEST" is not permitted.',
          action: 2,
        },
      ]);
    });
  });

  describe('presence', () => {
    test('a query lists the online users, and a request does not make its user online', async (t) => {
      const [there, away, asking] = [freshUser(), freshUser(), freshUser()];
      const watcher = await connect(t, server);
      const seen = new Inbox<[string, boolean]>('users');
      watcher.presence.subscribe((user: string, online: boolean) => seen.push([user, online]));
      await watcher.presence.getAll();
      await connect(t, server, { login: { username: there } });
      const query = { topic: 'presence', action: 'query' };
      const some = { ...query, names: [there, away, asking] };
      const { body } = await batch(server, [query, some], { authData: { username: asking } });
      assert.ok((body[0]?.['users'] as string[]).includes(there));
      assert.ok(!(body[0]?.['users'] as string[]).includes(asking));
      assert.deepEqual(body[1], { users: { [there]: true, [away]: false, [asking]: false }, ...OK });
      const last = freshUser();
      await connect(t, server, { login: { username: last } });
      let one = await seen.next();
      while (one[0] !== last) {
        assert.notEqual(one[0], asking);
        one = await seen.next();
      }
    });
  });

  describe('a wrong request fails before any command runs', () => {
    const jif = (index: number, reason: string): RegExp => {
      return new RegExp(`^Failed to parse JIF object at index ${index}\\. Reason: ${reason}\r\n\r\n$`);
    };
    const emit = { topic: 'event', action: 'emit', eventName: 'e' };
    const CASES: Array<[what: string, body: unknown, status: number, text: RegExp]> = [
      ['a body that is not JSON', '{"body":', 400, /^Failed to parse body of request: /],
      ['an empty body', '', 400, /^Failed to parse body of request: /],
      ['a body without body', {}, 400, /^Invalid message: the "body" parameter must exist\./],
      ['an array', [], 400, /^Invalid message: the "body" parameter must exist\./],
      ['a body that is not an array', { body: {} }, 400, /must be a non-empty array of Objects\./],
      ['an empty array', { body: [] }, 400, /must be a non-empty array of Objects\./],
      ['authData that is not an object', { authData: 7, body: [emit] }, 400, /the "authData" parameter must be an object/],
      ['an empty token', { token: '', body: [emit] }, 400, /the "token" parameter must be a non-empty string/],
      ['a token that is not a string', { token: 1, body: [emit] }, 400, /the "token" parameter must be a non-empty string/],
      ['a wrong token next to authData', { token: '', authData: {}, body: [emit] }, 400, /the "token" parameter must be a non-empty string/],
      ['a command that is not an object', { body: [emit, 7] }, 400, jif(1, 'a command must be an object')],
      ['an unknown topic', { body: [{ ...emit, topic: 'x' }] }, 400, jif(0, 'unknown action "emit" of topic "x"')],
      ['an unknown action', { body: [{ ...emit, action: 'x' }] }, 400, jif(0, 'unknown action "x" of topic "event"')],
      ['an unknown property', { body: [{ ...emit, more: 1 }] }, 400, jif(0, 'unknown property "more"')],
      ['an empty name', { body: [{ ...emit, eventName: '' }] }, 400, jif(0, '"eventName" must not be empty')],
      ['a long name', { body: [{ ...emit, eventName: 'x'.repeat(1025) }] }, 400, jif(0, '"eventName" has more than .*')],
      ['too many commands', { body: Array.from({ length: 10_001 }, () => emit) }, 400, /http\.batch_commands_max/],
      ['a body that is too large', { body: [{ ...emit, data: 'x'.repeat(1 << 20) }] }, 413, /http\.body_bytes_max/],
    ];
    for (const [what, body, status, text] of CASES) {
      test(what, async () => {
        const answer = await post(server, '/api', body);
        assert.match(await answer.text(), text);
        assert.equal(answer.status, status);
        assert.match(answer.headers.get('content-type') ?? '', /^text\/plain/);
      });
    }

    test('another content type', async () => {
      const answer = await post(server, '/api', { body: [emit] }, { 'content-type': 'text/plain' });
      assert.equal(answer.status, 415);
      assert.equal(
        await answer.text(),
        'Invalid "Content-Type" header. Supported media types: "application/json"\r\n\r\n',
      );
    });

    test('another method', async () => {
      const answer = await fetch(url(server, '/api'), { method: 'PUT', body: '{}' });
      assert.equal(answer.status, 405);
      assert.equal(answer.headers.get('allow'), 'GET, POST, OPTIONS');
      assert.match(await answer.text(), /^Unsupported method\. Supported methods: GET, POST, OPTIONS/);
      const read = await fetch(url(server, '/api'));
      assert.equal(read.status, 400);
      assert.match(await read.text(), /^Reading records via HTTP GET is not yet implemented/);
    });

    test('no command runs if one of them is wrong', async (t) => {
      const [name, end] = [fresh('event'), fresh('end')];
      const client = await connect(t, server);
      const [inbox, ended] = [await subscribed(client, name), await subscribed(client, end)];
      const answer = await post(server, '/api', { body: [{ ...emit, eventName: name }, 7] });
      assert.equal(answer.status, 400);
      await command(server, { ...emit, eventName: end });
      await ended.next();
      assert.deepEqual(inbox.seen, []);
    });

    test('the server does not wait for a body that does not arrive', async (t) => {
      const own = await Server.during(t, { http: { body_timeout: '200ms' } });
      const status = await new Promise<number | undefined>((done, fail) => {
        const headers = { 'content-type': 'application/json', 'content-length': 100 };
        const slow = request({ port: own.port, path: '/api', method: 'POST', headers });
        slow.once('response', (answer) => done(answer.statusCode));
        slow.once('error', fail);
        slow.write('{"body":');
      });
      assert.equal(status, 408);
    });

    test('a call that exceeds the timeout of the request fails', async (t) => {
      const own = await Server.during(t, { http: { request_timeout: '2s' }, rpcAcceptTimeoutMs: 15_000 });
      await provides(await connect(t, own, { errors: LATE }), 'slow', () => undefined);
      const make = { topic: 'rpc', action: 'make', rpcName: 'slow' };
      const { result, body } = await batch(own, [emit, make]);
      assert.equal(result, 'PARTIAL_SUCCESS');
      assert.deepEqual(body[1], {
        success: false,
        errorTopic: 'connection',
        errorEvent: 'HTTP_REQUEST_TIMEOUT',
        error: 'Request exceeded timeout before a response was received.',
      });
    });
  });

  describe('pages of other origins', () => {
    test('are refused unless their origin is allowed, and the server answers preflights', async () => {
      const body = { body: [{ topic: 'event', action: 'emit', eventName: 'e' }] };
      const foreign = await post(server, '/api', body, { origin: 'https://evil.example' });
      assert.equal(foreign.status, 403);
      const own = await post(server, '/api', body, { origin: 'http://localhost:5173' });
      assert.equal(own.status, 200);
      assert.equal(own.headers.get('access-control-allow-origin'), 'http://localhost:5173');
      assert.equal(own.headers.get('vary'), 'Origin');
      const preflight = await fetch(url(server, '/api'), {
        method: 'OPTIONS',
        headers: { origin: 'http://localhost:5173', 'access-control-request-method': 'POST' },
      });
      assert.equal(preflight.status, 204);
      assert.match(preflight.headers.get('access-control-allow-methods') ?? '', /POST/);
      assert.match(preflight.headers.get('access-control-allow-headers') ?? '', /authorization, content-type/);
    });
  });
});

describe('http login', { concurrency: 4 }, () => {
  const users = {
    alice: { password: hashPassword('abcdefgh'), clientData: { favourite: 'red' } },
    bob: { password: hashPassword('12345678') },
  };
  const alice = { username: 'alice', password: 'abcdefgh' };
  const emit = { topic: 'event', action: 'emit', eventName: 'e' };
  let server: Server;
  before(async () => {
    server = await Server.start({ users });
  });
  after(() => server.dispose());

  test('the login endpoint returns the client data', async () => {
    const answer = await post(server, '/api/auth', alice);
    assert.equal(answer.status, 200);
    const body = (await answer.json()) as Record<string, unknown>;
    assert.deepEqual(body['clientData'], { favourite: 'red' });
  });

  test('a wrong password, an unknown user and an unknown token are refused', async () => {
    for (const login of [{ ...alice, password: 'x' }, { username: 'nobody', password: 'x' }, {}, { token: 'x' }]) {
      const answer = await post(server, '/api/auth', login);
      assert.equal(answer.status, 401);
      assert.equal(await answer.text(), 'Invalid authentication data.\r\n\r\n');
      const refused = await post(server, '/api', { authData: login, body: [emit] });
      assert.equal(refused.status, 401);
      assert.equal(await refused.text(), 'Unsuccessful authentication attempt.\r\n\r\n');
    }
    const refused = await post(server, '/api', { token: 'x', body: [emit] });
    assert.equal(refused.status, 401);
  });

  test('a login that is not an object or not JSON is a wrong request', async () => {
    assert.equal((await post(server, '/api/auth', '7')).status, 400);
    assert.equal((await post(server, '/api/auth', '[]')).status, 400);
    assert.equal((await post(server, '/api/auth', '{')).status, 400);
    assert.equal((await post(server, '/api/auth', alice, { 'content-type': 'text/xml' })).status, 415);
    assert.equal((await fetch(url(server, '/api/auth'))).status, 405);
  });

  test('authData takes precedence over a token, and a batch runs as its user', async () => {
    const { result } = await batch(server, [emit], { token: 'unknown', authData: alice });
    assert.equal(result, 'SUCCESS');
    assert.equal((await post(server, '/api', { body: [emit] })).status, 401);
  });

  test('authData and the login endpoint can be switched off', async (t) => {
    const own = await Server.during(t, { users, http: { allow_auth_data: false, auth_endpoint: false } });
    const answer = await post(own, '/api', { authData: alice, body: [emit] });
    assert.equal(answer.status, 400);
    assert.match(await answer.text(), /^Authentication using authData is disabled\. Try using a token instead\./);
    assert.equal((await post(own, '/api/auth', alice)).status, 404);
  });

  test('after refused logins an address must wait, and is finally refused', async (t) => {
    const backoff = { wait_min: '1ms', wait_max: '1ms', faults_max: 2 };
    const own = await Server.during(t, { users, backoff, authAttemptsMax: 1 });
    const wrong = { ...alice, password: 'x' };
    assert.equal((await post(own, '/api/auth', wrong)).status, 401);
    assert.equal((await post(own, '/api/auth', wrong)).status, 401);
    const refused = await post(own, '/api/auth', alice);
    assert.equal(refused.status, 429);
    assert.ok(refused.headers.get('retry-after'));
  });

  test('without the api the path is not found', async (t) => {
    const own = await Server.during(t, { http: { api: false } });
    assert.equal((await post(own, '/api', { body: [emit] })).status, 404);
  });
});
