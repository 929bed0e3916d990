// Builds `dist`: one module for ESM and one for CommonJS, with the declarations beside them. React and the client stay outside.

import { build, type BuildOptions } from 'esbuild';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const HERE = import.meta.dirname;
const DIST = join(HERE, 'dist');
const COMMON: BuildOptions = {
  entryPoints: [join(HERE, 'src/index.ts')],
  bundle: true,
  external: ['react', '@tidewire/client'],
  target: 'es2022',
  sourcemap: true,
  logLevel: 'warning',
  // Where components of servers exist, those that use hooks are none.
  banner: { js: "'use client';" },
};

rmSync(DIST, { recursive: true, force: true });
mkdirSync(DIST);
const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');
// The types of the client are those that it publishes, not its source.
const declarations = ['--paths', 'null', '--rootDir', join(HERE, 'src'), '--declaration', '--emitDeclarationOnly', '--outDir', join(DIST, 'esm')];
execFileSync(process.execPath, [tsc, '--project', HERE, ...declarations], { stdio: 'inherit' });
cpSync(join(DIST, 'esm'), join(DIST, 'cjs'), { recursive: true });
writeFileSync(join(DIST, 'cjs/package.json'), '{ "type": "commonjs" }\n');
await build({ ...COMMON, format: 'esm', outfile: join(DIST, 'esm/index.js') });
await build({ ...COMMON, format: 'cjs', outfile: join(DIST, 'cjs/index.js') });
