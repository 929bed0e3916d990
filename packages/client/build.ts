// Builds `dist`: the entries of the package as ESM and as CommonJS, which share their common modules, with their declarations. Also builds
// scripts for pages without a bundler: one with the core, one with offline records too, and one with all entries.

import { build, type BuildOptions } from 'esbuild';
import { execFileSync } from 'node:child_process';
import { cpSync, readdirSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { buildFolder } from './build-folder.js';

const HERE = import.meta.dirname;
const INPUTS = ['src', 'build.ts', 'package.json', 'package-lock.json', 'tsconfig.json'];
const COMMON: BuildOptions = { bundle: true, target: 'es2022', sourcemap: true, logLevel: 'warning' };
/** Each entry is named in `exports` of package.json, apart from a module that `live-query` loads when it needs it. */
const ENTRIES = ['index', 'anonymous', 'devtools', 'inspect', 'listen', 'lists', 'live-query', 'local-edits', 'offline', 'patterns', 'presence', 'provide', 'query', 'scopes', 'storage', 'store', 'transactions', 'validation'];
/** The scripts for pages, and their sources. */
const SCRIPTS = { tidewire: 'page', 'tidewire-offline': 'offline/page', 'tidewire-all': 'page-all' };

await buildFolder(join(HERE, 'dist'), INPUTS.map((input) => join(HERE, input)), async (dist) => {
  const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');
  const declarations = ['--declaration', '--emitDeclarationOnly', '--outDir', join(dist, 'esm')];
  execFileSync(process.execPath, [tsc, '--project', HERE, ...declarations], { stdio: 'inherit' });
  cpSync(join(dist, 'esm'), join(dist, 'cjs'), { recursive: true });
  writeFileSync(join(dist, 'cjs/package.json'), '{ "type": "commonjs" }\n');
  const entryPoints = ENTRIES.map((entry) => join(HERE, `src/${entry}.ts`));
  await build({ ...COMMON, entryPoints, format: 'esm', splitting: true, outdir: join(dist, 'esm') });
  // esbuild can't split CommonJS, so it is made of the ESM modules, which are already split.
  const modules = readdirSync(join(dist, 'esm')).filter((file) => file.endsWith('.js'));
  await build({ ...COMMON, bundle: false, entryPoints: modules.map((file) => join(dist, 'esm', file)), format: 'cjs', platform: 'node', outdir: join(dist, 'cjs') });
  // The scripts of pages load one module from their own folder when they need it. They are wrapped here, because for a script with an import
  // esbuild would add what replaces `require`.
  const SCRIPT: BuildOptions = { format: 'esm', sourcemap: 'external', external: ['*/diagnosis.js'], banner: { js: '"use strict";(()=>{' }, footer: { js: '})();' } };
  for (const [script, page] of Object.entries(SCRIPTS)) {
    await build({ ...COMMON, ...SCRIPT, entryPoints: [join(HERE, `src/${page}.ts`)], minify: true, outfile: join(dist, `${script}.min.js`) });
  }
  await build({ ...COMMON, entryPoints: [join(HERE, 'src/diagnosis.ts')], format: 'esm', minify: true, outfile: join(dist, 'diagnosis.js') });
});
