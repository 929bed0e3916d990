// A release: the stripped program for Linux with glibc 2.28 or later, its symbols, and the forms in which it is installed: npm packages, a
// Debian package, a container image. The bytes do not depend on the folder of the sources. Zig provides the linker and the old C library
// (`cargo zigbuild`).

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import { run } from '../harness/program.ts';
import { installed } from '../harness/python.ts';
import { components } from './components.ts';
import { buildDeb } from './deb.ts';
import { saveImage } from './image.ts';
import { PUBLISHED, buildClients, packPublished } from './npm.ts';
import { secondsOf, versionOf } from './version.ts';

/** A processor for which a release is built. */
export interface Platform {
  /** Rust's name of the target. */
  target: string;
  /** The name in Debian packages and images. */
  architecture: string;
  /** The beginning of the names of the binutils. */
  binutils: string;
}

/** By Node's name of the processor. */
export const PLATFORMS = {
  x64: { target: 'x86_64-unknown-linux-gnu', architecture: 'amd64', binutils: '' },
  arm64: { target: 'aarch64-unknown-linux-gnu', architecture: 'arm64', binutils: 'aarch64-linux-gnu-' },
};
/** The programs that pack a release, each with its Debian package. */
const PACKERS = { 'dpkg-deb': 'dpkg', buildah: 'buildah', mmdebstrap: 'mmdebstrap', npm: 'npm' };
/** The oldest C library that a release supports: the one of Debian 10, RHEL 8 and Ubuntu 18.10. */
export const GLIBC = '2.28';
export const BYTES_MAX = 25_000_000;
/** Files of the repository that are part of a release. */
const COPIED = ['packaging/tidewire.service', 'packaging/Dockerfile', 'LICENSE-APACHE', 'LICENSE-MIT'];
/** Variables of a builder's environment that could change the program. */
const FOREIGN = /^(CARGO_(?!HOME$)|RUST(FLAGS|C_|DOCFLAGS)|C(XX)?FLAGS|CC$|CXX$|LDFLAGS|AR$|SOURCE_DATE_EPOCH)/;

/** The result of a build. */
export interface Release {
  folder: string;
  bytes: number;
  glibc: string;
  componentCount: number;
}

/** Builds the sources in `source` and writes the release to `folder`, which is emptied first. */
export async function build(source: string, folder: string, processor: keyof typeof PLATFORMS = 'x64'): Promise<Release> {
  const platform = PLATFORMS[processor];
  checkPackers();
  await compile(source, folder, platform);
  const program = join(folder, 'tidewire');
  const bytes = statSync(program).size;
  const glibc = highestGlibc(program, platform);
  if (compareVersions(glibc, GLIBC) > 0) throw new Error(`${program} needs glibc ${glibc}; ${GLIBC} is promised`);
  if (bytes > BYTES_MAX) throw new Error(`${program} has ${bytes} bytes; ${BYTES_MAX} are allowed`);

  for (const path of COPIED) copyFileSync(join(source, path), join(folder, path.slice(path.lastIndexOf('/') + 1)));
  const list = components(source, platform.target) as { components: unknown[] };
  const componentsFile = join(folder, 'components.cdx.json');
  writeFileSync(componentsFile, `${JSON.stringify(list, undefined, 2)}\n`);
  // The command `tidewire` knows no package with a program for another processor.
  if (processor === 'x64') packAll(source, folder, program);
  const { architecture } = platform;
  const writer = processor === process.arch ? program : undefined;
  buildDeb({ source, program, components: componentsFile, architecture, glibc: GLIBC, writer }, folder);
  const parts = { source, program, version: versionOf(source), architecture, seconds: secondsOf(source) };
  saveImage(parts, join(folder, `tidewire-image-${architecture}.tar`));
  const sums = Object.entries(sumsOf(folder)).map(([name, sum]) => `${sum}  ${name}\n`);
  writeFileSync(join(folder, 'SHA256SUMS'), sums.join(''));
  return { folder, bytes, glibc, componentCount: list.components.length };
}

/** Fails before the build if its result could not be packed. */
function checkPackers(): void {
  const missing = Object.entries(PACKERS).filter(([program]) => spawnSync(program, ['--version']).error !== undefined);
  if (missing.length > 0) throw new Error(`a release needs ${missing.map(([, name]) => name).join(', ')}: apt-get install -y ${missing.map(([, name]) => name).join(' ')}`);
  if (process.getuid?.() !== 0) throw new Error('mmdebstrap and buildah make the image of a release as root: run this as root');
}

