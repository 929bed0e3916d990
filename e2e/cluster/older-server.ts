// The server of an earlier commit, for upgrades with `OLDER_SERVER=1`. It is built once for each commit, in `target/older`.

import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { run } from '../harness/program.ts';

const ROOT = resolve(import.meta.dirname, '../..');
/** The commit that upgrades begin with: the last one before the newest change of the protocol between nodes. */
const COMMIT = readFileSync(join(import.meta.dirname, 'older-commit.txt'), 'utf8').trim();

/** Whether the run has upgrades. */
export const isUpgraded = (): boolean => process.env['OLDER_SERVER'] === '1';

/** The program of the earlier commit. Fails if the clone does not have the commit, so an upgrade is never skipped. */
export function olderServer(commit = COMMIT): string {
  const folder = join(ROOT, 'target/older');
  const sources = join(folder, commit);
  const program = join(folder, `tidewire-${commit}`);
  if (!hasCommit(commit)) {
    throw new Error(
      `an upgrade needs the commit ${commit}, which this clone does not have; clone the whole history (git fetch --unshallow), ` +
        'or name an earlier commit of the history in e2e/cluster/older-commit.txt',
    );
  }
  if (existsSync(program)) return program;
  mkdirSync(folder, { recursive: true });
  if (!existsSync(sources)) run('git', ['worktree', 'add', '--detach', sources, commit], { cwd: ROOT });
  run('cargo', ['build', '--locked', '--release', '--package', 'tidewire', '--target-dir', join(folder, 'target')], { cwd: sources });
  run('cp', [join(folder, 'target/release/tidewire'), program]);
  run('git', ['worktree', 'remove', '--force', sources], { cwd: ROOT });
  return program;
}

function hasCommit(commit: string): boolean {
  try {
    run('git', ['cat-file', '-e', `${commit}^{commit}`], { cwd: ROOT });
    return true;
  } catch {
    return false;
  }
}
