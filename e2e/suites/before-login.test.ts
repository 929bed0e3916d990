// Before login: an operation of a client that is connected but not logged in runs after the login, or fails at once. Until the login the
// server accepts no messages from the client.

import assert from 'node:assert/strict';
import { after, before, describe, test, type TestContext } from 'node:test';
import { C, changeDequeue, connect, inState, list, record, subscribed } from '../harness/client.ts';
import type { ConnectOptions, TestClient } from '../harness/client.ts';
import { covers } from '../harness/coverage.ts';
import { fresh, freshUser, literally } from '../harness/names.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, within } from '../harness/wait.ts';

const OFFLINE = 'client offline';

describe('before login', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start();
  });
  after(() => server.dispose());

  /** A client that is connected but not logged in, and one that is logged in. */
  async function early(t: TestContext, options: ConnectOptions = {}): Promise<[TestClient, TestClient]> {
    return [await connect(t, server, { ...options, login: false }), await connect(t, server)];
  }

  async function rejection(promise: Promise<unknown> | void): Promise<unknown> {
    const outcome = Promise.resolve(promise).then(
      () => assert.fail('succeeded'),
      (reason: unknown) => reason,
    );
    return within(DEADLINE_MS, outcome, 'the operation fails');
  }

  test('event subscriptions are made after the login', async (t) => {
    const [client, other] = await early(t);
    const [kept, dropped, end] = [fresh('event'), fresh('event'), fresh('event')];
    const [seen, unseen, ended] = [new Inbox<unknown>('kept'), new Inbox<unknown>('dropped'), new Inbox<unknown>('end')];
    client.event.subscribe(kept, seen.push);
    client.event.subscribe(dropped, unseen.push);
    client.event.subscribe(end, ended.push);
    client.event.unsubscribe(dropped, unseen.push);
    assert.deepEqual(client.event.eventNames(), [kept, end]);
    await client.login();
    await client.wire.acknowledged('EVENT', C.EVENT_ACTION.SUBSCRIBE, end);
    for (const name of [kept, dropped, end]) other.event.emit(name, name);
    await ended.next();
    assert.deepEqual([seen.seen, unseen.seen], [[kept], []]);
    covers(['EventHandler.subscribe', 'EventHandler.unsubscribe', 'EventHandler.eventNames'], 'before login');
  });

  test('events are published after the login', async (t) => {
    const [client, other] = await early(t);
    const name = fresh('event');
    const inbox = await subscribed(other, name);
    const own = new Inbox<unknown>('own');
    client.event.subscribe(name, own.push);
    client.event.emit(name, 'early');
    assert.deepEqual([own.seen, inbox.seen], [['early'], []]);
    await client.login();
    assert.equal(await inbox.next(), 'early');
    covers('EventHandler.emit', 'before login');
  });

  for (const topic of ['event', 'record'] as const) {
    test(`${topic} patterns are registered after the login`, async (t) => {
      const [client, other] = await early(t);
      const [kept, dropped] = [fresh('listen'), fresh('listen')];
      const asked = new Inbox<string>('requests');
      client[topic].listen(literally(kept), (name, response) => {
        response.accept();
        asked.push(name);
      });
      client[topic].listen(literally(dropped), (name) => asked.push(name));
      client[topic].unlisten(literally(dropped));
      await client.login();
      const subscribe = (name: string): Promise<unknown> => (topic === 'event' ? subscribed : record)(other, name);
      await subscribe(dropped);
      await subscribe(kept);
      assert.equal(await asked.next(), kept);
      const handler = topic === 'event' ? 'EventHandler' : 'RecordHandler';
      covers([`${handler}.listen`, `${handler}.unlisten`], 'before login');
    });
  }

  test('rpcs are provided and called after the login', async (t) => {
    const [client, other] = await early(t);
    const [kept, dropped] = [fresh('rpc'), fresh('rpc')];
    client.rpc.provide(kept, (data, response) => response.send([data]));
    client.rpc.provide(dropped, (data, response) => response.send(data));
    client.rpc.unprovide(dropped);
    assert.deepEqual(client.rpc.providerNames(), [kept]);
    // This call leaves before the bulk message that provides, so there is no provider yet.
    const call = rejection(client.rpc.make(kept, 'own'));
    const callback = new Inbox<unknown[]>('callback');
    client.rpc.make(dropped, 'nobody', (...answer) => callback.push(answer));
    await client.login();
    await client.wire.acknowledged('RPC', C.RPC_ACTION.PROVIDE, kept);
    assert.equal((await callback.next())[0], 'NO_RPC_PROVIDER');
    assert.deepEqual(await other.rpc.make(kept, 1), [1]);
    assert.equal(await call, 'NO_RPC_PROVIDER');
    const methods = ['provide', 'unprovide', 'make', 'providerNames'] as const;
    covers(methods.map((method) => `RPCHandler.${method}` as const), 'before login');
  });

  test('presence is queried and subscribed to after the login', async (t) => {
    const [client] = await early(t);
    const [bob, carol] = [freshUser(), freshUser()];
    const changes = new Inbox<string>('changes');
    client.presence.subscribe(bob, (user) => changes.push(user));
    client.presence.subscribe((user) => user === bob && changes.push(user));
    const nothing = (): void => undefined;
    client.presence.subscribe(carol, nothing);
    client.presence.unsubscribe(carol, nothing);
    const query = client.presence.getAll([bob]);
    await client.login();
    assert.deepEqual(await query, { [bob]: false });
    await client.wire.acknowledged('PRESENCE', C.PRESENCE_ACTION.SUBSCRIBE, bob);
    await client.wire.acknowledged('PRESENCE', C.PRESENCE_ACTION.SUBSCRIBE_ALL);
    await connect(t, server, { login: { username: bob } });
    assert.deepEqual(await changes.count(2), [bob, bob]);
    const methods = ['subscribe', 'unsubscribe', 'getAll'] as const;
    covers(methods.map((method) => `PresenceHandler.${method}` as const), 'before login');
  });

  test('queries about records are sent after the login', async (t) => {
    const [client, other] = await early(t);
    const name = fresh('record');
    await other.record.setDataWithAck(name, { a: 1 });
    const answers = [client.record.snapshot(name), client.record.has(name), client.record.head(name)];
    await client.login();
    // The client sends one HEAD for `has` and `head` together.
    assert.deepEqual(await within(DEADLINE_MS, Promise.all(answers), 'answers'), [{ a: 1 }, true, 1]);
    covers(['RecordHandler.snapshot', 'RecordHandler.has', 'RecordHandler.head'], 'before login');
  });

  test('a record opened and written before the login is created after it', async (t) => {
    const [client, other] = await early(t);
    const name = fresh('record');
    const opened = await record(client, name);
    const seen = new Inbox<unknown>('values');
    opened.subscribe('a', seen.push);
    const nothing = (): void => undefined;
    opened.subscribe(nothing);
    opened.unsubscribe(nothing);
    opened.set({ a: 1, drop: 2, gone: 3 });
    opened.erase('drop');
    assert.equal(await rejection(opened.setWithAck('b', 2)), OFFLINE);
    assert.equal(await rejection(opened.eraseWithAck('gone')), OFFLINE);
    assert.match(String(await rejection(opened.delete())), /offline/);
    assert.deepEqual([opened.get(), client.record.names(), seen.seen], [{ a: 1, b: 2 }, [name], [1]]);
    assert.equal(await other.record.has(name), false);
    await client.login();
    await eventually(() => other.record.has(name), 'the record exists');
    assert.deepEqual(await other.record.snapshot(name), { a: 1, b: 2 });
    await other.record.setDataWithAck(name, 'a', 'changed' as never);
    assert.equal(await seen.find((value) => value === 'changed'), 'changed');
    const methods = ['whenReady', 'get', 'set', 'setWithAck', 'erase', 'eraseWithAck', 'delete'] as const;
    covers([...methods, 'subscribe', 'unsubscribe'].map((method) => `Record.${method}` as 'Record.set'), 'before login');
    covers(['RecordHandler.getRecord', 'RecordHandler.names'], 'before login');
  });

  test('the merge strategy merges an existing record with a write from before the login', async (t) => {
    const [client, other] = await early(t);
    const name = fresh('record');
    for (const remote of [1, 2, 3]) await other.record.setDataWithAck(name, { remote });
    const opened = await record(client, name);
    const calls = new Inbox<unknown[]>('calls of the strategy');
    client.record.setMergeStrategyRegExp(new RegExp(literally(name)), () => assert.fail('a strategy by name takes precedence'));
    client.record.setMergeStrategy(name, () => assert.fail('was replaced'));
    opened.setMergeStrategy((local, _localVersion, remote, remoteVersion, done) => {
      calls.push([local, remote, remoteVersion]);
      done(null, remote);
    });
    opened.set({ local: 1 });
    await client.login();
    assert.deepEqual(await calls.next(), [{ local: 1 }, { remote: 3 }, 3]);
    await eventually(() => opened.version === 3, 'the record is at the version of the server');
    assert.deepEqual(opened.get(), { remote: 3 });
    assert.deepEqual(await other.record.snapshot(name), { remote: 3 });
    covers(['RecordHandler.setMergeStrategy', 'RecordHandler.setMergeStrategyRegExp'], 'before login');
    covers('Record.setMergeStrategy', 'before login');
  });

  test('a record discarded before the login is not subscribed to', async (t) => {
    const [client, other] = await early(t);
    const [discarded, end] = [fresh('record'), fresh('event')];
    const opened = await record(client, discarded);
    opened.discard();
    await eventually(() => client.record.names().length === 0, 'the record is gone locally');
    const ended = new Inbox<unknown>('end');
    client.event.subscribe(end, ended.push);
    await client.login();
    await client.wire.acknowledged('EVENT', C.EVENT_ACTION.SUBSCRIBE, end);
    const stray = client.wire.receives((message) => message.name === discarded || message.name === end);
    await other.record.setDataWithAck(discarded, { a: 1 });
    other.event.emit(end, null);
    await ended.next();
    assert.equal((await stray).name, end);
    covers('Record.discard', 'before login');
  });

  test('writes without an open record fail and leave nothing behind', async (t) => {
    const [client, other] = await early(t);
    const names = [fresh('record'), fresh('record')];
    client.record.setData(names[0] as string, { a: 1 });
    assert.equal(await rejection(client.record.setDataWithAck(names[1] as string, { a: 1 })), OFFLINE);
    assert.equal(await rejection(client.record.notify(names)), OFFLINE);
    assert.throws(() => client.record.delete(names[0] as string), /not yet supported/);
    await client.login();
    assert.deepEqual(await Promise.all(names.map((name) => client.record.has(name))), [false, false]);
    assert.equal(await other.record.has(names[0] as string), false);
    const methods = ['setData', 'setDataWithAck', 'notify', 'delete'] as const;
    covers(methods.map((method) => `RecordHandler.${method}` as const), 'before login');
  });

  test('a list filled before the login is created after it', async (t) => {
    const [client, other] = await early(t);
    const name = fresh('list');
    const opened = await list(client, name);
    const seen = new Inbox<string[]>('entries');
    opened.subscribe(seen.push);
    const nothing = (): void => undefined;
    opened.subscribe(nothing);
    opened.unsubscribe(nothing);
    assert.equal(opened.isEmpty(), true);
    opened.setEntries(['a', 'b']);
    opened.addEntry('c', 0);
    opened.removeEntry('b');
    assert.equal(await rejection(opened.setEntriesWithAck(['c', 'a', 'd'])), OFFLINE);
    assert.deepEqual(opened.getEntries(), ['c', 'a', 'd']);
    await client.login();
    await eventually(() => other.record.has(name), 'the list exists');
    assert.deepEqual(await other.record.snapshot(name), ['c', 'a', 'd']);
    const [doomed, dropped] = [await list(other, fresh('list')), fresh('list')];
    await doomed.delete();
    const late = await connect(t, server, { login: false });
    assert.match(String(await rejection((await list(late, dropped)).delete())), /offline/);
    (await list(late, dropped)).discard();
    await late.login();
    const methods = ['whenReady', 'getEntries', 'isEmpty', 'setEntries', 'setEntriesWithAck', 'addEntry'] as const;
    covers([...methods, 'removeEntry'].map((method) => `List.${method}` as 'List.addEntry'), 'before login');
    covers(['List.subscribe', 'List.unsubscribe', 'List.delete', 'List.discard', 'RecordHandler.getList'], 'before login');
  });

  test('a dequeue filled before the login is created after it', async (t) => {
    const [client, other] = await early(t);
    const name = fresh('dequeue');
    const opened = await client.record.getDq(name).whenReady();
    const nothing = (): void => undefined;
    opened.subscribe('first', nothing);
    opened.unsubscribe('first', nothing);
    assert.equal(opened.isEmpty(), true);
    opened.setEntries(['a', 'b', 'c', 'd']);
    assert.deepEqual(opened.getEntries(), ['a', 'b', 'c', 'd']);
    changeDequeue(opened);
    assert.deepEqual([opened.getFirst(), opened.getLast()], ['m', 'd']);
    await client.login();
    await eventually(() => other.record.has(name), 'the dequeue exists');
    const there = await other.record.getDq(name).whenReady();
    assert.deepEqual([there.getEntries(), there.getFirst(), there.getLast()], [['m', 'a', 'c', 'd'], 'm', 'd']);
    const changes = ['push', 'unshift', 'insertEntry', 'removeEntry', 'pop', 'shift', 'getEntries'] as const;
    covers([...changes, 'getFirst' as const, 'getLast' as const].map((one) => `Dequeue.${one}` as const), 'before login');
    const late = await connect(t, server, { login: false });
    const dropped = await late.record.getDq(fresh('dequeue')).whenReady();
    assert.equal(await rejection(dropped.setEntriesWithAck(['a', 'b', 'c', 'd'])), OFFLINE);
    assert.match(String(await rejection(dropped.delete())), /offline/);
    dropped.discard();
    await late.login();
    const methods = ['whenReady', 'setEntries', 'setEntriesWithAck', 'isEmpty', 'subscribe', 'unsubscribe'] as const;
    covers([...methods, 'delete', 'discard'].map((method) => `Dequeue.${method}` as 'Dequeue.push'), 'before login');
    covers('RecordHandler.getDq', 'before login');
  });

  test('an anonymous record named and written before the login is created after it', async (t) => {
    const [client, other] = await early(t);
    const name = fresh('record');
    const opened = client.record.getAnonymousRecord();
    await opened.setName(name);
    await opened.whenReady();
    const seen = new Inbox<unknown>('values');
    opened.subscribe('a', seen.push);
    opened.setMergeStrategy((_a, _b, remote, _c, done) => done(null, remote));
    opened.set('a', 1 as never);
    assert.equal(await rejection(opened.setWithAck('b', 2 as never)), OFFLINE);
    assert.match(String(await rejection(opened.delete())), /offline/);
    opened.unsubscribe('a', seen.push);
    assert.deepEqual([opened.get(), seen.seen], [{ a: 1, b: 2 }, [1]]);
    await client.login();
    await eventually(() => other.record.has(name), 'the record exists');
    assert.deepEqual(await other.record.snapshot(name), { a: 1, b: 2 });
    const late = await connect(t, server, { login: false });
    const dropped = late.record.getAnonymousRecord();
    await dropped.setName(fresh('record'));
    dropped.discard();
    await eventually(() => late.record.names().length === 0, 'the record is gone locally');
    const methods = ['setName', 'whenReady', 'get', 'set', 'setWithAck', 'subscribe', 'unsubscribe'] as const;
    const more = ['setMergeStrategy', 'delete', 'discard'] as const;
    covers([...methods, ...more].map((method) => `AnonymousRecord.${method}` as const), 'before login');
    covers('RecordHandler.getAnonymousRecord', 'before login');
  });

  test('a client may pause and resume before it logs in', async (t) => {
    const client = await connect(t, server, { login: false });
    client.pause();
    await inState(client, C.CONNECTION_STATE.OFFLINE);
    const resumed = client.resume();
    await client.login();
    await within(DEADLINE_MS, Promise.resolve(resumed), 'resume');
    assert.equal(client.getConnectionState(), C.CONNECTION_STATE.OPEN);
    covers(['DeepstreamClient.pause', 'DeepstreamClient.resume'], 'before login');
  });
});
