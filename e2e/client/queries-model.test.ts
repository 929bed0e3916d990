// Live queries through random edits of two clients, losses, silent networks, slow reading, restarts of the server, new logins and changed
// owners. When all edits have arrived, each result equals the evaluation of its query over the records of the model.

import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import type { Client, TidewireError } from '../../packages/client/src/index.ts';
import { fetchQuery, openQuery, type QueryChange, type QueryHandle, type QueryInput, type Row } from '../../packages/client/src/live-query.ts';
import { Query } from '../../packages/client/src/query.ts';
import { client, inState } from '../harness/driver/tidewire.ts';
import { fresh } from '../harness/names.ts';
import { Proxy } from '../harness/proxy.ts';
import { Random } from '../harness/random.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, within } from '../harness/wait.ts';

const SEED = Number(process.env['QUERY_SEED'] ?? Date.now() % 2 ** 31);
const ROUNDS = Number(process.env['QUERY_ROUNDS'] ?? 24);
const EDITS = 12;
const SECRET = 'a secret of the e2e suite, long enough for HMAC';

interface Card {
  owner: string;
  done: boolean;
  points: number | null;
  tags: string[];
  text: string;
}

const QUERIES: QueryInput[] = [
  {},
  { where: { done: false }, sort: ['points'], limit: 4 },
  { sort: { points: -1, text: 1 }, offset: 2, limit: 3 },
  { where: { $or: [{ tags: 'red' }, { points: { $gte: 7 } }] }, sort: [['text', 'desc']], limit: 5 },
  { where: { tags: { $all: ['red', 'blue'] } }, select: ['text', 'tags'] },
  { where: { points: { $in: [1, 2, 3, null] } }, sort: ['done', 'points'], offset: 1 },
  { where: { text: { $regex: '^[a-m]' } }, sort: ['text'], limit: 2 },
  { where: 'c3' },
];

/** A handle with the copy of an app that follows only the changes. */
class Followed {
  readonly #copy = new Map<string, Row>();
  readonly handle: QueryHandle;

