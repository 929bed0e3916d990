// The Debian package of a release: the program, its unit and user, a configuration, the manual pages. The bytes depend only on the sources.

import { createHash } from 'node:crypto';
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { run } from '../harness/program.ts';
import { secondsOf, versionOf } from './version.ts';

const MAINTAINER = 'The Tidewire contributors <tidewire@users.noreply.github.com>';
const DOCUMENTS = 'usr/share/doc/tidewire';
/** Scripts that dpkg runs. */
const SCRIPTS = ['postinst', 'prerm', 'postrm'];
/** Files of packaging/deb and their paths in the package. */
const COPIED: Record<string, string> = {
  'sysusers.conf': 'usr/lib/sysusers.d/tidewire.conf',
  'tidewire.yml': 'etc/tidewire/tidewire.yml',
  'lintian-overrides': 'usr/share/lintian/overrides/tidewire',
  'README.Debian': `${DOCUMENTS}/README.Debian`,
};

/** The parts of a release that go into the package. */
export interface DebParts {
  /** The repository. */
  source: string;
  /** The stripped program. */
  program: string;
  /** The list of components. */
  components: string;
  /** Debian's name of the processor. */
  architecture: string;
  /** The oldest version of glibc that the program supports. */
  glibc: string;
  /** The program that writes the manual pages, if it runs on this machine; without it the package has none. */
  writer: string | undefined;
}

/** Writes the package into `target` and returns its path. */
export function buildDeb({ source, program, components, architecture, glibc, writer }: DebParts, target: string): string {
  const version = versionOf(source);
  const time = secondsOf(source);
  const root = mkdtempSync(join(tmpdir(), 'tidewire-deb-'));
  try {
    chmodSync(root, 0o755);
    const packaging = join(source, 'packaging');
    copy(program, root, 'usr/bin/tidewire', 0o755);
    for (const [name, path] of Object.entries(COPIED)) copy(join(packaging, 'deb', name), root, path);
    copy(components, root, `${DOCUMENTS}/components.cdx.json`);
    write(root, 'lib/systemd/system/tidewire.service', unitOf(packaging));
    const copyright = copyrightOf(source);
    write(root, `${DOCUMENTS}/copyright`, copyright);
    write(root, `${DOCUMENTS}/changelog.gz`, compressed(changelog(version, Number(time))));
    if (writer !== undefined) writeManualPages(writer, root);

    write(root, 'DEBIAN/conffiles', '/etc/tidewire/tidewire.yml\n');
    write(root, 'DEBIAN/md5sums', sums(root));
    write(root, 'DEBIAN/control', control({ version, architecture, glibc, homepage: homepageOf(copyright), kilobytes: kilobytesOf(root) }));
    for (const script of SCRIPTS) copy(join(packaging, 'deb', script), root, `DEBIAN/${script}`, 0o755);
    const deb = join(target, `tidewire_${version}_${architecture}.deb`);
    run('dpkg-deb', ['--root-owner-group', '-Zxz', '--build', root, deb], { env: { ...process.env, SOURCE_DATE_EPOCH: time } });
    return deb;
  } finally {
    rmSync(root, { recursive: true });
  }
}

interface Control {
  version: string;
  architecture: string;
  glibc: string;
  homepage: string;
  kilobytes: number;
}

function control({ version, architecture, glibc, homepage, kilobytes }: Control): string {
  return `Package: tidewire
Version: ${version}
Architecture: ${architecture}
Maintainer: ${MAINTAINER}
Installed-Size: ${kilobytes}
Depends: libc6 (>= ${glibc}), libgcc-s1 | libgcc1, systemd | systemd-standalone-sysusers
Section: net
Priority: optional
Homepage: ${homepage}
Description: realtime server for records, events, rpc and presence
 Tidewire keeps JSON documents in sync between clients, delivers events,
 routes remote procedure calls and tracks which users are online. It has
 authentication, permissions, TLS and a durable store, and serves the
 clients of deepstream without changes.
`;
}

function unitOf(packaging: string): string {
  return readFileSync(join(packaging, 'tidewire.service'), 'utf8').replaceAll('/usr/local/bin/', '/usr/bin/');
}

function copyrightOf(source: string): string {
  const [, ...lines] = readFileSync(join(source, 'LICENSE-MIT'), 'utf8').trim().split('\n');
  const text = lines.join('\n').trim().split('\n').map((line) => ` ${line === '' ? '.' : line}\n`);
  return `${readFileSync(join(source, 'packaging/deb/copyright'), 'utf8').trimEnd()}\n\nLicense: Expat\n${text.join('')}`;
}

function homepageOf(copyright: string): string {
  const found = /^Source: (.*)$/m.exec(copyright)?.[1];
  if (found === undefined) throw new Error('packaging/deb/copyright has no line with the source');
  return found;
}

function changelog(version: string, seconds: number): string {
  const date = new Date(seconds * 1_000).toUTCString().replace('GMT', '+0000');
  return `tidewire (${version}) unstable; urgency=medium\n\n  * Changes are listed in CHANGELOG.md of the sources.\n\n -- ${MAINTAINER}  ${date}\n`;
}

function writeManualPages(writer: string, root: string): void {
  const folder = join(root, 'usr/share/man/man1');
  mkdirSync(folder, { recursive: true });
  run(writer, ['man', folder]);
  for (const name of readdirSync(folder)) {
    write(folder, `${name}.gz`, compressed(readFileSync(join(folder, name))));
    rmSync(join(folder, name));
  }
}

function compressed(text: string | Buffer): Buffer {
  return gzipSync(text, { level: 9 });
}

/** The hashes that `dpkg --verify` compares. */
function sums(root: string): string {
  const sum = (path: string): string => createHash('md5').update(readFileSync(join(root, path))).digest('hex');
  return installedFiles(root).map((path) => `${sum(path)}  ${path}\n`).join('');
}

function kilobytesOf(root: string): number {
  const bytes = installedFiles(root).reduce((total, path) => total + statSync(join(root, path)).size, 0);
  return Math.ceil(bytes / 1_024);
}

/** The files that the package installs. */
function installedFiles(root: string): string[] {
  const entries = readdirSync(root, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  const paths = entries.map(({ parentPath, name }) => join(parentPath, name).slice(root.length + 1));
  return paths.filter((path) => !path.startsWith('DEBIAN/')).sort();
}

function copy(from: string, root: string, path: string, mode = 0o644): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  copyFileSync(from, join(root, path));
  chmodSync(join(root, path), mode);
}

function write(root: string, path: string, content: string | Buffer): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), content, { mode: 0o644 });
}
