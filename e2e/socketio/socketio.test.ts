// The unmodified `socket.io-client` 4.8 over WebSockets: joining, rooms that are events of all other clients, acknowledgements, refusals,
// heartbeats, and the end of connections.

import assert from 'node:assert/strict';
import { createConnection } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { connect, subscribed } from '../harness/client.ts';
import { openStream } from '../harness/event-stream.ts';
import { url } from '../harness/http.ts';
import { fresh } from '../harness/names.ts';
import { Server } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { DEADLINE_MS, eventually, happens, within } from '../harness/wait.ts';
import { BarePeer, ask, connected, open, received } from './peer.ts';

const RULES = {
  presence: { '*': { allow: true } },
  record: { '*': { create: true, read: true, write: true, delete: true, listen: true } },
  event: {
    '*': { publish: true, subscribe: true, listen: true },
    'closed/*': { publish: false, subscribe: false },
    'ann/*': { publish: "user.id === 'ann'", subscribe: "user.id === 'ann'" },
  },
  rpc: { '*': { provide: true, request: true }, 'closed/*': { request: false } },
};

describe('socket.io-client', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start({ permissions: JSON.stringify(RULES) });
  });
  after(() => server.dispose());

  test('joins with an id of its own', async (t) => {
    const [one, two] = [await connected(t, server), await connected(t, server, { path: '/socket.io', addTrailingSlash: false })];
    assert.match(String(one.id), /^[\w-]{20}$/);
    assert.notEqual(one.id, two.id);
    assert.notEqual(one.id, one.io.engine.id, 'the id of the connection stays secret');
    assert.equal(one.io.engine.transport.name, 'websocket');
  });

  test('sends events to the others in a room', async (t) => {
    const [sender, member, stranger] = [await connected(t, server), await connected(t, server), await connected(t, server)];
    const room = fresh('room');
    const inboxes = [sender, member, stranger].map((socket) => received(socket, 'chat'));
    assert.deepEqual(await ask(sender, '$join', room), { ok: true });
    assert.deepEqual(await ask(member, '$join', [room, fresh('room')]), { ok: true });
    assert.deepEqual(await ask(member, '$join', room), { ok: true }, 'a room may be joined twice');
    const args = ['été', 5.5, null, { list: [true] }];
    assert.deepEqual(await ask(sender, '$to', room, 'chat', ...args), { ok: true });
    assert.deepEqual(await inboxes[1]?.next(), args);
    assert.deepEqual(await ask(member, '$leave', room), { ok: true });
    sender.emit('$to', room, 'chat', 2);
    assert.deepEqual(await ask(member, '$to', room, 'chat', 3), { ok: true });
    assert.deepEqual(await inboxes[0]?.next(), [3]);
    // Each session has handled everything that was sent before.
    await Promise.all([sender, member, stranger].map((socket) => ask(socket, '$join', fresh('room'))));
    assert.deepEqual(inboxes.map(({ seen }) => seen.length), [1, 1, 0]);
  });

  test('shares rooms with the clients of other protocols', async (t) => {
    const room = fresh('room');
    const socket = await connected(t, server);
    const [messages, named] = [received(socket, 'message'), received(socket, 'named')];
    await ask(socket, '$join', room);
    const client = await connect(t, server);
    const inbox = await subscribed(client, room);
    const { pieces } = await openStream(t, url(server, `/sse?${new URLSearchParams({ event: room, record: fresh('marker') })}`));
    await pieces.next();
    socket.emit('$to', room, 'message', { text: 'hello' });
    socket.emit('$to', room, 'named', 1, 2);
    assert.deepEqual([await inbox.next(), await inbox.next()], [{ text: 'hello' }, ['named', 1, 2]]);
    assert.match(JSON.stringify(await pieces.next()), /hello/);
    client.event.emit(room, { text: 'back' });
    client.event.emit(room, ['named', 3]);
    assert.deepEqual([await messages.next(), await named.next()], [[{ text: 'back' }], [3]]);
    const path = `/events/${encodeURIComponent(room)}`;
    const posted = await fetch(url(server, path), { method: 'POST', body: '[7]', headers: { 'content-type': 'application/json' } });
    assert.equal(posted.status, 204);
    const bytes = await fetch(url(server, path), { method: 'POST', body: Buffer.from([0, 255]), headers: { 'content-type': 'a/b' } });
    assert.equal(bytes.status, 204);
    const binary = await messages.find(([value]) => Buffer.isBuffer(value));
    assert.deepEqual(binary, [Buffer.from([0, 255])]);
    // A reserved name would make the client close its connection.
    client.event.emit(room, ['disconnect']);
    assert.deepEqual(await messages.find(([value]) => Array.isArray(value)), [['disconnect']]);
  });

  test('sends events with binary attachments to the others in a room', async (t) => {
    const [sender, member] = [await connected(t, server), await connected(t, server)];
    const room = fresh('room');
    const [pictures, messages] = [received(member, 'picture'), received(member, 'message')];
    await ask(member, '$join', room);
    const args = [{ title: 'é', thumbnail: Buffer.from([0, 255]), tiles: [Buffer.alloc(0), { deep: Buffer.from('deep') }] }, 7, Buffer.alloc(70_000, 1)];
    assert.deepEqual(await ask(sender, '$to', room, 'picture', ...args), { ok: true });
    assert.deepEqual(await pictures.next(), args);
    const shared = Buffer.from('shared');
    const ten = Array.from({ length: 10 }, (_, index) => Buffer.alloc(index, index));
    for (const list of [[shared, shared], ten, ['text', null]]) {
      sender.emit('$to', room, 'picture', list);
      assert.deepEqual(await pictures.next(), [list]);
    }
    sender.emit('$to', room, 'message', { a: shared });
    sender.emit('$to', room, 'message', shared);
    assert.deepEqual([await messages.next(), await messages.next()], [[{ a: shared }], [shared]]);
    assert.equal((await ask(sender, '$to', 'closed/a', 'picture', shared)).code, 'MESSAGE_DENIED');
  });

  test('shares events with attachments with the clients of other protocols', async (t) => {
    const room = fresh('room');
    const socket = await connected(t, server);
    const [named, messages] = [received(socket, 'named'), received(socket, 'message')];
    await ask(socket, '$join', room);
    const client = await connect(t, server);
    const inbox = await subscribed(client, room);
    const { pieces } = await openStream(t, url(server, `/sse?${new URLSearchParams({ event: room, record: fresh('marker') })}`));
    await pieces.next();
    socket.emit('$to', room, 'named', { file: Buffer.from([0, 255]) });
    const data = ['named', { file: { _placeholder: true, num: 0 } }];
    assert.deepEqual(await inbox.next(), data);
    const { name, ...seen } = (await pieces.next()).data;
    assert.deepEqual([name, seen], [room, { data, attachments: ['AP8='] }]);
    socket.emit('$to', room, 'message', Buffer.from([0, 255]));
    assert.deepEqual((await pieces.next()).data, { name: room, contentType: 'application/octet-stream', base64: 'AP8=' });
    const emit = async (content: object): Promise<string> => {
      const body = JSON.stringify({ body: [{ topic: 'event', action: 'emit', eventName: room, ...content }] });
      const response = await fetch(url(server, '/api'), { method: 'POST', body, headers: { 'content-type': 'application/json' } });
      return ((await response.json()) as { result: string }).result;
    };
    assert.equal(await emit({ data, attachments: ['AQ=='] }), 'SUCCESS');
    assert.deepEqual(await named.next(), [{ file: Buffer.from([1]) }]);
    assert.equal(await emit({ data: { file: data[1] }, attachments: ['AQ=='] }), 'SUCCESS');
    assert.deepEqual(await messages.next(), [{ file: { file: Buffer.from([1]) } }]);
    // A placeholder without an attachment would make each client of the room close its connection.
    for (const placeholder of [{ _placeholder: true, num: 1 }, { _placeholder: true }]) {
      assert.equal(await emit({ data: ['named', placeholder], attachments: ['AQ=='] }), 'FAILURE');
    }
    // Without attachments, it is a value like any other.
    assert.equal(await emit({ data: ['named', { _placeholder: true, num: 1 }] }), 'SUCCESS');
    assert.deepEqual(await named.next(), [{ _placeholder: true, num: 1 }]);
  });

  test('calls rpcs', async (t) => {
    const provider = await connect(t, server);
    const [add, failing] = [fresh('add'), fresh('failing')];
    provider.rpc.provide(add, ([a, b]: [number, number], response) => response.send(a + b));
    provider.rpc.provide(failing, (_: unknown, response) => response.error('no'));
    const socket = await connected(t, server);
    assert.deepEqual(await ask(socket, '$call', add, 1, 2), { ok: true, value: 3 });
    const failed = await ask(socket, '$call', failing);
    assert.deepEqual([failed.ok, failed.code], [false, 'PROVIDER_ERROR']);
    assert.equal((await ask(socket, '$call', fresh('absent'))).code, 'NO_RPC_PROVIDER');
    assert.equal((await ask(socket, '$call', 'closed/a')).code, 'MESSAGE_DENIED');
  });

  test('learns that a rule denies a command, and that no handler has an event', async (t) => {
    const socket = await connected(t, server);
    const errors = received(socket, '$error');
    for (const [command, ...args] of [['$join', 'closed/a'], ['$to', 'closed/a', 'chat']]) {
      const { ok, code, name } = await ask(socket, String(command), ...args);
      assert.deepEqual({ ok, code, name }, { ok: false, code: 'MESSAGE_DENIED', name: 'closed/a' });
    }
    socket.emit('$to', 'closed/a', 'chat');
    assert.deepEqual(await errors.next(), [{ ok: false, code: 'MESSAGE_DENIED', message: 'a rule or a limit denies it', name: 'closed/a' }]);
    assert.equal((await ask(socket, 'unknown', 1)).code, 'NO_HANDLER');
    assert.equal((await ask(socket, '$join', 7)).code, 'INVALID_MESSAGE_DATA');
    for (const [event, ...args] of [['$join', 'room'], ['$call', 'add'], ['$to']]) {
      assert.equal((await ask(socket, String(event), ...args, Buffer.from([1]))).code, 'INVALID_MESSAGE_DATA', event);
    }
    assert.equal((await ask(socket, 'unknown', Buffer.from([1]))).code, 'NO_HANDLER');
    socket.emit('unknown', Buffer.from([1]), Buffer.from([2]));
    assert.deepEqual(await ask(socket, '$join', fresh('room')), { ok: true });
  });

  test('learns that a namespace does not exist', async (t) => {
    const socket = await connected(t, server);
    const other = socket.io.socket('/other');
    const [error] = await happens(other.connect(), 'connect_error');
    assert.equal(error.message, 'Invalid namespace');
    assert.deepEqual(await ask(socket, '$join', fresh('room')), { ok: true });
  });

  test('ends its session with the connection', async (t) => {
    const socket = await connected(t, server, { auth: { username: 'bob' } });
    const client = await connect(t, server);
    assert.ok((await client.presence.getAll()).includes('bob'));
    const left = happens(socket, 'disconnect');
    socket.disconnect();
    assert.deepEqual((await left)[0], 'io client disconnect');
    await eventually(async () => !(await client.presence.getAll()).includes('bob'), 'the user is offline');
  });

  test('logs in with the payload of its handshake', async (t) => {
    const ann = await connected(t, server, { auth: (done) => done({ username: 'ann' }) });
    assert.deepEqual(await ask(ann, '$join', 'ann/1'), { ok: true });
    const other = await connected(t, server);
    assert.equal((await ask(other, '$join', 'ann/1')).code, 'MESSAGE_DENIED');
  });
});

