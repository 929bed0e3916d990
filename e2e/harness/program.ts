// Programs that run to their end, such as programs that make certificates, install packages or mount volumes.

import { spawnSync } from 'node:child_process';

/** The most bytes of output; lists of crates and symbols are long. */
const OUTPUT_BYTES_MAX = 1 << 26;

export interface RunOptions {
  /** The working directory. */
  cwd?: string;
  /** The complete environment; the default is the environment of this process. */
  env?: NodeJS.ProcessEnv;
  /** The text for standard input. */
  input?: string;
  /** The program is killed and has failed after this time. */
  timeoutMs?: number;
}

/** Runs a program and returns its output. If the program fails, the error contains its messages. */
export function run(program: string, args: string[], options: RunOptions = {}): string {
  const { timeoutMs, ...others } = options;
  const ran = spawnSync(program, args, { ...others, timeout: timeoutMs, encoding: 'utf8', maxBuffer: OUTPUT_BYTES_MAX });
  if (ran.error !== undefined) throw new Error(`${program} ${args.join(' ')}: ${ran.error.message}`);
  if (ran.status !== 0) throw new Error(`${program} ${args.join(' ')} ended with ${ran.status ?? ran.signal}:\n${ran.stdout}${ran.stderr}`);
  return ran.stdout;
}
