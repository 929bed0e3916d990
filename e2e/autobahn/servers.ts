// The servers for Autobahn's fuzzing client: the echo over our frames and event loop, and the binary itself. They
// are built if necessary, with the features of the unit tests, so that they share their build.

import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';
import { createInterface } from 'node:readline';
import type { TestContext } from 'node:test';
import { promisify } from 'node:util';
import { atEnd } from '../harness/cleanup.ts';
import { within } from '../harness/wait.ts';

const REPOSITORY = resolve(import.meta.dirname, '../..');
const START_DEADLINE_MS = 30_000;

/** Paths of binaries. */
export interface Built {
  echo: string;
  tidewire: string;
}

/** Builds both servers. */
export async function built(): Promise<Built> {
  const which = ['--workspace', '--all-features', '--bin', 'tidewire', '--example', 'websocket_echo'];
  await promisify(execFile)('cargo', ['build', '--quiet', '--locked', ...which], { cwd: REPOSITORY });
  const folder = resolve(REPOSITORY, 'target/debug');
  return { echo: resolve(folder, 'examples/websocket_echo'), tidewire: resolve(folder, 'tidewire') };
}

/** Starts an echo server that stops at the end of `test`; returns its address. */
export async function startEcho(test: TestContext, binary: string, fault?: string): Promise<string> {
  const child = spawn(binary, fault === undefined ? [] : [fault], { stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = once(child, 'exit').then(([code, signal]) => `the echo server ended with ${code ?? signal}`);
  atEnd(test, async () => {
    if (!child.kill('SIGKILL')) throw new Error(await ended);
    await ended;
  });
  const address = once(createInterface(child.stdout), 'line').then(([line]) => String(line));
  const early = ended.then((sentence): never => {
    throw new Error(sentence);
  });
  return within(START_DEADLINE_MS, Promise.race([address, early]), 'the echo server reports its address');
}
