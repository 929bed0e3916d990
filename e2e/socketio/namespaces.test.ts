// Several namespaces of the unmodified `socket.io-client` on one connection: each is a session with its own login, rooms and
// acknowledgements. A bare WebSocket checks what the reference server does with packets that the client never sends.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Socket } from 'socket.io-client';
import { ADMIN_KEY, admin } from '../harness/admin.ts';
import { connect } from '../harness/client.ts';
import { fresh } from '../harness/names.ts';
import { Server } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { DEADLINE_MS, happens, within } from '../harness/wait.ts';
import { BarePeer, another, ask, connected, joined, open, received } from './peer.ts';

const NAMESPACES = ['/chat', '/admin', '/room/*'];

describe('namespaces', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    const event = { '*': { publish: true, subscribe: true, listen: true }, 'chat#ann/*': { subscribe: "user.id === 'ann'" } };
    const record = { '*': { create: true, read: true, write: true, delete: true, listen: true } };
    const permissions = JSON.stringify({ presence: { '*': { allow: true } }, record, event, rpc: { '*': { provide: true, request: true } } });
    server = await Server.start({ namespaces: NAMESPACES, permissions });
  });
  after(() => server.dispose());

  test('share a connection and have sessions of their own', async (t) => {
    const main = await connected(t, server);
    const sockets = [main, await joined(main, '/chat'), await joined(main, '/admin'), await joined(main, '/room/7')];
    assert.equal(new Set(sockets.map((socket) => socket.id)).size, 4);
    assert.equal(new Set(sockets.map((socket) => socket.io)).size, 1);
    const room = fresh('room');
    const inboxes = sockets.map((socket) => received(socket, 'said'));
    const answers = sockets.map((socket) => ask(socket, '$join', room));
    assert.deepEqual(await Promise.all(answers), [{ ok: true }, { ok: true }, { ok: true }, { ok: true }]);
    const stranger = await connected(t, server);
    const [chat, admin] = [await joined(stranger, '/chat'), await joined(stranger, '/admin')];
    assert.deepEqual(await ask(chat, '$to', room, 'said', 'chat'), { ok: true });
    assert.deepEqual(await ask(admin, '$to', room, 'said', 'admin', { deep: [1] }), { ok: true });
    assert.deepEqual(await ask(stranger, '$to', room, 'said', 'main'), { ok: true });
    const expected = [['main'], ['chat'], ['admin', { deep: [1] }]];
    assert.deepEqual(await Promise.all(inboxes.slice(0, 3).map((inbox) => inbox.next())), expected);
    await ask(sockets[3] as Socket, '$leave', room);
    assert.deepEqual(inboxes.map(({ seen }) => seen.length), [1, 1, 1, 0]);
    assert.equal((await ask(sockets[1] as Socket, 'unknown')).code, 'NO_HANDLER');
  });

  test('have rooms that are events with their name', async (t) => {
    const main = await connected(t, server);
    const chat = await joined(main, '/chat');
    const room = fresh('room');
    const [messages, others] = [received(chat, 'message'), received(main, 'message')];
    await ask(chat, '$join', room);
    const client = await connect(t, server);
    client.event.emit(room, 1);
    client.event.emit(`chat#${room}`, { text: 'hello' });
    assert.deepEqual(await messages.next(), [{ text: 'hello' }]);
    const bytes = await fetch(`http://${server.address}/events/${encodeURIComponent(`chat#${room}`)}`, {
      method: 'POST',
      body: Buffer.from([0, 255]),
      headers: { 'content-type': 'a/b' },
    });
    assert.equal(bytes.status, 204);
    assert.deepEqual(await messages.next(), [Buffer.from([0, 255])]);
    assert.equal(others.seen.length, 0);
  });

  test('can have different users', async (t) => {
    const main = await connected(t, server, { auth: { username: 'bob' } });
    const ann = await joined(main, '/chat', { username: 'ann' });
    const cid = await connected(t, server, { auth: { username: 'cid' } });
    const other = await joined(cid, '/chat', { username: 'cid' });
    assert.deepEqual(await ask(ann, '$join', 'ann/1'), { ok: true });
    const { ok, code, name } = await ask(other, '$join', 'ann/1');
    assert.deepEqual({ ok, code, name }, { ok: false, code: 'MESSAGE_DENIED', name: 'ann/1' });
    const client = await connect(t, server);
    const online = await client.presence.getAll();
    assert.deepEqual(['ann', 'bob'].filter((user) => online.includes(user)), ['ann', 'bob']);
    ann.disconnect();
    await ask(main, '$leave', 'none');
    assert.deepEqual((await client.presence.getAll()).filter((user: string) => ['ann', 'bob'].includes(user)), ['bob']);
  });

  test('are left one by one and joined again', async (t) => {
    const main = await connected(t, server);
    const chat = await joined(main, '/chat');
    const before = [main.id, chat.id];
    const room = fresh('room');
    const messages = received(chat, 'message');
    await ask(chat, '$join', room);
    main.disconnect();
    assert.deepEqual(await ask(chat, '$to', room, 'message', 1), { ok: true });
    main.connect();
    await happens(main, 'connect');
    chat.disconnect();
    assert.deepEqual(await ask(main, '$join', room), { ok: true });
    chat.connect();
    await happens(chat, 'connect');
    assert.equal(before.includes(main.id) || before.includes(chat.id), false);
    // The new session has joined no room.
    const client = await connect(t, server);
    client.event.emit(`chat#${room}`, 2);
    // The answer follows the event.
    await client.record.has(fresh('record'));
    await ask(chat, '$join', room);
    client.event.emit(`chat#${room}`, 3);
    assert.deepEqual(await messages.next(), [3]);
    assert.equal(main.io.engine.readyState, 'open');
  });

  test('that do not exist are refused, and the connection stays', async (t) => {
    const main = await connected(t, server);
    for (const name of ['/other', '/chat2', '/room', '/room/a#b']) {
      const [error] = await happens(another(main, name), 'connect_error');
      assert.equal(error.message, 'Invalid namespace');
    }
    assert.deepEqual(await ask(main, '$join', fresh('room')), { ok: true });
  });

  test('come back after a broken connection', async (t) => {
    const main = await connected(t, server, { reconnection: true, reconnectionDelay: 10 });
    const chat = await joined(main, '/chat');
    const again = Promise.all([happens(main, 'connect'), happens(chat, 'connect')]);
    main.io.engine.close();
    await again;
    const room = fresh('room');
    assert.deepEqual(await ask(chat, '$join', room), { ok: true });
    const other = await connected(t, server);
    const messages = received(chat, 'message');
    await ask(await joined(other, '/chat'), '$to', room, 'message', 1);
    assert.deepEqual(await messages.next(), [1]);
  });
});

