// Dequeues: double-ended queues that the client stores in a record. Each operation makes several patches.

import assert from 'node:assert/strict';
import { after, before, describe, test, type TestContext } from 'node:test';
import { connect, discarded, pair, type Dequeue, type TestClient } from '../harness/client.ts';
import { covers } from '../harness/coverage.ts';
import { fresh } from '../harness/names.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, happens, within } from '../harness/wait.ts';

describe('dequeues', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start();
  });
  after(() => server.dispose());

  async function dequeue(client: TestClient, name: string): Promise<Dequeue> {
    return within(DEADLINE_MS, client.record.getDq(name).whenReady(), `dequeue ${name} is ready`);
  }

  /** One dequeue, open at two clients, with `entries` in it. */
  async function shared(t: TestContext, entries: string[]) {
    const [alice, bob] = await pair(t, server);
    const name = fresh('dequeue');
    const [mine, theirs] = [await dequeue(alice, name), await dequeue(bob, name)];
    await mine.setEntriesWithAck(entries);
    await agree(mine, theirs, entries);
    return { name, alice, bob, mine, theirs };
  }

  /** Waits until both clients have `entries`. */
  async function agree(mine: Dequeue, theirs: Dequeue, entries: string[]): Promise<void> {
    assert.deepEqual(mine.getEntries(), entries);
    await eventually(() => theirs.version === mine.version, 'the other client is at the same version');
    assert.deepEqual(theirs.getEntries(), entries);
  }

  test('a dequeue is created with its entries', async (t) => {
    const { name, mine } = await shared(t, ['a', 'b', 'c']);
    assert.deepEqual([mine.getFirst(), mine.getLast(), mine.isEmpty(), mine.name], ['a', 'c', false, name]);
    const carol = await connect(t, server);
    assert.deepEqual((await dequeue(carol, name)).getEntries(), ['a', 'b', 'c']);
    const methods = ['whenReady', 'setEntriesWithAck', 'getEntries', 'getFirst', 'getLast', 'isEmpty'] as const;
    covers(methods.map((method) => `Dequeue.${method}` as const), 'success');
    covers('RecordHandler.getDq', 'success');
  });

  const OPERATIONS: Array<[method: keyof Dequeue & string, act: (one: Dequeue) => unknown, result: string[]]> = [
    ['push', (one) => one.push('x'), ['a', 'b', 'c', 'x']],
    ['unshift', (one) => one.unshift('x'), ['x', 'a', 'b', 'c']],
    ['insertEntry', (one) => one.insertEntry('x', 1), ['a', 'x', 'b', 'c']],
    ['removeEntry', (one) => one.removeEntry('b'), ['a', 'c']],
    ['pop', (one) => assert.equal(one.pop(), 'c'), ['a', 'b']],
    ['shift', (one) => assert.equal(one.shift(), 'a'), ['b', 'c']],
    ['setEntries', (one) => one.setEntries(['x', 'y']), ['x', 'y']],
  ];
  for (const [method, act, result] of OPERATIONS) {
    test(`${method} reaches the other client`, async (t) => {
      const { mine, theirs } = await shared(t, ['a', 'b', 'c']);
      act(mine);
      await agree(mine, theirs, result);
      covers(`Dequeue.${method}` as never, 'success');
    });
  }

  test('a dequeue can be emptied and filled again', async (t) => {
    const { mine, theirs } = await shared(t, ['a']);
    mine.setEntries([]);
    await agree(mine, theirs, []);
    assert.deepEqual([theirs.isEmpty(), theirs.getFirst(), theirs.getLast()], [true, '', '']);
    mine.push('b');
    await agree(mine, theirs, ['b']);
  });

  test('subscribers receive the entries, the first and the last', async (t) => {
    const { mine, theirs } = await shared(t, ['a', 'b', 'c', 'd']);
    const [first, last] = [new Inbox<unknown>('first'), new Inbox<unknown>('last')];
    theirs.subscribe('first', first.push);
    theirs.subscribe('last', last.push);
    mine.shift();
    assert.equal(await first.next(), 'b');
    mine.pop();
    assert.equal(await last.next(), 'c');
    theirs.unsubscribe('first', first.push);
    mine.unshift('x');
    mine.push('y');
    await last.find((entry) => entry === 'y');
    assert.deepEqual(first.seen, ['b']);
    covers(['Dequeue.subscribe', 'Dequeue.unsubscribe'], 'success');
  });

  test('a deleted dequeue is gone for all clients', async (t) => {
    const { name, bob, mine, theirs } = await shared(t, ['a']);
    const other = happens(theirs, 'delete');
    await mine.delete();
    await other;
    assert.equal(await bob.record.has(name), false);
    covers('Dequeue.delete', 'success');
  });

  test('a discarded dequeue unsubscribes at the server', async (t) => {
    const { name, bob, theirs } = await shared(t, ['a']);
    theirs.discard();
    await discarded(bob, name);
    covers('Dequeue.discard', 'success');
  });

  test('the client refuses arguments that are not entries or positions', async (t) => {
    const { mine } = await shared(t, ['a', 'b', 'c']);
    assert.throws(() => mine.setEntries('a' as never), /must be an array/);
    assert.throws(() => mine.removeEntry('missing'), /no entry removed/);
    assert.throws(() => mine.subscribe('middle', () => undefined), /"first" or "last"/);
    assert.throws(() => mine.unsubscribe('middle', () => undefined), /"first" or "last"/);
  });
});
