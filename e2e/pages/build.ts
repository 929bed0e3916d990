// Builds the web pages that are embedded in the server's binary. `npm run pages` writes them to the folder that the server's build reads.

import { spawnSync } from 'node:child_process';
import { join, resolve } from 'node:path';

const REPOSITORY = resolve(import.meta.dirname, '../..');
/** The committed pages: one folder for each site. */
export const COMMITTED = join(REPOSITORY, 'crates/tidewire-http/pages');
/** The sites by folder name, with the folders of their packages, whose script `build` takes the output folder as argument. */
export const SITES: Record<string, string> = {
  admin: 'packages/admin',
  demo: 'examples/demo',
};

function npm(folder: string, ...args: string[]): void {
  const ran = spawnSync('npm', ['--prefix', folder, 'run', '--silent', ...args], { cwd: REPOSITORY, stdio: ['ignore', 'inherit', 'inherit'] });
  if (ran.status !== 0) throw new Error(`npm run ${args.join(' ')} in ${folder} ended with ${ran.status ?? ran.signal}`);
}

/** Builds all sites into folders with their names in `target`. */
export function buildPages(target: string): void {
  npm('packages/client', 'build');
  for (const [name, source] of Object.entries(SITES)) npm(source, 'build', '--', join(target, name));
}

if (resolve(process.argv[1] ?? '') === import.meta.filename) buildPages(COMMITTED);
