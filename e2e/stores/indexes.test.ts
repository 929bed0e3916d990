// Indexes of collections on the real server, in each store that keeps them: queries over HTTP and live ones use them, rights and unsaved
// writes included; a new index is built while the server works and survives `kill -9`; other stores refuse the option.

import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { Database } from '../harness/database.ts';
import { openStream } from '../harness/event-stream.ts';
import { url } from '../harness/http.ts';
import { PERMISSIONS, basic, put, queryPath, remove, type Parameters, type Row } from '../harness/queries.ts';
import { Server, type ServerOptions } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { eventually } from '../harness/wait.ts';

interface Found {
  rows: Row[];
  count?: number;
  explain: { index: string[] | null; entries?: number; records: number; warning?: string };
}

/** The stores that keep indexes. */
const STORES = ['sqlite', 'postgres', 'redis'] as const;
const INDEXES = [['board'], ['board', 'position'], ['board', 'owner']];

function find(server: Server, parameters: Parameters, user = 'root'): Promise<Found> {
  const path = queryPath({ collection: 'cards', explain: 'true', ...parameters });
  return fetch(url(server, path), { headers: basic(user) }).then(async (answer) => {
    assert.equal(answer.status, 200, await answer.clone().text());
    return (await answer.json()) as Found;
  });
}

const ids = ({ rows }: Found): string[] => rows.map(({ id }) => id);
const used = ({ explain }: Found): string | undefined => explain.index?.join();

async function cards(server: Server, count: number): Promise<void> {
  for (let from = 0; from < count; from += 50) {
    const some = Array.from({ length: 50 }, (_, n) => from + n);
    await Promise.all(some.map((n) => put(server, `cards/${n}`, { board: n % 10, position: count - n, owner: n % 3 === 0 ? 'ann' : 'eve' })));
  }
}

async function started(t: TestContext, indexes?: string[][], kind: (typeof STORES)[number] = 'sqlite'): Promise<Server> {
  const options: ServerOptions = { collections: indexes === undefined ? {} : { cards: { indexes } } };
  if (kind !== 'sqlite') {
    const { url } = await Database.during(t, kind);
    options.store = { kind, [kind]: { url: kind === 'postgres' ? `${url}/postgres` : `${url}/0` } };
  }
  // It ends before its database.
  return Server.during(t, options);
}

/** Waits until the last of the indexes is complete. */
async function complete(server: Server): Promise<void> {
  await eventually(async () => used(await find(server, { where: { board: 1 }, sort: ['owner'], limit: 1 })) === 'board,owner', 'the indexes are complete');
}

async function readsPart(t: TestContext, kind: (typeof STORES)[number]): Promise<void> {
  const server = await started(t, INDEXES, kind);
  await cards(server, 300);
  const board = await find(server, { where: { board: 3 }, count: 'true', limit: 0 });
  assert.deepEqual([used(board), board.count, board.explain.records], ['board', 30, 0]);
  const page = await find(server, { where: { board: 3 }, sort: ['position'], limit: 3, count: 'true' });
  assert.deepEqual([used(page), ids(page), page.count], ['board,position', ['293', '283', '273'], 30]);
  const range = await find(server, { where: { board: 3, position: { $lte: 30 } }, sort: { position: -1 } });
  assert.deepEqual([used(range), ids(range)], ['board,position', ['273', '283', '293']]);
  const scan = await find(server, { where: { owner: 'ann' }, count: 'true', limit: 0 });
  assert.deepEqual([used(scan), scan.count], [undefined, 100]);
  assert.match(scan.explain.warning ?? '', /collections\.cards\.indexes/);

  await put(server, 'cards/293', { board: 4 });
  await remove(server, 'cards/283');
  const poison = { nul: '\u0000', long: 'x'.repeat(5000), list: [1, ['a']], deep: { a: { b: [] } }, huge: 1e308, mixed: [null, 1, 'a', true, {}], none: null };
  for (const [id, value] of Object.entries(poison)) await put(server, `cards/${id}`, { board: value, position: value });
  await put(server, 'cards/both', { board: [3, 'x'], position: 1 });
  assert.deepEqual(ids(await find(server, { where: { board: 3 }, sort: ['position'], limit: 2 })), ['both', '273']);
  assert.deepEqual(ids(await find(server, { where: { board: 'x'.repeat(5000) } })), ['long']);
  assert.deepEqual(ids(await find(server, { where: { board: { $in: ['\u0000', 'x'] } } })), ['both', 'nul']);
  await server.kill();
  await server.start();
  assert.deepEqual(ids(await find(server, { where: { board: 3 }, sort: ['position'], limit: 2 })), ['both', '273']);
}

