// A page without a build: it loads the client from the server. The page is the first one of docs/five-minutes.md.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { resolve } from 'node:path';
import { test } from 'node:test';
import { browserDuring, openPage, serveHtml } from '../browser/page.ts';
import { blocksOf } from '../documents/block.ts';
import { Server } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';
import { keepScreenshot } from '../newcomer/first-minute.ts';
import { Project } from './project.ts';

const TSC = resolve(import.meta.dirname, '../node_modules/typescript/bin/tsc');

test('a page without a build, in two tabs', async (t) => {
  const server = await Server.during(t);
  const page = blocksOf('docs/five-minutes.md').find(({ language }) => language === 'html') ?? assert.fail('the document has a page');
  // The page has another origin than the server.
  const port = await serveHtml(t, page.text.replaceAll('localhost:6020', server.address));
  const browser = await browserDuring(t);
  const [one, two] = [await openPage(browser, 'localhost', port), await openPage(browser, 'localhost', port)];
  for (const tab of [one, two]) await tab.getByRole('status').filter({ hasText: /^open$/ }).waitFor();
  await one.getByLabel('Title').fill('milk');
  await eventually(async () => (await two.getByLabel('Title').inputValue()) === 'milk', 'the other tab shows the title');
  await two.getByLabel('Title').fill('bread');
  await eventually(async () => (await one.getByLabel('Title').inputValue()) === 'bread', 'the first tab shows the change');
  await keepScreenshot(t, two, 'page-without-a-build');
});

test('the types of the served client check a program', async (t) => {
  const server = await Server.during(t);
  const project = new Project(t, []);
  project.write('tidewire.d.ts', await (await server.get('/tidewire.d.ts')).text());
  project.write('tidewire.js', await (await server.get('/tidewire.js')).text());
  const program = (path: string): string => `
    import { Client, presenceOf, type State, TidewireError } from './tidewire.js'
    interface App { records: { [name: \`todos/\${string}\`]: { title: string } } }
    const client = new Client<App>('localhost:6020')
    client.onState((state: State) => state === 'open')
    client.record.open('todos/1').set('${path}', 'milk')
    presenceOf(client).subscribeAll((users: ReadonlySet<string>) => users.has('alice'))
    export const isKnown = (error: unknown) => error instanceof TidewireError && error.code`;
  project.write('right.ts', program('title'));
  project.write('wrong.ts', program('titel'));
  const check = (file: string): { status: number | null; stdout: string } => {
    const options = ['--noEmit', '--strict', '--target', 'es2022', '--module', 'nodenext', '--lib', 'es2022,dom', '--skipLibCheck', 'false'];
    return spawnSync(process.execPath, [TSC, ...options, file], { cwd: project.folder, encoding: 'utf8' });
  };
  assert.deepEqual(check('right.ts').stdout, '');
  assert.match(check('wrong.ts').stdout, /^wrong\.ts\(6,[^]*titel/);
  project.write('package.json', '{ "type": "module" }');
  project.write('run.js', "import { Client, RpcError, TidewireError } from './tidewire.js'\nconsole.log(new Client('server:1').state, typeof RpcError, typeof TidewireError)");
  assert.equal(project.runs('run.js'), 'closed function function\n');
});
