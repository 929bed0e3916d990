// The first minute on a machine with Node only, from the packages of a release: `npx tidewire` and two tabs of the demo, `npm create tidewire`
// and two tabs of the new app.

import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { browserDuring } from '../browser/page.ts';
import { freePort } from '../harness/ports.ts';
import { run } from '../harness/program.ts';
import { binary } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';
import { PROGRAM_PACKAGE, packPublished } from '../packaging/npm.ts';
import { keepScreenshot, shellEnvironment, startCommand, twoTabs } from './first-minute.ts';

const NPX_DEADLINE_MS = 10_000;
const CREATE_DEADLINE_MS = 60_000;
/** It is long, so that a slow installation fails with its time. */
const INSTALL_DEADLINE_MS = 120_000;
const LONG_TITLE = 'a title with more than sixty characters, which the rules of the app refuse';

const root = mkdtempSync(join(tmpdir(), 'tidewire-newcomer-'));
after(() => rmSync(root, { recursive: true }));
const tarballs = Object.fromEntries(['tidewire', PROGRAM_PACKAGE, 'create-tidewire', '@tidewire/client', '@tidewire/react'].map((name) => [name, packPublished(name, root, binary())]));

test('from npx to two tabs that see each other within ten seconds', async (t) => {
  const folder = join(root, 'empty');
  mkdirSync(folder);
  const packages = ['tidewire', PROGRAM_PACKAGE].flatMap((name) => ['--package', tarballs[name] as string]);
  // The packages come from files. The cache is empty and npm makes no request, so everything that npm needs is in them.
  const options = { npm_config_cache: join(root, 'cache'), npm_config_offline: 'true' };
  const args = ['--yes', ...packages, 'tidewire', '--port', '0'];
  await twoTabs(t, { program: 'npx', args, folder, options }, NPX_DEADLINE_MS, 'npx');
});

test("from npm create to two tabs of the new app within a minute; the app's own checks pass", async (t) => {
  const folder = join(root, 'app');
  const env = shellEnvironment();
  const browser = await browserDuring(t);

  const began = performance.now();
  const seconds = (): string => ((performance.now() - began) / 1_000).toFixed(1);
  const create = ['--yes', '--package', tarballs['create-tidewire'] as string, 'create-tidewire', 'app', '--packages', root];
  run('npx', create, { cwd: root, env, timeoutMs: INSTALL_DEADLINE_MS });
  t.diagnostic(`${seconds()} s: the app is installed`);
  const [port, pagePort] = [await freePort(), await freePort()];
  const args = ['run', 'dev', '--', '--port', String(pagePort), '--strictPort'];
  const app = startCommand(t, { program: 'npm', args, folder, options: { TIDEWIRE_NETWORK__PORT: String(port), NO_COLOR: '1' } });
  const address = await app.prints(/Local: +(http:\S+)/, CREATE_DEADLINE_MS);
  const [one, other] = [await browser.newPage(), await browser.newPage()];
  for (const page of [one, other]) {
    await page.goto(address);
    await page.getByRole('status').filter({ hasText: /^open$/ }).waitFor();
  }
  await one.getByLabel('Title').fill('groceries');
  await eventually(async () => (await other.getByLabel('Title').inputValue()) === 'groceries', 'the second tab sees the title');
  await other.getByLabel('New item').fill('milk');
  await other.getByRole('button', { name: 'Add' }).click();
  await one.getByLabel('milk').check();
  await eventually(() => other.getByLabel('milk').isChecked(), 'the second tab sees the check mark');
  const took = performance.now() - began;
  t.diagnostic(`${seconds()} s: both tabs have both edits`);

  await one.getByLabel('Title').fill(LONG_TITLE);
  await one.getByRole('alert').filter({ hasText: 'MESSAGE_DENIED' }).waitFor();
  await eventually(async () => (await one.getByLabel('Title').inputValue()) === 'groceries', 'the refused title is undone');
  await keepScreenshot(t, one, 'create-first-tab');
  await keepScreenshot(t, other, 'create-second-tab');
  for (const check of ['test', 'build']) run('npm', ['run', check], { cwd: folder, env, timeoutMs: CREATE_DEADLINE_MS });
  assert.ok(took < CREATE_DEADLINE_MS, `it took ${took} ms`);
});
