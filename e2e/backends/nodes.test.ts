// Apps and their clients on the nodes of a cluster: sockets of other nodes, the loss of an app, and the loss of its node.

import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { Server as Tidewire, type Socket as ServerSocket } from '@tidewire/socket.io';
import type { Socket } from 'socket.io-client';
import { Cluster } from '../cluster/cluster.ts';
import { atEnd } from '../harness/cleanup.ts';
import type { Server } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, happens, within } from '../harness/wait.ts';
import { App } from './apps.ts';
import { KEY, joined } from './backends.ts';

const NODES = 3;
/** How long the sockets of a lost node wait. The loss is known within 3 s. */
const APP_GRACE_MS = 6_000;

/** The nodes of a cluster whose namespaces backends serve. */
async function clusterOf(t: TestContext, grace = '10s'): Promise<[Server, Server, Server]> {
  const cluster = await Cluster.during(t, { name: 'Redis', store: 'redis' });
  const [one, two, three] = await cluster.nodes(NODES, { backend: { key: KEY, namespaces: ['/*'], grace } });
  if (!one || !two || !three) return assert.fail();
  return [one, two, three];
}

/** An app that is connected to one of these nodes, and the numbers that its sockets have got, by the names of the clients. */
class CountingApp {
  readonly io: Tidewire;
  readonly sockets = new Map<string, ServerSocket>();
  readonly numbers = new Map<string, number[]>();
  readonly ends: string[] = [];

  constructor(t: TestContext, nodes: Server[]) {
    this.io = new Tidewire({ url: nodes.map((node) => `http://${node.address}`), key: KEY, graceMs: APP_GRACE_MS });
    atEnd(t, () => this.io.close());
    this.io.on('connection', (socket) => {
      const { name } = socket.handshake.auth as { name: string };
      assert.ok(!this.sockets.has(name) || socket.recovered, `a second socket for ${name}`);
      this.sockets.set(name, socket);
      if (!this.numbers.has(name)) this.numbers.set(name, []);
      socket.on('count', (number: number) => this.numbers.get(name)?.push(number));
      socket.on('disconnect', (reason) => this.ends.push(`${name}: ${reason}`));
    });
  }

  ready(): Promise<unknown> {
    return within(DEADLINE_MS, this.io.ready, 'the app is ready');
  }
}

/** Clients that count up until the end of the test, and whose losses are noted. */
class Counting {
  sent = 0;
  readonly lost: string[] = [];
  readonly #timer: NodeJS.Timeout;

