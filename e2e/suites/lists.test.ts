// Lists: ordered names. Every client sees the same entries and the same events for added, moved and removed entries.

import assert from 'node:assert/strict';
import { after, before, describe, test, type TestContext } from 'node:test';
import type { MergeStrategy } from '@deepstream/client/dist/src/record/merge-strategy.js';
import { connect, discarded, list, pair } from '../harness/client.ts';
import { covers } from '../harness/coverage.ts';
import { WHOLE_DRIVERS, peers, type PeerList } from '../harness/driver/driver.ts';
import { fresh } from '../harness/names.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, happens, within } from '../harness/wait.ts';

/** The entries before and after a change, and the events for that change. */
const CHANGES: Array<[what: string, before: string[], after: string[], events: string[]]> = [
  ['an entry is added at the end', ['a'], ['a', 'b'], ['added b 1']],
  ['an entry is added at the front', ['a', 'b'], ['x', 'a', 'b'], ['added x 0', 'moved a 1', 'moved b 2']],
  ['an entry is added in the middle', ['a', 'b'], ['a', 'x', 'b'], ['added x 1', 'moved b 2']],
  ['an entry is removed from the end', ['a', 'b'], ['a'], ['removed b 1']],
  ['an entry is removed from the front', ['a', 'b', 'c'], ['b', 'c'], ['removed a 0', 'moved b 0', 'moved c 1']],
  ['two entries change places', ['a', 'b'], ['b', 'a'], ['moved b 0', 'moved a 1']],
  ['the last entry moves to the front', ['a', 'b', 'c'], ['c', 'a', 'b'], ['moved c 0', 'moved a 1', 'moved b 2']],
  ['the first entry moves to the end', ['a', 'b', 'c'], ['b', 'c', 'a'], ['moved b 0', 'moved c 1', 'moved a 2']],
  ['the order is reversed', ['a', 'b', 'c'], ['c', 'b', 'a'], ['moved c 0', 'moved a 2']],
  ['an entry is replaced', ['a', 'b', 'c'], ['a', 'x', 'c'], ['removed b 1', 'added x 1']],
  ['a duplicate is added', ['a', 'b'], ['a', 'b', 'a'], ['added a 2']],
  ['one of two duplicates is removed', ['a', 'b', 'a'], ['b', 'a'], ['removed a 2', 'moved b 0', 'moved a 1']],
  ['a duplicate moves', ['a', 'a', 'b'], ['a', 'b', 'a'], ['moved a 2', 'moved b 1']],
  ['everything is removed', ['a', 'b'], [], ['removed a 0', 'removed b 1']],
  ['everything is new', ['a'], ['x', 'y'], ['removed a 0', 'added x 0', 'added y 1']],
];

/** Concurrent operations of two clients on the list a, b, c. */
const RACES: Array<[what: string, first: (one: PeerList) => Promise<void>, second: (one: PeerList) => Promise<void>]> = [
  ['both add at the end', (one) => one.add('x'), (one) => one.add('y')],
  ['both add at the front', (one) => one.add('x', 0), (one) => one.add('y', 0)],
  ['one adds, the other removes', (one) => one.add('x', 1), (one) => one.remove('b')],
  ['both remove the same entry', (one) => one.remove('b'), (one) => one.remove('b')],
  ['both remove, different entries', (one) => one.remove('a'), (one) => one.remove('c')],
  ['one reorders, the other adds', (one) => one.set(['c', 'b', 'a']), (one) => one.add('x')],
  ['one empties, the other adds', (one) => one.set([]), (one) => one.add('x')],
  ['both replace everything', (one) => one.set(['x']), (one) => one.set(['y', 'z'])],
];

