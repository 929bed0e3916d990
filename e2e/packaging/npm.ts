// The npm packages of a release. Each is packed as it is published: with the licences of this repository, without development dependencies,
// and with a README whose links lead to the repository's site, because the documents that it names are not in the package.

import { chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative, resolve } from 'node:path';
import { run } from '../harness/program.ts';

const REPOSITORY = resolve(import.meta.dirname, '../..');
const LICENCES = ['LICENSE-APACHE', 'LICENSE-MIT'];
/** The package with the server's program. */
export const PROGRAM_PACKAGE = '@tidewire/bin-linux-x64';
/** The published packages, each with its folder. The clients must be built before they are packed. */
export const PUBLISHED: Record<string, string> = {
  '@tidewire/client': 'client',
  '@tidewire/react': 'react',
  '@tidewire/vue': 'vue',
  '@tidewire/svelte': 'svelte',
  '@tidewire/solid': 'solid',
  '@tidewire/server': 'server',
  '@tidewire/socket.io': 'socket.io',
  'create-tidewire': 'create-tidewire',
  tidewire: 'tidewire',
  [PROGRAM_PACKAGE]: 'bin-linux-x64',
};

/** The part of package.json that packing needs. */
interface Manifest {
  files: string[];
  repository: { url: string };
  scripts?: object;
  devDependencies?: object;
}

/** Builds the clients of the repository `source`. */
export function buildClients(source: string): void {
  for (const name of ['client', 'react', 'vue', 'svelte', 'solid', 'server', 'socket.io']) {
    const folder = join(source, 'packages', name);
    if (!existsSync(join(folder, 'node_modules'))) run('npm', ['ci', '--silent', '--no-audit', '--no-fund'], { cwd: folder });
  }
  run('npm', ['run', '--silent', 'bindings'], { cwd: join(source, 'packages/client') });
}

/** Packs the package `name` of the repository `source` and returns the path of its tarball in `target`. `program` is the server's. */
export function packPublished(name: string, target: string, program: string, source = REPOSITORY): string {
  const staged = mkdtempSync(join(tmpdir(), 'tidewire-pack-'));
  try {
    stage(join(source, 'packages', PUBLISHED[name] ?? name), source, staged);
    if (name === PROGRAM_PACKAGE) stageProgram(program, staged);
    const args = ['pack', '--silent', '--ignore-scripts', '--pack-destination', resolve(target)];
    return join(resolve(target), run('npm', args, { cwd: staged }).trim());
  } finally {
    rmSync(staged, { recursive: true });
  }
}

/** Copies the published files of the package in `home` to the folder `staged`. */
function stage(home: string, source: string, staged: string): void {
  const { scripts, devDependencies, ...manifest } = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8')) as Manifest;
  const site = siteOf(manifest);
  const published = { ...manifest, homepage: `${site}#readme`, files: [...manifest.files, ...LICENCES] };
  writeFileSync(join(staged, 'package.json'), `${JSON.stringify(published, undefined, 2)}\n`);
  const readme = readFileSync(join(home, 'README.md'), 'utf8');
  writeFileSync(join(staged, 'README.md'), withSiteLinks(readme, home, `${site}/blob/main/`, source));
  for (const name of LICENCES) cpSync(join(source, name), join(staged, name));
  // The program is not among the sources.
  for (const name of manifest.files) if (existsSync(join(home, name))) cpSync(join(home, name), join(staged, name), { recursive: true });
}

/** Copies the program without its symbols. */
function stageProgram(program: string, staged: string): void {
  const file = join(staged, 'bin/tidewire');
  mkdirSync(join(staged, 'bin'));
  run('objcopy', ['--strip-all', program, file]);
  chmodSync(file, 0o755);
}

/** The address of the repository's site. */
export function siteOf({ repository }: Pick<Manifest, 'repository'>): string {
  return repository.url.replace(/^git\+|\.git$/g, '');
}

/** The document in `home` with absolute links: the address of the repository `source` is `base`. */
export function withSiteLinks(text: string, home: string, base: string, source = REPOSITORY): string {
  const absolute = (link: string): string => {
    const [path = '', anchor] = link.split('#');
    const target = resolve(home, path);
    if (!existsSync(target)) throw new Error(`${home}/README.md has a link to ${link}, which does not exist`);
    return `${base}${relative(source, target)}${anchor === undefined ? '' : `#${anchor}`}`;
  };
  const linked = (part: string): string => part.replace(/\]\((?!https?:|#)([^)]+)\)/g, (_, link: string) => `](${absolute(link)})`);
  // The odd parts are blocks of code.
  const parts = text.split(/^(```[^]*?^```$)/m);
  return parts.map((part, i) => (i % 2 === 1 ? part : linked(part))).join('');
}
