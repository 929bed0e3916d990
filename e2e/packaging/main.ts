// `make release` builds a release of the current sources in target/dist. With `twice`, it builds a release of the last commit in two
// folders, first one, then the other, and compares them byte for byte (`make proof-release`). That takes as long as two clean builds.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { build, differentSections, sumsOf, type Release } from './build.ts';

const REPOSITORY = resolve(import.meta.dirname, '../..');

const [mode] = process.argv.slice(2);
if (mode === 'twice') await twice();
else tell(await build(REPOSITORY, join(REPOSITORY, 'target/dist')));

function tell({ folder, bytes, glibc, componentCount }: Release): void {
  console.log(`release: ${bytes} bytes, starts on glibc ${glibc}, ${componentCount} components, in ${folder}`);
}

async function twice(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-release-'));
  try {
    const releases: string[] = [];
    for (const name of ['one', 'another/place']) {
      const source = join(folder, name);
      execFileSync('git', ['clone', '--quiet', '--no-hardlinks', REPOSITORY, source], { stdio: ['ignore', 'inherit', 'inherit'] });
      const release = await build(source, join(folder, name.replace('/', '-') + '.release'));
      tell(release);
      releases.push(release.folder);
      // Keep only one target folder at a time.
      rmSync(source, { recursive: true });
    }
    const [one, other] = releases as [string, string];
    const [first, second] = [sumsOf(one), sumsOf(other)];
    const different = Object.keys({ ...first, ...second }).filter((name) => first[name] !== second[name]);
    const files = different.map((name) => [name, ...differentSections(join(one, name), join(other, name))].join(' '));
    if (files.length > 0) throw new Error(`two builds in two folders differ in ${files.join(', ')}`);
    console.log(`two builds in two folders are the same: ${Object.keys(first).length} files, tidewire ${first['tidewire']}`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
