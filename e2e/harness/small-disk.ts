// A small disk that can fill up: a tmpfs in a separate mount namespace, which needs no root. A server is launched into that
// namespace.

import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { atEnd } from './cleanup.ts';
import { Mounts } from './mounts.ts';

const MEGABYTE = 1024 * 1024;

export class SmallDisk {
  private constructor(
    /** The path in the namespace, for the server. */
    readonly path: string,
    private readonly mounts: Mounts,
  ) {}

  /** Creates an empty disk of `megabytes` MiB; it is removed at the end of `test`. */
  static async during(test: TestContext, megabytes = 64): Promise<SmallDisk> {
    const path = mkdtempSync(join(tmpdir(), 'tidewire-disk-'));
    atEnd(test, () => rmSync(path, { recursive: true }));
    const mounts = await Mounts.made(`mount -t tmpfs -o size=${megabytes}m,mode=0777 tmpfs "$0"`, path);
    atEnd(test, () => mounts.end());
    return new SmallDisk(path, mounts);
  }

  /** The launcher for a server that uses the disk. */
  get launcher(): string[] {
    return this.mounts.launcher;
  }

  /** Writes until the disk is full. */
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

  /** Frees the space. */
  empty(): void {
    rmSync(this.#filler);
  }

  /** The path from outside the namespace. */
  get outside(): string {
    return this.mounts.outside(this.path);
  }

  get #filler(): string {
    return join(this.outside, 'filler');
  }
}
