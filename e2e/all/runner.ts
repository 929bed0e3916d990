// Runs suites one after the other: installs what is missing, keeps to the budgets, says at the end what passed, what
// failed and what was skipped by name. A suite that could not run has failed.

import { spawn } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';

/** A program that a suite needs, and the command that installs it. */
export interface Need {
  program: string;
  install: string[];
}

/** Commands that show one thing, run one after the other in the repository's root. */
export interface Suite {
  /** For `SKIP=` and `ONLY=`. */
  name: string;
  /** One line for people. */
  shows: string;
  commands: string[][];
  needs?: Need[];
  /** Seconds that it may take, builds included, installing not. */
  budgetSeconds: number;
}

/** What became of a suite. */
export interface Outcome {
  name: string;
  state: 'passed' | 'failed' | 'skipped';
  seconds: number;
  /** Why it failed. */
  reason?: string;
}

/** Runs the suites whose names are not in `skip`; with a non-empty `only`, none but those. */
export async function runSuites(suites: Suite[], skip: string[], only: string[]): Promise<Outcome[]> {
  const unknown = [...skip, ...only].filter((name) => suites.every((suite) => suite.name !== name));
  if (unknown.length > 0) {
    const known = suites.map((suite) => suite.name).join(', ');
    throw new Error(`no suite is named ${unknown.join(', ')}; there are: ${known}`);
  }
  const outcomes: Outcome[] = [];
  for (const suite of suites) {
    const skipped = skip.includes(suite.name) || (only.length > 0 && !only.includes(suite.name));
    outcomes.push(skipped ? { name: suite.name, state: 'skipped', seconds: 0 } : await runSuite(suite));
  }
  return outcomes;
}

/** The table and the closing line. */
export function report(outcomes: Outcome[]): string {
  const lines = outcomes.map(({ name, state, seconds, reason }) => {
    const detail = reason === undefined ? '' : `  ${reason}`;
    return `  ${state.padEnd(8)} ${name.padEnd(10)} ${seconds.toFixed(0).padStart(5)} s${detail}`;
  });
  const count = (state: Outcome['state']): number => outcomes.filter((outcome) => outcome.state === state).length;
  const skipped = count('skipped') > 0 ? `, ${count('skipped')} skipped` : '';
  return [...lines, '', `suites: ${count('passed')} passed, ${count('failed')} failed${skipped}`].join('\n');
}

async function runSuite(suite: Suite): Promise<Outcome> {
  console.log(`\n=== ${suite.name}: ${suite.shows}`);
  for (const need of suite.needs ?? []) {
    if (!isInstalled(need.program) && !(await install(need))) {
      const reason = `${need.program} is missing: ${need.install.join(' ')}`;
      return { name: suite.name, state: 'failed', seconds: 0, reason };
    }
  }
  const start = performance.now();
  const elapsed = (): number => (performance.now() - start) / 1000;
  for (const command of suite.commands) {
    const reason = await runCommand(command, suite.budgetSeconds - elapsed());
    if (reason !== undefined) return { name: suite.name, state: 'failed', seconds: elapsed(), reason };
  }
  console.log(`--- ${suite.name}: ${elapsed().toFixed(0)} s of ${suite.budgetSeconds} s`);
  return { name: suite.name, state: 'passed', seconds: elapsed() };
}

async function install(need: Need): Promise<boolean> {
  console.log(`installing ${need.program}`);
  if (need.install[0] === 'apt-get') await runCommand(['apt-get', 'update', '-qq'], 300);
  return (await runCommand(need.install, 900)) === undefined && isInstalled(need.program);
}

/** Runs a command within the seconds that are left; says why it failed, or nothing. */
function runCommand(command: string[], seconds: number): Promise<string | undefined> {
  const [program, ...args] = command as [string, ...string[]];
  const shown = command.join(' ');
  return new Promise((done) => {
    // A process group of its own, so that what the command started ends with it.
    const child = spawn(program, args, { stdio: ['ignore', 'inherit', 'inherit'], detached: true });
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
    }, Math.max(0, seconds) * 1000);
    child.once('error', (error) => {
      clearTimeout(timer);
      done(`${shown}: ${error.message}`);
    });
    child.once('exit', (code, signal) => {
      clearTimeout(timer);
      if (late) done(`${shown}: over its budget`);
      else done(code === 0 ? undefined : `${shown}: ended with ${code ?? signal}`);
    });
  });
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
