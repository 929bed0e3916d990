// Limits as a client sees them: the server refuses an operation that exceeds a limit with a reason, and no other operation is affected.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { C, close, connect, open, pair, record, subscribed, type RpcResponse } from '../harness/client.ts';
import { fresh } from '../harness/names.ts';
import { RawPeer } from '../harness/raw.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, within } from '../harness/wait.ts';

const SUBSCRIPTIONS_MAX = 20;
const CALLS_MAX = 5;
const LIMITS = {
  subscriptions_max: SUBSCRIPTIONS_MAX,
  calls_max: CALLS_MAX,
  name_bytes_max: 100,
  nesting_max: 8,
  record_bytes_max: 10_000,
  bulk_names_max: 50,
};

describe('limits', { concurrency: 8, skip: againstOriginal && 'deepstream has no such limits' }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start({ limits: LIMITS });
  });
  after(() => server.dispose());

  async function rejection(promise: Promise<unknown> | void): Promise<unknown> {
    const outcome = Promise.resolve(promise).then(
      () => assert.fail('succeeded'),
      (reason: unknown) => reason,
    );
    return within(DEADLINE_MS, outcome, 'the operation fails');
  }

  test('a record may not grow beyond its size, in one write or by patches', async (t) => {
    const [client, other] = await pair(t, server);
    const name = fresh('r');
    const large = { text: 'x'.repeat(10_000) };
    assert.equal(await rejection(client.record.setDataWithAck(name, large)), 'INVALID_MESSAGE_DATA');
    assert.equal(await other.record.has(name), false);
    await client.record.setDataWithAck(name, { text: 'x'.repeat(9_000) });
    assert.equal(await rejection(client.record.setDataWithAck(name, 'more', 'y'.repeat(2_000) as never)), 'INVALID_MESSAGE_DATA');
    assert.equal(await rejection(client.record.setDataWithAck(name, 'list[5000]', 1 as never)), 'INVALID_MESSAGE_DATA');
    assert.equal(await other.record.head(name), 1);
  });

  test('a record may not nest too deep, in one write or by a path', async (t) => {
    const client = await connect(t, server);
    const name = fresh('r');
    const deep = JSON.parse(`${'{"a":'.repeat(9)}1${'}'.repeat(9)}`);
    assert.equal(await rejection(client.record.setDataWithAck(name, deep)), 'INVALID_MESSAGE_DATA');
    assert.equal(await rejection(client.record.setDataWithAck(name, 'a.b.c.d.e.f.g.h.i', 1 as never)), 'INVALID_MESSAGE_DATA');
    await client.record.setDataWithAck(name, 'a.b.c.d.e.f.g', 1 as never);
    assert.equal(await client.record.head(name), 1);
  });

  test('an event that nests too deep reaches no subscriber', async (t) => {
    const [client, other] = await pair(t, server, { errors: ['UNSOLICITED_MESSAGE'] });
    const name = fresh('e');
    const inbox = await subscribed(other, name);
    client.event.emit(name, JSON.parse(`${'['.repeat(9)}${']'.repeat(9)}`));
    client.event.emit(name, 'good');
    assert.equal(await inbox.next(), 'good');
    assert.deepEqual(inbox.seen, ['good']);
  });

  test('a name that is too long is refused', async (t) => {
    const client = await connect(t, server, { errors: ['INVALID_MESSAGE_DATA', 'UNSOLICITED_MESSAGE'] });
    const long = 'n'.repeat(101);
    assert.equal(await rejection(client.record.setDataWithAck(long, { a: 1 })), 'INVALID_MESSAGE_DATA');
    client.event.emit(long, 1);
    client.event.subscribe(long, () => assert.fail('received'));
    const name = fresh('e');
    const inbox = await subscribed(client, name);
    client.event.emit(name, 'own');
    assert.equal(await inbox.next(), 'own');
    assert.equal(client.getConnectionState(), C.CONNECTION_STATE.OPEN);
  });

  test('the subscriptions of a session are limited: more are denied until others end', async (t) => {
    const client = await connect(t, server, { subscriptionInterval: 0, errors: ['MESSAGE_DENIED'] });
    const names = Array.from({ length: SUBSCRIPTIONS_MAX + 3 }, () => fresh('e'));
    const nothing = (): void => undefined;
    for (const name of names) client.event.subscribe(name, nothing);
    await client.errors.count(3);
    assert.equal(client.event.eventNames().length, SUBSCRIPTIONS_MAX);
    for (const name of client.event.eventNames().slice(0, 3)) {
      client.event.unsubscribe(name, nothing);
      await client.wire.acknowledged('EVENT', C.EVENT_ACTION.UNSUBSCRIBE, name);
    }
    await subscribed(client, fresh('e'));
    await record(client, fresh('r'));
    client.rpc.provide(fresh('p'), () => undefined);
    client.rpc.provide(fresh('p'), () => undefined);
    await client.errors.count(4);
  });

  test('the pending calls of a session are limited: more fail at once until others end', async (t) => {
    const [caller, provider] = await pair(t, server);
    const name = fresh('p');
    const responses = new Inbox<RpcResponse>('responses');
    provider.rpc.provide(name, (_data, response) => responses.push(response));
    await provider.wire.acknowledged('RPC', C.RPC_ACTION.PROVIDE, name);
    const calls = Array.from({ length: CALLS_MAX }, () => caller.rpc.make(name, null));
    assert.equal(await rejection(caller.rpc.make(name, null)), 'NO_RPC_PROVIDER');
    for (const response of await responses.count(CALLS_MAX)) response.send('done');
    await Promise.all(calls);
    const again = caller.rpc.make(name, null);
    (await responses.count(CALLS_MAX + 1))[CALLS_MAX]?.send('again');
    assert.equal(await again, 'again');
  });

  test('the names in one message are limited', async () => {
    const peer = await RawPeer.login(server);
    const names = Array.from({ length: 51 }, () => fresh('e'));
    peer.send({ topic: C.TOPIC.EVENT, action: C.EVENT_ACTION.SUBSCRIBE, names, correlationId: '0' });
    await peer.settle();
    assert.deepEqual(peer.received.seen.filter(({ isAck }) => isAck), []);
    peer.close();
  });
});

describe('the limit of connections', { skip: againstOriginal && 'deepstream has no such limit' }, () => {
  test('more are refused until others close, and existing ones continue', async (t) => {
    const server = await Server.during(t, { limits: { connections_max: 3 } });
    const clients = [await connect(t, server), await connect(t, server), await connect(t, server)] as const;
    const late = open(server.address, { reconnectIntervalIncrement: 20 });
    t.after(() => close(late));
    const login = Promise.resolve(late.login());
    await late.errors.find(({ event }) => event === 'CONNECTION_ERROR');
    assert.equal(await clients[0].record.has(fresh('r')), false);
    close(clients[2]);
    await within(DEADLINE_MS, login, 'the late client logs in');
  });
});
