// The unmodified image: its own command, variables, user and health check, in a root without a shell.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { test, type TestContext } from 'node:test';
import { connect } from '../harness/client.ts';
import { USER, containerFolder, containerRoot, imageSettings, insideCommand } from '../harness/container.ts';
import { fresh } from '../harness/names.ts';
import { freePort } from '../harness/ports.ts';
import { run } from '../harness/program.ts';
import { binary, innermost } from '../harness/server.ts';
import { within } from '../harness/wait.ts';

const START_MS = 30_000;
const COMMAND = resolve(import.meta.dirname, '../../packages/tidewire/bin/tidewire.js');
/** The options with which an operator allows open logins. */
const OPEN = ['TIDEWIRE_AUTH__OPEN_ON_PUBLIC_ADDRESS=true', 'TIDEWIRE_PERMISSIONS=allow_all', 'TIDEWIRE_DRAIN_DELAY=0s'];

const folder = containerFolder() ?? assert.fail('npm run container builds the image');
const image = imageSettings(folder);

/** The command line that runs `command` in the container with the image's variables and additional ones. */
function inside(command: string[], variables: string[]): [program: string, args: string[]] {
  const [program, ...args] = insideCommand(folder, command, variables.flatMap((variable) => ['--env', variable]));
  return [program as string, args];
}

function runInside(command: string[], variables: string[]): { status: number | null; said: string } {
  const { status, stdout, stderr } = spawnSync(...inside(command, variables), { encoding: 'utf8', timeout: START_MS });
  return { status, said: stdout + stderr };
}

/** Starts the image's own command and waits for its first screen. */
async function start(t: TestContext, variables: string[]): Promise<{ pid: number; ended: Promise<number | null> }> {
  const child = spawn(...inside(image.Entrypoint, variables), { stdio: ['ignore', 'pipe', 'pipe'] });
  const ended = new Promise<number | null>((done) => child.once('exit', done));
  const pid = (): number => innermost(child.pid as number);
  t.after(async () => {
    if (child.exitCode !== null) return;
    process.kill(pid(), 'SIGKILL');
    await ended;
  });
  let output = '';
  const ready = new Promise<void>((done) => {
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (text: Buffer) => {
        output += text.toString();
        if (/^ready on /m.test(output)) done();
      });
    }
  });
  const early = ended.then((code) => assert.fail(`it ended with ${code}:\n${output}`));
  await within(START_MS, Promise.race([ready, early]), 'the image starts');
  early.catch(() => {});
  return { pid: pid(), ended };
}

test('there is no shell, and no process is root', () => {
  for (const path of ['bin/sh', 'usr/bin/sh', 'bin/bash', 'usr/bin/bash']) assert.ok(!existsSync(join(containerRoot(folder), path)), path);
  assert.equal(image.User, `${USER}:${USER}`);
});

test('labels name the program, its version and its licence', () => {
  const label = (name: string): string | undefined => image.Labels[`org.opencontainers.image.${name}`];
  assert.deepEqual([label('title'), label('licenses')], ['Tidewire', 'MIT OR Apache-2.0']);
  assert.equal(label('documentation'), `${label('source')}/blob/main/docs/deployment.md`);
  assert.equal(`tidewire ${label('version')}\n`, run(binary(), ['--version']));
});

test('a server with open logins does not start, and reports two ways to fix this', async () => {
  const { status, said } = runInside(image.Entrypoint, [`TIDEWIRE_NETWORK__PORT=${await freePort()}`]);
  assert.equal(status, 2, said);
  assert.match(said, /network\.host \(TIDEWIRE_NETWORK__HOST\).*every login succeeds/);
  assert.match(said, /auth\.chain/);
  assert.match(said, /auth\.open_on_public_address/);
});

test('with the options that the command `tidewire` prints, it serves the demo to pages of this machine', async (t) => {
  const printed = readFileSync(COMMAND, 'utf8').match(/TIDEWIRE_[A-Z_]+=\w+/g) ?? [];
  assert.ok(printed.length >= 3, `${printed}`);
  const port = await freePort();
  const { pid, ended } = await start(t, [...printed, 'TIDEWIRE_DRAIN_DELAY=0s', `TIDEWIRE_NETWORK__PORT=${port}`]);
  const demo = await fetch(`http://localhost:${port}/`, { headers: { origin: 'http://localhost:5173' } });
  assert.equal(demo.status, 200);
  assert.match(await demo.text(), /<script type="module" src="main\.js"/);
  process.kill(pid, 'SIGTERM');
  assert.equal(await within(START_MS, ended, 'the server stops'), 0);
});

test('it serves a client that writes, passes its health check, and stops', async (t) => {
  const port = await freePort();
  const variables = [...OPEN, `TIDEWIRE_NETWORK__PORT=${port}`];
  const [kind, ...check] = image.Healthcheck.Test;
  assert.equal(kind, 'CMD', 'without a shell');
  const before = runInside(check, variables);
  assert.equal(before.status, 1, before.said);
  assert.match(before.said, new RegExp(`http://127\\.0\\.0\\.1:${port}/health: .*; see the log of the server, or start it`));

  const { pid, ended } = await start(t, variables);
  assert.match(readFileSync(`/proc/${pid}/status`, 'utf8'), new RegExp(`^Uid:\\t${USER}\\t${USER}\\t${USER}\\t${USER}$`, 'm'));
  const client = await connect(t, { address: `127.0.0.1:${port}` });
  const record = await client.record.getRecord(fresh('record')).whenReady();
  await record.setWithAck({ kept: true });
  assert.deepEqual(runInside(check, variables), { status: 0, said: '' });

  client.close();
  process.kill(pid, 'SIGTERM');
  assert.equal(await within(START_MS, ended, 'the server stops'), 0);
});
