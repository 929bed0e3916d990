// `@tidewire/socket.io` where it differs from the reference: crashes of the app, several backends, what it refuses, and a server that it starts.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { startServer as startChild } from '@tidewire/server';
import { Server, type Socket } from '@tidewire/socket.io';
import { atEnd } from '../harness/cleanup.ts';
import { binary, type Server as TestServer } from '../harness/server.ts';
import { freePort } from '../harness/ports.ts';
import { DEADLINE_MS, Inbox, eventually, happens, within } from '../harness/wait.ts';
import { KEY, allOf, client, joined, startServer } from './backends.ts';

/** An app that is connected. */
async function app(t: TestContext, server: TestServer, onSocket: (socket: Socket) => void = () => undefined): Promise<{ io: Server; sockets: Inbox<Socket> }> {
  const io = new Server({ url: `http://${server.address}`, key: KEY });
  atEnd(t, () => io.handOver());
  const sockets = new Inbox<Socket>('sockets');
  io.on('connection', (socket) => {
    onSocket(socket);
    sockets.push(socket);
  });
  await within(DEADLINE_MS, io.ready, 'the app is ready');
  return { io, sockets };
}

test('an app takes over the sockets of another one, with their ids and rooms', async (t) => {
  const server = await startServer();
  t.after(() => server.dispose());
  const first = await app(t, server);
  const client = await joined(t, server.port);
  const before = await first.sockets.next();
  before.join(['a', 'b']);
  before.leave('a');
  const seen = allOf(client);
  await first.io.handOver();
  client.emit('hello', 1);
  const hello = new Inbox<number>('hello');
  const second = await app(t, server, (socket) => socket.on('hello', hello.push));
  const socket = await second.sockets.next();
  assert.deepEqual([socket.id, socket.recovered, [...socket.rooms].sort()], [before.id, true, ['b', before.id].sort()]);
  assert.equal(await hello.next(), 1);
  second.io.to('b').emit('still here');
  assert.deepEqual(await seen.next(), ['still here']);
  assert.equal(client.connected, true);
});

test('an app keeps its sockets while it has lost its server for a moment', async (t) => {
  const server = await startServer();
  t.after(() => server.dispose());
  const { io, sockets } = await app(t, server);
  const reconnecting = client(t, server.port, { reconnection: true, reconnectionDelay: 20 });
  await happens(reconnecting, 'connect');
  const socket = await sockets.next();
  const gone = happens(socket, 'disconnect');
  await server.kill();
  await server.start();
  // The session was in the server, so the client comes back with another one, and the old one ends after the grace.
  const again = await sockets.next();
  assert.notEqual(again.id, socket.id);
  assert.equal(io.sockets.sockets.has(again.id), true);
  assert.equal((await gone)[0], 'transport close');
});

test('two apps share the sockets, and each knows all', async (t) => {
  const server = await startServer({ shards: 1 });
  t.after(() => server.dispose());
  const apps = [await app(t, server), await app(t, server)];
  const clients = [await joined(t, server.port), await joined(t, server.port)];
  const sockets = await Promise.all(apps.map(({ sockets }) => sockets.next()));
  assert.deepEqual(apps.map(({ io }) => io.sockets.sockets.size), [1, 1]);
  const inboxes = clients.map(allOf);
  for (const socket of sockets) {
    socket.join('room');
    socket.emit('joined');
  }
  await Promise.all(inboxes.map((inbox) => inbox.next()));
  apps[0]?.io.to('room').emit('to both');
  await Promise.all(inboxes.map((inbox) => inbox.next()));
  // A socket of the other app is in the room with its id.
  apps[0]?.io.to(sockets[1]?.id ?? '').emit('across');
  const across = clients.findIndex(({ id }) => id === sockets[1]?.id);
  assert.deepEqual(await inboxes[across]?.next(), ['across']);
  const { io } = apps[0] ?? assert.fail();
  await eventually(() => io.backendCount === 2, 'the number of backends');
  const ids = (await io.fetchSockets()).map(({ id }) => id);
  assert.deepEqual(ids.sort(), clients.map(({ id }) => id ?? '').sort());
  assert.equal((await io.local.fetchSockets()).length, 1);
  const gone = clients.map((client) => happens(client, 'disconnect'));
  io.disconnectSockets();
  assert.deepEqual((await Promise.all(gone)).map(([reason]) => reason), ['io server disconnect', 'io server disconnect']);
});

