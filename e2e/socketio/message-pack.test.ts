// The unmodified `socket.io-client` 4.8 with `socket.io-msgpack-parser`, on the port and in the rooms of clients with the default parser.

import assert from 'node:assert/strict';
import { after, before, describe, test, type TestContext } from 'node:test';
import * as parser from 'socket.io-msgpack-parser';
import type { Socket } from 'socket.io-client';
import { connect, subscribed } from '../harness/client.ts';
import { url } from '../harness/http.ts';
import { fresh } from '../harness/names.ts';
import { Server } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { Inbox, happens } from '../harness/wait.ts';
import { BarePeer, PollingPeer, ask, connected, joined, open, received } from './peer.ts';

const RULES = {
  presence: { '*': { allow: true } },
  record: { '*': { create: true, read: true, write: true, delete: true, listen: true } },
  event: { '*': { publish: true, subscribe: true, listen: true }, 'closed/*': { publish: false, subscribe: false } },
  rpc: { '*': { provide: true, request: true } },
};
const PACKED = { parser } as object;
const packed = (t: TestContext, server: Server, options = {}): Promise<Socket> => connected(t, server, { ...PACKED, ...options });

/** A packet as a client with MessagePack sends it. */
const bytesOf = (packet: object): Buffer => (new parser.Encoder().encode(packet as never) as unknown as [Buffer])[0];

for (const transports of [['websocket'], ['polling'], ['polling', 'websocket']]) {
  describe(`socket.io-client with MessagePack over ${transports.join(' and ')}`, { concurrency: 8 }, () => {
    let server: Server;
    before(async () => {
      server = await Server.start({ permissions: JSON.stringify(RULES), namespaces: ['/chat'] });
    });
    after(() => server.dispose());
    const pack = (t: TestContext, options = {}): Promise<Socket> => packed(t, server, { transports, ...options });

    test('shares rooms with clients of the default parser, in both directions', async (t) => {
      const [one, other, plain] = [await pack(t), await pack(t), await connected(t, server, { transports })];
      const room = fresh('room');
      const inboxes = [other, plain].map((socket) => received(socket, 'said'));
      for (const socket of [other, plain]) assert.deepEqual(await ask(socket, '$join', room), { ok: true });
      const args = ['été', 5.5, -7, 2 ** 40, null, true, { list: [[], {}, [{ deep: false }]] }, Buffer.from([0, 255]), [Buffer.alloc(70_000, 7)]];
      assert.deepEqual(await ask(one, '$to', room, 'said', ...args), { ok: true });
      for (const inbox of inboxes) assert.deepEqual(await inbox.next(), args);
      assert.deepEqual(await ask(plain, '$to', room, 'said', ...args), { ok: true });
      assert.deepEqual(await inboxes[0]?.next(), args);
      assert.equal((await ask(one, '$to', 'closed/a', 'said')).code, 'MESSAGE_DENIED');
      assert.equal((await ask(one, 'said', 1)).code, 'NO_HANDLER');
    });

    test('keeps the values of JavaScript as JSON does', async (t) => {
      const [one, other, plain] = [await pack(t), await pack(t), await connected(t, server, { transports })];
      const room = fresh('room');
      const inboxes = [other, plain].map((socket) => received(socket, 'said'));
      for (const socket of [other, plain]) await ask(socket, '$join', room);
      const value = { date: new Date(1e12), none: undefined, list: [undefined, NaN, 2 ** 53, 1e-300, -0.5], text: '\u0000"\u{1f600}' };
      await ask(one, '$to', room, 'said', value);
      for (const inbox of inboxes) assert.deepEqual(await inbox.next(), [JSON.parse(JSON.stringify(value))]);
      // Typed arrays are binary values, as for the default parser.
      await ask(one, '$to', room, 'said', new Uint8Array([1, 2]).buffer, Buffer.from([3]));
      for (const inbox of inboxes) assert.deepEqual(await inbox.next(), [Buffer.from([1, 2]), Buffer.from([3])]);
      const ten = Array.from({ length: 10 }, (_, index) => Buffer.alloc(index, index));
      await ask(one, '$to', room, 'said', ten);
      for (const inbox of inboxes) assert.deepEqual(await inbox.next(), [ten]);
      const placeholder = { _placeholder: true, num: 0 };
      await ask(one, '$to', room, 'said', placeholder);
      assert.deepEqual(await inboxes[0]?.next(), [placeholder], 'without binary values it is an object like others');
    });

    test('has sessions in several namespaces', async (t) => {
      const main = await pack(t);
      const [chat, plain] = [await joined(main, '/chat'), await joined(await connected(t, server, { transports }), '/chat')];
      const room = fresh('room');
      const [inbox, others] = [received(chat, 'said'), received(main, 'said')];
      assert.deepEqual(await ask(chat, '$join', room), { ok: true });
      assert.deepEqual(await ask(main, '$join', room), { ok: true });
      await ask(plain, '$to', room, 'said', 1, Buffer.from('two'));
      assert.deepEqual(await inbox.next(), [1, Buffer.from('two')]);
      const refused = main.io.socket('/other');
      const [error] = (await happens(refused, 'connect_error')) as [Error];
      assert.equal(error.message, 'Invalid namespace');
      const hash = main.io.socket('/a#b');
      assert.equal(((await happens(hash, 'connect_error')) as [Error])[0].message, 'Invalid namespace');
      chat.disconnect();
      const again = await joined(main, '/chat');
      assert.deepEqual(await ask(again, '$join', room), { ok: true });
      await ask(main, '$to', room, 'said', 2);
      await ask(plain, '$to', room, 'said', 3);
      assert.deepEqual(others.seen, []);
    });
  });
}

