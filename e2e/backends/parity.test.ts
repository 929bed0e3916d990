// One application on the npm package `socket.io` and on `@tidewire/socket.io`: its clients, the unmodified `socket.io-client`, see the same.

import assert from 'node:assert/strict';
import { createServer, type Server as HttpServer } from 'node:http';
import { after, before, describe, test, type TestContext } from 'node:test';
import { Server as Tidewire } from '@tidewire/socket.io';
import { Server as Reference, type Namespace, type Socket as ServerSocket } from 'socket.io';
import type { Socket } from 'socket.io-client';
import * as messagePack from 'socket.io-msgpack-parser';
import { fresh } from '../harness/names.ts';
import type { Server } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, happens, within } from '../harness/wait.ts';
import { KEY, allOf, client, joined, startServer } from './backends.ts';

/** An app on one of the packages, with the types of the reference. */
interface App {
  io: Reference;
  port: number;
  /** The options of its clients. */
  options?: object;
}

/** The parts of a scenario: a namespace of the app, and its clients. */
interface Stage {
  t: TestContext;
  app: App;
  io: Namespace;
  name: string;
  join(options?: object): Promise<Socket>;
}

type Scenario = (stage: Stage) => Promise<unknown>;

/** A list of what happens, in the order of each participant. */
const logs = (): { log: unknown[]; note: (...words: unknown[]) => void } => {
  const log: unknown[] = [];
  return { log, note: (...words) => void log.push(words) };
};

/** Waits until a socket has handled all events that were sent to it before. */
async function settled(io: Namespace, ...sockets: Socket[]): Promise<void> {
  for (const socket of sockets) {
    const mark = fresh('mark');
    const reached = happens(socket, mark);
    io.to(socket.id ?? '').emit(mark);
    await reached;
  }
}

