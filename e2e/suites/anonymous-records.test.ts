// Anonymous records: one object that can switch to another record and keeps its subscriptions.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { connect, discarded, pair } from '../harness/client.ts';
import { covers } from '../harness/coverage.ts';
import { WHOLE_DRIVERS, peers } from '../harness/driver/driver.ts';
import { fresh } from '../harness/names.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, within } from '../harness/wait.ts';

for (const driver of WHOLE_DRIVERS) {
  describe(`anonymous records with ${driver.name}`, { concurrency: 8 }, () => {
    let server: Server;
    before(async () => {
      server = await Server.start();
    });
    after(() => server.dispose());

    test('reads, writes and follows the record of its name', async (t) => {
      const [alice, bob] = await peers(driver, t, server);
      const name = fresh('record');
      const mine = alice.anonymous();
      assert.equal(mine.get(), undefined);
      const seen = mine.changes('b');
      await mine.switchTo(name);
      await mine.setAtWithAck('a', 1);
      const theirs = await bob.record(name);
      await theirs.setAtWithAck('b', 2);
      assert.equal(await seen.find((value) => value !== undefined), 2);
      assert.deepEqual([mine.get(), mine.get('a')], [{ a: 1, b: 2 }, 1]);
    });

    test('moves its subscriptions to the next name', async (t) => {
      const [alice, bob] = await peers(driver, t, server);
      const [first, second] = [fresh('record'), fresh('record')];
      const theirs = [await bob.record(first), await bob.record(second)] as const;
      await theirs[0].setWithAck({ value: 'first' });
      await theirs[1].setWithAck({ value: 'second' });
      const mine = alice.anonymous();
      const [seen, silent] = [mine.changes('value'), mine.changes('value')];
      await mine.switchTo(first);
      for (const inbox of [seen, silent]) await inbox.find((value) => value === 'first');
      silent.stop();
      await mine.switchTo(second);
      await seen.find((value) => value === 'second');
      await theirs[0].setAtWithAck('value', 'stale');
      await theirs[1].setAtWithAck('value', 'current');
      await seen.find((value) => value === 'current');
      const heard = (all: unknown[]): unknown[] => all.filter((value) => value !== undefined);
      assert.deepEqual([heard(seen.seen), heard(silent.seen)], [['first', 'second', 'current'], ['first']]);
    });

    test('sends edits made before a switch to the server', async (t) => {
      const [alice, bob] = await peers(driver, t, server);
      const [first, second] = [fresh('record'), fresh('record')];
      const mine = alice.anonymous();
      await mine.switchTo(first);
      mine.setAt('edited', true);
      await mine.switchTo(second);
      assert.deepEqual(mine.get(), {});
      await eventually(async () => JSON.stringify(await bob.snapshot(first)) === '{"edited":true}', 'the edit is at the server');
    });

    test('follows the last name when it is switched twice at once', async (t) => {
      const [alice, bob] = await peers(driver, t, server);
      const [first, second] = [fresh('record'), fresh('record')];
      await (await bob.record(first)).setWithAck({ value: 'first' });
      await (await bob.record(second)).setWithAck({ value: 'second' });
      const mine = alice.anonymous();
      void mine.switchTo(first);
      await mine.switchTo(second);
      assert.equal(mine.get('value'), 'second');
    });
  });
}

describe('anonymous records of deepstream clients', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start();
  });
  after(() => server.dispose());

  test('reads, writes and follows the record of its name', async (t) => {
    const [alice, bob] = await pair(t, server);
    const name = fresh('record');
    const mine = alice.record.getAnonymousRecord();
    const named = new Inbox<string>('nameChanged');
    mine.on('nameChanged', named.push);
    await within(DEADLINE_MS, mine.setName(name), 'setName');
    assert.deepEqual([named.seen, mine.name, mine.isReady, mine.version], [[name], name, true, 0]);
    await mine.setWithAck('a', 1 as never);
    mine.set('b', 2 as never);
    const seen = new Inbox<unknown>('values');
    mine.subscribe('c', seen.push);
    await eventually(async () => (await bob.record.head(name)) === 2, 'both writes are at the server');
    await bob.record.setDataWithAck(name, 'c', 3 as never);
    assert.equal(await seen.next(), 3);
    assert.deepEqual(mine.get(), { a: 1, b: 2, c: 3 });
    assert.equal(mine.get('a'), 1);
    const methods = ['setName', 'get', 'set', 'setWithAck', 'subscribe'] as const;
    covers(methods.map((method) => `AnonymousRecord.${method}` as const), 'success');
    covers('RecordHandler.getAnonymousRecord', 'success');
  });

  test('setName and whenReady call their callbacks', async (t) => {
    const client = await connect(t, server);
    const mine = client.record.getAnonymousRecord();
    const ready = new Inbox<unknown>('callbacks');
    mine.setName(fresh('record'), ready.push);
    assert.equal(await ready.next(), mine);
    mine.whenReady(ready.push);
    assert.equal(await ready.next(), mine);
    assert.equal(await mine.whenReady(), mine);
    covers('AnonymousRecord.whenReady', 'success');
  });

  test('is empty and does nothing without a name', async (t) => {
    const client = await connect(t, server);
    const mine = client.record.getAnonymousRecord();
    assert.deepEqual([mine.name, mine.isReady, mine.version, mine.get()], ['', false, -1, undefined]);
    mine.set({ a: 1 });
    mine.discard();
    assert.equal(mine.setWithAck({ a: 1 }), undefined);
    assert.equal(mine.delete(), undefined);
    assert.deepEqual(client.record.names(), []);
  });

  test('does not call an unsubscribed callback', async (t) => {
    const client = await connect(t, server);
    const mine = client.record.getAnonymousRecord();
    await mine.setName(fresh('record'));
    const [silent, loud] = [new Inbox<unknown>('silent'), new Inbox<unknown>('loud')];
    mine.subscribe('a', silent.push);
    mine.subscribe('a', loud.push);
    mine.unsubscribe('a', silent.push);
    mine.set('a', 1 as never);
    assert.equal(await loud.next(), 1);
    assert.deepEqual(silent.seen, []);
    covers('AnonymousRecord.unsubscribe', 'success');
  });

  test('can be discarded, deleted and given a strategy', async (t) => {
    const [alice, bob] = await pair(t, server);
    const [first, second] = [fresh('record'), fresh('record')];
    const mine = alice.record.getAnonymousRecord();
    await mine.setName(first);
    mine.setMergeStrategy((_local, _localVersion, remote, _remoteVersion, done) => done(null, remote));
    mine.discard();
    await discarded(alice, first);
    const other = alice.record.getAnonymousRecord();
    await other.setName(second);
    await other.delete();
    assert.equal(await bob.record.has(first), true);
    assert.equal(await bob.record.has(second), false);
    covers(['AnonymousRecord.discard', 'AnonymousRecord.delete', 'AnonymousRecord.setMergeStrategy'], 'success');
  });

  test('erases a path that is set to undefined; the erase methods always throw', async (t) => {
    const [alice, bob] = await pair(t, server);
    const name = fresh('record');
    const mine = alice.record.getAnonymousRecord();
    await mine.setName(name);
    await mine.setWithAck({ keep: 1, drop: 2 });
    assert.throws(() => mine.erase('drop'), /Invalid set path/);
    assert.throws(() => mine.eraseWithAck('drop'), /Invalid set path/);
    await mine.setWithAck('drop', undefined);
    assert.deepEqual(await bob.record.snapshot(name), { keep: 1 });
    covers(['AnonymousRecord.erase', 'AnonymousRecord.eraseWithAck'], 'refusal');
  });
});
