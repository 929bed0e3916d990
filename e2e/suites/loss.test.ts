// Loss of the connection: operations in flight fail or are repeated, operations made during the loss run after the reconnect, and
// subscriptions, providers and patterns are restored without further code. A proxy first discards bytes, so that an operation is surely
// in flight, and then ends the connection.

import assert from 'node:assert/strict';
import { after, before, describe, test, type TestContext } from 'node:test';
import { C, changeDequeue, connect, inState, list, record, subscribed } from '../harness/client.ts';
import type { ConnectOptions, ListenResponse, RpcResponse, TestClient } from '../harness/client.ts';
import { covers } from '../harness/coverage.ts';
import { DRIVERS, type Peer } from '../harness/driver/driver.ts';
import { fresh, freshUser, literally } from '../harness/names.ts';
import { Proxy } from '../harness/proxy.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, happens, isPending, within } from '../harness/wait.ts';

const OFFLINE = 'client offline';
const { OPEN, RECONNECTING, CLOSED } = C.CONNECTION_STATE;
/** Bulk messages leave at once, so that they are in flight when the connection ends. */
const EAGER = { subscriptionInterval: 0 };

/** The reason with which `promise` fails. The handler is attached at once, so that no rejection is unhandled. */
function rejection(promise: Promise<unknown> | void): Promise<unknown> {
  const outcome = Promise.resolve(promise).then(
    () => assert.fail('succeeded'),
    (reason: unknown) => reason,
  );
  return within(DEADLINE_MS, outcome, 'the operation fails');
}

for (const driver of DRIVERS) {
  describe(`loss of the connection with ${driver.name}`, { concurrency: 8 }, () => {
    let server: Server;
    before(async () => {
      server = await Server.start();
    });
    after(() => server.dispose());

    /** A client behind a proxy, and one with a direct connection. */
    async function behindProxy(t: TestContext) {
      const proxy = await Proxy.during(t, server);
      const client = await driver.connect(t, server, { through: proxy.address, errors: ['CONNECTION_ERROR'] });
      return { proxy, client, other: await driver.connect(t, server) };
    }

    /** Cuts the connection of `client` while the operations of `act` are in flight. `act` returns promises inside an object. */
    async function loses<T>(proxy: Proxy, client: Peer, act: () => T): Promise<T> {
      proxy.silence();
      const result = act();
      proxy.cut();
      await client.lost();
      return result;
    }

    test('an event in flight is lost, one published during the loss arrives once', async (t) => {
      const { proxy, client, other } = await behindProxy(t);
      const name = fresh('event');
      const { inbox } = await other.subscribe(name);
      await loses(proxy, client, () => client.emit(name, 'on its way'));
      client.emit(name, 'meanwhile');
      proxy.restore();
      await client.opened();
      client.emit(name, 'afterwards');
      assert.deepEqual(await inbox.count(2), ['meanwhile', 'afterwards']);
      covers('EventHandler.emit', 'loss');
    });

    test('a call in flight fails, one made during the loss is answered', async (t) => {
      const { proxy, client, other } = await behindProxy(t);
      const name = fresh('rpc');
      await other.provide(name, (argument, answer) => answer.send([argument]));
      const lost = await loses(proxy, client, () => ({ reason: rejection(client.call(name, 1)) }));
      assert.equal(await lost.reason, driver.lostReason);
      const queued = client.call(name, 2);
      proxy.restore();
      assert.deepEqual(await within(DEADLINE_MS, queued, 'the answer'), [2]);
    });

    test('subscriptions, providers and presence subscriptions are restored without further code', async (t) => {
      const { proxy, client, other } = await behindProxy(t);
      const [event, rpc, user] = [fresh('event'), fresh('rpc'), freshUser()];
      const { inbox } = await client.subscribe(event);
      await client.provide(rpc, (_argument, answer) => answer.send('here'));
      const { inbox: changes } = await client.watch([user], user);
      await loses(proxy, client, () => undefined);
      await eventually(async () => (await rejection(other.call(rpc))) === 'NO_RPC_PROVIDER', 'the provider is gone');
      const back = [[C.TOPIC.EVENT, C.EVENT_ACTION.SUBSCRIBE], [C.TOPIC.RPC, C.RPC_ACTION.PROVIDE], [C.TOPIC.PRESENCE, C.PRESENCE_ACTION.SUBSCRIBE]];
      const confirmed = back.map(([topic, action]) => client.receives((message) => message.topic === topic && message.action === action));
      proxy.restore();
      await Promise.all(confirmed);
      other.emit(event, 1);
      assert.equal(await inbox.next(), 1);
      assert.equal(await other.call(rpc), 'here');
      await driver.connect(t, server, { login: { username: user } });
      assert.deepEqual(await changes.next(), [user, true]);
    });
  });
}

