// The backend protocol with the unmodified `socket.io-client`: sessions, events, commands, and the loss of a backend.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { AskError, Backend, connect as connectBackend } from '@tidewire/server';
import { connect, subscribed } from '../harness/client.ts';
import { fresh } from '../harness/names.ts';
import type { Server } from '../harness/server.ts';
import { DEADLINE_MS, eventually, happens, within } from '../harness/wait.ts';
import { KEY, TRANSPORTS, allOf, backend, client, joined, startServer } from './backends.ts';

describe('a backend', { concurrency: 4 }, () => {
  let server: Server;
  before(async () => {
    server = await startServer();
  });
  after(() => server.dispose());

  for (const transports of TRANSPORTS) {
    test(`serves a client over ${transports.join(' and ')}`, async (t) => {
      const namespace = `/${fresh('name')}`;
      const [made, { opened, events, answers }] = await backend(t, server, [namespace]);
      const socket = await joined(t, server.port, { transports, auth: { token: 'x' }, query: { a: 'b' }, extraHeaders: { 'x-mine': 'é' } }, namespace);
      assert.equal(socket.id, 'id-1');
      const { session, handshake, rooms, id } = await opened.next();
      assert.deepEqual([rooms, id, handshake.auth, handshake.secure, handshake.address], [[], undefined, { token: 'x' }, false, '127.0.0.1']);
      assert.match(handshake.url ?? '', /^\/socket\.io\/\?.*a=b/);
      assert.ok(handshake.headers?.some(([name]) => name === 'x-mine'));
      const seen = allOf(socket);
      socket.emit('hello', 1, { a: [null] }, Buffer.from([1, 2]));
      const event = await events.next();
      assert.equal(event.data, '["hello",1,{"a":[null]},{"_placeholder":true,"num":0}]');
      assert.deepEqual(event.attachments, [Buffer.from([1, 2])]);
      const answer = socket.emitWithAck('$join', 'room');
      const asked = await events.next();
      assert.equal(asked.data, '["$join","room"]', 'a backend gets every event');
      made.answer(session, asked.id ?? '', { data: '["yes",2]' });
      assert.equal(await answer, 'yes');
      made.send(session, { data: '["news",{"_placeholder":true,"num":0},7]', attachments: [Buffer.from([3])] });
      assert.deepEqual(await seen.next(), ['news', Buffer.from([3]), 7]);
      socket.on('ask', (text: string, ack: (answer: unknown) => void) => ack({ got: text, bytes: Buffer.from([4]) }));
      made.send(session, { data: '["ask","x"]' }, '41');
      const answered = await answers.next();
      assert.deepEqual([answered.id, answered.data, answered.attachments], ['41', '[{"got":"x","bytes":{"_placeholder":true,"num":0}}]', [Buffer.from([4])]]);
    });
  }

  test('refuses a session with a reason', async (t) => {
    const namespace = `/${fresh('name')}`;
    const [made, { opened }] = await backend(t, server, [namespace], false);
    const socket = client(t, server.port, {}, namespace);
    const refused = happens(socket, 'connect_error');
    made.refuse((await opened.next()).session, '{"message":"no entry","data":{"code":7}}');
    const [error] = (await refused) as [Error & { data: unknown }];
    assert.deepEqual([error.message, error.data], ['no entry', { code: 7 }]);
    socket.connect();
    const again = happens(socket, 'connect');
    made.accept((await opened.next()).session, 'later');
    await again;
    assert.equal(socket.id, 'later');
  });

  test('sends to rooms, which are events of all other clients', async (t) => {
    const name = fresh('name');
    const [made, { opened }] = await backend(t, server, [`/${name}`]);
    const sockets = [await joined(t, server.port, {}, `/${name}`), await joined(t, server.port, {}, `/${name}`), await joined(t, server.port, {}, `/${name}`)];
    const sessions = (await opened.count(3)).map(({ session }) => session);
    const inboxes = sockets.map(allOf);
    const native = await connect(t, server);
    const inbox = await subscribed(native, `${name}#a`);
    made.join(sessions[0] ?? '', ['a', 'b']);
    made.join(sessions[1] ?? '', ['b']);
    const namespace = `/${name}`;
    made.broadcast({ namespace, rooms: ['a', 'b'], data: '["one"]' });
    made.broadcast({ namespace, rooms: ['b'], sender: sessions[0], data: '["two",{"_placeholder":true,"num":0}]', attachments: [Buffer.from([9])] });
    made.broadcast({ namespace, except: ['a'], data: '["three"]' });
    made.broadcast({ namespace, data: '["last"]' });
    await Promise.all(inboxes.map((seen) => seen.find(([event]) => event === 'last')));
    assert.deepEqual(inboxes.map(({ seen }) => seen.map(([event]) => event)), [['one', 'last'], ['one', 'two', 'three', 'last'], ['three', 'last']]);
    assert.deepEqual(inboxes[1]?.seen[1], ['two', Buffer.from([9])]);
    assert.deepEqual(await inbox.next(), ['one']);
    native.event.emit(`${name}#a`, ['native', 1]);
    assert.deepEqual(await inboxes[0]?.find(([event]) => event === 'native'), ['native', 1]);
  });

  test('asks the sessions of rooms, which answer over all transports', async (t) => {
    const name = fresh('name');
    const [made, { opened, answers }] = await backend(t, server, [`/${name}`]);
    const sockets = await Promise.all(TRANSPORTS.map((transports) => joined(t, server.port, { transports }, `/${name}`)));
    const sessions = (await opened.count(3)).map(({ session }) => session);
    for (const socket of sockets) socket.on('ask', (value: unknown, ack: (...answers: unknown[]) => void) => ack(value, Buffer.from([5])));
    const native = await connect(t, server);
    const inbox = await subscribed(native, `${name}#a`);
    for (const session of sessions) made.join(session, ['a']);
    const asked = await made.ask({ namespace: `/${name}`, rooms: ['a', 'b'], data: '["ask",{"_placeholder":true,"num":0}]', attachments: [Buffer.from([4])] }, DEADLINE_MS);
    const answer = { data: '[{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}]', attachments: [Buffer.from([4]), Buffer.from([5])] };
    assert.deepEqual(asked, [answer, answer, answer]);
    assert.equal(answers.seen.length, 0, 'an answer to an ask is no answer to an event');
    assert.deepEqual(await inbox.next(), ['ask', { _placeholder: true, num: 0 }], 'a client without a backend gets an event');
    assert.deepEqual(await made.ask({ namespace: `/${name}`, rooms: ['none'], data: '["ask",1]' }, DEADLINE_MS), []);
    const failed = made.ask({ namespace: `/${name}`, rooms: ['a'], data: '["unknown"]' }, 200);
    await assert.rejects(failed, (error: unknown) => error instanceof AskError && error.reason === 'timeout' && error.answers.length === 0);
    const refused = made.ask({ namespace: '/other', data: '["ask",1]' }, DEADLINE_MS);
    await assert.rejects(refused, (error: unknown) => error instanceof AskError && error.reason === 'refused' && /does not serve the namespace/.test(error.message));
  });

  test('ends sessions and connections', async (t) => {
    const namespace = `/${fresh('name')}`;
    const [made, { opened, closed }] = await backend(t, server, [namespace]);
    const [socket, whole] = [await joined(t, server.port, {}, namespace), await joined(t, server.port, {}, namespace)];
    const [first, second] = await opened.count(2);
    const gone = happens(socket, 'disconnect');
    const seen = allOf(socket);
    made.send(first?.session ?? '', { data: '["bye"]' });
    made.end(first?.session ?? '');
    assert.equal((await gone)[0], 'io server disconnect');
    assert.deepEqual(seen.seen, [['bye']]);
    socket.connect();
    await happens(socket, 'connect');
    const third = (await opened.count(3))[2];
    const lost = happens(whole, 'disconnect');
    made.end(second?.session ?? '', true);
    assert.equal((await lost)[0], 'io server disconnect');
    await eventually(() => whole.io.engine?.readyState !== 'open', 'the connection is closed');
    socket.disconnect();
    assert.deepEqual(await closed.next(), { session: third?.session, reason: 'left' });
    assert.equal(closed.seen.length, 1, 'the backend knows which sessions it has ended');
  });

  test('gets to know why a session has ended', async (t) => {
    const namespace = `/${fresh('name')}`;
    const [, { closed }] = await backend(t, server, [namespace]);
    const socket = await joined(t, server.port, {}, namespace);
    socket.io.engine.close();
    assert.equal((await closed.next()).reason, 'lost');
  });

  test('has several namespaces on one connection', async (t) => {
    const name = fresh('name');
    const [, { opened, events }] = await backend(t, server, ['/', `/${name}`]);
    const main = await joined(t, server.port);
    const other = main.io.socket(`/${name}`);
    if (!other.active) other.connect();
    await happens(other, 'connect');
    other.emit('other');
    main.emit('main');
    const seen = await events.count(2);
    const sessions = await opened.find(({ namespace }) => namespace === `/${name}`);
    assert.deepEqual(seen.map(({ data }) => data), ['["other"]', '["main"]']);
    assert.equal(seen[0]?.session, sessions.session);
    assert.ok(sessions.handshake.headers?.some(([header]) => header === 'host'), 'the second namespace has the headers, too');
  });

  test('is refused without the right key', async (t) => {
    const wrong = connectBackend({ url: `http://${server.address}`, key: KEY.replace('0', '1'), namespaces: ['/'] });
    await assert.rejects(within(DEADLINE_MS, wrong, 'a refusal'), /refused the key of the backend .*INVALID_KEY.*backend\.key/);
    const [made] = await backend(t, server, [`/${fresh('name')}`]);
    await assert.rejects(made.serve(['chat']), /namespaces begin with \//);
  });
});

test('a namespace without a backend waits, and its connection is closed after the grace', async (t) => {
  const server = await startServer({ backend: { grace: '1s' } });
  t.after(() => server.dispose());
  const socket = client(t, server.port);
  const [, { opened }] = await backend(t, server, ['/']);
  await happens(socket, 'connect');
  await opened.next();
  // A namespace that no backend serves is refused at once, if there is one.
  const other = client(t, server.port, {}, '/other');
  const [error] = (await happens(other, 'connect_error')) as [Error];
  assert.equal(error.message, 'Invalid namespace');
});

test('clients stay connected while a backend restarts, and lose no event', async (t) => {
  const server = await startServer();
  t.after(() => server.dispose());
  const [first, { opened }] = await backend(t, server, ['/']);
  const socket = await joined(t, server.port, { reconnection: true });
  const { session } = await opened.next();
  first.join(session, ['room']);
  let disconnects = 0;
  socket.on('disconnect', () => (disconnects += 1));
  const seen = allOf(socket);
  await first.close();
  for (let number = 1; number <= 100; number += 1) socket.emit('count', number);
  const [second, { opened: taken, events }] = await backend(t, server, ['/']);
  const resumed = await taken.next();
  assert.deepEqual([resumed.id, resumed.rooms], ['id-1', ['room']]);
  const got = (await events.count(100)).map(({ data }) => (JSON.parse(data) as [string, number])[1]);
  assert.deepEqual(got, Array.from({ length: 100 }, (_, index) => index + 1));
  second.broadcast({ namespace: '/', rooms: ['room'], data: '["still"]' });
  assert.deepEqual(await seen.next(), ['still']);
  assert.equal(disconnects, 0);
});

test('connections without a backend are closed after the grace, and clients come back', async (t) => {
  const server = await startServer({ backend: { grace: '300ms' } });
  t.after(() => server.dispose());
  const [first] = await backend(t, server, ['/']);
  const socket = await joined(t, server.port, { reconnection: true, reconnectionDelay: 50 });
  const gone = happens(socket, 'disconnect');
  await first.close();
  assert.equal((await gone)[0], 'transport close');
  await backend(t, server, ['/']);
  await happens(socket, 'connect');
});

test('a slow backend stops the reading of its clients, and others do not notice', async (t) => {
  const server = await startServer({ limits: { backend_messages_max: 10 } });
  t.after(() => server.dispose());
  const slow = new Backend({ url: `http://${server.address}`, key: KEY });
  t.after(() => slow.close());
  const got: string[] = [];
  slow.on('opened', ({ session }) => slow.accept(session, 'slow'));
  slow.on('event', (_, { data }) => got.push(data));
  await slow.serve(['/slow']);
  const [, { events }] = await backend(t, server, ['/']);
  const [socket, other] = [await joined(t, server.port, {}, '/slow'), await joined(t, server.port)];
  for (let number = 0; number < 1_000; number += 1) socket.emit('count', number);
  other.emit('free');
  await events.next();
  await eventually(() => got.length === 1_000, 'all events arrive, ten at a time');
  assert.deepEqual(got[999], '["count",999]');
});

test('an ask of 300 sessions gets each answer, a few at a time', async (t) => {
  const server = await startServer({ limits: { backend_messages_max: 10 } });
  t.after(() => server.dispose());
  const [made, { opened }] = await backend(t, server, ['/']);
  const first = await joined(t, server.port);
  const sockets = [first];
  for (let number = 1; number < 300; number += 1) sockets.push(client(t, server.port));
  await Promise.all(sockets.slice(1).map((socket) => happens(socket, 'connect')));
  await opened.count(300);
  for (const [index, socket] of sockets.entries()) socket.on('ask', (ack: (answer: number) => void) => ack(index));
  const asked = await made.ask({ namespace: '/', data: '["ask"]' }, DEADLINE_MS);
  const numbers = asked.map(({ data }) => (JSON.parse(data) as [number])[0]);
  assert.deepEqual(numbers.sort((a, b) => a - b), sockets.map((_, index) => index));
});

test('answers beyond the limit fail an ask, and the next one works', async (t) => {
  const server = await startServer({ limits: { backend_answers_bytes_max: 64 << 10 } });
  t.after(() => server.dispose());
  const [made] = await backend(t, server, ['/']);
  const socket = await joined(t, server.port);
  socket.on('ask', (length: number, ack: (answer: string) => void) => ack('x'.repeat(length)));
  const failed = made.ask({ namespace: '/', data: '["ask",70000]' }, DEADLINE_MS);
  await assert.rejects(failed, (error: unknown) => error instanceof AskError && error.reason === 'refused' && /limits\.backend_answers_bytes_max/.test(error.message));
  for (let number = 0; number < 5; number += 1) assert.equal((await made.ask({ namespace: '/', data: '["ask",50000]' }, DEADLINE_MS)).length, 1);
});

test('a backend connects again after the loss of its server', async (t) => {
  const server = await startServer();
  t.after(() => server.dispose());
  const [made, { opened }] = await backend(t, server, ['/']);
  await joined(t, server.port);
  await opened.next();
  const lost = happens(made, 'disconnect');
  await server.kill();
  await lost;
  assert.equal(made.isConnected, false);
  const back = happens(made, 'connect');
  await server.start();
  await back;
  const socket = await joined(t, server.port);
  assert.equal(socket.id, 'id-2');
});
