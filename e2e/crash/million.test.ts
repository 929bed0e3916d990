// Many records: the time of a start after a crash, the time of a planned restart, and the memory do not depend on their number. The
// small form runs with all tests; `MILLION_RECORDS=1000000` is the proof.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { C, type TestClient, close, inState } from '../harness/client.ts';
import { Server } from '../harness/server.ts';
import { within } from '../harness/wait.ts';
import { loggedIn } from './writers.ts';

const RECORD_COUNT = Number(process.env['MILLION_RECORDS'] ?? 20_000);
const RECORD_BYTES = 1_000;
/** Operations that one client has in flight at a time. */
const UNDER_WAY = 500;
/** The lowest speed of a busy machine, for deadlines only. */
const OPERATIONS_PER_SECOND_MIN = 500;

/** The records and the log of the crash may delay a start by this, compared with an empty server, which also reads its program. */
const ADDED_MS_MAX = 3_000;
/** A sixteenth of the data, so that most reads miss it: 63 MB for a million records. */
const CACHE_BYTES = (RECORD_COUNT * RECORD_BYTES) / 16;
/** The cache plus the process itself; 198 MB with a million records. */
const MEMORY_BYTES_MAX = CACHE_BYTES + 135 * 1_000_000;
/** Clients that must all reconnect after a stop and a start; they give up about 40 s after the loss. */
const CLIENT_COUNT = 20;
const RESTART_MS_MAX = 15_000;
/** Operations between two measurements of the memory. */
const LOOK_INTERVAL = 1_000;

const timeout = 60_000 + (4 * RECORD_COUNT * 1_000) / OPERATIONS_PER_SECOND_MIN;

test(`${RECORD_COUNT} records of 1 KB: a quick start after a kill, and bounded memory`, { timeout }, async (t) => {
  const server = await Server.during(t, { cacheBytesMax: CACHE_BYTES });
  await server.kill();
  const emptyMs = await firstReadMs(server, async (reader) => assert.equal(await reader.record.has(name(0)), false));
  const client = await loggedIn(server.address);
  await each(inOrder(), (i) => client.record.setDataWithAck(name(i), value(i)));
  await killUnderLoad(server, client);
  const last = RECORD_COUNT - 1;
  const readLast = async (reader: TestClient): Promise<void> => {
    assert.equal(((await reader.record.snapshot(name(last))) as { n: number }).n, last);
  };
  const fullMs = await firstReadMs(server, readLast);
  const times = `a client has read a record ${fullMs.toFixed(0)} ms after the start, and ${emptyMs.toFixed(0)} ms where there are none`;
  t.diagnostic(times);
  assert.ok(fullMs - emptyMs < ADDED_MS_MAX, times);

  const reader = await loggedIn(server.address);
  let memoryBytesMax = 0;
  await each(inRandomOrder(), async (i, done) => {
    const found = (await reader.record.snapshot(name(i))) as { n: number; filling: string };
    assert.deepEqual([found.n, found.filling.length], [i, RECORD_BYTES], name(i));
    await reader.record.setDataWithAck(name(i), 'patched', i as never);
    if (done % LOOK_INTERVAL === 0) memoryBytesMax = Math.max(memoryBytesMax, server.memoryBytes);
  });
  memoryBytesMax = Math.max(memoryBytesMax, server.memoryBytes);
  t.diagnostic(`the process held at most ${(memoryBytesMax / 1_000_000).toFixed(0)} MB`);
  assert.ok(memoryBytesMax < MEMORY_BYTES_MAX, `the process held ${memoryBytesMax} bytes`);

  const others = await Promise.all(Array.from({ length: CLIENT_COUNT }, () => loggedIn(server.address)));
  const restart = performance.now();
  const back = others.map(async (other) => {
    await inState(other, C.CONNECTION_STATE.RECONNECTING);
    await inState(other, C.CONNECTION_STATE.OPEN);
    return other.record.snapshot(name(last));
  });
  await server.stop();
  await server.start();
  await within(RESTART_MS_MAX, Promise.all(back), 'all clients are back');
  const restartMs = performance.now() - restart;
  t.diagnostic(`all clients were back ${restartMs.toFixed(0)} ms after the stop began`);
  assert.ok(restartMs < RESTART_MS_MAX, `the stop and start took ${restartMs} ms`);
  [reader, ...others].forEach(close);
});

/** Milliseconds from the start of a stopped server, with cold page cache, until a client has read a record. */
async function firstReadMs(server: Server, read: (reader: TestClient) => Promise<void>): Promise<number> {
  dropPageCache();
  const start = performance.now();
  await server.start();
  const reader = await loggedIn(server.address);
  await read(reader);
  const ms = performance.now() - start;
  close(reader);
  return ms;
}

/** Writes until the server is killed during the writes. */
async function killUnderLoad(server: Server, client: TestClient): Promise<void> {
  let acknowledged = (): void => {};
  const some = new Promise<void>((done) => (acknowledged = done));
  const write = async (i: number): Promise<void> => {
    await client.record.setDataWithAck(name(i), value(i));
    if (i >= UNDER_WAY) acknowledged();
  };
  // The server never answers the writes that the kill interrupts.
  void each(inOrder(), write).catch(() => undefined);
  await within(30_000, some, 'the load before the kill');
  await server.kill();
  close(client);
}

/** Drops the page cache, so that the next start reads from the disk. */
function dropPageCache(): void {
  if (process.getuid?.() !== 0) throw new Error('this test drops the page cache and must run as root');
  execFileSync('sync');
  writeFileSync('/proc/sys/vm/drop_caches', '3');
}

/** Runs `operation` for every number, `UNDER_WAY` at a time; `done` is the number of completed operations. */
async function each(numbers: Uint32Array, operation: (i: number, done: number) => unknown): Promise<void> {
  let next = 0;
  let done = 0;
  const chain = async (): Promise<void> => {
    while (next < numbers.length) {
      const i = numbers[next] as number;
      next += 1;
      await operation(i, done);
      done += 1;
    }
  };
  await Promise.all(Array.from({ length: UNDER_WAY }, chain));
}

function inOrder(): Uint32Array {
  return Uint32Array.from({ length: RECORD_COUNT }, (_, i) => i);
}

/** Every number once, in an order that a cache can't predict. */
function inRandomOrder(): Uint32Array {
  const numbers = inOrder();
  for (let i = numbers.length - 1; i > 0; i -= 1) {
    const j = Math.floor(Math.random() * (i + 1));
    [numbers[i], numbers[j]] = [numbers[j] as number, numbers[i] as number];
  }
  return numbers;
}

function name(i: number): string {
  return `million/${i}`;
}

function value(i: number): { n: number; filling: string } {
  return { n: i, filling: 'x'.repeat(RECORD_BYTES) };
}
