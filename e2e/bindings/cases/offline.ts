// Components whose provider has the option `offline`: records and lists without a connection, and the state that `useSync` shows.

import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { OfflineOptions } from '../../../packages/client/src/offline.ts';
import { memoryStorage } from '../../../packages/client/src/storage.ts';
import { atEnd } from '../../harness/cleanup.ts';
import { fresh } from '../../harness/names.ts';
import { Proxy } from '../../harness/proxy.ts';
import type { Server } from '../../harness/server.ts';
import { DEADLINE_MS, eventually, isPending, within } from '../../harness/wait.ts';
import type { Binding, Component, Name, Uses } from '../binding.ts';
import { clientOfPage, entriesOf, other, page, Shown } from '../stage.ts';
import type { Case } from '../suite.ts';
import { texts } from './records.ts';

/** A component that shows the rows of a query and the queue, and edits records. */
function boardOf(collection: string) {
  let last: { sync: Sync; edits: ReturnType<Uses['useEdits']> } | undefined;
  const Board: Component = ({ useQuery, useSync, useEdits }) => {
    const [live, state, edits] = [useQuery(collection, { where: { done: false }, sort: ['at'] }), useSync(), useEdits()];
    return () => {
      last = { sync: state(), edits };
      const { value, error } = live();
      const rows = value?.map(({ id, data }) => `${id}:${String(data.title)}`).join() ?? 'no rows';
      return `${rows} ${last.sync.queue.length} ${last.sync.conflicts.map(({ reason }) => reason).join() || error?.code || 'fine'};`;
    };
  };
  const now = () => last ?? assert.fail('nothing was drawn');
  return { Board, sync: () => now().sync, edits: (id: string) => now().edits(`${collection}/${id}`) };
}

type Sync = ReturnType<ReturnType<Uses['useSync']>>;

/** A component that shows a record and the queue. */
function todoOf(name: Name, path?: string) {
  let last: { todo: ReturnType<ReturnType<Uses['useRecord']>>; sync: Sync } | undefined;
  const Todo: Component = ({ useRecord, useSync }) => {
    const [todo, sync] = [useRecord(name, path === undefined ? {} : { path }), useSync()];
    return () => {
      last = { todo: todo(), sync: sync() };
      const { queue, conflicts } = last.sync;
      return texts(last.todo.value, `${queue.length} wait`, conflicts.map(({ reason }) => reason).join() || 'no conflict');
    };
  };
  const now = () => last ?? assert.fail('nothing was drawn');
  return { Todo, edits: () => now().todo, sync: () => now().sync };
}

/** A page below a provider with offline records, whose connection the test can cut. */
async function offlinePage(t: TestContext, on: Binding, server: Server, offline: OfflineOptions = { storage: memoryStorage() }) {
  const proxy = await Proxy.during(t, server);
  // A page that opens without a connection reports why.
  return { ...page(t, on, proxy.address, { offline, keepMs: 0, errors: ['UNREACHABLE'] }), proxy };
}

