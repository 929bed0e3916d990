// A copy of the committed files in `target/faults`, with patches. Its build uses the target folder of the repository, so both share the
// dependencies. The crates of the copy have a separate version: cargo identifies a crate by name, version and relative path, and would
// otherwise use a patched crate for the product.

import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { run } from '../harness/program.ts';

export const REPOSITORY = resolve(import.meta.dirname, '../..');
export const PATCHES = join(import.meta.dirname, 'patches');
/** The patch with the function that all others call. */
export const BASE = 'planted-fault';
const VERSION = '0.0.0-faults';

/** The names of all patches, the base first. */
export function patches(): string[] {
  const names = readdirSync(PATCHES).map((file) => file.replace(/\.patch$/, ''));
  return [BASE, ...names.filter((name) => name !== BASE).sort()];
}

/** Makes the copy again, with these patches, and returns its folder. */
export function makeTree(name: string, applied: string[]): string {
  const folder = join(REPOSITORY, 'target', name);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  for (const path of run('git', ['ls-files', '-z'], { cwd: REPOSITORY }).split('\0')) {
    const from = join(REPOSITORY, path);
    // A file may be deleted and not yet committed.
    if (path === '' || !existsSync(from)) continue;
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    // Cargo builds again what has another time.
    cpSync(from, join(folder, path), { preserveTimestamps: true });
  }
  for (const patch of applied) apply(folder, join(PATCHES, `${patch}.patch`));
  changeVersion(folder);
  return folder;
}

/** Applies a patch file to a copy. The error has the path of the patch and the output of git. */
export function apply(folder: string, patch: string): void {
  // Without the ceiling, git would take the copy for a part of the repository and skip its files.
  run('git', ['apply', '-C1', '--whitespace=nowarn', patch], { cwd: folder, env: { ...process.env, GIT_CEILING_DIRECTORIES: dirname(folder) } });
}

function changeVersion(folder: string): void {
  const manifest = join(folder, 'Cargo.toml');
  const text = readFileSync(manifest, 'utf8');
  const version = /\[workspace\.package\]\nversion = "([^"]+)"/.exec(text)?.[1];
  if (version === undefined) throw new Error(`${manifest} has no version of the workspace`);
  writeFileSync(manifest, text.replace(`version = "${version}"`, `version = "${VERSION}"`));
  for (const lock of ['Cargo.lock', 'fuzz/Cargo.lock'].map((path) => join(folder, path))) {
    const changed = readFileSync(lock, 'utf8').replaceAll(/(name = "tidewire[^"]*"\nversion = )"([^"]+)"/g, (found, head: string, of: string) =>
      of === version ? `${head}"${VERSION}"` : found,
    );
    writeFileSync(lock, changed);
  }
}
