// Each storage of offline records, by the same cases: memory, SQLite with a driver that answers at once and with one that answers by promises
// as in React Native, and the IndexedDB of Chromium (`e2e/packages` has the SQLite of Node 22). Then offline records in Node: a program that is
// killed and started again.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { test, type TestContext } from 'node:test';
import sqlite from 'node-sqlite3-wasm';
import { Offline } from '../../packages/client/src/offline.ts';
import { memoryStorage, sqliteStorage, type OpenStorage, type SqliteDatabase } from '../../packages/client/src/storage.ts';
import { browserDuring, servePage } from '../browser/page.ts';
import { atEnd } from '../harness/cleanup.ts';
import { client } from '../harness/driver/tidewire.ts';
import { fresh } from '../harness/names.ts';
import { Proxy } from '../harness/proxy.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, eventually, isPending, within } from '../harness/wait.ts';
import { CASES } from './cases.ts';

const HERE = import.meta.dirname;
const USE = { timeoutMs: 5_000, onLost: () => {} };

function folderDuring(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-storage-'));
  atEnd(t, () => rmSync(folder, { recursive: true }));
  return folder;
}

/** SQLite as WebAssembly, which works in every Node. */
function wasmSqlite(file: string): SqliteDatabase {
  const database = new sqlite.Database(file);
  return { query: (sql, values) => database.all(sql, values) as Array<Record<string, unknown>>, close: () => database.close() };
}

/** A driver whose answers take turns of the event loop, so that statements of two transactions could mix. */
function withPromises({ query, close }: SqliteDatabase): SqliteDatabase {
  return {
    async query(sql, values) {
      await new Promise((done) => setImmediate(done));
      const rows = await query(sql, values);
      await new Promise((done) => setImmediate(done));
      return rows;
    },
    close,
  };
}

const fileIn = (folder: string) => (name: string): string => join(folder, `${name.replaceAll(/\W/g, '-')}.db`);

/** The storages that run in Node, each with a folder of its test. */
const STORAGES: Record<string, (folder: string) => OpenStorage> = {
  memory: () => memoryStorage(),
  SQLite: (folder) => sqliteStorage((name) => wasmSqlite(fileIn(folder)(name))),
  'SQLite with promises': (folder) => sqliteStorage(async (name) => withPromises(wasmSqlite(fileIn(folder)(name)))),
};

for (const [kind, make] of Object.entries(STORAGES)) {
  test(`storage: ${kind}`, { concurrency: true, timeout: 60_000 }, async (t) => {
    const open = make(folderDuring(t));
    await Promise.all(Object.entries(CASES).map(([title, run]) => t.test(title, () => run((name) => open(name, USE), title))));
  });
}

test('storage: IndexedDB', { timeout: 60_000 }, async (t) => {
  const { build } = createRequire(resolve(HERE, '../../packages/client/package.json'))('esbuild') as { build(options: object): Promise<unknown> };
  const script = join(folderDuring(t), 'page.js');
  await build({ entryPoints: [join(HERE, 'page.ts')], outfile: script, bundle: true, format: 'iife', target: 'es2022', logLevel: 'warning' });
  const browser = await browserDuring(t);
  const page = await browser.newPage();
  await page.goto(`http://localhost:${await servePage(t, { script })}`);
  for (const title of Object.keys(CASES)) await t.test(title, () => page.evaluate((of) => (globalThis as any).runCase(of) as Promise<void>, title));
});

test('a database that another program uses is not opened, and the reason is reported', async (t) => {
  const file = join(folderDuring(t), 'used.db');
  const first = await sqliteStorage(() => wasmSqlite(file))('used', USE);
  atEnd(t, () => first.close());
  const offline = new Offline(client(t, 'localhost:1'), { storage: sqliteStorage(() => wasmSqlite(file)), storageTimeoutMs: 200 });
  atEnd(t, () => offline.close());
  await eventually(() => offline.state.mode === 'online-only', 'the mode is known');
  assert.equal(offline.state.reason?.code, 'NO_STORAGE');
  assert.match(offline.state.reason?.message ?? '', /locked/);
});

test('offline records that use the memory of others wait until these are closed', async () => {
  const storage = memoryStorage();
  const first = await storage('shared', USE);
  const second = storage('shared', USE);
  await assert.rejects(storage('shared', { ...USE, timeoutMs: 20 }), /another Offline uses the storage/);
  assert.ok(await isPending(second));
  first.close();
  (await within(DEADLINE_MS, second, 'the second one')).close();
});

