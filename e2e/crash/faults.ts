// The server that the tests of the tests use: built with the feature `test-faults`, it does not sync its commits. No
// released binary has that switch.

import { execFile } from 'node:child_process';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';

const REPOSITORY = resolve(import.meta.dirname, '../..');

/** The path of a server that answers writes before they are on disk; it is built if necessary. */
export async function unsyncedBinary(): Promise<string> {
  const given = process.env['TIDEWIRE_UNSYNCED_BIN'];
  if (given) return resolve(given);
  const build = ['build', '--quiet', '-p', 'tidewire-server', '--features', 'test-faults', '--bin', 'tidewire-unsynced'];
  await promisify(execFile)('cargo', build, { cwd: REPOSITORY });
  return join(REPOSITORY, 'target/debug/tidewire-unsynced');
}