test('a broadcast with acknowledgements reaches the sockets of all apps', async (t) => {
  const server = await startServer();
  t.after(() => server.dispose());
  const apps = [await app(t, server), await app(t, server)];
  const clients = await Promise.all(Array.from({ length: 6 }, () => joined(t, server.port)));
  for (const [index, client] of clients.entries()) client.on('number', (ack: (number: number) => void) => ack(index));
  await eventually(() => apps.reduce((sum, { io }) => sum + io.sockets.sockets.size, 0) === 6, 'six sockets');
  const sizes = apps.map(({ io }) => io.sockets.sockets.size);
  assert.ok(sizes.every((size) => size > 0), `both apps have sockets: ${sizes}`);
  for (const { io } of apps) {
    const numbers = await io.timeout(DEADLINE_MS).emitWithAck('number');
    assert.deepEqual(numbers.sort(), [0, 1, 2, 3, 4, 5]);
  }
  // The socket of the other app, by its room.
  const [other] = [...(apps[1]?.io.sockets.sockets.values() ?? [])];
  const index = clients.findIndex(({ id }) => id === other?.id);
  assert.deepEqual(await apps[0]?.io.timeout(DEADLINE_MS).to(other?.id ?? '').emitWithAck('number'), [index]);
});

test('a broadcast with acknowledgements fails with the answers that have arrived, at a limit and with the loss of the server', async (t) => {
  const server = await startServer({ limits: { backend_asks_max: 1 } });
  t.after(() => server.dispose());
  const { io } = await app(t, server, (socket) => socket.on('after', (ack: () => void) => ack()));
  const [quick, silent] = [await joined(t, server.port), await joined(t, server.port)];
  const asked = new Inbox<null>('asked');
  quick.on('ask', (ack: (answer: string) => void) => ack('quick'));
  silent.on('ask', () => asked.push(null));
  await eventually(() => io.sockets.sockets.size === 2, 'two sockets');
  const outcome = new Promise<[Error, unknown[]]>((resolve) => io.timeout(60_000).emit('ask', (error: Error, responses: unknown[]) => resolve([error, responses])));
  await asked.next();
  // The app gets the events of a client behind its answers.
  await quick.emitWithAck('after');
  await assert.rejects(io.timeout(60_000).emitWithAck('ask'), { message: /too many broadcasts or messages .*limits\.backend_asks_max/, responses: [] });
  io.emit('not limited');
  await server.kill();
  const [error, responses] = await within(DEADLINE_MS, outcome, 'the error');
  assert.match(error.message, /has lost its server/);
  assert.deepEqual(responses, ['quick']);
  await assert.rejects(io.timeout(60_000).emitWithAck('ask'), /has no connection to the server/);
});

test('an app gets the sockets of another one in several messages, and an error for data without a form', async (t) => {
  const server = await startServer();
  t.after(() => server.dispose());
  const long = 'x'.repeat(60_000);
  const first = await app(t, server, (socket) => (socket.data = { long }));
  const clients = await Promise.all(Array.from({ length: 20 }, () => joined(t, server.port)));
  await first.sockets.count(20);
  const { io } = await app(t, server);
  assert.equal(io.sockets.sockets.size, 0, 'all sockets have the first app');
  const fetched = await io.fetchSockets();
  assert.deepEqual(fetched.map(({ id }) => id).sort(), clients.map(({ id }) => id ?? '').sort());
  assert.ok(fetched.every(({ data }) => (data as { long: string }).long === long));
  const [socket] = [...first.io.sockets.sockets.values()];
  if (!socket) return assert.fail();
  socket.data.long = 'x'.repeat(600_000);
  await assert.rejects(io.fetchSockets(), new RegExp(`socket\\.data of ${socket.id} is too large`));
  socket.data.long = socket;
  await assert.rejects(io.fetchSockets(), new RegExp(`socket\\.data of ${socket.id} has no JSON`));
  socket.data.long = 1;
  assert.equal((await io.fetchSockets()).length, 20);
});

