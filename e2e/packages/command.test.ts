// The command `tidewire` as npm installs it: it passes arguments, signals and the exit code to the server's program and back, and on other
// platforms it names the ways to run a server.

import assert from 'node:assert/strict';
import { spawn, spawnSync, type SpawnSyncReturns } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { test, type TestContext } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import { run } from '../harness/program.ts';
import { binary, environment, innermost } from '../harness/server.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';
import { PROGRAM_PACKAGE, PUBLISHED } from '../packaging/npm.ts';
import { versionOf } from '../packaging/version.ts';
import { Project } from './project.ts';

const COMMAND = 'node_modules/tidewire/bin/tidewire.js';
const PACKAGES = resolve(import.meta.dirname, '../../packages');
const WAYS = /^ +a container +docker [^]*^ +WSL, on Windows [^]*^ +another machine .*new Client\('HOST:6020'\)$/m;

interface Started {
  /** Signals the command. */
  kill(signal: NodeJS.Signals): void;
  /** Signals all processes of the command's group, as a terminal does. */
  killGroup(signal: NodeJS.Signals): void;
  /** The id of the server's process. */
  serverPid(): number;
  output(): string;
  ended: Promise<number | string | null>;
}

/** Starts the installed command and waits until its server is ready. */
async function start(t: TestContext, project: Project, ...options: string[]): Promise<Started> {
  const args = [join(project.folder, COMMAND), '--port', '0', '--set', 'store.kind=memory', ...options];
  const child = spawn(process.execPath, args, { cwd: project.folder, env: environment(), detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
  const ended = new Promise<number | string | null>((done) => child.once('exit', (code, signal) => done(code ?? signal)));
  const serverPid = (): number => innermost(child.pid as number);
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (text: Buffer) => (output += text.toString()));
  atEnd(t, async () => {
    if (child.exitCode === null && child.signalCode === null) process.kill(serverPid(), 'SIGKILL');
    await ended;
  });
  await eventually(() => /^ready on /m.test(output), 'the server is ready');
  const killGroup = (signal: NodeJS.Signals): void => void process.kill(-(child.pid as number), signal);
  return { kill: (signal) => child.kill(signal), killGroup, serverPid, output: () => output, ended };
}

test('the installed command runs the program', async (t) => {
  const project = new Project(t, ['tidewire', PROGRAM_PACKAGE]);
  const installed = (...args: string[]): SpawnSyncReturns<string> => {
    return spawnSync('node_modules/.bin/tidewire', args, { cwd: project.folder, env: environment(), encoding: 'utf8' });
  };

  await t.test('with its arguments, and ends with its code', () => {
    assert.equal(installed('--version').stdout, run(binary(), ['--version']));
    const wrong = installed('config', 'check', '--set', 'limits.unknown=1');
    assert.equal(wrong.status, 2);
    assert.match(wrong.stderr, /limits\.unknown/);
  });

  await t.test('SIGHUP reloads the server, SIGTERM stops it', async (inner) => {
    const { kill, output, ended } = await start(inner, project);
    kill('SIGHUP');
    await eventually(() => /\breloaded\b/.test(output()), 'the server logs the reload');
    kill('SIGTERM');
    assert.equal(await within(DEADLINE_MS, ended, 'the command ends'), 0);
  });

  await t.test('Ctrl-C, which a terminal and npm both pass on, is one signal for the server', async (inner) => {
    // The delay keeps the server running, and a second signal would end it with code 5.
    const { kill, killGroup, ended } = await start(inner, project, '--drain-delay', '1s');
    killGroup('SIGINT');
    kill('SIGINT');
    assert.equal(await within(DEADLINE_MS, ended, 'the command ends'), 0);
  });

  await t.test('a killed server ends the command with the code of the signal', async (inner) => {
    const { serverPid, ended } = await start(inner, project);
    process.kill(serverPid(), 'SIGKILL');
    assert.equal(await within(DEADLINE_MS, ended, 'the command ends'), 137);
  });

  for (const [platform, arch] of [['darwin', 'arm64'], ['win32', 'x64'], ['linux', 'arm64']] as const) {
    await t.test(`on ${platform} ${arch} it starts nothing and names the ways`, () => {
      const other = `for (const [name, value] of Object.entries({ platform: '${platform}', arch: '${arch}' })) Object.defineProperty(process, name, { value })`;
      const args = ['--import', `data:text/javascript,${encodeURIComponent(other)}`, COMMAND];
      const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd: project.folder, env: environment(), encoding: 'utf8' });
      assert.deepEqual([status, stdout], [1, '']);
      const [sentence] = stderr.split('\n');
      assert.match(sentence as string, new RegExp(`^tidewire: the server's program is for Linux x64 .* this is ${platform} ${arch}; `));
      assert.match(stderr, WAYS);
    });
  }

  await t.test('without the optional dependency it names that and the ways', () => {
    rmSync(join(project.folder, 'node_modules', PROGRAM_PACKAGE), { recursive: true });
    const { status, stderr } = installed();
    assert.equal(status, 1);
    assert.match(stderr, new RegExp(`^tidewire: the optional dependency ${PROGRAM_PACKAGE} is missing`));
    assert.match(stderr, WAYS);
  });
});

test('all packages have the version of the server, and depend on each other in this version', () => {
  const version = versionOf(resolve(PACKAGES, '..'));
  const manifest = (folder: string): Record<string, any> => JSON.parse(readFileSync(join(PACKAGES, folder, 'package.json'), 'utf8'));
  const folders = Object.values(PUBLISHED);
  assert.deepEqual(folders.filter((folder) => manifest(folder)['version'] !== version), []);
  for (const folder of [...folders, 'create-tidewire/template']) {
    const { dependencies, devDependencies, optionalDependencies, peerDependencies } = manifest(folder);
    const all: [string, string][] = Object.entries({ ...devDependencies, ...dependencies, ...optionalDependencies, ...peerDependencies });
    const others = all.filter(([name, wanted]) => Object.hasOwn(PUBLISHED, name) && wanted.replace('^', '') !== version);
    assert.deepEqual(others, [], folder);
  }
});
