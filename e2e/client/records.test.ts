// The records of `@tidewire/client` on Node against the real server: values at two clients, conflicts, refusals, losses, restarts, and
// random edits through random losses.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import type { Client, RecordHandle, TidewireError } from '../../packages/client/src/index.ts';
import { listen } from '../../packages/client/src/listen.ts';
import { client, inState } from '../harness/driver/tidewire.ts';
import { fresh } from '../harness/names.ts';
import { Proxy } from '../harness/proxy.ts';
import { Random } from '../harness/random.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, within } from '../harness/wait.ts';

interface Todo {
  title: string;
  done?: boolean;
  tags?: string[];
  counts?: Record<string, number>;
}

interface App {
  records: { [name: `record/${string}`]: Todo };
}

const nameOf = (): `record/${string}` => fresh('record') as `record/${string}`;

/** Counts the updates that were made in a part of the document that no other edit of the tests touches. */
const increment = (todo: Todo): Todo => ({ ...todo, counts: { ...todo.counts, all: (todo.counts?.['all'] ?? 0) + 1 } });

async function connected(t: TestContext, address: string, options: Parameters<typeof client>[2] = {}): Promise<Client<App>> {
  const made = client<App>(t, address, options);
  await within(DEADLINE_MS, made.connect(), 'login');
  return made;
}

async function opened(made: Client<App>, name: `record/${string}`): Promise<RecordHandle<Todo>> {
  const record = made.record.open(name);
  await within(DEADLINE_MS, record.ready, `record ${name}`);
  return record;
}

