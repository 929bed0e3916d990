// Builds the web pages that are embedded in the server's binary. `npm run pages` writes them to the folder that the server's build reads.

import { spawnSync } from 'node:child_process';
import { join, resolve } from 'node:path';

const REPOSITORY = resolve(import.meta.dirname, '../..');
/** The committed pages: one folder for each site. */
export const COMMITTED = join(REPOSITORY, 'crates/tidewire-http/pages');
/** The sites by folder name, each with the folder of its package and the script there, which takes the output folder as argument. */
export const SITES: Record<string, [folder: string, script: string]> = {
  admin: ['packages/admin', 'build'],
  client: ['packages/client', 'module'],
  demo: ['examples/demo', 'build'],
};

function npm(folder: string, ...args: string[]): void {
  const ran = spawnSync('npm', ['--prefix', folder, 'run', '--silent', ...args], { cwd: REPOSITORY, stdio: ['ignore', 'inherit', 'inherit'] });
  if (ran.status !== 0) throw new Error(`npm run ${args.join(' ')} in ${folder} ended with ${ran.status ?? ran.signal}`);
}

/** Builds all sites into folders with their names in `target`. */
export function buildPages(target: string): void {
  npm('packages/client', 'build');
  for (const [name, [folder, script]] of Object.entries(SITES)) npm(folder, script, '--', join(target, name));
}

if (resolve(process.argv[1] ?? '') === import.meta.filename) buildPages(COMMITTED);
