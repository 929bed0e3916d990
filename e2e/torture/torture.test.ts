// `tidewire torture`: one minute finds no fault, and it detects each of its broken servers within 30 seconds. Where faults
// can't be injected, it reports that and does not pass. `make proof-torture` runs ten minutes.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { figure, torture } from './torture.ts';

/** This time is far longer than the first pass through all faults. */
const SECONDS = Number(process.env['TORTURE_SECONDS'] ?? 60);
/** Within this time the loss of a broken server must be detected. */
const BROKEN_SECONDS = 30;
/** Time for the start and the last check. */
const SLACK_MS = 60_000;

test(`${SECONDS} seconds pass`, { timeout: 3 * SECONDS * 1000 + SLACK_MS }, async (t) => {
  const { code, text } = await torture(t, ['--seconds', String(SECONDS)]);
  assert.equal(code, 0, text);
  assert.match(text, /^verdict: green/m);
  for (const name of ['kills', 'power cuts', 'stops', 'drains', 'cut connections', 'failed syncs', 'full disks', 'repeated writes', 'resumed readers', 'reported gaps']) {
    assert.ok(figure(text, name) > 0, name);
  }
  for (const name of ['acked writes', 'delivered events']) assert.ok(figure(text, name) > 1000, text);
});

/** The verdict on a broken server: a reader or, if it is faster, the writer itself finds that an acknowledged write is lost. */
const LOSS = /^verdict: RED: ((after a restart: )?torture\/|the only writer of the record received )/m;
const losses: [broken: string, loss: RegExp][] = [
  ['ack-before-sync', LOSS],
  ['event-before-sync', /^verdict: RED: (after a restart: )?torture\/(long|short): /m],
  // Without syncs the file of a database may be unreadable.
  ['skip-sync', /^verdict: RED: ((after a restart: )?torture\/|the stored records are damaged|.*can't be opened)/m],
  ['drop-on-drain', LOSS],
];

for (const [broken, loss] of losses) {
  test(`--break ${broken} is detected`, { timeout: BROKEN_SECONDS * 1000 + SLACK_MS }, async (t) => {
    const { code, text, seconds } = await torture(t, ['--seconds', String(BROKEN_SECONDS), '--break', broken]);
    assert.equal(code, 1, text);
    assert.match(text, loss);
    assert.ok(seconds <= BROKEN_SECONDS, `${seconds} s`);
  });
}

test('without the programs that faults need it names them and does not pass', { timeout: SLACK_MS }, async (t) => {
  const { code, text } = await torture(t, ['--seconds', '1'], { PATH: '/nowhere' });
  assert.equal(code, 6, text);
  for (const [fault, program] of [['power cuts', 'unshare'], ['failed syncs', 'fiu-run'], ['full disks', 'unshare']]) {
    assert.match(text, new RegExp(`^skipped: ${fault}: ${program}`, 'm'));
  }
  assert.match(text, /^verdict: unproven/m);
});
