// Imports records that deepstream's own connectors have written to PostgreSQL, Redis and a substitute for MongoDB into Tidewire. A
// deepstream client then reads each of them with the same data and version.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { close, connect } from '../harness/client.ts';
import { atEnd } from '../harness/cleanup.ts';
import { Database, type DatabaseKind } from '../harness/database.ts';
import { binary, environment, Server } from '../harness/server.ts';
import { eventually, within } from '../harness/wait.ts';

const DEADLINE_MS = 60_000;
/** More records than a page of any server, and more than a batch. */
const MANY = 700;

/** The common interface of the connectors. */
interface Connector {
  init?(): void;
  whenReady(): Promise<void>;
  set(name: string, version: number, value: unknown, done: (error: unknown) => void): void;
  close?(): Promise<void>;
  /** The MongoDB driver. */
  client?: { isConnected(): boolean; topology: { close(): void }; close(): Promise<void> };
}

type NewConnector = new (options: object, services: object) => Connector;

interface Place {
  kind: DatabaseKind;
  connector: string;
  /** The connector's options. */
  options(database: Database): object;
  /** The address in the format of Tidewire. */
  from(database: Database): string;
  /** The options of Tidewire's import. */
  flags?: string[];
  /** Entries that can't become records of Tidewire, and the reason that the import prints. */
  refused: Array<[name: string, version: number, value: unknown, reason: RegExp]>;
}

const TOO_LARGE = { text: 'x'.repeat(1 << 20) };
const REFUSED: Place['refused'] = [
  ['refused/version', -2, { n: 1 }, /the version is not an integer from 0 to 2147483647/],
  ['refused/large', 1, TOO_LARGE, /limits\.record_bytes_max/],
  [`refused/${'n'.repeat(1_100)}`, 1, { n: 1 }, /the name has 1108 bytes.*limits\.name_bytes_max/],
];
const SCALAR: Place['refused'][number] = ['refused/scalar', 1, 5, /the data are not an object or array/];

