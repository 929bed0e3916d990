// Records of some prefixes in a separate store, as clients and operators see it: an outage of one store affects only its records,
// every record is in its own store, and a change of prefixes loses none.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import { close, connect, record } from '../harness/client.ts';
import { Database, type DatabaseKind } from '../harness/database.ts';
import { openStream, type EventStream } from '../harness/event-stream.ts';
import { url } from '../harness/http.ts';
import { LOOK_MS, NOTICED_MS, OUTAGE_OPTIONS, ready } from '../harness/outage.ts';
import { Server, type ServerOptions } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';

const KINDS: Array<[kind: DatabaseKind, section: string, path: string]> = [
  ['postgres', 'postgres', '/postgres'],
  ['redis', 'redis', '/0'],
];

/** Options of a server that keeps records below `logs/` in another store. */
function routed(logs: object): ServerOptions {
  return { ...OUTAGE_OPTIONS, stores: { logs: { prefixes: ['logs/'], ...logs } } };
}

async function isWarning(server: Server): Promise<boolean> {
  return (await ready(server)).warnings.some(({ code }) => code === 'store_failing');
}

/** Runs a command of `tidewire store` with the server's configuration. */
async function store(server: Server, ...words: string[]): Promise<string> {
  const place = ['--config', server.configFile, '--data', server.dataFolder];
  const { stdout, stderr } = await promisify(execFile)(server.binary, ['store', ...words, ...place]);
  return stdout + stderr;
}

