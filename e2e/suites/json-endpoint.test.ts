// The JSON endpoint serves peers that send text, and the unmodified client in its JSON mode. Messages in JSON and in protobuf share the
// same events, records, calls and users.

import assert from 'node:assert/strict';
import { after, before, describe, test, type TestContext } from 'node:test';
import WebSocket from 'ws';
import { certify, CertificateFiles } from '../harness/certificate.ts';
import { C, connect, inState, record, subscribed, type TestClient } from '../harness/client.ts';
import { JSON_CLIENT, JSON_PATH, JsonPeer, payload, valueOf, type JsonMessage } from '../harness/json-peer.ts';
import { fresh, literally } from '../harness/names.ts';
import { RawPeer } from '../harness/raw.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { DEADLINE_MS, Inbox, eventually, within } from '../harness/wait.ts';

const { AUTH, CONNECTION, EVENT, PARSER, PRESENCE, RECORD, RPC } = C.TOPIC;
const { EVENT_ACTION: E, RECORD_ACTION: R, RPC_ACTION: P, PRESENCE_ACTION: U } = C;
const PATCH_MULTI = 35;
/** The position of an event with history. Only Tidewire has this action. */
const POSITION = 121;
const { UNKNOWN_TOPIC } = C.PARSER_ACTION;

const takes = 'deepstream accepts it';
const unchecked = againstOriginal && 'deepstream forwards it unchecked';
const noAcks = againstOriginal && 'deepstream does not mark acknowledgements';

/** Subscribes and waits for the acknowledgement, which deepstream's own server does not mark with `isAck`. */
async function subscribe(peer: JsonPeer, name: string): Promise<void> {
  const correlationId = fresh('correlation');
  peer.send({ topic: EVENT, action: E.SUBSCRIBE, names: [name], correlationId, isAck: false });
  const ack = await peer.expect(EVENT, E.SUBSCRIBE, (message) => message.correlationId === correlationId);
  if (!againstOriginal) assert.equal(ack.isAck, true);
}

/** Opens a record and returns the answer to its read. */
async function open(peer: JsonPeer, name: string): Promise<JsonMessage> {
  peer.send({ topic: RECORD, action: R.SUBSCRIBECREATEANDREAD, names: [name], correlationId: fresh('correlation'), isAck: false });
  return peer.expect(RECORD, R.READ_RESPONSE, (message) => message.name === name);
}

const events = (peer: JsonPeer, name: string): JsonMessage[] =>
  peer.received.seen.filter((message) => message.topic === EVENT && message.action === E.EMIT && message.name === name);

