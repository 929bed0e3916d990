// Builds `dist` of the bindings in these folders: `node --import tsx build-binding.ts ../react ../vue`. Their entries become ESM, and CommonJS
// if the package exports that; both share their common modules. The framework and the client are not bundled.

import { build, type BuildOptions } from 'esbuild';
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { buildFolder, inputsFile } from './build-folder.js';

interface Manifest {
  exports: Record<string, string | { require?: object }>;
  dependencies?: Record<string, string>;
  peerDependencies: Record<string, string>;
}

const TSC = createRequire(import.meta.url).resolve('typescript/bin/tsc');
const COMMON: BuildOptions = { target: 'es2022', sourcemap: true, logLevel: 'warning' };

const HERE = import.meta.dirname;

for (const folder of process.argv.slice(2)) {
  const home = resolve(folder);
  const own = ['src', 'package.json', 'package-lock.json', 'tsconfig.json'].map((input) => join(home, input));
  // The types of the client and the compiler are inputs, too.
  const shared = [inputsFile(join(HERE, 'dist')), ...['build-binding.ts', 'package-lock.json'].map((input) => join(HERE, input))];
  await buildFolder(join(home, 'dist'), [...own, ...shared.filter((input) => existsSync(input))], (dist) => buildBinding(home, dist));
}

async function buildBinding(home: string, dist: string): Promise<void> {
  const { exports, dependencies, peerDependencies } = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8')) as Manifest;
  const entries = Object.entries(exports).filter(([, target]) => typeof target !== 'string') as Array<[string, { require?: object }]>;
  // The package uses the client's published types, not its source.
  const declarations = ['--paths', 'null', '--rootDir', join(home, 'src'), '--declaration', '--emitDeclarationOnly', '--outDir', join(dist, 'esm')];
  execFileSync(process.execPath, [TSC, '--project', home, ...declarations], { stdio: 'inherit' });
  await build({
    ...COMMON,
    entryPoints: entries.map(([entry]) => join(home, 'src', `${entry === '.' ? 'index' : entry.slice('./'.length)}.ts`)),
    bundle: true,
    external: ['node:*', ...Object.keys({ ...dependencies, ...peerDependencies })],
    format: 'esm',
    splitting: true,
    outdir: join(dist, 'esm'),
    // In apps with server components, the modules with React hooks are client components.
    ...('react' in peerDependencies && { banner: { js: "'use client';" } }),
  });
  if (!entries.some(([, target]) => target.require)) return;
  const modules = readdirSync(join(dist, 'esm')).filter((file) => file.endsWith('.js'));
  cpSync(join(dist, 'esm'), join(dist, 'cjs'), { recursive: true, filter: (file) => !/\.js(\.map)?$/.test(file) });
  writeFileSync(join(dist, 'cjs/package.json'), '{ "type": "commonjs" }\n');
  // esbuild can't split CommonJS, so it is made of the ESM modules, which are already split.
  await build({ ...COMMON, entryPoints: modules.map((file) => join(dist, 'esm', file)), format: 'cjs', outdir: join(dist, 'cjs') });
}
