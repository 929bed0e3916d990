// Builds a folder only if its inputs have changed, and replaces it as a whole: a program that reads the folder during a build never finds a
// part of it. Several programs may build the same folder at the same time.

import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';

/** The hash of what a folder was built from is in a file next to it, because the folder itself is published. */
export const inputsFile = (folder: string): string => `${folder}.inputs`;

/** Calls `build` with a new folder that replaces `folder`, unless `folder` was built from the same inputs, which are files and folders. */
export async function buildFolder(folder: string, inputs: string[], build: (folder: string) => Promise<void>): Promise<void> {
  const hash = hashOf(inputs);
  const file = inputsFile(folder);
  if (existsSync(folder) && existsSync(file) && readFileSync(file, 'utf8') === hash) return;
  // A sibling, because source maps have relative paths.
  const built = mkdtempSync(join(dirname(folder), `.${basename(folder)}-`));
  const previous = `${built}-previous`;
  try {
    await build(built);
    rmSync(file, { force: true });
    replace(folder, built, previous);
    writeFileSync(file, hash);
  } finally {
    for (const rest of [built, previous]) rmSync(rest, { recursive: true, force: true });
  }
}

function replace(folder: string, built: string, previous: string): void {
  try {
    renameSync(folder, previous);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  try {
    renameSync(built, folder);
  } catch (error) {
    // Between these two calls another program has put its build there, which is as new as this one.
    if (!['ENOTEMPTY', 'EEXIST'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
  }
}

function hashOf(inputs: string[]): string {
  const hash = createHash('sha256');
  const add = (path: string): void => {
    if (statSync(path).isDirectory()) {
      for (const name of readdirSync(path).sort()) add(join(path, name));
    } else {
      hash.update(`${path}\0`).update(readFileSync(path)).update('\0');
    }
  };
  inputs.forEach(add);
  return hash.digest('hex');
}