for (const driver of WHOLE_DRIVERS) {
  describe(`lists with ${driver.name}`, { concurrency: 8 }, () => {
    let server: Server;
    before(async () => {
      server = await Server.start();
    });
    after(() => server.dispose());

    /** One list, open at two clients, with `entries` in it. */
    async function shared(t: TestContext, entries: string[] = []) {
      const [alice, bob] = await peers(driver, t, server);
      const name = fresh('list');
      const [mine, theirs] = [await alice.list(name), await bob.list(name)];
      if (entries.length > 0) await mine.set(entries);
      await eventually(() => theirs.entries().length === entries.length, 'both clients have the entries');
      return { name, alice, bob, mine, theirs };
    }

    test('entries are added at the end or at an index', async (t) => {
      const { name, bob, mine, theirs } = await shared(t);
      const seen = theirs.changes();
      await Promise.all([mine.add('b'), mine.add('a', 0), mine.add('d', 2), mine.add('c', 2)]);
      await seen.find((entries) => entries.join() === 'a,b,c,d');
      assert.deepEqual(mine.entries(), ['a', 'b', 'c', 'd']);
      assert.deepEqual(await bob.snapshot(name), ['a', 'b', 'c', 'd']);
      covers('List.addEntry', 'success');
    });

    test('an entry is removed everywhere, or only at one index', async (t) => {
      const { mine, theirs } = await shared(t, ['a', 'b', 'a', 'b', 'a']);
      const seen = theirs.changes();
      await mine.remove('a', 2);
      assert.deepEqual(await seen.next(), ['a', 'b', 'b', 'a']);
      await mine.remove('b');
      assert.deepEqual(await seen.next(), ['a', 'a']);
      covers('List.removeEntry', 'success');
    });

    for (const [what, from, to, expected] of CHANGES) {
      test(`both clients see that ${what}`, async (t) => {
        const { mine, theirs } = await shared(t, from);
        const [own, other] = [mine.events(), theirs.events()];
        // A new handler may first receive the current entries, which are not a change.
        await Promise.resolve();
        await mine.set(to);
        assert.deepEqual(own.seen, expected);
        assert.deepEqual(await other.count(expected.length), expected);
        assert.deepEqual(theirs.entries(), to);
      });
    }

    test('a list whose record is not an array is empty', async (t) => {
      const { name, bob, mine } = await shared(t, ['a']);
      const seen = mine.changes();
      await (await bob.record(name)).setWithAck({ not: 'a list' });
      assert.deepEqual(await seen.next(), []);
      assert.deepEqual(mine.entries(), []);
    });

    for (const [what, first, second] of RACES) {
      test(`when ${what}, both clients and the server end equal`, async (t) => {
        const { name, mine, theirs } = await shared(t, ['a', 'b', 'c']);
        const judge = await driver.connect(t, server);
        const changes = Promise.all([first(mine), second(theirs)]);
        const entries = await eventually(async () => {
          const held = (await judge.snapshot(name)) as string[];
          const same = [mine, theirs].every((one) => one.entries().join() === held.join());
          return same && held.join() !== 'a,b,c' ? held : null;
        }, 'clients and server agree');
        const next = [...(entries ?? []), 'end'];
        await mine.set(next);
        await eventually(() => theirs.entries().join() === next.join(), 'later changes arrive');
        // A change that its client merged and sent again may still be in flight.
        if (driver.confirmsMerges) await within(DEADLINE_MS, changes, 'both changes are confirmed');
      });
    }
  });
}

