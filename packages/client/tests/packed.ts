// A package as it is published: packed, and unpacked where a program can import it.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { gzipSync } from 'node:zlib';

export class Packed {
  readonly #folder = mkdtempSync(join(tmpdir(), 'tidewire-package-'));

  /**
   * Packs the package in `home`, which must be built before: `npm test` does that. Create it at the top of a test file; it is removed after
   * the tests of that file.
   */
  constructor(private readonly home: string) {
    after(() => rmSync(this.#folder, { recursive: true }));
    execFileSync('npm', ['pack', '--silent', '--ignore-scripts', '--pack-destination', this.#folder], { cwd: home });
    const [tarball] = readdirSync(this.#folder);
    assert.ok(tarball, 'npm pack wrote a file');
    const { name } = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8')) as { name: string };
    const unpacked = join(this.#folder, 'node_modules', name);
    mkdirSync(unpacked, { recursive: true });
    execFileSync('tar', ['-xzf', join(this.#folder, tarball), '--strip-components=1', '-C', unpacked]);
  }

  /** Makes a development dependency of the package available to the programs. */
  link(name: string): void {
    symlinkSync(join(this.home, 'node_modules', name), join(this.#folder, 'node_modules', name));
  }

  /** Runs a program that has the package installed. */
  runs(name: string, text: string): void {
    writeFileSync(join(this.#folder, name), text);
    const ran = spawnSync(process.execPath, [name], { cwd: this.#folder, encoding: 'utf8' });
    assert.equal(ran.status, 0, ran.stderr);
  }
}

/** Fails if `text` has more than `max` bytes after compression with gzip. */
export function isSmall(name: string, text: string | Uint8Array, max: number): void {
  const bytes = gzipSync(text, { level: 9 }).length;
  console.log(`${name}: ${bytes} bytes with gzip`);
  assert.ok(bytes <= max, `${bytes} bytes`);
}
