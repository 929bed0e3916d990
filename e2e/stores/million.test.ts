// Queries of many records in SQLite and PostgreSQL: the first page and the count of an index do not depend on the number of records, a query
// without an index is bounded, the memory stays flat, and no value of a record blocks the batch that it is in. The small form runs with all
// tests; `MILLION_RECORDS=1000000` is the proof.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createWriteStream, rmSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import type { Client, TidewireError } from '../../packages/client/src/index.ts';
import { fetchQuery } from '../../packages/client/src/live-query.ts';
import { atEnd } from '../harness/cleanup.ts';
import { Database } from '../harness/database.ts';
import { client } from '../harness/driver/tidewire.ts';
import { run } from '../harness/program.ts';
import { PERMISSIONS } from '../harness/queries.ts';
import { Server, type ServerOptions } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { eventually, within } from '../harness/wait.ts';

const RECORD_COUNT = Number(process.env['MILLION_RECORDS'] ?? 20_000);
const BOARDS = 10;
const OF_BOARD = RECORD_COUNT / BOARDS;
const PAGE = 50;
/** Records with changes that the store does not have when the query starts. */
const UNSAVED = 1_000;
const PAGE_MS_MAX = 20;
const COUNT_MS_MAX = 200;
const MEASUREMENTS = 21;
/** A quarter of the records may be read by one query. */
const READS_MAX = Math.min(100_000, RECORD_COUNT / 4);
const CACHE_BYTES = 64 * 1_000_000;
/** The cache plus the process itself, for any number of records. */
const MEMORY_BYTES_MAX = CACHE_BYTES + 135 * 1_000_000;
/** The lowest speed of a busy machine, for deadlines only. */
const RECORDS_PER_SECOND_MIN = 1_000;
const timeout = 120_000 + (2 * RECORD_COUNT * 1_000) / RECORDS_PER_SECOND_MIN;

/** One of each type, and each that a database has refused in a column or an expression index before. */
const POISON = {
  nul: '\u0000', surrogate: '\ud800', long: 'x'.repeat(10_000), huge: 1e308, integer: 18446744073709551615n, negative: -0, none: null, yes: true,
  list: [1, ['a'], null], nested: [[[[]]]], object: { '': { a: [] } }, number: 12345678901234567890.5, empty: '', date: '-infinity', json: '{"a":1}', fraction: 1e-320,
};

const rule = `"big/$id": { read: "oldData.owner === user.id || user.id === 'root'", write: true, create: true, delete: true }`;

interface Item {
  board: unknown;
  position: number;
  owner: string;
  filling: string;
}

interface App {
  records: { [name: `big/${string}`]: Item };
}

for (const kind of ['sqlite', 'postgres'] as const) {
  test(`${kind}: queries of ${RECORD_COUNT} records`, { timeout }, async (t) => {
    const server = await filled(t, kind);
    const [root, ann] = [await connected(t, server, 'root'), await connected(t, server, 'ann')];
    await indexed(server);
    await readsPages(t, root);
    await counts(t, kind, root, ann);
    await refusesScan(t, ann);
    await storesPoison(root);
    const megabytes = (server.memoryBytes / 1e6).toFixed(0);
    t.diagnostic(`${kind}: the process held ${megabytes} MB at the end`);
    assert.ok(server.memoryBytes < MEMORY_BYTES_MAX, `the process held ${megabytes} MB`);
  });
}

/** A server whose store has all records. */
async function filled(t: TestContext, kind: 'sqlite' | 'postgres'): Promise<Server> {
  const password = hashPassword('pw');
  const options: ServerOptions = {
    permissions: PERMISSIONS.replace('event:', `  ${rule}\nevent:`),
    users: { ann: { password }, root: { password } },
    collections: { big: { indexes: [['board', 'position'], ['board', 'owner']] } },
    limits: { query_reads_max: READS_MAX },
    cacheBytesMax: CACHE_BYTES,
  };
  if (kind === 'postgres') options.store = { kind, postgres: { url: `${(await Database.during(t, kind)).url}/postgres` } };
  const server = await Server.during(t, options);
  await server.stop();
  const file = join(server.dataFolder, '../records.jsonl');
  atEnd(t, () => rmSync(file, { force: true }));
  await writeExport(file);
  const start = performance.now();
  run(server.binary, ['store', 'import', file, '--config', server.configFile, '--data', server.dataFolder]);
  t.diagnostic(`${kind}: import of ${RECORD_COUNT} took ${seconds(start)} s`);
  await server.start();
  return server;
}

async function connected(t: TestContext, server: Server, username: string): Promise<Client<App>> {
  const made = client<App>(t, server.address);
  await within(30_000, made.connect({ auth: { username, password: 'pw' } }), 'login');
  return made;
}

/** Waits until both indexes are complete. */
async function indexed(server: Server): Promise<void> {
  const headers = { authorization: `Basic ${Buffer.from('root:pw').toString('base64')}` };
  const uses = async (where: string, sort: string): Promise<boolean> => {
    const parameters = new URLSearchParams({ collection: 'big', where, sort, limit: '1', explain: 'true' });
    const answer = await fetch(`http://${server.address}/records?${parameters}`, { headers });
    const { explain } = (await answer.json()) as { explain?: { index: string[] | null } };
    return explain?.index?.length === 2;
  };
  const both = async (): Promise<boolean> => (await uses('{"board":1}', '["position"]')) && (await uses('{"board":1,"owner":"ann"}', '["_id"]'));
  await eventually(both, 'the indexes are complete', timeout);
}

