// Events: a published event reaches every subscriber except the publisher's own socket, complete and in order.

import assert from 'node:assert/strict';
import { after, before, describe, test, type TestContext } from 'node:test';
import { C, connect, pair, subscribed } from '../harness/client.ts';
import { covers } from '../harness/coverage.ts';
import { DRIVERS, peers, type Peer, type PeerOptions } from '../harness/driver/driver.ts';
import { fresh } from '../harness/names.ts';
import { Server } from '../harness/server.ts';
import { Inbox } from '../harness/wait.ts';

const VALUES = [
  { text: 'hello', nested: { list: [1, 'two', null, { three: 3 }] } },
  ['a', 'b'],
  'text',
  '',
  'ünïcödé 日本語 🎉 \u2028 "quoted" \\ \u0000',
  42,
  -1.5e-7,
  0,
  true,
  false,
  null,
  undefined,
  { '': 'empty key', 'a.b': 'dotted' },
  'x'.repeat(100_000),
];

for (const driver of DRIVERS) {
  describe(`events with ${driver.name}`, { concurrency: 8 }, () => {
    let server: Server;
    before(async () => {
      server = await Server.start();
    });
    after(() => server.dispose());
    const connect = (t: TestContext, options?: PeerOptions): Promise<Peer> => driver.connect(t, server, options);
    const pair = (t: TestContext, options?: PeerOptions): Promise<[Peer, Peer]> => peers(driver, t, server, options);

    test('an event reaches every subscriber', async (t) => {
      const name = fresh('event');
      const [alice, bob, carol] = [await connect(t), await connect(t), await connect(t)];
      const subscriptions = [await bob.subscribe(name), await carol.subscribe(name)];
      alice.emit(name, { text: 'hello' });
      for (const { inbox } of subscriptions) assert.deepEqual(await inbox.next(), { text: 'hello' });
      covers(['EventHandler.subscribe', 'EventHandler.emit'], 'success');
    });

    test('the publisher receives its own event once, from itself', async (t) => {
      const name = fresh('event');
      const [alice, bob] = await pair(t);
      const { inbox: own } = await alice.subscribe(name);
      const { inbox: other } = await bob.subscribe(name);
      alice.emit(name, 'first');
      assert.equal(await other.next(), 'first');
      bob.emit(name, 'second');
      assert.equal(await own.find((value) => value === 'second'), 'second');
      assert.deepEqual(own.seen, ['first', 'second']);
    });

    test('every JSON value arrives unchanged', async (t) => {
      const name = fresh('event');
      const [alice, bob] = await pair(t);
      const { inbox } = await bob.subscribe(name);
      for (const value of VALUES) alice.emit(name, value);
      assert.deepEqual(await inbox.count(VALUES.length), VALUES);
    });

    test('names may be any text, and are not patterns', async (t) => {
      const base = fresh('event');
      const names = [`${base}/.*`, `${base}/ü 日本 🎉`, `${base}/"quotes"\\`, `${base}/%_EVERYONE_%`, ` ${base} `];
      const [alice, bob] = await pair(t);
      const subscriptions = await Promise.all(names.map((name) => bob.subscribe(name)));
      for (const name of names) alice.emit(name, name);
      for (const [i, { inbox }] of subscriptions.entries()) assert.equal(await inbox.next(), names[i]);
      alice.emit(`${base}/something`, 'matched by a pattern');
      alice.emit(names[0] as string, 'end');
      assert.equal(await subscriptions[0]?.inbox.next(), 'end');
    });

    test('nothing arrives after unsubscribing', async (t) => {
      const [name, end] = [fresh('event'), fresh('end')];
      const [alice, bob] = await pair(t);
      const { inbox, stop } = await bob.subscribe(name);
      const { inbox: ended } = await bob.subscribe(end);
      alice.emit(name, 1);
      await inbox.next();
      await stop();
      const stray = bob.receives((message) => message.name === name || message.name === end);
      alice.emit(name, 2);
      alice.emit(end, null);
      await ended.next();
      assert.equal((await stray).name, end);
      assert.deepEqual(inbox.seen, [1]);
      covers('EventHandler.unsubscribe', 'success');
    });

    test('events of one publisher arrive in the order in which they were sent', async (t) => {
      const names = Array.from({ length: 5 }, () => fresh('event'));
      const [alice, bob] = await pair(t);
      const subscriptions = await Promise.all(names.map((name) => bob.subscribe(name)));
      for (let i = 0; i < 1_000; i += 1) names.forEach((name) => alice.emit(name, i));
      const expected = Array.from({ length: 1_000 }, (_, i) => i);
      for (const { inbox } of subscriptions) assert.deepEqual(await inbox.count(1_000), expected);
    });

    test('sockets of one user are separate peers', async (t) => {
      const name = fresh('event');
      const login = { username: fresh('user') };
      const [phone, desk] = await pair(t, { login });
      const { inbox } = await desk.subscribe(name);
      phone.emit(name, 'from the phone');
      assert.equal(await inbox.next(), 'from the phone');
    });
  });
}