test('a program that is killed in the middle of its queue makes every edit after its next start', { timeout: 60_000 }, async (t) => {
  const server = await Server.during(t);
  const proxy = await Proxy.during(t, server);
  const [name, file] = [fresh('record'), join(folderDuring(t), 'program.db')];
  const run = async (edits: number, until: string): Promise<void> => {
    const program = spawn(process.execPath, ['--import', 'tsx', join(HERE, 'program.ts'), proxy.address, file, name, String(edits)], { stdio: ['ignore', 'pipe', 'inherit'] });
    const ended = new Promise((done) => program.once('exit', done));
    const seen = (async () => {
      for await (const line of createInterface(program.stdout)) if (line === until) return;
      throw new Error(`the program ended before "${until}"`);
    })();
    try {
      await within(2 * DEADLINE_MS, seen, until);
    } finally {
      program.kill('SIGKILL');
      await ended;
    }
  };
  proxy.cut();
  await run(500, 'durable 500 kept');
  proxy.restore();
  // Killed as soon as the first edits are made.
  await run(0, 'durable some made');
  await run(0, 'durable 0 left');
  const reader = client(t, server.address);
  await within(DEADLINE_MS, reader.connect(), 'login');
  const value = (await reader.record.get(name)) as Record<string, number>;
  assert.deepEqual(Object.values(value), Array.from({ length: 500 }, (_, number) => number));
});

test('with memory, edits outlive their offline records in the same program', async (t) => {
  const server = await Server.during(t);
  const proxy = await Proxy.during(t, server);
  const [name, storage] = [fresh('record'), memoryStorage()];
  const reader = client(t, server.address);
  await within(DEADLINE_MS, reader.connect(), 'login');
  await reader.record.set(name, { title: 'old' });
  const made = client(t, proxy.address);
  const first = new Offline(made, { storage });
  const record = first.open(name);
  await within(DEADLINE_MS, record.ready, 'the value');
  assert.equal(first.state.mode, 'memory');
  proxy.cut();
  record.set('title', 'new');
  await first.kept();
  await first.close();
  const second = new Offline(client(t, proxy.address), { storage });
  atEnd(t, () => second.close());
  const again = second.open(name);
  await within(DEADLINE_MS, again.ready, 'the stored value');
  await eventually(() => second.sync.queue.length === 1, 'the queue is read');
  assert.deepEqual([again.value, second.sync.queue[0]?.changes], [{ title: 'new' }, [{ path: 'title', value: 'new' }]]);
  proxy.restore();
  await eventually(() => second.state.pendingCount === 0, 'the edit is made', 2 * DEADLINE_MS);
  assert.deepEqual(await reader.record.get(name), { title: 'new' });
});

interface Titled {
  title: string;
}

/** A storage in memory that stores the edits at one path only when `storeRest` is called. */
function slowStorage(path: string): { storage: OpenStorage; storeRest: () => void } {
  let storeRest = (): void => undefined;
  const rest = new Promise<void>((done) => (storeRest = done));
  const memory = memoryStorage();
  const storage: OpenStorage = async (database, use) => {
    const opened = await memory(database, use);
    return {
      ...opened,
      async change(changes, recordsMax) {
        if (changes.add?.some(({ patches }) => patches[0]?.path === path)) await rest;
        return opened.change(changes, recordsMax);
      },
    };
  };
  return { storage, storeRest };
}

for (const [title, isLost] of [
  ['edits that a slow storage stores one after another are merged at once', true],
  ['an edit that a slow storage stores after the write of an earlier one is not merged', false],
] as const) {
  test(title, async (t) => {
    const server = await Server.during(t);
    const proxy = await Proxy.during(t, server);
    const name = fresh('record');
    const other = client(t, server.address);
    await within(DEADLINE_MS, other.connect(), 'login');
    await other.record.set(name, { title: 'old' });
    const { storage, storeRest } = slowStorage('done');
    const made = client(t, proxy.address);
    let mergeCount = 0;
    const offline = new Offline(made, {
      storage,
      merge: (conflict) => {
        mergeCount += 1;
        const [remote, local, base] = [conflict.remote, conflict.local, conflict.base].map((value) => (value as Titled).title);
        return { title: `${remote} and ${local} on ${base}` };
      },
    });
    atEnd(t, () => offline.close());
    atEnd(t, storeRest);
    const record = offline.open(name);
    await within(DEADLINE_MS, record.ready, 'the value');
    if (isLost) {
      proxy.cut();
      await eventually(() => offline.state.connection === 'waiting', 'the connection is lost');
    }
    const first = record.setWithAck('title', 'alice');
    await offline.kept();
    const second = record.setWithAck('done', true);
    if (isLost) {
      await other.record.set(name, { title: 'bob' });
      proxy.restore();
      const online = made.record.open(name);
      const isTaken = (): boolean => (online.value as Titled | undefined)?.title.startsWith('bob') === true;
      await eventually(isTaken, 'the value of the other client', 2 * DEADLINE_MS);
    } else await within(DEADLINE_MS, first, 'the first edit is made');
    assert.equal(mergeCount, 0, 'the second edit is not stored yet');
    storeRest();
    await within(DEADLINE_MS, Promise.all([first, second]), 'the edits are made');
    assert.deepEqual(await other.record.get(name), isLost ? { title: 'bob and alice on old' } : { title: 'alice', done: true });
    assert.equal(mergeCount, isLost ? 1 : 0);
  });
}