const SCENARIOS: Record<string, Scenario> = {
  'events and acknowledgements in both directions': async ({ io, join }) => {
    const { log, note } = logs();
    io.on('connection', (socket) => {
      socket.on('echo', (...args: unknown[]) => socket.emit('echoed', ...args));
      socket.on('ask', (text: string, ack: (...args: unknown[]) => void) => ack(text.toUpperCase(), Buffer.from('b'), null));
      socket.on('twice', (ack: (answer: number) => void) => [1, 2].forEach(ack));
      socket.once('once', () => socket.emit('got once'));
      socket.on('question', async () => note('answer', await socket.emitWithAck('really', { why: [1] })));
      socket.on('slow', () => socket.timeout(50).emit('silence', (error: Error | null) => note('timeout', error?.message)));
      socket.emit('welcome', socket.id.length, socket.connected, socket.handshake.auth);
    });
    const socket = client2(await join({ auth: { a: 1 } }));
    await socket.seen.next();
    socket.emit('echo', 'été', 5.5, null, undefined, { list: [true, Buffer.from([1, 2])] }, new Date(0));
    await socket.seen.next();
    const ack = new Inbox<unknown[]>('acks');
    socket.emit('ask', 'x', (...args: unknown[]) => ack.push(args));
    note(await ack.next());
    note(await socket.emitWithAck('twice'));
    socket.emit('once');
    socket.emit('once');
    socket.on('really', (value: unknown, answer: (value: unknown) => void) => answer(['yes', value]));
    socket.emit('question');
    socket.emit('slow');
    socket.emit('unknown', 1);
    await eventually(() => log.some((entry) => (entry as unknown[])[0] === 'timeout'), 'the timeout');
    await settled(io, socket.raw);
    return [log, socket.seen.seen.filter(([event]) => !String(event).startsWith('mark'))];
  },

  'rooms and broadcasts': async ({ io, join }) => {
    const servers: ServerSocket[] = [];
    io.on('connection', (socket) => servers.push(socket));
    const sockets = [await join(), await join(), await join(), await join()];
    const seen = sockets.map(allOf);
    const [a, b, c] = servers as [ServerSocket, ServerSocket, ServerSocket];
    const sizes: unknown[] = [];
    const size = (room: string): void => void sizes.push([room, io.adapter.rooms.get(room)?.size]);
    void a.join('x');
    void a.join(['y', 'z']);
    void b.join('x');
    void c.join('y');
    for (const room of ['x', 'y', 'z', 'none', b.id === '' ? '' : 'x']) size(room);
    io.emit('all', 1);
    io.to('x').emit('to x');
    io.to(['x', 'y']).emit('to x and y');
    io.in('x').except('z').emit('x but not z');
    io.except('x').emit('not x');
    a.to('x').emit('x from a');
    a.to('x').to('y').emit('x and y from a', Buffer.from([7]));
    a.broadcast.emit('broadcast of a');
    a.broadcast.to('x').except('y').emit('narrow');
    b.except('y').emit('b but not y');
    io.to(c.id).emit('to c');
    a.to(a.id).emit('nobody');
    a.compress(false).emit('uncompressed');
    io.local.emit('local');
    io.send('sent', 2);
    a.send('mine');
    a.emit('message', ['list']);
    io.to('x').emit('message', { alone: true });
    void b.leave('x');
    size('x');
    io.to('x').emit('to x again');
    io.socketsJoin('everybody');
    io.in('y').socketsLeave('everybody');
    io.to('everybody').emit('joined');
    await settled(io, ...sockets);
    const rooms = servers.map(({ rooms, id }) => [...rooms].map((room) => (room === id ? 'own' : room)));
    return [seen.map((inbox) => inbox.seen.filter(([event]) => !String(event).startsWith('mark'))), sizes, rooms];
  },

  'an emit after a join reaches the joiner, and one before its end does': async ({ io, join }) => {
    io.on('connection', (socket) => {
      void socket.join('room');
      io.to('room').emit('after join');
      socket.on('end', () => {
        socket.emit('bye');
        io.emit('bye all');
        socket.disconnect();
        socket.emit('too late');
        io.emit('after the end');
      });
    });
    const [one, two] = [client2(await join()), client2(await join())];
    const gone = happens(one.raw, 'disconnect');
    one.emit('end');
    const [reason] = await gone;
    await two.seen.find(([event]) => event === 'after the end');
    return [reason, one.seen.seen, two.seen.seen];
  },

  'middlewares': async ({ t, app, io, name, join }) => {
    const { log, note } = logs();
    io.use((socket, next) => {
      note('first', socket.handshake.auth, socket.connected, socket.rooms.size);
      socket.data.user = 'ann';
      setTimeout(next, 5);
    });
    io.use((socket, next) => {
      const error: Error & { data?: unknown } = new Error('not you');
      error.data = { code: 7 };
      next(socket.handshake.auth['bad'] === true ? error : undefined);
    });
    io.on('connection', (socket) => {
      socket.use(([event, ...args], next) => {
        note('event', event, args);
        next(event === 'forbidden' ? new Error('no') : undefined);
      });
      socket.on('error', (error: Error) => note('error', error.message));
      socket.onAny((event: string) => note('any', event));
      socket.on('fine', () => socket.emit('user', socket.data.user));
    });
    const refused = client(t, app.port, { ...app.options, auth: { bad: true } }, name);
    const [error] = (await happens(refused, 'connect_error')) as [Error & { data: unknown }];
    note(error.message, error.data, refused.connected);
    const socket = await join({ auth: { bad: false } });
    const user = happens(socket, 'user');
    socket.emit('forbidden', 1);
    await eventually(() => log.some((entry) => (entry as unknown[])[0] === 'error'), 'the error');
    socket.emit('fine', 2);
    note(await user);
    return log;
  },

  'the end of a session': async ({ io, join }) => {
    const { log, note } = logs();
    const ended = new Inbox<string>('ends');
    io.on('connection', (socket) => {
      void socket.join('room');
      const name = String(socket.handshake.auth['name']);
      socket.on('disconnecting', (reason) => note(name, 'disconnecting', reason, socket.rooms.has('room'), socket.connected));
      socket.on('disconnect', (reason) => {
        note(name, 'disconnect', reason, socket.rooms.size, socket.connected, io.sockets.has(socket.id));
        ended.push(name);
      });
      socket.on('end', (close: boolean) => void socket.disconnect(close));
    });
    const left = await join({ auth: { name: 'left' } });
    left.disconnect();
    await ended.next();
    const lost = await join({ auth: { name: 'lost' } });
    lost.io.engine.close();
    await ended.next();
    for (const close of [false, true]) {
      const socket = await join({ auth: { name: `ended ${close}` } });
      const gone = happens(socket, 'disconnect');
      socket.emit('end', close);
      await ended.next();
      note((await gone)[0]);
    }
    const many = [await join({ auth: { name: 'many' } }), await join({ auth: { name: 'many' } })];
    const gone = many.map((socket) => happens(socket, 'disconnect'));
    io.disconnectSockets();
    note((await Promise.all(gone)).map(([reason]) => reason));
    return log;
  },

  'what the server knows of its sockets': async ({ io, app, join }) => {
    const servers: ServerSocket[] = [];
    io.on('connection', (socket) => servers.push(socket));
    const before = app.io.engine.clientsCount;
    const sockets = [await join({ query: { a: '1' }, extraHeaders: { 'x-mine': 'yes' } }), await join()];
    const [one, two] = servers as [ServerSocket, ServerSocket];
    one.data.name = 'ann';
    void two.join('room');
    const fetched = await io.fetchSockets();
    const inRoom = await io.in('room').fetchSockets();
    const { handshake } = one;
    const known = [
      sockets.map(({ id }) => id === one.id || id === two.id),
      app.io.engine.clientsCount - before,
      io.sockets.size,
      io.sockets.get(one.id) === one,
      [...(await io.allSockets())].sort().join() === [one.id, two.id].sort().join(),
      fetched.map(({ id, data, rooms }) => [id === one.id, data, rooms.size]),
      inRoom.map(({ id }) => id === two.id),
      [handshake.query['a'], handshake.headers['x-mine'], handshake.secure, handshake.xdomain, typeof handshake.time, typeof handshake.issued, handshake.url.startsWith('/socket.io/?'), handshake.address.replace('::ffff:', '')],
      one.nsp === io,
      one.disconnected,
      one.recovered,
      io.adapter.sids.get(two.id)?.size,
    ];
    inRoom[0]?.emit('hello');
    await happens(sockets[1] as Socket, 'hello');
    const gone = happens(sockets[0] as Socket, 'disconnect');
    fetched[0]?.disconnect();
    await gone;
    await eventually(() => io.sockets.size === 1, 'one socket');
    return known;
  },

  'namespaces': async ({ t, app }) => {
    const { log, note } = logs();
    const prefix = `/${fresh('dynamic')}`;
    const parent = app.io.of(new RegExp(`^${prefix}-\\d+$`));
    const onNamespace = ({ name }: Namespace): void => {
      if (name.startsWith(prefix)) note('new', name.replace(prefix, ''));
    };
    app.io.on('new_namespace', onNamespace);
    t.after(() => app.io.off('new_namespace', onNamespace));
    app.io.of(`${prefix}-static`);
    parent.use((socket, next) => {
      note('use', socket.nsp.name.replace(prefix, ''));
      next();
    });
    parent.on('connection', (socket) => {
      note('connection', socket.nsp.name.replace(prefix, ''));
      socket.on('all', () => socket.nsp.emit('to all of', socket.nsp.name.replace(prefix, '')));
    });
    const one = await joined(t, app.port, { ...app.options }, `${prefix}-1`);
    const second = one.io.socket(`${prefix}-22`);
    if (!second.active) second.connect();
    await happens(second, 'connect');
    const [first, other] = [allOf(one), allOf(second)];
    second.emit('all');
    await other.next();
    one.emit('all');
    await first.next();
    note(first.seen, other.seen);
    const wrong = client(t, app.port, { ...app.options }, `${prefix}-x`);
    const [error] = (await happens(wrong, 'connect_error')) as [Error];
    note(error.message);
    return log;
  },

  'acknowledgements of broadcasts': async ({ io, join }) => {
    const servers: ServerSocket[] = [];
    io.on('connection', (socket) => servers.push(socket));
    const sockets = [await join(), await join(), await join(), await join()];
    for (const [index, socket] of sockets.entries()) {
      socket.on('name', (prefix: string, ack: (...answers: unknown[]) => void) => ack(`${prefix}${index}`, 'dropped'));
      socket.on('bytes', (bytes: Buffer, ack: (answer: unknown) => void) => ack({ index, bytes: Buffer.concat([bytes, Buffer.from([index])]) }));
      socket.on('empty', (ack: () => void) => ack());
      socket.on('message', (value: unknown, ack: (answer: unknown) => void) => ack([value]));
    }
    const [a, b] = servers as [ServerSocket, ServerSocket];
    void a.join(['x', 'y']);
    void b.join('x');
    const sorted = (responses: unknown[]): unknown[] => responses.map((response) => JSON.stringify(response) ?? 'undefined').sort();
    const answers = new Inbox<unknown[]>('answers of broadcasts');
    const returned = io.timeout(5_000).emit('name', 'n', (error: Error | null, responses: unknown[]) => answers.push([error, sorted(responses)]));
    return [
      returned,
      await answers.next(),
      sorted(await io.timeout(5_000).to('x').emitWithAck('name', 'x')),
      sorted(await io.to('x').to('y').except('y').timeout(5_000).emitWithAck('name', 'x and not y')),
      sorted(await a.timeout(5_000).to('x').emitWithAck('name', 'from a')),
      sorted(await a.broadcast.timeout(5_000).emitWithAck('name', 'not a')),
      sorted(await io.in(['x', 'y']).timeout(5_000).emitWithAck('bytes', Buffer.from([9]))),
      sorted(await io.timeout(5_000).emitWithAck('empty')),
      sorted(await io.timeout(5_000).emitWithAck('message', 1)),
      await io.timeout(5_000).to('none').emitWithAck('name', 'no member'),
    ];
  },

  'acknowledgements of broadcasts that do not all arrive in time': async ({ io, join }) => {
    const sockets = [await join(), await join(), await join()];
    const seen = new Inbox<number>('asked');
    const late: Array<() => void> = [];
    for (const [index, socket] of sockets.entries()) {
      socket.on('who', (ack: (answer: number) => void) => {
        if (index === 0) ack(0);
        else if (index === 1) late.push(() => ack(1));
        else socket.disconnect();
        seen.push(index);
      });
    }
    const calls: unknown[] = [];
    const called = new Promise<void>((resolve) => {
      io.timeout(400).emit('who', (error: Error | null, responses: unknown[]) => {
        calls.push([error?.message, responses]);
        resolve();
      });
    });
    await called;
    // The answer of the second one is late, and the next question has nothing to do with it.
    for (const answer of late) answer();
    const rejected = await io.timeout(400).emitWithAck('who').then(
      () => 'answered',
      ({ message, responses }: Error & { responses: unknown }) => [message, responses],
    );
    const answer = new Promise((resolve) => io.timeout(5_000).to(sockets[0]?.id ?? '').emit('who', (...args: unknown[]) => resolve(args)));
    return [calls, rejected, await answer, seen.seen.sort()];
  },

  'a middleware that joins a room and then refuses': async ({ t, app, io, name, join }) => {
    const { log, note } = logs();
    io.use((socket, next) => {
      void socket.join('early');
      next(socket.handshake.auth['bad'] === true ? new Error('refused') : undefined);
    });
    io.on('connection', (socket) => note('connection', socket.rooms.has('early')));
    const refused = client(t, app.port, { ...app.options, auth: { bad: true } }, name);
    note(((await happens(refused, 'connect_error')) as [Error])[0].message);
    note('rooms', [...io.adapter.rooms.keys()].length, io.sockets.size);
    const socket = await join({ auth: {} });
    const seen = allOf(socket);
    io.to('early').emit('to early');
    await settled(io, socket);
    note(seen.seen.filter(([event]) => !String(event).startsWith('mark')));
    return log;
  },

  'nothing happens to a socket after its end': async ({ io, join }) => {
    const { log, note } = logs();
    const ended = new Inbox<ServerSocket>('ends');
    io.on('connection', (socket) => {
      socket.on('first', () => {
        note('first');
        socket.disconnect();
        void socket.join('late');
      });
      socket.on('second', () => note('second'));
      socket.on('disconnect', () => ended.push(socket));
    });
    const socket = await join();
    const gone = happens(socket, 'disconnect');
    socket.emit('first');
    socket.emit('second');
    note((await gone)[0]);
    const server = await ended.next();
    void server.join('later');
    // A later client shows that all earlier messages were handled.
    const other = await join();
    await settled(io, other);
    note(server.rooms.size, io.adapter.rooms.has('late'), io.adapter.rooms.has('later'), io.adapter.sids.has(server.id));
    return log;
  },

  'events of rooms': async ({ io, join }) => {
    const { log, note } = logs();
    const servers: ServerSocket[] = [];
    io.on('connection', (socket) => servers.push(socket));
    const ids = (id: string): number => servers.findIndex((socket) => socket.id === id);
    const clients = [await join(), await join()];
    for (const event of ['create-room', 'join-room', 'leave-room', 'delete-room']) {
      io.adapter.on(event, (room: string, id?: string) => note(event, ids(room) < 0 ? room : 'own', id === undefined ? undefined : ids(id)));
    }
    const [one, two] = servers as [ServerSocket, ServerSocket];
    void one.join('x');
    void two.join('x');
    void two.join('x');
    void one.leave('x');
    void one.leave('none');
    io.socketsLeave('x');
    void two.join('y');
    clients[1]?.disconnect();
    await eventually(() => io.sockets.size === 1, 'one socket');
    return log;
  },

  'catch-all listeners, and methods with a second name': async ({ io, join }) => {
    const { log, note } = logs();
    const servers: ServerSocket[] = [];
    io.on('connection', (socket) => servers.push(socket));
    const client = await join();
    const seen = allOf(client);
    const socket = servers[0] as ServerSocket;
    const names = ['first', 'second', 'outgoing', 'earlier'];
    const listeners = names.map((name) => (event: string) => note(name, event));
    const [first, second, outgoing, earlier] = listeners as [() => void, () => void, () => void, () => void];
    socket.onAny(first).prependAny(second).onAnyOutgoing(outgoing).prependAnyOutgoing(earlier);
    const known = (all: unknown[]): unknown => all.map((listener) => names[listeners.indexOf(listener as never)]);
    note(known(socket.listenersAny()), known(socket.listenersAnyOutgoing()));
    const heard = new Inbox<void>('events of the client');
    socket.on('said', () => heard.push());
    client.emit('said');
    await heard.next();
    socket.emit('out');
    socket.offAny(first).offAnyOutgoing(earlier);
    client.emit('said');
    await heard.count(2);
    socket.emit('out');
    socket.offAny().offAnyOutgoing();
    note(socket.listenersAny().length, socket.listenersAnyOutgoing().length, socket.listeners('said').length, io.listeners('connection').length);
    socket.write('written');
    socket.in(socket.id).emit('not to itself');
    socket.local.emit('to no other');
    io.write('to all');
    // A volatile event may be lost behind another one.
    await settled(io, client);
    socket.volatile.emit('volatile');
    await settled(io, client);
    io.volatile.emit('volatile to all');
    await settled(io, client);
    io.to(socket.id).compress(true).volatile.local.emit('all flags');
    await settled(io, client);
    note((await io.in(socket.id).allSockets()).size, socket.request.url?.startsWith('/socket.io/?'), socket.request.method, typeof socket.request.headers.host);
    io.once('connection', () => note('once'));
    await join();
    await join();
    await settled(io, client);
    return [log, seen.seen.filter(([event]) => !String(event).startsWith('mark'))];
  },

  'the namespace / through the server': async ({ t, app }) => {
    const { io, port, options } = app;
    const sockets = new Inbox<ServerSocket>('sockets');
    io.once('connection', sockets.push);
    const client = await joined(t, port, { ...options });
    const seen = allOf(client);
    const { id } = await sockets.next();
    client.on('ask', (answer: (value: number) => void) => answer(7));
    io.socketsJoin('x');
    io.emit('emit');
    io.send('send');
    io.write('write');
    io.to('x').emit('to');
    io.in('x').emit('in');
    io.except('x').emit('except');
    const compressed = happens(client, 'compress');
    io.compress(true).emit('compress');
    await compressed;
    // A volatile event may be lost behind another one.
    const arrived = happens(client, 'volatile');
    io.volatile.emit('volatile');
    await arrived;
    io.local.emit('local');
    io.socketsLeave('x');
    io.to('x').emit('left');
    const answers = await io.timeout(DEADLINE_MS).emitWithAck('ask');
    const known = [(await io.fetchSockets()).map((socket) => socket.id === id), (await io.allSockets()).has(id), io.sockets.sockets.has(id), io.of('/') === io.sockets, io.sockets.server === io, io.path(), io.listeners('error').length];
    const gone = happens(client, 'disconnect');
    io.in(id).disconnectSockets();
    return [seen.seen, answers, known, (await gone)[0]];
  },

  'names that are reserved': async ({ io, join }) => {
    let error: unknown;
    io.on('connection', (socket) => {
      try {
        socket.emit('disconnect');
      } catch (thrown) {
        error = (thrown as Error).message;
      }
      socket.emit('done');
    });
    const socket = client2(await join());
    await socket.seen.next();
    return error;
  },
};