describe('records', { concurrency: 4, timeout: 60_000 }, () => {
  test('another client receives each write, by path and whole', async (t) => {
    const server = await Server.during(t);
    const [alice, bob] = [await connected(t, server.address), await connected(t, server.address)];
    const name = nameOf();
    const [mine, theirs] = [await opened(alice, name), await opened(bob, name)];
    assert.deepEqual([mine.value, mine.version], [{}, 0]);
    const titles = new Inbox<string | undefined>('titles');
    const stop = theirs.subscribe('title', titles.push);
    await mine.setWithAck({ title: 'milk', tags: ['a'] });
    await mine.setWithAck('tags[1]', 'b');
    mine.set('title', 'bread');
    assert.equal(mine.get('title'), 'bread');
    assert.equal(mine.isSaved, false);
    await mine.patch({ done: true, 'tags[0]': 'c' });
    await eventually(() => theirs.get('done'), 'the last change arrives');
    assert.deepEqual(theirs.value, { title: 'bread', tags: ['c', 'b'], done: true });
    assert.deepEqual(titles.seen, [undefined, 'milk', 'bread']);
    assert.deepEqual([mine.value, mine.version, mine.isSaved], [theirs.value, theirs.version, true]);
    stop();
    await mine.setWithAck('done', undefined);
    await eventually(() => theirs.get('done') === undefined, 'the removal arrives');
    assert.deepEqual(await bob.record.get(name), { title: 'bread', tags: ['c', 'b'] });
  });

  test('records are read, replaced and deleted without being opened', async (t) => {
    const server = await Server.during(t);
    const [alice, bob] = [await connected(t, server.address), await connected(t, server.address)];
    const name = nameOf();
    assert.equal(await alice.record.get(name), undefined);
    await alice.record.set(name, { title: 'one' });
    const theirs = await opened(bob, name);
    assert.deepEqual(theirs.value, { title: 'one' });
    const ends = new Inbox<TidewireError>('ends');
    bob.record.open(name, { onEnd: ends.push });
    const values = new Inbox<unknown>('values');
    theirs.subscribe(values.push);
    await values.next();
    await alice.record.delete(name);
    assert.equal((await ends.next()).code, 'RECORD_DELETED');
    assert.equal(await values.next(), undefined);
    await assert.rejects(theirs.setWithAck('title', 'late'), { code: 'RECORD_DELETED' });
    await alice.record.delete(name);
    const again = await opened(bob, name);
    assert.deepEqual([again.value, again.version], [{}, 0]);
  });

  test('a closed handle receives nothing, and its edits still arrive', async (t) => {
    const server = await Server.during(t);
    const [alice, bob] = [await connected(t, server.address), await connected(t, server.address)];
    const name = nameOf();
    const [mine, second] = [await opened(alice, name), await opened(alice, name)];
    second.subscribe(() => assert.fail('a closed handle was called'));
    second.close();
    assert.throws(() => second.subscribe(() => {}), { code: 'CLOSED' });
    mine.set({ title: 'last words' });
    mine.close();
    await eventually(async () => (await bob.record.get(name))?.title === 'last words', 'the edit arrives');
    assert.deepEqual((await opened(alice, name)).value, { title: 'last words' });
  });

  test('a record that is closed and reopened immediately has its value', async (t) => {
    const server = await Server.during(t);
    const alice = await connected(t, server.address);
    const name = nameOf();
    const mine = await opened(alice, name);
    await mine.setWithAck({ title: 'milk' });
    mine.close();
    assert.deepEqual((await opened(alice, name)).value, { title: 'milk' });
  });

  test('different paths never replace each other, in any order', async (t) => {
    const server = await Server.during(t);
    const name = nameOf();
    const records = await Promise.all(Array.from({ length: 4 }, async () => opened(await connected(t, server.address), name)));
    const writes = records.flatMap((record, who) => {
      return Array.from({ length: 25 }, (_, i) => record.setWithAck(['counts', `c${who}x${i}`], i));
    });
    await within(DEADLINE_MS, Promise.all(writes), 'all writes are durable');
    await eventually(() => records.every(({ value }) => Object.keys(value?.counts ?? {}).length === 100), 'all have all');
  });

  test('an update that loses a race is repeated on the newer value', async (t) => {
    const server = await Server.during(t);
    const name = nameOf();
    const records = await Promise.all(Array.from({ length: 4 }, async () => opened(await connected(t, server.address), name)));
    await within(DEADLINE_MS, Promise.all(records.flatMap((record) => Array.from({ length: 10 }, () => record.update(increment)))), 'all updates');
    await eventually(() => records.every((record) => record.get(['counts', 'all']) === 40), 'each was made once');
  });

  test('a merge rejects the edit or calls a function', async (t) => {
    const server = await Server.during(t);
    const proxy = await Proxy.during(t, server);
    const [alice, bob] = [await connected(t, proxy.address), await connected(t, server.address)];
    const [first, second] = [nameOf(), nameOf()];
    const merges = new Inbox<unknown>('conflicts');
    const mine = [
      alice.record.open(first, { merge: 'remote' }),
      alice.record.open(second, {
        merge: ({ name: _, ...conflict }) => {
          merges.push(conflict);
          return { title: `${conflict.remote.title} and ${conflict.local.title}` };
        },
      }),
    ] as const;
    for (const record of mine) {
      await record.ready;
      await record.setWithAck({ title: 'start' });
    }
    // Neither client receives the write of the other one.
    proxy.silence('answers');
    for (const name of [first, second]) await bob.record.set(name, { title: 'bob' });
    const writes = mine.map((record) => record.setWithAck('title', 'alice'));
    writes[0]?.catch(() => undefined);
    proxy.restore();
    await assert.rejects(within(DEADLINE_MS, writes[0] as Promise<void>, 'the conflict'), { code: 'CONFLICT', subject: first });
    await within(DEADLINE_MS, writes[1] as Promise<void>, 'the merged value is durable');
    assert.deepEqual(merges.seen, [{ remote: { title: 'bob' }, local: { title: 'alice' }, base: { title: 'start' } }]);
    assert.deepEqual([await bob.record.get(first), await bob.record.get(second)], [{ title: 'bob' }, { title: 'bob and alice' }]);
    assert.deepEqual(mine.map(({ value }) => value), [{ title: 'bob' }, { title: 'bob and alice' }]);
  });

  test('a refused edit is rolled back, later edits are made, and the app receives the error', async (t) => {
    const rules = `
presence: { "*": { allow: true } }
event: { "*": { publish: true, subscribe: true, listen: true } }
rpc: { "*": { provide: true, request: true } }
record: { "*": { create: true, read: true, delete: true, listen: true, notify: true, write: "data.title !== 'forbidden'" } }
`;
    const server = await Server.during(t, { permissions: rules });
    const alice = await connected(t, server.address, { errors: ['MESSAGE_DENIED'] });
    const told = new Inbox<TidewireError>('errors');
    alice.onError(told.push);
    const mine = await opened(alice, nameOf());
    await mine.setWithAck({ title: 'fine' });
    const values = new Inbox<unknown>('titles');
    mine.subscribe('title', values.push);
    assert.equal(await values.next(), 'fine');
    values.take();
    mine.set('title', 'forbidden');
    const outcomes = await Promise.allSettled([
      mine.setWithAck('done', true),
      mine.setWithAck('title', 'forbidden'),
      mine.setWithAck('tags', ['kept']),
    ]);
    assert.deepEqual(outcomes.map(({ status }) => status), ['fulfilled', 'rejected', 'fulfilled']);
    assert.equal((await told.next()).code, 'MESSAGE_DENIED');
    assert.deepEqual(values.seen, ['forbidden', 'fine']);
    assert.deepEqual(mine.value, { title: 'fine', done: true, tags: ['kept'] });
    assert.deepEqual(await alice.record.get(mine.name as `record/${string}`), mine.value);
  });

  test('a record that a listening client provides opens like any other, before it has a provider and after', async (t) => {
    // The value must be on the disk before the provider accepts.
    const server = await Server.during(t, { listenResponseTimeoutMs: DEADLINE_MS });
    const proxy = await Proxy.during(t, server);
    const [alice, bob] = [await connected(t, server.address), await connected(t, server.address)];
    const provider = await connected(t, proxy.address);
    const served = new Inbox<string>('names that are served');
    await listen(provider.record, '^record/', async (name) => {
      await provider.record.set(name, { title: 'provided' });
      served.push(name);
      return () => served.push(`no ${name}`);
    }).ready;
    const name = nameOf();
    const mine = await opened(alice, name);
    const providers = new Inbox<boolean>('whether there is a provider');
    mine.onProvider(providers.push);
    assert.equal(await served.next(), name);
    await eventually(() => mine.get('title') === 'provided' && mine.hasProvider, 'value and provider are there');
    const theirs = await opened(bob, name);
    assert.deepEqual(theirs.value, { title: 'provided' });
    await eventually(() => theirs.hasProvider, 'a later reader knows the provider');
    providers.take();
    proxy.cut();
    assert.equal(await served.next(), `no ${name}`);
    assert.equal(await providers.next(), false);
    proxy.restore();
    assert.equal(await served.next(), name);
    assert.equal(await providers.next(), true);
    mine.close();
    theirs.close();
    assert.equal(await served.next(), `no ${name}`);
  });

  test('a write whose acknowledgement was lost is made once', async (t) => {
    const server = await Server.during(t);
    const proxy = await Proxy.during(t, server);
    const [alice, bob] = [await connected(t, proxy.address), await connected(t, server.address)];
    const name = nameOf();
    const [mine, theirs] = [await opened(alice, name), await opened(bob, name)];
    proxy.silence('answers');
    const update = mine.update(increment);
    await eventually(() => theirs.get(['counts', 'all']) === 1, 'the write was made');
    proxy.restore();
    await within(DEADLINE_MS, update, 'the acknowledgement of the repetition');
    assert.deepEqual([mine.get(['counts', 'all']), theirs.get(['counts', 'all']), theirs.version], [1, 1, 1]);
  });

  test('an update whose acknowledgement was lost when the server was killed is made once', async (t) => {
    const server = await Server.during(t);
    const proxy = await Proxy.during(t, server);
    const [alice, bob] = [await connected(t, proxy.address), await connected(t, server.address)];
    const name = nameOf();
    const [mine, theirs] = [await opened(alice, name), await opened(bob, name)];
    proxy.silence('answers');
    const update = mine.update(increment);
    await eventually(() => theirs.get(['counts', 'all']) === 1, 'the write was made');
    // The later write is durable only together with the earlier one.
    await theirs.setWithAck('title', 'later');
    await server.kill();
    await server.start();
    proxy.restore();
    await within(DEADLINE_MS, update, 'the acknowledgement of the repetition');
    await eventually(() => theirs.version === 2 && mine.version === 2, 'both have the value');
    assert.deepEqual([mine.get(['counts', 'all']), theirs.get(['counts', 'all'])], [1, 1]);
  });

  test("another client's equal update does not count as a repeated update, which is then made", async (t) => {
    const server = await Server.during(t);
    const proxy = await Proxy.during(t, server);
    const [alice, bob] = [await connected(t, proxy.address), await connected(t, server.address)];
    const name = nameOf();
    const [mine, theirs] = [await opened(alice, name), await opened(bob, name)];
    proxy.silence();
    const update = mine.update(increment);
    await theirs.update(increment);
    proxy.restore();
    await within(DEADLINE_MS, update, 'the update is made');
    await eventually(() => theirs.version === 2, 'the other client has it');
    assert.deepEqual([mine.get(['counts', 'all']), theirs.get(['counts', 'all'])], [2, 2]);
  });

  test('edits without a connection are made when it is back, also through a restart of the server', async (t) => {
    const server = await Server.during(t);
    const [alice, bob] = [await connected(t, server.address), await connected(t, server.address)];
    const name = nameOf();
    const [mine, theirs] = [await opened(alice, name), await opened(bob, name)];
    await mine.setWithAck({ title: 'before' });
    await server.kill();
    await inState(alice, 'waiting');
    mine.set('title', 'meanwhile');
    const saved = mine.setWithAck('done', true);
    assert.deepEqual(mine.value, { title: 'meanwhile', done: true });
    await server.start();
    await within(DEADLINE_MS, saved, 'the edit is durable');
    await eventually(() => theirs.get('done'), 'the other client has it');
    assert.deepEqual(theirs.value, { title: 'meanwhile', done: true });
  });
});

