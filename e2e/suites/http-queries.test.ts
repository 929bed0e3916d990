// `GET /records`: queries over HTTP, on stored and unsaved records, with rights, limits and refusals.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { url } from '../harness/http.ts';
import { fresh } from '../harness/names.ts';
import { PERMISSIONS, basic, put, queryPath, remove, type Parameters, type Row } from '../harness/queries.ts';
import { Server } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';

interface Found {
  rows: Row[];
  count?: number;
}

describe('http queries', { concurrency: 4 }, () => {
  let server: Server;
  before(async () => {
    const password = hashPassword('pw');
    server = await Server.start({
      permissions: PERMISSIONS,
      users: { ann: { password }, eve: { password }, root: { password } },
      limits: { query_reads_max: 200, query_result_bytes_max: 4_000 },
    });
  });
  after(() => server.dispose());

  const ask = (parameters: Parameters, user = 'root', method = 'GET'): Promise<Response> => {
    return fetch(url(server, queryPath(parameters)), { method, headers: basic(user) });
  };
  const find = async (parameters: Parameters, user?: string): Promise<Found> => {
    const answer = await ask(parameters, user);
    assert.equal(answer.status, 200, await answer.clone().text());
    assert.equal(answer.headers.get('content-type'), 'application/json');
    assert.equal(answer.headers.get('cache-control'), 'no-store');
    return (await answer.json()) as Found;
  };
  const ids = ({ rows }: Found): string[] => rows.map(({ id }) => id);

  test('the records of a collection are selected, ordered and counted', async () => {
    const collection = fresh('cards');
    for (let n = 0; n < 6; n += 1) await put(server, `${collection}/${n}`, { n, even: n % 2 === 0 });
    await put(server, `${collection}/1/note`, { n: 100 });
    assert.deepEqual(ids(await find({ collection })), ['0', '1', '2', '3', '4', '5']);
    const page = await find({ collection, where: { even: true }, sort: { n: -1 }, offset: 1, limit: 1, count: 'true', select: ['n'] });
    assert.deepEqual(page, { rows: [{ id: '2', version: 1, data: { n: 2 } }], count: 3 });
    await remove(server, `${collection}/4`);
    await put(server, `${collection}/1`, { n: 9, even: true });
    assert.deepEqual(ids(await find({ collection, where: { even: true }, sort: ['n'] })), ['0', '2', '1']);
    assert.deepEqual(await find({ collection: fresh('nothing'), count: 'true' }), { rows: [], count: 0 });
    const head = await ask({ collection }, 'root', 'HEAD');
    assert.deepEqual([head.status, await head.text()], [200, '']);
  });

  test('records are found after a restart', async (t) => {
    const other = await Server.start();
    t.after(() => other.dispose());
    const all = (): Promise<Found> => fetch(url(other, '/records?collection=kept&count=true')).then(async (answer) => (await answer.json()) as Found);
    const headers = { 'content-type': 'application/json' };
    for (let n = 0; n < 200; n += 1) {
      const answer = await fetch(url(other, `/records/kept/${n}`), { method: 'PUT', headers, body: `{"n":${n}}` });
      assert.equal(answer.status, 201);
    }
    const before = await all();
    assert.equal(before.count, 200);
    await other.stop();
    await other.start();
    assert.deepEqual(await all(), before);
  });

  test('a user finds only the records that the rules allow', async () => {
    for (let n = 0; n < 8; n += 1) await put(server, `notes/${n}`, { n: n % 4, owner: n < 4 ? 'ann' : 'eve' });
    const query = { collection: 'notes', sort: { n: -1 }, offset: 1, limit: 2, count: 'true' };
    assert.deepEqual(ids(await find(query, 'ann')), ['2', '1']);
    assert.deepEqual(ids(await find(query, 'eve')), ['6', '5']);
    assert.equal((await find(query, 'ann')).count, 4);
    assert.equal((await find(query, 'root')).count, 8);
    for (const where of [{ owner: 'eve' }, { owner: { $ne: 'ann' } }, '"5"']) {
      assert.deepEqual(await find({ collection: 'notes', where, count: 'true' }, 'ann'), { rows: [], count: 0 }, JSON.stringify(where));
    }
  });

  test('a rule that reads another record decides for each record', async () => {
    for (const id of ['a', 'b', 'c']) await put(server, `gated/${id}`, { id });
    assert.deepEqual(ids(await find({ collection: 'gated' })), []);
    await put(server, 'gate/b', {});
    assert.deepEqual(ids(await find({ collection: 'gated' })), ['b']);
  });

  const refused = async (query: string, user = 'root'): Promise<Record<string, unknown>> => {
    const answer = await fetch(url(server, `/records?${query}`), { headers: basic(user) });
    assert.equal(answer.headers.get('content-type'), 'application/problem+json');
    const body = (await answer.json()) as Record<string, unknown>;
    assert.equal(body.status, answer.status);
    return body;
  };

  test('faults of a query are refused with their place', async () => {
    const cases: Array<[query: string, at: string, fault: string, detail: RegExp]> = [
      ['', '', 'bad-collection', /^parameter collection is missing/],
      ['collection=', '', 'bad-collection', /^collection is not the name/],
      ['collection=a/', '', 'bad-collection', /^collection is not the name/],
      ['collection=a&were={}', '', 'malformed', /^parameter "were" is unknown/],
      ['collection=a&where={a:1}', '/where', 'malformed', /^parameter where is not JSON at character 2/],
      ['collection=a&where={}%2C"limit":1', '/where', 'malformed', /^parameter where is not JSON/],
      ['collection=a&where={"a":{"%24gt":[1]}}', '/where/a/$gt', 'bad-operand', /./],
      ['collection=a&where={"a":{"%24where":"x"}}', '/where/a/$where', 'unknown-operator', /./],
      ['collection=a&where={"a":{"%24regex":"(?=x)"}}', '/where/a/$regex', 'bad-regex', /./],
      ['collection=a&sort={"a":2}', '/sort/a', 'bad-sort', /./],
      ['collection=a&limit=1001', '/limit', 'bad-limit', /1000/],
      ['collection=a&offset=-1', '/offset', 'bad-limit', /10000/],
      ['collection=a&select={"a":1,"b":0}', '/select/b', 'bad-projection', /./],
    ];
    for (const [query, at, fault, detail] of cases) {
      const body = await refused(query);
      assert.deepEqual([body.status, body.code, body.at, body.fault], [400, 'INVALID_QUERY', at, fault], `${query}: ${JSON.stringify(body)}`);
      assert.match(String(body.detail), detail, query);
    }
    assert.equal((await refused('collection=%')).code, 'INVALID_QUERY');
    const posted = await fetch(url(server, '/records?collection=a'), { method: 'POST', headers: basic('root') });
    assert.deepEqual([posted.status, posted.headers.get('allow')], [405, 'GET, HEAD, OPTIONS']);
    const anonymous = await fetch(url(server, '/records?collection=a'));
    assert.equal(anonymous.status, 401);
  });

  test('limits are refused by their names', async () => {
    const collection = fresh('large');
    for (let n = 0; n < 30; n += 1) await put(server, `${collection}/${n}`, { text: 'x'.repeat(200) });
    const result = await refused(`collection=${collection}`);
    assert.deepEqual([result.status, result.code], [422, 'QUERY_TOO_LARGE']);
    assert.match(String(result.detail), /limits\.query_result_bytes_max/);
    assert.equal((await find({ collection, limit: 10 })).rows.length, 10);
    assert.equal((await find({ collection, select: ['nothing'] })).rows.length, 30);
    for (let n = 30; n < 210; n += 1) await put(server, `${collection}/${n}`, {});
    const read = await refused(`collection=${collection}&limit=1`);
    assert.deepEqual([read.status, read.code], [422, 'QUERY_TOO_LARGE']);
    assert.match(String(read.detail), /limits\.query_reads_max/);
  });
});