  constructor(made: Client, collection: string, readonly query: QueryInput) {
    this.handle = openQuery(made.record, collection, query);
    this.handle.subscribe((rows, changes) => this.#apply(rows, changes));
  }

  #apply(rows: readonly Row[], changes: readonly QueryChange[]): void {
    for (const { kind, row, index } of changes) {
      assert.equal(this.#copy.has(row.id), kind !== 'added', `${kind} ${row.id}`);
      if (kind === 'removed') this.#copy.delete(row.id);
      else {
        assert.equal(rows[index], row);
        this.#copy.set(row.id, row);
      }
    }
    assert.ok(rows.length === this.#copy.size && rows.every((row) => this.#copy.get(row.id) === row), 'the changes lead to the rows');
  }

  /** Waits until the rows are the records of the model that the query selects. */
  async equals(model: Map<string, Card>): Promise<void> {
    const query = new Query(this.query);
    const expected = query.run([...model].map(([id, value]) => ({ id, value }))).map(({ id, value }) => ({ id, data: query.project(value) }));
    const shown = (): unknown => this.handle.rows?.map(({ id, data }) => ({ id, data }));
    const text = JSON.stringify(expected);
    await eventually(() => JSON.stringify(shown()) === text, `the rows of ${JSON.stringify(this.query)}`).catch(() => assert.deepEqual(shown(), expected));
  }
}

function card(random: Random): Card {
  return {
    owner: random.of(['alice', 'bob', 'carol']),
    done: random.once(2),
    points: random.once(6) ? null : random.below(10),
    tags: ['red', 'blue', 'green'].filter(() => random.once(2)),
    text: random.of([...'abcmnz']) + random.below(3),
  };
}

/** Two clients edit a part of the records each, at the same time. Fulfilled when all edits are on the server's disk. */
async function edited(editors: readonly Client[], collection: string, model: Map<string, Card>, random: Random): Promise<void> {
  const work = editors.map(async (editor, who) => {
    const edits = Array.from({ length: EDITS / editors.length }, () => ({ id: `c${random.below(8) * 2 + who}`, value: card(random), isRemoval: random.once(5) }));
    for (const { id, value, isRemoval } of edits) {
      if (isRemoval) model.delete(id);
      else model.set(id, value);
      const name = `${collection}/${id}`;
      await within(DEADLINE_MS, isRemoval ? editor.record.delete(name) : editor.record.set(name, value), `edit of ${name}`);
    }
  });
  await Promise.all(work);
}

async function connected(t: TestContext, address: string, auth: object = {}): Promise<Client> {
  const made = client(t, address, { auth });
  await within(DEADLINE_MS, made.connect(), 'login');
  return made;
}

test('results equal full evaluations through random edits, losses, silence and restarts', { timeout: 240_000 }, async (t) => {
  console.log(`QUERY_SEED=${SEED}`);
  const random = new Random(SEED);
  const server = await Server.during(t);
  const proxy = await Proxy.during(t, server);
  const collection = fresh('model');
  const model = new Map<string, Card>();
  const editors = [await connected(t, server.address), await connected(t, server.address)];
  const reader = client(t, proxy.address, { heartbeatIntervalMs: 300, staleAfterMs: 300 });
  await within(DEADLINE_MS, reader.connect(), 'login');
  const followed = QUERIES.map((query) => new Followed(reader, collection, query));
  const own = await Promise.all(['o1', 'o2', 'o3'].map(async (id) => {
    const record = reader.record.open(`${collection}/${id}`);
    await within(DEADLINE_MS, record.ready, 'record');
    const value = card(random);
    model.set(id, value);
    await record.setWithAck(value);
    return record;
  }));
  const counts: Record<string, number> = {};
  for (let round = 0; round < ROUNDS; round += 1) {
    const fault = random.of(['none', 'none', 'cut', 'silence', 'stall', 'restart', 'reopen']);
    counts[fault] = (counts[fault] ?? 0) + 1;
    if (fault === 'cut') proxy.cut();
    else if (fault === 'silence') proxy.silence(random.of(['answers', 'all']));
    else if (fault === 'stall') proxy.stall();
    else if (fault === 'reopen') followed.splice(random.below(followed.length), 1).forEach((one) => (one.handle.close(), followed.push(new Followed(reader, collection, one.query))));
    const edits = edited(editors, collection, model, random);
    // The reader edits records that no other client edits, through handles, so that its edits show before the server has them.
    for (const one of own) {
      if (random.once(2)) continue;
      const value = card(random);
      model.set(one.name.slice(collection.length + 1), value);
      one.set(value);
    }
    if (fault === 'restart') {
      // The edits wait for the next session; each has a key, so it is made once.
      await server.kill();
      await server.start();
    }
    await edits;
    if (fault === 'silence') await eventually(() => reader.state !== 'open', 'the reader notices the silence');
    if (fault === 'stall') proxy.readOn();
    if (fault === 'cut' || fault === 'silence') proxy.restore();
    await inState(reader, 'open');
    await within(DEADLINE_MS, Promise.all(own.map((record) => record.saved())), 'the edits of the reader');
    for (const one of followed) await one.equals(model);
    const once = await fetchQuery((editors[0] as Client).record, collection, QUERIES[1] as QueryInput, { count: true });
    assert.deepEqual(once.rows.map(({ id }) => id), followed.find(({ query }) => query === QUERIES[1])?.handle.rows?.map(({ id }) => id));
    assert.equal(once.count, [...model.values()].filter(({ done }) => !done).length);
  }
  console.log(`${ROUNDS} rounds of ${EDITS} edits, ${ROUNDS * QUERIES.length} results equal: ${JSON.stringify(counts)}`);
});

test('records leave and enter by their owner and by other logins of the session', { timeout: 120_000 }, async (t) => {
  const random = new Random(SEED);
  const permissions = `
presence: { '*': { allow: true } }
event: { '*': { publish: true, subscribe: true, listen: true } }
rpc: { '*': { provide: true, request: true } }
record:
  '*': { create: true, read: "user.data.role === 'editor' || (oldData.owner === user.data.name && user.data.role === 'reader')", write: true, delete: true, listen: true, notify: true }
`;
  const server = await Server.during(t, { permissions, auth: { chain: ['jwt'], jwt: { secret: SECRET } } });
  const login = (user: string, role: string, name = user): object => ({ token: server.token('--user', user, '--claim', `role=${role}`, '--claim', `name=${name}`) });
  const collection = fresh('owned');
  const model = new Map<string, Card>();
  const editors = [await connected(t, server.address, login('ed', 'editor')), await connected(t, server.address, login('ed', 'editor'))];
  const reader = await connected(t, server.address, login('eve', 'reader', 'alice'));
  const followed = QUERIES.map((query) => new Followed(reader, collection, query));
  const all = QUERIES.map((query) => new Followed(editors[0] as Client, collection, query));
  const owned = (name: string): Map<string, Card> => new Map([...model].filter(([, { owner }]) => owner === name));
  for (let round = 0; round < 8; round += 1) {
    await edited(editors, collection, model, random);
    const name = random.of(['alice', 'bob', 'carol']);
    // The login changes while the edits still arrive at the reader.
    await within(DEADLINE_MS, reader.renew(login('eve', 'reader', name)), 'renewal');
    for (const one of followed) await one.equals(owned(name));
    for (const one of all) await one.equals(model);
  }
  await within(DEADLINE_MS, reader.renew(login('eve', 'guest')), 'renewal');
  for (const one of followed) await one.equals(new Map());
  await edited(editors, collection, model, random);
  await within(DEADLINE_MS, reader.renew(login('eve', 'editor')), 'renewal');
  for (const one of followed) await one.equals(model);
});

test('queries beyond the limit and invalid ones are refused, and the others continue through a loss', { timeout: 60_000 }, async (t) => {
  const server = await Server.during(t, { limits: { live_queries_max: 5 } });
  const proxy = await Proxy.during(t, server);
  const editor = await connected(t, server.address);
  const reader = await connected(t, proxy.address);
  const collection = fresh('limited');
  const ends = new Inbox<TidewireError>('ends');
  const open = (limit: number): QueryHandle => openQuery(reader.record, collection, { limit }, { onEnd: ends.push });
  const handles = Array.from({ length: 8 }, (_, limit) => open(limit));
  const invalid = openQuery(reader.record, collection, { where: { $and: [] } }, { onEnd: ends.push });
  await assert.rejects(within(DEADLINE_MS, invalid.ready, 'a refusal'), { code: 'INVALID_QUERY', data: { at: '/where/$and', fault: 'bad-operand' } });
  await Promise.allSettled(handles.map(({ ready }) => within(DEADLINE_MS, ready, 'an answer')));
  assert.deepEqual(handles.map(({ error }) => error?.code), [...Array(5).fill(undefined), ...Array(3).fill('TOO_MANY_QUERIES')]);
  assert.equal(ends.seen.length, 4);
  proxy.cut();
  await inState(reader, 'waiting');
  await editor.record.set(`${collection}/a`, { text: 'a' });
  proxy.restore();
  await eventually(() => handles.slice(1, 5).every(({ rows }) => rows?.length === 1), 'all queries within the limit have the record');
  handles[0]?.close();
  const next = open(7);
  await within(DEADLINE_MS, next.ready, 'rows');
  assert.equal(next.rows?.length, 1);
  assert.equal(ends.seen.length, 4);
});