/** Edits of each client in the random test. */
const EDITS = 150;

test('random edits through random losses: all copies are equal, and no durable edit of a separate path is lost', { timeout: 60_000 }, async (t) => {
  const seed = Number(process.env['CLIENT_SEED'] ?? Date.now() % 2 ** 31);
  console.log(`CLIENT_SEED=${seed}`);
  const random = new Random(seed);
  const server = await Server.during(t);
  const name = nameOf();
  const peers = await Promise.all(
    Array.from({ length: 4 }, async () => {
      const proxy = await Proxy.during(t, server);
      const record = await opened(await connected(t, proxy.address), name);
      return { proxy, record };
    }),
  );
  const paths = ['title', 'tags[2]', 'tags', 'done'] as const;
  const outcomes: Array<Promise<void>> = [];
  /** Collects the outcome of an edit, which the test checks at the end. */
  const note = (edit: Promise<void>): void => {
    edit.catch(() => undefined);
    outcomes.push(edit);
  };
  let updates = 0;
  for (let i = 0; i < EDITS; i += 1) {
    for (const [who, { proxy, record }] of peers.entries()) {
      const choice = random.below(20);
      if (choice === 0) proxy.cut();
      else if (choice === 1) proxy.silence('answers');
      else if (choice < 4) proxy.restore();
      else if (choice < 6) {
        updates += 1;
        note(record.update(increment));
      } else if (choice < 12) {
        const path = random.of(paths) as 'title';
        note(record.setWithAck(path, `${who} ${i}`));
      }
      note(record.setWithAck(['counts', `c${who}`], i));
    }
    if (random.once(3)) await new Promise((done) => setImmediate(done));
    if (random.once(10)) await new Promise((done) => setTimeout(done, 10));
  }
  for (const { proxy } of peers) proxy.restore();
  const settled = await within(DEADLINE_MS, Promise.allSettled(outcomes), 'every edit has an end');
  const failed = settled.flatMap((outcome) => (outcome.status === 'rejected' ? [(outcome.reason as TidewireError).code] : []));
  // If a repeated update meets another write, the client may not know whether the update was made, and then reports WRITE_UNKNOWN.
  assert.deepEqual(failed.filter((code) => code !== 'WRITE_UNKNOWN'), []);
  const stored = await connected(t, server.address);
  const final = await stored.record.get(name);
  await eventually(() => peers.every(({ record }) => JSON.stringify(record.value) === JSON.stringify(final)), 'all copies are equal');
  peers.forEach((_, who) => assert.equal(final?.counts?.[`c${who}`], EDITS - 1));
  const made = final?.counts?.['all'] ?? 0;
  assert.ok(made >= updates - failed.length && made <= updates, `${made} of ${updates} updates, ${failed.length} not known`);
});
