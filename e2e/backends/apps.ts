// Processes of the app in `app.ts`, which tests kill and replace.

import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { TestContext } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import type { Server } from '../harness/server.ts';
import { DEADLINE_MS, within } from '../harness/wait.ts';
import { KEY } from './backends.ts';

/** How long a process may take to start on a busy machine. */
const START_MS = 60_000;

/** Gets the lines that an app prints. */
export type OnLine = (name: string, number: number, redelivered: boolean) => void;

/** An app that serves the clients, with a callback for each event that it handles. */
export class App {
  readonly #child: ChildProcess;
  readonly #ready: Promise<void>;
  readonly #ended: Promise<unknown>;
  readonly #exited: Promise<unknown>;

  constructor(t: TestContext, server: Server, onLine: OnLine = () => undefined, ...more: string[]) {
    const args = ['--import', 'tsx', join(import.meta.dirname, 'app.ts'), `http://${server.address}`, KEY, ...more];
    this.#child = spawn(process.execPath, args, { cwd: join(import.meta.dirname, '..'), stdio: ['ignore', 'pipe', 'inherit'] });
    atEnd(t, () => void this.#child.kill('SIGKILL'));
    this.#exited = once(this.#child, 'exit');
    const lines = createInterface({ input: this.#child.stdout as NodeJS.ReadableStream });
    this.#ended = once(lines, 'close');
    this.#ready = new Promise((done) => {
      lines.on('line', (line) => {
        if (line === 'ready') return done();
        const [name = '', number, redelivered] = line.split(' ');
        onLine(name, Number(number), redelivered === 'true');
      });
    });
  }

  ready(): Promise<void> {
    return within(START_MS, this.#ready, 'the app is ready');
  }

  /** Kills it and resolves when all of its lines were read. */
  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await within(DEADLINE_MS, this.#ended, 'the app has ended');
  }

  /** Resolves with its exit code when it has ended by itself. */
  async ended(): Promise<number | null> {
    await within(DEADLINE_MS, this.#exited, 'the app has ended');
    return this.#child.exitCode;
  }

  /** Lets it hand its sockets over and resolves when it has ended by itself. */
  async stop(): Promise<void> {
    this.#child.kill('SIGTERM');
    assert.equal(await this.ended(), 0, 'the app hands its sockets over and ends by itself');
  }
}