/** Compiles the program, and writes it and its symbols to `folder`. */
async function compile(source: string, folder: string, { target, binutils }: Platform): Promise<void> {
  // Zig and cargo-zigbuild in the versions of `requirements.txt`.
  const tools = await installed('release-tools', resolve(import.meta.dirname, 'requirements.txt'));
  run('cargo', ['fetch', '--locked'], { cwd: source });
  const env = environment(source, tools);
  const args = ['zigbuild', '--locked', '--release', '--package', 'tidewire', '--target', `${target}.${GLIBC}`];
  const { status } = spawnSync('cargo', [...args, '--target-dir', join(source, 'target')], { cwd: source, env, stdio: ['ignore', 'inherit', 'inherit'] });
  if (status !== 0) throw new Error('cargo zigbuild failed; its lines say why');

  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const built = join(source, 'target', target, 'release/tidewire');
  run(`${binutils}objcopy`, ['--only-keep-debug', built, 'tidewire.debug'], { cwd: folder });
  // Add no link to the symbols: its checksum would depend on the folder in which Zig compiles its start code.
  run(`${binutils}objcopy`, ['--strip-all', built, 'tidewire'], { cwd: folder });
}

/** Packs all npm packages into `folder`. */
function packAll(source: string, folder: string, program: string): void {
  buildClients(source);
  for (const name of Object.keys(PUBLISHED)) packPublished(name, folder, program, source);
}

/** The hash of each file in a release. */
export function sumsOf(folder: string): Record<string, string> {
  const sum = (name: string): string => createHash('sha256').update(readFileSync(join(folder, name))).digest('hex');
  return Object.fromEntries(readdirSync(folder).sort().map((name) => [name, sum(name)]));
}

/** The sections that differ between two programs, each with the first text that differs; empty if a file is not a program. */
export function differentSections(path: string, other: string): string[] {
  const [bytes, otherBytes] = [readFileSync(path), readFileSync(other)];
  if (!bytes.subarray(1, 4).equals(Buffer.from('ELF'))) return [];
  const headers = run('readelf', ['--wide', '--section-headers', path]);
  const sections = [...headers.matchAll(/^ +\[ *\d+\] (\.\S+) +(\S+) +\S+ (\S+) (\S+) /gm)];
  return sections.flatMap(([, name, kind, offset, size]) => {
    if (kind === 'NOBITS') return [];
    const [start, end] = [Number(`0x${offset}`), Number(`0x${offset}`) + Number(`0x${size}`)];
    const at = bytes.subarray(start, end).findIndex((byte, i) => byte !== otherBytes[start + i]);
    const text = (of: Buffer): string => JSON.stringify(of.subarray(start + at - 100, start + at + 100).toString('latin1'));
    return at < 0 ? [] : [`${name} (at ${at}: ${text(bytes)}, ${text(otherBytes)})`];
  });
}

/** The newest version of glibc that the program needs for one of its symbols. */
export function highestGlibc(program: string, { binutils }: Platform = PLATFORMS.x64): string {
  const symbols = run(`${binutils}objdump`, ['-T', program]);
  const versions = [...symbols.matchAll(/\bGLIBC_(\d+(?:\.\d+)+)/g)].map(([, version]) => version as string);
  const highest = versions.sort(compareVersions).at(-1);
  if (highest === undefined) throw new Error(`${program} needs no symbol of glibc, so it was not linked to glibc`);
  return highest;
}

export function compareVersions(a: string, b: string): number {
  const [left, right] = [a, b].map((version) => version.split('.').map(Number)) as [number[], number[]];
  const difference = left.map((number, i) => number - (right[i] ?? 0)).find((number) => number !== 0);
  return difference ?? left.length - right.length;
}

/** The environment of a build. It keeps the builder's paths out of the program: out of Rust's messages and symbols and out of C's. */
function environment(source: string, tools: string): NodeJS.ProcessEnv {
  const own = Object.entries(process.env).filter(([name]) => !FOREIGN.test(name));
  const registry = join(process.env['CARGO_HOME'] ?? join(homedir(), '.cargo'), 'registry/src');
  const registries = existsSync(registry) ? readdirSync(registry).map((name) => join(registry, name)) : [];
  const renamed = [[source, '/tidewire'], ...registries.map((path) => [path, '/cargo'])] as const;
  const flags = (option: string): string => renamed.map(([from, to]) => `${option}=${from}=${to}`).join(' ');
  return {
    ...Object.fromEntries(own),
    PATH: `${tools}${delimiter}${process.env['PATH']}`,
    // The flags come from the wrapper only, whatever a Cargo configuration contains.
    RUSTFLAGS: '',
    RUSTC_WRAPPER: join(import.meta.dirname, 'rustc.sh'),
    TIDEWIRE_RUSTC_FLAGS: flags('--remap-path-prefix'),
    CFLAGS: flags('-ffile-prefix-map'),
    CXXFLAGS: flags('-ffile-prefix-map'),
    // A dependency of the MongoDB driver uses random numbers at compile time; with this variable they are always the same.
    CONST_RANDOM_SEED: 'tidewire',
  };
}
