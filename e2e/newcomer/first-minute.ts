// The first minute of a newcomer, timed: `make run`, and two tabs of a real browser, each of which shows the edits of the other. The build
// is not timed: it runs before, so that `make run` has nothing to build.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { TestContext } from 'node:test';
import { browserDuring } from '../browser/page.ts';
import { add, connected, entries } from '../demo/tabs.ts';
import { atEnd } from '../harness/cleanup.ts';
import { run } from '../harness/program.ts';
import { environment } from '../harness/server.ts';
import { eventually, within } from '../harness/wait.ts';

export const REPOSITORY = resolve(import.meta.dirname, '../..');
/** The folder of the screenshots. */
const ARTEFACTS = join(REPOSITORY, 'target/newcomer');
const DEADLINE_MS = 60_000;
/** The deadline of the build, which is not timed. */
const BUILD_DEADLINE_MS = 1_800_000;
const STOP_DEADLINE_MS = 25_000;

/** Checks that two tabs see each other within a minute after `make run` in `folder`; `options` override its defaults. */
export async function firstMinute(t: TestContext, folder: string, options: NodeJS.ProcessEnv = {}): Promise<void> {
  const build = ['build', '--locked', '--release', '--package', 'tidewire'];
  run('cargo', build, { cwd: folder, env: environment(), timeoutMs: BUILD_DEADLINE_MS });
  const browser = await browserDuring(t);

  const began = performance.now();
  const seconds = (): string => ((performance.now() - began) / 1_000).toFixed(1);
  const child = spawn('make', ['--no-print-directory', 'run'], { cwd: folder, env: { ...environment(), ...options }, detached: true });
  const ended = new Promise((done) => child.once('exit', done));
  atEnd(t, async () => {
    if (child.exitCode !== null) return;
    process.kill(-(child.pid as number), 'SIGTERM');
    await within(STOP_DEADLINE_MS, ended, 'make run ends after SIGTERM');
  });
  let output = '';
  const printed = new Promise<string>((done, failed) => {
    const keep = (text: Buffer): void => {
      output += text.toString();
      const address = /^ready on/m.test(output) ? /^ +demo +(http:\S+)$/m.exec(output)?.[1] : undefined;
      if (address !== undefined) done(address);
    };
    child.stdout.on('data', keep);
    child.stderr.on('data', keep);
    void ended.then(() => failed(new Error(`make run ended:\n${output}`)));
  });
  const address = await within(DEADLINE_MS, printed, 'make run prints the address of the demo');
  t.diagnostic(`${seconds()} s: the first screen with ${address}`);

  const context = await browser.newContext();
  const tabs = [await context.newPage(), await context.newPage()] as const;
  for (const page of tabs) {
    await page.goto(address);
    await connected(page);
  }
  const [one, other] = tabs;
  await add(one, 'from the first tab');
  await eventually(async () => (await entries(other)).includes('from the first tab'), 'the second tab sees the first');
  await add(other, 'from the second tab');
  await eventually(async () => (await entries(one)).includes('from the second tab'), 'the first tab sees the second');
  const took = performance.now() - began;
  t.diagnostic(`${seconds()} s: both tabs have both edits`);
  assert.ok(took < DEADLINE_MS, `it took ${took} ms`);

  mkdirSync(ARTEFACTS, { recursive: true });
  await one.screenshot({ path: join(ARTEFACTS, 'first-tab.png') });
  await other.screenshot({ path: join(ARTEFACTS, 'second-tab.png') });
  t.diagnostic(`screenshots are in ${ARTEFACTS}`);
}