describe('the JSON endpoint', { concurrency: 4 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start({ jsonEndpoint: true });
  });
  after(() => server.dispose());

  const peers = async (t: TestContext, count = 2): Promise<JsonPeer[]> => {
    const opened = await Promise.all(Array.from({ length: count }, () => JsonPeer.login(server)));
    t.after(() => opened.forEach((peer) => peer.close()));
    return opened;
  };

  describe('carries', () => {
    const VALUES = [{ a: [1, 'ü🎉"\\\n'] }, [], 'text', 0, false, null, '', 1e21, '\u2028', { __proto__: null, b: {} }];

    test('events with any value to peers and clients', async (t) => {
      const [publisher, listener] = (await peers(t)) as [JsonPeer, JsonPeer];
      const clients = [await connect(t, server)];
      if (!noAcks) clients.push(await connect(t, server, JSON_CLIENT));
      const name = fresh('event "\\ü\u0001');
      await subscribe(listener, name);
      const inboxes = [];
      for (const client of clients) inboxes.push(await subscribed(client, name));
      for (const value of VALUES) publisher.send({ topic: EVENT, action: E.EMIT, name, ...payload(value), isAck: false });
      publisher.send({ topic: EVENT, action: E.EMIT, name, isAck: false });
      await listener.received.until(() => events(listener, name).length > VALUES.length);
      const expected = JSON.parse(JSON.stringify(VALUES)) as unknown[];
      assert.deepEqual(events(listener, name).map(valueOf), [...expected, undefined]);
      for (const inbox of inboxes) {
        await inbox.until((seen) => seen.length > VALUES.length);
        assert.deepEqual(inbox.seen, [...expected, undefined]);
      }
      assert.equal(events(publisher, name).length, 0, 'a publisher does not receive its own events');
    });

    test('payloads as a value or as text, and the value takes precedence', { skip: againstOriginal && 'it forwards both' }, async (t) => {
      const [peer] = (await peers(t, 1)) as [JsonPeer];
      const name = fresh('event');
      const inbox = await subscribed(await connect(t, server), name);
      const forms = ['"parsedData":{"n":1}', '"data":"{\\"n\\":2}"', '"data":"{","parsedData":{"n":3}', '"parsedData":{"n":4},"data":"5"'];
      for (const form of forms) peer.sendText(`{"topic":${EVENT},"action":${E.EMIT},"name":"${name}",${form}}`);
      await inbox.until((seen) => seen.length === forms.length);
      assert.deepEqual(inbox.seen, [{ n: 1 }, { n: 2 }, { n: 3 }, { n: 4 }]);
    });

    test('the end of a subscription', async (t) => {
      const [peer, other] = (await peers(t)) as [JsonPeer, JsonPeer];
      const [name, last] = [fresh('event'), fresh('event')];
      await subscribe(peer, name);
      await subscribe(peer, last);
      peer.send({ topic: EVENT, action: E.UNSUBSCRIBE, names: [name], correlationId: 'end', isAck: false });
      await peer.expect(EVENT, E.UNSUBSCRIBE, ({ correlationId }) => correlationId === 'end');
      for (const to of [name, last]) other.send({ topic: EVENT, action: E.EMIT, name: to, ...payload(1) });
      await peer.expect(EVENT, E.EMIT, (message) => message.name === last);
      assert.equal(events(peer, name).length, 0);
    });

    test('records: values, patches, erased paths, versions and write acknowledgements', async (t) => {
      const [writer, reader] = (await peers(t)) as [JsonPeer, JsonPeer];
      const name = fresh('record');
      const fresh0 = await open(writer, name);
      assert.deepEqual([valueOf(fresh0), fresh0.version], [{}, 0]);
      await open(reader, name);
      const client = await record(await connect(t, server), name);
      const write = (action: number, version: number, more: object): void => {
        writer.send({ topic: RECORD, action, name, version, isWriteAck: true, correlationId: `w${version}`, ...more });
      };
      write(R.UPDATE, 1, payload({ a: { b: 1 }, 'c"': [1, 2] }));
      write(R.PATCH, 2, { path: 'a.b', ...payload('ü') });
      write(R.PATCH, 3, { path: 'c"[1]', ...payload(null) });
      write(R.ERASE, 4, { path: 'a' });
      for (const version of [1, 2, 3, 4]) {
        const ack = await writer.expect(RECORD, R.WRITE_ACKNOWLEDGEMENT, ({ correlationId }) => correlationId === `w${version}`);
        assert.equal(ack.isWriteAck, true);
      }
      await reader.received.find((message) => message.topic === RECORD && message.version === 4);
      const changes = reader.received.seen.filter((message) => message.topic === RECORD && (message.version ?? 0) > 0);
      assert.deepEqual(
        changes.map((message) => [message.action, message.version, message.path, valueOf(message)]),
        [
          [R.UPDATE, 1, undefined, { a: { b: 1 }, 'c"': [1, 2] }],
          [R.PATCH, 2, 'a.b', 'ü'],
          [R.PATCH, 3, 'c"[1]', null],
          [R.PATCH, 4, 'a', undefined],
        ],
      );
      await eventually(() => client.version === 4, 'the client has all versions');
      assert.deepEqual(client.get(), { 'c"': [1, null] });
    });

    test('conflicts, with the value that won', async (t) => {
      const [first, second] = (await peers(t)) as [JsonPeer, JsonPeer];
      const name = fresh('record');
      await open(first, name);
      await open(second, name);
      first.send({ topic: RECORD, action: R.UPDATE, name, version: 1, ...payload({ by: 'first' }) });
      await second.expect(RECORD, R.UPDATE, (message) => message.name === name);
      second.send({ topic: RECORD, action: R.UPDATE, name, version: 1, ...payload({ by: 'second' }) });
      const conflict = await second.expect(RECORD, R.VERSION_EXISTS, (message) => message.name === name);
      assert.deepEqual([conflict.version, valueOf(conflict)], [1, { by: 'first' }]);
    });

    test('reads, heads and deletions', async (t) => {
      const [peer, other] = (await peers(t)) as [JsonPeer, JsonPeer];
      const [name, missing] = [fresh('record'), fresh('record')];
      peer.send({ topic: RECORD, action: R.READ, name: missing });
      const notFound = await peer.expect(RECORD, R.RECORD_NOT_FOUND, (message) => message.name === missing);
      assert.deepEqual([notFound.isError, notFound.originalAction], [true, R.READ]);
      await open(other, name);
      peer.send({ topic: RECORD, action: R.CREATEANDUPDATE, name, version: -1, isWriteAck: true, correlationId: 'x', ...payload([1]) });
      await peer.expect(RECORD, R.WRITE_ACKNOWLEDGEMENT, (message) => message.name === name);
      peer.send({ topic: RECORD, action: R.READ, name });
      assert.deepEqual(valueOf(await peer.expect(RECORD, R.READ_RESPONSE, (message) => message.name === name)), [1]);
      peer.send({ topic: RECORD, action: R.HEAD, name });
      assert.equal((await peer.expect(RECORD, R.HEAD_RESPONSE, (message) => message.name === name)).version, 1);
      peer.send({ topic: RECORD, action: R.SUBSCRIBEANDHEAD, names: [name, missing], correlationId: 'h' });
      // The server answers names of different owners separately.
      for (const [asked, version] of [[name, 1], [missing, -1]] as const) {
        await peer.received.find(
          (message) =>
            (message.action === R.HEAD_RESPONSE_BULK && message.versions?.[asked] === version) ||
            (message.action === R.HEAD_RESPONSE && message.name === asked && message.version === version),
        );
      }
      peer.send({ topic: RECORD, action: R.DELETE, name });
      await peer.expect(RECORD, R.DELETE_SUCCESS, (message) => message.name === name);
      await other.expect(RECORD, R.DELETED, (message) => message.name === name);
    });

    test('calls: requests, responses, errors, and no provider', async (t) => {
      const [caller, provider] = (await peers(t)) as [JsonPeer, JsonPeer];
      const name = fresh('rpc');
      provider.send({ topic: RPC, action: P.PROVIDE, names: [name], correlationId: 'p' });
      await provider.expect(RPC, P.PROVIDE);
      const client = await connect(t, server);
      const call = client.rpc.make(name, { n: 1 });
      const request = await provider.expect(RPC, P.REQUEST, (message) => message.name === name);
      assert.deepEqual(valueOf(request), { n: 1 });
      const answer = (action: number, to: JsonMessage, more: object = {}): void =>
        provider.send({ topic: RPC, action, name, correlationId: to.correlationId, ...more } as JsonMessage);
      answer(P.ACCEPT, request);
      answer(P.RESPONSE, request, payload(['ü']));
      assert.deepEqual(await call, ['ü']);
      caller.send({ topic: RPC, action: P.REQUEST, name, correlationId: 'mine', ...payload(2) });
      const second = await provider.expect(RPC, P.REQUEST, (message) => message.correlationId === 'mine');
      answer(P.ACCEPT, second);
      answer(P.REQUEST_ERROR, second, payload('no'));
      const refused = await caller.expect(RPC, P.REQUEST_ERROR);
      assert.deepEqual([refused.correlationId, valueOf(refused)], ['mine', 'no']);
      const nobody = fresh('rpc');
      caller.send({ topic: RPC, action: P.REQUEST, name: nobody, correlationId: 'none', ...payload(3) });
      const none = await caller.expect(RPC, P.NO_RPC_PROVIDER);
      assert.deepEqual([none.name, none.correlationId], [nobody, 'none']);
    });

    for (const [what, topic, actions] of [['event', EVENT, E], ['record', RECORD, R]] as const) {
      test(`listening to ${what}s`, async (t) => {
        const [provider] = (await peers(t, 1)) as [JsonPeer];
        const name = fresh(what);
        const pattern = `^${literally(name)}$`;
        provider.send({ topic, action: actions.LISTEN, name: pattern });
        await provider.expect(topic, actions.LISTEN, (message) => message.name === pattern);
        const client = await connect(t, server);
        const end = topic === EVENT ? await eventEnd(client, name) : await recordEnd(client, name);
        const found = await provider.expect(topic, actions.SUBSCRIPTION_FOR_PATTERN_FOUND);
        assert.deepEqual([found.name, found.subscription], [pattern, name]);
        provider.send({ topic, action: actions.LISTEN_ACCEPT, name: pattern, subscription: name });
        await provider.settle();
        end();
        const removed = await provider.expect(topic, actions.SUBSCRIPTION_FOR_PATTERN_REMOVED);
        assert.equal(removed.subscription, name);
      });
    }

    test('heartbeats before and after the login', { skip: againstOriginal && 'it does not answer before the login' }, async () => {
      const peer = await JsonPeer.dial(server);
      await peer.settle();
      peer.close();
    });
  });

  describe('refuses', () => {
    const CLOSING: Array<[what: string, text: string]> = [
      ['an empty text', ''],
      ['incomplete JSON', '{"topic":4,'],
      ['two objects', '{"topic":4}{"topic":4}'],
      ['an undefined payload', '{"topic":4,"action":2,"name":"e","parsedData":undefined}'],
      ['names without quotes', '{topic:4}'],
    ];
    for (const [what, text] of CLOSING) {
      test(`${what}: the connection ends`, async (t) => {
        const [peer, other] = (await peers(t)) as [JsonPeer, JsonPeer];
        peer.sendText(text);
        const { code, reason } = await within(DEADLINE_MS, peer.closed, 'the server closes');
        if (!againstOriginal) {
          assert.equal(code, 1007);
          assert.match(reason, /^malformed JSON at byte \d+$/);
        }
        await other.settle();
      });
    }

    test('bytes: the connection ends', async () => {
      const peer = await JsonPeer.login(server);
      peer.sendBytes(new Uint8Array([0x06, 0x10, 0x02, 0x1a, 0x02, 0x08, 0x02]));
      const { code, reason } = await within(DEADLINE_MS, peer.closed, 'the server closes');
      if (!againstOriginal) assert.deepEqual([code, reason], [1003, 'this path takes text messages']);
    });

    const UNREADABLE: Array<[what: string, text: string, original?: string]> = [
      ['a list', '[]'],
      ['null', 'null', 'it ends the process of deepstream'],
      ['an empty object', '{}'],
      ['an unknown topic', '{"topic":99,"action":1}'],
      ["a topic for deepstream's nodes", '{"topic":9,"action":1}'],
      ['a topic by name', '{"topic":"EVENT","action":2,"name":"e"}'],
      ['an action by name', '{"topic":4,"action":"EMIT","name":"e"}', 'deepstream does not answer'],
      ['an action that is not an integer', '{"topic":4,"action":2.5,"name":"e"}', 'deepstream does not answer'],
      ['a name that is a number', '{"topic":4,"action":2,"name":5}', takes],
      ['names that are not a list', '{"topic":4,"action":3,"names":"e","correlationId":"0"}', takes],
      ['names that are not strings', '{"topic":4,"action":3,"names":["e",{}],"correlationId":"0"}', takes],
      ['a payload text that is a value', '{"topic":4,"action":2,"name":"e","data":{}}', takes],
      ['a version beyond its range', '{"topic":5,"action":18,"name":"r","version":2147483648,"parsedData":{}}', takes],
      ['half a surrogate pair', '{"topic":4,"action":2,"name":"\\ud800"}', takes],
    ];
    for (const [what, text, original] of UNREADABLE) {
      test(`${what}: answered with an error, and the connection continues`, { skip: againstOriginal && original }, async (t) => {
        const [peer] = (await peers(t, 1)) as [JsonPeer];
        peer.sendText(text);
        const answer = await peer.expect(PARSER, UNKNOWN_TOPIC);
        if (!againstOriginal) assert.deepEqual(answer, { topic: PARSER, action: UNKNOWN_TOPIC });
        await peer.settle();
      });
    }

    test('an unknown action without an answer, and the connection continues', async (t) => {
      const [peer] = (await peers(t, 1)) as [JsonPeer];
      peer.send({ topic: EVENT, action: 77, name: 'e' });
      await peer.settle();
    });

    test('payloads that are not JSON: no client receives them', { skip: unchecked }, async (t) => {
      const [peer, listener] = (await peers(t)) as [JsonPeer, JsonPeer];
      const [name, opened] = [fresh('event'), fresh('record')];
      await subscribe(listener, name);
      await open(peer, opened);
      for (const data of ['', '{', "{'a':1}", 'NaN', '1 2']) {
        peer.send({ topic: EVENT, action: E.EMIT, name, data });
        peer.send({ topic: RECORD, action: R.UPDATE, name: opened, version: 1, data });
      }
      const refused = await peer.expect(EVENT, E.INVALID_MESSAGE_DATA);
      assert.deepEqual([refused.name, refused.isError, refused.data], [name, true, undefined]);
      await peer.expect(RECORD, R.INVALID_MESSAGE_DATA);
      peer.send({ topic: EVENT, action: E.EMIT, name, data: '"good"' });
      assert.equal(valueOf(await listener.expect(EVENT, E.EMIT)), 'good');
      peer.send({ topic: RECORD, action: R.READ, name: opened });
      await peer.settle();
    });

    test('payloads that nest too deep', { skip: unchecked }, async (t) => {
      const [peer, listener] = (await peers(t)) as [JsonPeer, JsonPeer];
      const name = fresh('event');
      await subscribe(listener, name);
      const nested = (depth: number): string => '['.repeat(depth) + ']'.repeat(depth);
      for (const depth of [65, 200_000]) {
        peer.sendText(`{"topic":${EVENT},"action":${E.EMIT},"name":"${name}","parsedData":${nested(depth)}}`);
      }
      await peer.received.until((seen) => seen.filter(({ action }) => action === E.INVALID_MESSAGE_DATA).length === 2);
      peer.sendText(`{"topic":${EVENT},"action":${E.EMIT},"name":"${name}","parsedData":${nested(64)}}`);
      assert.equal(JSON.stringify(valueOf(await listener.expect(EVENT, E.EMIT))), nested(64));
    });

    test('messages larger than the limit, with 1009', async () => {
      const peer = await JsonPeer.login(server);
      peer.sendText(`{"topic":4,"action":2,"name":"e","data":"${'x'.repeat(1_048_576)}"}`);
      assert.equal((await within(DEADLINE_MS, peer.closed, 'the server closes')).code, 1009);
    });

    test('messages before the challenge and the login', async () => {
      const peer = await JsonPeer.dial(server);
      peer.sendText('{"topic":4,"action":2}');
      await peer.expect(CONNECTION, C.CONNECTION_ACTION.INVALID_MESSAGE);
      peer.sendText('[]');
      peer.send({ topic: CONNECTION, action: C.CONNECTION_ACTION.CHALLENGE });
      await peer.expect(CONNECTION, C.CONNECTION_ACTION.ACCEPT);
      peer.send({ topic: EVENT, action: E.EMIT, name: 'e' });
      await peer.expect(AUTH, C.AUTH_ACTION.INVALID_MESSAGE);
      peer.send({ topic: AUTH, action: C.AUTH_ACTION.REQUEST, parsedData: 'nobody' });
      await peer.expect(AUTH, C.AUTH_ACTION.INVALID_MESSAGE_DATA);
      await within(DEADLINE_MS, peer.closed, 'the server closes');
    });

    test('text on the protobuf path', { skip: againstOriginal }, async () => {
      const peer = await RawPeer.login(server);
      peer.sendText('{"topic":2,"action":2}');
      await peer.expect(PARSER, UNKNOWN_TOPIC);
      await peer.settle();
      peer.close();
    });
  });

  test('the last of several members with one name counts, also if their escapes differ', async (t) => {
    const [peer, listener] = (await peers(t)) as [JsonPeer, JsonPeer];
    const name = fresh('event');
    await subscribe(listener, name);
    peer.sendText(`{"topic":5,"name":"other","to\\u0070ic":${EVENT},"action":${E.EMIT},"n\\u0061me":"${name}","data":"1","data":"2","extra":{"name":3}}`);
    assert.equal(valueOf(await listener.expect(EVENT, E.EMIT)), 2);
  });

  test('messages arrive in fragments, and several in one segment', async (t) => {
    const [peer, listener] = (await peers(t)) as [JsonPeer, JsonPeer];
    const name = fresh('event ü🎉');
    await subscribe(listener, name);
    const text = Buffer.from(JSON.stringify({ topic: EVENT, action: E.EMIT, name, ...payload('🎉') }));
    const { socket } = peer as unknown as { socket: WebSocket };
    for (let at = 0; at < text.length; at += 1) {
      const fin = at === text.length - 1;
      socket.send(text.subarray(at, at + 1), { binary: false, fin });
    }
    for (const value of [1, 2, 3]) peer.send({ topic: EVENT, action: E.EMIT, name, ...payload(value) });
    await listener.received.until(() => events(listener, name).length === 4);
    assert.deepEqual(events(listener, name).map(valueOf), ['🎉', 1, 2, 3]);
  });

  describe('the unmodified client in its JSON mode', () => {
    test('shares events and records with clients and peers both ways', { skip: noAcks }, async (t) => {
      const [json, binary] = [await connect(t, server, JSON_CLIENT), await connect(t, server)];
      const [peer] = (await peers(t, 1)) as [JsonPeer];
      const [event, name] = [fresh('event'), fresh('record')];
      const inboxes = [await subscribed(json, event), await subscribed(binary, event)];
      await subscribe(peer, event);
      json.event.emit(event, { from: 'json' });
      assert.deepEqual(await inboxes[1]?.next(), { from: 'json' });
      binary.event.emit(event, { from: 'binary' });
      await inboxes[0]?.until((seen) => seen.some((value) => (value as { from: string }).from === 'binary'));
      await peer.received.until(() => events(peer, event).length === 2);
      assert.deepEqual(events(peer, event).map(valueOf), [{ from: 'json' }, { from: 'binary' }]);

      const [ours, theirs] = [await record(json, name), await record(binary, name)];
      await open(peer, name);
      await ours.setWithAck({ list: [1], by: 'json' });
      await eventually(() => theirs.get('by') === 'json', 'the other client has the value');
      await theirs.setWithAck('list[1]', 'ü');
      await theirs.setWithAck('gone', 1);
      theirs.erase('gone');
      await eventually(() => ours.version === 4, 'the first client has all changes');
      peer.send({ topic: RECORD, action: R.PATCH, name, version: 5, path: 'by', ...payload('peer') });
      for (const seen of [ours, theirs]) {
        await eventually(() => seen.get('by') === 'peer', 'both clients have the value of the peer');
        assert.deepEqual(seen.get(), { list: [1, 'ü'], by: 'peer' });
        assert.equal(seen.version, 5);
      }
    });

    test('calls, provides, listens, and queries presence', { skip: noAcks }, async (t) => {
      const [json, binary] = [await connect(t, server, JSON_CLIENT), await connect(t, server)];
      const name = fresh('rpc');
      for (const [provider, caller] of [[json, binary], [binary, json]] as Array<[TestClient, TestClient]>) {
        provider.rpc.provide(name, (data, response) => response.send({ got: data as C.JSONValue }));
        await provider.wire.acknowledged('RPC', P.PROVIDE, name);
        assert.deepEqual(await caller.rpc.make(name, [1]), { got: [1] });
        provider.rpc.unprovide(name);
        await provider.wire.acknowledged('RPC', P.UNPROVIDE, name);
      }
      await assert.rejects(json.rpc.make(fresh('rpc'), 1), /NO_RPC_PROVIDER/);
      const asked = new Inbox<string>('requested names');
      const event = fresh('event');
      json.event.listen(`^${literally(event)}`, (match, response) => {
        asked.push(match);
        response.accept();
      });
      await json.wire.acknowledged('EVENT', E.LISTEN, `^${literally(event)}`);
      await subscribed(binary, event);
      assert.equal(await asked.next(), event);
      assert.deepEqual(await json.presence.getAll(), []);
      assert.equal(await json.record.has(fresh('record')), false);
      assert.equal(await json.record.head(fresh('record')), -1);
    });

    test('reconnects after a lost connection, with its subscriptions', { skip: againstOriginal }, async (t) => {
      const own = await Server.during(t);
      const client = await connect(t, own, { ...JSON_CLIENT, errors: ['CONNECTION_ERROR'] });
      const name = fresh('event');
      const inbox = await subscribed(client, name);
      const lost = inState(client, C.CONNECTION_STATE.RECONNECTING);
      await own.kill();
      await lost;
      await own.start();
      await inState(client, C.CONNECTION_STATE.OPEN);
      await client.wire.acknowledged('EVENT', E.SUBSCRIBE, name);
      const peer = await JsonPeer.login(own);
      peer.send({ topic: EVENT, action: E.EMIT, name, ...payload('again') });
      assert.equal(await inbox.next(), 'again');
      peer.close();
    });
  });
});

