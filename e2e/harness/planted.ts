// Scripts that are built from our own sources with a planted fault, to show that a test detects it. Only that test uses the script.

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type { TestContext } from 'node:test';

const REPOSITORY = resolve(import.meta.dirname, '../..');
const CLIENT = join(REPOSITORY, 'packages/client');

/** Replaces `text` by `instead` in `file`, a path from the repository's root. */
export interface Fault {
  file: string;
  text: string;
  instead: string;
}

interface Builder {
  build(options: object): Promise<unknown>;
}

/**
 * Bundles `entry`, a path from the repository's root, with a planted fault, and returns the path of the script, which exists until the
 * end of `test`. Imports of the client resolve to its source.
 */
export async function planted(test: TestContext, entry: string, { file, text, instead }: Fault, format: 'iife' | 'esm' = 'iife'): Promise<string> {
  const place = join(REPOSITORY, file);
  const [before, after, ...more] = readFileSync(place, 'utf8').split(text);
  assert.ok(before !== undefined && after !== undefined && more.length === 0, `${text} must occur exactly once in ${file}`);
  const { build } = createRequire(join(CLIENT, 'package.json'))('esbuild') as Builder;
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-planted-'));
  test.after(() => rmSync(folder, { recursive: true }));
  const outfile = join(folder, 'script.js');
  let isPlanted = false;
  const plant = {
    name: 'plant',
    setup({ onLoad }: { onLoad(options: object, load: (of: { path: string }) => object | undefined): void }): void {
      onLoad({ filter: /\.tsx?$/ }, ({ path }) => {
        if (path !== place) return undefined;
        isPlanted = true;
        return { contents: before + instead + after, loader: path.endsWith('x') ? 'tsx' : 'ts' };
      });
    },
  };
  const entries = readdirSync(join(CLIENT, 'src')).filter((name) => name.endsWith('.ts'));
  const alias = Object.fromEntries(entries.map((name) => [`@tidewire/client/${name.replace('.ts', '')}`.replace('/index', ''), join(CLIENT, 'src', name)]));
  await build({ entryPoints: [join(REPOSITORY, entry)], outfile, bundle: true, format, target: 'es2022', logLevel: 'warning', alias, plugins: [plant] });
  assert.ok(isPlanted, `${file} is a part of ${entry}`);
  return outfile;
}

/** Asserts that `check` fails with an assertion that matches `reason`, and not for another cause. */
export async function isFound(check: Promise<unknown>, reason: RegExp): Promise<void> {
  await assert.rejects(check, (error: Error) => {
    assert.ok(error instanceof assert.AssertionError, String(error.stack));
    assert.match(error.message, reason);
    return true;
  });
}
