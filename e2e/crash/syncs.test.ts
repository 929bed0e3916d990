// Syncs fail once, ten times in a row and forever, under load, and then the power fails. After a failed sync it is unknown which
// data reached the disk, so the server must not acknowledge any write of its batch before it has committed the batch again.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { isFailing, isReady, LOOK_MS, NOTICED_MS } from '../harness/outage.ts';
import type { Server } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';
import { FailingSyncs } from './failing-syncs.ts';
import { Rounds } from './rounds.ts';
import type { Writers } from './writers.ts';

const FAILED_COMMITS = 'tidewire_store_failed_commits_total';
/** Acknowledgements over the handle that was opened after the failures. */
const ACKNOWLEDGED_LATER = 200;
const WRITE_TIMEOUT_MS = 1_000;
/** Longer than ten delays of the server. The last ones take five seconds each, and their sum is close to the default write timeout. */
const TIME_TO_WAIT = '2m';

/** Waits until commits work again and writes are acknowledged. */
async function recovered(server: Server, writers: Writers): Promise<void> {
  await eventually(() => isReady(server), '/ready answers 200 again');
  await writers.reach(writers.acknowledgedCount + ACKNOWLEDGED_LATER);
  assert.deepEqual(writers.errors, [], 'a write was refused that had time to wait');
}

// The tests mostly wait for the server's delays, so they run concurrently.
describe('no acknowledged write is missing after a power cut that followed failed syncs', { concurrency: true }, () => {
  test('once', async (t) => {
    const syncs = FailingSyncs.during(t);
    const rounds = await Rounds.onVolume(t, { launcher: syncs.launcher });
    const faults = await rounds.run(async (server, writers) => {
      const failed = (): Promise<boolean> => {
        syncs.failOnce(server);
        return eventually(async () => (await server.metric(FAILED_COMMITS)) === 1, 'a commit fails', 5_000);
      };
      // The sync that fails may be one of a checkpoint.
      await failed().catch(failed);
      await recovered(server, writers);
      assert.equal(await server.metric(FAILED_COMMITS), 1);
    });
    assert.deepEqual(faults, []);
  });

  test('ten times', async (t) => {
    const syncs = FailingSyncs.during(t);
    const rounds = await Rounds.onVolume(t, { launcher: syncs.launcher, record: { write_timeout: TIME_TO_WAIT } });
    const faults = await rounds.run(async (server, writers) => {
      syncs.begin(server);
      await eventually(async () => (await server.metric(FAILED_COMMITS)) >= 10, 'ten commits fail', 60_000);
      syncs.end(server);
      await recovered(server, writers);
    });
    assert.deepEqual(faults, []);
  });

  test('for ever', async (t) => {
    const syncs = FailingSyncs.during(t);
    const record = { write_timeout: `${WRITE_TIMEOUT_MS}ms` };
    const rounds = await Rounds.onVolume(t, { launcher: syncs.launcher, record });
    const faults = await rounds.run(async (server, writers) => {
      syncs.begin(server);
      await eventually(() => isFailing(server), '/ready names the store', NOTICED_MS + LOOK_MS);
      await eventually(async () => (await server.metric(FAILED_COMMITS)) >= 2, 'a commit fails again');
      await writers.caughtUp();
      const before = writers.acknowledgedCount;
      // The other half may wait for the deletion of a record, for which the client has no timeout.
      await eventually(() => writers.errors.length >= writers.count / 2, 'the writers that only write have their answers');
      assert.deepEqual(new Set(writers.errors), new Set(['RECORD_UPDATE_ERROR']));
      assert.equal(writers.acknowledgedCount, before, 'a write was acknowledged that can not be on disk');
    });
    assert.deepEqual(faults, []);
  });
});