for (const [kind, section, path] of KINDS) {
  describe(`records of a prefix in ${kind}, all others in the data folder`, () => {
    test('are affected by an outage of their store, and no others are', async (t) => {
      const database = await Database.during(t, kind);
      const server = await Server.during(t, routed({ kind: section, timeout: '3s', [section]: { url: database.url + path } }));
      await server.prints(/store +logs for logs\/, database /);
      const client = await connect(t, server, { errors: ['CONNECTION_ERROR', 'RECORD_UPDATE_ERROR'] });
      await client.record.setDataWithAck('logs/cached', { n: 1 });
      await client.record.setDataWithAck('other', { n: 0 });
      const cached = await record(client, 'logs/cached');
      await database.crash();
      const refused = assert.rejects(async () => client.record.setDataWithAck('logs/cached', { n: 2 }));
      await eventually(() => isWarning(server), '/ready names the store', NOTICED_MS + LOOK_MS);
      const { ready: isReady, warnings } = await ready(server);
      assert.equal(isReady, true, 'a server whose other records are available is ready');
      assert.match(warnings[0]?.text ?? '', /^the store logs fails: /);
      await server.prints(/the store logs can't commit/);
      // Write ten times as many records as the queue of the failed store holds.
      for (let n = 1; n <= 50; n += 1) await client.record.setDataWithAck('other', { n });
      for (let n = 1; n <= 50; n += 1) await client.record.setDataWithAck(`other/${n}`, { n });
      await refused;
      const reader = await connect(t, server, { errors: ['CONNECTION_ERROR'] });
      assert.deepEqual(await reader.record.snapshot('logs/cached'), { n: 2 });
      assert.equal(await server.metric('tidewire_store_dirty_records{store="logs"}'), 1);
      assert.equal(await server.metric('tidewire_store_dirty_records{store="default"}'), 0);
      assert.equal(await server.metric('tidewire_store_failed_commits_total{store="default"}'), 0);
      await database.start();
      await eventually(async () => !(await isWarning(server)), '/ready has no warning again');
      await client.record.setDataWithAck('logs/cached', { n: 3 });
      assert.deepEqual(cached.get(), { n: 3 });
      await server.kill();
      await server.start();
      const again = await connect(t, server);
      assert.deepEqual(await again.record.snapshot('logs/cached'), { n: 3 });
      assert.deepEqual(await again.record.snapshot('other'), { n: 50 });
    });

    test('are stored while the default store fails, which /ready reports', async (t) => {
      const database = await Database.during(t, kind);
      const options = routed({ kind: 'sqlite' });
      const server = await Server.during(t, { ...options, store: { kind: section, [section]: { url: database.url + path } } });
      const client = await connect(t, server, { errors: ['CONNECTION_ERROR', 'RECORD_UPDATE_ERROR'] });
      await client.record.setDataWithAck('other', { n: 0 });
      await database.crash();
      const refused = assert.rejects(async () => client.record.setDataWithAck('other', { n: 1 }));
      await eventually(async () => !(await ready(server)).ready, '/ready answers 503', NOTICED_MS + LOOK_MS);
      for (let n = 1; n <= 50; n += 1) await client.record.setDataWithAck(`logs/${n}`, { n });
      await refused;
      await database.start();
      await eventually(async () => (await ready(server)).ready, '/ready answers 200 again');
      await client.record.setDataWithAck('other', { n: 2 });
    });
  });
}

describe('two SQLite stores', () => {
  test('are complete after a kill, each in its own store', async (t) => {
    const server = await Server.during(t, routed({}));
    const client = await connect(t, server, { errors: ['CONNECTION_ERROR'] });
    for (let n = 0; n < 50; n += 1) await client.record.setDataWithAck(n % 2 ? `logs/${n}` : `other/${n}`, { n });
    close(client);
    await server.kill();
    assert.match(await store(server, 'check'), /^25 sound, 0 corrupt/);
    assert.match(await store(server, 'check', '--store', 'logs'), /^25 sound, 0 corrupt/);
    await server.start();
    const reader = await connect(t, server);
    for (let n = 0; n < 50; n += 1) {
      assert.deepEqual(await reader.record.snapshot(n % 2 ? `logs/${n}` : `other/${n}`), { n });
    }
  });

  test('keep a change of prefixes from hiding records, until these are moved', async (t) => {
    const server = await Server.during(t, {});
    const client = await connect(t, server, { errors: ['CONNECTION_ERROR'] });
    for (let n = 0; n < 20; n += 1) await client.record.setDataWithAck(`logs/${n}`, { n });
    await client.record.setDataWithAck('other', { n: 1 });
    close(client);
    await server.stop();
    for (const stores of [{ logs: { prefixes: ['logs/'] } }, { logs: { prefixes: ['else/'] } }]) {
      server.setStores(stores);
      await assert.rejects(server.start(), /ended with 4 while starting:\n(.*\n)*.*"logs\/0", but the prefixes below .*tidewire store move/);
      assert.match(await store(server, 'move'), /^20 records moved, 0 corrupt/m);
      await server.start();
      const reader = await connect(t, server, { errors: ['CONNECTION_ERROR'] });
      for (let n = 0; n < 20; n += 1) assert.deepEqual(await reader.record.snapshot(`logs/${n}`), { n });
      assert.deepEqual(await reader.record.snapshot('other'), { n: 1 });
      close(reader);
      await server.stop();
    }
    await assert.rejects(store(server, 'check', '--store', 'lgos'), /unknown store/);
  });

  test('make other tags, so that none names a record that was created again in another store', async (t) => {
    const options = { headers: { 'content-type': 'application/json' } };
    const server = await Server.during(t, {});
    const ask = (method: string, headers: object, body?: string): Promise<Response> => {
      return fetch(url(server, '/records/logs/a'), { method, headers: { ...options.headers, ...headers }, ...(body && { body }) });
    };
    const startedWith = async (stores: Record<string, object>): Promise<void> => {
      await server.stop();
      server.setStores(stores);
      await server.start();
    };
    // The second start of each store creates the record, the default store first. Both stores stop cleanly; one is absent in between.
    await startedWith({ logs: { prefixes: ['else/'] } });
    const before = (await ask('PUT', {}, '{"in":"default"}')).headers.get('etag');
    assert.ok(before);
    const stream = (headers?: Record<string, string>): Promise<EventStream> => openStream(t, url(server, '/sse?record=logs/a'), headers);
    const { id } = await (await stream()).pieces.next();
    assert.ok(id);
    assert.equal((await ask('DELETE', {})).status, 204);
    await startedWith({});
    await startedWith({ logs: { prefixes: ['logs/'] } });
    const after = (await ask('PUT', {}, '{"in":"logs"}')).headers.get('etag');
    assert.notEqual(after, before);
    const again = await stream({ 'last-event-id': id });
    assert.deepEqual((await again.pieces.next()).data.data, { in: 'logs' });
    const read = await ask('GET', { 'if-none-match': before });
    assert.deepEqual([read.status, await read.json()], [200, { in: 'logs' }]);
    assert.equal((await ask('PUT', { 'if-match': before }, '{"in":"lost"}')).status, 412);
    assert.equal((await ask('PUT', { 'if-match': after as string }, '{"in":"logs too"}')).status, 204);
  });

  test('are exported together, and each record is imported to where it belongs', async (t) => {
    const server = await Server.during(t, routed({}));
    const client = await connect(t, server, { errors: ['CONNECTION_ERROR'] });
    for (let n = 0; n < 50; n += 1) await client.record.setDataWithAck(n % 5 ? `logs/${n}` : `other/${n}`, { n });
    close(client);
    const file = (name: string) => join(server.folder, name);
    assert.match(await store(server, 'export', file('all')), /^50 records exported/);
    assert.match(await store(server, 'export', file('logs'), '--store', 'logs'), /^40 records exported/);
    assert.match(await store(server, 'export', file('default'), '--store', 'default'), /^10 records exported/);
    await server.stop();
    const target = await Server.during(t, routed({ kind: 'memory' }));
    await target.stop();
    await assert.rejects(store(target, 'import', file('all')), /stores\.logs\.kind: the memory store ends with this command/);
    target.setStores({ logs: { prefixes: ['logs/'] } });
    await target.start();
    await target.stop();
    assert.match(await store(target, 'import', file('all')), /^50 records added/);
    assert.match(await store(target, 'import', file('logs')), /^0 records added, 0 replaced, 40 there already/);
    assert.match(await store(target, 'import', file('default'), '--store', 'default'), /^0 records added, 0 replaced, 10 there already/);
    assert.match(await store(target, 'check', '--store', 'logs'), /^40 sound, 0 corrupt/);
    await target.start();
    const reader = await connect(t, target);
    for (let n = 0; n < 50; n += 1) assert.deepEqual(await reader.record.snapshot(n % 5 ? `logs/${n}` : `other/${n}`), { n });
  });
});
