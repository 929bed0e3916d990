// permessage-deflate as Node's `ws` and the unmodified client negotiate it: large messages are compressed in both directions, small
// messages are not, and a server without the option accepts no offer.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import WebSocket from 'ws';
import { C, connect, record, subscribed } from '../harness/client.ts';
import { FrameReader } from '../harness/frames.ts';
import { fresh } from '../harness/names.ts';
import { Proxy } from '../harness/proxy.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { DEADLINE_MS, within } from '../harness/wait.ts';

const AGREED = 'permessage-deflate; server_no_context_takeover; client_no_context_takeover';
/** A typical price update: 2.5 KB of JSON with many repetitions. */
const LARGE = Array.from({ length: 20 }, (_, i) => ({ symbol: `SYM${i}`, bid: 100 + i / 7, volume: 7919 * i, venue: 'XETR', currency: 'EUR' }));

/** Opens a plain WebSocket with the given offer and returns the negotiated extensions. */
async function negotiated(test: TestContext, server: Server, offer: WebSocket.ClientOptions['perMessageDeflate']): Promise<string> {
  const socket = new WebSocket(`ws://${server.address}/deepstream`, { perMessageDeflate: offer });
  test.after(() => socket.terminate());
  const opened = new Promise<string>((done, failed) => {
    socket.once('open', () => done(socket.extensions));
    socket.once('error', failed);
  });
  return within(DEADLINE_MS, opened, 'the socket opens');
}

describe('compression', { skip: againstOriginal && 'only Tidewire has this option' }, () => {
  test('an unmodified client sends and receives compressed messages', async (t) => {
    const server = await Server.during(t, { compression: true });
    const proxy = await Proxy.during(t, server);
    const reader = new FrameReader();
    proxy.onAnswer = reader.push;
    const listener = await connect(t, server, { through: proxy.address });
    assert.equal(reader.extensions, AGREED);
    const name = fresh('event');
    const inbox = await subscribed(listener, name);
    const publisher = await connect(t, server);
    publisher.event.emit(name, 'small');
    assert.equal(await inbox.next(), 'small');
    assert.ok(!reader.frames.some(({ isCompressed }) => isCompressed), 'small messages are not compressed');
    // The client's own socket compresses messages of 1,024 bytes or more, so the server receives this one compressed, too.
    publisher.event.emit(name, LARGE);
    assert.deepEqual(await inbox.next(), LARGE);
    const last = reader.frames.at(-1);
    assert.ok(last?.isCompressed, 'large messages are compressed');
    assert.ok(last.payloadBytes < JSON.stringify(LARGE).length * 0.4, `${last.payloadBytes} bytes`);
  });

  test('an answer for only one client is compressed', async (t) => {
    const server = await Server.during(t, { compression: true });
    const name = fresh('record');
    const writer = await record(await connect(t, server), name);
    await writer.setWithAck({ list: LARGE });
    const proxy = await Proxy.during(t, server);
    const reader = new FrameReader();
    proxy.onAnswer = reader.push;
    const reading = await connect(t, server, { through: proxy.address });
    assert.deepEqual((await record(reading, name)).get(), { list: LARGE });
    assert.equal(reader.frames.filter(({ isCompressed }) => isCompressed).length, 1);
  });

  test('clients with and without compression receive the same event', async (t) => {
    const server = await Server.during(t, { compression: true });
    const name = fresh('event');
    const plain = await connect(t, server, { socketOptions: { perMessageDeflate: false } as C.JSONObject });
    const inboxes = [await subscribed(plain, name), await subscribed(await connect(t, server), name)];
    (await connect(t, server)).event.emit(name, LARGE);
    for (const inbox of inboxes) assert.deepEqual(await inbox.next(), LARGE);
  });

  test('the server answers offers', async (t) => {
    const server = await Server.during(t, { compression: true });
    assert.equal(await negotiated(t, server, true), 'permessage-deflate');
    assert.equal(await negotiated(t, server, false), '');
    assert.equal(await negotiated(t, server, { serverNoContextTakeover: true, clientNoContextTakeover: true }), 'permessage-deflate');
    assert.equal(await negotiated(t, server, { serverMaxWindowBits: 15, clientMaxWindowBits: 10 }), 'permessage-deflate');
    assert.equal(await negotiated(t, server, { serverMaxWindowBits: 10 }), '', 'a smaller window is not supported');
  });

  test('a server without the option compresses nothing', async (t) => {
    const server = await Server.during(t);
    assert.equal(await negotiated(t, server, true), '');
  });
});