test('what the package does not have is refused with a sentence', async (t) => {
  const server = await startServer();
  t.after(() => server.dispose());
  const { io, sockets } = await app(t, server);
  await joined(t, server.port);
  const socket = await sockets.next();
  const running = { url: `http://${server.address}`, key: KEY };
  const cases: Array<[() => unknown, RegExp]> = [
    [() => new Server({ ...running, cors: { origin: '*' } }), /the option cors for a running server; set network\.origins there/],
    [() => new Server(3000, { cors: { origin: /page/ as never } }), /patterns and functions in the option cors; list the origins/],
    [() => new Server(3000, { cors: { origin: '*', credentials: true } }), /the member credentials of the option cors; send credentials in `auth`/],
    [() => new Server(3000, { cors: { methods: ['GET', 'PUT'] } }), /the member methods of the option cors/],
    [() => new Server({ allowEIO3: true } as never), /clients of version 2 are not supported/],
    [() => new Server({ ...running, path: '/other' }), /the path of the server is \/socket\.io/],
    [() => new Server({ url: 'http://localhost' }), /needs both `url` and `key`/],
    [() => io.adapter({}), /the server is the adapter/],
    [() => io.serverSideEmit('connection'), /"connection" is a reserved event name/],
    [() => socket.conn, /socket\.conn; the server has the connection/],
    [() => socket.client, /socket\.client/],
    [() => socket.emit('disconnect'), /"disconnect" is a reserved event name/],
    [() => socket.join(''), /a room is a string that is not empty/],
    [() => socket.emit('x', ...Array.from({ length: 11 }, () => Buffer.from([1]))), /at most|may have 10 binary values/],
  ];
  for (const [call, expected] of cases) assert.throws(call, expected);
  assert.doesNotThrow(() => new Server({ allowEIO3: false, serveClient: false } as never));
  const circle: unknown[] = [];
  circle.push(circle);
  assert.throws(() => socket.emit('x', circle), /refer to themselves/);
});

test('a wrong key is an error that names the option', async (t) => {
  const server = await startServer();
  t.after(() => server.dispose());
  const io = new Server({ url: `http://${server.address}`, key: 'wrong' });
  io.on('error', () => undefined);
  await assert.rejects(within(DEADLINE_MS, io.ready, 'a refusal'), /set the same one in backend\.key/);
  await io.close();
});

test('an app starts a server on a port, and stops it', async (t) => {
  const dataFolder = mkdtempSync(join(tmpdir(), 'tidewire-'));
  t.after(() => rmSync(dataFolder, { recursive: true }));
  const port = await freePort();
  const io = new Server(port, { program: binary(), dataFolder });
  atEnd(t, () => io.close());
  io.on('connection', (socket) => socket.on('ask', (ack: (text: string) => void) => ack('yes')));
  await within(DEADLINE_MS * 2, io.ready, 'the server runs');
  const socket = await joined(t, port);
  assert.equal(await socket.emitWithAck('ask'), 'yes');
  const gone = happens(socket, 'disconnect');
  await io.close();
  assert.equal((await gone)[0], 'io server disconnect');
  await assert.rejects(fetch(`http://127.0.0.1:${port}/ready`));
});

test('without a program for the platform a sentence names the ways on', async () => {
  await assert.rejects(startChild({ program: '/nonexistent/tidewire' }), /can't be started/);
});
