// Live queries in components: their rows, changes and errors.

import assert from 'node:assert/strict';
import { Topic } from '../../../packages/client/src/protocol.ts';
import type { Client } from '../../../packages/client/src/index.ts';
import { fresh } from '../../harness/names.ts';
import { inState } from '../../harness/driver/tidewire.ts';
import { Proxy } from '../../harness/proxy.ts';
import { eventually } from '../../harness/wait.ts';
import type { Component, Name, Options, Query, Uses } from '../binding.ts';
import { other, page, type Sent } from '../stage.ts';
import type { Case } from '../suite.ts';

type QueryHook = ReturnType<ReturnType<Uses['useQuery']>>;

const SUBSCRIBE = 4;
const UNSUBSCRIBE = 5;

/** The actions of the messages about queries. */
const actions = (sent: Sent): number[] => sent.messages.filter(({ topic }) => topic === Topic.Query).map(({ action }) => action);

/** A component that shows the ids and titles of the rows. */
function table(collection: Name, query: Query, options?: Options): { Rows: Component; last: () => QueryHook } {
  let last: QueryHook | undefined;
  const Rows: Component = ({ useQuery }) => {
    const live = useQuery(collection, query, options);
    return () => {
      last = live();
      const { value, isReady, error } = last;
      return `${[isReady, value?.map(({ id, data }) => `${id}:${data.title}`).join() ?? 'nothing', error?.code ?? 'fine'].join(' ')};`;
    };
  };
  return { Rows, last: () => last ?? assert.fail('nothing was drawn') };
}

/** Writes records with these titles, whose ids are `a`, `b` and so on. */
async function filled(client: Client, collection: string, ...titles: string[]): Promise<void> {
  await Promise.all(titles.map((title, at) => client.record.set(`${collection}/${'abcdef'[at]}`, { title, at })));
}

