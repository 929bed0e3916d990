// The processes of the browser, to be stopped as a system does that is short of memory.

import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import type { Page } from 'playwright-core';
import { eventually } from '../harness/wait.ts';

/** In Chromium, Firefox and WebKit. */
const RENDERER = /--type=renderer|-contentproc .* tab$|WebKitWebProcess/;

/** The processes that draw the pages of the browser, and those that wait for one. */
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

/** The processes of browsers, or of what has started them: children of this one. */
function browserPids(): number[] {
  const text = readFileSync(`/proc/${process.pid}/task/${process.pid}/children`, 'utf8').trim();
  return text.split(' ').map(Number).filter((child) => /chrom|firefox|WebKit/.test(commandOf(child)));
}

/** Its arguments, one after the other; nothing for one that has ended. */
function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim();
  } catch {
    return '';
  }
}

/** Sends the signal `name` to those of `pids` that have not ended. */
export function signal(name: NodeJS.Signals, ...pids: number[]): void {
  for (const pid of pids) {
    try {
      process.kill(pid, name);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  }
}

/** Milliseconds without an answer after which a page is taken for stopped. */
const ANSWER_MS = 500;

/** The process that draws `page`: the one without which it does not answer, and that alone lets it answer. */
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
    // On a busy machine a page is silent for so long by itself, too.
    return !(await answersWithout([pid])) && (await answersWithout(renderers().filter((other) => other !== pid)));
  };
  const found = await eventually(async () => {
    for (const pid of renderers()) if (await draws(pid)) return pid;
    return undefined;
  }, 'one process draws the page');
  return found as number;
}