describe('MessagePack of Socket.IO', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start({ permissions: JSON.stringify(RULES), namespaces: ['/chat'], limits: { message_bytes_max: 100_000, record_bytes_max: 65_536 } });
  });
  after(() => server.dispose());

  test('shares rooms with the clients of other protocols', async (t) => {
    const room = fresh('room');
    const socket = await packed(t, server);
    const [messages, named] = [received(socket, 'message'), received(socket, 'named')];
    await ask(socket, '$join', room);
    const client = await connect(t, server);
    const inbox = await subscribed(client, room);
    socket.emit('$to', room, 'message', { text: 'hello' });
    socket.emit('$to', room, 'named', 1, Buffer.from([9]));
    assert.deepEqual([await inbox.next(), await inbox.next()], [{ text: 'hello' }, ['named', 1, { _placeholder: true, num: 0 }]]);
    client.event.emit(room, { text: 'back' });
    client.event.emit(room, ['named', 3]);
    assert.deepEqual([await messages.next(), await named.next()], [[{ text: 'back' }], [3]]);
    const init = { method: 'POST', body: Buffer.from([0, 255]), headers: { 'content-type': 'a/b' } };
    assert.equal((await fetch(url(server, `/events/${encodeURIComponent(room)}`), init)).status, 204);
    assert.deepEqual(await messages.find(([value]) => Buffer.isBuffer(value)), [Buffer.from([0, 255])]);
  });

  test('calls rpcs', async (t) => {
    const client = await connect(t, server);
    const name = fresh('add');
    client.rpc.provide(name, (data, response) => response.send(data));
    const socket = await packed(t, server);
    assert.deepEqual(await ask(socket, '$call', name, { a: [1] }), { ok: true, value: { a: [1] } });
  });

  test('refuses a login in the form of the client', async (t) => {
    const users = await Server.during(t, { users: { ann: { password: hashPassword('right') } } });
    const socket = open(t, users, { ...PACKED, auth: { username: 'ann', password: 'wrong' } });
    assert.equal(((await happens(socket, 'connect_error')) as [Error])[0].message, 'Not authorized');
  });

  test('closes the connection for bad input', async (t) => {
    const join = bytesOf({ type: 0, nsp: '/' });
    const tooMany = Array.from({ length: 11 }, () => Buffer.from('x'));
    for (const messages of [
      [Buffer.from([0xc1])],
      [Buffer.from([0x83])],
      [Buffer.from([0xdf, 255, 255, 255, 255])],
      [Buffer.concat([join, Buffer.from([0xc0])])],
      [bytesOf({ type: 5, nsp: '/', data: ['a'] })],
      [join, bytesOf({ type: 2, nsp: '/', data: ['connect'] })],
      [join, bytesOf({ type: 2, nsp: '/', data: ['a', ...tooMany] })],
      [join, bytesOf({ type: 2, nsp: '/', data: ['a', { _placeholder: true, num: 0 }, Buffer.from('x')] })],
      [join, bytesOf({ type: 2, nsp: '/chat', data: ['a'] })],
      [join, bytesOf({ type: 4, nsp: '/', data: 'no' })],
      [join, join],
      // The parser of a connection does not change.
      [join, '42["a"]'],
      ['40', bytesOf({ type: 2, nsp: '/', data: ['a'] })],
      [bytesOf({ type: 2, nsp: '/', data: ['a'] })],
    ]) {
      const peer = await BarePeer.open(t, server);
      peer.send(...messages);
      assert.ok([1007, 1008].includes(await peer.closed), String(messages));
    }
    const large = await BarePeer.open(t, server);
    large.send(join, bytesOf({ type: 2, nsp: '/', data: ['a', Buffer.alloc(100_000)] }));
    assert.equal(await large.closed, 1009);
  });

  test('ends a polling session for bad input', async () => {
    const peer = await PollingPeer.open(server);
    await peer.post('bwQ==');
    await peer.isGone();
  });

  test('leaves heartbeats and commands without an acknowledgement as they are', async (t) => {
    const beating = await Server.during(t, { heartbeatIntervalMs: 1_000, heartbeatTimeoutMs: 1_000, permissions: JSON.stringify(RULES) });
    const socket = await packed(t, beating);
    const beats = new Inbox<void>('heartbeats');
    socket.io.on('ping', () => beats.push());
    for (let count = 0; count < 2; count += 1) await beats.next();
    const errors = received(socket, '$error');
    socket.emit('$join', 'closed/a');
    assert.equal(((await errors.next())[0] as { code: string }).code, 'MESSAGE_DENIED');
    socket.emit('$join', fresh('room'));
    assert.equal((await ask(socket, '$join', fresh('room'))).ok, true);
  });
});
