// Connection state recovery: one application on `socket.io` and on `@tidewire/socket.io`, whose clients lose their connections, and where this
// package differs.

import assert from 'node:assert/strict';
import { createServer, type Server as HttpServer } from 'node:http';
import { after, before, describe, test, type TestContext } from 'node:test';
import { Server as Tidewire } from '@tidewire/socket.io';
import { Server as Reference, type Namespace, type Socket as ServerSocket } from 'socket.io';
import type { Socket } from 'socket.io-client';
import * as messagePack from 'socket.io-msgpack-parser';
import { atEnd } from '../harness/cleanup.ts';
import { fresh } from '../harness/names.ts';
import type { Server } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, happens, within } from '../harness/wait.ts';
import { KEY, allOf, client, startServer } from './backends.ts';

interface Stage {
  io: Namespace;
  /** A client that comes back by itself, its events, and its sockets in the app. */
  join(): Promise<{ client: Socket; seen: Inbox<unknown[]>; sockets: Inbox<ServerSocket> }>;
}

const RECONNECTING = { reconnection: true, reconnectionDelay: 20, reconnectionDelayMax: 20 };

/** The connection of a client breaks. It resolves when the app has noticed it, and the client has not come back. */
async function lose({ client, sockets }: { client: Socket; sockets: Inbox<ServerSocket> }): Promise<ServerSocket> {
  const socket = sockets.seen.at(-1) as ServerSocket;
  const gone = happens(socket as never, 'disconnect');
  client.io.reconnectionDelay(5_000);
  client.io.reconnectionDelayMax(5_000);
  client.io.engine.close();
  await gone;
  return socket;
}

/** The client comes back. */
async function comeBack({ client, sockets }: { client: Socket; sockets: Inbox<ServerSocket> }): Promise<ServerSocket> {
  const connected = happens(client, 'connect');
  client.connect();
  await connected;
  return sockets.next();
}

/** Events without their offsets, which differ. */
const withoutOffsets = (events: unknown[][]): unknown[][] => events.map((event) => event.slice(0, -1));

const SCENARIOS: Record<string, (stage: Stage) => Promise<unknown>> = {
  'a client gets its socket back, with rooms, data and missed events': async ({ io, join }) => {
    const [one, other] = [await join(), await join()];
    const socket = one.sockets.seen[0] as ServerSocket;
    void socket.join(['a', 'b']);
    void socket.leave('b');
    socket.data = { user: 'ann' };
    socket.emit('first', 1);
    await one.seen.next();
    const id = one.client.id;
    await lose(one);
    io.to('a').emit('in a', Buffer.from([1]), { deep: true });
    io.emit('all');
    io.to('b').emit('in b');
    io.except('a').emit('not in a');
    io.volatile.emit('volatile');
    other.sockets.seen[0]?.to('a').emit('from the other');
    io.to(socket.id).emit('to the socket');
    socket.to('a').emit('from itself');
    const order: unknown[] = [];
    one.client.on('all', () => order.push('missed'));
    one.client.on('connect', () => order.push('connect'));
    const back = await comeBack(one);
    const kept = [back.id === id, back.recovered, one.client.recovered, one.client.id === id, [...back.rooms].map((room) => (room === id ? 'own' : room)).sort(), back.data];
    back.emit('after');
    await eventually(() => one.seen.seen.some(([event]) => event === 'after'), 'the last event');
    return [kept, order, withoutOffsets(one.seen.seen), io.adapter.rooms.get('a')?.size];
  },

  'a client without an event before its loss': async ({ join }) => {
    const one = await join();
    await lose(one);
    const back = await comeBack(one);
    back.emit('after');
    return withoutOffsets([await one.seen.next()]);
  },

  'events with an acknowledgement have no offset': async ({ join }) => {
    const one = await join();
    one.client.on('ask', (...args: unknown[]) => (args.at(-1) as (answer: number) => void)(args.length));
    return (one.sockets.seen[0] as ServerSocket).emitWithAck('ask', 'text');
  },

  'a client that has left does not get its socket back': async ({ io, join }) => {
    const one = await join();
    io.emit('first');
    await one.seen.next();
    const id = one.client.id;
    one.client.disconnect();
    const back = await comeBack(one);
    return [back.recovered, one.client.recovered, back.id === id];
  },

  'a client that the app has disconnected does not get its socket back': async ({ io, join }) => {
    const one = await join();
    io.emit('first');
    await one.seen.next();
    const gone = happens(one.client, 'disconnect');
    (one.sockets.seen[0] as ServerSocket).disconnect();
    await gone;
    const back = await comeBack(one);
    return [back.recovered, one.client.recovered];
  },

  'an unknown secret and an unknown offset begin a new socket': async ({ io, join }) => {
    const results = [];
    for (const auth of [{ pid: 'unknown' }, { offset: 'unknown' }, { offset: 7 }]) {
      const one = await join();
      io.emit('first');
      await one.seen.next();
      await lose(one);
      one.client.auth = auth;
      const back = await comeBack(one);
      results.push([back.recovered, one.client.recovered]);
    }
    return results;
  },

  'middlewares are skipped': async ({ io, join }) => {
    let count = 0;
    io.use((_, next) => {
      count += 1;
      next();
    });
    const one = await join();
    io.emit('first');
    await one.seen.next();
    await lose(one);
    const back = await comeBack(one);
    return [back.recovered, count];
  },
};