export const OFFLINE: Record<string, Case> = {
  async 'offline: an edit without a connection shows at once, waits in the queue, and is made and merged later'(t, on, server) {
    const bob = await other(t, server.address);
    const name = fresh('todo');
    await bob.record.set(name, { title: 'milk' });
    const { Todo, edits, sync } = todoOf(name);
    const { shown, show, proxy } = await offlinePage(t, on, server);
    show(Todo);
    await shown.reads('{"title":"milk"} "0 wait" "no conflict"');
    proxy.cut();
    await eventually(() => sync().connection === 'waiting', 'the loss is noticed');
    edits().set('done', true);
    await shown.reads('{"title":"milk","done":true} "1 wait" "no conflict"');
    const saved = edits().patch({ count: 1 });
    await shown.reads('{"title":"milk","done":true,"count":1} "2 wait" "no conflict"');
    assert.deepEqual(sync().queue.map(({ name: of, changes }) => [of, changes[0]?.path]), [[name, 'done'], [name, 'count']]);
    assert.ok(await isPending(saved));
    await bob.record.open(name).setWithAck('title', 'bread');
    proxy.restore();
    await within(DEADLINE_MS, saved, 'the edit is made');
    await shown.reads('{"title":"bread","done":true,"count":1} "0 wait" "no conflict"');
    assert.deepEqual(await bob.record.get(name), { title: 'bread', done: true, count: 1 });
  },

  async 'offline: a page without a connection shows what an earlier page has stored, and continues its queue'(t, on, server) {
    const bob = await other(t, server.address);
    const name = fresh('todo');
    await bob.record.set(name, { title: 'milk' });
    const storage = memoryStorage();
    const first = await offlinePage(t, on, server, { storage });
    const before = todoOf(name, 'title');
    first.show(before.Todo);
    await first.shown.reads('"milk" "0 wait" "no conflict"');
    first.proxy.cut();
    await eventually(() => before.sync().connection === 'waiting', 'the loss is noticed');
    before.edits().set('title', 'bread');
    await first.shown.reads('"bread" "1 wait" "no conflict"');
    first.unmount();
    const second = await offlinePage(t, on, server, { storage });
    second.proxy.cut();
    const after = todoOf(name, 'title');
    second.show(after.Todo);
    await second.shown.reads('"bread" "1 wait" "no conflict"');
    assert.notEqual(second.client.state, 'open');
    second.proxy.restore();
    await second.shown.reads('"bread" "0 wait" "no conflict"');
    assert.deepEqual(await bob.record.get(name), { title: 'bread' });
  },

  async 'offline: a component that waits appears with the stored value'(t, on, server) {
    const bob = await other(t, server.address);
    const name = fresh('todo');
    await bob.record.set(name, { title: 'milk' });
    const storage = memoryStorage();
    const first = await offlinePage(t, on, server, { storage });
    first.show(todoOf(name).Todo);
    await first.shown.reads('{"title":"milk"} "0 wait" "no conflict"');
    first.unmount();
    const second = await offlinePage(t, on, server, { storage });
    second.proxy.cut();
    second.show(({ useRecord }) => {
      const todo = useRecord(name, { suspense: true });
      return () => String(todo().value?.title);
    });
    await second.shown.reads('milk');
    assert.notEqual(second.client.state, 'open');
  },

  async 'offline: an edit right after the mount is not lost'(t, on, server) {
    const bob = await other(t, server.address);
    const name = fresh('todo');
    const { Todo, edits } = todoOf(name);
    const { shown, show } = await offlinePage(t, on, server);
    let isEdited = false;
    show((uses) => {
      const draw = Todo(uses);
      return () => {
        const text = draw();
        // Before the records are open.
        if (!isEdited) queueMicrotask(() => edits().set('title', 'first'));
        isEdited = true;
        return text;
      };
    });
    await shown.reads('{"title":"first"} "0 wait" "no conflict"');
    await eventually(async () => ((await bob.record.get(name)) as { title?: string } | undefined)?.title === 'first', 'the server has it');
  },

  async 'offline: a conflict is shown, and the app keeps or drops it'(t, on, server) {
    const bob = await other(t, server.address);
    const [keeps, drops] = [fresh('todo'), fresh('todo')];
    await bob.record.set(keeps, { title: 'old' });
    await bob.record.set(drops, { title: 'old' });
    const { shown, show, proxy } = await offlinePage(t, on, server, { storage: memoryStorage(), merge: 'remote' });
    const [kept, dropped] = [todoOf(keeps, 'title'), todoOf(drops, 'title')];
    show(kept.Todo, dropped.Todo);
    const quiet = '"0 wait" "no conflict"';
    await shown.reads(`"old" ${quiet}"old" ${quiet}`);
    proxy.cut();
    await eventually(() => kept.sync().connection === 'waiting', 'the loss is noticed');
    kept.edits().set('title', 'mine');
    dropped.edits().set('title', 'mine');
    await shown.reads('"mine" "2 wait" "no conflict""mine" "2 wait" "no conflict"');
    await bob.record.set(keeps, { title: 'theirs' });
    await bob.record.set(drops, { title: 'theirs' });
    proxy.restore();
    const both = '"0 wait" "conflict,conflict"';
    await shown.reads(`"theirs" ${both}"theirs" ${both}`);
    const conflictOf = (name: string) => kept.sync().conflicts.find((one) => one.name === name) ?? assert.fail(`no conflict of ${name}`);
    assert.deepEqual([conflictOf(keeps).changes, conflictOf(keeps).code], [[{ path: 'title', value: 'mine' }], 'CONFLICT']);
    await within(DEADLINE_MS, kept.sync().keep(conflictOf(keeps)), 'keep');
    await within(DEADLINE_MS, kept.sync().drop(conflictOf(drops)), 'drop');
    await shown.reads(`"mine" ${quiet}"theirs" ${quiet}`);
    assert.deepEqual([await bob.record.get(keeps), await bob.record.get(drops)], [{ title: 'mine' }, { title: 'theirs' }]);
  },

  async 'offline: changes of a list are merged by entry'(t, on, server) {
    const bob = await other(t, server.address);
    const name = fresh('list');
    await bob.record.set(name, ['milk', 'bread']);
    const { shown, show, proxy } = await offlinePage(t, on, server);
    let list: ReturnType<ReturnType<Uses['useList']>> | undefined;
    let sync: Sync | undefined;
    show(({ useList, useSync }) => {
      const [entries, state] = [useList(name), useSync()];
      return () => {
        [list, sync] = [entries(), state()];
        return `${list.value?.join()} ${sync.queue.length}`;
      };
    });
    await shown.reads('milk,bread 0');
    proxy.cut();
    await eventually(() => sync?.connection === 'waiting', 'the loss is noticed');
    const changes = [list?.add('eggs'), list?.remove('milk')];
    await shown.reads('bread,eggs 2');
    assert.deepEqual(sync?.queue.map((edit) => edit.list?.slice(0, 2)), [['add', 'eggs'], ['remove', 'milk']]);
    await bob.record.set(name, ['milk', 'bread', 'salt']);
    proxy.restore();
    await within(DEADLINE_MS, Promise.all(changes), 'the changes are made');
    await shown.reads('bread,salt,eggs 0');
    assert.deepEqual(await bob.record.get(name), ['bread', 'salt', 'eggs']);
  },

  async 'offline: a rule refuses an edit, which becomes a conflict of the app'(t, on, server) {
    const name = fresh('kept');
    const { Todo, edits } = todoOf(name);
    const { shown, show } = await offlinePage(t, on, server);
    show(Todo);
    await shown.reads('{} "0 wait" "no conflict"');
    edits().set('title', 'mine');
    await shown.reads('{} "0 wait" "denied"');
  },

  async 'offline: the rows of a query show edits without a connection, and are stored with them'(t, on, server) {
    const bob = await other(t, server.address);
    const collection = fresh('table');
    const card = (title: string, at: number) => ({ title, at, done: false });
    await bob.record.set(`${collection}/a`, card('milk', 1));
    await bob.record.set(`${collection}/b`, card('bread', 2));
    const storage = memoryStorage();
    const first = await offlinePage(t, on, server, { storage });
    const { Board, sync, edits } = boardOf(collection);
    first.show(Board);
    await first.shown.reads('a:milk,b:bread 0 fine;');
    first.proxy.cut();
    await eventually(() => sync().connection === 'waiting', 'the loss is noticed');
    // No component has followed these records.
    edits('a').set('at', 3);
    await first.shown.reads('b:bread,a:milk 1 fine;');
    edits('c').set(card('tea', 2.5));
    await first.shown.reads('b:bread,c:tea,a:milk 2 fine;');
    edits('b').set('done', true);
    await first.shown.reads('c:tea,a:milk 3 fine;');
    first.unmount();

    await bob.record.open(`${collection}/a`).setWithAck('title', 'oat milk');
    const second = await offlinePage(t, on, server, { storage });
    second.proxy.cut();
    const again = boardOf(collection);
    second.show(again.Board);
    await second.shown.reads('c:tea,a:milk 3 fine;');
    assert.notEqual(second.client.state, 'open');
    second.proxy.restore();
    await second.shown.reads('c:tea,a:oat milk 0 fine;');
    assert.deepEqual(await bob.record.get(`${collection}/a`), { title: 'oat milk', at: 3, done: false });
    await bob.record.open(`${collection}/c`).setWithAck('title', 'green tea');
    await second.shown.reads('c:green tea,a:oat milk 0 fine;');
  },

  async 'offline: a row that a rule refuses leaves the query'(t, on, server) {
    const name = fresh('kept');
    const [collection, id] = [name.slice(0, name.lastIndexOf('/')), name.slice(name.lastIndexOf('/') + 1)];
    const { Board, edits } = boardOf(collection);
    const { shown, show, proxy } = await offlinePage(t, on, server);
    show(Board);
    await shown.reads(' 0 fine;');
    proxy.cut();
    edits(id).set({ title: 'mine', at: 1, done: false });
    await shown.reads(`${id}:mine 1 fine;`);
    proxy.restore();
    await shown.reads(' 0 denied;');
  },

  async 'useSync without the option offline names the option'(t, on, server) {
    const { client } = clientOfPage(t, server.address);
    const shown = new Shown(t);
    const { show, unmount } = on.mount(shown.element, { client });
    atEnd(t, unmount);
    const Waiting: Component = ({ useSync }) => {
      const sync = useSync();
      return () => sync().mode;
    };
    show(entriesOf([Waiting]));
    await shown.reads('failed: useSync needs the option offline of the provider');
  },
};