async function eventEnd(client: TestClient, name: string): Promise<() => void> {
  const inbox = await subscribed(client, name);
  return () => client.event.unsubscribe(name, inbox.push);
}

async function recordEnd(client: TestClient, name: string): Promise<() => void> {
  const opened = await record(client, name);
  return () => opened.discard();
}

const PASSWORD = 'open "sesame" ü';
const USERS = {
  alice: { password: hashPassword(PASSWORD), clientData: { likes: ['ü"'] } },
  bob: { password: hashPassword(PASSWORD) },
  // Only the presence test uses carol: other tests log in as bob at the same time.
  carol: { password: hashPassword(PASSWORD) },
};
const PERMISSIONS = `
presence: { "*": { allow: true } }
event:
  "*": { publish: true, subscribe: true, listen: true }
  "secret/$user": { publish: "user.id === $user", subscribe: "user.id === $user" }
  "small": { publish: "data.n < 10", subscribe: true }
record:
  "*": { create: true, read: true, write: true, delete: true, listen: true, notify: true }
  "mine/$user": { create: "user.id === $user", read: "user.id === $user", write: "user.id === $user && data.n < 10" }
rpc: { "*": { provide: true, request: true } }
`;

describe('logins and permissions over the JSON endpoint', { concurrency: 4 }, () => {
  let server: Server;
  before(async () => {
    const permissions = againstOriginal ? undefined : PERMISSIONS;
    server = await Server.start({ jsonEndpoint: true, users: USERS, permissions, authAttemptsMax: 3 });
  });
  after(() => server.dispose());

  const login = (username: string): Promise<JsonPeer> => JsonPeer.login(server, { username, password: PASSWORD });

  test('the answer to a login contains the data of its user', async () => {
    const peer = await JsonPeer.challenge(server);
    const credentials = { username: 'alice', password: PASSWORD };
    peer.send({ topic: AUTH, action: C.AUTH_ACTION.REQUEST, data: JSON.stringify(credentials) });
    const answer = await peer.expect(AUTH, C.AUTH_ACTION.AUTH_SUCCESSFUL);
    assert.deepEqual(valueOf(answer), USERS.alice.clientData);
    peer.close();
  });

  test('refused logins are answered, and the third ends the connection', async () => {
    const peer = await JsonPeer.challenge(server);
    for (let attempt = 1; attempt <= 3; attempt += 1) {
      peer.send({ topic: AUTH, action: C.AUTH_ACTION.REQUEST, ...payload({ username: 'alice', password: 'wrong' }) });
      const isRefusal = ({ topic, action }: JsonMessage): boolean => topic === AUTH && action === C.AUTH_ACTION.AUTH_UNSUCCESSFUL;
      await peer.received.until((seen) => seen.filter(isRefusal).length === attempt);
    }
    await peer.expect(AUTH, C.AUTH_ACTION.TOO_MANY_AUTH_ATTEMPTS);
    await within(DEADLINE_MS, peer.closed, 'the server closes');
  });

  test('messages sent before the decision of a login wait for it, with their escapes intact', { skip: againstOriginal }, async () => {
    const peer = await JsonPeer.challenge(server);
    const name = fresh('event "ü"');
    const listener = await login('bob');
    await subscribe(listener, name);
    peer.send({ topic: AUTH, action: C.AUTH_ACTION.REQUEST, ...payload({ username: 'alice', password: PASSWORD }) });
    peer.sendText(`{"topic":${EVENT},"action":${E.EMIT},"name":${JSON.stringify(name)},"data":"[\\"waited\\"]"}`);
    assert.deepEqual(valueOf(await listener.expect(EVENT, E.EMIT)), ['waited']);
    for (const each of [peer, listener]) each.close();
  });

  test('rules decide on names and values', { skip: againstOriginal }, async () => {
    const alice = await login('alice');
    const emit = (name: string, value: unknown): void => alice.send({ topic: EVENT, action: E.EMIT, name, ...payload(value) });
    emit('secret/bob', 1);
    const denied = await alice.expect(EVENT, E.MESSAGE_DENIED, ({ name }) => name === 'secret/bob');
    assert.deepEqual([denied.isError, denied.originalAction, denied.data, denied.parsedData], [true, E.EMIT, undefined, undefined]);
    emit('small', { n: 10 });
    await alice.expect(EVENT, E.MESSAGE_DENIED, ({ name }) => name === 'small');
    alice.send({ topic: EVENT, action: E.SUBSCRIBE, names: ['secret/bob', 'secret/alice'], correlationId: 's' });
    await alice.expect(EVENT, E.MESSAGE_DENIED, (message) => message.originalAction === E.SUBSCRIBE);
    emit('secret/alice', 2);
    await open(alice, 'mine/alice');
    alice.send({ topic: RECORD, action: R.UPDATE, name: 'mine/alice', version: 1, correlationId: 'w', isWriteAck: true, ...payload({ n: 11 }) });
    const refused = await alice.expect(RECORD, R.MESSAGE_DENIED);
    assert.deepEqual([refused.name, refused.correlationId, refused.isWriteAck], ['mine/alice', 'w', true]);
    alice.send({ topic: RECORD, action: R.READ, name: 'mine/bob' });
    await alice.expect(RECORD, R.MESSAGE_DENIED, ({ name }) => name === 'mine/bob');
    await alice.settle();
    assert.equal(events(alice, 'secret/bob').length, 0);
    alice.close();
  });

  test('presence subscribers see users come and go', async () => {
    const alice = await login('alice');
    alice.send({ topic: PRESENCE, action: U.SUBSCRIBE_ALL });
    alice.send({ topic: PRESENCE, action: U.QUERY, names: ['alice', 'nobody'], correlationId: 'q' });
    const answer = await alice.expect(PRESENCE, U.QUERY_RESPONSE);
    assert.deepEqual([answer.correlationId, valueOf(answer)], ['q', { alice: true, nobody: false }]);
    const carol = await connectedAs(server, 'carol');
    await alice.expect(PRESENCE, U.PRESENCE_JOIN_ALL, ({ name }) => name === 'carol');
    alice.send({ topic: PRESENCE, action: U.QUERY_ALL });
    const all = await alice.expect(PRESENCE, U.QUERY_ALL_RESPONSE);
    assert.ok(all.names?.includes('carol'), JSON.stringify(all));
    carol.close();
    await alice.expect(PRESENCE, U.PRESENCE_LEAVE_ALL, ({ name }) => name === 'carol');
    alice.close();
  });
});

