// The server of an earlier commit, for upgrades with `OLDER_SERVER=1`. It is built once for each commit, in `target/older`.

import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { run } from '../harness/program.ts';

const ROOT = resolve(import.meta.dirname, '../..');
/** The commit that upgrades begin with: the last one before the newest change of the protocol between nodes. */
const COMMIT = readFileSync(join(import.meta.dirname, 'older-commit.txt'), 'utf8').trim();

/** Whether the run has upgrades. */
export const isUpgraded = (): boolean => process.env['OLDER_SERVER'] === '1';

/** The program of the earlier commit. */
export function olderServer(): string {
  const folder = join(ROOT, 'target/older');
  const sources = join(folder, COMMIT);
  const program = join(folder, `tidewire-${COMMIT}`);
  if (existsSync(program)) return program;
  if (!hasCommit()) throw new Error(`an upgrade needs the commit ${COMMIT}, which this clone does not have; clone the whole history: git fetch --unshallow`);
  mkdirSync(folder, { recursive: true });
  if (!existsSync(sources)) run('git', ['worktree', 'add', '--detach', sources, COMMIT], { cwd: ROOT });
  run('cargo', ['build', '--locked', '--release', '--package', 'tidewire', '--target-dir', join(folder, 'target')], { cwd: sources });
  run('cp', [join(folder, 'target/release/tidewire'), program]);
  run('git', ['worktree', 'remove', '--force', sources], { cwd: ROOT });
  return program;
}

function hasCommit(): boolean {
  try {
    run('git', ['cat-file', '-e', `${COMMIT}^{commit}`], { cwd: ROOT });
    return true;
  } catch {
    return false;
  }
}
