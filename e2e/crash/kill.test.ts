// The process is killed at a random moment under load. Afterwards no acknowledged write may be missing.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Server } from '../harness/server.ts';
import { ROUND_COUNT, ROUND_TIMEOUT_MS, Rounds } from './rounds.ts';

test(`acknowledged writes survive ${ROUND_COUNT} kills`, { timeout: ROUND_COUNT * ROUND_TIMEOUT_MS }, async (t) => {
  const server = await Server.during(t);
  const rounds = new Rounds(server, () => server.kill());
  for (let round = 1; round <= ROUND_COUNT; round += 1) {
    assert.deepEqual(await rounds.run(), [], `after kill ${round}`);
  }
  const { writes, deletes } = rounds.ledger.counts;
  t.diagnostic(`${writes} acknowledged writes and ${deletes} acknowledged deletes in ${ROUND_COUNT} kills`);
  assert.ok(writes > 0 && deletes > 0);
});
