// Unmodified clients of Socket.IO in Python and Java: connections, rooms, acknowledgements, binary values, and what survives a kill.

import assert from 'node:assert/strict';
import { after, before, describe, test, type TestContext } from 'node:test';
import { Server as Tidewire, type Socket } from '@tidewire/socket.io';
import { App } from '../apps.ts';
import { KEY, TRANSPORTS, joined, startServer } from '../backends.ts';
import { atEnd } from '../../harness/cleanup.ts';
import type { Server } from '../../harness/server.ts';
import { DEADLINE_MS, Inbox, happens, within } from '../../harness/wait.ts';
import { Driven, LANGUAGES } from './driven.ts';

const BYTES = Buffer.from([0, 1, 2, 255]);
const CODED = { bytes: BYTES.toString('base64') };

interface Serving {
  io: Tidewire;
  sockets: Inbox<Socket>;
}

/** An app that accepts the token `right`. */
async function app(t: TestContext, server: Server, options: object = {}): Promise<Serving> {
  const io = new Tidewire({ url: `http://${server.address}`, key: KEY, ...options });
  atEnd(t, () => io.close());
  const sockets = new Inbox<Socket>('sockets');
  io.use((socket, next) => next(socket.handshake.auth['token'] === 'right' ? undefined : Object.assign(new Error('no entry'), { data: { code: 7 } })));
  io.on('connection', (socket) => {
    socket.on('add', (a: number, b: number, done: (sum: number) => void) => done(a + b));
    socket.on('bytes', (bytes: Buffer, done: (bytes: Buffer) => void) => done(Buffer.concat([bytes, bytes])));
    socket.on('join', (room: string, done: (joined: boolean) => void) => (void socket.join(room), done(true)));
    socket.on('shout', (room: string, ...values: unknown[]) => socket.to(room).emit('shouted', ...values));
    sockets.push(socket);
  });
  await within(DEADLINE_MS, io.ready, 'the app is ready');
  return { io, sockets };
}

for (const language of LANGUAGES) {
  describe(language.name, () => {
    let server: Server;
    before(async () => {
      server = await startServer();
    });
    after(() => server.dispose());

    for (const transports of TRANSPORTS) {
      test(`connects with ${transports.join(' and ')}, and has rooms, acknowledgements and bytes in both directions`, async (t) => {
        const { io, sockets } = await app(t, server);
        const client = await Driven.start(t, language);
        client.connect(server.port, transports, { token: 'right' });
        const socket = await sockets.next();
        assert.equal((await client.next('connect')).id, socket.id);
        assert.deepEqual(await client.ask('add', 2, 3), 5);
        assert.deepEqual(await client.ask('bytes', CODED), { bytes: Buffer.concat([BYTES, BYTES]).toString('base64') });
        assert.deepEqual(await within(DEADLINE_MS, socket.emitWithAck('echo', 'ünï 🎉', BYTES), 'the acknowledgement'), 'ünï 🎉');
        assert.equal(await client.ask('join', 'kitchen'), true);
        const other = await joined(t, server.port, { auth: { token: 'right' } });
        await other.emitWithAck('join', 'kitchen');
        other.emit('shout', 'kitchen', 'to all', BYTES);
        const heard = await client.next('event');
        assert.deepEqual([heard.name, heard.values], ['shouted', ['to all', CODED]]);
        const shouted = happens(other, 'shouted');
        client.emit('shout', 'kitchen', 'from it', CODED);
        assert.deepEqual(await shouted, ['from it', BYTES]);
        io.disconnectSockets(true);
        await client.next('disconnect');
      });
    }

    test('gets the reason of a refusal', async (t) => {
      await app(t, server);
      const client = await Driven.start(t, language);
      client.connect(server.port, ['websocket'], { token: 'wrong' });
      assert.deepEqual((await client.next('refused')).data, { message: 'no entry', data: { code: 7 } });
    });

    test('keeps its connection while an app is killed, and reaches the next one', async (t) => {
      const first = new App(t, server);
      await first.ready();
      const client = await Driven.start(t, language);
      client.connect(server.port, ['websocket'], { name: 'one' });
      await client.next('connect');
      assert.equal(await client.ask('say', 2), 2);
      await first.kill();
      const second = new App(t, server);
      await second.ready();
      assert.equal(await client.ask('say', 4), 4);
      assert.deepEqual(client.said.seen.filter(({ on }) => on === 'disconnect'), []);
      await second.stop();
    });

    test('comes back with a new socket after a kill of the server, also with connectionStateRecovery', async (t) => {
      const own = await startServer();
      t.after(() => own.dispose());
      const { sockets } = await app(t, own, { connectionStateRecovery: {} });
      const client = await Driven.start(t, language);
      client.connect(own.port, ['websocket'], { token: 'right' });
      const before = (await client.next('connect')).id;
      const socket = await sockets.next();
      // The offset that a client with recovery would store is one more argument for this one.
      socket.emit('news', 1);
      const { name, values = [] } = await client.next('event');
      assert.deepEqual([name, values[0], values.length, typeof values[1]], ['news', 1, 2, 'string']);
      await own.kill();
      await client.next('disconnect');
      await own.start();
      const again = (await client.next('connect')).id;
      assert.notEqual(again, before);
      const next = await sockets.next();
      assert.deepEqual([next.id, next.recovered], [again, false]);
      assert.deepEqual(await client.ask('add', 20, 3), 23);
    });
  });
}
