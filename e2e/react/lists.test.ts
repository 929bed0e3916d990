// `useList` in React 18 and 19 against the real server: the output of components, and the messages that reach the server.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { RecordAction, Topic } from '../../packages/client/src/protocol.ts';
import { fresh } from '../harness/names.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';
import { Shown, VERSIONS, boundaryOf, clientOfPage, other, page as pageOn, stage, type Node, type PageOptions } from './stage.ts';

type Name = `list/${string}`;
interface App {
  records: { [name: Name]: string[] };
}
/** The functions of the hook that change a list. */
interface Edits {
  add(entry: string, index?: number): Promise<void>;
  remove(entry: string, index?: number): Promise<void>;
  set(entries: readonly string[]): Promise<void>;
}

const listName = (): Name => fresh('list') as Name;
const PERMISSIONS = `
presence: { '*': { allow: true } }
rpc: { '*': { provide: true, request: true } }
event: { '*': { publish: true, subscribe: true, listen: true } }
record:
  '*': { create: true, read: true, write: true, delete: true, listen: true, notify: true }
  'list/kept': { create: true, read: true, write: "false", delete: true, listen: true, notify: true }
  'list/secret': { create: true, read: "false", write: true, delete: true, listen: true, notify: true }
`;

for (const [version, modules] of Object.entries(VERSIONS)) {
  describe(version, { concurrency: true, timeout: 60_000 }, () => {
    const on = stage(modules);
    const { createElement: h, Suspense } = on.React;
    const { TidewireProvider, useRecord } = on.hooks.hooks<App>();
    const { useList } = on.lists.listHooks<App>();
    const page = (t: TestContext, server: Server, node: Node, options?: PageOptions) => pageOn<App>(t, on, server.address, node, options);
    const made = (edit: Promise<void> | undefined): Promise<void> => within(DEADLINE_MS, edit ?? Promise.reject(new Error('nothing was rendered')), 'edit');

    /** A component that shows a list, and the functions of its last render. */
    function lister(): { List: (props: { name: Name | undefined }) => Node; edits: () => Edits | undefined } {
      let edits: Edits | undefined;
      const List = ({ name }: { name: Name | undefined }): Node => {
        const { value, isReady, error, ...rest } = useList(name);
        edits = rest;
        return [isReady, value?.join() ?? 'nothing', error?.code ?? 'fine'].join(' ');
      };
      return { List, edits: () => edits };
    }

    test('a list is shown, changed and followed', async (t) => {
      const server = await Server.during(t);
      const bob = await other<App>(t, server.address);
      const name = listName();
      await bob.record.set(name, ['milk']);
      const { List, edits } = lister();
      const { shown } = page(t, server, h(List, { name }));
      await shown.reads('true milk fine');
      await made(edits()?.add('bread'));
      await made(edits()?.add('eggs', 0));
      await shown.reads('true eggs,milk,bread fine');
      await made(edits()?.remove('milk'));
      assert.deepEqual(await bob.record.get(name), ['eggs', 'bread']);
      await bob.record.set(name, ['salt']);
      await shown.reads('true salt fine');
      await made(edits()?.set(['tea', 'tea']));
      await made(edits()?.remove('tea', 1));
      await shown.reads('true tea fine');
    });

    test('a new list has no entries, and neither has a record that is not a list', async (t) => {
      const server = await Server.during(t);
      const bob = await other(t, server.address);
      const [list, record] = [listName(), listName()];
      await bob.record.set(record, { title: 'milk' });
      const { List } = lister();
      const { shown, draw } = page(t, server, h(List, { name: list }));
      await shown.reads('true  fine');
      draw(h(List, { name: record }));
      await shown.reads('true  fine');
      await bob.record.set(record, ['now']);
      await shown.reads('true now fine');
      draw(h(List, { name: undefined }));
      await shown.reads('false nothing fine');
    });

    test('concurrent additions of two clients are in both lists', async (t) => {
      const server = await Server.during(t);
      const name = listName();
      const [one, two] = [lister(), lister()];
      const pages = [page(t, server, h(one.List, { name })), page(t, server, h(two.List, { name }))];
      for (const { shown } of pages) await shown.reads('true  fine');
      await Promise.all([made(one.edits()?.add('milk')), made(two.edits()?.add('bread'))]);
      const reader = await other<App>(t, server.address);
      const all = await reader.record.get(name);
      assert.deepEqual([...(all ?? [])].sort(), ['bread', 'milk']);
      for (const { shown } of pages) await shown.reads(`true ${all?.join()} fine`);
    });

    test('a double mount creates one subscription, which components of the record share, and none remains after the unmount', async (t) => {
      const server = await Server.during(t);
      const name = listName();
      let mounts = 0;
      const { List, edits } = lister();
      const Both = (): Node => {
        on.React.useEffect(() => void (mounts += 1), []);
        return [h(List, { key: 1, name }), h(List, { key: 2, name }), String(useRecord(name).isReady)];
      };
      const { sent, shown, draw } = page(t, server, h(Both));
      await shown.reads('true  finetrue  finetrue');
      assert.equal(mounts, 2, `StrictMode mounts ${mounts} times`);
      await made(edits()?.add('milk'));
      await shown.reads('true milk finetrue milk finetrue');
      const asked = (): number[] => sent.about(Topic.Record, name).filter((action) => action !== RecordAction.Update);
      assert.deepEqual(asked(), [RecordAction.SubscribeCreateAndRead]);
      draw(null);
      await eventually(() => asked().length === 2, 'the list is released');
      assert.deepEqual(asked(), [RecordAction.SubscribeCreateAndRead, RecordAction.Unsubscribe]);
    });

    test('a suspended component appears with its entries, and sends one request', async (t) => {
      const server = await Server.during(t);
      const bob = await other<App>(t, server.address);
      const name = listName();
      await bob.record.set(name, ['milk']);
      const drawn: string[] = [];
      const List = (): Node => {
        const { value } = useList(name, { suspense: true });
        drawn.push(value.join());
        return value.join();
      };
      const { shown, sent } = page(t, server, h(Suspense, { fallback: 'wait' }, h(List)), { keepMs: 5_000 });
      await shown.reads('wait');
      await shown.reads('milk');
      assert.ok(drawn.every((entries) => entries === 'milk'));
      assert.deepEqual(sent.about(Topic.Record, name), [RecordAction.SubscribeCreateAndRead]);
    });

    test('a change that is refused is shown, taken back and rejected', async (t) => {
      const server = await Server.during(t, { permissions: PERMISSIONS });
      const seen: string[] = [];
      let edits: Edits | undefined;
      const List = (): Node => {
        const { value, isReady, ...rest } = useList('list/kept');
        edits = rest;
        seen.push(value?.join() ?? 'nothing');
        return String(isReady);
      };
      const { shown } = page(t, server, h(List));
      await shown.reads('true');
      await assert.rejects(made(edits?.add('mine')), { code: 'MESSAGE_DENIED' });
      await eventually(() => seen.at(-1) === '', 'the change is taken back');
      assert.ok(seen.includes('mine'), seen.join('; '));
    });

    test('a refused list is an error, which a suspended component throws', async (t) => {
      const server = await Server.during(t, { permissions: PERMISSIONS });
      const { List } = lister();
      const plain = page(t, server, h(List, { name: 'list/secret' }));
      await plain.shown.reads('false nothing MESSAGE_DENIED');
      const Suspended = (): Node => useList('list/secret', { suspense: true }).value.join();
      const Boundary = boundaryOf(on);
      const thrown = page(t, server, h(Boundary, null, h(Suspense, { fallback: 'wait' }, h(Suspended))), { keepMs: 5_000 });
      await thrown.shown.reads('failed: MESSAGE_DENIED');
    });

    test('without a name a change is rejected with a reason', async (t) => {
      const server = await Server.during(t);
      const { List, edits } = lister();
      const { shown } = page(t, server, h(List, { name: undefined }));
      await shown.reads('false nothing fine');
      await assert.rejects(made(edits()?.add('milk')), { message: 'there is no list to change: useList has no name' });
    });

    test('on a server it renders its initial entries, and the browser hydrates the result', async (t) => {
      const server = await Server.during(t);
      const bob = await other<App>(t, server.address);
      const name = listName();
      await bob.record.set(name, ['milk', 'bread']);
      const List = ({ suspense }: { suspense: boolean }): Node => useList(name, { suspense, initial: ['milk'] }).value?.join();
      const Bare = (): Node => useList(name, { suspense: true }).value.join();
      const tree = (client: ReturnType<typeof clientOfPage<App>>['client']): Node => {
        const lists = [h(List, { key: 1, suspense: false }), ' ', h(List, { key: 2, suspense: true }), ' '];
        return h(TidewireProvider, { client, keepMs: 5_000 }, lists, h(Suspense, { fallback: 'wait' }, h(Bare)));
      };
      const onServer = clientOfPage<App>(t, 'localhost:1');
      const html = on.server.renderToString(tree(onServer.client));
      assert.deepEqual([onServer.client.state, onServer.sent.messages], ['closed', []]);
      const { client } = clientOfPage<App>(t, server.address);
      const shown = new Shown(t, on, tree(client), html, []);
      assert.match(shown.text, /^milk milk wait$/);
      await shown.reads('milk,bread milk,bread milk,bread');
    });
  });
}
