// `make proof-faults`: the copy of the tree that has all planted faults is built once. Without a fault its tests pass; with each fault the
// test that the list names fails.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { before, describe, test, type TestContext } from 'node:test';
import { Database } from '../harness/database.ts';
import { run } from '../harness/program.ts';
import { FAULTS, type Fault, type Program } from './list.ts';
import { makeTree, patches, REPOSITORY } from './tree.ts';

/** The exit code of a Rust test program whose tests failed. */
const TESTS_FAILED = 101;

interface Artifact {
  reason: string;
  package_id?: string;
  executable?: string | null;
  target?: { name: string; kind: string[] };
}

let folder = '';
const executables = new Map<string, string>();

const key = ({ package: name, target }: Program): string => `${name} ${target}`;

function build(): void {
  folder = makeTree('faults', patches());
  const targets = [...new Set(FAULTS.map(({ foundBy }) => foundBy.target))].flatMap((target) => (target === 'lib' ? ['--lib'] : ['--test', target]));
  const args = ['test', '--locked', '--workspace', '--all-features', '--no-run', '--message-format=json', ...targets];
  const output = run('cargo', args, { cwd: folder, env: { ...process.env, CARGO_TARGET_DIR: join(REPOSITORY, 'target') } });
  for (const line of output.split('\n').filter((line) => line.startsWith('{'))) {
    const { reason, package_id: id, executable, target } = JSON.parse(line) as Artifact;
    if (reason !== 'compiler-artifact' || !executable || !target || !id) continue;
    const name = /\/crates\/([^#/]+)#/.exec(id)?.[1];
    if (name !== undefined) executables.set(`${name} ${target.kind.includes('lib') ? 'lib' : target.name}`, executable);
  }
}

interface Outcome {
  code: number | string;
  output: string;
}

async function runTests(t: TestContext, fault: Pick<Fault, 'foundBy' | 'needs'>, name: string | undefined): Promise<Outcome> {
  const { foundBy, needs } = fault;
  const executable = executables.get(key(foundBy));
  assert.ok(executable, `${key(foundBy)} is built`);
  const env: NodeJS.ProcessEnv = { ...process.env, ...(name !== undefined && { PLANTED_FAULT: name }) };
  if (needs === 'mongodb') env['TIDEWIRE_TEST_MONGODB'] ??= (await Database.during(t, 'mongodb')).url;
  const tests = spawn(executable, [foundBy.test, '--exact', '--include-ignored'], { cwd: join(folder, 'crates', foundBy.package), env });
  let output = '';
  for (const stream of [tests.stdout, tests.stderr]) stream.on('data', (text: Buffer) => (output += text.toString()));
  const code = await new Promise<number | string>((done) => tests.once('close', (code, signal) => done(code ?? signal ?? 'unknown')));
  return { code, output };
}

describe('planted faults', () => {
  before(build);

  for (const foundBy of new Set(FAULTS.map(({ foundBy }) => foundBy))) {
    test(`without a fault, ${key(foundBy)} ${foundBy.test} passes`, async (t) => {
      const needs = FAULTS.find((fault) => fault.foundBy === foundBy)?.needs;
      const { code, output } = await runTests(t, { foundBy, needs }, undefined);
      assert.equal(code, 0, output);
      assert.match(output, /test result: ok\. 1 passed/, output);
    });
  }

  for (const fault of FAULTS) {
    test(`${fault.name} is found by ${key(fault.foundBy)}`, async (t) => {
      const { code, output } = await runTests(t, fault, fault.name);
      assert.equal(code, TESTS_FAILED, output);
      assert.match(output, /test result: FAILED\. 0 passed; 1 failed/, output);
      console.log(`${fault.name}: found by ${fault.foundBy.package}, ${fault.foundBy.test}`);
    });
  }
});
