// The first minute of a newcomer, timed: a command that starts the server, and two tabs of a real browser, each of which shows the edits of
// the other.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { TestContext } from 'node:test';
import type { Page } from 'playwright-core';
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
/** Variables of the npm that runs the tests, which a newcomer's npm does not have. Settings such as the registry stay. */
const OF_OUTER_NPM = /^(npm_(?!config_)|npm_config_(local_)?prefix$|INIT_CWD$|NODE_TEST_CONTEXT$)/;

/** A command that a newcomer types. */
export interface Command {
  program: string;
  args: string[];
  /** The working folder. */
  folder: string;
  /** Options that override the server's defaults, as variables. */
  options?: NodeJS.ProcessEnv;
}

/** A command that runs until the end of the test. */
export interface Running {
  /** Waits until the output matches and returns the first group of the match. */
  prints(pattern: RegExp, deadlineMs: number): Promise<string>;
  /** Milliseconds since the start. */
  elapsedMs(): number;
}

/** The environment of a newcomer's shell. */
export function shellEnvironment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(environment()).filter(([name]) => !OF_OUTER_NPM.test(name)));
}

/** Starts a command, which is stopped at the end of the test. */
export function startCommand(t: TestContext, { program, args, folder, options = {} }: Command): Running {
  const began = performance.now();
  const child = spawn(program, args, { cwd: folder, env: { ...shellEnvironment(), ...options }, detached: true });
  // The output ends with the last process that the command has started.
  const ended = new Promise((done) => child.once('close', done));
  const name = [program, ...args].join(' ');
  let isEnded = false;
  atEnd(t, async () => {
    if (isEnded) return;
    process.kill(-(child.pid as number), 'SIGTERM');
    await within(STOP_DEADLINE_MS, ended, `${name} ends after SIGTERM`);
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (text: Buffer) => (output += text.toString()));
  void ended.then(() => (isEnded = true));
  return {
    elapsedMs: () => performance.now() - began,
    prints: async (pattern, deadlineMs) => {
      const find = (): string | undefined => {
        const found = pattern.exec(output)?.[1];
        if (found === undefined && isEnded) throw new Error(`${name} ended:\n${output}`);
        return found;
      };
      return (await eventually(find, `${name} prints ${pattern}`, deadlineMs)) as string;
    },
  };
}

/** Takes a screenshot for the folder of artefacts. */
export async function keepScreenshot(t: TestContext, page: Page, name: string): Promise<void> {
  mkdirSync(ARTEFACTS, { recursive: true });
  const path = join(ARTEFACTS, `${name}.png`);
  await page.screenshot({ path });
  t.diagnostic(`screenshot: ${path}`);
}

/** Checks that two tabs of the demo see each other within `deadlineMs` after the command; the names of the screenshots begin with `name`. */
export async function twoTabs(t: TestContext, command: Command, deadlineMs: number, name: string): Promise<void> {
  const browser = await browserDuring(t);
  const server = startCommand(t, command);
  const seconds = (): string => (server.elapsedMs() / 1_000).toFixed(1);
  const address = await server.prints(/^ +demo +(http:\S+)$[^]*^ready on/m, deadlineMs);
  t.diagnostic(`${seconds()} s: the first screen with ${address}`);

  const context = await browser.newContext();
  const [one, other] = [await context.newPage(), await context.newPage()];
  for (const page of [one, other]) {
    await page.goto(address);
    await connected(page);
  }
  await add(one, 'from the first tab');
  await eventually(async () => (await entries(other)).includes('from the first tab'), 'the second tab sees the first');
  await add(other, 'from the second tab');
  await eventually(async () => (await entries(one)).includes('from the second tab'), 'the first tab sees the second');
  const took = server.elapsedMs();
  t.diagnostic(`${seconds()} s: both tabs have both edits`);
  await keepScreenshot(t, one, `${name}-first-tab`);
  await keepScreenshot(t, other, `${name}-second-tab`);
  assert.ok(took < deadlineMs, `it took ${took} ms`);
}

/**
 * Checks that two tabs see each other within a minute after `make run` in `folder`; `options` override its defaults. The build is not timed: it
 * runs before, so that `make run` has nothing to build.
 */
export async function firstMinute(t: TestContext, folder: string, options: NodeJS.ProcessEnv = {}): Promise<void> {
  const build = ['build', '--locked', '--release', '--package', 'tidewire'];
  run('cargo', build, { cwd: folder, env: environment(), timeoutMs: BUILD_DEADLINE_MS });
  await twoTabs(t, { program: 'make', args: ['--no-print-directory', 'run'], folder, options }, DEADLINE_MS, 'make-run');
}