  constructor(
    t: TestContext,
    readonly clients: ReadonlyMap<string, Socket>,
  ) {
    for (const [name, client] of clients) client.on('disconnect', (reason) => this.lost.push(`${name}: ${reason}`));
    this.#timer = setInterval(() => {
      this.sent += 1;
      for (const client of clients.values()) if (client.connected) client.emit('count', this.sent);
    }, 5);
    t.after(() => clearInterval(this.#timer));
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  static async begin(t: TestContext, nodes: Server[], perNode: number): Promise<Counting> {
    const clients = new Map<string, Socket>();
    for (const [index, node] of nodes.entries()) {
      for (let number = 0; number < perNode; number += 1) {
        const name = `${index}-${number}`;
        clients.set(name, await joined(t, node.port, { auth: { name, room: 'all' } }));
      }
    }
    return new Counting(t, clients);
  }
}

const isAscending = (numbers: readonly number[]): boolean => numbers.every((number, index) => index === 0 || number > (numbers[index - 1] ?? 0));

test('an app on each of two nodes reaches the sockets and the app of the other one', async (t) => {
  const cluster = await Cluster.during(t, { name: 'Redis', store: 'redis' });
  const nodes = [await cluster.node({ backend: { key: KEY, namespaces: ['/*'] } }), await cluster.node({ backend: { key: KEY, namespaces: ['/*'] } })];
  const apps = nodes.map((node) => new Tidewire({ url: `http://${node.address}`, key: KEY }));
  for (const io of apps) atEnd(t, () => io.handOver());
  await within(DEADLINE_MS, Promise.all(apps.map((io) => io.ready)), 'the apps are ready');
  const [first, second] = apps;
  if (!first || !second) return assert.fail();
  for (const [index, io] of apps.entries()) io.on('connection', (socket) => (socket.data = { node: index }));
  const clients = await Promise.all([0, 1, 0, 1].map((index) => joined(t, nodes[index]?.port ?? 0)));
  for (const [index, client] of clients.entries()) client.on('ask', (ack: (answer: number) => void) => ack(index));
  await eventually(() => apps.every((io) => io.sockets.sockets.size === 2), 'each app has two sockets');

  for (const io of apps) {
    const answers = await io.timeout(DEADLINE_MS).emitWithAck('ask');
    assert.deepEqual(answers.sort(), [0, 1, 2, 3]);
    assert.deepEqual((await io.local.timeout(DEADLINE_MS).emitWithAck('ask')).length, 2, 'only this node');
    const sockets = await io.fetchSockets();
    assert.deepEqual(sockets.map(({ id }) => id).sort(), clients.map(({ id }) => id ?? '').sort());
    assert.deepEqual(sockets.map(({ data }) => (data as { node: number }).node).sort(), [0, 0, 1, 1]);
  }

  second.on('question', (text: string, ack: (answer: string) => void) => ack(text.toUpperCase()));
  assert.deepEqual(await first.serverSideEmitWithAck('question', 'a'), ['A']);
  const said = new Inbox<string>('said');
  second.on('said', said.push);
  first.serverSideEmit('said', 'hello');
  assert.equal(await said.next(), 'hello');

  first.socketsJoin('all');
  await eventually(async () => (await second.local.in('all').fetchSockets()).length === 2, 'the sockets of the other node have joined');
  const gone = clients.map((client) => happens(client, 'disconnect'));
  second.in('all').disconnectSockets();
  assert.ok((await Promise.all(gone)).every(([reason]) => reason === 'io server disconnect'));
});

test('an app that is connected to one node serves the clients of three, and another one takes over when it is killed', async (t) => {
  const nodes = await clusterOf(t);
  const numbers = new Map<string, number[]>();
  const noted = (name: string, number: number): void => void (numbers.get(name)?.push(number) ?? numbers.set(name, [number]));
  const first = new App(t, nodes[0], noted);
  await first.ready();
  const counting = await Counting.begin(t, nodes, 2);
  const { clients } = counting;
  const heard = new Inbox<string>('events of the room');
  for (const [name, client] of clients) client.on('said', () => heard.push(name));
  const say = async (number: number): Promise<void> => {
    for (const [name, client] of clients) {
      assert.equal(await within(DEADLINE_MS, client.emitWithAck('say', number), `an answer to ${name}`), number);
      const others: string[] = [];
      while (others.length < clients.size - 1) others.push(await heard.next());
      assert.deepEqual(others.sort(), [...clients.keys()].filter((other) => other !== name).sort());
    }
  };
  await say(1);
  await eventually(() => [...clients.keys()].every((name) => (numbers.get(name)?.length ?? 0) > 20), 'the app gets the events of all clients');
  const next = new App(t, nodes[2], noted);
  await next.ready();
  await first.kill();
  // The rooms are kept.
  await say(2);
  counting.stop();
  await eventually(() => [...clients.keys()].every((name) => numbers.get(name)?.at(-1) === counting.sent), 'the last events arrive');
  for (const [name, of] of numbers) assert.ok(isAscending(of), `an event of ${name} came twice or too late`);
  assert.deepEqual(counting.lost, [], 'clients stay connected');
});

test('an app whose node is lost keeps its sockets on the other nodes, and all of their events', async (t) => {
  const nodes = await clusterOf(t);
  const app = new CountingApp(t, [nodes[0], nodes[1]]);
  await app.ready();
  const counting = await Counting.begin(t, nodes, 2);
  await eventually(() => [...counting.clients.keys()].every((name) => (app.numbers.get(name)?.length ?? 0) > 20), 'the app gets the events of all clients');
  // It serves no session of the lost app before that one has had the time to come back.
  const other = new CountingApp(t, [nodes[2]]);
  await other.ready();
  const sockets = new Map(app.sockets);
  await nodes[0].kill();
  await eventually(() => app.ends.length === 2, 'the sockets of the lost node end');
  assert.deepEqual(app.ends.map((end) => end.split('-')[0]), ['0', '0']);
  assert.ok(app.ends.every((end) => end.endsWith('transport close')));
  await eventually(() => counting.lost.length === 2, 'the clients of the lost node notice it');
  const kept = [...counting.clients.keys()].filter((name) => !name.startsWith('0-'));
  const before = counting.sent;
  await eventually(() => kept.every((name) => (app.numbers.get(name)?.at(-1) ?? 0) > before), 'the app gets events again');
  counting.stop();
  await eventually(() => kept.every((name) => app.numbers.get(name)?.at(-1) === counting.sent), 'the last events arrive');
  for (const name of kept) {
    assert.equal(app.sockets.get(name), sockets.get(name), 'the same socket');
    assert.deepEqual(app.numbers.get(name), Array.from({ length: counting.sent }, (_, index) => index + 1), `each event of ${name} once and in order`);
  }
  assert.equal(other.sockets.size, 0);
  assert.equal(counting.lost.length, 2, 'the other clients stay connected');
});

test('the sockets of an app that is lost with its node pass to another app after the grace', async (t) => {
  const nodes = await clusterOf(t, '2s');
  const first = new App(t, nodes[0]);
  await first.ready();
  const counting = await Counting.begin(t, [nodes[1], nodes[2]], 1);
  for (const client of counting.clients.values()) await within(DEADLINE_MS, client.emitWithAck('say', 2), 'an answer');
  const next = new CountingApp(t, [nodes[1]]);
  await next.ready();
  await Promise.all([first.kill(), nodes[0].kill()]);
  await eventually(() => next.sockets.size === 2, 'the next app gets the sockets');
  const before = counting.sent;
  await eventually(() => [...next.numbers.values()].every((numbers) => (numbers.at(-1) ?? 0) > before), 'the next app gets events');
  for (const [name, numbers] of next.numbers) {
    assert.ok(isAscending(numbers), `an event of ${name} came twice or too late`);
    assert.deepEqual([...(next.sockets.get(name)?.rooms ?? [])].length, 2, 'the room of the app, and the own one');
  }
  assert.deepEqual(counting.lost, [], 'clients stay connected');
});
