// A disk of 64 MiB that fills up: a tmpfs. It is mounted in a namespace of its own, which takes no root, and the server is
// launched into that.

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import { within } from '../harness/wait.ts';

const MOUNT_DEADLINE_MS = 10_000;
const MEGABYTE = 1024 * 1024;

export class SmallDisk {
  private constructor(
    /** Its path for the server. */
    readonly path: string,
    private readonly holder: ChildProcess,
  ) {}

  /** Makes an empty disk that ends with `test`. */
  static async during(test: TestContext): Promise<SmallDisk> {
    const path = mkdtempSync(join(tmpdir(), 'tidewire-disk-'));
    // It lives as long as its standard input is open, so it never outlives the tests.
    const script = 'mount -t tmpfs -o size=64m tmpfs "$0" && echo mounted && exec cat';
    const holder = spawn('unshare', ['--user', '--map-root-user', '--mount', 'sh', '-c', script, path], {
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
    return ['nsenter', `--target=${this.holder.pid}`, '--user', '--mount', '--preserve-credentials'];
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

  /** From outside the namespace. */
  get #filler(): string {
    return `/proc/${this.holder.pid}/root${this.path}/filler`;
  }
}
