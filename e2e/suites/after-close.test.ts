// After close: a closed client no longer reaches the server. An operation that can fail does so with a reason; the others stay local.

import assert from 'node:assert/strict';
import { after, before, describe, test, type TestContext } from 'node:test';
import { C, changeDequeue, connect, inState, list, pair, record, subscribed } from '../harness/client.ts';
import type { ConnectOptions, ListenResponse, RpcResponse, TestClient } from '../harness/client.ts';
import { covers } from '../harness/coverage.ts';
import { fresh, literally } from '../harness/names.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, within } from '../harness/wait.ts';

const OFFLINE = 'client offline';

describe('after close', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start();
  });
  after(() => server.dispose());

  async function ended(client: TestClient): Promise<void> {
    client.close();
    await inState(client, C.CONNECTION_STATE.CLOSED);
  }

  /** A client that was logged in and then closed, and a second one that is still open. */
  async function closed(t: TestContext, options: ConnectOptions = {}): Promise<[TestClient, TestClient]> {
    const client = await connect(t, server, { errors: ['IS_CLOSED'], ...options });
    await ended(client);
    return [client, await connect(t, server)];
  }

  async function rejection(promise: Promise<unknown> | void): Promise<unknown> {
    const outcome = Promise.resolve(promise).then(
      () => assert.fail('succeeded'),
      (reason: unknown) => reason,
    );
    return within(DEADLINE_MS, outcome, 'the operation fails');
  }

  test('events stay within the client', async (t) => {
    const client = await connect(t, server);
    const other = await connect(t, server);
    const [name, end] = [fresh('event'), fresh('end')];
    const inbox = await subscribed(client, name);
    const [theirs, ending] = [await subscribed(other, name), await subscribed(other, end)];
    await ended(client);
    client.event.emit(name, 'local');
    const late = new Inbox<unknown>('late');
    client.event.subscribe(end, late.push);
    assert.deepEqual(client.event.eventNames(), [name, end]);
    other.event.emit(name, 'remote');
    const publisher = await connect(t, server);
    publisher.event.emit(end, null);
    await ending.next();
    assert.deepEqual([inbox.seen, theirs.seen, late.seen], [['local'], ['remote'], []]);
    client.event.unsubscribe(name, inbox.push);
    assert.deepEqual(client.event.eventNames(), [end]);
    const methods = ['emit', 'subscribe', 'unsubscribe', 'eventNames'] as const;
    covers(methods.map((method) => `EventHandler.${method}` as const), 'after close');
  });

  for (const topic of ['event', 'record'] as const) {
    test(`${topic} patterns cannot be registered`, async (t) => {
      const [client] = await closed(t);
      const pattern = literally(fresh('listen'));
      client[topic].listen(pattern, () => assert.fail('asked'));
      client[topic].unlisten(pattern);
      const errors = await client.errors.count(2);
      assert.deepEqual(errors.map(({ event }) => event), ['IS_CLOSED', 'IS_CLOSED']);
      const handler = topic === 'event' ? 'EventHandler' : 'RecordHandler';
      covers([`${handler}.listen`, `${handler}.unlisten`], 'after close');
    });
  }

  const forgets = againstOriginal && 'deepstream does not ask again when the asked provider leaves';
  test('a closed provider can neither accept nor reject, and the server asks the next one', { skip: forgets }, async (t) => {
    const [client, subscriber] = await pair(t, server, { errors: ['IS_CLOSED'] });
    const next = await connect(t, server);
    const name = fresh('listen');
    const requests = new Inbox<ListenResponse>('requests');
    client.event.listen(literally(name), (_name, response) => requests.push(response));
    await client.wire.acknowledged('EVENT', C.EVENT_ACTION.LISTEN, literally(name));
    await subscribed(subscriber, name);
    const response = await requests.next();
    await ended(client);
    response.accept();
    response.reject();
    response.onStop(() => assert.fail('stopped'));
    await client.errors.count(2);
    const taken = new Inbox<string>('requests to the next provider');
    next.event.listen(literally(name), (asked, answer) => {
      answer.accept();
      taken.push(asked);
    });
    assert.equal(await taken.next(), name);
    covers(['ListenResponse.accept', 'ListenResponse.reject', 'ListenResponse.onStop'], 'after close');
  });

  test('rpcs are neither called nor provided', async (t) => {
    const [client, other] = await closed(t);
    const name = fresh('rpc');
    client.rpc.provide(name, (_data, response) => response.send(1));
    assert.deepEqual(client.rpc.providerNames(), [name]);
    assert.equal(await rejection(client.rpc.make(name, 1)), OFFLINE);
    const answers = new Inbox<unknown[]>('answers');
    client.rpc.make(name, 1, (...answer) => answers.push(answer));
    assert.deepEqual(await answers.next(), [OFFLINE]);
    assert.equal(await rejection(other.rpc.make(name, 1)), 'NO_RPC_PROVIDER');
    client.rpc.unprovide(name);
    assert.deepEqual(client.rpc.providerNames(), []);
    const methods = ['provide', 'unprovide', 'make', 'providerNames'] as const;
    covers(methods.map((method) => `RPCHandler.${method}` as const), 'after close');
  });

  const answers = ['accept', 'send', 'error', 'reject'] as const;
  for (const answer of answers) {
    test(`a closed provider cannot ${answer}`, async (t) => {
      const [provider, caller] = await pair(t, server, { errors: ['IS_CLOSED'] });
      const name = fresh('rpc');
      const requests = new Inbox<RpcResponse>('requests');
      provider.rpc.provide(name, (_data, response) => {
        response.autoAccept = false;
        requests.push(response);
      });
      await provider.wire.acknowledged('RPC', C.RPC_ACTION.PROVIDE, name);
      caller.rpc.make(name, null, () => undefined);
      const response = await requests.next();
      await ended(provider);
      response[answer](null);
      assert.equal((await provider.errors.next()).event, 'IS_CLOSED');
      covers(`RPCResponse.${answer}`, 'after close');
    });
  }

  test('presence is neither queried nor subscribed to', async (t) => {
    const [client] = await closed(t);
    assert.equal(await rejection(client.presence.getAll()), OFFLINE);
    assert.equal(await rejection(client.presence.getAll(['bob'])), OFFLINE);
    const note = (): void => assert.fail('called');
    client.presence.subscribe(note);
    client.presence.subscribe('bob', note);
    client.presence.unsubscribe(note);
    client.presence.unsubscribe('bob', note);
    client.presence.unsubscribe();
    const methods = ['getAll', 'subscribe', 'unsubscribe'] as const;
    covers(methods.map((method) => `PresenceHandler.${method}` as const), 'after close');
  });

  test('queries about records fail, and writes reach no other client', async (t) => {
    const [client, other] = await closed(t);
    const name = fresh('record');
    assert.equal(await rejection(client.record.snapshot(name)), OFFLINE);
    assert.equal(await rejection(client.record.has(name)), OFFLINE);
    assert.equal(await rejection(client.record.head(name)), OFFLINE);
    assert.equal(await rejection(client.record.notify([name])), OFFLINE);
    assert.equal(await rejection(client.record.setDataWithAck(name, { a: 1 })), OFFLINE);
    client.record.setData(name, { a: 1 });
    assert.equal((await client.errors.next()).event, 'IS_CLOSED');
    assert.throws(() => client.record.delete(name), /not yet supported/);
    assert.equal(await other.record.has(name), false);
    const methods = ['snapshot', 'has', 'head', 'notify', 'setDataWithAck', 'setData', 'delete'] as const;
    covers(methods.map((method) => `RecordHandler.${method}` as const), 'after close');
  });

  test('an open record keeps its value and applies only local writes', async (t) => {
    const [client, other] = await pair(t, server);
    const name = fresh('record');
    const opened = await record(client, name);
    await opened.setWithAck({ a: 1, b: 2 });
    await ended(client);
    const seen = new Inbox<unknown>('values');
    opened.subscribe('a', seen.push);
    opened.set('a', 'local');
    assert.equal(await rejection(opened.setWithAck('c', 3)), OFFLINE);
    opened.erase('b');
    assert.equal(await rejection(opened.eraseWithAck('c')), OFFLINE);
    assert.match(String(await rejection(opened.delete())), /offline/);
    opened.setMergeStrategy((_a, _b, remote, _c, done) => done(null, remote));
    opened.unsubscribe('a', seen.push);
    await opened.whenReady();
    assert.deepEqual([opened.get(), seen.seen], [{ a: 'local' }, ['local']]);
    assert.deepEqual(await other.record.snapshot(name), { a: 1, b: 2 });
    const discarded = new Inbox<unknown>('discard');
    opened.on('discard', discarded.push);
    opened.discard();
    const methods = ['get', 'set', 'setWithAck', 'erase', 'eraseWithAck', 'subscribe', 'unsubscribe', 'whenReady'] as const;
    const more = ['delete', 'discard', 'setMergeStrategy'] as const;
    covers([...methods, ...more].map((method) => `Record.${method}` as const), 'after close');
  });

  test('records, lists, dequeues and anonymous records can be opened only locally', async (t) => {
    const [client, other] = await closed(t);
    const [name, listName, dequeueName, anonymousName] = [fresh('r'), fresh('l'), fresh('d'), fresh('a')];
    (await record(client, name)).set({ a: 1 });
    (await list(client, listName)).setEntries(['a']);
    (await client.record.getDq(dequeueName).whenReady()).setEntries(['a']);
    await client.record.getAnonymousRecord().setName(anonymousName);
    client.record.setMergeStrategy(name, (_a, _b, remote, _c, done) => done(null, remote));
    client.record.setMergeStrategyRegExp(/x/, (_a, _b, remote, _c, done) => done(null, remote));
    assert.deepEqual(client.record.names(), [name, listName, dequeueName, anonymousName]);
    const there = await Promise.all([name, listName, dequeueName, anonymousName].map((one) => other.record.has(one)));
    assert.deepEqual(there, [false, false, false, false]);
    const methods = ['getRecord', 'getList', 'getDq', 'getAnonymousRecord', 'names', 'setMergeStrategy'] as const;
    covers([...methods, 'setMergeStrategyRegExp' as const].map((method) => `RecordHandler.${method}` as const), 'after close');
  });

  test('an open list keeps its entries and applies only local changes', async (t) => {
    const [client, other] = await pair(t, server);
    const name = fresh('list');
    const opened = await list(client, name);
    await opened.setEntriesWithAck(['a', 'b']);
    await ended(client);
    const seen = new Inbox<string[]>('entries');
    opened.subscribe(seen.push);
    opened.addEntry('c');
    opened.removeEntry('a');
    opened.setEntries(['x']);
    assert.equal(await rejection(opened.setEntriesWithAck(['y'])), OFFLINE);
    opened.unsubscribe(seen.push);
    assert.match(String(await rejection(opened.delete())), /offline/);
    await opened.whenReady();
    assert.deepEqual([opened.getEntries(), opened.isEmpty()], [['y'], false]);
    assert.deepEqual(seen.seen, [['a', 'b', 'c'], ['b', 'c'], ['x'], ['y']]);
    assert.deepEqual(await other.record.snapshot(name), ['a', 'b']);
    opened.discard();
    const methods = ['addEntry', 'removeEntry', 'setEntries', 'setEntriesWithAck', 'getEntries', 'isEmpty'] as const;
    const more = ['subscribe', 'unsubscribe', 'whenReady', 'delete', 'discard'] as const;
    covers([...methods, ...more].map((method) => `List.${method}` as const), 'after close');
  });

  test('an open dequeue keeps its entries and applies only local changes', async (t) => {
    const [client, other] = await pair(t, server);
    const name = fresh('dequeue');
    const opened = await client.record.getDq(name).whenReady();
    await opened.setEntriesWithAck(['a', 'b', 'c', 'd']);
    const held = await other.record.snapshot(name);
    await ended(client);
    const nothing = (): void => undefined;
    opened.subscribe('first', nothing);
    opened.unsubscribe('first', nothing);
    assert.deepEqual([opened.getFirst(), opened.getLast(), opened.isEmpty()], ['a', 'd', false]);
    opened.setEntries(['a', 'b', 'c', 'd']);
    assert.deepEqual(opened.getEntries(), ['a', 'b', 'c', 'd']);
    changeDequeue(opened);
    assert.deepEqual([opened.getFirst(), opened.getLast()], ['m', 'd']);
    const changes = ['push', 'unshift', 'insertEntry', 'removeEntry', 'pop', 'shift', 'getEntries'] as const;
    covers(changes.map((one) => `Dequeue.${one}` as const), 'after close');
    assert.equal(await rejection(opened.setEntriesWithAck(['a', 'b', 'c'])), OFFLINE);
    assert.match(String(await rejection(opened.delete())), /offline/);
    await opened.whenReady();
    assert.deepEqual(await other.record.snapshot(name), held);
    opened.discard();
    const methods = ['setEntries', 'setEntriesWithAck', 'getFirst', 'getLast', 'isEmpty', 'subscribe'] as const;
    const more = ['unsubscribe', 'whenReady', 'delete', 'discard'] as const;
    covers([...methods, ...more].map((method) => `Dequeue.${method}` as const), 'after close');
  });

  test('an anonymous record keeps its value and applies only local writes', async (t) => {
    const [client, other] = await pair(t, server);
    const name = fresh('record');
    const opened = client.record.getAnonymousRecord();
    await opened.setName(name);
    await opened.setWithAck({ a: 1 });
    await ended(client);
    const seen = new Inbox<unknown>('values');
    opened.subscribe('a', seen.push);
    opened.set('a', 'local' as never);
    assert.equal(await rejection(opened.setWithAck('b', 2 as never)), OFFLINE);
    assert.match(String(await rejection(opened.delete())), /offline/);
    opened.unsubscribe('a', seen.push);
    opened.setMergeStrategy((_a, _b, remote, _c, done) => done(null, remote));
    await opened.whenReady();
    assert.deepEqual([opened.get(), seen.seen], [{ a: 'local', b: 2 }, ['local']]);
    assert.deepEqual(await other.record.snapshot(name), { a: 1 });
    opened.discard();
    await opened.setName(fresh('record'));
    const methods = ['get', 'set', 'setWithAck', 'subscribe', 'unsubscribe', 'whenReady'] as const;
    const more = ['setName', 'delete', 'discard', 'setMergeStrategy'] as const;
    covers([...methods, ...more].map((method) => `AnonymousRecord.${method}` as const), 'after close');
  });

  test('a closed client that resumes connects again', async (t) => {
    const [client] = await closed(t);
    await within(DEADLINE_MS, Promise.resolve(client.resume()), 'resume');
    assert.equal(client.getConnectionState(), C.CONNECTION_STATE.OPEN);
    assert.equal(await client.record.has(fresh('record')), false);
    covers('DeepstreamClient.resume', 'after close');
  });

  test('a closed client that pauses stays disconnected', async (t) => {
    const [client, other] = await closed(t);
    client.pause();
    await other.record.has(fresh('record'));
    assert.equal(client.getConnectionState(), C.CONNECTION_STATE.PAUSING);
    covers('DeepstreamClient.pause', 'after close');
  });
});
