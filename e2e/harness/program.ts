// Programs that are run to their end, such as those that make certificates, install packages or mount volumes.

import { spawnSync } from 'node:child_process';

/** Bytes of output that are taken; the lists of crates and symbols have some. */
const OUTPUT_BYTES_MAX = 1 << 26;

export interface RunOptions {
  /** The folder in which it runs. */
  cwd?: string;
  /** All of its variables, if they are not those of this process. */
  env?: NodeJS.ProcessEnv;
  /** What it reads. */
  input?: string;
  /** After so long it is ended, and has failed. */
  timeoutMs?: number;
}

/** What a program prints. One that does not end well is an error with its own words. */
export function run(program: string, args: string[], options: RunOptions = {}): string {
  const { timeoutMs, ...others } = options;
  const ran = spawnSync(program, args, { ...others, timeout: timeoutMs, encoding: 'utf8', maxBuffer: OUTPUT_BYTES_MAX });
  if (ran.error !== undefined) throw new Error(`${program} ${args.join(' ')}: ${ran.error.message}`);
  if (ran.status !== 0) throw new Error(`${program} ${args.join(' ')} ended with ${ran.status ?? ran.signal}:\n${ran.stdout}${ran.stderr}`);
  return ran.stdout;
}