export const QUERIES: Record<string, Case> = {
  async 'the rows of a query are shown in order and followed'(t, on, server) {
    const bob = await other(t, server.address);
    const collection = fresh('table');
    await filled(bob, collection, 'milk', 'bread', 'tea');
    const { Rows } = table(collection, { where: { title: { $ne: 'tea' } }, sort: { at: -1 }, limit: 2 });
    const { shown, show } = page(t, on, server.address);
    show(Rows);
    await shown.reads('true b:bread,a:milk fine;');
    await bob.record.set(`${collection}/c`, { title: 'salt', at: 2 });
    await shown.reads('true c:salt,b:bread fine;');
    await bob.record.set(`${collection}/a`, { title: 'milk', at: 9 });
    await shown.reads('true a:milk,c:salt fine;');
    await bob.record.delete(`${collection}/a`);
    await shown.reads('true c:salt,b:bread fine;');
  },

  async 'equal queries of components share one subscription, and none remains after the unmount'(t, on, server) {
    const bob = await other(t, server.address);
    const collection = fresh('table');
    await filled(bob, collection, 'milk');
    const { sent, shown, show } = page(t, on, server.address);
    show(table(collection, { sort: ['at'], limit: 3 }).Rows, table(collection, { limit: 3, sort: ['at'] }).Rows);
    await shown.reads('true a:milk fine;true a:milk fine;');
    await bob.record.set(`${collection}/a`, { title: 'tea', at: 1 });
    await shown.reads('true a:tea fine;true a:tea fine;');
    assert.deepEqual(actions(sent), [SUBSCRIBE]);
    show();
    await eventually(() => actions(sent).length === 2, 'the query ends');
    assert.deepEqual(actions(sent), [SUBSCRIBE, UNSUBSCRIBE]);
  },

  async 'another collection and another query replace the rows, and an equal query asks nothing'(t, on, server) {
    const bob = await other(t, server.address);
    const [first, second] = [fresh('table'), fresh('table')];
    await filled(bob, first, 'milk', 'bread');
    await filled(bob, second, 'tea');
    const collection = on.variable<string | undefined>(undefined);
    const query = on.variable<object>({ sort: ['at'] });
    const { sent, shown, show } = page(t, on, server.address);
    show(table(collection, query).Rows);
    await shown.reads('false nothing fine;');
    assert.deepEqual(actions(sent), []);
    collection.write(first);
    await shown.reads('true a:milk,b:bread fine;');
    query.write({ sort: ['at'] });
    query.write({ sort: [['at', 'desc']], where: {} });
    await shown.reads('true b:bread,a:milk fine;');
    collection.write(second);
    await shown.reads('true a:tea fine;');
    await eventually(() => actions(sent).length === 5, 'the earlier queries end');
    assert.deepEqual(actions(sent).sort(), [SUBSCRIBE, SUBSCRIBE, SUBSCRIBE, UNSUBSCRIBE, UNSUBSCRIBE]);
  },

  async 'an edit of a component shows in the rows of another one before the server has it'(t, on, server) {
    const bob = await other(t, server.address);
    const collection = fresh('table');
    await filled(bob, collection, 'milk', 'bread');
    let record: ReturnType<ReturnType<Uses['useRecord']>> | undefined;
    const Editor: Component = ({ useRecord }) => {
      const live = useRecord(`${collection}/a`);
      return () => {
        record = live();
        return `${record.value?.title};`;
      };
    };
    const proxy = await Proxy.during(t, server);
    const { shown, show, client } = page(t, on, proxy.address);
    show(Editor, table(collection, { where: { title: { $ne: 'tea' } }, sort: { at: 1 } }).Rows);
    await shown.reads('milk;true a:milk,b:bread fine;');
    proxy.cut();
    await inState(client, 'waiting');
    record?.set({ title: 'salt', at: 5 });
    await shown.reads('salt;true b:bread,a:salt fine;');
    record?.set('title', 'tea');
    await shown.reads('tea;true b:bread fine;');
    proxy.restore();
    await eventually(async () => ((await bob.record.get(`${collection}/a`)) as { title: string }).title === 'tea', 'the server has the edit');
    await shown.reads('tea;true b:bread fine;');
  },

  async 'a component that waits appears with its rows, and sends one request'(t, on, server) {
    const bob = await other(t, server.address);
    const collection = fresh('table');
    await filled(bob, collection, 'milk');
    const { shown, sent, show } = page(t, on, server.address, { keepMs: 5_000 });
    show(table(collection, {}, { suspense: true }).Rows);
    await shown.reads('wait');
    await shown.reads('true a:milk fine;');
    assert.deepEqual(actions(sent), [SUBSCRIBE]);
  },

  async 'initial rows are shown until the rows of the server arrive'(t, on, server) {
    const bob = await other(t, server.address);
    const collection = fresh('table');
    await filled(bob, collection, 'milk');
    const { shown, show, client } = page(t, on, server.address, { autoConnect: false });
    show(table(collection, {}, { initial: [{ id: 'x', version: 1, data: { title: 'old' } }], suspense: true }).Rows);
    await shown.reads('false x:old fine;');
    await client.connect();
    await shown.reads('true a:milk fine;');
  },

  async 'a refused query is an error, with which a waiting component fails, and a retry asks again'(t, on, server) {
    const collection = fresh('table');
    const bad = { where: { title: { $nope: 1 } } };
    const plain = page(t, on, server.address, { errors: ['INVALID_QUERY'] });
    const { Rows, last } = table(collection, bad);
    plain.show(Rows);
    await plain.shown.reads('false nothing INVALID_QUERY;');
    assert.equal((last().error?.data as { at: string }).at, '/where/title/$nope');
    last().retry();
    await eventually(() => actions(plain.sent).length === 2, 'the query is asked again');
    await plain.shown.reads('false nothing INVALID_QUERY;');
    const waiting = page(t, on, server.address, { keepMs: 5_000, errors: ['INVALID_QUERY'] });
    waiting.show(table(collection, bad, { suspense: true }).Rows);
    await waiting.shown.reads('failed: INVALID_QUERY');
  },

  async 'rows of records that the user may not read are not shown'(t, on, server) {
    const bob = await other(t, server.address, { username: 'bob' });
    const collection = fresh('table');
    await filled(bob, collection, 'milk');
    const { shown, show } = page(t, on, server.address, { auth: { username: 'eve' } });
    show(table(collection, {}).Rows);
    await shown.reads('true  fine;');
  },
};
