// The power fails at a random moment under load. Nothing that was acknowledged may be missing afterwards. That the test
// can see a loss is shown with a server that does not sync: a kill alone would not tell the two apart, because what a
// dead process has written is still in the kernel's memory.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import { Mounts } from '../harness/mounts.ts';
import { ROUND_COUNT, ROUND_TIMEOUT_MS, Rounds } from './rounds.ts';

/** Power cuts after which a server without syncs must have lost something. */
const UNSYNCED_CUTS_MAX = 3;

test(`acknowledged writes survive ${ROUND_COUNT} power cuts`, { timeout: ROUND_COUNT * ROUND_TIMEOUT_MS }, async (t) => {
  const rounds = await Rounds.onVolume(t);
  // Another suite's small disk copies every mount that all processes see; a volume among them would live on there without power.
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