describe('lists of deepstream clients', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start();
  });
  after(() => server.dispose());

  /** One list, open at two clients, with `entries` in it. */
  async function shared(t: TestContext, entries: string[] = []) {
    const [alice, bob] = await pair(t, server);
    const name = fresh('list');
    const [mine, theirs] = [await list(alice, name), await list(bob, name)];
    if (entries.length > 0) await mine.setEntriesWithAck(entries);
    await eventually(() => theirs.getEntries().length === entries.length, 'both clients have the entries');
    return { name, alice, bob, mine, theirs };
  }

  test('a new list is empty', async (t) => {
    const { name, mine } = await shared(t);
    assert.deepEqual([mine.getEntries(), mine.isEmpty(), mine.name, mine.version], [[], true, name, 0]);
    covers(['RecordHandler.getList', 'List.whenReady', 'List.getEntries', 'List.isEmpty'], 'success');
  });

  test('entries set by one client are the entries of all', async (t) => {
    const { name, mine, theirs } = await shared(t);
    const seen = new Inbox<string[]>('entries');
    theirs.subscribe(seen.push);
    mine.setEntries(['a', 'b', 'a']);
    assert.deepEqual(await seen.next(), ['a', 'b', 'a']);
    await mine.setEntriesWithAck(['c']);
    assert.deepEqual(await seen.next(), ['c']);
    assert.equal(theirs.isEmpty(), false);
    const carol = await connect(t, server);
    assert.deepEqual(await carol.record.snapshot(name), ['c']);
    assert.deepEqual((await list(carol, name)).getEntries(), ['c']);
    covers(['List.setEntries', 'List.setEntriesWithAck', 'List.subscribe'], 'success');
  });

  test('acknowledgements call the callbacks', async (t) => {
    const { name, mine } = await shared(t);
    const acks = new Inbox<unknown>('acknowledgements');
    mine.setEntriesWithAck(['a'], acks.push);
    assert.equal(await acks.next(), null);
    mine.setEntries(['a', 'b'], acks.push);
    assert.equal(await acks.next(), null);
    mine.addEntry('c', undefined, acks.push);
    assert.equal(await acks.next(), null);
    mine.removeEntry('a', undefined, acks.push);
    assert.equal(await acks.next(), null);
    const carol = await connect(t, server);
    assert.deepEqual(await carol.record.snapshot(name), ['b', 'c']);
  });

  test('an unsubscribed callback is not called', async (t) => {
    const { mine, theirs } = await shared(t);
    const [silent, loud] = [new Inbox<string[]>('silent'), new Inbox<string[]>('loud')];
    theirs.subscribe(silent.push);
    theirs.subscribe(loud.push);
    theirs.unsubscribe(silent.push);
    mine.setEntries(['a']);
    assert.deepEqual(await loud.next(), ['a']);
    assert.deepEqual(silent.seen, []);
    covers('List.unsubscribe', 'success');
  });

  test('a deleted list is gone for all clients', async (t) => {
    const { name, bob, mine, theirs } = await shared(t, ['a']);
    const other = happens(theirs, 'delete');
    await mine.delete();
    await other;
    assert.equal(await bob.record.has(name), false);
    const again = await list(bob, name);
    assert.deepEqual(again.getEntries(), []);
    covers('List.delete', 'success');
  });

  test('a discarded list receives no more changes', async (t) => {
    const { name, bob, mine, theirs } = await shared(t, ['a']);
    theirs.discard();
    await discarded(bob, name);
    await mine.setEntriesWithAck(['b']);
    assert.deepEqual((await list(bob, name)).getEntries(), ['b']);
    covers('List.discard', 'success');
  });

  test('the client refuses arguments that are not entries or indices', async (t) => {
    const { mine } = await shared(t, ['a']);
    assert.throws(() => mine.setEntries('a' as never), /array of record names/);
    assert.throws(() => mine.setEntries([1] as never), /array of record names/);
    assert.throws(() => mine.addEntry(1 as never), /must be a recordName/);
    assert.throws(() => mine.addEntry('b', 7), /within current entries/);
    assert.throws(() => mine.addEntry('b', NaN), /must be a number/);
    assert.throws(() => mine.removeEntry('a', -1), /within current entries/);
    assert.throws(() => mine.subscribe('path' as never), /path is not supported/);
    assert.throws(() => mine.unsubscribe('path' as never), /path is not supported/);
  });

  test('with a merge strategy, all concurrent additions are kept', async (t) => {
    const union: MergeStrategy = (local, _localVersion, remote, _remoteVersion, done) => {
      done(null, [...new Set([...(remote as string[]), ...(local as string[])])]);
    };
    const [alice, bob] = await pair(t, server, { mergeStrategy: union });
    const name = fresh('list');
    const lists = [await list(alice, name), await list(bob, name)];
    await lists[0]?.setEntriesWithAck(['start']);
    await eventually(() => lists.every((one) => one.getEntries().length === 1), 'both clients have the first entry');
    lists.forEach((one, i) => one.addEntry(`entry${i}`));
    const judge = await connect(t, server);
    await eventually(async () => {
      const held = (await judge.record.snapshot(name)) as unknown as string[];
      return held.length === 3 && lists.every((one) => one.getEntries().join() === held.join());
    }, 'clients and server agree on three entries');
  });
});
