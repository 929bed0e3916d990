// Acknowledged writes compared with the disk and databases alone, with a real PostgreSQL and a Redis that syncs each write.
// `STORE_ROUNDS` and `STORE_SECONDS` change the duration.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { Database } from '../harness/database.ts';

const BENCH = resolve(import.meta.dirname, '../../target/release/tidewire-bench');

test('acknowledged writes keep up with the databases that store them', async (t) => {
  const [postgres, redis] = [await Database.during(t, 'postgres'), await Database.during(t, 'redis')];
  const bench = spawn(
    BENCH,
    [
      'store',
      ...['--rounds', process.env['STORE_ROUNDS'] ?? '5', '--seconds', process.env['STORE_SECONDS'] ?? '5'],
      ...['--postgres', `${postgres.url}/postgres`, '--redis', `${redis.url}/0`],
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const ended = once(bench, 'close');
  for await (const line of createInterface(bench.stdout)) t.diagnostic(line);
  const [code] = await ended;
  assert.equal(code, 0, 'a figure is not good enough');
});