async function run(t: TestContext, io: Reference, port: number, options: object, scenario: (stage: Stage) => Promise<unknown>): Promise<unknown> {
  const name = `/${fresh('recovery')}`;
  const namespace = io.of(name);
  const all = new Inbox<ServerSocket>('all sockets');
  namespace.on('connection', (socket) => all.push(socket));
  const join = async (): Promise<Awaited<ReturnType<Stage['join']>>> => {
    const mark = fresh('mark');
    const socket = client(t, port, { ...RECONNECTING, ...options, query: { mark } }, name);
    const [seen, sockets] = [allOf(socket), new Inbox<ServerSocket>('sockets')];
    namespace.on('connection', (made) => {
      if (made.handshake.query['mark'] === mark) sockets.push(made);
    });
    await happens(socket, 'connect');
    await sockets.next();
    return { client: socket, seen, sockets };
  };
  return scenario({ io: namespace, join });
}

const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value)) as unknown;
const RECOVERY = { connectionStateRecovery: {} };

for (const [parser, options] of Object.entries({ 'the default parser': {}, MessagePack: { parser: messagePack } })) {
  describe(`recovery in an application on both packages, with ${parser}`, () => {
    let server: Server;
    let http: HttpServer;
    let reference: Reference;
    let tidewire: Tidewire;
    before(async () => {
      server = await startServer();
      tidewire = new Tidewire({ url: `http://${server.address}`, key: KEY, ...RECOVERY });
      await within(DEADLINE_MS, tidewire.ready, 'the backend is ready');
      http = createServer();
      await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
      reference = new Reference(http, { ...options, ...RECOVERY });
    });
    after(async () => {
      await reference.close();
      await tidewire.close();
      await server.dispose();
    });

    for (const [what, scenario] of Object.entries(SCENARIOS)) {
      test(what, async (t) => {
        const expected = await run(t, reference, (http.address() as { port: number }).port, options, scenario);
        const found = await run(t, tidewire as unknown as Reference, server.port, options, scenario);
        assert.deepEqual(plain(found), plain(expected));
      });
    }
  });
}

/** An app with recovery, and one client that has got an event. */
async function recovering(t: TestContext, server: Server, recovery = {}): Promise<{ io: Tidewire; client: Socket; seen: Inbox<unknown[]>; sockets: Inbox<ServerSocket> }> {
  const io = new Tidewire({ url: `http://${server.address}`, key: KEY, connectionStateRecovery: recovery });
  atEnd(t, () => io.close());
  const sockets = new Inbox<ServerSocket>('sockets');
  io.on('connection', (socket) => sockets.push(socket as unknown as ServerSocket));
  await within(DEADLINE_MS, io.ready, 'the app is ready');
  const one = client(t, server.port, RECONNECTING);
  const seen = allOf(one);
  await happens(one, 'connect');
  await sockets.next();
  return { io, client: one, seen, sockets };
}

