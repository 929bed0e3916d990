// Events: what is published reaches every subscriber but the publisher's own socket, whole and in order.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { C, connect, pair, subscribed } from '../harness/client.ts';
import { covers } from '../harness/coverage.ts';
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

describe('events', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start();
  });
  after(() => server.dispose());

  test('an event reaches every subscriber', async (t) => {
    const name = fresh('event');
    const [alice, bob, carol] = [await connect(t, server), await connect(t, server), await connect(t, server)];
    const inboxes = [await subscribed(bob, name), await subscribed(carol, name)];
    alice.event.emit(name, { text: 'hello' });
    for (const inbox of inboxes) assert.deepEqual(await inbox.next(), { text: 'hello' });
    covers(['EventHandler.subscribe', 'EventHandler.emit'], 'success');
  });

  test('the publisher hears its own event once, from itself', async (t) => {
    const name = fresh('event');
    const [alice, bob] = await pair(t, server);
    const own = await subscribed(alice, name);
    const other = await subscribed(bob, name);
    alice.event.emit(name, 'first');
    assert.equal(await other.next(), 'first');
    bob.event.emit(name, 'second');
    assert.equal(await own.find((value) => value === 'second'), 'second');
    assert.deepEqual(own.seen, ['first', 'second']);
  });

  test('every JSON value arrives as it was sent', async (t) => {
    const name = fresh('event');
    const [alice, bob] = await pair(t, server);
    const inbox = await subscribed(bob, name);
    for (const value of VALUES) alice.event.emit(name, value as C.EventData);
    assert.deepEqual(await inbox.count(VALUES.length), VALUES);
  });

  test('names are any text, and are not patterns', async (t) => {
    const base = fresh('event');
    const names = [`${base}/.*`, `${base}/ü 日本 🎉`, `${base}/"quotes"\\`, `${base}/%_EVERYONE_%`, ` ${base} `];
    const [alice, bob] = await pair(t, server);
    const inboxes = await Promise.all(names.map((name) => subscribed(bob, name)));
    for (const name of names) alice.event.emit(name, name);
    for (const [i, inbox] of inboxes.entries()) assert.equal(await inbox.next(), names[i]);
    alice.event.emit(`${base}/something`, 'matched by a pattern');
    alice.event.emit(names[0] as string, 'end');
    assert.equal(await inboxes[0]?.next(), 'end');
  });

  test('nothing arrives after unsubscribing', async (t) => {
    const [name, end] = [fresh('event'), fresh('end')];
    const [alice, bob] = await pair(t, server);
    const inbox = await subscribed(bob, name);
    const ended = await subscribed(bob, end);
    alice.event.emit(name, 1);
    await inbox.next();
    bob.event.unsubscribe(name, inbox.push);
    await bob.wire.acknowledged('EVENT', C.EVENT_ACTION.UNSUBSCRIBE, name);
    const stray = bob.wire.receives((message) => message.name === name || message.name === end);
    alice.event.emit(name, 2);
    alice.event.emit(end, null);
    await ended.next();
    assert.equal((await stray).name, end);
    assert.deepEqual(inbox.seen, [1]);
    covers('EventHandler.unsubscribe', 'success');
  });

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

  test('events of one publisher arrive in the order in which they were sent', async (t) => {
    const names = Array.from({ length: 5 }, () => fresh('event'));
    const [alice, bob] = await pair(t, server);
    const inboxes = await Promise.all(names.map((name) => subscribed(bob, name)));
    for (let i = 0; i < 1_000; i += 1) names.forEach((name) => alice.event.emit(name, i));
    const expected = Array.from({ length: 1_000 }, (_, i) => i);
    for (const inbox of inboxes) assert.deepEqual(await inbox.count(1_000), expected);
  });

  test('sockets of one user are separate peers', async (t) => {
    const name = fresh('event');
    const login = { username: fresh('user') };
    const [phone, desk] = await pair(t, server, { login });
    const inbox = await subscribed(desk, name);
    phone.event.emit(name, 'from the phone');
    assert.equal(await inbox.next(), 'from the phone');
  });

  test('five hundred names subscribed in one message all deliver', async (t) => {
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

  test('names subscribed one by one deliver, too', async (t) => {
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

  test('arguments that are no names or callbacks are refused by the client', async (t) => {
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
