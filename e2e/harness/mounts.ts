// Mounts in a separate mount namespace, which a holder process keeps alive and servers are launched into. A disk that all processes can
// see would be copied into every namespace that another suite creates, and would stay mounted there after this process unmounts it.

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { userInfo } from 'node:os';
import { run } from './program.ts';
import { within } from './wait.ts';

const MOUNT_DEADLINE_MS = 10_000;
/** Without root, the holder also needs a user namespace, in which all user ids stay the same. */
const WITHOUT_ROOT = userInfo().uid !== 0;

export class Mounts {
  private constructor(private readonly holder: ChildProcess) {}

  /** A namespace in which `script` has mounted a file system. */
  static async made(script: string, ...args: string[]): Promise<Mounts> {
    const users = WITHOUT_ROOT ? ['--user', '--map-current-user', '--keep-caps'] : [];
    // The holder lives as long as its standard input is open, so it never outlives the tests.
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

  /** The launcher for a program that must see the mounts. */
  get launcher(): string[] {
    const users = WITHOUT_ROOT ? ['--user', '--preserve-credentials'] : [];
    return ['nsenter', `--target=${this.holder.pid}`, ...users, '--mount'];
  }

  /** The path by which this process reaches a path of the namespace. */
  outside(path: string): string {
    return join(`/proc/${this.holder.pid}/root`, path);
  }

  /** Runs a program in the namespace and waits for its end. */
  run(program: string, ...args: string[]): void {
    const [first = '', ...others] = [...this.launcher, program, ...args];
    run(first, others);
  }

  /** Unmounts everything as soon as no program uses it. */
  end(): void {
    this.holder.stdin?.end();
  }
}
