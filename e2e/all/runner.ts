// Runs suites in order, and the suites of a group at the same time as far as the processors allow. It installs missing programs, enforces
// the budgets, and reports at the end which suites passed, failed or were skipped by name, and what failed in them. A suite that could not
// run has failed.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants } from 'node:fs';
import { cpus } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { failureLines } from './failures.ts';

/** A program that a suite needs, and the command that installs it. */
export interface Need {
  program: string;
  install: string[];
}

/** Commands that prove one property. They run in sequence in the repository's root. */
export interface Suite {
  /** For `SKIP=` and `ONLY=`. */
  name: string;
  /** One line that is printed above the suite's output. */
  shows: string;
  commands: string[][];
  needs?: Need[];
  /** Seconds that the suite may take, with its builds but without the installation of programs. */
  budgetSeconds: number;
  /**
   * Consecutive suites of one group run at the same time: always two, and another one whenever these leave processor time idle. Those with
   * the largest budget start first, so that the last ones are short. The output of each is printed as a whole after it has ended.
   */
  group?: string;
}

/** Takes the output of a command. Without it, the command shares the output of this process. */
type Output = ((chunk: Buffer) => void) | undefined;

/** A program that outlives its command may keep the output open. The rest of the output is awaited for this time. */
const REST_MS = 1_000;
/** Two suites run at the same time even if they use all processors: while one waits or compiles its last crate, the other goes on. */
const TOGETHER_MIN = 2;
/** More suites would need more memory, and each would take long enough to exceed its budget. */
const TOGETHER_MAX = 5;

/** When suites of a group start. The tests of this runner replace it. */
export interface Pace {
  /** How long the processors are observed before another suite starts. Within this time a started suite uses what it will use. */
  observeMs: number;
  /** Starts an observation. Its end returns the share of processor time that was used. */
  observe: () => () => number;
  /** Another suite starts if the share is below this. */
  busyMax: number;
}

const PACE: Pace = { observeMs: 8_000, observe: processorShare, busyMax: 0.8 };

/** Lines about the failures of one suite in the report. */
const FAILURES_MAX = 12;

/** The result of a suite. */
export interface Outcome {
  name: string;
  state: 'passed' | 'failed' | 'skipped';
  seconds: number;
  /** Why it failed. */
  reason?: string;
  /** The lines of its output that name failures. */
  failures?: string[];
}

/** Runs the suites whose names are not in `skip`. If `only` is not empty, runs only the suites that it names. */
export async function runSuites(suites: Suite[], skip: string[], only: string[], pace = PACE): Promise<Outcome[]> {
  const unknown = [...skip, ...only].filter((name) => suites.every((suite) => suite.name !== name));
  if (unknown.length > 0) {
    const known = suites.map((suite) => suite.name).join(', ');
    throw new Error(`no suite is named ${unknown.join(', ')}; there are: ${known}`);
  }
  const outcomes: Outcome[] = [];
  for (const group of groupsOf(suites)) {
    const busy = processorShare();
    const isSkipped = ({ name }: Suite): boolean => skip.includes(name) || (only.length > 0 && !only.includes(name));
    const [first, ...others] = group.filter((suite) => !isSkipped(suite));
    const ended = first === undefined ? [] : others.length === 0 ? [await runSuite(first)] : await runTogether([first, ...others], pace);
    if (ended.length > 0) console.log(`    processors: ${(100 * busy()).toFixed(0)} % busy`);
    const skipped = group.filter(isSkipped).map(({ name }): Outcome => ({ name, state: 'skipped', seconds: 0 }));
    const place = ({ name }: Outcome): number => group.findIndex((suite) => suite.name === name);
    outcomes.push(...[...ended, ...skipped].sort((a, b) => place(a) - place(b)));
  }
  return outcomes;
}

function groupsOf(suites: Suite[]): Suite[][] {
  const groups: Suite[][] = [];
  for (const suite of suites) {
    const last = groups.at(-1);
    if (suite.group !== undefined && last?.[0]?.group === suite.group) last.push(suite);
    else groups.push([suite]);
  }
  return groups;
}

async function runTogether(suites: Suite[], pace: Pace): Promise<Outcome[]> {
  console.log(`\n... ${suites.map(({ name }) => name).join(', ')}`);
  const outcomes: Outcome[] = [];
  const running = new Set<Promise<void>>();
  for (const suite of [...suites].sort((a, b) => b.budgetSeconds - a.budgetSeconds)) {
    await idleTime(running, pace);
    // The package manager can install for only one suite at a time, so the next suite starts after this installation.
    const missing = await missingNeed(suite);
    const run: Promise<void> = runBuffered(suite, missing).then((outcome) => {
      outcomes.push(outcome);
      running.delete(run);
    });
    running.add(run);
  }
  await Promise.all(running);
  return outcomes;
}

/** Resolves when another suite may start: fewer than two run, or those that run leave processor time idle. */
async function idleTime(running: Set<Promise<void>>, { observeMs, observe, busyMax }: Pace): Promise<void> {
  while (running.size >= TOGETHER_MIN) {
    const busy = observe();
    const ended = [...running].map((run) => run.then(() => false));
    // The end of a suite changes the load, so the observation starts again.
    const isObserved = await Promise.race([pause(observeMs, true), ...ended]);
    if (isObserved && running.size < TOGETHER_MAX && busy() < busyMax) return;
  }
}

async function runBuffered(suite: Suite, missing: Outcome | undefined): Promise<Outcome> {
  const output: Buffer[] = [];
  const outcome = missing ?? (await runCommands(suite, (chunk) => output.push(chunk)));
  console.log(title(suite));
  process.stdout.write(Buffer.concat(output));
  showSeconds(suite, outcome);
  return withFailures(outcome, output);
}

