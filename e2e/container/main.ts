// Runs suites against servers in a container (see `harness/container.ts`): `npm run container -- events records`.
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
  const suites = ['--import', 'tsx', join(E2E, 'run.ts'), ...process.argv.slice(2)];
  const env = { ...process.env, E2E_CONTAINER: folder };
  const { status } = spawnSync(process.execPath, suites, { cwd: E2E, env, stdio: 'inherit' });
  process.exitCode = status ?? 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
