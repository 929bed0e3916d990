// The hooks on a server, in React 18 and 19: pages are rendered without a connection, and hydrated in the browser.

import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { fresh } from '../harness/names.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, within } from '../harness/wait.ts';
import { ShownNode, VERSIONS, stage, type Node } from './react-stage.ts';
import { clientOfPage, other } from './stage.ts';

for (const [version, modules] of Object.entries(VERSIONS)) {
  const on = await stage(modules);
  describe(version, { timeout: 60_000 }, () => {
    const { createElement: h, Suspense } = on.React;
    const { useList } = on.lists;
    const { TidewireProvider, useConnection, useEvent, usePresence, useProvide, useRecord, useRpc } = on.hooks;
    const name = fresh('todo');

    const All = (): Node => {
      const { value } = useRecord(name, { path: 'title', initial: 'from the server' });
      useEvent(fresh('event'), () => {});
      useProvide(fresh('rpc'), () => 1);
      const { isRunning } = useRpc('add');
      return [value, usePresence('bob').value, usePresence().isReady, isRunning, useConnection().state].map(String).join(' ');
    };
    const Suspended = ({ initial }: { initial?: unknown }): Node => {
      return JSON.stringify(useRecord(name, { suspense: true, ...(initial !== undefined && { initial }) }).value);
    };

    /** The complete output of a streamed page, and the errors that the stream reported. */
    async function streamed(node: Node): Promise<{ html: string; errors: string[] }> {
      const errors: string[] = [];
      const out = new PassThrough();
      const { pipe } = on.server.renderToPipeableStream(node, {
        onError: (error) => void errors.push((error as Error).message),
        onAllReady: () => pipe(out),
      });
      return { html: await within(DEADLINE_MS, text(out), 'the stream ends'), errors };
    }

    test('all hooks render without a connection', async (t) => {
      const { client, sent } = clientOfPage(t, 'localhost:1');
      const page = h(TidewireProvider, { client }, h(All));
      const html = 'from the server undefined false false closed';
      assert.equal(on.server.renderToString(page), html);
      assert.deepEqual(await streamed(page), { html, errors: [] });
      assert.deepEqual([client.state, sent.messages, client.event.names], ['closed', [], []]);
    });

    test('a suspended component is left to the browser, unless it has an initial value', async (t) => {
      const { client, sent } = clientOfPage(t, 'localhost:1');
      const page = (initial?: unknown): Node => h(TidewireProvider, { client }, h(Suspense, { fallback: 'wait' }, h(Suspended, { initial })));
      assert.match(on.server.renderToString(page()), /wait/);
      const { html, errors } = await streamed(page());
      assert.match(html, /wait/);
      assert.deepEqual(errors, [`"${name}" is not there on a server: give the option initial, or leave the component to the browser`]);
      assert.match((await streamed(page({ title: 'given' }))).html, /given/);
      assert.deepEqual([client.state, sent.messages], ['closed', []]);
    });

    test('server output is hydrated without a mismatch', async (t) => {
      const server = await Server.during(t);
      const bob = await other<{ records: { [name: string]: { title: string } } }>(t, server.address);
      await bob.record.set(name, { title: 'milk' });
      const page = (client: unknown): Node => h(TidewireProvider, { client: client as never }, h(All));
      const html = on.server.renderToString(page(clientOfPage(t, 'localhost:1').client));
      const errors: unknown[] = [];
      const shown = new ShownNode(t, on, page(clientOfPage(t, server.address).client), html, errors);
      assert.equal(shown.text, 'from the server undefined false false closed');
      await shown.reads('milk false true false open');
      assert.deepEqual(errors, []);
    });

    test('a component that the server has left to the browser receives its value there', async (t) => {
      const server = await Server.during(t);
      const bob = await other<{ records: { [name: string]: { title: string } } }>(t, server.address);
      await bob.record.set(name, { title: 'milk' });
      const page = (client: unknown): Node => h(TidewireProvider, { client: client as never }, h(Suspense, { fallback: 'wait' }, h(Suspended)));
      const html = on.server.renderToString(page(clientOfPage(t, 'localhost:1').client));
      const shown = new ShownNode(t, on, page(clientOfPage(t, server.address).client), html, []);
      await shown.reads('{"title":"milk"}');
    });

    test('on a server a list renders its initial entries, and the browser hydrates the result', async (t) => {
      const server = await Server.during(t);
      const bob = await other(t, server.address);
      const name = fresh('list');
      await bob.record.set(name, ['milk', 'bread']);
      const List = ({ suspense }: { suspense: boolean }): Node => useList(name, { suspense, initial: ['milk'] }).value?.join();
      const Bare = (): Node => useList(name, { suspense: true }).value.join();
      const tree = (client: ReturnType<typeof clientOfPage>['client']): Node => {
        const lists = [h(List, { key: 1, suspense: false }), ' ', h(List, { key: 2, suspense: true }), ' '];
        return h(TidewireProvider, { client, keepMs: 5_000 }, lists, h(Suspense, { fallback: 'wait' }, h(Bare)));
      };
      const onServer = clientOfPage(t, 'localhost:1');
      const html = on.server.renderToString(tree(onServer.client));
      assert.deepEqual([onServer.client.state, onServer.sent.messages], ['closed', []]);
      const { client } = clientOfPage(t, server.address);
      const shown = new ShownNode(t, on, tree(client), html, []);
      assert.match(shown.text, /^milk milk wait$/);
      await shown.reads('milk,bread milk,bread milk,bread');
    });
  });
}