test('a refused login is a connect_error', async (t) => {
  const server = await Server.during(t, { users: { ann: { password: hashPassword('right') } } });
  const socket = open(t, server, { auth: { username: 'ann', password: 'wrong' } });
  const [error] = await happens(socket, 'connect_error');
  assert.equal(error.message, 'Not authorized');
  assert.equal((await connected(t, server, { auth: { username: 'ann', password: 'right' } })).connected, true);
});

test('the parts of an event have the limit of one message, and end with their connection', async (t) => {
  const server = await Server.during(t, { limits: { message_bytes_max: 65_536, record_bytes_max: 65_536 } });
  const member = await connected(t, server);
  const inbox = received(member, 'up');
  await ask(member, '$join', 'room');
  const header = '452-["$to","room","up",{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}]';
  const room = 65_536 - (header.length - 1);
  const large = await BarePeer.join(t, server);
  large.send(header, Buffer.alloc(room - 1), Buffer.alloc(2));
  assert.equal(await within(DEADLINE_MS, large.closed, 'the connection ends'), 1009);
  const broken = await BarePeer.join(t, server);
  broken.send(header, Buffer.alloc(room));
  const inbound = (): Promise<number> => server.metric('tidewire_inbound_bytes');
  await eventually(async () => (await inbound()) > 65_536, 'the parts count');
  broken.socket.terminate();
  await eventually(async () => (await inbound()) < 1_000, 'the parts are freed');
  const other = await BarePeer.join(t, server);
  other.send(header, Buffer.alloc(room - 2), '3', Buffer.from([7, 8]));
  assert.deepEqual(await inbox.next(), [Buffer.alloc(room - 2), Buffer.from([7, 8])]);
  assert.equal(inbox.seen.length, 1);
});

