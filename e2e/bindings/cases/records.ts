// Records in components: their values and parts, edits, errors, and how long a subscription stays.

import assert from 'node:assert/strict';
import { RecordAction, Topic } from '../../../packages/client/src/protocol.ts';
import { fresh } from '../../harness/names.ts';
import { DEADLINE_MS, eventually, within } from '../../harness/wait.ts';
import type { Component, Name, Options, Uses } from '../binding.ts';
import { entriesOf, other, page, Shown } from '../stage.ts';
import { atEnd } from '../../harness/cleanup.ts';
import type { Case } from '../suite.ts';

type RecordHook = ReturnType<Uses['useRecord']>;

export const texts = (...parts: unknown[]): string => parts.map((part) => JSON.stringify(part) ?? 'nothing').join(' ');

/** A component that shows a record, and the result of its hook at the last drawing. */
function shower(name: Name, options?: Options, draw = ({ value, isReady, error }: ReturnType<RecordHook>) => texts(isReady, value, error?.code)) {
  let last: ReturnType<RecordHook> | undefined;
  const Todo: Component = ({ useRecord }) => {
    const todo = useRecord(name, options);
    return () => {
      last = todo();
      return draw(last);
    };
  };
  return { Todo, edits: () => last ?? assert.fail('nothing was drawn') };
}

