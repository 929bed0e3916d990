// The requests of the admin page: sign-in, limits, the views and actions of an operator, and their lines in the audit log.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import WebSocket from 'ws';
import { ADMIN_KEY, admin, startWithAdmin, tokenOf } from '../harness/admin.ts';
import { Operator, shownKey, signIn } from '../harness/admin-page.ts';
import { C, connect } from '../harness/client.ts';
import { post, url } from '../harness/http.ts';
import { fresh } from '../harness/names.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { Inbox, eventually } from '../harness/wait.ts';

const RULES = `
record:
  "*": { create: true, read: "user.data.role === 'reader'", write: "user.id === 'alice'", delete: false, listen: false }
  "of/$owner/*": { read: "_('owners').name === $owner" }
event:
  "*": { publish: "user.id === 'alice'", subscribe: true, listen: false }
rpc:
  "*": { provide: true, request: true }
presence:
  "*": { allow: true }
`;

/** Whether the audit log has a line with this action whose subject contains `about`. */
function audited(server: Server, action: string, about = ''): boolean {
  const lines = server.output.split('\n').filter((line) => line.includes('"target":"audit"'));
  return lines.some((line) => {
    const fields = JSON.parse(line) as { action: string; about?: string; name?: string; session: string };
    return fields.action === action && JSON.stringify([fields.about, fields.name]).includes(about);
  });
}