test('a message may be as long as the limit in bytes, and a longer one ends the connection', async (t) => {
  const server = await Server.during(t, { limits: { message_bytes_max: 65_536, record_bytes_max: 65_536 } });
  const [peer, member] = [await BarePeer.join(t, server), await connected(t, server)];
  const inbox = received(member, 'long');
  await ask(member, '$join', 'room');
  const [start, end] = ['42["$to","room","long","', '"]'];
  const text = 'é'.repeat((65_536 - start.length - end.length) / 2);
  peer.send(`${start}${text}${end}`);
  assert.deepEqual(await inbox.next(), [text]);
  peer.send(`${start}${text}é${end}`);
  assert.equal(await within(DEADLINE_MS, peer.closed, 'the connection ends'), 1009);
});

test('a history keeps attachments, also in the store', async (t) => {
  const server = await Server.during(t, { history: ['kept* count=10 keep=store'] });
  const data = ['up', { _placeholder: true, num: 0 }];
  const { pieces, ids, close } = await openStream(t, url(server, '/sse?event=kept'));
  const id = await ids.next();
  const socket = await connected(t, server);
  assert.deepEqual(await ask(socket, '$to', 'kept', 'up', Buffer.from([0, 255])), { ok: true });
  assert.deepEqual((await pieces.next()).data, { name: 'kept', offset: 1, data, attachments: ['AP8='] });
  close();
  await server.stop();
  await server.start();
  const again = await openStream(t, url(server, '/sse?event=kept'), { 'last-event-id': id });
  assert.deepEqual((await again.pieces.next()).data, { name: 'kept', offset: 1, data, attachments: ['AP8='] });
});