test('the namespaces of a revoked user end, and those of other users continue', async (t) => {
  const users = Object.fromEntries(['dan', 'eve'].map((name) => [name, { password: hashPassword(name) }]));
  const server = await Server.during(t, { users, namespaces: NAMESPACES, adminKey: ADMIN_KEY });
  const as = (username: string): Record<string, unknown> => ({ username, password: username });
  const main = await connected(t, server, { auth: as('dan'), reconnection: true });
  const [eve, dan] = [await joined(main, '/chat', as('eve')), await joined(main, '/admin', as('dan'))];
  const ends = [main, eve, dan].map((socket) => received(socket, 'disconnect'));
  const [status] = await admin(server, 'POST', '/revocations', { user: 'eve' });
  assert.ok(status < 300, String(status));
  assert.equal((await ends[1]?.next())?.[0], 'io server disconnect');
  assert.deepEqual(await ask(main, '$join', fresh('room')), { ok: true });
  assert.deepEqual(await ask(dan, '$join', fresh('room')), { ok: true });
  assert.deepEqual([ends[0]?.seen.length, ends[2]?.seen.length], [0, 0]);
  await admin(server, 'POST', '/revocations', { user: 'dan' });
  const reasons = await Promise.all([ends[0], ends[2]].map((inbox) => inbox?.next()));
  assert.deepEqual(reasons.map((args) => args?.[0]), ['io server disconnect', 'io server disconnect']);
});

test('a refused login leaves the other namespaces, and another one may follow', async (t) => {
  const users = { ann: { password: hashPassword('right') } };
  const server = await Server.during(t, { users, namespaces: NAMESPACES });
  const main = await connected(t, server, { auth: { username: 'ann', password: 'right' } });
  const auth = { username: 'ann', password: 'wrong' };
  const chat = another(main, '/chat', auth);
  const [error] = await happens(chat, 'connect_error');
  assert.equal(error.message, 'Not authorized');
  assert.deepEqual(await ask(main, '$join', fresh('room')), { ok: true });
  chat.auth = { ...auth, password: 'right' };
  chat.connect();
  await happens(chat, 'connect');
  assert.deepEqual(await ask(chat, '$join', fresh('room')), { ok: true });
  // The refusal of the main namespace leaves the others, too.
  main.disconnect();
  main.auth = auth;
  main.connect();
  assert.equal((await happens(main, 'connect_error'))[0].message, 'Not authorized');
  main.auth = { ...auth, password: 'right' };
  main.connect();
  await happens(main, 'connect');
  assert.deepEqual(await ask(chat, '$join', fresh('room')), { ok: true });
});

