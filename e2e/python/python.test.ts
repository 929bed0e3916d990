// The package `tidewire` of PyPI on every supported Python of this machine: its own tests, the behaviour suite with its driver, its types,
// and the package as pip installs it.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { Server } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { within } from '../harness/wait.ts';
import { PACKAGE, interpreter, pythons, tools, type Python } from './pythons.ts';

const REPOSITORY = resolve(import.meta.dirname, '../..');
/** The suites with shared cases for the Python client. */
const SUITES = ['events', 'records', 'rpc', 'presence', 'loss'];
/** The names of the suites of one driver. */
const SHARED = /with tidewire for Python/;
/** The number of cases of a suite of one driver, in the format of the reporter `tap`. */
const SHARED_COUNT = /^ {4}1\.\.(\d+)\nok \d+ - .*with tidewire for Python$/gm;
/** At least this number of shared cases must run. */
const CASES_MIN = 47;
/** The tests mostly wait for their clients and servers, so more of them run at a time than the machine has cores. */
const CONCURRENCY = 4;
const PROGRAM_MS = 180_000;
const FOUND = pythons();

/** Prints the codes with which a server refuses a login, a write, a subscription, two calls and a message beyond its limit. */
const REFUSALS = `
import asyncio
import sys
from tidewire import connect, TidewireError

async def code(awaitable):
    try:
        await awaitable
    except TidewireError as error:
        return error.code

async def main():
    print(await code(connect(sys.argv[1], auth={"username": "ann", "password": "wrong"})))
    async with connect(sys.argv[1], auth={"username": "ann", "password": "right"}) as client:
        client.on_error(lambda error: print("not expected:", error))
        async with client.record("nowrite/a") as record:
            print(await code(record.set("title", "denied")), record.value)
        print(await code(client.event.subscribe("denied/a").ready))
        print(await code(client.rpc.call("denied/a")))
        print(await code(client.rpc.call("not/provided")))
        print(await code(client.record.write("large", {"text": "x" * 4_000})))
        print(client.state)

asyncio.run(main())
`;

/** Runs a program and resolves to its output. Fails if the program does. */
async function outputOf(t: TestContext, command: string, args: string[], cwd: string, env = process.env): Promise<string> {
  // A test runner inside a test would report to the outer one.
  const { NODE_TEST_CONTEXT: _, ...plain } = env;
  const child = spawn(command, args, { cwd, env: plain, stdio: ['ignore', 'pipe', 'pipe'] });
  t.after(() => child.kill('SIGKILL'));
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (bytes: Buffer) => (output += bytes.toString()));
  const code = await within(PROGRAM_MS, new Promise<number | null>((done) => child.once('close', done)), `${command} ${args.join(' ')} ends`);
  assert.equal(code, 0, output);
  return output;
}

/** Runs the behaviour suite with the driver of the Python client, and returns the number of its cases. */
async function behaviour(t: TestContext, python: Python): Promise<number> {
  const { command, env } = await interpreter(python);
  const files = SUITES.map((name) => `suites/${name}.test.ts`);
  const args = ['--import', 'tsx', '--test', '--test-reporter', 'tap', '--test-name-pattern', String(SHARED), ...files];
  const output = await outputOf(t, process.execPath, args, join(REPOSITORY, 'e2e'), { ...env, E2E_PYTHON: command });
  return [...output.matchAll(SHARED_COUNT)].reduce((sum, [, count]) => sum + Number(count), 0);
}

test('this machine has a supported Python', () => {
  assert.ok(FOUND.length > 0, 'install python3 and python3-venv, version 3.10 or later');
  console.log(`python: ${FOUND.map(({ version, program }) => `${version} (${program})`).join(', ')}`);
});

describe('the Python client', { concurrency: CONCURRENCY }, () => {
  for (const python of FOUND) {
    test(`passes the behaviour suite on Python ${python.version}`, async (t) => {
      const cases = await behaviour(t, python);
      console.log(`python: ${cases} cases of the behaviour suite on ${python.version}`);
      assert.ok(cases >= CASES_MIN, `${cases} cases`);
    });

    test(`passes its own tests on Python ${python.version}`, async (t) => {
      const { command, env } = await interpreter(python);
      await outputOf(t, command, ['-X', 'dev', '-W', 'error', '-m', 'unittest', 'discover', '-s', 'tests', '-t', 'tests'], PACKAGE, env);
    });
  }

  test('reports the refusals of a server', async (t) => {
    const users = { ann: { password: hashPassword('right') } };
    const server = await Server.during(t, { users, denials: true, limits: { message_bytes_max: 4_000 } });
    const { command, env } = await interpreter(FOUND.at(-1) as Python);
    const output = await outputOf(t, command, ['-X', 'dev', '-W', 'error', '-c', REFUSALS, server.address], PACKAGE, env);
    const denied = 'MESSAGE_DENIED';
    assert.deepEqual(output.trim().split('\n'), ['AUTH_REFUSED', `${denied} {}`, denied, denied, 'NO_RPC_PROVIDER', 'TOO_LARGE', 'open']);
  });

  test('passes mypy --strict, with its test programs, for the oldest version', async (t) => {
    await outputOf(t, join(await tools(), 'mypy'), ['--python-version', '3.10', '--no-incremental'], PACKAGE);
  });

  test('has types and licences, and connects, as pip installs it', async (t) => {
    const [python] = FOUND as [Python];
    const folder = mkdtempSync(join(tmpdir(), 'tidewire-python-'));
    t.after(() => rmSync(folder, { recursive: true, force: true }));
    // A build leaves files in the folder of its sources, which needs the licences two folders above.
    const sources = join(folder, 'packages/python');
    cpSync(PACKAGE, sources, { recursive: true });
    for (const name of ['LICENSE-MIT', 'LICENSE-APACHE']) cpSync(join(REPOSITORY, name), join(folder, name));
    const dist = join(folder, 'dist');
    await outputOf(t, join(await tools(), 'python'), ['-m', 'build', '--no-isolation', '--outdir', dist, sources], folder);
    const files = readdirSync(dist);
    const wheel = files.find((file) => file.endsWith('.whl'));
    assert.ok(wheel && files.some((file) => file.endsWith('.tar.gz')), files.join());
    const site = join(folder, 'site');
    const { command, env } = await interpreter(python);
    await outputOf(t, command, ['-m', 'pip', 'install', '--quiet', '--no-deps', '--target', site, join(dist, wheel)], folder);
    const names = readdirSync(site, { recursive: true }) as string[];
    for (const name of ['tidewire/py.typed', 'licenses/LICENSE-MIT', 'licenses/LICENSE-APACHE']) {
      assert.ok(names.some((one) => one.endsWith(name)), `${name} in ${names.join()}`);
    }
    const server = await Server.during(t);
    const program = [
      'import asyncio, tidewire',
      'async def main():',
      `    async with tidewire.connect("${server.address}") as client:`,
      '        await client.record.write("installed", {"by": "pip"})',
      '        print(await client.record.read("installed"), tidewire.__file__)',
      'asyncio.run(main())',
    ].join('\n');
    const output = await outputOf(t, command, ['-c', program], folder, { ...env, PYTHONPATH: site });
    assert.equal(output.trim(), `{'by': 'pip'} ${join(site, 'tidewire/__init__.py')}`);
  });
});
