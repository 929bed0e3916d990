// Builds the image of packaging/Dockerfile, tests it (`image.test.ts`), and runs suites against servers in it (see
// `harness/container.ts`): `npm run container -- events records`, or all suites without names.
// Needs root, buildah and mmdebstrap, and the release build of the server.

import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { buildContainer } from '../harness/container.ts';

const E2E = resolve(import.meta.dirname, '..');
const binary = resolve(process.env['TIDEWIRE_BIN'] ?? join(E2E, '../target/release/tidewire'));
if (!existsSync(binary)) throw new Error(`no binary at ${binary}: cargo build --release`);

const folder = mkdtempSync(join(tmpdir(), 'tidewire-container-'));
try {
  buildContainer(folder, binary);
  const env = { ...process.env, E2E_CONTAINER: folder };
  const run = (...args: string[]): number => {
    return spawnSync(process.execPath, ['--import', 'tsx', ...args], { cwd: E2E, env, stdio: 'inherit' }).status ?? 1;
  };
  const ofImage = run('--test', 'container/image.test.ts');
  process.exitCode = run('run.ts', ...process.argv.slice(2)) || ofImage;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
