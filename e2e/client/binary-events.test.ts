// Events whose payload is bytes, from and to each kind of client: `@tidewire/client`, HTTP, server-sent events, JSON text messages, and the
// unmodified client, which sees an event without data. Places that take only JSON refuse them.

import assert from 'node:assert/strict';
import { after, before, describe, test, type TestContext } from 'node:test';
import type { Client, EventContext } from '../../packages/client/src/index.ts';
import { C, connect, subscribed } from '../harness/client.ts';
import { client } from '../harness/driver/tidewire.ts';
import { openStream, type EventStream } from '../harness/event-stream.ts';
import { batch, command, post, url } from '../harness/http.ts';
import { JSON_CLIENT, JsonPeer } from '../harness/json-peer.ts';
import { fresh } from '../harness/names.ts';
import { Proxy } from '../harness/proxy.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, within } from '../harness/wait.ts';

const BYTES = new Uint8Array([0, 255, 128, 10, 34]);
const BASE64 = Buffer.from(BYTES).toString('base64');
/** Rules under which the names of `typed/` take only payloads that are not undefined, and the names of `untyped/` only undefined ones. */
const RULES = {
  presence: { '*': { allow: true } },
  record: { '*': { create: true, read: true, write: true, delete: true, listen: true, notify: true } },
  event: {
    '*': { publish: true, subscribe: true, listen: true },
    'typed/*': { publish: 'data !== undefined' },
    'untyped/*': { publish: 'data === undefined' },
  },
  rpc: { '*': { provide: true, request: true } },
};

interface Received {
  payload: unknown;
  contentType: string | undefined;
}

const image: Received = { payload: BYTES, contentType: 'image/png' };
const emit = (eventName: string, more: object): object => ({ topic: 'event', action: 'emit', eventName, ...more });

async function connected(t: TestContext, address: string, options: Parameters<typeof client>[2] = {}): Promise<Client> {
  const made = client(t, address, options);
  await within(DEADLINE_MS, made.connect(), 'login');
  return made;
}

/** The events of a name that `made` receives after this call. */
async function received(made: Client, name: string): Promise<Inbox<Received>> {
  const inbox = new Inbox<Received>(`events ${name}`);
  await made.event.subscribe(name, (payload: unknown, { contentType }: EventContext) => inbox.push({ payload, contentType })).ready;
  return inbox;
}