describe('loss of the connection of deepstream clients', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start();
  });
  after(() => server.dispose());

  /** A client behind a proxy, and one with a direct connection. */
  async function behindProxy(t: TestContext, options: ConnectOptions = {}) {
    const proxy = await Proxy.during(t, server);
    const errors = ['CONNECTION_ERROR', ...(options.errors ?? [])];
    const client = await connect(t, server, { ...EAGER, ...options, through: proxy.address, errors });
    const other = await connect(t, server, EAGER);
    return { proxy, client, other };
  }

  /** Cuts the connection of `client` while the operations of `act` are in flight. `act` returns promises inside an object. */
  async function loses<T>(proxy: Proxy, client: TestClient, act: () => T): Promise<T> {
    proxy.silence();
    const result = act();
    proxy.cut();
    await inState(client, RECONNECTING);
    return result;
  }

  async function returns(proxy: Proxy, client: TestClient): Promise<void> {
    proxy.restore();
    await inState(client, OPEN);
  }

  describe('of the connection itself', () => {
    test('a client reconnects and logs in again by itself', async (t) => {
      const user = freshUser();
      const { proxy, client, other } = await behindProxy(t, { login: { username: user } });
      await loses(proxy, client, () => undefined);
      await eventually(async () => !(await other.presence.getAll([user]))[user], 'the user is gone');
      await returns(proxy, client);
      assert.deepEqual(await other.presence.getAll([user]), { [user]: true });
      covers('DeepstreamClient.getConnectionState', 'loss');
    });

    test('a login in flight is repeated', async (t) => {
      const { proxy, client } = await behindProxy(t, { login: false });
      const { login } = await loses(proxy, client, () => ({ login: Promise.resolve(client.login()) }));
      assert.equal(await isPending(login), true);
      proxy.restore();
      assert.equal(await within(DEADLINE_MS, login, 'login'), null);
      covers('DeepstreamClient.login', 'loss');
    });

    test('a client may close while the server is silent', async (t) => {
      const { proxy, client } = await behindProxy(t);
      proxy.silence();
      client.close();
      proxy.cut();
      await inState(client, CLOSED);
      covers('DeepstreamClient.close', 'loss');
    });

    test('a client may pause while the server is silent and resume later', async (t) => {
      const { proxy, client } = await behindProxy(t);
      proxy.silence();
      client.pause();
      proxy.cut();
      await inState(client, C.CONNECTION_STATE.OFFLINE);
      const resumed = client.resume();
      proxy.restore();
      await within(DEADLINE_MS, Promise.resolve(resumed), 'resume');
      assert.equal(client.getConnectionState(), OPEN);
      covers(['DeepstreamClient.pause', 'DeepstreamClient.resume'], 'loss');
    });

    test('a client gives up after its last attempt', async (t) => {
      const options = { maxReconnectAttempts: 3, reconnectIntervalIncrement: 1, offlineBufferTimeout: 50, errors: ['IS_CLOSED'] };
      const { proxy, client } = await behindProxy(t, options);
      const gaveUp = happens(client, 'MAX_RECONNECTION_ATTEMPTS_REACHED');
      proxy.cut();
      assert.deepEqual(await gaveUp, [3]);
    });

    test('operations made too long after the loss fail', async (t) => {
      const { proxy, client } = await behindProxy(t, { offlineBufferTimeout: 100 });
      await loses(proxy, client, () => undefined);
      const queued = rejection(client.rpc.make(fresh('rpc'), 1));
      assert.equal(await queued, OFFLINE);
      assert.equal(await rejection(client.record.snapshot(fresh('record'))), OFFLINE);
      assert.equal(await rejection(client.presence.getAll()), OFFLINE);
    });
  });

  describe('of events', () => {
    test('subscriptions are restored, also one that was in flight', async (t) => {
      const { proxy, client, other } = await behindProxy(t);
      const [known, late] = [fresh('event'), fresh('event')];
      const inbox = await subscribed(client, known);
      const lateInbox = new Inbox<unknown>('late');
      await loses(proxy, client, () => client.event.subscribe(late, lateInbox.push));
      assert.deepEqual(client.event.eventNames(), [known, late]);
      await returns(proxy, client);
      await client.wire.acknowledged('EVENT', C.EVENT_ACTION.SUBSCRIBE, late);
      other.event.emit(known, 1);
      other.event.emit(late, 2);
      assert.deepEqual([await inbox.next(), await lateInbox.next()], [1, 2]);
      covers(['EventHandler.subscribe', 'EventHandler.eventNames'], 'loss');
    });

    test('a subscription whose removal was in flight is not restored', async (t) => {
      const { proxy, client, other } = await behindProxy(t);
      const [dropped, end] = [fresh('event'), fresh('end')];
      const inbox = await subscribed(client, dropped);
      const ended = await subscribed(client, end);
      await loses(proxy, client, () => client.event.unsubscribe(dropped, inbox.push));
      await returns(proxy, client);
      await client.wire.acknowledged('EVENT', C.EVENT_ACTION.SUBSCRIBE, end);
      const stray = client.wire.receives(({ topic, action }) => topic === C.TOPIC.EVENT && action === C.EVENT_ACTION.EMIT);
      other.event.emit(dropped, 1);
      other.event.emit(end, 2);
      await ended.next();
      assert.equal((await stray).name, end);
      covers('EventHandler.unsubscribe', 'loss');
    });
  });

  for (const topic of ['event', 'record'] as const) {
    const handler = topic === 'event' ? 'EventHandler' : 'RecordHandler';
    const subscribe = (client: TestClient, name: string): Promise<unknown> =>
      topic === 'event' ? subscribed(client, name) : record(client, name);

    describe(`of listeners for ${topic}s`, () => {
      test('patterns are restored, also one that was in flight, but not a removed one', async (t) => {
        const { proxy, client, other } = await behindProxy(t);
        const base = fresh('listen');
        const asked = new Inbox<string>('requests');
        const listen = (end: string): void => {
          client[topic].listen(`${literally(base)}/${end}$`, (name, response) => {
            response.accept();
            asked.push(name);
          });
        };
        listen('known');
        listen('removed');
        await listening(client, topic, `${literally(base)}/removed$`);
        await loses(proxy, client, () => {
          listen('late');
          client[topic].unlisten(`${literally(base)}/removed$`);
        });
        await returns(proxy, client);
        await listening(client, topic, `${literally(base)}/late$`);
        for (const end of ['removed', 'known', 'late']) await subscribe(other, `${base}/${end}`);
        await asked.count(2);
        assert.deepEqual([...asked.seen].sort(), [`${base}/known`, `${base}/late`]);
        covers([`${handler}.listen`, `${handler}.unlisten`], 'loss');
      });

      test('a provider stops with its connection, and the server asks it again after the reconnect', async (t) => {
        const { proxy, client, other } = await behindProxy(t);
        const name = fresh('listen');
        const requests = new Inbox<ListenResponse>('requests');
        client[topic].listen(literally(name), (_name, response) => requests.push(response));
        await subscribe(other, name);
        const first = await requests.next();
        const stopped = new Inbox<string>('onStop');
        first.onStop(stopped.push);
        first.accept();
        await loses(proxy, client, () => undefined);
        assert.equal(await stopped.next(), name);
        await returns(proxy, client);
        (await requests.next()).accept();
        covers('ListenResponse.onStop', 'loss');
      });

      const forgets = againstOriginal && 'deepstream does not ask again when the asked provider leaves';
      for (const answer of ['accept', 'reject'] as const) {
        test(`a provider whose ${answer} was lost is asked again`, { skip: forgets }, async (t) => {
          const { proxy, client, other } = await behindProxy(t);
          const name = fresh('listen');
          const requests = new Inbox<ListenResponse>('requests');
          client[topic].listen(literally(name), (_name, response) => requests.push(response));
          await subscribe(other, name);
          const response = await requests.next();
          await loses(proxy, client, () => response[answer]());
          await returns(proxy, client);
          (await requests.next()).accept();
          covers(`ListenResponse.${answer}`, 'loss');
        });
      }
    });
  }

  describe('of rpcs', () => {
    test('a call in flight fails, one made during the loss is answered', async (t) => {
      const { proxy, client, other } = await behindProxy(t);
      const name = fresh('rpc');
      other.rpc.provide(name, (data, response) => response.send([data]));
      await other.wire.acknowledged('RPC', C.RPC_ACTION.PROVIDE, name);
      const lost = await loses(proxy, client, () => ({ reason: rejection(client.rpc.make(name, 1)) }));
      assert.equal(await lost.reason, OFFLINE);
      const queued = client.rpc.make(name, 2);
      const callback = new Inbox<unknown[]>('callback');
      client.rpc.make(name, 3, (...answer) => callback.push(answer));
      await returns(proxy, client);
      assert.deepEqual(await within(DEADLINE_MS, queued, 'the answer'), [2]);
      assert.deepEqual(await callback.next(), [null, [3]]);
      covers('RPCHandler.make', 'loss');
    });

    test('providers are restored, also one that was in flight, but not a removed one', async (t) => {
      const { proxy, client, other } = await behindProxy(t);
      const [known, late, removed] = [fresh('rpc'), fresh('rpc'), fresh('rpc')];
      for (const name of [known, removed]) {
        client.rpc.provide(name, (_data, response) => response.send(name));
        await client.wire.acknowledged('RPC', C.RPC_ACTION.PROVIDE, name);
      }
      await loses(proxy, client, () => {
        client.rpc.provide(late, (_data, response) => response.send(late));
        client.rpc.unprovide(removed);
      });
      assert.deepEqual(client.rpc.providerNames(), [known, late]);
      await eventually(async () => (await rejection(other.rpc.make(known, 1))) === 'NO_RPC_PROVIDER', 'it is gone');
      await returns(proxy, client);
      await client.wire.acknowledged('RPC', C.RPC_ACTION.PROVIDE, late);
      assert.deepEqual([await other.rpc.make(known, 1), await other.rpc.make(late, 1)], [known, late]);
      assert.equal(await rejection(other.rpc.make(removed, 1)), 'NO_RPC_PROVIDER');
      covers(['RPCHandler.provide', 'RPCHandler.unprovide', 'RPCHandler.providerNames'], 'loss');
    });

    const waits = againstOriginal && 'deepstream waits for the timeout';
    for (const answer of ['accept', 'send', 'error', 'reject'] as const) {
      test(`a call whose ${answer} was lost fails at once`, { skip: waits }, async (t) => {
        const { proxy, client, other } = await behindProxy(t);
        const name = fresh('rpc');
        const requests = new Inbox<RpcResponse>('requests');
        client.rpc.provide(name, (_data, response) => {
          response.autoAccept = false;
          requests.push(response);
        });
        await client.wire.acknowledged('RPC', C.RPC_ACTION.PROVIDE, name);
        const failed = rejection(other.rpc.make(name, null));
        const response = await requests.next();
        await loses(proxy, client, () => response[answer](null));
        assert.equal(await failed, 'NO_RPC_PROVIDER');
        covers(`RPCResponse.${answer}`, 'loss');
      });
    }
  });

  describe('of presence', () => {
    test('a query in flight fails, one made during the loss is answered', async (t) => {
      const { proxy, client } = await behindProxy(t);
      const bob = freshUser();
      await connect(t, server, { login: { username: bob } });
      const lost = await loses(proxy, client, () => ({
        one: rejection(client.presence.getAll([bob])),
        all: rejection(client.presence.getAll()),
      }));
      assert.deepEqual([await lost.one, await lost.all], [OFFLINE, OFFLINE]);
      const queued = client.presence.getAll([bob]);
      await returns(proxy, client);
      assert.deepEqual(await within(DEADLINE_MS, queued, 'the answer'), { [bob]: true });
      covers('PresenceHandler.getAll', 'loss');
    });

    test('presence subscriptions are restored, also one that was in flight, but not a removed one', async (t) => {
      const { proxy, client } = await behindProxy(t);
      const [bob, carol, dave] = [freshUser(), freshUser(), freshUser()];
      const changes = new Inbox<string>('changes');
      const note = (user: string, isOnline: boolean): unknown => isOnline && changes.push(user);
      const noteAll = (user: string, isOnline: boolean): unknown => user === bob && isOnline && changes.push(`all ${user}`);
      client.presence.subscribe(bob, note);
      client.presence.subscribe(carol, note);
      await loses(proxy, client, () => {
        client.presence.subscribe(noteAll);
        client.presence.subscribe(dave, note);
        client.presence.unsubscribe(carol, note);
      });
      await returns(proxy, client);
      await client.wire.acknowledged('PRESENCE', C.PRESENCE_ACTION.SUBSCRIBE, dave);
      await client.wire.acknowledged('PRESENCE', C.PRESENCE_ACTION.SUBSCRIBE_ALL);
      for (const username of [carol, bob, dave]) await connect(t, server, { login: { username } });
      await changes.count(3);
      assert.deepEqual([...changes.seen].sort(), [bob, dave, `all ${bob}`].sort());
      covers(['PresenceHandler.subscribe', 'PresenceHandler.unsubscribe'], 'loss');
    });
  });

  describe('of records', () => {
    test('queries in flight fail, queries made during the loss are answered', async (t) => {
      const { proxy, client, other } = await behindProxy(t);
      const [name, second] = [fresh('record'), fresh('record')];
      for (const one of [name, second]) await other.record.setDataWithAck(one, { a: 1 });
      const lost = await loses(proxy, client, () => [
        rejection(client.record.snapshot(name)),
        rejection(client.record.has(name)),
        rejection(client.record.head(name)),
      ]);
      assert.deepEqual(await Promise.all(lost), [OFFLINE, OFFLINE, OFFLINE]);
      const queued = [client.record.snapshot(second), client.record.has(second), client.record.head(second)];
      await returns(proxy, client);
      assert.deepEqual(await within(DEADLINE_MS, Promise.all(queued), 'answers'), [{ a: 1 }, true, 1]);
      covers(['RecordHandler.snapshot', 'RecordHandler.has', 'RecordHandler.head'], 'loss');
    });

    test('writes without an open record are lost, and their acknowledgements fail', async (t) => {
      const { proxy, client, other } = await behindProxy(t);
      const [name, second] = [fresh('record'), fresh('record')];
      const lost = await loses(proxy, client, () => {
        client.record.setData(second, { a: 1 });
        return [rejection(client.record.setDataWithAck(name, { a: 1 }))];
      });
      assert.deepEqual(await Promise.all(lost), [OFFLINE]);
      assert.equal(await rejection(client.record.notify([name])), OFFLINE);
      assert.throws(() => client.record.delete(name), /not yet supported/);
      await returns(proxy, client);
      assert.deepEqual([await client.record.has(name), await other.record.has(second)], [false, false]);
      await client.record.notify([name]);
      const methods = ['setData', 'setDataWithAck', 'notify', 'delete'] as const;
      covers(methods.map((method) => `RecordHandler.${method}` as const), 'loss');
    });

    test('records, lists, dequeues and anonymous records whose requests were in flight open after the reconnect', async (t) => {
      const { proxy, client, other } = await behindProxy(t);
      const [name, listName, dequeueName, anonymousName] = [fresh('r'), fresh('l'), fresh('d'), fresh('a')];
      await other.record.setDataWithAck(name, { a: 1 });
      const asked = client.wire.sends(({ names }) => names?.includes(anonymousName) ?? false);
      const anonymous = client.record.getAnonymousRecord();
      const handles = [client.record.getRecord(name), client.record.getList(listName), client.record.getDq(dequeueName)] as const;
      const named = anonymous.setName(anonymousName);
      proxy.silence();
      await asked;
      proxy.cut();
      await inState(client, RECONNECTING);
      assert.deepEqual(client.record.names(), [name, listName, dequeueName, anonymousName]);
      await returns(proxy, client);
      const ready = [...handles.map((handle) => handle.whenReady() as Promise<unknown>), named, anonymous.whenReady()];
      await within(DEADLINE_MS, Promise.all(ready), 'all are ready');
      assert.deepEqual(handles[0].get(), { a: 1 });
      assert.equal(await other.record.has(anonymousName), true);
      const methods = ['getRecord', 'getList', 'getDq', 'getAnonymousRecord', 'names'] as const;
      covers(methods.map((method) => `RecordHandler.${method}` as const), 'loss');
      covers(['Record.whenReady', 'List.whenReady', 'Dequeue.whenReady', 'AnonymousRecord.whenReady'], 'loss');
      covers('AnonymousRecord.setName', 'loss');
    });

    test('an open record receives the changes made during the loss and afterwards', async (t) => {
      const { proxy, client, other } = await behindProxy(t);
      const name = fresh('record');
      const [mine, theirs] = [await record(client, name), await record(other, name)];
      const [seen, dropped] = [new Inbox<unknown>('values'), new Inbox<unknown>('dropped')];
      mine.subscribe('a', seen.push);
      mine.subscribe('a', dropped.push);
      await loses(proxy, client, () => mine.unsubscribe('a', dropped.push));
      await theirs.setWithAck({ a: 'meanwhile', b: 1 });
      await theirs.setWithAck('a', 'later');
      await returns(proxy, client);
      assert.equal(await seen.find((value) => value === 'later'), 'later');
      assert.deepEqual(mine.get(), { a: 'later', b: 1 });
      await theirs.setWithAck('a', 'afterwards');
      assert.equal(await seen.find((value) => value === 'afterwards'), 'afterwards');
      assert.deepEqual([mine.version, dropped.seen], [3, []]);
      covers(['Record.subscribe', 'Record.unsubscribe', 'Record.get'], 'loss');
    });

    test('a write in flight reports the loss and is repeated', async (t) => {
      const { proxy, client, other } = await behindProxy(t);
      const name = fresh('record');
      const mine = await record(client, name);
      const lost = await loses(proxy, client, () => ({ reason: rejection(mine.setWithAck({ a: 1 })) }));
      assert.equal(await lost.reason, OFFLINE);
      await returns(proxy, client);
      await eventually(async () => (await other.record.head(name)) === 1, 'the write is at the server');
      assert.deepEqual(await other.record.snapshot(name), { a: 1 });
      covers('Record.setWithAck', 'loss');
    });

    test('a write whose acknowledgement was lost is made once', async (t) => {
      const { proxy, client, other } = await behindProxy(t);
      const name = fresh('record');
      const mine = await record(client, name);
      proxy.silence('answers');
      const lost = rejection(mine.setWithAck({ a: 1 }));
      await eventually(async () => (await other.record.head(name)) === 1, 'the write is at the server');
      proxy.cut();
      assert.equal(await lost, OFFLINE);
      const { RECORD } = C.TOPIC;
      const { READ_RESPONSE } = C.RECORD_ACTION;
      const compared = client.wire.receives(({ topic, action }) => topic === RECORD && action === READ_RESPONSE);
      await returns(proxy, client);
      await compared;
      await within(DEADLINE_MS, mine.setWithAck({ a: 2 }), 'the next write is acknowledged');
      assert.equal(await other.record.head(name), 2);
      assert.deepEqual(await other.record.snapshot(name), { a: 2 });
    });

    test('writes and erases made after a lost write reach the server after the reconnect', async (t) => {
      const { proxy, client, other } = await behindProxy(t);
      const name = fresh('record');
      const mine = await record(client, name);
      await mine.setWithAck({ keep: 1, drop: 2, gone: 3 });
      await loses(proxy, client, () => mine.set('written', 1));
      mine.set('more', 2);
      mine.erase('drop');
      assert.equal(await rejection(mine.eraseWithAck('gone')), OFFLINE);
      assert.match(String(await rejection(mine.delete())), /offline/);
      await returns(proxy, client);
      const expected = '{"keep":1,"written":1,"more":2}';
      await eventually(async () => JSON.stringify(await other.record.snapshot(name)) === expected, 'the server has all writes');
      await mine.setWithAck('after', 1);
      assert.deepEqual(await other.record.snapshot(name), { keep: 1, written: 1, more: 2, after: 1 });
      covers(['Record.set', 'Record.erase', 'Record.eraseWithAck', 'Record.delete'], 'loss');
    });

    test('a first write made during the loss yields to the value of the server', async (t) => {
      const { proxy, client, other } = await behindProxy(t);
      const name = fresh('record');
      const mine = await record(client, name);
      await mine.setWithAck({ held: 1 });
      await loses(proxy, client, () => undefined);
      mine.set('meanwhile', 1);
      assert.deepEqual(mine.get(), { held: 1, meanwhile: 1 });
      await returns(proxy, client);
      // The client counts no version for such a write, so its default strategy, REMOTE_WINS, takes the server's value.
      await eventually(() => JSON.stringify(mine.get()) === '{"held":1}', 'the record has the value of the server');
      await mine.setWithAck('after', 1);
      assert.deepEqual(await other.record.snapshot(name), { held: 1, after: 1 });
    });

    test('the merge strategy decides about a record that both sides changed during the loss', async (t) => {
      const { proxy, client, other } = await behindProxy(t);
      const name = fresh('record');
      const [mine, theirs] = [await record(client, name), await record(other, name)];
      await mine.setWithAck({ start: 1 });
      await eventually(() => theirs.version === 1, 'the other client has the first version');
      const calls = new Inbox<unknown[]>('calls of the strategy');
      client.record.setMergeStrategyRegExp(new RegExp(literally(name)), () => assert.fail('a strategy by name takes precedence'));
      client.record.setMergeStrategy(name, () => assert.fail('was replaced'));
      await loses(proxy, client, () => undefined);
      mine.setMergeStrategy((local, _localVersion, remote, remoteVersion, done) => {
        calls.push([local, remote, remoteVersion]);
        done(null, remote);
      });
      mine.set('mine', 1);
      await theirs.setWithAck('theirs', 1);
      await theirs.setWithAck('theirs', 2);
      await returns(proxy, client);
      assert.deepEqual(await calls.next(), [{ start: 1, mine: 1 }, { start: 1, theirs: 2 }, 3]);
      await eventually(() => JSON.stringify(mine.get()) === '{"start":1,"theirs":2}', 'both hold the merged value');
      const methods = ['setMergeStrategy', 'setMergeStrategyRegExp'] as const;
      covers(methods.map((method) => `RecordHandler.${method}` as const), 'loss');
      covers('Record.setMergeStrategy', 'loss');
    });

    test('a record discarded during the loss is not subscribed again', async (t) => {
      const { proxy, client, other } = await behindProxy(t);
      const [name, end] = [fresh('record'), fresh('end')];
      const mine = await record(client, name);
      const ended = await subscribed(client, end);
      await loses(proxy, client, () => mine.discard());
      await eventually(() => client.record.names().length === 0, 'the record is gone locally');
      await returns(proxy, client);
      await client.wire.acknowledged('EVENT', C.EVENT_ACTION.SUBSCRIBE, end);
      const stray = client.wire.receives((message) => message.name === name || message.name === end);
      await other.record.setDataWithAck(name, { a: 1 });
      other.event.emit(end, 1);
      await ended.next();
      assert.equal((await stray).name, end);
      covers('Record.discard', 'loss');
    });

    test('a record deleted during the loss is deleted at the client, too', async (t) => {
      const { proxy, client, other } = await behindProxy(t);
      const name = fresh('record');
      const [mine, theirs] = [await record(client, name), await record(other, name)];
      for (const a of [1, 2, 3]) await mine.setWithAck({ a });
      await loses(proxy, client, () => undefined);
      await theirs.delete();
      const gone = happens(mine, 'delete');
      await returns(proxy, client);
      await gone;
      assert.equal(await other.record.has(name), false);
    });
  });

  test('a list keeps the changes of both sides across a loss', async (t) => {
    const { proxy, client, other } = await behindProxy(t);
    const name = fresh('list');
    const [mine, theirs] = [await list(client, name), await list(other, name)];
    await mine.setEntriesWithAck(['a', 'b']);
    await eventually(() => theirs.getEntries().length === 2, 'the other client has the entries');
    const [seen, dropped] = [new Inbox<string[]>('entries'), new Inbox<string[]>('dropped')];
    mine.subscribe(seen.push);
    mine.subscribe(dropped.push);
    mine.unsubscribe(dropped.push);
    const lost = await loses(proxy, client, () => ({ reason: rejection(mine.setEntriesWithAck(['a', 'b', 'c'])) }));
    assert.equal(await lost.reason, OFFLINE);
    mine.addEntry('d');
    mine.removeEntry('a');
    mine.setEntries([...mine.getEntries(), 'e']);
    assert.match(String(await rejection((await list(client, fresh('list'))).delete())), /offline/);
    (await list(client, fresh('list'))).discard();
    await returns(proxy, client);
    await eventually(() => theirs.getEntries().join() === 'b,c,d,e', 'the other client has the changes');
    await theirs.setEntriesWithAck(['z']);
    await seen.find((entries) => entries.join() === 'z');
    assert.deepEqual([mine.isEmpty(), dropped.seen], [false, []]);
    const methods = ['setEntries', 'setEntriesWithAck', 'addEntry', 'removeEntry', 'getEntries', 'isEmpty'] as const;
    const more = ['subscribe', 'unsubscribe', 'delete', 'discard'] as const;
    covers([...methods, ...more].map((method) => `List.${method}` as const), 'loss');
  });

  test('a dequeue keeps the changes of both sides across a loss', async (t) => {
    const { proxy, client, other } = await behindProxy(t);
    const name = fresh('dequeue');
    const mine = await client.record.getDq(name).whenReady();
    const theirs = await other.record.getDq(name).whenReady();
    await mine.setEntriesWithAck(['a', 'b', 'c', 'd']);
    const [seen, dropped] = [new Inbox<unknown>('first'), new Inbox<unknown>('dropped')];
    mine.subscribe('first', seen.push);
    mine.subscribe('first', dropped.push);
    mine.unsubscribe('first', dropped.push);
    const lost = await loses(proxy, client, () => ({ reason: rejection(mine.setEntriesWithAck(['x', 'y', 'z'])) }));
    assert.equal(await lost.reason, OFFLINE);
    mine.setEntries(['a', 'b', 'c', 'd']);
    assert.deepEqual(mine.getEntries(), ['a', 'b', 'c', 'd']);
    changeDequeue(mine);
    assert.match(String(await rejection((await client.record.getDq(fresh('dequeue')).whenReady()).delete())), /offline/);
    (await client.record.getDq(fresh('dequeue')).whenReady()).discard();
    await returns(proxy, client);
    await eventually(() => theirs.getEntries().join() === 'm,a,c,d', 'the other client has the changes');
    assert.deepEqual([mine.getFirst(), mine.getLast(), mine.isEmpty()], ['m', 'd', false]);
    theirs.shift();
    await eventually(() => mine.getFirst() === 'a', 'later changes arrive');
    assert.ok(seen.seen.length > 0);
    const changes = ['push', 'unshift', 'insertEntry', 'removeEntry', 'pop', 'shift', 'getEntries'] as const;
    covers(changes.map((one) => `Dequeue.${one}` as const), 'loss');
    assert.equal(dropped.seen.length, 0);
    const methods = ['setEntries', 'setEntriesWithAck', 'getFirst', 'getLast', 'isEmpty'] as const;
    const more = ['subscribe', 'unsubscribe', 'delete', 'discard'] as const;
    covers([...methods, ...more].map((method) => `Dequeue.${method}` as const), 'loss');
  });

  test('an anonymous record keeps the changes of both sides across a loss', async (t) => {
    const { proxy, client, other } = await behindProxy(t);
    const name = fresh('record');
    const mine = client.record.getAnonymousRecord();
    await mine.setName(name);
    const theirs = await record(other, name);
    const [seen, dropped] = [new Inbox<unknown>('values'), new Inbox<unknown>('dropped')];
    mine.subscribe('a', seen.push);
    mine.subscribe('a', dropped.push);
    mine.unsubscribe('a', dropped.push);
    const lost = await loses(proxy, client, () => ({ reason: rejection(mine.setWithAck('b', 1 as never) as Promise<void>) }));
    assert.equal(await lost.reason, OFFLINE);
    mine.setMergeStrategy((_a, _b, remote, _c, done) => done(null, remote));
    mine.set('c', 2 as never);
    const doomed = client.record.getAnonymousRecord();
    await doomed.setName(fresh('record'));
    assert.match(String(await rejection(doomed.delete())), /offline/);
    doomed.discard();
    await returns(proxy, client);
    await eventually(() => JSON.stringify(theirs.get()) === '{"b":1,"c":2}', 'the other client has the changes');
    await theirs.setWithAck('a', 'there');
    assert.equal(await seen.find((value) => value === 'there'), 'there');
    assert.deepEqual([mine.get('a'), dropped.seen], ['there', []]);
    const methods = ['get', 'set', 'setWithAck', 'subscribe', 'unsubscribe'] as const;
    const more = ['setMergeStrategy', 'delete', 'discard'] as const;
    covers([...methods, ...more].map((method) => `AnonymousRecord.${method}` as const), 'loss');
  });
});

/** Waits until the server has registered the listener. */
async function listening(client: TestClient, topic: 'event' | 'record', pattern: string): Promise<void> {
  if (topic === 'event') await client.wire.acknowledged('EVENT', C.EVENT_ACTION.LISTEN, pattern);
  else await client.wire.acknowledged('RECORD', C.RECORD_ACTION.LISTEN, pattern);
}
