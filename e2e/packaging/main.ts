// `make release` builds a release of the current sources in target/dist. With `arm64`, it builds one for that processor in
// target/dist-arm64, and with `manifest` it joins the images of both. With `twice`, it builds a release of the last commit in two folders,
// first one, then the other, and compares them byte for byte (`make proof-release`). That takes as long as two clean builds.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { build, differentSections, sumsOf, type Release } from './build.ts';
import { saveManifest } from './image.ts';

const REPOSITORY = resolve(import.meta.dirname, '../..');

const DIST = join(REPOSITORY, 'target/dist');
const DIST_ARM64 = join(REPOSITORY, 'target/dist-arm64');
const UNTRIED = 'untried: no machine of the project runs programs for arm64, so nothing here has been started; report the result if you try it';

const [mode] = process.argv.slice(2);
if (mode === 'twice') await twice();
else if (mode === 'arm64') await arm64();
else if (mode === 'manifest') manifest();
else tell(await build(REPOSITORY, DIST));

async function arm64(): Promise<void> {
  console.log(UNTRIED);
  tell(await build(REPOSITORY, DIST_ARM64, 'arm64'));
}

function manifest(): void {
  console.log(UNTRIED);
  saveManifest([join(DIST, 'tidewire-image-amd64.tar'), join(DIST_ARM64, 'tidewire-image-arm64.tar')], join(DIST, 'tidewire-image.oci.tar'));
}

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