test('a client gets its socket back while the server believes its old connection alive', async (t) => {
  const server = await startServer();
  t.after(() => server.dispose());
  const { io, client: one, sockets } = await recovering(t, server);
  const socket = sockets.seen[0] as ServerSocket;
  void socket.join('a');
  const { id, _pid: pid } = one as unknown as { id: string; _pid: string };
  // Another connection with the same secret, as from a client that has changed its network.
  const second = client(t, server.port, { ...RECONNECTING, auth: { pid } });
  const gone = happens(socket as never, 'disconnect');
  one.io.reconnection(false);
  await happens(second, 'connect');
  assert.deepEqual(await gone, ['transport close']);
  assert.equal(second.id, id);
  assert.equal((await sockets.next()).rooms.has('a'), true);
  assert.equal(io.sockets.sockets.size, 1);
});

test('a client gets its socket back after a kill of the server', async (t) => {
  const server = await startServer();
  t.after(() => server.dispose());
  const one = await recovering(t, server);
  const socket = one.sockets.seen[0] as ServerSocket;
  void socket.join('a');
  socket.data = { user: 'ann' };
  one.io.emit('first');
  await one.seen.next();
  const id = one.client.id;
  await server.kill();
  one.io.to('a').emit('while the server was away');
  await server.start();
  const back = await one.sockets.next();
  await eventually(() => one.client.connected, 'the client is back');
  assert.deepEqual([one.client.recovered, one.client.id, back.data, back.rooms.has('a')], [true, id, { user: 'ann' }, true]);
  assert.equal((await one.seen.next())[0], 'while the server was away');
});

test('a client comes back as a new socket after the time, and without the events that it has missed', async (t) => {
  const server = await startServer();
  t.after(() => server.dispose());
  for (const recovery of [{ maxDisconnectionDuration: 1 }, { maxBufferBytes: 1_000 }]) {
    const one = await recovering(t, server, recovery);
    one.io.emit('first');
    await one.seen.next();
    const id = one.client.id;
    await lose(one);
    for (let count = 0; count < 20; count += 1) one.io.emit('missed', count);
    const ended = performance.now();
    await eventually(() => performance.now() > ended + 5, 'the time has passed');
    const back = await comeBack(one);
    assert.deepEqual([back.recovered, one.client.recovered, one.client.id === id], [false, false, false], JSON.stringify(recovery));
    one.client.disconnect();
    await one.io.close();
  }
});

test('a client comes back as a new socket while another app serves its namespace', async (t) => {
  const server = await startServer();
  t.after(() => server.dispose());
  const one = await recovering(t, server);
  one.io.emit('first');
  await one.seen.next();
  const other = new Tidewire({ url: `http://${server.address}`, key: KEY, ...RECOVERY });
  atEnd(t, () => other.handOver());
  await within(DEADLINE_MS, other.ready, 'the other app is ready');
  await lose(one);
  const connected = happens(one.client, 'connect');
  one.client.connect();
  await connected;
  assert.equal(one.client.recovered, false, 'the other app may have sent events that this one does not know');
});

test('middlewares decide about a client that comes back, if the app wants that', async (t) => {
  const server = await startServer();
  t.after(() => server.dispose());
  const one = await recovering(t, server, { skipMiddlewares: false });
  one.io.emit('first');
  await one.seen.next();
  let isOpen = true;
  one.io.use((_, next) => next(isOpen ? undefined : new Error('closed')));
  await lose(one);
  assert.equal((await comeBack(one)).recovered, true);
  one.io.emit('second');
  await eventually(() => one.seen.seen.length === 2, 'the second event');
  await lose(one);
  isOpen = false;
  const refused = happens(one.client, 'connect_error');
  one.client.connect();
  assert.equal(((await refused) as [Error])[0].message, 'closed');
});
