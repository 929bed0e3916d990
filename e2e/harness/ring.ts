// Servers to which the kernel refuses an `io_uring`, as in many containers and on old kernels. If the variable
// `E2E_RING` names an error, every server of a run starts behind a filter of system calls.

import { execFileSync } from 'node:child_process';
import { join, resolve } from 'node:path';
import { containerFolder } from './container.ts';

const REPOSITORY = resolve(import.meta.dirname, '../..');

/** The errors that the filter can return, with the texts that the server logs. */
export const REFUSALS = {
  EPERM: 'Operation not permitted',
  ENOSYS: 'Function not implemented',
} as const;

export type Refusal = keyof typeof REFUSALS;

/** The error that `io_uring_setup` must return; undefined without a filter. */
export function refusal(): Refusal | undefined {
  // The filter of containers returns this error for system calls that it does not know.
  if (containerFolder() !== undefined) return 'ENOSYS';
  const name = process.env['E2E_RING'];
  if (name === undefined || name === '') return undefined;
  if (!(name in REFUSALS)) throw new Error(`E2E_RING is one of ${Object.keys(REFUSALS).join(', ')}, not ${name}`);
  return name as Refusal;
}

/** Builds the launcher that sets the filter. The runner calls this once, before any suite starts. */
export function buildLauncher(): void {
  const build = ['build', '--locked', '--quiet', '--package', 'tidewire-net', '--example', 'refuse_ring'];
  execFileSync('cargo', build, { cwd: REPOSITORY, stdio: 'inherit' });
}

/** The launcher in front of the server's command. */
export function ringLauncher(): string[] {
  const name = refusal();
  return name === undefined || containerFolder() !== undefined ? [] : [join(REPOSITORY, 'target/debug/examples/refuse_ring'), name];
}
