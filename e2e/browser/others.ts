// Runs the suites of the client and the demo in order in the other browsers; with `smoke`, a subset of them, in parallel.

import { spawn } from 'node:child_process';

const SUITES = ['client/browser.test.ts', 'client/offline.test.ts', 'client/tabs.test.ts', 'demo/demo.test.ts', 'demo/accessible.test.ts'];
const OTHERS = ['firefox', 'webkit'];

/** Runs the files in `browser` in order, and returns whether all of them have passed. */
async function run(browser: string, files: string[]): Promise<boolean> {
  const command = ['--import', 'tsx', '--test', '--test-concurrency=1', ...files];
  const child = spawn(process.execPath, command, { env: { ...process.env, E2E_BROWSER: browser }, stdio: ['ignore', 'pipe', 'inherit'] });
  let output = '';
  child.stdout.on('data', (text: Buffer) => (output += text.toString()));
  const code = await new Promise((done) => child.once('close', done));
  console.log(output);
  const count = (of: string): string => new RegExp(`^# ${of} (\\d+)$`, 'm').exec(output)?.[1] ?? 'unknown';
  console.log(`${browser}: ${count('pass')} passed, ${count('fail')} failed, ${count('skipped')} skipped`);
  return code === 0;
}

const outcomes: boolean[] = [];
if (process.argv[2] === 'smoke') outcomes.push(...(await Promise.all(OTHERS.map((browser) => run(browser, ['browser/smoke.ts'])))));
else for (const browser of OTHERS) outcomes.push(await run(browser, SUITES));
process.exitCode = outcomes.includes(false) ? 1 : 0;
