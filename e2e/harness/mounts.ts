// Mounts that no other process sees: a holder has a namespace of them, into which a server is launched. A disk that everybody saw would
// be copied into each namespace that another suite makes, and live on in it, the way it is, after it was unmounted here.

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { userInfo } from 'node:os';
import { run } from './program.ts';
import { within } from './wait.ts';

const MOUNT_DEADLINE_MS = 10_000;
/** Without root it takes a namespace of users, in which everybody is who they are. */
const WITHOUT_ROOT = userInfo().uid !== 0;

export class Mounts {
  private constructor(private readonly holder: ChildProcess) {}

  /** A namespace in which `script` has mounted something. */
  static async made(script: string, ...args: string[]): Promise<Mounts> {
    const users = WITHOUT_ROOT ? ['--user', '--map-current-user', '--keep-caps'] : [];
    // It lives as long as its standard input is open, so it never outlives the tests.
    const holder = spawn('unshare', [...users, '--mount', 'sh', '-c', `${script} && echo mounted && exec cat`, ...args], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    const ended = once(holder, 'exit').then(([code]) => {
      throw new Error(`unshare and mount ended with ${code}: a disk for tests needs user namespaces, or root`);
    });
    ended.catch(() => undefined);
    await within(MOUNT_DEADLINE_MS, Promise.race([once(holder.stdout, 'data'), ended]), 'a disk is mounted');
    return new Mounts(holder);
  }

  /** What a program is to be launched with that shall see them. */
  get launcher(): string[] {
    const users = WITHOUT_ROOT ? ['--user', '--preserve-credentials'] : [];
    return ['nsenter', `--target=${this.holder.pid}`, ...users, '--mount'];
  }

  /** A path as it is there, for this process. */
  outside(path: string): string {
    return join(`/proc/${this.holder.pid}/root`, path);
  }

  /** Runs a program there to its end. */
  run(program: string, ...args: string[]): void {
    const [first = '', ...others] = [...this.launcher, program, ...args];
    run(first, others);
  }

  /** Unmounts all of them as soon as no program uses them. */
  end(): void {
    this.holder.stdin?.end();
  }
}
