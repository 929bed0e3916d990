// Builds the client as the server serves it at /tidewire.js: one module with all entries, and its types in one file.
// `node --import tsx module.ts FOLDER`.

import { generateDtsBundle } from 'dts-bundle-generator';
import { build } from 'esbuild';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

const HERE = import.meta.dirname;
const ENTRY = join(HERE, 'src/all.ts');
const [folder] = process.argv.slice(2);
if (folder === undefined) throw new Error('module.ts needs the folder for its files');
const target = resolve(folder);

rmSync(target, { recursive: true, force: true });
mkdirSync(target, { recursive: true });
const outfile = join(target, 'tidewire.js');
await build({ entryPoints: [ENTRY], outfile, bundle: true, minify: true, format: 'esm', target: 'es2022', logLevel: 'warning' });
const entry = { filePath: ENTRY, output: { noBanner: true, exportReferencedTypes: false } };
const [types] = generateDtsBundle([entry], { preferredConfigPath: join(HERE, 'tsconfig.json') });
writeFileSync(join(target, 'tidewire.d.ts'), types ?? '');