test('a live query by an index follows the writes', { timeout: 60_000 }, async (t) => {
  const server = await started(t, INDEXES);
  await cards(server, 100);
  const path = queryPath({ collection: 'cards', where: { board: 3 }, sort: ['position'], limit: 2 });
  const { pieces } = await openStream(t, url(server, path), { accept: 'text/event-stream', ...basic('root') });
  const first = await pieces.next();
  assert.deepEqual([first.event, ids(first.data)], ['rows', ['93', '83']]);
  await remove(server, 'cards/93');
  const next = await pieces.next();
  assert.deepEqual([next.event, next.data.map(({ type }: { type: string }) => type)], ['changes', ['removed', 'added']]);
});

async function isBuilt(t: TestContext, kind: (typeof STORES)[number]): Promise<void> {
  const server = await started(t, undefined, kind);
  await cards(server, 3000);
  server.setCollections({ cards: { indexes: INDEXES } });
  await server.kill();
  await server.start();
  // The first steps of the build may have been made.
  await server.kill();
  await server.start();
  await put(server, 'cards/0', { board: 1, position: -1 });
  await remove(server, 'cards/2991');
  await complete(server);
  const board = await find(server, { where: { board: 1 }, count: 'true', limit: 1, sort: ['position'] });
  assert.deepEqual([used(board), ids(board), board.count], ['board,position', ['0'], 300]);
  server.setCollections({});
  await server.kill();
  await server.start();
  const without = await find(server, { where: { board: 1 }, count: 'true', limit: 1, sort: ['position'] });
  assert.deepEqual([used(without), ids(without), without.count], [undefined, ['0'], 300]);
}

for (const kind of STORES) {
  test(`${kind}: queries read a part of an index, and change with the records`, { timeout: 60_000 }, (t) => readsPart(t, kind));
  test(`${kind}: a new index is built in the background, also after kill -9, and a removed one is not used`, { timeout: 120_000 }, (t) => isBuilt(t, kind));
}

test('only records that the user may read count, and an equality of the rule needs no records', { timeout: 60_000 }, async (t) => {
  const password = hashPassword('pw');
  const rule = `"cards/$id": { read: "oldData.owner === user.id || user.id === 'root'" }`;
  const server = await Server.start({
    permissions: PERMISSIONS.replace('event:', `  ${rule}\nevent:`),
    users: { ann: { password }, eve: { password }, root: { password } },
    collections: { cards: { indexes: [['board', 'owner']] } },
  });
  t.after(() => server.dispose());
  await cards(server, 300);
  await put(server, 'cards/0', { board: 0, owner: ['ann'] });
  await put(server, 'cards/10', { board: 0, owner: null });
  for (const [user, expected] of [['ann', 9], ['eve', 19], ['root', 30]] as const) {
    const found = await find(server, { where: { board: 0 }, count: 'true', limit: 0 }, user);
    // The lists and nulls are read.
    assert.deepEqual([used(found), found.count, found.explain.records], ['board,owner', expected, 2], user);
  }
});

test('a store without indexes refuses the option', { timeout: 60_000 }, async () => {
  const refused = Server.start({ store: { kind: 'memory' }, collections: { cards: { indexes: INDEXES } } });
  await assert.rejects(refused, /collections\.cards\.indexes[^]*store\.kind memory, which keeps no indexes/);
});
