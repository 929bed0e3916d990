// A database server whose disk is full, as clients and operators see it: PostgreSQL refuses writes, Redis and Valkey end. No
// acknowledged write is lost, and Tidewire's server recovers by itself when the disk has space again.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { connect, record, type TestClient } from '../harness/client.ts';
import { Database, type DatabaseKind } from '../harness/database.ts';
import { isFailing, isReady, OUTAGE_OPTIONS, ready } from '../harness/outage.ts';
import { Server } from '../harness/server.ts';
import { SmallDisk } from '../harness/small-disk.ts';
import { eventually } from '../harness/wait.ts';

interface Store {
  kind: DatabaseKind;
  section: string;
  path: string;
  /** The reason in `/ready`. */
  text: RegExp;
  /** Whether the database ends: with `appendfsync always` it can't continue without its file. */
  ends: boolean;
}

const STORES: Store[] = [
  { kind: 'postgres', section: 'postgres', path: '/postgres', text: /the store fails: .*No space left on device/, ends: false },
  { kind: 'redis', section: 'redis', path: '/0', text: /the store fails/, ends: true },
  { kind: 'valkey', section: 'redis', path: '/0', text: /the store fails/, ends: true },
];
/** Space for an empty PostgreSQL and its log. */
const DISK_MEGABYTES = 160;
/** Far more writes than the disk can hold. */
const WRITES_MAX = 500;

/** A value that no server can compress. */
function filling(): { text: string } {
  return { text: randomBytes(48 * 1024).toString('base64') };
}

/** Writes until a write is refused; returns the acknowledged writes and the refused one. */
async function writeUntilRefused(client: TestClient): Promise<{ kept: Map<string, object>; open: [name: string, value: object] }> {
  const kept = new Map<string, object>();
  for (let n = 0; n < WRITES_MAX; n += 1) {
    const [name, value] = [`filling/${n}`, filling()];
    try {
      await client.record.setDataWithAck(name, value);
    } catch (error) {
      assert.match(String(error), /RECORD_UPDATE_ERROR/);
      return { kept, open: [name, value] };
    }
    kept.set(name, value);
  }
  throw new Error('a full disk accepts every write');
}

for (const { kind, section, path, text, ends } of STORES) {
  test(`the full disk of a store in ${kind}, as clients and operators see it`, async (t) => {
    const disk = await SmallDisk.during(t, DISK_MEGABYTES);
    const database = await Database.during(t, kind, { disk });
    const server = await Server.during(t, {
      ...OUTAGE_OPTIONS,
      store: { kind: section, timeout: '3s', [section]: { url: database.url + path } },
    });
    const client = await connect(t, server, { errors: ['RECORD_UPDATE_ERROR', 'CONNECTION_ERROR'] });
    await client.record.setDataWithAck('cached', { n: 1 });
    const cached = await record(client, 'cached');

    disk.fill();
    const { kept, open } = await writeUntilRefused(client);
    assert.ok(await isFailing(server), '/ready names the store');
    assert.match((await ready(server)).reasons[0]?.text ?? '', text);
    await server.prints(/the store can't commit/);
    if (ends) await database.ended();
    // Records in memory stay readable.
    const reader = await connect(t, server, { errors: ['CONNECTION_ERROR'] });
    assert.deepEqual(await reader.record.snapshot('cached'), { n: 1 });
    assert.deepEqual(await reader.record.snapshot(open[0]), open[1]);

    disk.empty();
    if (ends) await database.start();
    await eventually(() => isReady(server), '/ready answers 200 again');
    await client.record.setDataWithAck('cached', { n: 2 });
    assert.deepEqual(cached.get(), { n: 2 });
    await eventually(async () => (await server.metric('tidewire_dirty_records')) === 0, 'no write waits for the store');

    // All writes are on the disk, including the refused one: it stayed in the queue.
    await database.crash();
    await server.kill();
    await database.start();
    await server.start();
    const again = await connect(t, server);
    assert.deepEqual(await again.record.snapshot('cached'), { n: 2 });
    for (const [name, value] of [...kept, open]) assert.deepEqual(await again.record.snapshot(name), value, name);
  });
}