/** The outcome with what its output tells about a failure. */
function withFailures(outcome: Outcome, output: Buffer[]): Outcome {
  if (outcome.state !== 'failed') return outcome;
  return { ...outcome, failures: failureLines(Buffer.concat(output).toString(), FAILURES_MAX) };
}

/** Returns a function that tells which share of the machine's processor time has been used since this call, by all programs. */
export function processorShare(): () => number {
  const times = (): { idle: number; total: number } => {
    const all = cpus().map((cpu) => cpu.times);
    const total = all.reduce((sum, { user, nice, sys, idle, irq }) => sum + user + nice + sys + idle + irq, 0);
    return { idle: all.reduce((sum, { idle }) => sum + idle, 0), total };
  };
  const start = times();
  return () => {
    const end = times();
    return 1 - (end.idle - start.idle) / Math.max(1, end.total - start.total);
  };
}

/** The table of outcomes with the failures of each suite, and the last line, which counts them. */
export function report(outcomes: Outcome[]): string {
  const lines = outcomes.flatMap(({ name, state, seconds, reason, failures = [] }) => {
    const detail = reason === undefined ? '' : `  ${reason}`;
    const line = `  ${state.padEnd(8)} ${name.padEnd(10)} ${seconds.toFixed(0).padStart(5)} s${detail}`;
    return [line, ...failures.map((failure) => `             ${failure}`)];
  });
  const count = (state: Outcome['state']): number => outcomes.filter((outcome) => outcome.state === state).length;
  const skipped = count('skipped') > 0 ? `, ${count('skipped')} skipped` : '';
  return [...lines, '', `suites: ${count('passed')} passed, ${count('failed')} failed${skipped}`].join('\n');
}

/** The line with the time of a whole run, and whether the run was within its budget. A slow run is not killed: its build warms the next. */
export function clock(name: string, seconds: number, budgetSeconds: number): { line: string; isWithin: boolean } {
  const isWithin = seconds <= budgetSeconds;
  const advice = isWithin ? '' : '; failed: over its budget, which is for warm builds; run it again if this build was cold';
  return { line: `${name}: ${seconds.toFixed(0)} s of ${budgetSeconds} s${advice}`, isWithin };
}

async function runSuite(suite: Suite): Promise<Outcome> {
  console.log(title(suite));
  const output: Buffer[] = [];
  const show = (chunk: Buffer): void => {
    output.push(chunk);
    process.stdout.write(chunk);
  };
  // Programs show colours and progress only on a terminal.
  const outcome = (await missingNeed(suite)) ?? (await runCommands(suite, process.stdout.isTTY ? undefined : show));
  showSeconds(suite, outcome);
  return withFailures(outcome, output);
}

function title({ name, shows }: Suite): string {
  return `\n=== ${name}: ${shows}`;
}

function showSeconds({ budgetSeconds }: Suite, { name, state, seconds, reason }: Outcome): void {
  const detail = reason === undefined ? '' : `, ${state}: ${reason}`;
  console.log(`--- ${name}: ${seconds.toFixed(0)} s of ${budgetSeconds} s${detail}`);
}

/** Installs missing programs. Returns a failed outcome if one can't be installed. */
async function missingNeed({ name, needs }: Suite): Promise<Outcome | undefined> {
  for (const need of needs ?? []) {
    if (!isInstalled(need.program) && !(await install(need))) {
      const reason = `${need.program} is missing: ${need.install.join(' ')}`;
      return { name, state: 'failed', seconds: 0, reason };
    }
  }
  return undefined;
}

async function runCommands({ name, commands, budgetSeconds }: Suite, output: Output): Promise<Outcome> {
  const start = performance.now();
  const elapsed = (): number => (performance.now() - start) / 1000;
  for (const command of commands) {
    const reason = await runCommand(command, budgetSeconds - elapsed(), output);
    if (reason !== undefined) return { name, state: 'failed', seconds: elapsed(), reason };
  }
  return { name, state: 'passed', seconds: elapsed() };
}

async function install(need: Need): Promise<boolean> {
  console.log(`installing ${need.program}`);
  if (need.install[0] === 'apt-get') await runCommand(['apt-get', 'update', '-qq'], 300);
  return (await runCommand(need.install, 900)) === undefined && isInstalled(need.program);
}

/** Runs a command within the given seconds. Resolves to the reason of a failure, or to `undefined`. */
async function runCommand(command: string[], seconds: number, output?: Output): Promise<string | undefined> {
  const [program, ...args] = command as [string, ...string[]];
  const shown = command.join(' ');
  const stream = output === undefined ? 'inherit' : 'pipe';
  // `detached` makes a separate process group, so that the kill also ends processes that the command started.
  const child = spawn(program, args, { stdio: ['ignore', stream, stream], detached: true });
  for (const stream of [child.stdout, child.stderr]) {
    if (output !== undefined) stream?.on('data', output);
  }
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
  }, Math.max(0, seconds) * 1000);
  const closed = once(child, 'close').catch(() => undefined);
  try {
    const [code, signal] = (await once(child, 'exit')) as [number | null, string | null];
    const rest = new AbortController();
    await Promise.race([closed, pause(REST_MS, undefined, { signal: rest.signal }).catch(() => undefined)]);
    rest.abort();
    if (late) return `${shown}: over its budget`;
    return code === 0 ? undefined : `${shown}: ended with ${code ?? signal}`;
  } catch (error) {
    return `${shown}: ${(error as Error).message}`;
  } finally {
    clearTimeout(timer);
    child.stdout?.destroy();
    child.stderr?.destroy();
  }
}

function isInstalled(program: string): boolean {
  const folders = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin', '/sbin'];
  return folders.some((folder) => {
    try {
      accessSync(join(folder, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}
