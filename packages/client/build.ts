// Builds `dist`: one module for ESM, one for CommonJS, one script for pages, and the declarations beside the first two.

import { build, type BuildOptions } from 'esbuild';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const HERE = import.meta.dirname;
const DIST = join(HERE, 'dist');
const COMMON: BuildOptions = { bundle: true, target: 'es2022', sourcemap: true, logLevel: 'warning' };
const MODULE: BuildOptions = { ...COMMON, entryPoints: [join(HERE, 'src/index.ts')] };

rmSync(DIST, { recursive: true, force: true });
mkdirSync(DIST);
const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');
const declarations = ['--declaration', '--emitDeclarationOnly', '--outDir', join(DIST, 'esm')];
execFileSync(process.execPath, [tsc, '--project', HERE, ...declarations], { stdio: 'inherit' });
cpSync(join(DIST, 'esm'), join(DIST, 'cjs'), { recursive: true });
writeFileSync(join(DIST, 'cjs/package.json'), '{ "type": "commonjs" }\n');
await build({ ...MODULE, format: 'esm', outfile: join(DIST, 'esm/index.js') });
await build({ ...MODULE, format: 'cjs', outfile: join(DIST, 'cjs/index.js') });
await build({ ...COMMON, entryPoints: [join(HERE, 'src/page.ts')], format: 'iife', minify: true, outfile: join(DIST, 'tidewire.min.js') });
