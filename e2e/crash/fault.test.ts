// The disk fails while the server runs, and recovers. Writes that can't be made durable are not acknowledged, stay
// visible, are reported by `/ready`, and are acknowledged once the disk has them. What the disk has damaged is not served.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import { type TestClient, close, connect } from '../harness/client.ts';
import { Server, type ServerOptions } from '../harness/server.ts';
import { eventually, isPending, within } from '../harness/wait.ts';

/** The engine's longest pause between two attempts, and time for a busy machine. */
const RECOVERY_MS = 30_000;
const MEGABYTE = 1024 * 1024;

interface Fault {
  server: Server;
  /** From here on commits fail. */
  begin(): void;
  end(): void;
}

const FAULTS = [
  { what: 'a full disk', plant: fullDisk },
  { what: 'failing syncs', plant: failingSyncs },
];

for (const { what, plant } of FAULTS) {
  test(`${what}: nothing is acknowledged, nothing is taken back, and all of it is kept in the end`, async (t) => {
    const { server, begin, end } = await plant(t);
    const [writer, reader] = [await connect(t, server), await connect(t, server)];
    await writer.record.setDataWithAck('before', { n: 1 });

    begin();
    const writes = await writeUntilNotReady(server, writer);
    const unacknowledged = writes.at(-1) as Write;
    assert.ok(await isPending(unacknowledged.acknowledged), 'a write was acknowledged that can not be on disk');
    await eventually(() => reader.record.has(unacknowledged.name), 'the write has reached the server');
    const shown = await reader.record.snapshot(unacknowledged.name);
    assert.equal((shown as { n: number }).n, unacknowledged.n);
    assert.equal((await server.get('/health')).status, 200);
    await server.prints(/the store can't commit/);

    end();
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

test('a stop that the disk does not let finish ends with code 5 and counts what is lost', async (t) => {
  const { server, begin } = await failingSyncs(t, { drainTimeoutMs: 2_000 });
  const writer = await connect(t, server, { errors: ['CONNECTION_ERROR'] });
  begin();
  const writes = await writeUntilNotReady(server, writer);
  // Nobody will ever answer these.
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
  assert.match(await (await server.get('/metrics')).text(), /^tidewire_store_corrupt_records\S* [1-9]/m);
});

test('a start on a full disk ends with code 4 and says what to do', async (t) => {
  const disk = mountedDisk(t);
  fill(join(disk, 'filler'));
  const start = Server.start({ dataFolder: join(disk, 'data') });
  await assert.rejects(start, /ended with 4 while starting:\n(.*\n)*.* is full; make room.*\n$/);
});

interface Write {
  name: string;
  n: number;
  acknowledged: Promise<unknown>;
}

/** The first writes may still find room in the log; the last one is the first after `/ready` said no. */
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

async function isReady(server: Server): Promise<boolean> {
  const answer = await server.get('/ready');
  assert.ok([200, 503].includes(answer.status), `/ready answered ${answer.status}`);
  return answer.ok;
}

/** A disk that fills up. */
async function fullDisk(test: TestContext): Promise<Fault> {
  const disk = mountedDisk(test);
  const server = await Server.start({ dataFolder: join(disk, 'data') });
  atEnd(test, () => server.dispose());
  const filler = join(disk, 'filler');
  return { server, begin: () => fill(filler), end: () => rmSync(filler) };
}

/** The path of a small disk that ends with the test. */
function mountedDisk(test: TestContext): string {
  if (process.getuid?.() !== 0) throw new Error('the test of a full disk mounts one and must run as root');
  const disk = mkdtempSync(join(tmpdir(), 'tidewire-disk-'));
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64m', 'tmpfs', disk]);
  atEnd(test, () => {
    execFileSync('umount', ['--lazy', disk]);
    rmSync(disk, { recursive: true });
  });
  return disk;
}

/** Writes to `path` until nothing more fits. */
function fill(path: string): void {
  for (let bytes = MEGABYTE; bytes >= 1; ) {
    try {
      appendFileSync(path, Buffer.alloc(bytes));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
      bytes = Math.floor(bytes / 4);
    }
  }
}

/** Every sync fails, as it does on a disk with bad sectors. libfiu stands between the server and its C library. */
async function failingSyncs(test: TestContext, options: ServerOptions = {}): Promise<Fault> {
  try {
    execFileSync('which', ['fiu-run', 'fiu-ctrl'], { stdio: 'ignore' });
  } catch {
    throw new Error('the test of failing syncs needs fiu-run and fiu-ctrl; install fiu-utils');
  }
  const pipes = mkdtempSync(join(tmpdir(), 'tidewire-fiu-'));
  atEnd(test, () => rmSync(pipes, { recursive: true }));
  const server = await Server.start({ ...options, launcher: ['fiu-run', '-x', '-f', join(pipes, 'pipe')] });
  atEnd(test, () => server.dispose());
  const control = (command: string): void => {
    execFileSync('fiu-ctrl', ['-f', join(pipes, 'pipe'), '-c', `${command} name=posix/io/sync/*`, String(server.pid)]);
  };
  return { server, begin: () => control('enable'), end: () => control('disable') };
}

/** Changes a stored value behind the server's back, as a failing disk does. Node 20 has no SQLite, Python has. */
function damage(database: string, name: string): void {
  const program = `
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as database:
    database.execute("UPDATE records SET data = '{\\"n\\":7}' WHERE name = ?", [sys.argv[2]])
`;
  execFileSync('python3', ['-c', program, database, name]);
}