async function readsPages(t: TestContext, root: Client<App>): Promise<void> {
  const times: number[] = [];
  for (let i = 0; i < MEASUREMENTS; i += 1) {
    const board = i % BOARDS;
    const start = performance.now();
    const { rows } = await fetchQuery(root.record, 'big', { where: { board }, sort: ['position'], limit: PAGE });
    times.push(performance.now() - start);
    const expected = Array.from({ length: PAGE }, (_, n) => String(RECORD_COUNT - BOARDS + board - n * BOARDS));
    assert.deepEqual(rows.map(({ id }) => id), expected);
  }
  report(t, `the first ${PAGE} of ${OF_BOARD}`, times, PAGE_MS_MAX);
}

/** Counts what `ann` may read, by the index alone, while the newest values of some records are not in the store. */
async function counts(t: TestContext, kind: string, root: Client<App>, ann: Client<App>): Promise<void> {
  const times: number[] = [];
  const boards = [1, 3];
  for (let i = 0; i < MEASUREMENTS; i += 1) {
    // The same records leave and enter the board in turn. The query follows the writes on the same connection.
    const board = boards[i % 2] as number;
    const writes = Array.from({ length: UNSAVED }, (_, n) => {
      const id = n * BOARDS + 1;
      return ann.record.set(`big/${id}`, item(id, board));
    });
    const start = performance.now();
    const { count } = await fetchQuery(ann.record, 'big', { where: { board: 3 }, limit: 0 }, { count: true });
    times.push(performance.now() - start);
    assert.equal(count, board === 3 ? OF_BOARD + UNSAVED : OF_BOARD);
    await Promise.all(writes);
  }
  report(t, `${kind}: a count of ${OF_BOARD} behind ${UNSAVED} unsaved writes`, times, COUNT_MS_MAX);
  const other = await fetchQuery(root.record, 'big', { where: { board: 9 }, limit: 0 }, { count: true });
  const hidden = await fetchQuery(ann.record, 'big', { where: { board: 9 }, limit: 0 }, { count: true });
  assert.deepEqual([other.count, hidden.count], [OF_BOARD, 0]);
}

async function refusesScan(t: TestContext, ann: Client<App>): Promise<void> {
  const start = performance.now();
  const refusal = fetchQuery(ann.record, 'big', { where: { filling: 'none' } });
  await assert.rejects(refusal, ({ code, message }: TidewireError) => code === 'QUERY_TOO_LARGE' && /query_reads_max/.test(message));
  t.diagnostic(`a query without an index was refused after ${READS_MAX} records and ${seconds(start)} s`);
}

/** Each value is in a batch with others, and all of them are stored and found. */
async function storesPoison(root: Client<App>): Promise<void> {
  const values = Object.entries(POISON).map(([id, value]) => [id, typeof value === 'bigint' ? Number(value) : value] as const);
  const writes = values.flatMap(([id, board], n) => [
    root.record.set(`big/${id}`, { ...item(n, board), owner: 'poison' }),
    root.record.set(`big/beside-${id}`, { ...item(n, 'beside'), owner: 'poison' }),
  ]);
  await within(30_000, Promise.all(writes), 'acknowledgements of all values');
  const beside = await fetchQuery(root.record, 'big', { where: { board: 'beside' }, limit: 0 }, { count: true });
  assert.equal(beside.count, values.length);
  for (const [id, board] of values) {
    if (typeof board === 'object') continue;
    const { rows } = await fetchQuery(root.record, 'big', { where: { board, owner: 'poison' } });
    assert.ok(rows.some((row) => row.id === id), id);
  }
}

function report(t: TestContext, what: string, times: number[], max: number): void {
  const sorted = times.toSorted((a, b) => a - b);
  const [median, slowest] = [sorted[sorted.length >> 1] as number, sorted.at(-1) as number];
  const text = `${what}: median ${median.toFixed(1)} ms, slowest ${slowest.toFixed(1)} ms`;
  t.diagnostic(text);
  assert.ok(median <= max, text);
}

const seconds = (start: number): string => ((performance.now() - start) / 1_000).toFixed(1);

/** The positions fall with the ids, so that the first page is not the first part of the table. */
function item(id: number, board: unknown = id % BOARDS): Item {
  return { board, position: RECORD_COUNT - id, owner: id % BOARDS < 5 ? 'ann' : 'eve', filling: 'x'.repeat(100) };
}

async function writeExport(path: string): Promise<void> {
  const out = createWriteStream(path);
  const put = async (line: object): Promise<void> => {
    if (!out.write(`${JSON.stringify(line)}\n`)) await once(out, 'drain');
  };
  await put({ tidewire_export: 1 });
  for (let i = 0; i < RECORD_COUNT; i += 1) await put({ name: `big/${i}`, version: 1, data: item(i) });
  await put({ end: RECORD_COUNT });
  out.end();
  await once(out, 'close');
}