describe('events of bytes', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start({ permissions: JSON.stringify(RULES), limits: { record_bytes_max: 100_000 } });
  });
  after(() => server.dispose());

  /** Publishes an event whose payload is the body of a request, and returns the status. */
  const publish = async (name: string, body: Uint8Array | string | null, headers: Record<string, string> = {}): Promise<number> =>
    (await fetch(url(server, `/events/${encodeURIComponent(name)}`), { method: 'POST', body, headers })).status;
  /** A stream that is subscribed to the event. */
  const stream = async (t: TestContext, event: string): Promise<EventStream> => {
    const opened = await openStream(t, url(server, `/sse?${new URLSearchParams({ event, record: fresh('marker') })}`));
    assert.equal((await opened.pieces.next()).event, 'deleted');
    return opened;
  };

  test('every kind of subscriber receives the bytes of every kind of publisher', async (t) => {
    const name = fresh('event');
    const [alice, bob] = [await connected(t, server.address), await connected(t, server.address)];
    const inbox = await received(bob, name);
    const { pieces } = await stream(t, name);
    const peer = await JsonPeer.login(server);
    peer.send({ topic: C.TOPIC.EVENT, action: C.EVENT_ACTION.SUBSCRIBE, names: [name], correlationId: '1' });
    await peer.expect(C.TOPIC.EVENT, C.EVENT_ACTION.SUBSCRIBE, ({ isAck }) => isAck === true);
    const publishers = [
      () => alice.event.emit(name, BYTES, { contentType: 'image/png' }),
      () => command(server, emit(name, { base64: BASE64, contentType: 'image/png' })),
      () => publish(name, BYTES, { 'content-type': 'image/png' }),
    ];
    for (const send of publishers) {
      await send();
      assert.deepEqual(await inbox.next(), image);
      assert.deepEqual((await pieces.next()).data, { name, contentType: 'image/png', base64: BASE64 });
    }
    const texts = peer.texts.filter((text) => text.includes(name) && text.includes('base64'));
    assert.deepEqual(texts.map((text) => JSON.parse(text)), publishers.map(() => ({ topic: 4, action: 2, name, contentType: 'image/png', base64: BASE64 })));
    peer.sendText(JSON.stringify({ topic: 4, action: 2, name, base64: BASE64 }));
    assert.deepEqual(await inbox.next(), { payload: BYTES, contentType: 'application/octet-stream' });
    alice.event.emit(name, new Uint8Array());
    assert.deepEqual(await inbox.next(), { payload: new Uint8Array(), contentType: 'application/octet-stream' });
    alice.event.emit(name, { json: true });
    assert.deepEqual(await inbox.next(), { payload: { json: true }, contentType: undefined });
  });

  test('a request publishes JSON, bytes or nothing by its content type', async (t) => {
    const name = fresh('event/a b');
    const inbox = await received(await connected(t, server.address), name);
    const json = { 'content-type': 'application/json; charset=utf-8' };
    assert.equal(await publish(name, ' {"a": [1]} ', json), 204);
    assert.deepEqual((await inbox.next()).payload, { a: [1] });
    assert.equal(await publish(name, null), 204);
    assert.equal((await inbox.next()).payload, undefined);
    assert.equal(await publish(name, BYTES), 204);
    assert.deepEqual(await inbox.next(), { payload: BYTES, contentType: 'application/octet-stream' });
    for (const [body, headers, status] of [
      ['{', json, 400],
      ['', json, 400],
      ['[1]', { 'content-type': 'text' }, 422],
      [new Uint8Array(100_001), { 'content-type': 'a/b' }, 422],
      [`"${'a'.repeat(100_000)}"`, json, 422],
    ] as const) {
      assert.equal(await publish(name, body, headers), status, `${headers['content-type']}`);
    }
    assert.equal(await publish('', '1', json), 400);
    assert.equal(await publish(`typed/${name}`, BYTES), 403);
    const get = await fetch(url(server, `/events/${name}`));
    assert.deepEqual([get.status, get.headers.get('allow')], [405, 'POST, OPTIONS']);
    assert.equal(inbox.seen.length, 3);
  });

  test('a subscriber in the publishing client gets a copy, and later changes of the array reach no other client', async (t) => {
    const name = fresh('event');
    const made = client(t, server.address);
    const own = new Inbox<Received>('own events');
    made.event.subscribe(name, (payload: unknown, { contentType }: EventContext) => own.push({ payload, contentType }));
    const other = await received(await connected(t, server.address), name);
    const array = BYTES.slice();
    // The event waits for the connection.
    made.event.emit(name, array, { contentType: 'image/png' });
    assert.deepEqual(await own.next(), image);
    array.fill(1);
    await within(DEADLINE_MS, made.connect(), 'login');
    assert.deepEqual(await other.next(), image);
    assert.deepEqual(own.seen[0], image);
  });

  test('the unmodified client receives an event without data, and the next event as usual', async (t) => {
    const name = fresh('event');
    const made = await connected(t, server.address);
    for (const options of [{}, JSON_CLIENT]) {
      const inbox = await subscribed(await connect(t, server, options), name);
      made.event.emit(name, BYTES, { contentType: 'image/png' });
      made.event.emit(name, 'text');
      assert.equal(await inbox.next(), undefined);
      assert.equal(await inbox.next(), 'text');
    }
  });

  test('rules see bytes as undefined', async (t) => {
    const [typed, untyped] = [`typed/${fresh('event')}`, `untyped/${fresh('event')}`];
    const inbox = await received(await connected(t, server.address), untyped);
    const bytes = { base64: BASE64 };
    const { body } = await batch(server, [emit(typed, bytes), emit(typed, { data: 1 }), emit(untyped, bytes), emit(untyped, { data: 1 })]);
    assert.deepEqual(body.map(({ success, errorEvent }) => [success, errorEvent]), [
      [false, 'MESSAGE_DENIED'],
      [true, undefined],
      [true, undefined],
      [false, 'MESSAGE_DENIED'],
    ]);
    assert.deepEqual((await inbox.next()).payload, BYTES);
  });

  test('bytes beyond the limits are refused with a code', async (t) => {
    const name = fresh('event');
    const inbox = await received(await connected(t, server.address), name);
    const { body } = await batch(server, [
      emit(name, { base64: Buffer.alloc(100_001).toString('base64') }),
      emit(name, { base64: Buffer.alloc(100_000).toString('base64') }),
    ]);
    assert.deepEqual(body.map(({ errorParams }) => errorParams), ['INVALID_MESSAGE_DATA', undefined]);
    assert.equal(((await inbox.next()).payload as Uint8Array).length, 100_000);
    const wrongTypes = ['png', `a/${'b'.repeat(254)}`].map((contentType) => ({ base64: BASE64, contentType }));
    for (const more of [...wrongTypes, { base64: 'AP8' }, { base64: BASE64, data: 1 }, { contentType: 'a/b' }]) {
      assert.equal((await post(server, '/api', { body: [emit(name, more)] })).status, 400);
    }
  });

  test('records and rpcs refuse bytes', async (t) => {
    const [name, rpc] = [fresh('record'), fresh('rpc')];
    const made = await connected(t, server.address);
    await assert.rejects(made.rpc.call(rpc, BYTES), { code: 'INVALID_ARGUMENT', message: /Uint8Array/ });
    await assert.rejects(made.record.set(name, BYTES), { code: 'INVALID_ARGUMENT', message: /Uint8Array/ });
    const peer = await JsonPeer.login(server);
    const { RECORD, RPC } = C.TOPIC;
    peer.sendText(JSON.stringify({ topic: RECORD, action: C.RECORD_ACTION.CREATEANDUPDATE, name, version: 1, base64: BASE64 }));
    await peer.expect(RECORD, C.RECORD_ACTION.INVALID_MESSAGE_DATA, (message) => message.name === name);
    peer.sendText(JSON.stringify({ topic: RPC, action: C.RPC_ACTION.REQUEST, name: rpc, correlationId: '1', base64: BASE64 }));
    const refused = await peer.expect(RPC, C.RPC_ACTION.REQUEST_ERROR, (message) => message.name === rpc);
    assert.equal(refused.parsedData, 'INVALID_MESSAGE_DATA');
    const headers = { 'content-type': 'image/png' };
    const put = await fetch(url(server, `/records/${name}`), { method: 'PUT', body: BYTES, headers });
    assert.equal(put.status, 415);
    const make = { topic: 'rpc', action: 'make', rpcName: rpc, base64: BASE64 };
    assert.equal((await post(server, '/api', { body: [make] })).status, 400);
    assert.equal((await command(server, { topic: 'record', action: 'head', recordName: name }))['version'], -1);
  });
});

