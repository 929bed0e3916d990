// A small disk that fills up: a tmpfs. It is mounted in a namespace of its own, which takes no root, and a server is launched
// into that.

import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { atEnd } from './cleanup.ts';
import { Mounts } from './mounts.ts';

const MEGABYTE = 1024 * 1024;

export class SmallDisk {
  private constructor(
    /** Its path for the server. */
    readonly path: string,
    private readonly mounts: Mounts,
  ) {}

  /** Makes an empty disk of so many MiB that ends with `test`. */
  static async during(test: TestContext, megabytes = 64): Promise<SmallDisk> {
    const path = mkdtempSync(join(tmpdir(), 'tidewire-disk-'));
    atEnd(test, () => rmSync(path, { recursive: true }));
    const mounts = await Mounts.made(`mount -t tmpfs -o size=${megabytes}m,mode=0777 tmpfs "$0"`, path);
    atEnd(test, () => mounts.end());
    return new SmallDisk(path, mounts);
  }

  /** What the server is to be launched with. */
  get launcher(): string[] {
    return this.mounts.launcher;
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
    return this.mounts.outside(this.path);
  }

  get #filler(): string {
    return join(this.outside, 'filler');
  }
}
