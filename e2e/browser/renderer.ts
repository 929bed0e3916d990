// The processes of the browser, which tests stop as a system does that is short of memory.

import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import type { Page } from 'playwright-core';
import { eventually } from '../harness/wait.ts';

/** The renderers of Chromium, Firefox and WebKit. */
const RENDERER = /--type=renderer|-contentproc .* tab$|WebKitWebProcess/;

/** The processes that render pages of the browser, and spare processes. */
export function renderers(): number[] {
  const children = (parent: number): number[] => {
    return readdirSync(`/proc/${parent}/task`).flatMap((task) => {
      const text = readFileSync(`/proc/${parent}/task/${task}/children`, 'utf8').trim();
      return text === '' ? [] : text.split(' ').map(Number);
    });
  };
  const all = (parent: number): number[] => children(parent).flatMap((child) => [child, ...all(child)]);
  return browserPids().flatMap(all).filter((pid) => RENDERER.test(commandOf(pid)));
}

/** The processes of browsers, or their launchers: children of this process. */
function browserPids(): number[] {
  const text = readFileSync(`/proc/${process.pid}/task/${process.pid}/children`, 'utf8').trim();
  return text.split(' ').map(Number).filter((child) => /chrom|firefox|WebKit/.test(commandOf(child)));
}

/** The command line of a process; empty if the process has ended. */
function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim();
  } catch {
    return '';
  }
}

/** Sends the signal `name` to all `pids` that are still running. */
export function signal(name: NodeJS.Signals, ...pids: number[]): void {
  for (const pid of pids) {
    try {
      process.kill(pid, name);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  }
}

/** A page that does not answer for this time counts as stopped. */
const ANSWER_MS = 500;

/** The process that renders `page`: without it the page does not answer, and with it alone the page answers. */
export async function rendererOf(page: Page): Promise<number> {
  const answersWithout = async (stopped: number[]): Promise<boolean> => {
    signal('SIGSTOP', ...stopped);
    const answer = page.evaluate(() => true);
    const answers = await Promise.race([answer, pause(ANSWER_MS, false)]);
    signal('SIGCONT', ...stopped);
    await answer;
    return answers;
  };
  const draws = async (pid: number): Promise<boolean> => {
    // On a busy machine a page may be silent for this time without a cause, so check twice.
    return !(await answersWithout([pid])) && (await answersWithout(renderers().filter((other) => other !== pid)));
  };
  const found = await eventually(async () => {
    for (const pid of renderers()) if (await draws(pid)) return pid;
    return undefined;
  }, 'one process draws the page');
  return found as number;
}