async function connectedAs(server: Server, username: string): Promise<JsonPeer> {
  return JsonPeer.login(server, { username, password: PASSWORD });
}

describe('the JSON endpoint is protected like the protobuf endpoint', { skip: againstOriginal, concurrency: 4 }, () => {
  const refusal = (server: Server, options: WebSocket.ClientOptions, path = JSON_PATH): Promise<number | undefined> => {
    const socket = new WebSocket(`ws://${server.address}${path}`, options);
    const outcome = new Promise<number | undefined>((done) => {
      socket.once('unexpected-response', (_, response) => {
        done(response.statusCode);
        socket.terminate();
      });
      socket.once('open', () => {
        done(undefined);
        socket.terminate();
      });
      socket.on('error', () => {});
    });
    return within(DEADLINE_MS, outcome, 'an answer');
  };

  test('by the list of origins and the list of paths', async (t) => {
    const server = await Server.during(t, { origins: ['https://app.example'] });
    assert.equal(await refusal(server, { origin: 'https://evil.example' }), 403);
    assert.equal(await refusal(server, { origin: 'https://app.example' }), undefined);
    for (const path of [`${JSON_PATH}/`, `${JSON_PATH}x`, '/deepstream-jso']) assert.equal(await refusal(server, {}, path), 404);
    assert.equal(await refusal(server, {}, `${JSON_PATH}?a=b`), undefined);
    const page = await fetch(`http://${server.address}${JSON_PATH}`);
    assert.equal(page.status, 426);
    assert.equal(page.headers.get('x-content-type-options'), 'nosniff');
  });

  test('by its own list of paths, which may be empty', async (t) => {
    const server = await Server.during(t, { jsonPaths: [] });
    assert.equal(await refusal(server, {}), 404);
    const other = await Server.during(t, { jsonPaths: ['/text'] });
    assert.equal(await refusal(other, {}), 404);
    assert.equal(await refusal(other, {}, '/text'), undefined);
  });

  test('by the limits of messages, subscriptions and names', async (t) => {
    const server = await Server.during(t, { limits: { message_bytes_max: 4_000, subscriptions_max: 2, name_bytes_max: 20 } });
    const peer = await JsonPeer.login(server);
    peer.send({ topic: EVENT, action: E.EMIT, name: 'x'.repeat(21), ...payload(1) });
    await peer.expect(EVENT, E.INVALID_MESSAGE_DATA);
    peer.send({ topic: EVENT, action: E.SUBSCRIBE, names: ['a', 'b', 'c'], correlationId: '0' });
    await peer.expect(EVENT, E.MESSAGE_DENIED, ({ name }) => name === 'c');
    peer.sendText(JSON.stringify({ topic: EVENT, action: E.EMIT, name: 'a', data: 'x'.repeat(4_000) }));
    assert.equal((await within(DEADLINE_MS, peer.closed, 'the server closes')).code, 1009);
  });

  test('by the back-off for a client that was closed for malformed messages', async (t) => {
    const server = await Server.during(t, { backoff: { wait_min: '300ms', wait_max: '1s' } });
    const begin = Date.now();
    for (const offend of [(peer: JsonPeer) => peer.sendText('{'), (peer: JsonPeer) => peer.sendBytes(new Uint8Array(3))]) {
      const peer = await JsonPeer.challenge(server);
      offend(peer);
      await within(DEADLINE_MS, peer.closed, 'the server closes');
    }
    const last = await JsonPeer.challenge(server);
    assert.ok(Date.now() - begin >= 300, 'the next connection must wait');
    last.close();
  });

  test('by the heartbeat', async (t) => {
    // Long, because a busy machine may delay the pings of the other peer.
    const server = await Server.during(t, { heartbeatIntervalMs: 2_000 });
    const [silent, speaking] = [await JsonPeer.login(server), await JsonPeer.login(server)];
    const pings = setInterval(() => speaking.isOpen && speaking.send({ topic: CONNECTION, action: C.CONNECTION_ACTION.PING }), 500);
    t.after(() => clearInterval(pings));
    assert.equal((await within(DEADLINE_MS, silent.closed, 'the server closes the silent peer')).code, 1008);
    await speaking.settle();
    speaking.close();
  });

  test('by the login timeout, which it reports in JSON', async (t) => {
    const server = await Server.during(t, { loginTimeoutMs: 200 });
    const peer = await JsonPeer.dial(server);
    await peer.expect(CONNECTION, C.CONNECTION_ACTION.AUTHENTICATION_TIMEOUT);
    assert.equal((await within(DEADLINE_MS, peer.closed, 'the server closes')).code, 1008);
  });

  test('and works with compression and over TLS', async (t) => {
    const shown = certify();
    const files = new CertificateFiles(t, shown);
    const server = await Server.during(t, { compression: true, tls: { certificate: files.certificate, key: files.key } });
    const options = { ca: shown.certificate, perMessageDeflate: { threshold: 0 } };
    const [secure, plain] = [
      await JsonPeer.login(server, {}, options, `wss://${server.tlsAddress}`),
      await JsonPeer.login(server),
    ];
    assert.match(secure.extensions, /permessage-deflate/);
    const [name, large] = [fresh('event'), { list: Array.from({ length: 300 }, (_, n) => ({ n, symbol: 'SYM' })) }];
    for (const peer of [secure, plain]) await subscribe(peer, name);
    const binary = await subscribed(await connect(t, server), name);
    secure.send({ topic: EVENT, action: E.EMIT, name, ...payload(large) });
    assert.deepEqual(valueOf(await plain.expect(EVENT, E.EMIT)), large);
    assert.deepEqual(await binary.next(), large);
    plain.send({ topic: EVENT, action: E.EMIT, name, ...payload(large) });
    assert.deepEqual(valueOf(await secure.expect(EVENT, E.EMIT)), large);
    for (const peer of [secure, plain]) peer.close();
  });
});

