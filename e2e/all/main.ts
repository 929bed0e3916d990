// `make test`: runs all suites. `SKIP=crash,bench` skips suites by name; `ONLY=clients` runs only the named suites.

import { resolve } from 'node:path';
import { report, runSuites } from './runner.ts';
import { SUITES } from './suites.ts';

const names = (variable: string): string[] =>
  (process.env[variable] ?? '').split(/[\s,]+/).filter((name) => name !== '');

process.chdir(resolve(import.meta.dirname, '../..'));
const outcomes = await runSuites(SUITES, names('SKIP'), names('ONLY'));
console.log(`\n${report(outcomes)}`);
process.exitCode = outcomes.some((outcome) => outcome.state === 'failed') ? 1 : 0;