const PLACES: Place[] = [
  {
    kind: 'postgres',
    connector: '@deepstream/storage-postgres',
    options: ({ port }) => ({ host: '127.0.0.1', port, user: 'postgres', database: 'postgres', schema: 'ds' }),
    from: ({ url }) => `${url}/postgres`,
    refused: [...REFUSED, SCALAR],
  },
  {
    kind: 'postgres',
    connector: '@deepstream/storage-postgres',
    // With `jsonb`, and a schema and a default table with other names.
    options: ({ port }) => ({
      ...{ host: '127.0.0.1', port, user: 'postgres', database: 'postgres' },
      ...{ schema: 'other', defaultTable: 'rest', useJsonb: true },
    }),
    from: ({ url }) => `${url}/postgres`,
    flags: ['--schema', 'other', '--default-table', 'rest'],
    refused: [...REFUSED, SCALAR],
  },
  {
    kind: 'mongodb',
    connector: '@deepstream/storage-mongodb',
    options: ({ url }) => ({ connectionString: url, db: 'deepstream' }),
    from: ({ url }) => `${url}/deepstream`,
    refused: [...REFUSED, ['refused/date', 1, { at: new Date(0) }, /MongoDB's type DateTime/]],
  },
  {
    kind: 'redis',
    connector: '@deepstream/cache-redis',
    options: ({ port }) => ({ host: '127.0.0.1', port }),
    from: ({ url }) => `${url}/0`,
    refused: [...REFUSED, SCALAR],
  },
];

/** Names, versions and values that deepstream stores. */
function records(): Array<[name: string, version: number, value: object]> {
  const value = { n: 1.5, small: -0.25, large: 1e21, zero: 0, text: 'é\u{1f600}"\\\n', none: null, yes: true };
  return [
    ['plain', 3, { ...value, deep: [{ a: [[], {}] }] }],
    ['empty', 0, {}],
    ['user/ann', 2_147_483_647, { name: 'Ann' }],
    ['user/with/slashes', 1, { ok: true }],
    ['user/é \u{10ffff}', 7, { unusual: 'name' }],
    ['user/friends', 4, ['user/ann', 'user/with/slashes']],
    ['nobody', 1, []],
    ...Array.from({ length: MANY }, (_, n): [string, number, object] => [`many/${n}`, n, { n }]),
  ];
}

/** The connected connector. It normally logs to its server, which does not exist here. */
async function connected(t: TestContext, place: Place, database: Database): Promise<Connector> {
  const { default: Connector } = createRequire(import.meta.url)(place.connector) as { default: NewConnector };
  const quiet = (): void => undefined;
  const fatal = (_event: string, text: string): void => assert.fail(text);
  const logger = { info: quiet, warn: quiet, error: quiet, debug: quiet, fatal, getNameSpace: () => logger };
  const notifications = {};
  const connector = new Connector({ ...place.options(database), notifications }, { logger });
  connector.init?.();
  // The MongoDB connector connects twice, and its driver forgets the first connection, which the test must close.
  const { client } = connector;
  if (place.kind === 'mongodb') await eventually(() => client?.isConnected() === true, `${place.connector} connects`);
  const forgotten = client?.topology;
  await within(DEADLINE_MS, Promise.resolve(connector.whenReady()), `${place.connector} connects`);
  atEnd(t, async () => {
    forgotten?.close();
    await (connector.client ?? connector).close?.();
  });
  return connector;
}

function set(connector: Connector, name: string, version: number, value: unknown): Promise<void> {
  return new Promise((done, failed) => {
    connector.set(name, version, value, (error) => (error ? failed(new Error(String(error))) : done()));
  });
}

async function run(...args: string[]): Promise<{ code: number | null; out: string; error: string }> {
  const child = spawn(binary(), ['import', 'deepstream', ...args], { env: environment(), stdio: ['ignore', 'pipe', 'pipe'] });
  let [out, error] = ['', ''];
  child.stdout.on('data', (text: Buffer) => (out += text.toString()));
  child.stderr.on('data', (text: Buffer) => (error += text.toString()));
  const ended = new Promise<number | null>((done) => child.once('close', done));
  const code = await within(DEADLINE_MS, ended, 'the import ends');
  return { code, out, error };
}

for (const place of PLACES) {
  const title = [place.connector, ...(place.flags ?? [])].join(' ');
  test(`what ${title} has written is imported, and entries that can't be are named`, async (t) => {
    const database = await Database.during(t, place.kind);
    const connector = await connected(t, place, database);
    const all = records();
    // Pass copies, because the MongoDB connector adds fields to its argument.
    await Promise.all(all.map(([name, version, value]) => set(connector, name, version, structuredClone(value))));
    const folder = mkdtempSync(join(tmpdir(), 'tidewire-import-'));
    atEnd(t, () => rmSync(folder, { recursive: true, force: true }));
    const into = ['--from', place.from(database), '--data', folder, ...(place.flags ?? [])];

    const looked = await run(...into, '--dry-run');
    assert.match(looked.out, new RegExp(`^${all.length} records read, 2 of them lists, 0 refused; nothing written`), looked.error);
    assert.equal(looked.code, 0);

    const first = await run(...into);
    assert.match(first.out, new RegExp(`; ${all.length} records added, 0 replaced, 0 there already, 0 kept`), first.error);
    assert.equal(first.code, 0);

    // deepstream changes a record after the first import. Only an import with --replace overwrites the imported record.
    await set(connector, 'plain', 9, { n: 9 });
    const kept = await run(...into);
    assert.match(kept.out, new RegExp(`; 0 records added, 0 replaced, ${all.length - 1} there already, 1 kept`), kept.error);
    assert.match(kept.error, /import with --replace/);
    assert.equal(kept.code, 1);
    const replaced = await run(...into, '--replace');
    assert.match(replaced.out, new RegExp(`; 0 records added, 1 replaced, ${all.length - 1} there already, 0 kept`), replaced.error);
    assert.equal(replaced.code, 0);

    for (const [name, version, value] of place.refused) await set(connector, name, version, value);
    const refused = await run(...into);
    assert.match(refused.out, new RegExp(`, ${place.refused.length} refused; 0 records added`), refused.error);
    for (const [name, , , reason] of place.refused) {
      const line = refused.out.split('\n').find((line) => line.startsWith(`refused ${JSON.stringify(name)}: `));
      assert.match(line ?? '', reason, refused.out);
    }
    assert.equal(refused.code, 1);

    const server = await Server.during(t, { dataFolder: folder });
    const client = await connect(t, server);
    // The MongoDB connector keeps fields that are missing in a later write.
    const newest = place.kind === 'mongodb' ? { ...all[0]?.[2], n: 9 } : { n: 9 };
    const expected = [...all.slice(1), ['plain', 9, newest] as const];
    await Promise.all(
      expected.map(async ([name, version, value]) => {
        assert.deepEqual(await client.record.snapshot(name), value, name);
        assert.equal(await client.record.head(name), version, name);
      }),
    );
    const list = client.record.getList('user/friends');
    await eventually(() => list.isReady, 'the list is there');
    assert.deepEqual(list.getEntries(), ['user/ann', 'user/with/slashes']);
    for (const [name] of place.refused) {
      if (name.length < 1_000) assert.equal(await client.record.has(name), false, name);
    }
    close(client);
  });
}

test("an address that can't be right, or shows a password, is refused with what to do", async () => {
  for (const [from, told] of [
    ['mysql://db/x', /--from: unknown kind of database/],
    ['postgresql://a:secret@db/x', /--from: .*--password-file/],
    ['mongodb://127.0.0.1:1', /the address names no database/],
  ] as const) {
    const { code, error } = await run('--from', from, '--dry-run');
    assert.match(error, told);
    assert.ok(!error.includes('secret'), error);
    assert.ok(code === 2 || code === 4, `ended with ${code}`);
  }
});