export const RECORDS: Record<string, Case> = {
  async 'a record is shown, edited and followed'(t, on, server) {
    const bob = await other(t, server.address);
    const name = fresh('todo');
    await bob.record.set(name, { title: 'milk' });
    const { Todo, edits } = shower(name);
    const { shown, show } = page(t, on, server.address);
    show(Todo);
    await shown.reads('true {"title":"milk"} nothing');
    edits().set('done', true);
    await shown.reads('true {"title":"milk","done":true} nothing');
    await within(DEADLINE_MS, edits().patch({ title: 'bread' }), 'patch');
    assert.deepEqual(await bob.record.get(name), { title: 'bread', done: true });
    await bob.record.set(name, { title: 'eggs' });
    await shown.reads('true {"title":"eggs"} nothing');
    await bob.record.set(name, ['now', 'a list']);
    await shown.reads('true ["now","a list"] nothing');
  },

  async 'a component edits records that it does not show'(t, on, server) {
    const bob = await other(t, server.address);
    const [first, second] = [fresh('todo'), fresh('todo')];
    await bob.record.set(first, { title: 'milk' });
    let edits: ReturnType<Uses['useEdits']> | undefined;
    const { sent, shown, show } = page(t, on, server.address);
    show(({ useEdits }) => {
      edits = useEdits();
      return () => 'edits';
    });
    await shown.reads('edits');
    assert.deepEqual(sent.about(Topic.Record, first), []);
    await within(DEADLINE_MS, Promise.all([edits?.(first).patch({ done: true }), edits?.(second).patch({ title: 'bread' })]), 'the edits are made');
    assert.deepEqual([await bob.record.get(first), await bob.record.get(second)], [{ title: 'milk', done: true }, { title: 'bread' }]);
    await eventually(() => sent.about(Topic.Record, first).at(-1) === RecordAction.Unsubscribe, 'no subscription stays');
  },

  async 'a part of a record is drawn again only when it changes'(t, on, server) {
    const bob = await other(t, server.address);
    const name = fresh('todo');
    await bob.record.set(name, { title: 'milk' });
    let draws = 0;
    const title = shower(name, { path: 'title' }, ({ value }) => `${(draws += 1) && (value ?? 'nothing')} `);
    const done = shower(name, { path: 'done' }, ({ value }) => texts(value));
    const { shown, show } = page(t, on, server.address);
    show(title.Todo, done.Todo);
    await shown.reads('milk nothing');
    const before = draws;
    const record = bob.record.open(name);
    await record.setWithAck('done', true);
    await shown.reads('milk true');
    assert.equal(draws, before);
    await record.setWithAck('title', 'bread');
    await shown.reads('bread true');
  },

  async 'an array path shows and edits a key with a dot, and subscribes once'(t, on, server) {
    const bob = await other(t, server.address);
    const name = fresh('todo');
    await bob.record.set(name, { title: 'milk', marks: { 'ann@x.org': 1, 'ann@x': 9 } });
    let draws = 0;
    const { Todo, edits } = shower(name, { path: ['marks', 'ann@x.org'] }, ({ value }) => `${(draws += 1) && texts(value)}`);
    const { shown, show, sent } = page(t, on, server.address);
    show(Todo);
    await shown.reads('1');
    edits().set(['marks', 'ann@x.org'], 2);
    await shown.reads('2');
    const marks = async (): Promise<unknown> => ((await bob.record.get(name)) as { marks: { [user: string]: number } }).marks['ann@x.org'];
    await eventually(async () => (await marks()) === 2, 'the server has the edit');
    assert.deepEqual(await bob.record.get(name), { title: 'milk', marks: { 'ann@x.org': 2, 'ann@x': 9 } });
    const before = draws;
    const record = bob.record.open(name);
    await record.setWithAck('title', 'bread');
    await record.setWithAck(['marks', 'ann@x.org'], 3);
    await shown.reads('3');
    // React's StrictMode calls a component twice for each drawing.
    assert.ok(draws - before <= 2, `${draws - before} calls: an edit elsewhere has drawn the component`);
    assert.equal(sent.about(Topic.Record, name).filter((action) => action === RecordAction.SubscribeCreateAndRead).length, 1);
  },

  async 'a missing record is an error until another client writes it, also for a component that waits'(t, on, server) {
    const bob = await other(t, server.address);
    const name = fresh('todo');
    const pages = [false, true].map((suspense) => {
      const { shown, show } = page(t, on, server.address, { keepMs: 5_000 });
      show(shower(name, { create: false, suspense }).Todo);
      return shown;
    });
    for (const shown of pages) await shown.reads('true nothing "RECORD_NOT_FOUND"');
    assert.equal(await bob.record.get(name), undefined);
    await bob.record.set(name, { title: 'milk' });
    for (const shown of pages) await shown.reads('true {"title":"milk"} nothing');
  },

  async 'a missing record without the right to read is refused'(t, on, server) {
    const { shown, show } = page(t, on, server.address, { auth: { username: 'eve' } });
    show(shower(fresh('todo'), { create: false }).Todo);
    await shown.reads('false nothing "MESSAGE_DENIED"');
  },

  async 'an edit that is refused is shown and taken back'(t, on, server) {
    const seen: string[] = [];
    const { Todo, edits } = shower(fresh('kept'), {}, ({ isReady, value }) => {
      seen.push(texts(value));
      return String(isReady);
    });
    const { shown, show } = page(t, on, server.address, { errors: ['MESSAGE_DENIED'] });
    show(Todo);
    await shown.reads('true');
    edits().set('title', 'mine');
    await eventually(() => seen.includes('{"title":"mine"}'), 'the edit is shown');
    await eventually(() => seen.at(-1) === '{}', 'the edit is taken back');
  },

  async 'many components share a subscription, and a component that is mounted again in time has its value'(t, on, server) {
    const name = fresh('todo');
    const first: unknown[] = [];
    const { Todo } = shower(name, {}, ({ isReady }) => {
      first.push(isReady);
      return String(isReady);
    });
    const { sent, shown, show } = page(t, on, server.address, { keepMs: 60_000 });
    show(...Array.from({ length: 50 }, () => Todo));
    await shown.reads('true'.repeat(50));
    show();
    await shown.reads('');
    first.length = 0;
    show(Todo);
    await shown.reads('true');
    assert.equal(first[0], true, 'its first drawing has the value');
    assert.deepEqual(sent.about(Topic.Record, name), [RecordAction.SubscribeCreateAndRead]);
  },

  async 'another name shows another record, and none without a name'(t, on, server) {
    const bob = await other(t, server.address);
    const [one, two] = [fresh('todo'), fresh('todo')];
    await bob.record.set(one, { title: 'one' });
    await bob.record.set(two, { title: 'two' });
    const name = on.variable<string | undefined>(one);
    const { shown, show, sent } = page(t, on, server.address);
    const { Todo, edits } = shower(name);
    show(Todo);
    await shown.reads('true {"title":"one"} nothing');
    name.write(two);
    await shown.reads('true {"title":"two"} nothing');
    await eventually(() => sent.about(Topic.Record, one).length === 2, 'the first record is released');
    edits().set('done', true);
    await eventually(async () => ((await bob.record.get(two)) as { done?: boolean }).done, 'the edit reaches the second record');
    name.write(undefined);
    await shown.reads('false nothing nothing');
    assert.throws(() => edits().set('done', false), { message: 'there is no record to edit: useRecord has no name' });
  },

  async 'a component that waits appears with its value'(t, on, server) {
    const bob = await other(t, server.address);
    const name = fresh('todo');
    await bob.record.set(name, { title: 'milk' });
    const { shown, sent, show } = page(t, on, server.address, { keepMs: 5_000 });
    show(shower(name, { suspense: true }, ({ value }) => String(value?.title)).Todo);
    await shown.reads('wait');
    await shown.reads('milk');
    assert.deepEqual(sent.about(Topic.Record, name), [RecordAction.SubscribeCreateAndRead]);
  },

  async 'a record that a waiting component no longer needs is released'(t, on, server) {
    const name = fresh('todo');
    const { client, sent, shown, show } = page(t, on, server.address, { keepMs: 100, autoConnect: false });
    show(shower(name, { suspense: true }).Todo);
    await shown.reads('wait');
    show();
    await shown.reads('');
    assert.deepEqual([client.state, sent.messages], ['closed', []], 'only the app connects');
    await within(DEADLINE_MS, client.connect(), 'login');
    await eventually(() => !client.record.documents.has(name), 'the record is released');
    const asked = sent.about(Topic.Record, name);
    assert.equal(asked.filter((action) => action === RecordAction.Unsubscribe).length, asked.length / 2, asked.join());
  },

  async 'a refused record is an error, with which a waiting component fails'(t, on, server) {
    const options = { auth: { username: 'eve' }, keepMs: 5_000 };
    const name = fresh('todo');
    const plain = page(t, on, server.address, options);
    plain.show(shower(name).Todo);
    await plain.shown.reads('false nothing "MESSAGE_DENIED"');
    const waiting = page(t, on, server.address, options);
    waiting.show(shower(name, { suspense: true }).Todo);
    await waiting.shown.reads('failed: MESSAGE_DENIED');
  },

  async 'a deleted record is an error, and a retry creates it again'(t, on, server) {
    const bob = await other(t, server.address);
    const name = fresh('todo');
    const { Todo, edits } = shower(name, { initial: { title: 'first' } }, ({ value, error }) => texts(value, error?.code));
    const { shown, show } = page(t, on, server.address);
    show(Todo);
    await shown.reads('{} nothing');
    await bob.record.delete(name);
    await shown.reads('nothing "RECORD_DELETED"');
    edits().retry();
    await shown.reads('{} nothing');
  },

  async 'the initial value is shown until the value of the server'(t, on, server) {
    const name = fresh('todo');
    const { client, shown, show } = page(t, on, server.address, { autoConnect: false });
    show(shower(name, { initial: { title: 'first' }, suspense: true }, ({ value, isReady }) => texts(value, isReady)).Todo);
    await shown.reads('{"title":"first"} false');
    await within(DEADLINE_MS, client.connect(), 'login');
    await shown.reads('{} true');
  },

  async 'the option for merging reaches the record'(t, on, server) {
    const name = fresh('todo');
    const { client, shown, show } = page(t, on, server.address);
    show(shower(name, { merge: 'remote' }).Todo);
    await shown.reads('true {} nothing');
    assert.equal(client.record.documents.get(name)?.merge, 'remote');
  },

  async 'a hook without a provider reports the missing provider'(t, on) {
    const shown = new Shown(t);
    const { show, unmount } = on.mount(shown.element, {});
    atEnd(t, unmount);
    show(entriesOf([shower(fresh('todo')).Todo]));
    await shown.reads(`failed: ${on.missingProvider}`);
  },
};
