// Permission: an operation that a rule denies fails with a reason, has no effect, and affects no other operation.
// `harness/denials.ts` has the rules.

import assert from 'node:assert/strict';
import { after, before, describe, test, type TestContext } from 'node:test';
import { C, connect, list, record, subscribed, type TestClient } from '../harness/client.ts';
import { covers } from '../harness/coverage.ts';
import { fresh, freshUser, literally } from '../harness/names.ts';
import { RawPeer } from '../harness/raw.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, isPending, within } from '../harness/wait.ts';

const { EVENT, RECORD, RPC, PRESENCE } = C.TOPIC;
const DENIED = 'MESSAGE_DENIED';

describe('permission', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start({ denials: true });
  });
  after(() => server.dispose());

  /** A client that expects denials, and one that does not. */
  async function clients(t: TestContext): Promise<[TestClient, TestClient]> {
    return [await connect(t, server, { errors: [DENIED], subscriptionInterval: 0 }), await connect(t, server)];
  }

  async function rejection(promise: Promise<unknown> | void): Promise<unknown> {
    const outcome = Promise.resolve(promise).then(
      () => assert.fail('succeeded'),
      (reason: unknown) => reason,
    );
    return within(DEADLINE_MS, outcome, 'the operation fails');
  }

  /** Asserts that the next error that the client reports is a denial. */
  async function isDenied(client: TestClient): Promise<void> {
    assert.equal((await client.errors.next()).event, DENIED);
  }

  describe('of events', () => {
    test('a denied subscription is removed and receives nothing', async (t) => {
      const [client, other] = await clients(t);
      const [name, end] = [fresh('denied/event'), fresh('end')];
      const inbox = new Inbox<unknown>('refused');
      client.event.subscribe(name, inbox.push);
      await isDenied(client);
      assert.deepEqual(client.event.eventNames(), []);
      const ended = await subscribed(client, end);
      other.event.emit(end, 1);
      await ended.next();
      assert.deepEqual(inbox.seen, []);
      covers('EventHandler.subscribe', 'refusal');
    });

    test('a denied event reaches no subscriber', async (t) => {
      const [client, other] = await clients(t);
      const name = fresh('nowrite/event');
      const [inbox, ended] = [await subscribed(other, name), await subscribed(other, 'free/end')];
      client.event.emit(name, 'refused');
      await isDenied(client);
      client.event.emit('free/end', 1);
      await ended.next();
      assert.deepEqual(inbox.seen, []);
      covers('EventHandler.emit', 'refusal');
    });

    test('a denied pattern is not registered', async (t) => {
      const [client] = await clients(t);
      client.event.listen(`denied/${fresh('x')}`, () => assert.fail('asked'));
      await isDenied(client);
      covers('EventHandler.listen', 'refusal');
    });
  });

  describe('of rpcs', () => {
    test('a denied provider is removed', async (t) => {
      const [client, other] = await clients(t);
      const name = fresh('denied/rpc');
      client.rpc.provide(name, (_data, response) => response.send(1));
      await isDenied(client);
      assert.deepEqual(client.rpc.providerNames(), []);
      assert.equal(await rejection(other.rpc.make(name, 1)), DENIED);
      covers(['RPCHandler.provide', 'RPCHandler.make'], 'refusal');
    });

    test('a denied call never reaches a provider', async (t) => {
      const [client] = await clients(t);
      const answers = new Inbox<unknown[]>('answers');
      client.rpc.make(fresh('denied/rpc'), 1, (...answer) => answers.push(answer));
      assert.equal((await answers.next())[0], DENIED);
    });
  });

  describe('of presence', () => {
    test('a denied query fails', async (t) => {
      const [client] = await clients(t);
      assert.equal(await rejection(client.presence.getAll([fresh('denied/user')])), DENIED);
      covers('PresenceHandler.getAll', 'refusal');
    });

    test('a denied presence subscription receives nothing', async (t) => {
      const [client] = await clients(t);
      const [user, free] = [`denied/${freshUser()}`, freshUser()];
      client.presence.subscribe(user, () => assert.fail('called'));
      await isDenied(client);
      const changes = new Inbox<string>('changes');
      client.presence.subscribe(free, changes.push);
      await client.wire.acknowledged('PRESENCE', C.PRESENCE_ACTION.SUBSCRIBE, free);
      for (const username of [user, free]) await connect(t, server, { login: { username } });
      assert.equal(await changes.next(), free);
      covers('PresenceHandler.subscribe', 'refusal');
    });
  });

  describe('of records', () => {
    test('a record without the right to read is never ready', async (t) => {
      const [client, other] = await clients(t);
      const names = ['record', 'list', 'dequeue', 'anonymous'].map((kind) => fresh(`denied/${kind}`));
      const [name, listName, dequeueName, anonymousName] = names as [string, string, string, string];
      const [anonymous, opened] = [client.record.getAnonymousRecord(), client.record.getRecord(name)];
      const waiting = [
        opened.whenReady(),
        client.record.getList(listName).whenReady(),
        client.record.getDq(dequeueName).whenReady(),
        anonymous.setName(anonymousName),
        anonymous.whenReady() as Promise<unknown>,
      ];
      await client.errors.count(4);
      assert.deepEqual(await Promise.all(waiting.map(isPending)), waiting.map(() => true));
      assert.equal(opened.get('any'), undefined);
      assert.equal(await rejection(other.record.has(name)), DENIED);
      covers(['RecordHandler.getRecord', 'RecordHandler.getList', 'RecordHandler.getDq'], 'refusal');
      covers(['RecordHandler.getAnonymousRecord', 'AnonymousRecord.setName', 'AnonymousRecord.whenReady'], 'refusal');
      covers(['Record.whenReady', 'List.whenReady', 'Dequeue.whenReady'], 'refusal');
    });

    test('queries about denied names fail', async (t) => {
      const [client] = await clients(t);
      const name = fresh('denied/record');
      assert.equal(await rejection(client.record.snapshot(name)), DENIED);
      assert.equal(await rejection(client.record.has(name)), DENIED);
      assert.equal(await rejection(client.record.head(name)), DENIED);
      covers(['RecordHandler.snapshot', 'RecordHandler.has', 'RecordHandler.head'], 'refusal');
    });

    test('writes to denied names fail and create nothing', async (t) => {
      const [client, other] = await clients(t);
      const name = fresh('nowrite/record');
      client.record.setData(name, { a: 1 });
      await isDenied(client);
      assert.equal(await rejection(client.record.setDataWithAck(name, { a: 1 })), DENIED);
      assert.equal(await rejection(client.record.setDataWithAck(name, 'a', 1 as never)), DENIED);
      assert.deepEqual(await other.record.snapshot(name).catch((error: unknown) => error), 'RECORD_NOT_FOUND');
      covers(['RecordHandler.setData', 'RecordHandler.setDataWithAck'], 'refusal');
    });

    test('the client reports a denied notify and a denied pattern', async (t) => {
      const [client] = await clients(t);
      void client.record.notify([fresh('denied/record')]);
      await isDenied(client);
      client.record.listen(`denied/${fresh('x')}`, () => assert.fail('asked'));
      await isDenied(client);
      covers(['RecordHandler.notify', 'RecordHandler.listen'], 'refusal');
    });

    const erases = againstOriginal && 'deepstream 7 does not apply the rules to ERASE';
    test('an open record reports denied changes, and they reach no other client', { skip: erases }, async (t) => {
      const [client, other] = await clients(t);
      const name = fresh('nowrite/record');
      const [mine, theirs] = [await record(client, name), await record(other, name)];
      const errors = new Inbox<unknown[]>('errors of the record');
      mine.on('error', (...error: unknown[]) => errors.push(error));
      mine.set({ a: 1 });
      assert.deepEqual(await errors.next(), [DENIED, 'UPDATE']);
      mine.set('b', 2);
      assert.deepEqual(await errors.next(), [DENIED, 'PATCH']);
      mine.erase('b');
      assert.deepEqual(await errors.next(), [DENIED, 'ERASE']);
      assert.equal(await rejection(mine.setWithAck({ c: 3 })), DENIED);
      assert.equal(await rejection(mine.setWithAck('d', 4)), DENIED);
      assert.equal(await rejection(mine.eraseWithAck('d')), DENIED);
      assert.equal(await rejection(mine.delete()), DENIED);
      assert.deepEqual([theirs.version, { ...(theirs.get() as object) }], [0, {}]);
      assert.equal(await other.record.head(name), 0);
      covers(['Record.set', 'Record.setWithAck', 'Record.erase', 'Record.eraseWithAck', 'Record.delete'], 'refusal');
    });

    test('a list reports denied changes, and they reach no other client', async (t) => {
      const [client, other] = await clients(t);
      const name = fresh('nowrite/list');
      const [mine, theirs] = [await list(client, name), await list(other, name)];
      const errors = new Inbox<unknown>('errors of the list');
      mine.on('error', (error: unknown) => errors.push(error));
      mine.setEntries(['a', 'b']);
      assert.equal(await errors.next(), DENIED);
      mine.addEntry('c');
      assert.equal(await errors.next(), DENIED);
      mine.removeEntry('a');
      assert.equal(await errors.next(), DENIED);
      assert.equal(await rejection(mine.setEntriesWithAck(['d'])), DENIED);
      assert.equal(await rejection(mine.delete()), DENIED);
      assert.deepEqual(theirs.getEntries(), []);
      covers(['List.setEntries', 'List.addEntry', 'List.removeEntry', 'List.setEntriesWithAck', 'List.delete'], 'refusal');
    });

    test('denied changes of a dequeue reach no other client', async (t) => {
      const [client, other] = await clients(t);
      const name = fresh('nowrite/dequeue');
      const mine = await client.record.getDq(name).whenReady();
      const errors = new Inbox<unknown>('errors of the dequeue');
      mine.on('error', (error: unknown) => errors.push(error));
      mine.setEntries(['a', 'b', 'c', 'd']);
      assert.equal(await errors.next(), DENIED);
      const changes: Array<[method: 'push' | 'unshift' | 'pop' | 'shift' | 'insertEntry' | 'removeEntry', act: () => unknown]> = [
        ['push', () => mine.push('e')],
        ['unshift', () => mine.unshift('f')],
        ['insertEntry', () => mine.insertEntry('g', 1)],
        ['removeEntry', () => mine.removeEntry('b')],
        ['pop', () => mine.pop()],
        ['shift', () => mine.shift()],
      ];
      for (const [method, change] of changes) {
        const before = errors.seen.length;
        change();
        await errors.count(before + 1);
        covers(`Dequeue.${method}`, 'refusal');
      }
      assert.equal(await rejection(mine.setEntriesWithAck(['x', 'y', 'z'])), DENIED);
      assert.equal(await rejection(mine.delete()), DENIED);
      assert.equal(await other.record.head(name), 0);
      covers(['Dequeue.setEntries', 'Dequeue.setEntriesWithAck', 'Dequeue.delete'], 'refusal');
    });

    test('denied changes of an anonymous record reach no other client', async (t) => {
      const [client, other] = await clients(t);
      const name = fresh('nowrite/record');
      const mine = client.record.getAnonymousRecord();
      await mine.setName(name);
      mine.set('a', 1 as never);
      assert.equal(await rejection(mine.setWithAck('b', 2 as never)), DENIED);
      assert.equal(await rejection(mine.delete()), DENIED);
      assert.equal(await other.record.head(name), 0);
      covers(['AnonymousRecord.set', 'AnonymousRecord.setWithAck', 'AnonymousRecord.delete'], 'refusal');
    });
  });

  describe('of many names in one message', () => {
    const wrong = againstOriginal && 'deepstream drops the last name instead of the refused one';
    const base = 'free/bulk';

    test('events: only the denied name is skipped', { skip: wrong }, async (t) => {
      const [, other] = await clients(t);
      const peer = await RawPeer.login(server);
      const names = [`${base}/e1`, 'denied/e2', `${base}/e3`];
      peer.send({ topic: EVENT, action: C.EVENT_ACTION.SUBSCRIBE, names, correlationId: '7' });
      const denial = await peer.expect(EVENT, C.EVENT_ACTION.MESSAGE_DENIED);
      const { originalAction, name, correlationId, isError } = denial;
      assert.deepEqual([originalAction, name, correlationId, isError], [C.EVENT_ACTION.SUBSCRIBE, names[1], '7', true]);
      const ack = await peer.expect(EVENT, C.EVENT_ACTION.SUBSCRIBE);
      assert.deepEqual([ack.correlationId, ack.isAck], ['7', true]);
      for (const one of [names[0], names[2]]) other.event.emit(one as string, 1);
      await peer.expectCount(EVENT, C.EVENT_ACTION.EMIT, 2);
      const heard = peer.received.seen.filter(({ action, topic }) => topic === EVENT && action === C.EVENT_ACTION.EMIT);
      assert.deepEqual(heard.map((message) => message.name).sort(), [names[0], names[2]]);
      peer.close();
    });

    test('records: only the denied names are skipped', { skip: wrong }, async () => {
      const peer = await RawPeer.login(server);
      const names = ['denied/r0', `${base}/r1`, 'denied/r2', `${base}/r3`];
      peer.send({ topic: RECORD, action: C.RECORD_ACTION.SUBSCRIBECREATEANDREAD, names, correlationId: '0' });
      await peer.expectCount(RECORD, C.RECORD_ACTION.READ_RESPONSE, 2);
      await peer.expectCount(RECORD, C.RECORD_ACTION.MESSAGE_DENIED, 2);
      const of = (action: number): unknown[] =>
        peer.received.seen.filter((m) => m.topic === RECORD && m.action === action).map(({ name }) => name).sort();
      assert.deepEqual(of(C.RECORD_ACTION.READ_RESPONSE), [names[1], names[3]]);
      assert.deepEqual(of(C.RECORD_ACTION.MESSAGE_DENIED), [names[0], names[2]]);
      peer.close();
    });

    test('rpcs: only the denied name is skipped', { skip: wrong }, async (t) => {
      const [client, other] = await clients(t);
      const peer = await RawPeer.login(server);
      const names = [`${base}/p1`, 'denied/p2', `${base}/p3`];
      peer.send({ topic: RPC, action: C.RPC_ACTION.PROVIDE, names, correlationId: '0' });
      assert.equal((await peer.expect(RPC, C.RPC_ACTION.MESSAGE_DENIED)).name, names[1]);
      await peer.expect(RPC, C.RPC_ACTION.PROVIDE);
      other.rpc.make(names[2] as string, 1, () => undefined);
      assert.equal((await peer.expect(RPC, C.RPC_ACTION.REQUEST)).name, names[2]);
      assert.equal(await rejection(client.rpc.make(names[1] as string, 1)), DENIED);
      peer.close();
    });

    test('presence: only the denied name is skipped', { skip: wrong }, async (t) => {
      const peer = await RawPeer.login(server);
      const names = [freshUser(), `denied/${freshUser()}`, freshUser()];
      peer.send({ topic: PRESENCE, action: C.PRESENCE_ACTION.SUBSCRIBE, names, correlationId: '0' });
      assert.equal((await peer.expect(PRESENCE, C.PRESENCE_ACTION.MESSAGE_DENIED)).name, names[1]);
      await peer.expect(PRESENCE, C.PRESENCE_ACTION.SUBSCRIBE);
      await connect(t, server, { login: { username: names[2] } });
      assert.equal((await peer.expect(PRESENCE, C.PRESENCE_ACTION.PRESENCE_JOIN)).name, names[2]);
      peer.close();
    });

    test('if all names are denied, there is no acknowledgement', { skip: wrong }, async () => {
      const peer = await RawPeer.login(server);
      const names = ['denied/a', 'denied/b'];
      peer.send({ topic: EVENT, action: C.EVENT_ACTION.SUBSCRIBE, names, correlationId: '0' });
      await peer.expectCount(EVENT, C.EVENT_ACTION.MESSAGE_DENIED, 2);
      await peer.settle();
      assert.deepEqual(peer.received.seen.filter(({ topic, isAck }) => topic === EVENT && isAck), []);
      peer.close();
    });
  });

  describe('that depends on other data', () => {
    const own = againstOriginal && 'only Tidewire has this rule';

    test('a rule that fails denies, with a separate error', { skip: own }, async (t) => {
      const client = await connect(t, server, { errors: ['MESSAGE_PERMISSION_ERROR'] });
      assert.equal(await rejection(client.record.snapshot(fresh('broken/record'))), 'MESSAGE_PERMISSION_ERROR');
      assert.equal(await rejection(client.rpc.make(fresh('broken/rpc'), 1)), 'MESSAGE_PERMISSION_ERROR');
    });

    test('a rule may read another record', { skip: own }, async (t) => {
      const [client, other] = await clients(t);
      const gate = `gate-${freshUser()}`;
      const name = `needs/${gate}/record`;
      assert.equal(await rejection(client.record.setDataWithAck(name, { a: 1 })), DENIED);
      await other.record.setDataWithAck(gate, { open: true });
      await client.record.setDataWithAck(name, { a: 2 });
      assert.deepEqual(await client.record.snapshot(name), { a: 2 });
      await other.record.setDataWithAck(gate, { open: false });
      assert.equal(await rejection(client.record.snapshot(name)), DENIED);
    });

    test('writes keep their order while a rule waits', { skip: own }, async (t) => {
      const [client, other] = await clients(t);
      const gate = `gate-${freshUser()}`;
      await other.record.setDataWithAck(gate, { open: true });
      const opened = await record(client, `needs/${gate}/record`);
      const acks = new Inbox<unknown>('acknowledgements');
      for (let i = 1; i <= 200; i += 1) opened.set('count', i, acks.push);
      await acks.count(200);
      assert.deepEqual(new Set(acks.seen), new Set([null]));
      assert.equal(await other.record.head(opened.name), 200);
    });
  });

  test('a denied pattern does not prevent an allowed pattern of the same client', async (t) => {
    const [client, other] = await clients(t);
    const name = fresh('free');
    client.event.listen('denied/.*', () => assert.fail('asked'));
    await isDenied(client);
    const asked = new Inbox<string>('requests');
    client.event.listen(literally(name), (one, response) => {
      response.accept();
      asked.push(one);
    });
    await subscribed(other, name);
    assert.equal(await asked.next(), name);
    assert.equal(client.errors.seen.length, 1);
  });
});