describe('the admin page', { concurrency: 4, skip: againstOriginal }, () => {
  test('is off without a key, except in development mode, where the first screen shows a key', async (t) => {
    const development = await Server.during(t);
    const key = await shownKey(development);
    assert.ok(key.length >= 32);
    assert.equal((await signIn(development, key)).status, 201);
    assert.equal(development.output.split(key).length, 2, 'the server prints the key once');
    await development.stop();
    await development.start();
    const keys = (): string[] => [...development.output.matchAll(/\/admin\/#key=([\w-]+)/g)].map((found) => found[1] as string);
    await eventually(() => new Set(keys()).size === 2, 'another start makes another key');
    const auth = { chain: ['jwt'], jwt: { secret: 'a secret that is long enough for HMAC' } };
    const off = await Server.during(t, { auth });
    assert.equal((await off.get('/admin/api/session')).status, 404);
    assert.ok(!off.output.includes('admin page'));
    const unwanted = await startWithAdmin(t, { admin: { page: false } });
    assert.equal((await signIn(unwanted, ADMIN_KEY)).status, 404);
  });

  test('exchanges the key for a cookie that only the admin page receives, and changes need a token', async (t) => {
    const server = await startWithAdmin(t);
    const answer = await signIn(server, ADMIN_KEY);
    const cookie = answer.headers.get('set-cookie') ?? '';
    assert.match(cookie, /^tidewire-admin=[\w-]{40,}; Path=\/admin; Max-Age=43200; HttpOnly; SameSite=Strict$/);
    const secure = await signIn(server, ADMIN_KEY, { origin: `https://${server.address}` });
    assert.match(secure.headers.get('set-cookie') ?? '', /; Secure$/);
    assert.equal((await server.get('/admin/api/figures')).status, 401);
    const operator = await Operator.of(server, ADMIN_KEY);
    assert.equal((await operator.fetch('GET', '/figures')).status, 200);
    const refusals = [
      await operator.fetch('PUT', '/records/r', { a: 1 }, { 'x-admin-token': '' }),
      await operator.fetch('PUT', '/records/r', { a: 1 }, { 'x-admin-token': (await Operator.of(server, ADMIN_KEY)).token }),
      await operator.fetch('POST', '/v1/revocations', { user: 'alice' }, { 'x-admin-token': 'x' }),
      await operator.fetch('DELETE', '/session', undefined, { 'x-admin-token': '' }),
    ];
    for (const refusal of refusals) assert.deepEqual([refusal.status, ((await refusal.json()) as any).error.code], [403, 'TOKEN']);
    assert.equal((await operator.fetch('PUT', '/records/r', { a: 1 })).status, 201);
    const out = await operator.fetch('DELETE', '/session');
    assert.equal(out.status, 204);
    assert.match(out.headers.get('set-cookie') ?? '', /^tidewire-admin=; Path=\/admin; Max-Age=0;/);
    assert.equal((await operator.fetch('GET', '/figures')).status, 401);
    assert.ok(!server.output.includes(operator.cookie.split('=')[1] as string) && !server.output.includes(ADMIN_KEY));
  });

  test('refuses requests from all other pages, also from pages of allowed origins', async (t) => {
    const server = await startWithAdmin(t, { origins: ['https://app.example.com'] });
    const operator = await Operator.of(server, ADMIN_KEY);
    const foreign: Array<Record<string, string>> = [
      { origin: 'https://app.example.com' },
      { origin: `http://127.0.0.1:${server.port + 1}` },
      { 'sec-fetch-site': 'same-site' },
      { 'sec-fetch-site': 'cross-site' },
    ];
    for (const headers of foreign) {
      const answer = await operator.fetch('GET', '/figures', undefined, headers);
      assert.deepEqual([answer.status, answer.headers.get('access-control-allow-origin')], [403, null], JSON.stringify(headers));
    }
    const own: Array<Record<string, string>> = [{ origin: `http://${server.address}` }, { 'sec-fetch-site': 'same-origin' }, { 'sec-fetch-site': 'none' }];
    for (const headers of own) {
      assert.equal((await operator.fetch('GET', '/figures', undefined, headers)).status, 200, JSON.stringify(headers));
    }
  });

  test('limits wrong keys by address, and says when to retry', async (t) => {
    const server = await startWithAdmin(t, { admin: { wrong_keys_max: 3 }, trustedProxies: ['127.0.0.1'] });
    const from = (address: string, key: string): Promise<Response> => signIn(server, key, { 'x-forwarded-for': address });
    for (let count = 0; count < 3; count++) assert.equal((await from('192.0.2.1', 'wrong')).status, 401);
    for (const key of ['wrong', ADMIN_KEY]) {
      const answer = await from('192.0.2.1', key);
      assert.deepEqual([answer.status, ((await answer.json()) as any).error.code], [429, 'TOO_MANY_ATTEMPTS']);
      const seconds = Number(answer.headers.get('retry-after'));
      assert.ok(seconds > 0 && seconds <= 61, String(seconds));
    }
    assert.equal((await from('192.0.2.2', ADMIN_KEY)).status, 201, 'wrong keys from one address do not block another');
    await eventually(() => audited(server, 'wrong key'), 'the audit log has the wrong key');
  });

  test('ends the oldest session beyond the limit, and the connection that was opened with its ticket', async (t) => {
    const server = await startWithAdmin(t, { admin: { sessions_max: 1 } });
    const first = await Operator.of(server, ADMIN_KEY);
    const { login } = await first.ask('POST', '/ticket');
    const client = await connect(t, server, { login, errors: ['TOO_MANY_AUTH_ATTEMPTS', 'IS_CLOSED', 'CONNECTION_ERROR'] });
    const second = await Operator.of(server, ADMIN_KEY);
    await eventually(() => client.getConnectionState() !== C.CONNECTION_STATE.OPEN, 'its connection has ended');
    assert.equal((await first.fetch('GET', '/figures')).status, 401);
    assert.equal((await second.fetch('GET', '/figures')).status, 200);
  });

  test('explains the error in a request', async (t) => {
    const server = await Server.during(t);
    const operator = await Operator.of(server);
    const cases: Array<[string, string, unknown, number, string]> = [
      ['GET', '/nowhere', undefined, 404, 'NOT_FOUND'],
      ['POST', '/figures', undefined, 405, 'METHOD_NOT_ALLOWED'],
      ['GET', '/ticket', undefined, 405, 'METHOD_NOT_ALLOWED'],
      ['GET', '/connections?sort=age', undefined, 400, 'INVALID_REQUEST'],
      ['GET', '/connections?count=0', undefined, 400, 'INVALID_REQUEST'],
      ['GET', '/connections/x', undefined, 400, 'INVALID_REQUEST'],
      ['GET', '/connections/0.999999.0', undefined, 404, 'NOT_FOUND'],
      ['GET', '/topics?sort=age', undefined, 400, 'INVALID_REQUEST'],
      ['GET', '/topics?kind=x', undefined, 400, 'INVALID_REQUEST'],
      ['GET', '/topics?prefix=%', undefined, 400, 'INVALID_REQUEST'],
      ['POST', '/rules/explain', { rule: 'record.read' }, 400, 'INVALID_REQUEST'],
      ['POST', '/rules/explain', { rule: 'record.read', name: 'r', user: 'u' }, 409, 'NO_RULES'],
      ['POST', '/commands?user=u&userData=x', { body: [] }, 400, 'INVALID_REQUEST'],
      ['POST', '/v1/revocations', {}, 400, 'INVALID_REQUEST'],
      ['POST', '/rules/explain', 'x'.repeat(1_100_000), 413, 'TOO_LARGE'],
    ];
    for (const [method, path, body, status, code] of cases) {
      const answer = await operator.fetch(method, path, body);
      assert.deepEqual([answer.status, ((await answer.json()) as any).error?.code], [status, code], `${method} ${path}`);
    }
    const large = await fetch(url(server, '/admin/api/session'), { method: 'POST', body: `{"key":"${'x'.repeat(5_000)}"}` });
    assert.equal(large.status, 413);
  });

  test('lists the connected sessions by column, with protocol, bytes and outbox, and shows one of them', async (t) => {
    const server = await startWithAdmin(t);
    const client = await connect(t, server, { login: { token: tokenOf(server, 'alice') } });
    client.event.subscribe('news', () => {});
    await client.presence.getAll();
    const json = new WebSocket(`ws://${server.address}/deepstream-json`);
    await new Promise((done) => json.once('open', done));
    const operator = await Operator.of(server, ADMIN_KEY);
    const all = async (query = ''): Promise<any[]> => (await operator.ask('GET', `/connections?${query}`)).connections;
    const rows = await all();
    const [alice] = rows.filter(({ user }) => user === 'alice');
    assert.deepEqual([alice.protocol, alice.operator, alice.lagging, alice.subscriptions], ['deepstream', false, false, 1]);
    assert.ok(alice.bytesIn > 0 && alice.bytesOut > 0 && /^127\.0\.0\.1:\d+$/.test(alice.address), JSON.stringify(alice));
    assert.equal(rows.filter(({ protocol, user }) => protocol === 'deepstream-json' && user === null).length, 1);
    assert.deepEqual((await all('search=ALI')).map(({ id }) => id), [alice.id]);
    assert.deepEqual(await all('slow=1'), []);
    const ids = async (query: string): Promise<string[]> => (await all(query)).map(({ id }) => id);
    const rising = await ids('sort=bytesIn');
    assert.deepEqual(await ids('sort=-bytesIn'), rising.toReversed());
    assert.deepEqual(await ids('sort=bytesIn&offset=1&count=1'), rising.slice(1, 2));
    const { total, complete } = await operator.ask('GET', '/connections?offset=50');
    assert.deepEqual([total, complete], [rising.length, true]);
    const one = await operator.ask('GET', `/connections/${alice.id}`);
    assert.deepEqual([one.user, one.address], ['alice', alice.address]);
    client.close();
    await eventually(async () => (await operator.fetch('GET', `/connections/${alice.id}`)).status === 404, 'the connection has ended');
    json.close();
  });

  test('shows sessions that do not read', async (t) => {
    const server = await Server.during(t);
    const slow = await connect(t, server, { login: {}, errors: ['IS_CLOSED', 'CONNECTION_ERROR'] });
    const name = fresh('event');
    slow.event.subscribe(name, () => {});
    await slow.presence.getAll();
    const socket = (slow as any).services.connection.endpoint.socket ?? (slow as any).services.connection.endpoint;
    socket._socket.pause();
    const operator = await Operator.of(server);
    const payload = 'x'.repeat(100_000);
    await eventually(async () => {
      await operator.command({ topic: 'event', action: 'emit', eventName: name, data: payload });
      const { connections } = await operator.ask('GET', '/connections?slow=1');
      return connections.some(({ outboxBytes }: { outboxBytes: number }) => outboxBytes > 100_000);
    }, 'the page shows the session that does not read');
    socket._socket.resume();
  });

  test('shows counters that grow, and the store with its durability', async (t) => {
    const server = await Server.during(t);
    const operator = await Operator.of(server);
    const before = await operator.ask('GET', '/figures');
    assert.equal((await operator.fetch('PUT', `/records/${fresh('record')}`, { a: 1 })).status, 201);
    const after = await operator.ask('GET', '/figures');
    assert.ok(after.topics.messages_received.record > before.topics.messages_received.record);
    assert.ok(after.stores[0].store_commits > before.stores[0].store_commits);
    assert.match(after.stores[0].promise, /synced/);
    assert.ok(after.residentBytes > 1_000_000 && after.ready && after.at >= before.at);
    assert.equal(after.turns.counts.length, after.turns.upTo.length + 1);
    const count = (figures: any): number => figures.turns.counts.reduce((sum: number, turns: number) => sum + turns, 0);
    assert.ok(count(after) > count(before));
    const text = await (await server.get('/metrics')).text();
    assert.match(text, /^tidewire_turn_seconds_bucket\{le="0.001"\} \d+$/m);
    assert.match(text, /^tidewire_turn_seconds_bucket\{le="\+Inf"\} \d+$/m);
  });

  test('sums the subscribers of each name over all shards, and lists the names with the most subscribers first', async (t) => {
    const server = await Server.during(t);
    const [few, many] = [fresh('few'), fresh('many')];
    for (let count = 0; count < 6; count++) {
      const client = await connect(t, server, { login: {} });
      client.event.subscribe(many, () => {});
      if (count < 2) client.record.getRecord(few);
      await client.presence.getAll();
    }
    const operator = await Operator.of(server);
    await eventually(async () => {
      const { topics, complete } = await operator.ask('GET', '/topics');
      const found = topics.filter(({ name }: { name: string }) => [few, many].includes(name));
      const expected = [{ kind: 'event', name: many, subscribers: 6 }, { kind: 'record', name: few, subscribers: 2 }];
      return complete && JSON.stringify(found) === JSON.stringify(expected.map(({ kind, name, subscribers }) => ({ kind, name, subscribers })));
    }, 'both names are counted');
    const { topics, total } = await operator.ask('GET', `/topics?kind=record&prefix=${few.slice(0, 3)}`);
    assert.deepEqual([topics.length, total], [1, 1]);
  });

  test("lists records by prefix in pages, and never lists the server's internal records", async (t) => {
    const auth = { chain: ['store', 'open'] };
    const server = await Server.during(t, { auth, adminKey: ADMIN_KEY, stores: { side: { kind: 'memory', prefixes: ['p/07'] } } });
    assert.equal((await admin(server, 'PUT', '/users/alice', { password: 'correct horse battery' }))[0], 201);
    const names = Array.from({ length: 120 }, (_, index) => `p/${String(index).padStart(3, '0')}`);
    const commands = names.map((recordName) => ({ topic: 'record', action: 'write', recordName, data: { recordName } }));
    assert.equal((await post(server, '/api', { body: commands })).status, 200);
    const operator = await Operator.of(server, ADMIN_KEY);
    const browse = async (prefix: string): Promise<any[]> => {
      const rows: any[] = [];
      let after: string | null = '';
      while (after !== null) {
        const page: any = await operator.ask('GET', `/records?prefix=${encodeURIComponent(prefix)}&after=${encodeURIComponent(after)}`);
        rows.push(...page.records);
        after = page.next;
      }
      return rows;
    };
    await eventually(async () => (await browse('')).length === names.length, 'all records are committed');
    const rows = await browse('');
    assert.deepEqual(rows.map(({ name }) => name), names);
    assert.deepEqual(rows[70], { name: 'p/070', version: 1, bytes: 22 });
    assert.deepEqual((await browse('p/11')).map(({ name }) => name), names.slice(110));
    assert.deepEqual(await browse('\u0001'), []);
    assert.equal((await operator.fetch('GET', '/records/%01user%2Falice')).status, 400);
  });

  test('reads and edits a record through the engine, with its version, independent of the rules', async (t) => {
    const server = await Server.during(t, { permissions: RULES, auth: { chain: ['open'] }, adminKey: ADMIN_KEY });
    const operator = await Operator.of(server, ADMIN_KEY);
    const name = `${fresh('record')}/<img src=x onerror=alert(1)>`;
    const path = `/records/${encodeURIComponent(name)}`;
    assert.equal((await fetch(url(server, path))).status, 403, 'the rules deny the read to users');
    assert.equal((await operator.fetch('PUT', path, { a: 1 })).status, 201);
    const read = await operator.fetch('GET', path);
    assert.deepEqual(await read.json(), { a: 1 });
    const tag = read.headers.get('etag') as string;
    assert.equal((await operator.fetch('PUT', path, { a: 2 }, { 'if-match': tag })).status, 204);
    assert.equal((await operator.fetch('PUT', path, { a: 3 }, { 'if-match': tag })).status, 412, 'another write came first');
    const { login } = await operator.ask('POST', '/ticket');
    const client = await connect(t, server, { login });
    const seen = new Inbox<unknown>('values');
    client.record.getRecord(name).subscribe(seen.push, true);
    assert.deepEqual(await seen.find((value) => (value as any)?.a === 2), { a: 2 });
    assert.equal((await operator.fetch('DELETE', path)).status, 204);
    const shown = name.slice(0, 8);
    await eventually(() => audited(server, 'record.read', shown) && audited(server, 'record.write', shown) && audited(server, 'record.delete', shown), 'the audit log has all of it');
    assert.ok(!server.output.includes('"a":'), 'the log has no values');
  });

  test('publishes events and makes rpcs, as an operator or as a user under the rules', async (t) => {
    const server = await Server.during(t, { permissions: RULES, auth: { chain: ['open'] }, adminKey: ADMIN_KEY });
    const operator = await Operator.of(server, ADMIN_KEY);
    const client = await connect(t, server, { login: {} });
    const [event, rpc] = [fresh('event'), fresh('rpc')];
    const seen = new Inbox<unknown>('events');
    client.event.subscribe(event, seen.push);
    client.rpc.provide(rpc, (data: any, response: any) => response.send(data.a + data.b));
    await client.presence.getAll();
    const emit = { topic: 'event', action: 'emit', eventName: event };
    const emits = (data: string, query = ''): Promise<boolean> => eventually(async () => {
      assert.equal((await operator.command({ ...emit, data }, query)).success, true);
      return seen.seen.includes(data);
    }, `the event of ${data} arrives`);
    await emits('operator');
    await emits('alice', '?user=alice');
    assert.equal((await operator.command({ ...emit, data: 'bob' }, '?user=bob')).success, false);
    const call = { topic: 'rpc', action: 'make', rpcName: rpc, data: { a: 2, b: 3 } };
    await eventually(async () => (await operator.command(call)).data === 5, 'the provider answers');
    const read = { topic: 'record', action: 'read', recordName: 'r' };
    assert.equal((await operator.fetch('PUT', '/records/r', { a: 1 })).status, 201);
    assert.equal((await operator.command(read, '?user=bob')).success, false);
    const reader = `?user=bob&userData=${encodeURIComponent('{"role":"reader"}')}`;
    assert.deepEqual((await operator.command(read, reader)).data, { a: 1 });
    await eventually(() => audited(server, 'act as', 'bob') && audited(server, 'event.emit', event), 'the audit log names the user');
    await connect(t, server, { login: (await operator.ask('POST', '/ticket')).login });
    assert.deepEqual(await operator.command({ topic: 'presence', action: 'query' }), { success: true, users: ['open'] }, 'an operator is not online');
  });

  test('explains which rule decides, with the current records', async (t) => {
    const server = await Server.during(t, { permissions: RULES, auth: { chain: ['open'] }, adminKey: ADMIN_KEY });
    const operator = await Operator.of(server, ADMIN_KEY);
    const { kind, text, problems } = await operator.ask('GET', '/rules');
    assert.deepEqual([kind, text, problems], ['file', RULES, []]);
    const explain = (question: object): Promise<any> => operator.ask('POST', '/rules/explain', question);
    const denied = await explain({ rule: 'record.write', name: 'r', user: 'bob' });
    assert.equal(denied.outcome, 'denied');
    assert.match(denied.rule, /permissions\.yml:3:\d+ "\*" write: user\.id === 'alice'/);
    assert.equal((await explain({ rule: 'record.write', name: 'r', user: 'alice' })).outcome, 'allowed');
    assert.equal((await explain({ rule: 'record.read', name: 'r', user: 'bob', userData: { role: 'reader' } })).outcome, 'allowed');
    const owned = { rule: 'record.read', name: 'of/alice/1', user: 'bob' };
    assert.notEqual((await explain(owned)).outcome, 'allowed');
    assert.equal((await operator.fetch('PUT', '/records/owners', { name: 'alice' })).status, 201);
    const allowed = await explain(owned);
    assert.deepEqual([allowed.outcome, allowed.reads], ['allowed', ['owners']]);
    server.setPermissions('record: [');
    const wrong = await operator.fetch('POST', '/rules/explain', owned);
    assert.deepEqual([wrong.status, ((await wrong.json()) as any).error.code], [409, 'RULES_WRONG']);
  });

  test('revokes a user and lifts the revocation, as the admin API does', async (t) => {
    const server = await startWithAdmin(t);
    const errors = ['TOO_MANY_AUTH_ATTEMPTS', 'IS_CLOSED', 'CONNECTION_ERROR'];
    const client = await connect(t, server, { login: { token: tokenOf(server, 'mallory') }, errors });
    const operator = await Operator.of(server, ADMIN_KEY);
    assert.equal((await operator.ask('POST', '/v1/revocations', { user: 'mallory' })).name, 'mallory');
    await eventually(() => client.getConnectionState() !== C.CONNECTION_STATE.OPEN, 'the session has ended');
    assert.equal((await operator.ask('GET', '/v1/revocations')).revocations.length, 1);
    assert.equal((await operator.fetch('DELETE', '/v1/revocations/user/mallory')).status, 204);
    await eventually(() => audited(server, 'admin api', 'POST /admin/v1/revocations'), 'the audit log has it');
  });

  test('accepts each ticket once, and refuses logins with a wrong ticket', async (t) => {
    const server = await startWithAdmin(t);
    const operator = await Operator.of(server, ADMIN_KEY);
    const { login } = await operator.ask('POST', '/ticket');
    await connect(t, server, { login });
    for (const wrong of [login, { adminTicket: 'x' }, { adminTicket: null }, { ...login, token: tokenOf(server, 'alice') }]) {
      const client = await connect(t, server, { login: false, errors: ['IS_CLOSED', 'CONNECTION_ERROR'] });
      const answer = new Promise((done) => client.login(wrong, (success: boolean, data: unknown) => done(JSON.stringify([success, data]))));
      assert.equal(await answer, '[false,{"reason":{"error":"TICKET_INVALID"}}]');
    }
  });
});
