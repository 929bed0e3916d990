// Queries of `@tidewire/client` on Node against the real server: one answer, live results at two clients, refusals, losses and other logins.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import type { Client, TidewireError } from '../../packages/client/src/index.ts';
import { fetchQuery, openQuery, type QueryChange, type QueryHandle, type Row } from '../../packages/client/src/live-query.ts';
import { Topic, type Message } from '../../packages/client/src/protocol.ts';
import { client, inState } from '../harness/driver/tidewire.ts';
import { fresh } from '../harness/names.ts';
import { Proxy } from '../harness/proxy.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, within } from '../harness/wait.ts';

interface Card {
  text: string;
  done: boolean;
  position: number;
  author?: { name: string; mail: string };
}

interface App {
  records: { [name: `cards/${string}/${string}`]: Card };
}

type Cards = `cards/${string}`;
const collectionOf = (): Cards => fresh('cards') as Cards;

async function connected(t: TestContext, address: string, options: Parameters<typeof client>[2] = {}): Promise<Client<App>> {
  const made = client<App>(t, address, options);
  await within(DEADLINE_MS, made.connect(), 'login');
  return made;
}

/** Writes cards with these positions; their ids are `c` and the position. */
async function cards(made: Client<App>, collection: Cards, ...positions: number[]): Promise<void> {
  await Promise.all(positions.map((position) => made.record.set(`${collection}/c${position}`, { text: `card ${position}`, done: position % 2 === 0, position })));
}

async function ready<Doc>(handle: QueryHandle<Doc>): Promise<QueryHandle<Doc>> {
  await within(DEADLINE_MS, handle.ready, 'rows');
  return handle;
}

const ids = (rows: ReadonlyArray<Row<unknown>> | undefined): string => rows?.map(({ id }) => id).join() ?? 'nothing';
const shows = (handle: QueryHandle<never> | QueryHandle<Card>, text: string): Promise<unknown> => eventually(() => ids(handle.rows) === text, `the rows are ${text}`);
const summary = ({ kind, row, index }: QueryChange<unknown>): string => `${kind} ${row.id} ${index}`;

/** The actions of the client's messages of topic QUERY. */
function queriesOf(made: Client<App>): number[] {
  const actions: number[] = [];
  const { connection } = made.record;
  connection.tap = ({ topic, action }: Message, isSent) => void (isSent && topic === Topic.Query && actions.push(action));
  return actions;
}
const [READ, SUBSCRIBE, UNSUBSCRIBE] = [1, 4, 5];

