// Builds `dist`: the entries of the package as ESM and as CommonJS, which share their common modules, with their declarations. React and
// the client are not bundled.

import { build, type BuildOptions } from 'esbuild';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const HERE = import.meta.dirname;
const DIST = join(HERE, 'dist');
const COMMON: BuildOptions = { target: 'es2022', sourcemap: true, logLevel: 'warning' };
/** Each entry is named in `exports` of package.json. */
const ENTRIES = ['index', 'lists'];

rmSync(DIST, { recursive: true, force: true });
mkdirSync(DIST);
const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');
// The package uses the client's published types, not its source.
const declarations = ['--paths', 'null', '--rootDir', join(HERE, 'src'), '--declaration', '--emitDeclarationOnly', '--outDir', join(DIST, 'esm')];
execFileSync(process.execPath, [tsc, '--project', HERE, ...declarations], { stdio: 'inherit' });
cpSync(join(DIST, 'esm'), join(DIST, 'cjs'), { recursive: true });
writeFileSync(join(DIST, 'cjs/package.json'), '{ "type": "commonjs" }\n');
await build({
  ...COMMON,
  entryPoints: ENTRIES.map((entry) => join(HERE, `src/${entry}.ts`)),
  bundle: true,
  external: ['react', '@tidewire/client'],
  format: 'esm',
  splitting: true,
  outdir: join(DIST, 'esm'),
  // In apps with server components, the modules with hooks are client components.
  banner: { js: "'use client';" },
});
// esbuild can't split CommonJS, so it is made of the ESM modules, which are already split.
const modules = readdirSync(join(DIST, 'esm')).filter((file) => file.endsWith('.js'));
await build({ ...COMMON, entryPoints: modules.map((file) => join(DIST, 'esm', file)), format: 'cjs', outdir: join(DIST, 'cjs') });
