// The packages as npm installs them: on Node 20 and 22, in an app that Vite builds, and rendered on a server by each framework.

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { join, resolve } from 'node:path';
import { test, type TestContext } from 'node:test';
import { browserDuring, openPage } from '../browser/page.ts';
import { atEnd } from '../harness/cleanup.ts';
import { client } from '../harness/driver/tidewire.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';
import { CASES } from '../storages/cases.ts';
import { Project } from './project.ts';

/** Node 22, which has a built-in WebSocket, as a package without scripts. */
const NODE_22 = `node-${process.platform}-${process.arch}`;
const README = resolve(import.meta.dirname, '../../packages/react/README.md');

/** The app at the beginning of the README. */
function appOfReadme(): string {
  const found = /^```tsx\n([\s\S]*?)^```$/m.exec(readFileSync(README, 'utf8'))?.[1];
  return found ?? assert.fail('the README of the hooks begins with an app');
}

/** Serves the files of `folder`; returns the port. */
async function serve(test: TestContext, folder: string): Promise<number> {
  const server = createServer(({ url = '/' }, response) => {
    const file = join(folder, url === '/' ? 'index.html' : url);
    if (!existsSync(file)) return void response.writeHead(404).end();
    response.setHeader('content-type', file.endsWith('.js') ? 'text/javascript' : 'text/html');
    response.end(readFileSync(file));
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  atEnd(test, () => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

test('the client in a fresh project, on this Node with ws and on Node 22 without', async (t) => {
  const server = await Server.during(t);
  const project = new Project(t, ['@tidewire/client', 'ws@8.23.0', `${NODE_22}@22.23.3`]);
  const program = `
    const [address] = process.argv.slice(2)
    const client = new Client(address, options)
    client.connect().then(async () => {
      const record = client.record.open('fresh')
      await record.setWithAck({ node: process.versions.node.split('.')[0] })
      console.log(JSON.stringify(await client.record.get('fresh')))
      client.close()
    })`;
  const own = process.versions.node.split('.')[0];
  project.write('esm.mjs', `import { Client } from '@tidewire/client'\nimport { WebSocket } from 'ws'\nconst options = { webSocket: WebSocket }${program}`);
  project.write('cjs.cjs', `const { Client } = require('@tidewire/client')\nconst options = { webSocket: require('ws').WebSocket }${program}`);
  project.write('bare.mjs', `import { Client } from '@tidewire/client'\nconst options = {}${program}`);
  const node22 = join(project.folder, 'node_modules', NODE_22, 'bin/node');
  assert.equal(project.runs('esm.mjs', [server.address]), `{"node":"${own}"}\n`);
  assert.equal(project.runs('cjs.cjs', [server.address]), `{"node":"${own}"}\n`);
  assert.equal(project.runs('bare.mjs', [server.address], node22), '{"node":"22"}\n');
});

test('records that Node 22 stores with its own SQLite, by the suite of all storages', async (t) => {
  const project = new Project(t, ['@tidewire/client', `${NODE_22}@22.23.3`]);
  const { build } = createRequire(resolve(import.meta.dirname, '../../packages/client/package.json'))('esbuild') as { build(options: object): Promise<unknown> };
  await build({
    entryPoints: [resolve(import.meta.dirname, '../storages/cases.ts')],
    outfile: join(project.folder, 'cases.mjs'),
    bundle: true,
    format: 'esm',
    logLevel: 'warning',
  });
  project.write(
    'stores.mjs',
    `
    import { nodeSqlite, sqliteStorage } from '@tidewire/client/storage'
    import { DatabaseSync } from 'node:sqlite'
    import { CASES } from './cases.mjs'
    let count = 0
    const storage = sqliteStorage((name) => nodeSqlite(new DatabaseSync(name.replaceAll(/\\W/g, '-') + '.db')))
    for (const [title, run] of Object.entries(CASES)) {
      await run((name) => storage(name, { timeoutMs: 5_000, onLost() {} }), title)
      count += 1
    }
    console.log(count)`,
  );
  const node22 = join(project.folder, 'node_modules', NODE_22, 'bin/node');
  assert.equal(project.runs('stores.mjs', [], node22), `${Object.keys(CASES).length}\n`);
});

test('the app of the README, built by Vite, in two tabs', async (t) => {
  const server = await Server.during(t);
  const project = new Project(t, ['@tidewire/client', '@tidewire/react', 'react@19.3.1', 'react-dom@19.3.1', 'vite@8.3.8']);
  project.write('index.html', '<!doctype html><meta charset="utf-8"><title>app</title><body><script type="module" src="/main.tsx"></script>');
  project.write('tsconfig.json', '{ "compilerOptions": { "jsx": "react-jsx" } }');
  project.write('main.tsx', appOfReadme().replace('localhost:6020', server.address));
  project.runs('node_modules/vite/bin/vite.js', ['build']);
  const port = await serve(t, join(project.folder, 'dist'));
  const browser = await browserDuring(t);
  const [one, two] = await Promise.all([openPage(browser, 'localhost', port), openPage(browser, 'localhost', port)]);
  for (const page of [one, two]) await eventually(async () => (await page.getByRole('status').textContent()) === 'open', 'the tab is connected');
  await one.getByLabel('title').fill('milk');
  await eventually(async () => (await two.getByLabel('title').inputValue()) === 'milk', 'the other tab shows the title');
  await two.getByLabel('done').check();
  await eventually(() => one.getByLabel('done').isChecked(), 'the first tab shows that it is done');
  const other = client(t, server.address);
  await within(DEADLINE_MS, other.connect(), 'login');
  assert.deepEqual(await other.record.get('todos/1'), { title: 'milk', done: true });
});

test('the bindings of Vue, Svelte and Solid rendered on a server', (t) => {
  const frameworks = ['vue@3.5.45', 'svelte@5.57.3', 'solid-js@1.9.20'];
  const project = new Project(t, ['@tidewire/client', '@tidewire/vue', '@tidewire/svelte', '@tidewire/solid', ...frameworks]);
  project.write('vue.mjs', `
    import { Client } from '@tidewire/client'
    import { TidewireProvider, useRecord } from '@tidewire/vue'
    import { createSSRApp, defineComponent, h } from 'vue'
    import { renderToString } from 'vue/server-renderer'
    const Title = defineComponent(() => {
      const { value } = useRecord('todos/1', { path: 'title', initial: 'milk' })
      return () => h('p', value.value)
    })
    const client = new Client('localhost:6020')
    console.log(await renderToString(createSSRApp(() => h(TidewireProvider, { client }, () => h(Title)))))`);
  project.write('solid.mjs', `
    import { Client } from '@tidewire/client'
    import { TidewireProvider, useRecord } from '@tidewire/solid'
    import { createComponent } from 'solid-js'
    import { renderToString } from 'solid-js/web'
    const Title = () => useRecord('todos/1', { path: 'title', initial: 'milk' }).value
    const client = new Client('localhost:6020')
    console.log(renderToString(() => createComponent(TidewireProvider, { client, get children() { return createComponent(Title, {}) } })))`);
  project.write('svelte.mjs', `
    import { readFileSync, writeFileSync } from 'node:fs'
    import { compile } from 'svelte/compiler'
    import { render } from 'svelte/server'
    writeFileSync('Title.js', compile(readFileSync('Title.svelte', 'utf8'), { generate: 'server' }).js.code)
    writeFileSync('App.js', compile(readFileSync('App.svelte', 'utf8'), { generate: 'server' }).js.code.replace('.svelte', '.js'))
    const { default: App } = await import('./App.js')
    console.log(render(App).body)`);
  project.write('package.json', readFileSync(join(project.folder, 'package.json'), 'utf8').replace('{', '{ "type": "module",'));
  project.write('Title.svelte', `<script>
    import { useRecord } from '@tidewire/svelte'
    const title = useRecord('todos/1', { path: 'title', initial: 'milk' })
  </script>{$title.value}`);
  project.write('App.svelte', `<script>
    import { Client } from '@tidewire/client'
    import { provideTidewire } from '@tidewire/svelte'
    import Title from './Title.svelte'
    provideTidewire(new Client('localhost:6020'))
  </script><Title />`);
  for (const program of ['vue.mjs', 'solid.mjs', 'svelte.mjs']) assert.match(project.runs(program), /milk/, program);
});

test('the hooks rendered on a server, as ESM and as CommonJS, with React 18', (t) => {
  const project = new Project(t, ['@tidewire/client', '@tidewire/react', 'react@18.3.1', 'react-dom@18.3.1']);
  const program = `
    const Title = () => useRecord('todos/1', { path: 'title', initial: 'milk' }).value
    const page = createElement(TidewireProvider, { client: new Client('localhost:6020') }, createElement(Title))
    console.log(renderToString(page))`;
  const names = [['{ Client }', '@tidewire/client'], ['{ TidewireProvider, useRecord }', '@tidewire/react'], ['{ createElement }', 'react'], ['{ renderToString }', 'react-dom/server']];
  project.write('esm.mjs', names.map(([what, from]) => `import ${what} from '${from}'\n`).join('') + program);
  project.write('cjs.cjs', names.map(([what, from]) => `const ${what} = require('${from}')\n`).join('') + program);
  assert.equal(project.runs('esm.mjs'), 'milk\n');
  assert.equal(project.runs('cjs.cjs'), 'milk\n');
});
