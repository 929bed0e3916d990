// A small disk that fills up: a tmpfs. It is mounted in a namespace of its own, which takes no root, and a server is launched
// into that.

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { atEnd } from './cleanup.ts';
import { within } from './wait.ts';

const MOUNT_DEADLINE_MS = 10_000;
const MEGABYTE = 1024 * 1024;
/** Without root it takes a namespace of users, in which everybody is who they are. */
const WITHOUT_ROOT = userInfo().uid !== 0;

export class SmallDisk {
  private constructor(
    /** Its path for the server. */
    readonly path: string,
    private readonly holder: ChildProcess,
  ) {}

  /** Makes an empty disk of so many MiB that ends with `test`. */
  static async during(test: TestContext, megabytes = 64): Promise<SmallDisk> {
    const path = mkdtempSync(join(tmpdir(), 'tidewire-disk-'));
    // It lives as long as its standard input is open, so it never outlives the tests.
    const script = `mount -t tmpfs -o size=${megabytes}m,mode=0777 tmpfs "$0" && echo mounted && exec cat`;
    const users = WITHOUT_ROOT ? ['--user', '--map-current-user', '--keep-caps'] : [];
    const holder = spawn('unshare', [...users, '--mount', 'sh', '-c', script, path], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    atEnd(test, () => {
      holder.stdin.end();
      rmSync(path, { recursive: true });
    });
    const ended = once(holder, 'exit').then(([code]) => {
      throw new Error(`unshare and mount ended with ${code}: a full disk needs user namespaces, or root`);
    });
    ended.catch(() => undefined);
    await within(MOUNT_DEADLINE_MS, Promise.race([once(holder.stdout, 'data'), ended]), 'a tmpfs is mounted');
    return new SmallDisk(path, holder);
  }

  /** What the server is to be launched with. */
  get launcher(): string[] {
    const users = WITHOUT_ROOT ? ['--user', '--preserve-credentials'] : [];
    return ['nsenter', `--target=${this.holder.pid}`, ...users, '--mount'];
  }

  /** Writes until nothing more fits. */
  fill(): void {
    for (let bytes = MEGABYTE; bytes >= 1; ) {
      try {
        appendFileSync(this.#filler, Buffer.alloc(bytes));
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
        bytes = Math.floor(bytes / 4);
      }
    }
  }

  /** Gives the room back. */
  empty(): void {
    rmSync(this.#filler);
  }

  /** Its path from outside the namespace. */
  get outside(): string {
    return `/proc/${this.holder.pid}/root${this.path}`;
  }

  get #filler(): string {
    return join(this.outside, 'filler');
  }
}