describe('heartbeats', { concurrency: 8 }, () => {
  const heartbeatIntervalMs = 1_000;

  test('come from the server, also while events arrive, and keep the client connected', async (t) => {
    const server = await Server.during(t, { heartbeatIntervalMs });
    const socket = await connected(t, server);
    let pings = 0;
    socket.io.on('ping', () => (pings += 1));
    let reason: string | undefined;
    socket.on('disconnect', (why) => (reason = why));
    const until = Date.now() + 6 * heartbeatIntervalMs;
    while (Date.now() < until) await ask(socket, '$join', 'room');
    assert.equal(reason, undefined);
    assert.ok(pings >= 4, `${pings} pings`);
  });

  test('that are not answered end the connection', async (t) => {
    const server = await Server.during(t, { heartbeatIntervalMs });
    const peer = await BarePeer.join(t, server);
    assert.equal(await within(DEADLINE_MS, peer.closed, 'the connection ends'), 1008);
    assert.ok(peer.messages.seen.includes('2'));
  });

  test('precede the join, and a connection without one ends', async (t) => {
    const server = await Server.during(t, { heartbeatIntervalMs, loginTimeoutMs: 5_000 });
    const peer = await BarePeer.open(t, server);
    const open = JSON.parse((await peer.messages.next()).slice(1));
    assert.deepEqual(Object.keys(open).sort(), ['maxPayload', 'pingInterval', 'pingTimeout', 'sid', 'upgrades']);
    assert.deepEqual([open.upgrades, open.pingInterval, open.pingTimeout], [[], heartbeatIntervalMs, heartbeatIntervalMs]);
    await peer.messages.find((message) => message === '2');
    peer.send('3');
    await within(DEADLINE_MS, peer.closed, 'the connection ends');
  });
});