test('missed bytes arrive after a loss and after a restart, as the store keeps them', async (t) => {
  const server = await Server.during(t, { history: ['kept/* keep=store', 'recent/*'] });
  const proxy = await Proxy.during(t, server);
  for (const kind of ['recent', 'kept']) {
    const name = `${kind}/${fresh('event')}`;
    const made = await connected(t, proxy.address);
    const inbox = await received(made, name);
    const publish = (bytes: Uint8Array): Promise<unknown> =>
      command(server, emit(name, { base64: Buffer.from(bytes).toString('base64'), contentType: 'image/png' }));
    await publish(BYTES);
    assert.deepEqual(await inbox.next(), image);
    proxy.cut();
    await publish(Uint8Array.of(1));
    await command(server, emit(name, { data: 'text' }));
    if (kind === 'kept') {
      await server.stop();
      await server.start();
    }
    proxy.restore();
    assert.deepEqual(await inbox.next(), { payload: Uint8Array.of(1), contentType: 'image/png' });
    assert.deepEqual(await inbox.next(), { payload: 'text', contentType: undefined });
    const { ids, pieces } = await openStream(t, url(server, `/sse?${new URLSearchParams({ event: name })}`));
    await ids.next();
    await publish(Uint8Array.of(2));
    assert.deepEqual((await pieces.next()).data, { name, offset: 4, contentType: 'image/png', base64: 'Ag==' });
    assert.deepEqual((await inbox.next()).payload, Uint8Array.of(2));
    assert.equal(inbox.seen.length, 4);
  }
});
