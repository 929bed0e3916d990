// The disk fails while the server runs, and recovers. Writes that can't be made durable are not acknowledged, stay
// visible, are reported by `/ready`, and are acknowledged once they are on the disk. The server does not serve damaged records.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import { type TestClient, close, connect } from '../harness/client.ts';
import { openStream } from '../harness/event-stream.ts';
import { command, url } from '../harness/http.ts';
import { OUTAGE_OPTIONS, type Outage, isReady, seesOutage } from '../harness/outage.ts';
import { Server, type ServerOptions } from '../harness/server.ts';
import { eventually, isPending, within } from '../harness/wait.ts';
import { FailingSyncs } from './failing-syncs.ts';
import { SmallDisk } from '../harness/small-disk.ts';
import { Volume } from './volume.ts';

/** The engine's longest delay between two attempts, plus time for a busy machine. */
const RECOVERY_MS = 30_000;
const MEGABYTE = 1024 * 1024;

const FAULTS = [
  { what: 'a full disk', plant: fullDisk, says: /the store can't commit.*make room on the disk/, text: /disk is full/ },
  { what: 'failing syncs', plant: failingSyncs, says: /the store can't commit/, text: /disk I\/O error/ },
];
/** A disk that hangs can't be read either. */
const HANG = { what: 'a disk that hangs', plant: hangingDisk, says: /the store has not answered for/, text: /has not answered/ };

for (const { what, plant, says, text } of [...FAULTS, HANG]) {
  test(`${what}, as clients and operators see it`, async (t) => {
    await seesOutage(t, await plant(t, OUTAGE_OPTIONS), says, text);
  });
}

for (const { what, plant } of FAULTS) {
  test(`${what}: nothing is acknowledged, nothing is taken back, and everything is stored in the end`, async (t) => {
    const { server, begin, end } = await plant(t);
    const [writer, reader] = [await connect(t, server), await connect(t, server)];
    await writer.record.setDataWithAck('before', { n: 1 });

    await begin();
    const writes = await writeUntilNotReady(server, writer);
    const unacknowledged = writes.at(-1) as Write;
    assert.ok(await isPending(unacknowledged.acknowledged), 'a write was acknowledged that can not be on disk');
    await eventually(() => reader.record.has(unacknowledged.name), 'the write has reached the server');
    const shown = await reader.record.snapshot(unacknowledged.name);
    assert.equal((shown as { n: number }).n, unacknowledged.n);
    assert.equal((await server.get('/health')).status, 200);
    await server.prints(/the store can't commit/);

    await end();
    await within(RECOVERY_MS, Promise.all(writes.map(({ acknowledged }) => acknowledged)), 'all writes are acknowledged');
    await eventually(() => isReady(server), '/ready answers 200 again');
    [writer, reader].forEach(close);
    await server.kill();
    await server.start();
    const later = await connect(t, server);
    for (const { name, n } of [{ name: 'before', n: 1 }, ...writes]) {
      assert.equal(((await later.record.snapshot(name)) as { n: number }).n, n, name);
    }
  });
}

test('failing syncs over HTTP: outcomes are unknown, then the queue is full, and everything is stored in the end', async (t) => {
  const limits = { dirty_records_max: 3 };
  // A long timeout, because a busy disk may need a while for the syncs that succeed.
  const { server, begin, end } = await failingSyncs(t, { shards: 1, limits, http: { request_timeout: '3s' } });
  const ask = async (method: string, name: string, value?: unknown): Promise<[status: number, code: string | null, retryAfter: string | null]> => {
    const headers = { 'content-type': 'application/json' };
    const answer = await fetch(url(server, `/records/${name}`), { method, headers, ...(value !== undefined && { body: JSON.stringify(value) }) });
    const text = await answer.text();
    const problem = answer.headers.get('content-type') === 'application/problem+json';
    return [answer.status, problem ? (JSON.parse(text) as { code: string }).code : null, answer.headers.get('retry-after')];
  };
  const write = (recordName: string): object => ({ topic: 'record', action: 'write', recordName, data: { n: 7 } });
  assert.deepEqual(await ask('PUT', 'before', { n: 0 }), [201, null, null]);

  begin();
  for (const name of ['first', 'second']) assert.deepEqual(await ask('PUT', name, { n: 1 }), [504, 'TIMEOUT', '5']);
  const timedOut = await command(server, write('third'));
  assert.deepEqual([timedOut['success'], timedOut['errorTopic'], timedOut['errorEvent']], [false, 'connection', 'HTTP_REQUEST_TIMEOUT']);
  // A visible write stays visible, and the queue has no room for more.
  assert.deepEqual(await ask('GET', 'first'), [200, null, null]);
  assert.deepEqual(await ask('PUT', 'fourth', { n: 1 }), [503, 'RECORD_UPDATE_ERROR', '5']);
  assert.deepEqual(await ask('DELETE', 'before'), [503, 'RECORD_DELETE_ERROR', '5']);
  const refused = await command(server, write('fourth'));
  assert.deepEqual([refused['success'], refused['errorEvent'], refused['errorParams']], [false, 105, 'RECORD_UPDATE_ERROR']);
  assert.deepEqual(await ask('GET', 'fourth'), [404, 'RECORD_NOT_FOUND', null]);
  assert.deepEqual(await ask('GET', 'before'), [200, null, null]);
  assert.equal((await server.get('/ready')).status, 503);

  end();
  await eventually(() => isReady(server), '/ready answers 200 again', RECOVERY_MS);
  assert.deepEqual(await ask('PUT', 'fourth', { n: 1 }), [201, null, null]);
  await server.kill();
  await server.start();
  for (const name of ['before', 'first', 'second', 'third', 'fourth']) assert.equal((await ask('GET', name))[0], 200, name);
});

test('a stop that the disk prevents ends with code 5 and counts the lost records', async (t) => {
  const { server, begin } = await failingSyncs(t, { drainTimeoutMs: 2_000 });
  const writer = await connect(t, server, { errors: ['CONNECTION_ERROR'] });
  begin();
  const writes = await writeUntilNotReady(server, writer);
  // These acknowledgements will never arrive.
  for (const { acknowledged } of writes) acknowledged.catch(() => undefined);
  await assert.rejects(server.stop(), /stopped with 5:\n(.*\n)*.* [1-9][0-9]* records not on disk.*\n$/);
});

test('a damaged record is reported and never served, and the others are', async (t) => {
  const server = await Server.during(t);
  const writer = await connect(t, server);
  for (const name of ['sound', 'damaged']) await writer.record.setDataWithAck(name, { n: 1 });
  close(writer);
  await server.stop();
  damage(join(server.dataFolder, 'records.sqlite'), 'damaged');
  await server.start();

  const client = await connect(t, server, { errors: ['RECORD_LOAD_ERROR'] });
  assert.deepEqual(await client.record.snapshot('sound'), { n: 1 });
  for (let times = 0; times < 2; times += 1) {
    await assert.rejects(async () => client.record.snapshot('damaged'), /RECORD_LOAD_ERROR/);
  }
  await assert.rejects(async () => client.record.setDataWithAck('damaged', { n: 2 }), /RECORD_LOAD_ERROR/);
  await server.prints(/"record":"damaged"/);
  for (const method of ['GET', 'PUT', 'PATCH', 'DELETE']) {
    const type = method === 'PATCH' ? 'application/merge-patch+json' : 'application/json';
    const body = method === 'PUT' || method === 'PATCH' ? { body: '{"n":2}' } : {};
    const answer = await fetch(url(server, '/records/damaged'), { method, headers: { 'content-type': type }, ...body });
    assert.deepEqual([answer.status, answer.headers.get('retry-after')], [503, '5'], method);
    const code = method === 'DELETE' ? 'RECORD_DELETE_ERROR' : 'RECORD_LOAD_ERROR';
    assert.equal(((await answer.json()) as { code: string }).code, code, method);
  }
  const read = await command(server, { topic: 'record', action: 'read', recordName: 'damaged' });
  assert.deepEqual([read['success'], read['errorEvent'], read['errorParams']], [false, 103, 'RECORD_LOAD_ERROR']);
  const { pieces } = await openStream(t, url(server, '/sse?record=damaged'));
  const told = await pieces.next();
  assert.deepEqual([told.event, told.data.code], ['refused', 'RECORD_LOAD_ERROR']);
  assert.match(await (await server.get('/metrics')).text(), /^tidewire_store_corrupt_records\S* [1-9]/m);
});

test('a start on a full disk ends with code 4 and reports what to do', async (t) => {
  const disk = await SmallDisk.during(t);
  disk.fill();
  const start = Server.start({ dataFolder: join(disk.path, 'data'), launcher: disk.launcher });
  await assert.rejects(start, /ended with 4 while starting:\n(.*\n)*.* is full; make room.*\n$/);
});

interface Write {
  name: string;
  n: number;
  acknowledged: Promise<unknown>;
}

/** Writes until `/ready` fails. The first writes may still find room in the log; the last one is the first write after that. */
async function writeUntilNotReady(server: Server, client: TestClient): Promise<Write[]> {
  const writes: Write[] = [];
  const write = (): void => {
    const [name, n] = [`fault/${writes.length}`, writes.length];
    const data = { n, filling: 'x'.repeat(MEGABYTE / 8) };
    writes.push({ name, n, acknowledged: client.record.setDataWithAck(name, data) as Promise<unknown> });
  };
  await eventually(async () => {
    write();
    return !(await isReady(server));
  }, '/ready answers 503');
  write();
  return writes;
}

/** A disk that fills up. */
async function fullDisk(test: TestContext, options: ServerOptions = {}): Promise<Outage> {
  const disk = await SmallDisk.during(test);
  const server = await Server.start({ ...options, dataFolder: join(disk.path, 'data'), launcher: disk.launcher });
  atEnd(test, () => server.dispose());
  return { server, begin: () => disk.fill(), end: () => disk.empty() };
}

async function failingSyncs(test: TestContext, options: ServerOptions = {}): Promise<Outage> {
  const syncs = FailingSyncs.during(test);
  const server = await Server.start({ ...options, launcher: syncs.launcher });
  atEnd(test, () => server.dispose());
  return { server, begin: () => syncs.begin(server), end: () => syncs.end(server) };
}

/** A disk that hangs until it is thawed: a process that writes to it waits in the kernel. */
async function hangingDisk(test: TestContext, options: ServerOptions = {}): Promise<Outage> {
  const volume = await Volume.create();
  atEnd(test, () => volume.dispose());
  const server = await Server.start({ ...options, dataFolder: join(volume.path, 'data'), launcher: volume.launcher });
  atEnd(test, async () => {
    volume.thaw();
    await server.dispose();
  });
  return { server, begin: () => volume.freeze(), end: () => volume.thaw() };
}

/** Changes a stored value behind the server's back, as a failing disk does. Python has SQLite, Node 20 does not. */
function damage(database: string, name: string): void {
  const program = `
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as database:
    database.execute("UPDATE records SET data = '{\\"n\\":7}' WHERE name = ?", [sys.argv[2]])
`;
  execFileSync('python3', ['-c', program, database, name]);
}
