// One application in two processes, on `socket.io` with an adapter for clusters and on `@tidewire/socket.io`: apps and clients see the same.

import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { createServer } from 'node:http';
import { after, before, describe, test, type TestContext } from 'node:test';
import { Server as Tidewire } from '@tidewire/socket.io';
import { Server as Reference, type Namespace } from 'socket.io';
import { ClusterAdapterWithHeartbeat, type ClusterAdapterOptions } from 'socket.io-adapter';
import type { Socket } from 'socket.io-client';
import { fresh } from '../harness/names.ts';
import type { Server } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, happens, within } from '../harness/wait.ts';
import { KEY, allOf, joined, startServer } from './backends.ts';

/** Two apps, with the types of the reference, and the ports of their clients. */
interface Apps {
  ios: [Reference, Reference];
  ports: [number, number];
}

interface Stage {
  /** The same namespace in both apps. */
  one: Namespace;
  two: Namespace;
  /** Clients with the names `0` and so on. Each app has some. */
  clients: Socket[];
}

type Message = Parameters<ClusterAdapterWithHeartbeat['onMessage']>[0];

/** An adapter for apps in one process. */
class BusAdapter extends ClusterAdapterWithHeartbeat {
  readonly #bus: EventEmitter;

  constructor(namespace: unknown, bus: EventEmitter, options: ClusterAdapterOptions) {
    super(namespace as never, options);
    this.#bus = bus;
    bus.on('message', (message: Message) => this.onMessage(message));
  }

  protected override doPublish(message: Message): Promise<string> {
    this.#bus.emit('message', message);
    return Promise.resolve('');
  }

  protected override doPublishResponse(_: string, response: unknown): Promise<void> {
    this.#bus.emit('message', response);
    return Promise.resolve();
  }
}

const nameOf = ({ handshake }: { handshake: { auth: Record<string, unknown> } }): string => String(handshake.auth['name']);
const namesIn = async (io: Namespace, room: string): Promise<string> => (await io.in(room).fetchSockets()).map(nameOf).sort().join();

const SCENARIOS: Record<string, (stage: Stage) => Promise<unknown>> = {
  'the sockets of both': async ({ one, two }) => {
    const known = [];
    for (const io of [one, two]) {
      const sockets = await io.fetchSockets();
      known.push(sockets.map(({ id, data, rooms, handshake }) => [nameOf({ handshake }), data, [...rooms].map((room) => (room === id ? 'own' : room)).sort(), handshake.query['x'], handshake.headers['x-mine']]).sort());
      known.push(await namesIn(io, 'even'), (await io.except('even').fetchSockets()).map(nameOf).sort());
      known.push((await io.in('none').fetchSockets()).length);
    }
    return known;
  },

  'rooms of the sockets of both': async ({ one, two, clients }) => {
    one.socketsJoin('all');
    two.in('even').except('third').socketsJoin(['x', 'y']);
    const found = [];
    for (const io of [one, two]) {
      await eventually(async () => (await namesIn(io, 'all')) === '0,1,2,3,4,5', 'all have joined');
      await eventually(async () => (await namesIn(io, 'y')) === '2,4', 'some have joined');
      found.push(await namesIn(io, 'x'));
    }
    const seen = clients.map(allOf);
    one.to('y').emit('to y');
    one.emit('last');
    await Promise.all(seen.map((inbox) => inbox.find(([event]) => event === 'last')));
    two.socketsLeave('all');
    one.in('x').socketsLeave('x');
    for (const io of [one, two]) await eventually(async () => (await namesIn(io, 'all')) + (await namesIn(io, 'x')) === '', 'all have left');
    return [found, seen.map((inbox) => inbox.seen)];
  },

  'each of the fetched sockets': async ({ one, two, clients }) => {
    const seen = clients.map(allOf);
    for (const [index, client] of clients.entries()) client.on('ask', (ack: (answer: number) => void) => ack(index));
    const sockets = (await one.fetchSockets()).sort((a, b) => nameOf(a).localeCompare(nameOf(b)));
    const answers = new Inbox<unknown[]>('answers');
    for (const socket of sockets) {
      socket.emit('hello', nameOf(socket));
      socket.join('joined');
      await eventually(async () => (await two.in('joined').fetchSockets()).some(({ id }) => id === socket.id), 'the socket has joined');
      socket.leave('joined');
      await eventually(async () => (await two.in('joined').fetchSockets()).length === 0, 'the socket has left');
      socket.timeout(DEADLINE_MS).emit('ask', (error: Error | null, answer: unknown) => answers.push([error, answer]));
      await answers.count(answers.seen.length + 1);
    }
    const gone = clients.slice(0, 2).map((client) => happens(client, 'disconnect'));
    sockets[0]?.disconnect();
    sockets[1]?.disconnect(true);
    const reasons = (await Promise.all(gone)).map(([reason]) => reason);
    await eventually(async () => (await two.fetchSockets()).length === 4, 'two are gone');
    return [reasons, answers.seen, seen.map((inbox) => inbox.seen)];
  },

  'the end of the sockets of both': async ({ one, two, clients }) => {
    const some = [0, 2, 4].map((index) => clients[index] as Socket);
    const gone = some.map((client) => happens(client, 'disconnect'));
    one.in('even').disconnectSockets();
    const reasons = (await Promise.all(gone)).map(([reason]) => reason);
    await eventually(async () => (await two.fetchSockets()).length === 3, 'three are gone');
    const others = [1, 3, 5].map((index) => happens(clients[index] as Socket, 'disconnect'));
    two.disconnectSockets(true);
    return [reasons, (await Promise.all(others)).map(([reason]) => reason)];
  },

  'acknowledgements of all clients': async ({ one, clients }) => {
    for (const [index, client] of clients.entries()) client.on('ask', (ack: (answer: number) => void) => ack(index));
    clients[3]?.off('ask');
    const answers = (await one.except('third').timeout(DEADLINE_MS).to('even').emitWithAck('ask')).sort();
    const failed = one.timeout(300).emitWithAck('ask').catch(({ message, responses }: Error & { responses: number[] }) => [message, responses.sort()]);
    return [answers, await failed];
  },

  'events between apps': async ({ one, two }) => {
    const got = new Inbox<unknown[]>('events of the other app');
    const own = new Inbox<unknown[]>('own events');
    const on = (io: Namespace, event: string, listener: (...args: never[]) => void): void => void (io as unknown as EventEmitter).on(event, listener as () => void);
    on(one, 'said', (...args: unknown[]) => own.push(args));
    on(two, 'said', (...args: unknown[]) => got.push(args));
    on(two, 'ask', (text: string, ack: (...answers: unknown[]) => void) => {
      ack(text.toUpperCase(), 'dropped');
      ack('twice');
    });
    on(two, 'unanswered', () => undefined);
    const returned = one.serverSideEmit('said', 'été', 1, { list: [null] });
    await got.next();
    const acks = new Inbox<unknown[]>('acks');
    one.serverSideEmit('ask', 'a', (error: Error | null, responses: unknown[]) => acks.push([error, responses]));
    await acks.next();
    const later = one.serverSideEmitWithAck('unanswered').catch(({ message, responses }: Error & { responses: unknown[] }) => [message, responses]);
    let reserved: unknown;
    try {
      one.serverSideEmit('connection');
    } catch (error) {
      reserved = (error as Error).message;
    }
    return [returned, got.seen, acks.seen, await one.serverSideEmitWithAck('ask', 'b'), await later, own.seen, reserved];
  },
};

