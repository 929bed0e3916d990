// Finds the crates that each crate names, and the import cycles between modules of one crate. The rule: a lower crate never names an
// upper one, and modules of different folders form no cycle.

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** A line of code that names a crate. */
export interface CrateImport {
  from: string;
  to: string;
  file: string;
}

/** The paths of the Rust files below a folder, relative to it. */
export function rustFiles(folder: string): string[] {
  if (!existsSync(folder)) return [];
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' });
  return files.filter((file) => file.endsWith('.rs')).sort();
}

/** The code of a file without comments and without the tests at its end. */
export function code(path: string): string {
  const text = readFileSync(path, 'utf8').replaceAll(/^\s*\/\/.*$/gm, '');
  const tests = text.search(/#\[cfg\(test\)\]\s*(?:pub(?:\([a-z]+\))? )?mod \w+ \{/);
  return tests < 0 ? text : text.slice(0, tests);
}

/** The crates below `root/crates`. */
export function crates(root: string): string[] {
  const folders = readdirSync(join(root, 'crates'));
  return folders.filter((folder) => existsSync(join(root, 'crates', folder, 'Cargo.toml'))).sort();
}

/** Our crates that a manifest names as dependencies or build dependencies, without those that only tests need. */
function dependencies(manifest: string): string[] {
  const named = new Set<string>();
  let section = '';
  for (const line of manifest.split('\n')) {
    section = /^\[(.*)\]$/.exec(line)?.[1] ?? section;
    const [, crate] = /^(tidewire[\w-]*)\b/.exec(line) ?? [];
    if (crate !== undefined && /^(?:.*\.)?(?:build-)?dependencies$/.test(section)) named.add(crate);
  }
  return [...named];
}

/** The other crates that each crate names in its manifest and its sources. */
export function crateImports(root: string): CrateImport[] {
  const all = crates(root);
  const found: CrateImport[] = [];
  for (const from of all) {
    const folder = join(root, 'crates', from);
    const manifest = readFileSync(join(folder, 'Cargo.toml'), 'utf8');
    for (const to of dependencies(manifest)) found.push({ from, to, file: 'Cargo.toml' });
    for (const file of rustFiles(join(folder, 'src'))) {
      const named = code(join(folder, 'src', file)).matchAll(/\b(tidewire(?:_[a-z]+)?)\b(?=::| as |;)/g);
      for (const to of new Set([...named].map(([, name = '']) => name.replaceAll('_', '-')))) {
        if (to !== from && all.includes(to)) found.push({ from, to, file: join('src', file) });
      }
    }
  }
  return found;
}

/** The comma-separated parts of `{a, b::{c, d}}` at its outermost level. */
function parts(group: string): string[] {
  const found: string[] = [];
  let depth = 0;
  let part = '';
  for (const character of group) {
    if (character === '{') depth += 1;
    if (character === '}') depth -= 1;
    if (depth === 0) break;
    if (depth === 1 && character === ',') {
      found.push(part);
      part = '';
    } else if (depth > 1 || character !== '{') part += character;
  }
  return [...found, part].map((text) => text.trim()).filter((text) => text !== '');
}

/** For each module directly below the root of a crate: the other modules at that level that it names. */
export function moduleImports(sources: string): Map<string, Set<string>> {
  const files = rustFiles(sources);
  const moduleOf = (file: string): string => (file.split('/')[0] ?? '').replace(/\.rs$/, '');
  const modules = new Set(files.map(moduleOf).filter((name) => name !== 'lib' && name !== 'main'));
  const imports = new Map([...modules].map((name) => [name, new Set<string>()]));
  for (const file of files.filter((name) => !name.endsWith('tests.rs'))) {
    const from = moduleOf(file);
    // A path of this many `super` leads from the file to the root of the crate.
    const path = file.replace(/(?:\/mod)?\.rs$/, '').split('/');
    const toRoot = `(?:crate|${Array.from({ length: path.length }, () => 'super').join('::')})`;
    for (const [, rest = ''] of code(join(sources, file)).matchAll(new RegExp(`(?<!::)\\b${toRoot}::(\\w+|\\{[^;]*\\};)`, 'g'))) {
      const named = rest.startsWith('{') ? parts(rest) : [rest];
      for (const name of named.map((text) => /^\w+/.exec(text)?.[0] ?? '')) {
        if (modules.has(name) && name !== from) imports.get(from)?.add(name);
      }
    }
  }
  return imports;
}

/** The cycles of a graph: groups in which each module reaches every other. */
export function circles(imports: Map<string, Set<string>>): string[][] {
  const reach = (start: string): Set<string> => {
    const seen = new Set<string>();
    const waiting = [...(imports.get(start) ?? [])];
    for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
      if (seen.has(next)) continue;
      seen.add(next);
      waiting.push(...(imports.get(next) ?? []));
    }
    return seen;
  };
  const reached = new Map([...imports.keys()].map((name) => [name, reach(name)]));
  const found = new Map<string, string[]>();
  for (const [name, others] of reached) {
    const circle = [...others].filter((other) => other !== name && reached.get(other)?.has(name) === true);
    if (circle.length > 0) {
      const members = [name, ...circle].sort();
      found.set(members.join(), members);
    }
  }
  return [...found.values()];
}
