// The runner of `make test`: a suite that could not run has failed, and only suites named in `SKIP` or missing from `ONLY` are skipped.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { clock, report, runSuites, type Pace, type Suite } from './runner.ts';

const suite = (name: string, commands: string[][], rest: Partial<Suite> = {}): Suite => ({
  name,
  shows: name,
  commands,
  budgetSeconds: 30,
  ...rest,
});

/** Observes processors that are always as busy as given. */
const pace = (busy: number): Pace => ({ observeMs: 50, observe: () => () => busy, busyMax: 0.8 });

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

/** Suites of one group that write a file each and wait for the files of all, and then other suites. */
function meetingSuites(folder: string, names: string[], others: Suite[]): Suite[] {
  const wait = names.map((name) => `until [ -e ${name} ]; do sleep 0.01; done`).join('; ');
  const meets = (name: string): string[] => ['sh', '-c', `cd ${folder}; echo > ${name}; ${wait}`];
  return [...names.map((name) => suite(name, [meets(name)], { group: 'g' })), ...others];
}

test('two suites of one group run at the same time on busy processors, and the report keeps their order', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-runner-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const suites = meetingSuites(folder, ['one', 'two'], [
    suite('three', [['false']], { group: 'g', budgetSeconds: 40 }),
    suite('four', [['true']]),
  ]);
  const outcomes = await runSuites(suites, [], [], pace(1));
  assert.deepEqual(outcomes.map(({ name, state }) => `${name} ${state}`), ['one passed', 'two passed', 'three failed', 'four passed']);
  const skipped = await runSuites(suites, ['one', 'three'], [], pace(1));
  assert.deepEqual(skipped.map(({ state }) => state), ['skipped', 'passed', 'skipped', 'passed']);
});

test('more suites of a group start only while processor time is idle', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-runner-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const three = meetingSuites(folder, ['one', 'two', 'three'], []);
  const together = await runSuites(three, [], [], pace(0.5));
  assert.deepEqual(together.map(({ state }) => state), ['passed', 'passed', 'passed']);
  rmSync(join(folder, 'three'));
  // On busy processors the third one would start only after one of the two has ended, and they wait for it.
  const apart = await runSuites(three.map((one) => ({ ...one, budgetSeconds: 1 })), [], [], pace(0.9));
  assert.deepEqual(apart.map(({ state }) => state), ['failed', 'failed', 'passed']);
});

test('the suites with the largest budgets start first', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-runner-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const short = suite('short', [['sh', '-c', `cd ${folder} && [ -e long ] && [ -e longer ]`]], { group: 'g', budgetSeconds: 10 });
  const long = meetingSuites(folder, ['long', 'longer'], []);
  const outcomes = await runSuites([short, ...long], [], [], pace(0));
  assert.deepEqual(outcomes.map(({ name, state }) => `${name} ${state}`), ['short passed', 'long passed', 'longer passed']);
});

test('a run that takes longer than its budget has failed, and its line gives the reason', () => {
  assert.deepEqual(clock('check', 299.6, 300), { line: 'check: 300 s of 300 s', isWithin: true });
  const { line, isWithin } = clock('check', 301, 300);
  assert.equal(isWithin, false);
  assert.match(line, /^check: 301 s of 300 s; failed: over its budget/);
});
