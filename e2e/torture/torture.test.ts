// `tidewire torture`: one minute finds no fault, and it detects each of its broken servers within 30 seconds. Where faults
// can't be injected, it reports that and does not pass. `make proof-torture` runs ten minutes.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { type TestContext, test } from 'node:test';
import { binary } from '../harness/server.ts';

/** This time is far longer than the first pass through all faults. */
const SECONDS = Number(process.env['TORTURE_SECONDS'] ?? 60);
/** Within this time the loss of a broken server must be detected. */
const BROKEN_SECONDS = 30;
/** Time for the start and the last check. */
const SLACK_MS = 60_000;

interface Outcome {
  code: number | null;
  text: string;
  seconds: number;
}

/** Runs `tidewire torture` and shows its verdict. */
function torture(t: TestContext, args: string[], env: NodeJS.ProcessEnv = process.env): Promise<Outcome> {
  const start = performance.now();
  const child = spawn(binary(), ['torture', ...args], { stdio: ['ignore', 'pipe', 'pipe'], env });
  t.after(() => child.kill('SIGKILL'));
  let text = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (part: Buffer) => (text += part.toString()));
  return new Promise((done) => {
    child.once('error', (error) => done({ code: null, text: error.message, seconds: 0 }));
    child.once('close', (code) => {
      t.diagnostic(text.trim().split('\n').map((line) => line.replace(/ +/g, ' ')).join('; '));
      done({ code, text, seconds: (performance.now() - start) / 1000 });
    });
  });
}

function figure(text: string, name: string): number {
  return Number(new RegExp(`^${name} +(\\d+)$`, 'm').exec(text)?.[1]);
}

test(`${SECONDS} seconds pass`, { timeout: 3 * SECONDS * 1000 + SLACK_MS }, async (t) => {
  const { code, text } = await torture(t, ['--seconds', String(SECONDS)]);
  assert.equal(code, 0, text);
  assert.match(text, /^verdict: green/m);
  for (const name of ['kills', 'power cuts', 'stops', 'drains', 'cut connections', 'failed syncs', 'full disks', 'repeated writes', 'resumed readers', 'reported gaps']) {
    assert.ok(figure(text, name) > 0, name);
  }
  for (const name of ['acked writes', 'delivered events']) assert.ok(figure(text, name) > 1000, text);
});

/** The verdict on a broken server. */
const LOSS = /^verdict: RED: (after a restart: )?torture\//m;
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
