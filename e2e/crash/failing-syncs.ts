// Syncs that fail, as on a disk with bad sectors: libfiu stands between the server and its C library, and every call that
// brings a file to the disk says that it could not.

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

  /** A switch for one server, off at its start. It ends with `test`. */
  static during(test: TestContext): FailingSyncs {
    for (const program of ['fiu-run', 'fiu-ctrl']) requireProgram(program);
    const folder = mkdtempSync(join(tmpdir(), 'tidewire-fiu-'));
    atEnd(test, () => rmSync(folder, { recursive: true }));
    return new FailingSyncs(join(folder, 'pipe'));
  }

  /** What the server is to be launched with. */
  get launcher(): string[] {
    return ['fiu-run', '-x', '-f', this.pipe];
  }

  /** From here on every sync fails. */
  begin(server: Server): void {
    this.#control(server, 'enable');
  }

  /** The next sync fails, and no other. */
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
