// Builds the page: one script, one style sheet, and the files of `public`. `node --import tsx build.ts FOLDER`; `dist` by default.

import { build, type BuildOptions } from 'esbuild';
import { cpSync, mkdirSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';

const HERE = import.meta.dirname;
export const target = resolve(process.argv[2] ?? join(HERE, 'dist'));

export const options: BuildOptions = {
  entryPoints: [join(HERE, 'src/main.tsx'), join(HERE, 'src/style.css')],
  outdir: target,
  bundle: true,
  format: 'esm',
  target: 'es2022',
  jsx: 'automatic',
  logLevel: 'warning',
  // The parts of the client have no side effects, so an import of one without a name is nothing to warn about.
  logOverride: { 'ignored-bare-import': 'silent' },
  // `@tidewire/react` is a link into the repository, where it would find another React.
  alias: { react: join(HERE, 'node_modules/react') },
};

rmSync(target, { recursive: true, force: true });
mkdirSync(target, { recursive: true });
cpSync(join(HERE, 'public'), target, { recursive: true });
await build({ ...options, minify: true });
