// Records as HTTP resources: names, entity tags, conditions, patches and refusals, on the same data that clients see.

import assert from 'node:assert/strict';
import { request } from 'node:http';
import { after, before, describe, test } from 'node:test';
import { connect, record } from '../harness/client.ts';
import { command, post, url } from '../harness/http.ts';
import { fresh } from '../harness/names.ts';
import { Server } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { Inbox } from '../harness/wait.ts';

const MERGE = { 'content-type': 'application/merge-patch+json' };
const PATCH = { 'content-type': 'application/json-patch+json' };
const JSON_TYPE = { 'content-type': 'application/json' };

describe('http records', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start({ denials: true });
  });
  after(() => server.dispose());

  const ask = (method: string, name: string, body?: unknown, headers: Record<string, string> = {}): Promise<Response> => {
    const text = body === undefined || typeof body === 'string' ? body : JSON.stringify(body);
    const options = { method, headers: { ...(text === undefined ? {} : JSON_TYPE), ...headers } };
    return fetch(url(server, `/records/${name}`), text === undefined ? options : { ...options, body: text as string });
  };
  const tag = (answer: Response): string => {
    const value = answer.headers.get('etag');
    assert.ok(value, 'the answer has an entity tag');
    return value;
  };
  const code = async (answer: Response): Promise<[number, string]> => {
    assert.equal(answer.headers.get('content-type'), 'application/problem+json');
    return [answer.status, ((await answer.json()) as { code: string }).code];
  };
  /** Sends a request without normalizing its path. Returns the status. */
  const rawStatus = (path: string): Promise<number | undefined> => {
    return new Promise((done, fail) => {
      const asked = request({ host: '127.0.0.1', port: server.port, path }, (answer) => {
        answer.resume();
        done(answer.statusCode);
      });
      asked.once('error', fail);
      asked.end();
    });
  };

  test('a record is created, read, replaced and deleted', async () => {
    const name = fresh('rest');
    assert.deepEqual(await code(await ask('GET', name)), [404, 'RECORD_NOT_FOUND']);
    const created = await ask('PUT', name, { a: 1 });
    assert.equal(created.status, 201);
    assert.equal(created.headers.get('location'), `/records/${name}`);
    const read = await ask('GET', name);
    assert.equal(read.headers.get('content-type'), 'application/json');
    assert.deepEqual(await read.json(), { a: 1 });
    assert.equal(tag(read), tag(created));
    const replaced = await ask('PUT', name, ['b']);
    assert.equal(replaced.status, 204);
    assert.notEqual(tag(replaced), tag(created));
    const head = await ask('HEAD', name);
    assert.deepEqual([head.status, tag(head), await head.text()], [200, tag(replaced), '']);
    assert.equal((await ask('DELETE', name)).status, 204);
    assert.deepEqual(await code(await ask('DELETE', name)), [404, 'RECORD_NOT_FOUND']);
    const again = await ask('PUT', name, { a: 1 });
    assert.equal(again.status, 201);
    assert.notEqual(tag(again), tag(created), 'a record that is created again has a new tag');
  });

  test('clients of deepstream see each PUT, PATCH and DELETE', async (t) => {
    const name = fresh('rest');
    const theirs = await record(await connect(t, server), name);
    const seen = new Inbox<unknown>('values');
    theirs.subscribe(seen.push);
    await ask('PUT', name, { a: 1, b: 2 });
    assert.deepEqual(await seen.next(), { a: 1, b: 2 });
    await ask('PATCH', name, { a: null, c: 3 }, MERGE);
    assert.deepEqual(await seen.next(), { b: 2, c: 3 });
    await theirs.setWithAck({ d: 4 });
    assert.deepEqual(await (await ask('GET', name)).json(), { d: 4 });
  });

  test('a name with slashes, dots and escapes means the same record, escaped or not', async () => {
    const base = fresh('rest');
    const name = `${base}/ä.b%2Fc`;
    await command(server, { topic: 'record', action: 'write', recordName: name, data: { it: 1 } });
    const spellings = [encodeURIComponent(name), `${base}/${encodeURIComponent('ä.b%2Fc')}`, `${base}/%C3%A4%2Eb%252Fc`];
    for (const spelling of spellings) {
      const answer = await ask('GET', spelling);
      assert.deepEqual([answer.status, await answer.json()], [200, { it: 1 }], spelling);
    }
    await command(server, { topic: 'record', action: 'write', recordName: `${base}/../x`, data: {} });
    assert.equal(await rawStatus(`/records/${base}/../x`), 200);
    assert.equal(await rawStatus(`/records/${base}/%2e%2e/x`), 200);
    assert.equal(await rawStatus(`/records/${base}/..%2fx`), 200);
    for (const wrong of ['', '%', '%FF', 'x'.repeat(1025)]) assert.equal(await rawStatus(`/records/${wrong}`), 400);
  });

  test('a request whose condition fails changes nothing', async () => {
    const name = fresh('rest');
    const unmet: [number, string] = [412, 'PRECONDITION_FAILED'];
    assert.deepEqual(await code(await ask('PUT', name, {}, { 'if-match': '*' })), unmet);
    const created = await ask('PUT', name, { n: 1 }, { 'if-none-match': '*' });
    assert.equal(created.status, 201);
    assert.deepEqual(await code(await ask('PUT', name, { n: 0 }, { 'if-none-match': '*' })), unmet);
    const first = tag(created);
    assert.equal((await ask('GET', name, undefined, { 'if-none-match': first })).status, 304);
    assert.equal((await ask('GET', name, undefined, { 'if-none-match': `"x", W/${first}` })).status, 304);
    assert.equal((await ask('GET', name, undefined, { 'if-match': first })).status, 200);
    const second = tag(await ask('PUT', name, { n: 2 }, { 'if-match': first }));
    assert.deepEqual(await code(await ask('PUT', name, { n: 0 }, { 'if-match': first })), unmet);
    assert.deepEqual(await code(await ask('PUT', name, { n: 0 }, { 'if-match': `W/${second}` })), unmet);
    assert.deepEqual(await code(await ask('PUT', name, { n: 0 }, { 'if-none-match': second })), unmet);
    assert.deepEqual(await code(await ask('PATCH', name, { n: 0 }, { ...MERGE, 'if-match': first })), unmet);
    assert.deepEqual(await code(await ask('DELETE', name, undefined, { 'if-match': first })), unmet);
    assert.deepEqual(await code(await ask('GET', name, undefined, { 'if-match': first })), unmet);
    assert.equal((await ask('GET', name, undefined, { 'if-none-match': first })).status, 200);
    const third = tag(await ask('PUT', name, { n: 3 }, { 'if-match': `"x", ${second}` }));
    assert.equal((await ask('DELETE', name, undefined, { 'if-match': third })).status, 204);
  });

  test('a malformed condition is refused, and errors in a request come before its conditions', async () => {
    const name = fresh('rest');
    const first = tag(await ask('PUT', name, { n: 1 }));
    for (const condition of ['', 'x', '*, "x"', '"x" "y"', first.slice(1)]) {
      for (const header of ['if-match', 'if-none-match']) {
        for (const [method, body] of [['GET', undefined], ['PUT', { n: 0 }], ['DELETE', undefined]] as const) {
          assert.deepEqual(await code(await ask(method, name, body, { [header]: condition })), [400, 'INVALID_CONDITION'], `${method} ${condition}`);
        }
      }
    }
    const unmet = { 'if-match': '"x"' };
    assert.deepEqual(await code(await ask('PUT', name, '7', unmet)), [422, 'INVALID_VALUE']);
    assert.deepEqual(await code(await ask('PATCH', name, '7', { ...MERGE, ...unmet })), [422, 'INVALID_VALUE']);
    assert.deepEqual(await code(await ask('PATCH', name, [{ op: 'remove' }], { ...PATCH, ...unmet })), [400, 'INVALID_PATCH']);
    assert.deepEqual(await code(await ask('PATCH', name, [{ op: 'remove', path: '/n' }], { ...PATCH, ...unmet })), [412, 'PRECONDITION_FAILED']);
    assert.deepEqual(await (await ask('GET', name)).json(), { n: 1 });
  });

  test('exactly one of several concurrent conditional writes succeeds', async () => {
    const name = fresh('rest');
    const first = tag(await ask('PUT', name, { n: 0 }));
    const writes = Array.from({ length: 8 }, (_, n) => ask('PUT', name, { n }, { 'if-match': first }));
    const statuses = (await Promise.all(writes)).map(({ status }) => status).sort();
    assert.deepEqual(statuses, [204, 412, 412, 412, 412, 412, 412, 412]);
  });

  test('no concurrent patch is lost', async () => {
    const name = fresh('rest');
    await ask('PUT', name, {});
    const patches = Array.from({ length: 8 }, (_, n) => ask('PATCH', name, { [`k${n}`]: n }, MERGE));
    for (const { status } of await Promise.all(patches)) assert.equal(status, 204);
    assert.equal(Object.keys((await (await ask('GET', name)).json()) as object).length, 8);
  });

  test('a patch is applied completely or not at all', async () => {
    const name = fresh('rest');
    await ask('PUT', name, { a: [1, 2], b: { c: 'x' } });
    const good = [
      { op: 'test', path: '/b/c', value: 'x' },
      { op: 'add', path: '/a/-', value: 3 },
      { op: 'move', from: '/b/c', path: '/d' },
    ];
    assert.equal((await ask('PATCH', name, good, PATCH)).status, 204);
    const now = { a: [1, 2, 3], b: {}, d: 'x' };
    assert.deepEqual(await (await ask('GET', name)).json(), now);
    const CASES: Array<[body: unknown, headers: Record<string, string>, status: number, code: string]> = [
      [[{ op: 'add', path: '/z', value: 1 }, { op: 'test', path: '/d', value: 'y' }], PATCH, 409, 'PATCH_FAILED'],
      [[{ op: 'remove', path: '/nothing' }], PATCH, 409, 'PATCH_FAILED'],
      [[{ op: 'spam', path: '/d' }], PATCH, 400, 'INVALID_PATCH'],
      [{ op: 'add' }, PATCH, 400, 'INVALID_PATCH'],
      ['[{', PATCH, 400, 'INVALID_JSON'],
      ['{"a":', MERGE, 400, 'INVALID_JSON'],
      ['7', MERGE, 422, 'INVALID_VALUE'],
      [{ a: 1 }, JSON_TYPE, 415, 'UNSUPPORTED_MEDIA_TYPE'],
      [[{ op: 'add', path: '', value: 1 }], PATCH, 422, 'INVALID_VALUE'],
    ];
    const wrongType = await ask('PATCH', name, { a: 1 }, JSON_TYPE);
    assert.equal(wrongType.headers.get('accept-patch'), 'application/merge-patch+json, application/json-patch+json');
    for (const [body, headers, status, expected] of CASES) {
      assert.deepEqual(await code(await ask('PATCH', name, body, headers)), [status, expected], JSON.stringify(body));
    }
    assert.deepEqual(await (await ask('GET', name)).json(), now);
    assert.deepEqual(await code(await ask('PATCH', fresh('rest'), {}, MERGE)), [404, 'RECORD_NOT_FOUND']);
  });

  test('an invalid value, a large body, a wrong type or a denied request is refused with a code', async () => {
    const name = fresh('rest');
    assert.deepEqual(await code(await ask('PUT', name, '7')), [422, 'INVALID_VALUE']);
    assert.deepEqual(await code(await ask('PUT', name, '{"a":')), [400, 'INVALID_JSON']);
    assert.deepEqual(await code(await ask('PUT', name, '['.repeat(70) + ']'.repeat(70))), [422, 'INVALID_VALUE']);
    assert.deepEqual(await code(await ask('PUT', name, {}, { 'content-type': 'text/plain' })), [415, 'UNSUPPORTED_MEDIA_TYPE']);
    assert.deepEqual(await code(await ask('PUT', name, { a: 'x'.repeat(1 << 20) })), [413, 'BODY_TOO_LARGE']);
    const denied = fresh('denied/rest');
    for (const [method, body] of [['GET', undefined], ['PUT', {}], ['DELETE', undefined]] as const) {
      assert.deepEqual(await code(await ask(method, denied, body)), [403, 'MESSAGE_DENIED'], method);
    }
    assert.deepEqual(await code(await ask('GET', 'broken/x')), [403, 'MESSAGE_PERMISSION_ERROR']);
    const wrong = await ask('POST', name, {});
    assert.equal(wrong.headers.get('allow'), 'GET, HEAD, PUT, PATCH, DELETE, OPTIONS');
    assert.deepEqual(await code(wrong), [405, 'METHOD_NOT_ALLOWED']);
    const options = await ask('OPTIONS', name);
    assert.deepEqual([options.status, options.headers.get('allow')], [204, 'GET, HEAD, PUT, PATCH, DELETE, OPTIONS']);
  });

  test('pages of allowed origins may use the resources and read their tags', async () => {
    const origin = 'http://localhost:5173';
    const preflight = await ask('OPTIONS', 'x', undefined, {
      origin,
      'access-control-request-method': 'PATCH',
      'access-control-request-headers': 'if-match',
    });
    assert.equal(preflight.status, 204);
    assert.match(preflight.headers.get('access-control-allow-methods') ?? '', /PATCH/);
    assert.match(preflight.headers.get('access-control-allow-headers') ?? '', /if-match/);
    const read = await ask('PUT', fresh('rest'), {}, { origin });
    assert.match(read.headers.get('access-control-expose-headers') ?? '', /etag/);
    assert.equal((await ask('GET', 'x', undefined, { origin: 'https://evil.example' })).status, 403);
  });

  test('the server reads credentials from the authorization header', async (t) => {
    const users = { alice: { password: hashPassword('abcdefgh') } };
    const own = await Server.during(t, { users });
    const read = (authorization?: string): Promise<Response> => {
      return fetch(url(own, '/records/x'), { headers: authorization === undefined ? {} : { authorization } });
    };
    const basic = (pair: string): string => `Basic ${Buffer.from(pair).toString('base64')}`;
    assert.equal((await read(basic('alice:abcdefgh'))).status, 404);
    for (const wrong of [undefined, basic('alice:x'), basic('alice'), 'Basic !', 'Bearer unknown', 'Digest x']) {
      const answer = await read(wrong);
      assert.deepEqual(await code(answer), [401, 'LOGIN_REFUSED'], wrong);
      assert.equal(answer.headers.get('www-authenticate'), 'Bearer');
    }
  });

  test('the server has an OpenAPI description', async () => {
    const answer = await fetch(url(server, '/openapi.json'));
    assert.equal(answer.status, 200);
    assert.equal(((await answer.json()) as { openapi: string }).openapi, '3.1.0');
  });

  test('a batch reads the record that a PUT wrote', async () => {
    const name = fresh('rest');
    await ask('PUT', name, { a: 1 });
    const answer = await post(server, '/api', { body: [{ topic: 'record', action: 'read', recordName: name }] });
    assert.deepEqual(((await answer.json()) as { body: unknown[] }).body, [{ version: 1, data: { a: 1 }, success: true }]);
  });
});
