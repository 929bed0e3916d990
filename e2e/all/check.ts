// `make check`: formatters, linters and unit tests within five minutes, short enough to run before each commit. It fails if it takes
// longer than its budget: either the build was cold, or the check has become too slow and a part of it must be removed.

import { resolve } from 'node:path';
import { clock, report, runSuites, type Suite } from './runner.ts';
import { SUITES } from './suites.ts';

const BUDGET_SECONDS = 300;

const UNIT: Suite = {
  name: 'unit',
  shows: 'the unit tests of all crates',
  commands: [['cargo', 'test', '--locked', '--workspace', '--all-features', '--lib', '--bins']],
  budgetSeconds: 900,
};

process.chdir(resolve(import.meta.dirname, '../..'));
const start = performance.now();
const ofSources = SUITES.filter(({ name }) => ['tidy', 'lint', 'types'].includes(name));
const outcomes = await runSuites([...ofSources, UNIT], [], []);
const { line, isWithin } = clock('check', (performance.now() - start) / 1000, BUDGET_SECONDS);
console.log(`\n${report(outcomes)}\n${line}`);
process.exitCode = outcomes.every((outcome) => outcome.state === 'passed') && isWithin ? 0 : 1;
