// A new project: an empty folder with packages that npm installs; our packages are packed as they are published.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, type TestContext } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import { run } from '../harness/program.ts';
import { binary } from '../harness/server.ts';
import { PUBLISHED, packPublished } from '../packaging/npm.ts';

/** An install from npm's cache takes seconds; the first install downloads everything. */
const INSTALL_DEADLINE_MS = 120_000;
const RUN_DEADLINE_MS = 60_000;

const packed = mkdtempSync(join(tmpdir(), 'tidewire-packed-'));
after(() => rmSync(packed, { recursive: true }));
const tarballs = new Map<string, string>();

/** The tarball of one of our packages, which `npm run packages` has built before. */
export function tarball(name: string): string {
  const known = tarballs.get(name) ?? packPublished(name, packed, binary());
  tarballs.set(name, known);
  return known;
}

export class Project {
  readonly folder = mkdtempSync(join(tmpdir(), 'tidewire-project-'));

  /** Installs `packages`, ours and others. The project is removed at the end of `test`. */
  constructor(test: TestContext, packages: string[]) {
    atEnd(test, () => rmSync(this.folder, { recursive: true }));
    this.write('package.json', '{ "private": true }');
    const wanted = packages.map((name) => (Object.hasOwn(PUBLISHED, name) ? tarball(name) : name));
    const flags = ['--no-audit', '--no-fund', '--prefer-offline', '--ignore-scripts', '--loglevel', 'error'];
    run('npm', ['install', ...flags, ...wanted], { cwd: this.folder, timeoutMs: INSTALL_DEADLINE_MS });
  }

  write(path: string, text: string): void {
    const full = join(this.folder, path);
    mkdirSync(dirname(full), { recursive: true });
    writeFileSync(full, text);
  }

  /** Runs a program of the project and returns its output. If the program fails, the error contains the output. */
  runs(path: string, args: string[] = [], node = process.execPath): string {
    return run(node, [path, ...args], { cwd: this.folder, timeoutMs: RUN_DEADLINE_MS });
  }
}