describe('a bare peer', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start();
  });
  after(() => server.dispose());

  test('is refused before the WebSocket opens', async () => {
    const refused = async (query: string): Promise<unknown> => {
      const response = await fetch(url(server, `/socket.io/?${query}`));
      assert.equal(response.status, 400);
      assert.equal(response.headers.get('content-type'), 'application/json');
      return response.json();
    };
    assert.deepEqual(await refused('EIO=4&transport=webtransport'), { code: 0, message: 'Transport unknown' });
    assert.deepEqual(await refused('EIO=4&transport=websocket&sid=x'), { code: 1, message: 'Session ID unknown' });
    assert.deepEqual(await refused('EIO=4&transport=websocket'), { code: 3, message: 'Bad request' });
  });

  test('is refused if its origin has a control character', async () => {
    const [host, port] = server.address.split(':');
    const socket = createConnection({ host, port: Number(port) });
    socket.write('GET /socket.io/?EIO=4&transport=polling HTTP/1.1\r\nHost: localhost\r\nOrigin: http://a\u0001b\r\n\r\n');
    const [answer] = (await happens(socket, 'data')) as [Buffer];
    assert.match(answer.toString(), /^HTTP\/1\.1 400 /);
    socket.destroy();
  });

  for (const [what, messages] of Object.entries({
    'an event before the join': ['42["x"]'],
    'a refusal': ['40', '44{"message":"no"}'],
    'a message without a packet': ['40', '4'],
    'an acknowledgement before the join': ['430[]'],
    'a disconnect before the join': ['41'],
    'a second join': ['40', '40'],
    'a ping': ['40', '2'],
    'an unknown packet': ['40', '47'],
    'a reserved event': ['40', '42["disconnect"]'],
    'an attachment that was not announced': ['40', Buffer.from([1])],
    'eleven attachments': ['40', '4511-["x"]'],
    'no attachment': ['40', '450-["x"]'],
    'a placeholder of no attachment': ['40', '451-["$to","a","b",{"_placeholder":true,"num":1}]'],
    'a packet among attachments': ['40', '451-["$to","a","b",{"_placeholder":true,"num":0}]', '42["x"]'],
    'an attachment too many': ['40', '451-["$to","a","b"]', Buffer.from([1]), Buffer.from([1])],
    'the end of the connection': ['40', '1'],
  })) {
    test(`is closed after ${what}`, async (t) => {
      const peer = await BarePeer.open(t, server);
      peer.send(...messages);
      await within(DEADLINE_MS, peer.closed, 'the connection ends');
    });
  }
});
