// Apps that hand their sockets over: each socket moves when the app has nothing left to do for it, and no event of its client is lost.

import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { connect } from '@tidewire/server';
import { Server, type Socket } from '@tidewire/socket.io';
import { atEnd } from '../harness/cleanup.ts';
import type { Server as TestServer } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, happens, within } from '../harness/wait.ts';
import { KEY, backend, joined, startServer } from './backends.ts';

type OnSocket = (socket: Socket) => void;
type Answer = (text: string) => void;

/** An app whose sockets answer the event `who` with its name. */
async function app(t: TestContext, server: TestServer, name: string, onSocket: OnSocket = () => undefined): Promise<Server> {
  const io = new Server({ url: `http://${server.address}`, key: KEY });
  atEnd(t, () => io.handOver());
  io.on('connection', (socket) => {
    socket.on('who', (answer: Answer) => answer(name));
    onSocket(socket);
  });
  await within(DEADLINE_MS, io.ready, 'the app is ready');
  return io;
}

async function started(t: TestContext): Promise<TestServer> {
  const server = await startServer();
  t.after(() => server.dispose());
  return server;
}

test('a socket moves when its handlers and the acknowledgements of both sides are done', async (t) => {
  const server = await started(t);
  const [begun, ends] = [new Inbox<string>('begun'), new Map<string, () => void>()];
  const disconnects: string[] = [];
  const first = await app(t, server, 'first', (socket) => {
    socket.on('disconnect', (reason) => disconnects.push(reason));
    const gate = (name: string): Promise<void> =>
      new Promise((done) => {
        ends.set(name, done);
        begun.push(name);
      });
    // A handler that returns a promise.
    socket.on('async', async () => {
      await gate('async');
      socket.emit('progress', 'async');
    });
    // A handler that acknowledges later.
    socket.on('later', (answer: Answer) => void gate('later').then(() => answer('late')));
    // A handler that waits for its client.
    socket.on('confirm', async (answer: Answer) => {
      begun.push('confirm');
      answer(`confirmed: ${await socket.emitWithAck('sure?')}`);
    });
  });
  const [idle, async, later, confirm] = await Promise.all(Array.from({ length: 4 }, () => joined(t, server.port)));
  if (!idle || !async || !later || !confirm) return assert.fail();
  const sure = new Inbox<Answer>('sure?');
  confirm.on('sure?', sure.push);
  const progress = new Inbox<string>('progress');
  async.on('progress', progress.push);
  async.emit('async');
  const [late, confirmed] = [later.emitWithAck('later'), confirm.emitWithAck('confirm')];
  await begun.count(3);
  const second = await app(t, server, 'second');
  const handedOver = first.handOver({ timeoutMs: DEADLINE_MS });
  await eventually(() => second.engine.clientsCount === 1, 'a socket with nothing to do moves at once');
  assert.equal(await idle.emitWithAck('who'), 'second');
  const others = [async, later, confirm].map((socket) => socket.emitWithAck('who'));
  // The answer of the client is behind an event for the other app.
  (await sure.next())('yes');
  assert.equal(await confirmed, 'confirmed: yes');
  for (const end of ends.values()) end();
  assert.deepEqual([await progress.next(), await late], ['async', 'late']);
  assert.deepEqual(await Promise.all(others), ['second', 'second', 'second']);
  await within(DEADLINE_MS, handedOver, 'the app has ended');
  assert.deepEqual([first.engine.clientsCount, second.engine.clientsCount, disconnects.length], [0, 4, 0]);
  assert.equal((await second.fetchSockets()).length, 4);
});

test('a socket whose handler does not end moves after the timeout', async (t) => {
  const server = await started(t);
  const never = new Inbox<null>('never');
  const first = await app(t, server, 'first', (socket) => socket.on('never', (_answer: Answer) => never.push(null)));
  const client = await joined(t, server.port);
  client.emit('never', () => assert.fail('it is not answered'));
  await never.next();
  await app(t, server, 'second');
  const handedOver = first.handOver({ timeoutMs: 50 });
  await eventually(async () => (await client.emitWithAck('who')) === 'second', 'the other app answers');
  await within(DEADLINE_MS, handedOver, 'the app has ended');
});

test('clients that connect or leave during a hand-over find an app or the end', async (t) => {
  const server = await started(t);
  const gates = new Inbox<() => void>('gates');
  const first = new Server({ url: `http://${server.address}`, key: KEY });
  atEnd(t, () => first.handOver());
  first.use((socket, next) => (socket.handshake.auth['waits'] ? gates.push(next) : next()));
  const reasons = new Inbox<string>('reasons');
  const events = new Inbox<string>('events');
  first.on('connection', (socket) => {
    socket.on('who', (answer: Answer) => answer('first'));
    socket.on('held', (_answer: Answer) => events.push('held'));
    socket.on('last', (text: string) => events.push(text));
    socket.on('disconnect', reasons.push);
  });
  await within(DEADLINE_MS, first.ready, 'the app is ready');
  const leaving = await joined(t, server.port);
  leaving.emit('held', () => undefined);
  await events.next();
  const waiting = joined(t, server.port, { auth: { waits: true } });
  const accept = await gates.next();
  const handedOver = first.handOver({ timeoutMs: DEADLINE_MS });
  await app(t, server, 'second');
  const visitor = await joined(t, server.port);
  assert.equal(await visitor.emitWithAck('who'), 'second');
  accept();
  // It opens here, where its first events may arrive, and moves.
  const opened = await waiting;
  await eventually(async () => (await opened.emitWithAck('who')) === 'second', 'the other app answers');
  // The old app gets the last event of a client that leaves: no other app will.
  leaving.emit('last', 'bye');
  leaving.disconnect();
  assert.deepEqual([await events.next(), await reasons.next()], ['bye', 'client namespace disconnect']);
  await within(DEADLINE_MS, handedOver, 'the app has ended');
});

test('a hand-over ends with the connection to the server', async (t) => {
  const server = await started(t);
  const held = new Inbox<null>('held');
  const io = await app(t, server, 'first', (socket) => socket.on('held', (_answer: Answer) => held.push(null)));
  const client = await joined(t, server.port);
  client.emit('held', () => undefined);
  await held.next();
  const handedOver = io.handOver({ timeoutMs: 10 * DEADLINE_MS });
  // The server has answered when the app no longer gets new clients.
  await eventually(() => io.engine.clientsCount === 1, 'one client waits');
  await server.kill();
  await within(DEADLINE_MS, handedOver, 'the app has ended');
});

test('a backend hands over once it serves, and releases sessions after that', async (t) => {
  const server = await started(t);
  const options = { url: `http://${server.address}`, key: KEY };
  const idle = await connect(options);
  atEnd(t, () => idle.close());
  await assert.rejects(idle.handOver(), /hands over once, after SERVE/);
  const [first, inboxes] = await backend(t, server, ['/']);
  const client = await joined(t, server.port);
  const { session } = await inboxes.opened.next();
  first.release(session);
  assert.match((await inboxes.errors.next()).message, /after a HAND_OVER/);
  await within(DEADLINE_MS, first.handOver(), 'the answer');
  await assert.rejects(first.handOver(), /hands over once/);
  const [, next] = await backend(t, server, ['/'], false);
  const handedOver = happens(first, 'handedOver');
  first.handOverSession(session);
  assert.deepEqual(await handedOver, [session]);
  client.emit('event', 1);
  first.release(session);
  const opened = await next.opened.next();
  assert.deepEqual([opened.id, (await next.events.next()).data], ['id-1', '["event",1]']);
});
