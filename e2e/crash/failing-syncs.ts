// Syncs that fail, as on a disk with bad sectors: libfiu intercepts the server's calls to its C library, and every call that
// writes a file to the disk reports a failure.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import type { Server } from '../harness/server.ts';

/** `fsync`, `fdatasync` and `sync_file_range`. */
const SYNCS = 'posix/io/sync/*';

export class FailingSyncs {
  private constructor(private readonly pipe: string) {}

  /** A switch for one server, off at the start. It ends with `test`. */
  static during(test: TestContext): FailingSyncs {
    for (const program of ['fiu-run', 'fiu-ctrl']) requireProgram(program);
    const folder = mkdtempSync(join(tmpdir(), 'tidewire-fiu-'));
    atEnd(test, () => rmSync(folder, { recursive: true }));
    return new FailingSyncs(join(folder, 'pipe'));
  }

  /** The launcher for a server that the switch affects. */
  get launcher(): string[] {
    return ['fiu-run', '-x', '-f', this.pipe];
  }

  /** Makes every following sync fail. */
  begin(server: Server): void {
    this.#control(server, 'enable');
  }

  /** Makes only the next sync fail. */
  failOnce(server: Server): void {
    this.#control(server, 'enable', ',onetime');
  }

  end(server: Server): void {
    this.#control(server, 'disable');
  }

  #control(server: Server, command: string, flag = ''): void {
    execFileSync('fiu-ctrl', ['-f', this.pipe, '-c', `${command} name=${SYNCS}${flag}`, String(server.pid)]);
  }
}

function requireProgram(program: string): void {
  try {
    execFileSync('which', [program], { stdio: 'ignore' });
  } catch {
    throw new Error(`the test of failing syncs needs ${program}: apt-get install -y fiu-utils`);
  }
}
