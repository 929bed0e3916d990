// `GET /records` with `Accept: text/event-stream`: live queries as server-sent events. Results with their changes, rights, slow readers,
// tickets, refusals, and the end of the server.

import assert from 'node:assert/strict';
import { connect as connectSocket } from 'node:net';
import { after, before, describe, test, type TestContext } from 'node:test';
import { post, url } from '../harness/http.ts';
import { openStream, type EventStream, type Piece } from '../harness/event-stream.ts';
import { fresh } from '../harness/names.ts';
import { PERMISSIONS, basic, put, queryPath, remove, type Parameters, type Row } from '../harness/queries.ts';
import { Random } from '../harness/random.ts';
import { Server } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { eventually } from '../harness/wait.ts';

type Change = { type: 'removed'; id: string } | { type: 'added' | 'changed'; index: number; row: Row };

const STREAM = { accept: 'text/event-stream' };

/** The rows after all pieces of a stream. Each change must fit to the rows before it. */
function rowsOf(pieces: Piece[]): Row[] {
  let rows: Row[] | undefined;
  for (const { event, data } of pieces) {
    if (event === 'rows') rows = [...data.rows];
    if (event !== 'changes') continue;
    assert.ok(rows, 'changes follow rows');
    for (const change of data as Change[]) {
      const place = rows.findIndex(({ id }) => id === (change.type === 'removed' ? change.id : change.row.id));
      assert.equal(place >= 0, change.type !== 'added', JSON.stringify(change));
      if (place >= 0) rows.splice(place, 1);
      if (change.type === 'removed') continue;
      assert.ok(change.index >= 0 && change.index <= rows.length, JSON.stringify(change));
      rows.splice(change.index, 0, change.row);
    }
  }
  return rows ?? [];
}

/** The rows without versions: in a live result, the version is that of the write that last changed the selected part. */
function shown(rows: Row[]): string {
  return JSON.stringify(rows.map(({ id, data }) => [id, data]));
}

const EVEN = { where: { even: true }, sort: { n: -1 }, limit: 2 };