describe('queries', { concurrency: 4, timeout: 60_000 }, () => {
  test('a query is answered once, in order, with its count and with parts of the documents', async (t) => {
    const server = await Server.during(t);
    const [alice, bob] = [await connected(t, server.address), await connected(t, server.address)];
    const collection = collectionOf();
    assert.deepEqual(await fetchQuery(bob.record, collection), { rows: [], count: undefined });
    await cards(alice, collection, 3, 1, 4, 2);
    const { rows, count } = await fetchQuery(bob.record, collection, { where: { position: { $gt: 1 } }, sort: { position: -1 }, limit: 2 }, { count: true });
    assert.deepEqual([ids(rows), count], ['c4,c3', 3]);
    assert.deepEqual(rows[0], { id: 'c4', version: 1, data: { text: 'card 4', done: true, position: 4 } });
    const parts = await fetchQuery(bob.record, collection, { select: ['text'], limit: 1, offset: 1 });
    assert.deepEqual(parts.rows, [{ id: 'c2', version: 1, data: { text: 'card 2' } }]);
  });

  test('a live query shows rows that enter, change, move and leave', async (t) => {
    const server = await Server.during(t);
    const [alice, bob] = [await connected(t, server.address), await connected(t, server.address)];
    const collection = collectionOf();
    await cards(alice, collection, 1, 3, 5);
    const open = openQuery(bob.record, collection, { where: { done: false }, sort: ['position'], limit: 3 });
    assert.equal(open.rows, undefined);
    const changes = new Inbox<string>('changes');
    open.subscribe((rows, all) => {
      assert.equal(rows, open.rows);
      changes.push(all.map(summary).join());
    });
    assert.equal(await changes.next(), 'added c1 0,added c3 1,added c5 2');
    await ready(open);
    const [first] = open.rows ?? [];
    const edit = async (id: string, path: 'position' | 'done' | 'text', value: number | boolean | string): Promise<void> => {
      const record = alice.record.open(`${collection}/${id}`);
      await record.ready;
      await record.setWithAck(path, value as never);
      record.close();
    };
    await edit('c3', 'text', 'paint');
    assert.equal(await changes.next(), 'changed c3 1');
    assert.equal(open.rows?.[0], first, 'an unchanged row stays the same object');
    await edit('c5', 'position', 0);
    assert.equal(await changes.next(), 'changed c5 0,moved c1 1,moved c3 2');
    await edit('c1', 'done', true);
    assert.equal(await changes.next(), 'removed c1 1,moved c3 1');
    await cards(alice, collection, 7, 9);
    await shows(open, 'c5,c3,c7');
    await alice.record.delete(`${collection}/c5`);
    await shows(open, 'c3,c7,c9');
    open.close();
    assert.throws(() => open.subscribe(() => {}), { code: 'CLOSED' });
  });

  test('equal queries of a client share one subscription, and the last handle ends it', async (t) => {
    const server = await Server.during(t);
    const bob = await connected(t, server.address);
    const sent = queriesOf(bob);
    const collection = collectionOf();
    const first = await ready(openQuery(bob.record, collection, { where: { done: false, position: { $gt: 1 } }, sort: ['position'], limit: 5 }));
    const second = await ready(openQuery(bob.record, collection, { limit: 5, sort: ['position'], where: { position: { $gt: 1 }, done: false } }));
    assert.equal(first.rows, second.rows);
    first.close();
    await cards(bob, collection, 3);
    await shows(second, 'c3');
    assert.deepEqual(sent, [SUBSCRIBE]);
    second.close();
    second.close();
    await fetchQuery(bob.record, collection);
    assert.deepEqual(sent, [SUBSCRIBE, UNSUBSCRIBE, READ]);
  });

  test('each refusal has its code, and the place of a fault', async (t) => {
    const permissions = `
presence: { '*': { allow: true } }
event: { '*': { publish: true, subscribe: true, listen: true } }
rpc: { '*': { provide: true, request: true } }
record:
  '*': { create: true, read: true, write: true, delete: true, listen: true, notify: true }
  'ruled/*': { create: true, read: "_('gate') !== null", write: true, delete: true, listen: true, notify: true }
`;
    const server = await Server.during(t, { permissions, limits: { live_queries_max: 1, query_result_bytes_max: 2_048, queries_max: 2 } });
    const bob = client(t, server.address);
    await within(DEADLINE_MS, bob.connect(), 'login');
    const refused = async (collection: string, query: object, code: string, data: object): Promise<void> => {
      const ends = new Inbox<TidewireError>('ends');
      const live = openQuery(bob.record, collection, query, { onEnd: ends.push });
      await assert.rejects(live.ready, { code, subject: collection, data });
      assert.equal((await ends.next()).code, code);
      assert.deepEqual([live.rows, live.error?.code], [undefined, code]);
      live.close();
    };
    const invalid = { where: { done: { $nope: 1 } } };
    await refused('cards', invalid, 'INVALID_QUERY', { at: '/where/done/$nope', fault: 'unknown-operator' });
    await assert.rejects(fetchQuery(bob.record, 'cards', invalid), { code: 'INVALID_QUERY', data: { at: '/where/done/$nope', fault: 'unknown-operator' } });
    await refused('cards', { limit: 1_001 }, 'INVALID_QUERY', { at: '/limit', fault: 'bad-limit' });
    await refused('ruled', {}, 'QUERY_RULE', {});
    await bob.record.set('large/1', { text: 'x'.repeat(3_000) });
    await refused('large', {}, 'QUERY_TOO_LARGE', {});
    const first = openQuery(bob.record, 'cards');
    await within(DEADLINE_MS, first.ready, 'rows');
    await refused('others', {}, 'TOO_MANY_QUERIES', {});
    first.close();
    const after = openQuery(bob.record, 'others');
    await within(DEADLINE_MS, after.ready, 'rows');
    // A query whose records grow far over the limit ends.
    const ended = new Inbox<TidewireError>('end');
    openQuery(bob.record, 'others', {}, { onEnd: ended.push });
    await bob.record.set('others/1', { text: 'x'.repeat(80_000) });
    assert.equal((await ended.next()).code, 'QUERY_TOO_LARGE');
    const answers = await Promise.allSettled([1, 2, 3, 4].map(() => fetchQuery(bob.record, 'cards')));
    const codes = answers.map((answer) => (answer.status === 'fulfilled' ? 'fine' : (answer.reason as TidewireError).code));
    assert.deepEqual(codes.filter((code) => code !== 'fine' && code !== 'TOO_MANY_QUERIES'), []);
    assert.ok(codes.includes('fine'), codes.join());
  });

  test('after a loss only the difference shows, and a query that was opened without a connection is answered', async (t) => {
    const server = await Server.during(t);
    const proxy = await Proxy.during(t, server);
    const [alice, bob] = [await connected(t, server.address), await connected(t, proxy.address)];
    const collection = collectionOf();
    await cards(alice, collection, 1, 2, 3);
    const open = await ready(openQuery(bob.record, collection, { sort: ['position'] }));
    const changes = new Inbox<string>('changes');
    open.subscribe((_rows, all) => changes.push(all.map(summary).join()));
    await changes.next();
    const [, , third] = open.rows ?? [];
    proxy.cut();
    await inState(bob, 'waiting');
    await alice.record.delete(`${collection}/c1`);
    await cards(alice, collection, 4);
    assert.equal(ids(open.rows), 'c1,c2,c3', 'the rows stay while the connection is lost');
    const late = openQuery(bob.record, collection, { where: { done: true } });
    proxy.restore();
    assert.equal(await changes.next(), 'removed c1 0,moved c2 0,moved c3 1,added c4 2');
    assert.equal(open.rows?.[1], third);
    await ready(late);
    assert.equal(ids(late.rows), 'c2,c4');
    // Without a difference the app gets no call.
    proxy.cut();
    await inState(bob, 'waiting');
    proxy.restore();
    await inState(bob, 'open');
    await cards(alice, collection, 5);
    assert.equal(await changes.next(), 'added c5 3');
  });

  test('a restart of the server and a new connect() continue the query', async (t) => {
    const server = await Server.during(t);
    const [alice, bob] = [await connected(t, server.address), await connected(t, server.address)];
    const collection = collectionOf();
    await cards(alice, collection, 1);
    const open = await ready(openQuery(bob.record, collection, { sort: ['position'] }));
    await server.kill();
    await server.start();
    await inState(alice, 'open');
    await cards(alice, collection, 2);
    await shows(open, 'c1,c2');
    bob.close();
    assert.throws(() => openQuery(bob.record, collection), { code: 'CLOSED' });
    await cards(alice, collection, 3);
    await within(DEADLINE_MS, bob.connect(), 'second login');
    await shows(open, 'c1,c2,c3');
  });

  test('an edit of an open record shows at once in all results, without a connection too, and a refused one is rolled back', async (t) => {
    const permissions = `
presence: { '*': { allow: true } }
event: { '*': { publish: true, subscribe: true, listen: true } }
rpc: { '*': { provide: true, request: true } }
record:
  '*': { create: true, read: true, write: "data.text !== 'refused'", delete: true, listen: true, notify: true }
`;
    const server = await Server.during(t, { permissions });
    const proxy = await Proxy.during(t, server);
    const [alice, bob] = [await connected(t, server.address), await connected(t, proxy.address, { errors: ['MESSAGE_DENIED'] })];
    const collection = collectionOf();
    await cards(alice, collection, 1, 3, 5);
    const open = await ready(openQuery(bob.record, collection, { where: { done: false }, sort: ['position'] }));
    const done = await ready(openQuery(bob.record, collection, { where: { done: true } }));
    const changes = new Inbox<string>('changes');
    open.subscribe((_rows, all) => changes.push(all.map(summary).join()));
    await changes.next();
    const record = bob.record.open(`${collection}/c3`);
    await within(DEADLINE_MS, record.ready, 'the record');
    await import('../../packages/client/src/local-edits.ts');
    await new Promise((next) => setImmediate(next));
    record.set('position', 7);
    assert.deepEqual([ids(open.rows), ids(done.rows)], ['c1,c5,c3', '']);
    record.set('done', true);
    assert.deepEqual([ids(open.rows), ids(done.rows)], ['c1,c5', 'c3']);
    await within(DEADLINE_MS, record.saved(), 'the edits are on disk');
    assert.deepEqual([ids(open.rows), ids(done.rows)], ['c1,c5', 'c3']);
    await eventually(() => done.rows?.[0]?.version === record.version, 'the row of the server arrives');
    assert.deepEqual(changes.seen.slice(1), ['moved c5 1,changed c3 2', 'removed c3 2'], 'the server has confirmed the same rows');
    proxy.cut();
    await inState(bob, 'waiting');
    record.set('done', false);
    assert.deepEqual([ids(open.rows), ids(done.rows)], ['c1,c5,c3', '']);
    await cards(alice, collection, 9);
    proxy.restore();
    await shows(open, 'c1,c5,c3,c9');
    await within(DEADLINE_MS, record.saved(), 'the edit is on disk');
    assert.deepEqual([ids(open.rows), ids(done.rows)], ['c1,c5,c3,c9', '']);
    await assert.rejects(record.patch({ text: 'refused', position: 0 }), { code: 'MESSAGE_DENIED' });
    assert.ok(changes.seen.some((text) => text.includes('changed c3 0')), 'the refused edit was shown');
    await shows(open, 'c1,c5,c3,c9');
    assert.equal(open.rows?.[2]?.data.text, 'card 3');
  });

  test('another login of the session shows the rows of its rights', async (t) => {
    const permissions = `
presence: { '*': { allow: true } }
event: { '*': { publish: true, subscribe: true, listen: true } }
rpc: { '*': { provide: true, request: true } }
record:
  '*': { create: true, read: "user.data.level >= oldData.position", write: true, delete: true, listen: true, notify: true }
`;
    const auth = { chain: ['jwt'], jwt: { secret: 'a secret for tests that is long enough' } };
    const server = await Server.during(t, { permissions, auth });
    const login = (level: number) => ({ token: server.token('--user', 'bob', '--claim', `level=${level}`) });
    const alice = await connected(t, server.address, { auth: login(9) });
    const bob = await connected(t, server.address, { auth: login(2) });
    const collection = collectionOf();
    await cards(alice, collection, 1, 2, 3);
    const open = await ready(openQuery(bob.record, collection, { sort: ['position'] }));
    assert.equal(ids(open.rows), 'c1,c2');
    const changes = new Inbox<string>('changes');
    open.subscribe((_rows, all) => changes.push(all.map(summary).join()));
    await changes.next();
    await within(DEADLINE_MS, bob.renew(login(3)), 'renewal');
    assert.equal(await changes.next(), 'added c3 2');
    await within(DEADLINE_MS, bob.renew(login(1)), 'renewal');
    assert.equal(await changes.next(), 'removed c2 1,removed c3 2');
  });
});
