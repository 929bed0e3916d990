// Runs all suites with Node's test runner, then checks the table of the methods and situations that they cover.
// `npm test -- events records` runs only these two suites; `npm test -- http` runs all suites with that word in their names. Neither
// checks the table.

import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { run } from 'node:test';
import { spec } from 'node:test/reporters';
import { coverageReport } from './harness/coverage-table.ts';
import { buildLauncher, ringLauncher } from './harness/ring.ts';
import { againstOriginal } from './harness/server.ts';
import { NODE_COUNT } from './harness/several-nodes.ts';

const SUITES = resolve(import.meta.dirname, 'suites');
/** Suites that load the machine. They run one at a time, after the others. */
const ALONE = ['bytes', 'drain', 'revocation', 'scale'];
/** A suite that takes longer than this hangs. On several nodes it starts a store, a broker and a cluster for each server. */
const SUITE_TIMEOUT_MS = NODE_COUNT === 1 ? 120_000 : 400_000;
const ALONE_TIMEOUT_MS = 400_000;
/** Number of suites that run at the same time. They mostly wait. */
const CONCURRENCY = 3;

const wanted = process.argv.slice(2);
if (ringLauncher().length > 0) buildLauncher();
const claims = mkdtempSync(join(tmpdir(), 'tidewire-e2e-claims-'));
process.env['E2E_CLAIMS'] = claims;

const files = readdirSync(SUITES).filter((file) => file.endsWith('.test.ts'));
/** A complete name selects that suite only; any other word selects all suites with the word in their names. */
const isMeant = (word: string, file: string): boolean => {
  const whole = `${word}.test.ts`;
  return files.includes(whole) ? file === whole : file.includes(word);
};
const suites = files.filter((file) => wanted.length === 0 || wanted.some((word) => isMeant(word, file)));
const isAlone = (file: string): boolean => ALONE.some((word) => file.startsWith(word));

if (suites.length === 0) throw new Error(`no suite has ${wanted.join(' or ')} in its name`);

const counts = { passed: 0, failed: 0, skipped: 0 };
await runSuites(suites.filter((file) => !isAlone(file)), CONCURRENCY, SUITE_TIMEOUT_MS);
await runSuites(suites.filter(isAlone), 1, ALONE_TIMEOUT_MS);

let holes: string[] = [];
// Against deepstream's own server, the tests of its defects are skipped, so the table would have holes.
if (wanted.length === 0 && !againstOriginal) {
  const report = coverageReport(claims);
  holes = report.holes;
  console.log(`\n${report.table}\n`);
  if (holes.length > 0) console.error(`holes in the table:\n  ${holes.join('\n  ')}`);
}
rmSync(claims, { recursive: true });
const { passed, failed, skipped } = counts;
console.log(`e2e: ${passed} passed, ${failed} failed, ${skipped} skipped, ${holes.length} holes in the table`);
process.exitCode = failed + holes.length > 0 ? 1 : 0;

async function runSuites(files: string[], concurrency: number, timeout: number): Promise<void> {
  if (files.length === 0) return;
  const results = run({ files: files.map((file) => join(SUITES, file)), concurrency, timeout });
  results.on('test:pass', ({ details, skip }) => {
    if (details.type === 'suite') return;
    if (skip === undefined) counts.passed += 1;
    else counts.skipped += 1;
  });
  // Suites count too: a suite can fail in a hook before or after its tests.
  results.on('test:fail', () => {
    counts.failed += 1;
  });
  const shown = results.compose(new spec());
  shown.pipe(process.stdout, { end: false });
  await new Promise((done) => shown.once('end', done));
}
