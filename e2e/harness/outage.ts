// The behaviour of clients and operations while a store accepts no writes, whatever the cause, and the data afterwards.

import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { C, close, connect, record } from './client.ts';
import type { Server, ServerOptions } from './server.ts';
import { eventually, isPending, within } from './wait.ts';

/** The server must report a failing store within this time. */
export const NOTICED_MS = 1_000;
/** Time for one check on a busy machine. */
export const LOOK_MS = 1_000;
/** The server's longest delay between two attempts, plus time for a busy machine. */
const RECOVERY_MS = 30_000;
const WRITE_TIMEOUT_MS = 2_000;
/** Capacity of the write queue, in records. */
const QUEUE_MAX = 5;

/** A server whose store can be made to fail. */
export interface Outage {
  server: Server;
  begin(): void | Promise<void>;
  end(): void | Promise<void>;
}

/** The options that `seesOutage` needs. One shard, because each shard has its own queue. */
export const OUTAGE_OPTIONS: ServerOptions = {
  shards: 1,
  limits: { dirty_records_max: QUEUE_MAX },
  record: { write_timeout: `${WRITE_TIMEOUT_MS}ms` },
  keepsOutput: true,
};

interface Ready {
  ready: boolean;
  reasons: Array<{ code: string; text: string }>;
  warnings: Array<{ code: string; text: string }>;
}

export async function ready(server: Server): Promise<Ready> {
  const answer = await server.get('/ready');
  assert.ok([200, 503].includes(answer.status), `/ready answered ${answer.status}`);
  return (await answer.json()) as Ready;
}

export async function isReady(server: Server): Promise<boolean> {
  return (await ready(server)).ready;
}

export async function isFailing(server: Server): Promise<boolean> {
  return (await ready(server)).reasons.some(({ code }) => code === 'store_failing');
}

/** Takes a store through an outage. `says` matches the log, and `text` matches the reason in `/ready`. */
export async function seesOutage(t: TestContext, outage: Outage, says: RegExp, text: RegExp): Promise<void> {
  const { server } = outage;
  const numbers = Array.from({ length: QUEUE_MAX - 1 }, (_, index) => index + 1);
  const writer = await connect(t, server, { errors: ['RECORD_UPDATE_ERROR', 'CONNECTION_ERROR'] });
  // All records stay in memory, because a store that does not answer can't load others.
  const names = ['cached', ...numbers.map((n) => `queued/${n}`), 'beyond'];
  for (const name of names) await writer.record.setDataWithAck(name, { n: 0 });
  const cached = await record(writer, 'cached');

  await outage.begin();
  const start = performance.now();
  const refused = (writer.record.setDataWithAck('cached', { n: 1 }) as Promise<unknown>).then(
    () => assert.fail('a write was acknowledged that the store does not have'),
    (error: unknown) => ({ error: String(error), ms: performance.now() - start }),
  );
  await eventually(() => isFailing(server), '/ready names the store', NOTICED_MS + LOOK_MS);
  assert.match((await ready(server)).reasons[0]?.text ?? '', text);
  await server.prints(says);
  const failures = await server.metric('tidewire_store_failed_commits_total');
  const unanswered = await server.metric('tidewire_store_unanswered_seconds');
  assert.ok(failures > 0 || unanswered > 0, 'no metric reports that the store does not work');
  assert.equal((await server.get('/health')).status, 200);

  // The writer that requested an acknowledgement receives the error at the deadline and not earlier.
  const { error, ms } = await refused;
  assert.match(error, /RECORD_UPDATE_ERROR/);
  assert.ok(ms >= WRITE_TIMEOUT_MS, `the write was given up after ${ms.toFixed(0)} ms`);

  // Records in memory remain readable and writable, and other clients receive their changes.
  const reader = await connect(t, server);
  assert.deepEqual(await reader.record.snapshot('cached'), { n: 1 });
  const seen = await record(reader, 'cached');
  cached.set('n', 2);
  await eventually(() => (seen.get() as { n: number }).n === 2, 'a change of a cached record reaches others');

  // Writes without an acknowledgement fill the queue; the server refuses one more, and no other client sees it.
  for (const n of numbers) writer.record.setData(`queued/${n}`, { n });
  await eventually(async () => (await server.metric('tidewire_dirty_records')) === QUEUE_MAX, 'the queue is full');
  writer.record.setData('beyond', { n: 1 });
  const told = await writer.errors.find(({ event }) => event === 'RECORD_UPDATE_ERROR');
  assert.equal(told.topic, C.TOPIC[C.TOPIC.RECORD]);
  assert.equal(await server.metric('tidewire_dirty_records'), QUEUE_MAX);
  const late = writer.record.setDataWithAck('cached', { n: 3 }) as Promise<unknown>;
  late.catch(() => undefined);
  await eventually(() => (seen.get() as { n: number }).n === 3, 'a record in the queue still changes');
  assert.ok(await isPending(late), 'a write was acknowledged that the store does not have');

  await outage.end();
  await eventually(() => isReady(server), '/ready answers 200 again', RECOVERY_MS);
  // The first success shows that the store works; queued writes need another batch.
  await eventually(async () => (await server.metric('tidewire_dirty_records')) === 0, 'the queue is empty', RECOVERY_MS);
  await within(RECOVERY_MS, writer.record.setDataWithAck('after', { n: 1 }) as Promise<unknown>, 'a write is acknowledged again');
  [writer, reader].forEach(close);
  await server.kill();
  await server.start();
  const later = await connect(t, server);
  const expected = new Map<string, number>([['cached', 3], ['after', 1], ['beyond', 0]]);
  for (const n of numbers) expected.set(`queued/${n}`, n);
  for (const [name, n] of expected) assert.deepEqual(await later.record.snapshot(name), { n }, name);
}
