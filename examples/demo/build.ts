// Builds the page: one script, one style sheet, and the files of `public`. `node --import tsx build.ts FOLDER`; `dist` by default.

import { build } from 'esbuild';
import { cpSync, mkdirSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';

const HERE = import.meta.dirname;
const target = resolve(process.argv[2] ?? join(HERE, 'dist'));

rmSync(target, { recursive: true, force: true });
mkdirSync(target, { recursive: true });
cpSync(join(HERE, 'public'), target, { recursive: true });
cpSync(join(HERE, 'node_modules/preact/LICENSE'), join(target, 'preact-licence.txt'));
cpSync(join(HERE, 'node_modules/uqr/LICENSE'), join(target, 'uqr-licence.txt'));
await build({
  entryPoints: [join(HERE, 'src/main.tsx'), join(HERE, 'src/style.css')],
  outdir: target,
  bundle: true,
  minify: true,
  format: 'esm',
  target: 'es2022',
  logLevel: 'warning',
});