async function run(t: TestContext, { ios, ports }: Apps, scenario: (stage: Stage) => Promise<unknown>): Promise<unknown> {
  const name = `/${fresh('several')}`;
  const [one, two] = ios.map((io) => io.of(name)) as [Namespace, Namespace];
  for (const io of [one, two]) {
    io.on('connection', (socket) => {
      const number = Number(socket.handshake.auth['name']);
      socket.data = { number };
      if (number % 2 === 0) void socket.join('even');
      if (number % 3 === 0) void socket.join('third');
    });
  }
  const clients: Socket[] = [];
  for (let number = 0; number < 6; number += 1) {
    const options = { auth: { name: `${number}` }, query: { x: `q${number}` }, extraHeaders: { 'x-mine': 'yes' } };
    clients.push(await joined(t, ports[number % 2] as number, options, name));
  }
  await eventually(async () => (await one.fetchSockets()).length === 6 && (await two.fetchSockets()).length === 6, 'both know all sockets');
  assert.ok(one.sockets.size > 0 && two.sockets.size > 0, `both have sockets: ${one.sockets.size} and ${two.sockets.size}`);
  return scenario({ one, two, clients });
}

/** Values without `undefined`, as JSON has them. */
const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value)) as unknown;

describe('an application in two processes on both packages', () => {
  let server: Server;
  let apps: { reference: Apps; tidewire: Apps };
  before(async () => {
    server = await startServer();
    const tidewire = [0, 1].map(() => new Tidewire({ url: `http://${server.address}`, key: KEY }));
    await within(DEADLINE_MS, Promise.all(tidewire.map((io) => io.ready)), 'the backends are ready');
    const buses = new Map<string, EventEmitter>();
    const adapter = function (namespace: { name: string }): BusAdapter {
      const bus = buses.get(namespace.name) ?? new EventEmitter();
      buses.set(namespace.name, bus);
      return new BusAdapter(namespace, bus, { heartbeatInterval: 100, heartbeatTimeout: 60_000 });
    };
    const https = await Promise.all([0, 1].map(async () => {
      const http = createServer();
      await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
      return http;
    }));
    const reference = https.map((http) => new Reference(http, { adapter: adapter as never }));
    apps = {
      reference: { ios: reference as Apps['ios'], ports: https.map((http) => (http.address() as { port: number }).port) as Apps['ports'] },
      tidewire: { ios: tidewire as unknown as Apps['ios'], ports: [server.port, server.port] },
    };
  });
  after(async () => {
    for (const { ios } of Object.values(apps)) await Promise.all(ios.map((io) => io.close()));
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