describe('events of deepstream clients', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start();
  });
  after(() => server.dispose());

  test('callbacks of one name share a subscription', async (t) => {
    const name = fresh('event');
    const [alice, bob] = await pair(t, server);
    const first = await subscribed(bob, name);
    const second = new Inbox<unknown>('second callback');
    bob.event.subscribe(name, second.push);
    alice.event.emit(name, 'both');
    await Promise.all([first.next(), second.next()]);
    bob.event.unsubscribe(name, first.push);
    alice.event.emit(name, 'one');
    assert.equal(await second.next(), 'one');
    assert.deepEqual(first.seen, ['both']);
  });

  test('five hundred names subscribed in one message all receive events', async (t) => {
    const names = Array.from({ length: 500 }, () => fresh('event'));
    const alice = await connect(t, server);
    const bob = await connect(t, server, { subscriptionInterval: 20 });
    const inbox = new Inbox<number>('five hundred names');
    const bulk = bob.wire.sends((message) => message.action === C.EVENT_ACTION.SUBSCRIBE);
    for (const [i, name] of names.entries()) bob.event.subscribe(name, () => inbox.push(i));
    assert.equal((await bulk).names?.length, 500);
    await bob.wire.acknowledged('EVENT', C.EVENT_ACTION.SUBSCRIBE, names[499]);
    for (const name of names) alice.event.emit(name, null);
    const seen = await inbox.count(500);
    assert.equal(new Set(seen).size, 500);
  });

  test('names subscribed one by one receive events, too', async (t) => {
    const name = fresh('event');
    const [alice, bob] = await pair(t, server, { subscriptionInterval: 0 });
    const inbox = await subscribed(bob, name);
    alice.event.emit(name, 1);
    assert.equal(await inbox.next(), 1);
  });

  test('a client knows which events it subscribed to', async (t) => {
    const [kept, dropped] = [fresh('event'), fresh('event')];
    const client = await connect(t, server);
    await subscribed(client, kept);
    const inbox = await subscribed(client, dropped);
    client.event.unsubscribe(dropped, inbox.push);
    assert.deepEqual(client.event.eventNames(), [kept]);
    covers('EventHandler.eventNames', 'success');
  });

  test('the client refuses arguments that are not names or callbacks', async (t) => {
    const client = await connect(t, server);
    const nothing = (): void => undefined;
    assert.throws(() => client.event.emit('', 1), /invalid argument name/);
    assert.throws(() => client.event.subscribe('', nothing), /invalid argument name/);
    assert.throws(() => client.event.subscribe('name', 1 as never), /invalid argument callback/);
    assert.throws(() => client.event.unsubscribe('', nothing), /invalid argument name/);
    assert.throws(() => client.event.listen('', nothing), /invalid argument pattern/);
    assert.throws(() => client.event.unlisten(''), /invalid argument pattern/);
  });
});