describe('live queries as server-sent events', { concurrency: 4 }, () => {
  let server: Server;
  before(async () => {
    const password = hashPassword('pw');
    server = await Server.start({
      permissions: PERMISSIONS,
      users: { ann: { password }, eve: { password }, root: { password } },
      limits: { query_result_bytes_max: 4_000 },
    });
  });
  after(() => server.dispose());

  const follow = (t: TestContext, parameters: Parameters, user = 'root'): Promise<EventStream> => {
    return openStream(t, url(server, queryPath(parameters)), { ...STREAM, ...basic(user) });
  };
  const find = async (parameters: Parameters, user = 'root', at = server): Promise<Row[]> => {
    const answer = await fetch(url(at, queryPath(parameters)), { headers: basic(user) });
    assert.equal(answer.status, 200, await answer.clone().text());
    return ((await answer.json()) as { rows: Row[] }).rows;
  };
  const ids = ({ pieces }: EventStream): string[] => rowsOf(pieces.seen).map(({ id }) => id);

  test('a stream has the result, and then each change of it', async (t) => {
    const collection = fresh('cards');
    for (let n = 0; n < 4; n += 1) await put(server, `${collection}/${n}`, { n, even: n % 2 === 0 });
    const stream = await follow(t, { collection, ...EVEN });
    assert.equal(stream.answer.status, 200);
    assert.deepEqual(
      ['content-type', 'cache-control', 'x-accel-buffering'].map((name) => stream.answer.headers.get(name)),
      ['text/event-stream', 'no-store, no-transform', 'no'],
    );
    assert.match(stream.answer.headers.get('vary') ?? '', /accept/i);
    assert.equal(await stream.comments.next(), 'connected');
    const row = (id: string, n: number, version = 1): Row => ({ id, version, data: { n, even: true } });
    assert.deepEqual(await stream.pieces.next(), { event: 'rows', data: { rows: [row('2', 2), row('0', 0)] } });
    await put(server, `${collection}/5`, { n: 1, even: true });
    const entered: Change[] = [{ type: 'removed', id: '0' }, { type: 'added', index: 1, row: row('5', 1) }];
    assert.deepEqual(await stream.pieces.next(), { event: 'changes', data: entered });
    await put(server, `${collection}/5`, { n: 9, even: true });
    assert.deepEqual(await stream.pieces.next(), { event: 'changes', data: [{ type: 'changed', index: 0, row: row('5', 9, 2) }] });
    await put(server, `${collection}/1`, { n: 1, even: false });
    await remove(server, `${collection}/5`);
    await stream.pieces.until(() => ids(stream).join() === '2,0');
    await put(server, `${collection}/2`, { text: 'a\nb', even: true, n: 2 });
    await stream.pieces.until((seen) => rowsOf(seen)[0]?.data.text === 'a\nb');
  });

  test('the result of random writes is that of the same query, evaluated once', async (t) => {
    const collection = fresh('random');
    const queries: Parameters[] = [
      { where: { a: { $gte: 1 } }, sort: { b: -1 }, limit: 3 },
      { sort: ['a', 'b'], offset: 2, limit: 4, select: ['a'] },
      { where: { $or: [{ a: 0 }, { b: { $exists: false } }] } },
    ];
    const streams = await Promise.all(queries.map((query) => follow(t, { collection, ...query })));
    const random = new Random(7);
    for (let round = 0; round < 6; round += 1) {
      for (let step = 0; step < 20; step += 1) {
        const name = `${collection}/${random.below(12)}`;
        if (random.once(5)) await fetch(url(server, `/records/${name}`), { method: 'DELETE', headers: basic('root') });
        else await put(server, name, { a: random.below(3), ...(!random.once(4) && { b: random.below(5) }) });
      }
      for (const [index, stream] of streams.entries()) {
        const full = shown(await find({ collection, ...queries[index] }));
        await stream.pieces.until((seen) => shown(rowsOf(seen)) === full);
      }
    }
  });

  test('a record enters and leaves with the right to read it', async (t) => {
    await put(server, 'notes/1', { owner: 'eve' });
    const stream = await follow(t, { collection: 'notes', sort: { n: 1 } }, 'ann');
    assert.deepEqual(await stream.pieces.next(), { event: 'rows', data: { rows: [] } });
    await put(server, 'notes/1', { owner: 'eve', n: 1 });
    await put(server, 'notes/1', { owner: 'ann', n: 2 });
    const row = { id: '1', version: 3, data: { owner: 'ann', n: 2 } };
    assert.deepEqual(await stream.pieces.next(), { event: 'changes', data: [{ type: 'added', index: 0, row }] });
    await put(server, 'notes/1', { owner: 'eve', n: 3 });
    assert.deepEqual(await stream.pieces.next(), { event: 'changes', data: [{ type: 'removed', id: '1' }] });
    assert.equal(stream.pieces.seen.length, 3);
  });

  test('new rules change the result', async (t) => {
    const own = await Server.during(t, { permissions: PERMISSIONS.replace("user.id === 'root'", 'true') });
    await put(own, 'notes/1', { owner: 'eve' });
    const stream = await openStream(t, url(own, queryPath({ collection: 'notes' })), STREAM);
    assert.equal((await stream.pieces.next()).data.rows.length, 1);
    own.setPermissions(PERMISSIONS);
    await stream.pieces.until((seen) => rowsOf(seen).length === 0);
    own.setPermissions(PERMISSIONS.replace("oldData !== null && (oldData.owner === user.id || user.id === 'root')", "_('a') !== null"));
    const refused = await stream.pieces.find(({ event }) => event === 'refused');
    assert.deepEqual([refused.data.status, refused.data.code], [422, 'QUERY_RULE']);
  });

  test('a ticket opens one stream', async (t) => {
    const login = await post(server, '/api/auth', { username: 'ann', password: 'pw' });
    const { ticket } = (await login.json()) as { ticket: string };
    assert.equal(typeof ticket, 'string');
    const path = queryPath({ collection: fresh('empty'), ticket });
    const stream = await openStream(t, url(server, path), STREAM);
    assert.deepEqual(await stream.pieces.next(), { event: 'rows', data: { rows: [] } });
    assert.equal((await openStream(t, url(server, path), STREAM)).answer.status, 401);
    assert.equal((await fetch(url(server, path))).status, 400, 'a query that is evaluated once has no ticket');
  });

  test('refusals are answers before the first result, and events after it', async (t) => {
    const refused = async (parameters: Parameters): Promise<[number, unknown, unknown]> => {
      const { answer } = await follow(t, parameters);
      assert.equal(answer.headers.get('content-type'), 'application/problem+json');
      const { status, code, at } = (await answer.json()) as Record<string, unknown>;
      assert.equal(status, answer.status);
      return [answer.status, code, at];
    };
    assert.deepEqual(await refused({ collection: 'a', where: { a: { $gt: [1] } } }), [400, 'INVALID_QUERY', '/where/a/$gt']);
    assert.deepEqual(await refused({ collection: 'a', limit: 1_001 }), [400, 'INVALID_QUERY', '/limit']);
    assert.deepEqual(await refused({ collection: 'a', count: 'true' }), [400, 'INVALID_QUERY', '']);
    assert.deepEqual(await refused({ where: {} }), [400, 'INVALID_QUERY', '']);
    assert.deepEqual(await refused({ collection: 'gated' }), [422, 'QUERY_RULE', undefined]);
    assert.equal((await openStream(t, url(server, queryPath({ collection: 'a' })), STREAM)).answer.status, 401);
    const collection = fresh('growing');
    const stream = await follow(t, { collection });
    for (let n = 0; n < 40; n += 1) await put(server, `${collection}/${n}`, { text: 'x'.repeat(1_000) });
    const end = await stream.pieces.find(({ event }) => event === 'refused');
    assert.deepEqual([end.data.status, end.data.code], [422, 'QUERY_TOO_LARGE']);
    assert.match(end.data.detail, /limits\.query_result_bytes_max/);
    assert.deepEqual((await refused({ collection })).slice(0, 2), [422, 'QUERY_TOO_LARGE']);
  });

  test('a client that reads slowly gets the whole result later', async (t) => {
    const limits = { outbox_bytes_max: 1 << 20, outbox_lagging_bytes: 64 << 10, outbox_drained_bytes: 16 << 10 };
    const own = await Server.during(t, { limits });
    const socket = connectSocket(own.port, '127.0.0.1');
    t.after(() => socket.destroy());
    let text = '';
    socket.on('data', (bytes) => (text += bytes.toString('latin1')));
    socket.write('GET /records?collection=slow HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n');
    await eventually(() => text.includes('"rows":[]'), 'the stream is open');
    socket.pause();
    // More than the buffers of both sockets hold.
    for (let n = 0; n < 150; n += 1) await put(own, 'slow/1', { n, text: 'x'.repeat(100_000) });
    await put(own, 'slow/1', { last: true });
    socket.resume();
    await eventually(() => /event: rows\n.*\n\n[^]*event: rows\n.*"last":true/.test(text), 'the whole result arrives again');
    assert.ok((text.match(/event: changes/g)?.length ?? 0) < 150, 'it has missed changes');
    assert.equal(await own.metric('tidewire_slow_disconnects_total'), 0);
  });

  test('a stream ends with the server, and begins again after it', async (t) => {
    const own = await Server.during(t, {});
    await put(own, 'cards/1', { n: 1 });
    const stream = await openStream(t, url(own, queryPath({ collection: 'cards' })), STREAM);
    const [first] = await stream.pieces.count(1);
    await own.stop();
    assert.equal((await stream.pieces.count(2))[1]?.event, 'end');
    await own.start();
    const again = await openStream(t, url(own, queryPath({ collection: 'cards' })), STREAM);
    assert.deepEqual(await again.pieces.next(), first);
  });
});
