// Builds the web pages that are in the server's binary from their sources. `npm run pages` puts them where the server's build finds them.

import { spawnSync } from 'node:child_process';
import { join, resolve } from 'node:path';

const REPOSITORY = resolve(import.meta.dirname, '../..');
/** What is committed: a folder for each site. */
export const COMMITTED = join(REPOSITORY, 'crates/tidewire-http/pages');
/** The sites, by the names of their folders, and where their sources are: packages whose script `build` takes the folder to build into. */
export const SITES: Record<string, string> = {
  admin: 'packages/admin',
  demo: 'examples/demo',
};

function npm(folder: string, ...args: string[]): void {
  const ran = spawnSync('npm', ['--prefix', folder, 'run', '--silent', ...args], { cwd: REPOSITORY, stdio: ['ignore', 'inherit', 'inherit'] });
  if (ran.status !== 0) throw new Error(`npm run ${args.join(' ')} in ${folder} ended with ${ran.status ?? ran.signal}`);
}

/** Builds all sites into folders of their names in `target`. */
export function buildPages(target: string): void {
  npm('packages/client', 'build');
  for (const [name, source] of Object.entries(SITES)) npm(source, 'build', '--', join(target, name));
}

if (resolve(process.argv[1] ?? '') === import.meta.filename) buildPages(COMMITTED);
