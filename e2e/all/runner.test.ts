// The runner of `make test`: a suite that could not run has failed, and only suites named in `SKIP` or missing from `ONLY` are skipped.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { clock, report, runSuites, type Suite } from './runner.ts';

const suite = (name: string, commands: string[][], rest: Partial<Suite> = {}): Suite => ({
  name,
  shows: name,
  commands,
  budgetSeconds: 30,
  ...rest,
});

test('a suite passes if all its commands pass, and fails at the first command that fails', async () => {
  const [good, bad] = await runSuites([suite('good', [['true'], ['true']]), suite('bad', [['true'], ['false']])], [], []);
  assert.equal(good?.state, 'passed');
  assert.equal(bad?.state, 'failed');
  assert.equal(bad?.reason, 'false: ended with 1');
});

test('the report repeats what failed in a suite, once each, with the names of the tests', async () => {
  const tap = ['ok 1 - good', '    not ok 2 - a list scrolls', "      error: 'did not happen'", '    not ok 2 - a list scrolls', '# pass 1'];
  const cargo = ['test a::good ... ok', 'test a::bad ... FAILED', 'error: test failed, to rerun pass --lib'];
  const print = (lines: string[]): string[] => ['sh', '-c', `${lines.map((line) => `echo "${line}"`).join('; ')}; exit 3`];
  for (const group of [{}, { group: 'g' }]) {
    const other = suite('other', [['true']], group);
    const outcomes = await runSuites([suite('node', [print(tap)], group), other, suite('rust', [print(cargo)], group)], [], []);
    const lines = report(outcomes).split('\n').map((line) => line.trim());
    assert.match(lines[0] ?? '', /^failed +node/);
    assert.deepEqual(lines.slice(1, 3), ['not ok 2 - a list scrolls', "error: 'did not happen'"]);
    assert.match(lines[3] ?? '', /^passed +other/);
    assert.deepEqual(lines.slice(5, 7), ['test a::bad ... FAILED', 'error: test failed, to rerun pass --lib']);
  }
});

test('a program that outlives its command does not hold up the suite', async () => {
  const [outcome] = await runSuites([suite('quick', [['sh', '-c', 'sleep 20 & echo done']])], [], []);
  assert.equal(outcome?.state, 'passed');
  assert.ok((outcome?.seconds ?? 99) < 10, `${outcome?.seconds} s`);
});

test('a missing program that cannot be installed fails the suite with the install command', async () => {
  const needs = [{ program: 'no-such-program', install: ['false', 'no-such-program'] }];
  const [outcome] = await runSuites([suite('needy', [['true']], { needs })], [], []);
  assert.equal(outcome?.state, 'failed');
  assert.equal(outcome?.reason, 'no-such-program is missing: false no-such-program');
});

test('a suite that exceeds its budget is killed and has failed', async () => {
  const [outcome] = await runSuites([suite('slow', [['sleep', '30']], { budgetSeconds: 0.2 })], [], []);
  assert.equal(outcome?.state, 'failed');
  assert.match(outcome?.reason ?? '', /over its budget/);
});

test('suites are skipped only by name, and the last line of the report counts them', async () => {
  const outcomes = await runSuites([suite('a', [['true']]), suite('b', [['false']])], ['b'], []);
  assert.match(report(outcomes), /^suites: 1 passed, 0 failed, 1 skipped$/m);
  await assert.rejects(runSuites([suite('a', [])], ['c'], []), /no suite is named c; there are: a/);
});

test('suites of one group run at the same time, and the report keeps their order', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-runner-'));
  // Each script waits for the file that the other script writes.
  const meets = (own: string, other: string): string[] => {
    const script = `echo > ${own}; until [ -e ${other} ]; do sleep 0.01; done`;
    return ['sh', '-c', `cd ${folder}; ${script}`];
  };
  const suites = [
    suite('one', [meets('a', 'b')], { group: 'g' }),
    suite('two', [['false']], { group: 'g' }),
    suite('three', [meets('b', 'a')], { group: 'g' }),
    suite('four', [['true']]),
  ];
  const outcomes = await runSuites(suites, [], []);
  rmSync(folder, { recursive: true });
  assert.deepEqual(outcomes.map(({ name, state }) => `${name} ${state}`), ['one passed', 'two failed', 'three passed', 'four passed']);
  const skipped = await runSuites(suites, ['one', 'three'], []);
  assert.deepEqual(skipped.map(({ state }) => state), ['skipped', 'failed', 'skipped', 'passed']);
});

test('a run that takes longer than its budget has failed, and its line gives the reason', () => {
  assert.deepEqual(clock('check', 299.6, 300), { line: 'check: 300 s of 300 s', isWithin: true });
  const { line, isWithin } = clock('check', 301, 300);
  assert.equal(isWithin, false);
  assert.match(line, /^check: 301 s of 300 s; failed: over its budget/);
});
