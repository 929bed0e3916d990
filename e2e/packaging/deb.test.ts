// The Debian package: lintian accepts it, its unit starts the installed program, and its user comes from systemd-sysusers.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { run } from '../harness/program.ts';
import { binary } from '../harness/server.ts';
import { GLIBC } from './build.ts';
import { components } from './components.ts';
import { buildDeb } from './deb.ts';

const REPOSITORY = resolve(import.meta.dirname, '../..');
const folder = mkdtempSync(join(tmpdir(), 'tidewire-deb-test-'));
after(() => rmSync(folder, { recursive: true }));

function build(): string {
  const program = join(folder, 'tidewire');
  run('objcopy', ['--strip-all', binary(), program]);
  const list = join(folder, 'components.json');
  writeFileSync(list, JSON.stringify(components(REPOSITORY)));
  return buildDeb({ source: REPOSITORY, program, components: list, architecture: 'amd64', glibc: GLIBC, writer: program }, folder);
}

const deb = build();
const root = join(folder, 'root');
run('dpkg-deb', ['--extract', deb, root]);

test('lintian reports no error and no warning', () => {
  const { status, stdout, stderr } = spawnSync('lintian', ['--allow-root', '--fail-on', 'error,warning', deb], { encoding: 'utf8' });
  assert.deepEqual([status, stdout, stderr], [0, '', '']);
});

test('the program and the manual pages are the ones of this version', () => {
  const version = run(join(root, 'usr/bin/tidewire'), ['--version']).trim().split(' ')[1] as string;
  assert.equal(run('dpkg-deb', ['--field', deb, 'Version']).trim(), version);
  const pages = readdirSync(join(root, 'usr/share/man/man1'));
  assert.ok(pages.length > 20 && pages.includes('tidewire.1.gz'), `${pages}`);
  const page = gunzipSync(readFileSync(join(root, 'usr/share/man/man1/tidewire.1.gz'))).toString();
  assert.match(page, new RegExp(version.replaceAll('.', '\\.')));
});

test('the unit starts the installed program with the configuration of the package', () => {
  const unit = readFileSync(join(root, 'lib/systemd/system/tidewire.service'), 'utf8');
  const [, program = '', config = ''] = /^ExecStart=(\S+) start --config (\S+)/m.exec(unit) ?? [];
  const { status, stderr } = spawnSync(join(root, program), ['config', 'check', '--config', join(root, config)], { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  assert.doesNotMatch(unit, /\/usr\/local/);
  run('dpkg-deb', ['--control', deb, join(folder, 'control')]);
  assert.equal(readFileSync(join(folder, 'control/conffiles'), 'utf8'), `${config}\n`);
});

test('systemd-sysusers creates the user of the unit', () => {
  run('systemd-sysusers', [`--root=${root}`, 'tidewire.conf']);
  assert.match(readFileSync(join(root, 'etc/passwd'), 'utf8'), /^tidewire:.*:\/var\/lib\/tidewire:\/usr\/sbin\/nologin$/m);
});