/** A client with the events that it has got, from its first one on. */
function client2(socket: Socket): { raw: Socket; seen: Inbox<unknown[]>; emit: Socket['emit']; emitWithAck: Socket['emitWithAck']; on: Socket['on'] } {
  const seen = SEEN.get(socket) ?? allOf(socket);
  return { raw: socket, seen, emit: socket.emit.bind(socket), emitWithAck: socket.emitWithAck.bind(socket), on: socket.on.bind(socket) };
}

const SEEN = new WeakMap<Socket, Inbox<unknown[]>>();

async function run(t: TestContext, app: App, scenario: Scenario): Promise<unknown> {
  const name = `/${fresh('parity')}`;
  const join = async (options: object = {}): Promise<Socket> => {
    const socket = client(t, app.port, { ...app.options, ...options }, name);
    SEEN.set(socket, allOf(socket));
    await happens(socket, 'connect');
    return socket;
  };
  return scenario({ t, app, io: app.io.of(name), name, join });
}

/** Values without `undefined` and with bytes as texts, as JSON has them. */
const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value)) as unknown;

/** The parsers that clients may have. */
const PARSERS: Record<string, { parser?: typeof messagePack }> = { 'the default parser': {}, MessagePack: { parser: messagePack } };

for (const [parser, options] of Object.entries(PARSERS)) {
  describe(`an application on both packages, with ${parser}`, () => {
    let server: Server;
    let http: HttpServer;
    let apps: { reference: App; tidewire: App };
    before(async () => {
      server = await startServer();
      const io = new Tidewire({ url: `http://${server.address}`, key: KEY });
      await within(DEADLINE_MS, io.ready, 'the backend is ready');
      http = createServer();
      await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
      apps = {
        reference: { io: new Reference(http, options), port: (http.address() as { port: number }).port, options },
        tidewire: { io: io as unknown as Reference, port: server.port, options },
      };
    });
    after(async () => {
      await apps.reference.io.close();
      await apps.tidewire.io.close();
      await server.dispose();
    });

    for (const [what, scenario] of Object.entries(SCENARIOS)) {
      test(what, async (t) => {
        const expected = await run(t, apps.reference, scenario);
        const found = await run(t, apps.tidewire, scenario);
        assert.deepEqual(plain(found), plain(expected));
      });
    }
  });
}
