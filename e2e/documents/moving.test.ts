// Moves an app of deepstream: it runs on deepstream's own server, its configuration is converted as the guide describes, and on Tidewire
// the app prints the same.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import { freePort } from '../harness/ports.ts';
import { binary } from '../harness/server.ts';
import { within } from '../harness/wait.ts';
import { REPOSITORY } from './block.ts';
import { temporaryFolder } from './folder.ts';

const LAUNCHER = join(REPOSITORY, 'e2e/original-server/start.cjs');
const START_DEADLINE_MS = 30_000;

/** Starts a server and waits until it prints that it is ready. */
async function started(t: TestContext, cwd: string, ready: RegExp, program: string, ...args: string[]): Promise<void> {
  const child = spawn(program, args, { cwd, stdio: ['ignore', 'pipe', 'pipe'] });
  const ended = once(child, 'exit');
  atEnd(t, async () => {
    child.kill('SIGTERM');
    await within(START_DEADLINE_MS, ended, `${program} ends`);
  });
  let output = '';
  const said = new Promise<void>((done, failed) => {
    const keep = (bytes: Buffer): void => {
      output += bytes.toString();
      if (ready.test(output)) done();
    };
    child.stdout.on('data', keep);
    child.stderr.on('data', keep);
    void ended.then(() => failed(new Error(`${program} ${args.join(' ')} ended:\n${output}`)));
  });
  await within(START_DEADLINE_MS, said, `${program} starts`);
}

test('an app of deepstream prints the same on its own server and, with its configuration converted, on Tidewire', async (t) => {
  const folder = temporaryFolder(t);
  cpSync(join(REPOSITORY, 'examples/from-deepstream'), folder, { recursive: true });
  symlinkSync(join(REPOSITORY, 'e2e/node_modules'), join(folder, 'node_modules'));
  const run = (port: number): string => {
    const { stdout, stderr, status } = spawnSync(process.execPath, ['app.mjs', `127.0.0.1:${port}`], { cwd: folder, encoding: 'utf8', timeout: 30_000 });
    assert.equal(status, 0, stdout + stderr);
    return stdout;
  };

  const port = await freePort();
  const config = join(folder, 'conf/config.yml');
  const original = readFileSync(config, 'utf8');
  // At this log level the server prints that it has started.
  writeFileSync(config, original.replace('port: 6020', `port: ${port}`).replace('logLevel: 2', 'logLevel: 1'));
  await started(t, folder, /Deepstream started/i, process.execPath, LAUNCHER, config);
  const before = run(port);
  writeFileSync(config, original);

  const moved = join(folder, 'moved');
  mkdirSync(moved);
  const imported = spawnSync(binary(), ['import', 'deepstream', '..'], { cwd: moved, encoding: 'utf8' });
  assert.equal(imported.status, 0, imported.stderr);
  const other = await freePort();
  await started(t, moved, /ready on/, binary(), 'start', '--port', String(other));
  assert.equal(run(other), before);
});