test('too many refused logins end the connection', async (t) => {
  const users = { ann: { password: hashPassword('right') } };
  const server = await Server.during(t, { users, namespaces: NAMESPACES, authAttemptsMax: 3 });
  const peer = await BarePeer.open(t, server);
  peer.send('40/chat', '40/admin', '40/room/1');
  await within(DEADLINE_MS, peer.closed, 'the connection ends');
  assert.equal(peer.messages.seen.filter((message) => message.startsWith('44/')).length, 3);
});

test('a connection has at most `limits.connection_sessions_max` sessions', async (t) => {
  const server = await Server.during(t, { namespaces: NAMESPACES, limits: { connection_sessions_max: 3 } });
  const main = await connected(t, server);
  const [one] = [await joined(main, '/room/1'), await joined(main, '/room/2')];
  const third = another(main, '/room/3');
  const [error] = await happens(third, 'connect_error');
  assert.deepEqual([error.message, error.data], ['Too many namespaces', { code: 'TOO_MANY_NAMESPACES' }]);
  one.disconnect();
  third.connect();
  await happens(third, 'connect');
});

test('a server without the option has `/` only', async (t) => {
  const server = await Server.during(t, {});
  const main = await connected(t, server);
  const [error] = await happens(another(main, '/chat'), 'connect_error');
  assert.equal(error.message, 'Invalid namespace');
});

describe('a bare peer with namespaces', { concurrency: 8 }, () => {
  const heartbeatIntervalMs = 1_000;
  let server: Server;
  before(async () => {
    server = await Server.start({ namespaces: NAMESPACES, heartbeatIntervalMs });
  });
  after(() => server.dispose());

  for (const [what, messages] of Object.entries({
    'a second join': ['40/chat', '40/chat'],
    'an event in a namespace that it has not joined': ['40', '42/chat,["x"]'],
    'an event in a namespace that it has left': ['40/chat,', '41/chat', '42/chat,["x"]'],
    'an event in `/` without a join': ['40/chat', '42["x"]'],
    'an acknowledgement in a namespace that it has not joined': ['40', '43/chat,1[]'],
    'leaving a namespace that it has not joined': ['40', '41/chat,'],
    'an event in a namespace that does not exist': ['40', '40/other', '42/other,["x"]'],
  })) {
    test(`is closed after ${what}`, async (t) => {
      const peer = await BarePeer.open(t, server);
      peer.send(...messages);
      await within(DEADLINE_MS, peer.closed, 'the connection ends');
    });
  }

  test('gets pings without a namespace, with one, and after it has left all', async (t) => {
    const peer = await BarePeer.open(t, server);
    peer.socket.on('message', (bytes: Buffer) => bytes.toString() === '2' && peer.send('3'));
    const pings = (): number => peer.messages.seen.filter((message) => message === '2').length;
    const more = async (): Promise<void> => {
      const before = pings();
      await peer.messages.until(() => pings() > before + 2);
    };
    await more();
    peer.send('40/chat,');
    await more();
    peer.send('40');
    await more();
    peer.send('41', '41/chat');
    await more();
    peer.send('40/chat', '42/chat,1["$join","x"]');
    await peer.messages.find((message) => message === '43/chat,1[{"ok":true}]');
    // The end of a namespace has no answer.
    assert.equal(peer.messages.seen.filter((message) => !/^(0|2$|4[03])/.test(message)).length, 0);
  });

  test('that does not answer pings is closed with all namespaces', async (t) => {
    const peer = await BarePeer.open(t, server);
    peer.send('40/chat', '40/admin');
    assert.equal(await within(DEADLINE_MS, peer.closed, 'the connection ends'), 1008);
  });
});

test('a connection that has left all namespaces is closed after `auth.login_timeout`', async (t) => {
  const server = await Server.during(t, { namespaces: NAMESPACES, loginTimeoutMs: 1_000 });
  const socket = open(t, server, { autoConnect: false });
  const chat = await joined(socket, '/chat');
  // Longer than the timeout: a connection that has a session stays.
  await new Promise((done) => setTimeout(done, 2_500));
  assert.deepEqual(await ask(chat, '$join', 'room'), { ok: true });
  const peer = await BarePeer.open(t, server);
  peer.send('40/chat', '41/chat');
  await within(DEADLINE_MS, peer.closed, 'the connection ends');
});