describe('history over the JSON endpoint', { skip: againstOriginal && 'it has no history' }, () => {
  test('a peer that reconnects with its position receives the missed events', async (t) => {
    const server = await Server.during(t, { history: ['kept/* count=20'] });
    const name = `kept/${fresh('event')}`;
    const publisher = await JsonPeer.login(server);
    const emit = (value: number): void => publisher.send({ topic: EVENT, action: E.EMIT, name, ...payload(value) });
    const resume = async (position: object): Promise<JsonPeer> => {
      const peer = await JsonPeer.login(server);
      peer.send({ topic: EVENT, action: E.SUBSCRIBE, names: [name], correlationId: '0', positions: [{ name, ...position }] } as JsonMessage);
      return peer;
    };
    const first = await resume({});
    const start = (await first.expect(EVENT, POSITION)) as JsonMessage & { epoch: number; offset: number };
    assert.equal(start.offset, 0);
    emit(1);
    const live = (await first.expect(EVENT, E.EMIT)) as JsonMessage & { offset: number };
    assert.deepEqual([live.offset, valueOf(live)], [1, 1]);
    first.close();
    for (const value of [2, 3]) emit(value);
    const second = await resume({ epoch: start.epoch, offset: 1 });
    await second.received.until(() => events(second, name).length === 2);
    assert.deepEqual(events(second, name).map(valueOf), [2, 3]);
    for (const peer of [publisher, second]) peer.close();
  });
});

describe('a list of patches reaches JSON clients', { skip: againstOriginal && 'it has no lists of patches' }, () => {
  test('unchanged if they support it, otherwise as the whole value', async (t) => {
    const server = await Server.during(t);
    const name = fresh('record');
    const [writer, old] = [await JsonPeer.login(server), await JsonPeer.login(server)];
    const knowing = await JsonPeer.dial(server);
    knowing.send({ topic: CONNECTION, action: C.CONNECTION_ACTION.CHALLENGE, sdkVersion: '7.1.0' });
    knowing.send({ topic: AUTH, action: C.AUTH_ACTION.REQUEST, parsedData: {} });
    for (const peer of [writer, old, knowing]) await open(peer, name);
    const patches = [{ path: 'a', data: 1 }, { path: 'b', data: 2 }, { path: 'a' }];
    writer.send({ topic: RECORD, action: PATCH_MULTI, name, version: 1, ...payload(patches) });
    assert.deepEqual(valueOf(await knowing.expect(RECORD, PATCH_MULTI)), patches);
    assert.deepEqual(valueOf(await old.expect(RECORD, R.UPDATE)), { b: 2 });
    for (const peer of [writer, old, knowing]) peer.close();
  });
});
