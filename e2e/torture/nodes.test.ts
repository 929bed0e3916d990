// `tidewire torture --nodes 3`: each fault of a cluster once, on PostgreSQL. It detects servers that are broken on purpose, and refuses a
// store that has records.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Database } from '../harness/database.ts';
import { figure, restartCommand, torture } from './torture.ts';

/** Every fault once, and a second kill. */
const FAULTS = 12;
const KINDS = [
  ...['kill', 'kill while stopped', 'short stop', 'long stop', 'drain', 'one-way cut', 'cut from nodes', 'cut from store', 'cut from all'],
  ...['store connections', 'store restart'],
];
/** A fault takes about 6 s with the time until all nodes are back. */
const TIMEOUT_MS = 300_000;

test('every fault passes on three nodes, which then refuse their store to another run', { timeout: TIMEOUT_MS }, async (t) => {
  const database = await Database.during(t, 'postgres');
  const nodes = ['--nodes', '3', '--store', `${database.url}/postgres`];
  const restart = await restartCommand(t, database);
  const { code, text } = await torture(t, [...nodes, '--faults', String(FAULTS), '--restart-store', restart]);
  assert.equal(code, 0, text);
  assert.match(text, /^verdict: green/m);
  for (const name of [...KINDS, 'rejoins', 'repeated writes', 'acked replacements', 'stored records', 'resumed readers']) {
    assert.ok(figure(text, name) > 0, `${name}: ${text}`);
  }
  for (const name of ['acked writes', 'delivered events', 'checked operations']) assert.ok(figure(text, name) > 1000, text);
  assert.match(text, /^all names writable after a kill: median \d/m);
  assert.match(text, /^all names writable after silence: median \d/m);

  const again = await torture(t, [...nodes, '--faults', '1']);
  assert.equal(again.code, 4, again.text);
  assert.match(again.text, /the store has records, as .*; the torture test needs an empty database/);
});

const losses: [broken: string, loss: RegExp][] = [
  ['write-before-sync', /^verdict: RED: .*torture\/\d+\/\d+: (is missing|was created again|no order explains its history)/m],
  ['event-before-sync', /^verdict: RED: .*torture\/(long|short): /m],
];

for (const [broken, loss] of losses) {
  test(`--break ${broken} is detected on three nodes`, { timeout: TIMEOUT_MS }, async (t) => {
    const database = await Database.during(t, 'postgres');
    const { code, text } = await torture(t, ['--nodes', '3', '--store', `${database.url}/postgres`, '--faults', String(FAULTS), '--break', broken]);
    assert.equal(code, 1, text);
    assert.match(text, loss);
  });
}
