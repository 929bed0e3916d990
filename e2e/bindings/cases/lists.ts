// Lists in components: their entries, changes and errors.

import assert from 'node:assert/strict';
import { RecordAction, Topic } from '../../../packages/client/src/protocol.ts';
import { fresh } from '../../harness/names.ts';
import { DEADLINE_MS, eventually, within } from '../../harness/wait.ts';
import type { Component, Name, Options, Uses } from '../binding.ts';
import { other, page } from '../stage.ts';
import type { Case } from '../suite.ts';

type ListHook = ReturnType<ReturnType<Uses['useList']>>;

const made = (edit: Promise<void>): Promise<void> => within(DEADLINE_MS, edit, 'edit');

/** A component that shows a list, and the result of its hook at the last drawing. */
function lister(name: Name, options?: Options, seen: string[] = []): { List: Component; edits: () => ListHook } {
  let last: ListHook | undefined;
  const List: Component = ({ useList }) => {
    const list = useList(name, options);
    return () => {
      last = list();
      const { value, isReady, error } = last;
      seen.push(value?.join() ?? 'nothing');
      return `${[isReady, seen.at(-1), error?.code ?? 'fine'].join(' ')};`;
    };
  };
  return { List, edits: () => last ?? assert.fail('nothing was drawn') };
}

export const LISTS: Record<string, Case> = {
  async 'a list is shown, changed and followed'(t, on, server) {
    const bob = await other(t, server.address);
    const name = fresh('list');
    await bob.record.set(name, ['milk']);
    const { List, edits } = lister(name);
    const { shown, show } = page(t, on, server.address);
    show(List);
    await shown.reads('true milk fine;');
    await made(edits().add('bread'));
    await made(edits().add('eggs', 0));
    await shown.reads('true eggs,milk,bread fine;');
    await made(edits().remove('milk'));
    assert.deepEqual(await bob.record.get(name), ['eggs', 'bread']);
    await bob.record.set(name, ['salt']);
    await shown.reads('true salt fine;');
    await made(edits().set(['tea', 'tea']));
    await made(edits().remove('tea', 1));
    await shown.reads('true tea fine;');
  },

  async 'a new list has no entries, and neither has a record that is not a list'(t, on, server) {
    const bob = await other(t, server.address);
    const [list, record] = [fresh('list'), fresh('list')];
    await bob.record.set(record, { title: 'milk' });
    const name = on.variable<string | undefined>(list);
    const { List, edits } = lister(name);
    const { shown, show } = page(t, on, server.address);
    show(List);
    await shown.reads('true  fine;');
    name.write(record);
    await shown.reads('true  fine;');
    await bob.record.set(record, ['now']);
    await shown.reads('true now fine;');
    name.write(undefined);
    await shown.reads('false nothing fine;');
    await assert.rejects(made(edits().add('milk')), { message: 'there is no list to change: useList has no name' });
  },

  async 'concurrent additions of two clients are in both lists'(t, on, server) {
    const name = fresh('list');
    const lists = [lister(name), lister(name)];
    const pages = lists.map(({ List }) => {
      const { shown, show } = page(t, on, server.address);
      show(List);
      return shown;
    });
    for (const shown of pages) await shown.reads('true  fine;');
    await Promise.all(['milk', 'bread'].map((entry, at) => made(lists[at]?.edits().add(entry) ?? Promise.reject())));
    const reader = await other(t, server.address);
    const all = (await reader.record.get(name)) as string[];
    assert.deepEqual([...all].sort(), ['bread', 'milk']);
    for (const shown of pages) await shown.reads(`true ${all.join()} fine;`);
  },

  async 'components of a list and of its record share one subscription, and none remains after the unmount'(t, on, server) {
    const name = fresh('list');
    const { List, edits } = lister(name);
    const Ready: Component = ({ useRecord }) => {
      const record = useRecord(name);
      return () => String(record().isReady);
    };
    const { sent, shown, show } = page(t, on, server.address);
    show(List, List, Ready);
    await shown.reads('true  fine;true  fine;true');
    await made(edits().add('milk'));
    await shown.reads('true milk fine;true milk fine;true');
    const asked = (): number[] => sent.about(Topic.Record, name).filter((action) => action !== RecordAction.Update);
    assert.deepEqual(asked(), [RecordAction.SubscribeCreateAndRead]);
    show();
    await eventually(() => asked().length === 2, 'the list is released');
    assert.deepEqual(asked(), [RecordAction.SubscribeCreateAndRead, RecordAction.Unsubscribe]);
  },

  async 'a list that waits appears with its entries, and sends one request'(t, on, server) {
    const bob = await other(t, server.address);
    const name = fresh('list');
    await bob.record.set(name, ['milk']);
    const { shown, sent, show } = page(t, on, server.address, { keepMs: 5_000 });
    show(lister(name, { suspense: true }).List);
    await shown.reads('wait');
    await shown.reads('true milk fine;');
    assert.deepEqual(sent.about(Topic.Record, name), [RecordAction.SubscribeCreateAndRead]);
  },

  async 'a change that is refused is shown, taken back and rejected'(t, on, server) {
    const seen: string[] = [];
    const { List, edits } = lister(fresh('kept'), {}, seen);
    const { shown, show } = page(t, on, server.address);
    show(List);
    await shown.reads('true  fine;');
    await assert.rejects(made(edits().add('mine')), { code: 'MESSAGE_DENIED' });
    await eventually(() => seen.at(-1) === '', 'the change is taken back');
    assert.ok(seen.includes('mine'), seen.join('; '));
  },

  async 'a refused list is an error, with which a waiting component fails'(t, on, server) {
    const name = fresh('secret');
    const plain = page(t, on, server.address);
    plain.show(lister(name).List);
    await plain.shown.reads('false nothing MESSAGE_DENIED;');
    const waiting = page(t, on, server.address, { keepMs: 5_000 });
    waiting.show(lister(name, { suspense: true }).List);
    await waiting.shown.reads('failed: MESSAGE_DENIED');
  },
};
