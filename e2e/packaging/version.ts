// The version and the time of the sources.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { run } from '../harness/program.ts';

/** The version of all crates and packages. */
export function versionOf(source: string): string {
  const found = /^version = "(.*)"$/m.exec(readFileSync(join(source, 'Cargo.toml'), 'utf8'))?.[1];
  if (found === undefined) throw new Error(`${source}/Cargo.toml has no version`);
  return found;
}

/** The time of the last commit, in seconds since 1970. Archives contain it instead of the time of their build. */
export function secondsOf(source: string): string {
  return run('git', ['log', '-1', '--format=%ct'], { cwd: source }).trim();
}
