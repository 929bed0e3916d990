// The wire protocol: messages that no client library sends, but another peer might. The server answers them as the protocol defines. At
// most they end their own connection, and they never reach another client.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import WebSocket from 'ws';
import { C, connect, record, subscribed, type Message, type TestClient } from '../harness/client.ts';
import { fresh } from '../harness/names.ts';
import { RawPeer } from '../harness/raw.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, within } from '../harness/wait.ts';

const { EVENT, RECORD, RPC, PRESENCE, PARSER, CONNECTION } = C.TOPIC;
const A = C.RECORD_ACTION;
const crashes = againstOriginal && 'it ends the process of deepstream';
const unchecked = againstOriginal && 'deepstream forwards it unchecked';

describe('protocol', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start();
  });
  after(() => server.dispose());

  /** Asserts that the server still answers another client. */
  async function isWell(client: TestClient): Promise<void> {
    assert.equal(await client.record.has(fresh('record')), false);
  }

  const GARBAGE: Array<[what: string, bytes: number[]]> = [
    ['an empty message', []],
    ['one byte', [0xff]],
    ['an endless length', [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]],
    ['a length beyond the frame', [0x7f, 0x10, 0x02]],
    ['an unknown topic', [0x06, 0x10, 0x63, 0x1a, 0x02, 0x08, 0x02]],
    ['a field that ends early', [0x06, 0x10, 0x04, 0x1a, 0x02, 0x32, 0x7f]],
  ];
  for (const [what, bytes] of GARBAGE) {
    test(`${what} is an unknown topic, and the connection continues`, async (t) => {
      const [client, peer] = [await connect(t, server), await RawPeer.login(server)];
      peer.sendBytes(new Uint8Array(bytes));
      await peer.expect(PARSER, C.PARSER_ACTION.UNKNOWN_TOPIC);
      await peer.settle();
      await isWell(client);
      peer.close();
    });
  }

  const closes = againstOriginal && 'deepstream closes the connection';
  test('text is not a valid message, and the connection continues', { skip: closes }, async () => {
    const peer = await RawPeer.login(server);
    peer.sendText('{"topic":4,"action":2,"name":"x"}');
    await peer.expect(PARSER, C.PARSER_ACTION.UNKNOWN_TOPIC);
    await peer.settle();
    peer.close();
  });

  test('topics that are not for clients are unknown', async () => {
    const peer = await RawPeer.login(server);
    const topics = [C.TOPIC.PARSER, C.TOPIC.MONITORING, C.TOPIC.CLUSTER, C.TOPIC.LOCK];
    for (const topic of topics) peer.send({ topic, action: 1 });
    peer.send({ topic: CONNECTION, action: C.CONNECTION_ACTION.CHALLENGE, url: 'x' });
    await peer.expectCount(PARSER, C.PARSER_ACTION.UNKNOWN_TOPIC, topics.length + 1);
    await peer.settle();
    peer.close();
  });

  test('a message larger than the limit ends its connection with 1009', async (t) => {
    const [client, peer] = [await connect(t, server), await RawPeer.login(server)];
    peer.sendBytes(new Uint8Array(1_048_577));
    assert.equal(await within(DEADLINE_MS, peer.closed, 'the server closes'), 1009);
    await isWell(client);
  });

  test('a message just below the limit is accepted', async (t) => {
    const [alice, bob] = [await connect(t, server), await connect(t, server)];
    const name = fresh('event');
    const inbox = await subscribed(bob, name);
    const text = 'x'.repeat(1_048_000);
    alice.event.emit(name, text);
    assert.equal((await inbox.next()).length, text.length);
  });

  test('unknown paths are not upgraded', async () => {
    for (const path of ['/', '/deepstream/more', '/other']) {
      const socket = new WebSocket(`ws://${server.address}${path}`);
      const outcome = new Promise((done) => {
        socket.once('open', () => done('open'));
        socket.once('error', () => done('refused'));
      });
      assert.equal(await within(DEADLINE_MS, outcome, 'an answer'), 'refused');
    }
  });

  describe('malformed JSON', () => {
    const BAD = ['', '{', '{"a":}', 'undefined', "{'a':1}", '[1,]', '"\u0001"', '1 2', 'NaN', '\ufeff{}'];

    test('in an event reaches no subscriber', { skip: unchecked }, async (t) => {
      const [client, peer] = [await connect(t, server), await RawPeer.login(server)];
      const name = fresh('event');
      const inbox = await subscribed(client, name);
      for (const data of BAD) peer.send({ topic: EVENT, action: C.EVENT_ACTION.EMIT, name, data });
      peer.send({ topic: EVENT, action: C.EVENT_ACTION.EMIT, name, data: '"good"' });
      assert.equal(await inbox.next(), 'good');
      assert.deepEqual(inbox.seen, ['good']);
      peer.close();
    });

    test('in a call reaches no provider, in an answer no caller', { skip: unchecked }, async (t) => {
      const [client, peer] = [await connect(t, server), await RawPeer.login(server)];
      const [theirs, ours] = [fresh('rpc'), fresh('rpc')];
      const calls = new Inbox<unknown>('calls');
      client.rpc.provide(theirs, (data, response) => {
        calls.push(data);
        response.send(data);
      });
      await client.wire.acknowledged('RPC', C.RPC_ACTION.PROVIDE, theirs);
      for (const [i, data] of BAD.entries()) {
        peer.send({ topic: RPC, action: C.RPC_ACTION.REQUEST, name: theirs, correlationId: `bad${i}`, data });
      }
      peer.send({ topic: RPC, action: C.RPC_ACTION.REQUEST, name: theirs, correlationId: 'good', data: '"good"' });
      assert.equal(await calls.next(), 'good');
      peer.send({ topic: RPC, action: C.RPC_ACTION.PROVIDE, names: [ours], correlationId: '0' });
      await peer.expect(RPC, C.RPC_ACTION.PROVIDE);
      const outcome = client.rpc.make(ours, 1).catch((reason: unknown) => reason);
      const { correlationId } = await peer.expect(RPC, C.RPC_ACTION.REQUEST, ({ name }) => name === ours);
      peer.send({ topic: RPC, action: C.RPC_ACTION.ACCEPT, name: ours, correlationId });
      peer.send({ topic: RPC, action: C.RPC_ACTION.RESPONSE, name: ours, correlationId, data: '{' });
      await peer.settle();
      peer.send({ topic: RPC, action: C.RPC_ACTION.RESPONSE, name: ours, correlationId, data: '"good"' });
      await within(DEADLINE_MS, outcome, 'the call ends');
      peer.close();
    });

    const WRITES = [A.UPDATE, A.PATCH, A.CREATEANDUPDATE, A.CREATEANDPATCH] as const;
    for (const action of WRITES) {
      test(`in ${A[action]} is refused with its acknowledgement, and not written`, { skip: crashes }, async (t) => {
        const [client, peer] = [await connect(t, server), await RawPeer.login(server)];
        const name = fresh('record');
        await client.record.setDataWithAck(name, { a: 1 });
        const opened = await record(client, name);
        for (const [i, data] of BAD.entries()) {
          peer.send({ topic: RECORD, action, name, version: 2, path: 'a', data, correlationId: `${i}`, isWriteAck: true });
        }
        await peer.expectCount(RECORD, A.INVALID_MESSAGE_DATA, BAD.length);
        for (const message of peer.received.seen.filter(({ action: one }) => one === A.INVALID_MESSAGE_DATA)) {
          const { isError, isWriteAck, originalAction, data } = message;
          assert.deepEqual([isError, isWriteAck, originalAction, data], [true, true, action, undefined]);
        }
        assert.deepEqual([opened.get(), opened.version], [{ a: 1 }, 1]);
        peer.close();
      });
    }
  });

  describe('writes', () => {
    const write = async (message: Partial<Message>): Promise<{ peer: RawPeer; name: string; client: Message }> => {
      const peer = await RawPeer.login(server);
      const name = fresh('record');
      const create = { topic: RECORD, action: A.CREATEANDUPDATE, name, version: -1, data: '{"a":1}' };
      peer.send({ ...create, isWriteAck: true, correlationId: '1' });
      await peer.expect(RECORD, A.WRITE_ACKNOWLEDGEMENT);
      peer.send({ topic: RECORD, action: A.UPDATE, ...message, name, isWriteAck: true, correlationId: '2' } as Message);
      const client = await peer.received.find(({ correlationId }) => correlationId === '2');
      return { peer, name, client };
    };

    for (const path of ['__proto__', '__proto__.x', 'a.constructor', 'prototype.y', 'x.__proto__[0]']) {
      const takes = againstOriginal && 'deepstream 7 accepts it';
      test(`the path ${path} is refused`, { skip: takes }, async () => {
        const { peer, name, client } = await write({ action: A.PATCH, version: 2, path, data: '1' });
        assert.equal(client.action, A.INVALID_MESSAGE_DATA);
        peer.send({ topic: RECORD, action: A.READ, name });
        assert.equal((await peer.expect(RECORD, A.READ_RESPONSE)).data, '{"a":1}');
        peer.close();
      });
    }

    for (const data of ['1', '"text"', 'null', 'true']) {
      test(`the whole value ${data} is refused`, async () => {
        const { peer, client } = await write({ action: A.UPDATE, version: 2, data });
        assert.equal(client.action, A.INVALID_MESSAGE_DATA);
        peer.close();
      });
    }

    test('a version that exists is answered with the current value', async () => {
      const { peer, name, client } = await write({ action: A.UPDATE, version: 1, data: '{"b":2}' });
      const { action, version, data, originalAction } = client;
      assert.deepEqual([action, version, data, originalAction], [A.VERSION_EXISTS, 1, '{"a":1}', A.UPDATE]);
      assert.equal(client.name, name);
      peer.close();
    });

    test('a version too far ahead is refused', async () => {
      const { peer, client } = await write({ action: A.PATCH, version: 7, path: 'a', data: '2' });
      assert.equal(client.action, A.INVALID_VERSION);
      peer.close();
    });

    test('only the client that requested an acknowledgement receives it', async (t) => {
      const [client, peer] = [await connect(t, server), await RawPeer.login(server)];
      const name = fresh('record');
      const opened = await record(client, name);
      const seen = new Inbox<unknown>('values');
      opened.subscribe('a', seen.push);
      const update = client.wire.receives(({ topic, action }) => topic === RECORD && action === A.UPDATE);
      const create = { topic: RECORD, action: A.CREATEANDUPDATE, name, version: -1, data: '{"a":1}' };
      peer.send({ ...create, isWriteAck: true, correlationId: '9' });
      await peer.expect(RECORD, A.WRITE_ACKNOWLEDGEMENT, ({ correlationId }) => correlationId === '9');
      const { version, isWriteAck, correlationId } = await update;
      assert.deepEqual([version, Boolean(isWriteAck), correlationId], [1, false, undefined]);
      assert.equal(await seen.next(), 1);
      peer.close();
    });

    const noNull = againstOriginal && 'it ends the process of deepstream';
    test('a patch at the server replaces null on its path', { skip: noNull }, async () => {
      const peer = await RawPeer.login(server);
      const name = fresh('record');
      const ack = { isWriteAck: true, correlationId: '1' };
      peer.send({ topic: RECORD, action: A.CREATEANDUPDATE, name, version: -1, data: '{"a":null}' });
      peer.send({ topic: RECORD, action: A.CREATEANDPATCH, name, version: -1, path: 'a.b[1]', data: '2', ...ack });
      await peer.expect(RECORD, A.WRITE_ACKNOWLEDGEMENT);
      peer.send({ topic: RECORD, action: A.READ, name });
      assert.equal((await peer.expect(RECORD, A.READ_RESPONSE)).data, '{"a":{"b":[null,2]}}');
      peer.close();
    });
  });

  describe('subscriptions', () => {
    const KINDS: Array<[topic: number, subscribe: number, multiple: number, unsubscribe: number]> = [
      [EVENT, C.EVENT_ACTION.SUBSCRIBE, C.EVENT_ACTION.MULTIPLE_SUBSCRIPTIONS, C.EVENT_ACTION.UNSUBSCRIBE],
      [RECORD, A.SUBSCRIBECREATEANDREAD, A.MULTIPLE_SUBSCRIPTIONS, A.UNSUBSCRIBE],
      [PRESENCE, C.PRESENCE_ACTION.SUBSCRIBE, C.PRESENCE_ACTION.MULTIPLE_SUBSCRIPTIONS, C.PRESENCE_ACTION.UNSUBSCRIBE],
    ];
    for (const [topic, subscribe, multiple, unsubscribe] of KINDS) {
      test(`of ${C.TOPIC[topic]} made twice are acknowledged with a notice, and count once`, async () => {
        const peer = await RawPeer.login(server);
        const name = fresh('name');
        for (const correlationId of ['1', '2']) peer.send({ topic, action: subscribe, names: [name], correlationId });
        assert.equal((await peer.expect(topic, multiple)).name, name);
        await peer.expectCount(topic, subscribe, 2);
        peer.send({ topic, action: unsubscribe, names: [name], correlationId: '3' });
        await peer.expect(topic, unsubscribe, ({ correlationId, isAck }) => correlationId === '3' && isAck === true);
        peer.close();
      });
    }

    test('the removal of a subscription that never existed is acknowledged', async () => {
      const peer = await RawPeer.login(server);
      for (const [topic, , , unsubscribe] of KINDS) {
        peer.send({ topic, action: unsubscribe, names: [fresh('never')], correlationId: '1' });
        await peer.expect(topic, unsubscribe, ({ isAck }) => isAck === true);
      }
      peer.close();
    });

    test('there is no gap between the read of a record and its changes', async (t) => {
      const writers = await Promise.all([1, 2, 3].map(() => connect(t, server)));
      const name = fresh('record');
      let running = true;
      const writing = writers.map(async (writer, i) => {
        for (let n = 0; running; n += 1) await writer.record.setDataWithAck(name, `w${i}`, n as never);
      });
      for (let round = 0; round < 30; round += 1) {
        const peer = await RawPeer.login(server);
        peer.send({ topic: RECORD, action: A.SUBSCRIBECREATEANDREAD, names: [name], correlationId: '0' });
        const values = ({ topic, action }: Message): boolean =>
          topic === RECORD && (action === A.READ_RESPONSE || action === A.PATCH);
        const versions = (): number[] => peer.received.seen.filter(values).map(({ version }) => version ?? -1);
        await peer.received.until(() => versions().length >= 10);
        const seen = versions();
        const first = seen[0] ?? -1;
        assert.deepEqual(seen, seen.map((_, i) => first + i), 'versions in steps of one, from the version that was read');
        peer.close();
      }
      running = false;
      await Promise.all(writing);
    });
  });
});
