// The power fails at a random moment under load. Afterwards no acknowledged write may be missing. A server that does not sync shows that
// the test detects a loss: a kill alone would not, because data that a dead process has written is still in the kernel's memory.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import { Mounts } from '../harness/mounts.ts';
import { ROUND_COUNT, ROUND_TIMEOUT_MS, Rounds } from './rounds.ts';

/** A server without syncs must lose something within this number of power cuts. */
const UNSYNCED_CUTS_MAX = 3;

test(`acknowledged writes survive ${ROUND_COUNT} power cuts`, { timeout: ROUND_COUNT * ROUND_TIMEOUT_MS }, async (t) => {
  const rounds = await Rounds.onVolume(t);
  // As another suite's small disk does, copy every visible mount: a copy of the volume would stay mounted after the power cut.
  const others = await Mounts.made(':');
  atEnd(t, () => others.end());
  for (let round = 1; round <= ROUND_COUNT; round += 1) {
    assert.deepEqual(await rounds.run(), [], `after power cut ${round}`);
  }
  const { writes, deletes } = rounds.ledger.counts;
  t.diagnostic(`${writes} acknowledged writes and ${deletes} acknowledged deletes in ${ROUND_COUNT} power cuts`);
  assert.ok(writes > 0 && deletes > 0);
});

test('a server that does not sync loses acknowledged writes', { timeout: 10 * ROUND_TIMEOUT_MS }, async (t) => {
  const rounds = await Rounds.onVolume(t, { command: ['torture-node', '--break', 'skip-sync'] });
  for (let round = 1; round <= UNSYNCED_CUTS_MAX; round += 1) {
    const faults = await rounds.run();
    if (faults.length === 0) continue;
    t.diagnostic(`power cut ${round} lost ${faults.length} records`);
    return;
  }
  assert.fail(`${UNSYNCED_CUTS_MAX} power cuts lost nothing, so the test of power cuts shows nothing`);
});
