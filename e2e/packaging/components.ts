// The components of a release, as a list in CycloneDX format: the crates in the program, the packages in its web pages, and
// Rust's standard library. Two lists of the same sources are equal byte for byte.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { run } from '../harness/program.ts';

export interface Component {
  type: 'library' | 'application';
  name: string;
  version: string;
  licenses: { expression: string }[];
  /** Its package URL. */
  purl: string;
}

/** One row of `cargo tree`. */
interface Crate {
  name: string;
  version: string;
  licence: string;
}

/** The folders of the web pages in the program. */
const PAGES = ['packages/admin', 'examples/demo'];

/** The components of the sources in `root`, built for Rust's `target`. */
export function components(root: string, target = 'x86_64-unknown-linux-gnu'): object {
  const [server, ...crates] = crateRows(root, target);
  if (server === undefined) throw new Error('cargo tree has named nothing');
  const libraries = [rustLibrary(root), ...crates.map((crate) => component('cargo', crate)), ...PAGES.flatMap((page) => pagePackages(join(root, page)))];
  const byAddress = new Map(libraries.map((library) => [library.purl, library]));
  return {
    bomFormat: 'CycloneDX',
    specVersion: '1.5',
    version: 1,
    metadata: { component: { ...component('cargo', server), type: 'application' } },
    components: [...byAddress.values()].sort((a, b) => (a.purl < b.purl ? -1 : 1)),
  };
}

function component(kind: string, { name, version, licence }: Crate): Component {
  // Older crates use a slash for "or".
  const expression = licence.replaceAll('/', ' OR ');
  return { type: 'library', name, version, licenses: [{ expression }], purl: `pkg:${kind}/${name}@${version}` };
}

/** The server's crate and its dependencies at run time. */
function crateRows(root: string, target: string): Crate[] {
  const args = ['tree', '--locked', '--package', 'tidewire', '--target', target, '--edges', 'normal,no-proc-macro'];
  const rows = run('cargo', [...args, '--prefix', 'none', '--format', '{p}|{l}'], { cwd: root }).trim().split('\n');
  return rows.map((row) => {
    const [, name, version, licence] = /^(\S+) v(\S+)[^|]*\|(.*?)( \(\*\))?$/.exec(row) ?? [];
    if (!name || !version || !licence) throw new Error(`cargo tree says ${JSON.stringify(row)}, in which a name, a version or a licence is missing`);
    return { name, version, licence };
  });
}

function rustLibrary(root: string): Component {
  const [, version] = /^rustc (\S+)/.exec(run('rustc', ['--version'], { cwd: root })) ?? [];
  if (version === undefined) throw new Error('rustc does not say its version');
  return component('generic', { name: 'rust-std', version, licence: 'MIT OR Apache-2.0' });
}

/** The third-party packages that are bundled into a page. */
function pagePackages(folder: string): Component[] {
  const text = readFileSync(join(folder, 'package-lock.json'), 'utf8');
  const { packages } = JSON.parse(text) as { packages: Record<string, { version?: string; license?: string; dev?: boolean; link?: boolean }> };
  const own = Object.entries(packages).filter(([path, { dev, link }]) => path.startsWith('node_modules/') && !dev && !link);
  return own.map(([path, { version, license }]) => {
    const name = path.slice('node_modules/'.length);
    if (!version || !license) throw new Error(`${folder}: ${name} has no version or no licence`);
    return component('npm', { name, version, licence: license });
  });
}
