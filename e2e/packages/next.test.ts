// The app of the guide for Next.js (`docs/react.md`), installed from npm, started, and used in a browser: the server's HTML has the record, the
// browser continues from it without a mismatch, and edits go both ways. Next.js runs its development server, or with NEXT_BUILD, as in
// `make proof-next`, it builds the app, which also checks its types.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { browserDuring } from '../browser/page.ts';
import { NEXT_GUIDE, blocksOf } from '../documents/block.ts';
import { atEnd } from '../harness/cleanup.ts';
import { client } from '../harness/driver/tidewire.ts';
import { freePort } from '../harness/ports.ts';
import { run } from '../harness/program.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';
import { Project } from './project.ts';

const MODULES = ['next@16.4.6', 'react@19.3.1', 'react-dom@19.3.1', 'ws@8.23.0', 'typescript@5.9.3', '@types/node@20.19.43', '@types/react@19.3.0', '@types/ws@8.18.2'];
const BUILD_DEADLINE_MS = 300_000;
/** Time for the first page, which the development server compiles. */
const PAGE_DEADLINE_MS = 120_000;
const IS_BUILT = process.env['NEXT_BUILD'] !== undefined;

test(`the app of the guide for Next.js, ${IS_BUILT ? 'built' : 'in development'}`, { timeout: 600_000 }, async (t) => {
  const files = blocksOf(NEXT_GUIDE).filter(({ word }) => word !== '');
  assert.ok(files.length >= 6);
  const port = await freePort();
  const origin = `http://localhost:${port}`;
  const server = await Server.during(t, { origins: [origin] });
  const project = new Project(t, ['@tidewire/client', '@tidewire/react', ...MODULES]);
  for (const { word, text } of files) project.write(word, text);
  const env = { ...process.env, TIDEWIRE: server.address, NEXT_PUBLIC_TIDEWIRE: server.address, NEXT_TELEMETRY_DISABLED: '1' };
  const next = 'node_modules/next/dist/bin/next';
  if (IS_BUILT) run(process.execPath, [next, 'build'], { cwd: project.folder, env, timeoutMs: BUILD_DEADLINE_MS });
  const started = spawn(process.execPath, [next, IS_BUILT ? 'start' : 'dev', '--port', String(port)], { cwd: project.folder, env, stdio: 'ignore' });
  const ended = once(started, 'exit');
  atEnd(t, async () => {
    started.kill('SIGTERM');
    await ended;
  });

  const writer = client<{ records: { [name: `todos/${string}`]: { title?: string; done?: boolean } } }>(t, server.address);
  await within(DEADLINE_MS, writer.connect(), 'login');
  await writer.record.set('todos/1', { title: 'milk' });
  const html = async (): Promise<string> => fetch(`${origin}/todos/1`).then((answer) => answer.text(), () => '');
  await eventually(async () => (await html()).includes('<h1>milk</h1>'), 'the HTML of the server has the record', PAGE_DEADLINE_MS);

  const browser = await browserDuring(t);
  const page = await browser.newPage();
  const problems: string[] = [];
  page.on('console', (message) => message.type() === 'error' && !message.text().includes('favicon') && problems.push(message.text()));
  page.on('pageerror', (error) => problems.push(String(error)));
  await page.goto(`${origin}/todos/1`);
  const title = page.getByRole('heading');
  assert.equal(await title.textContent(), 'milk');
  const done = page.getByLabel('done');
  await eventually(() => done.isEnabled(), 'the page is connected');
  const record = writer.record.open('todos/1');
  await record.setWithAck('title', 'bread');
  await eventually(async () => (await title.textContent()) === 'bread', 'the page shows the change');
  await done.check();
  await eventually(() => record.value?.done === true, 'the edit of the page arrives');
  assert.deepEqual(problems.filter((text) => !text.includes('404')), []);
});
