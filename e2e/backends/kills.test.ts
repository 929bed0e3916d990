// Kills of an app whose clients stay connected, while another process of the app is ready. `BACKEND_KILLS` is their number.

import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import type { Socket } from 'socket.io-client';
import type { Server } from '../harness/server.ts';
import { eventually, happens } from '../harness/wait.ts';
import { App, type OnLine } from './apps.ts';
import { client, startServer } from './backends.ts';

const KILLS = Number(process.env['BACKEND_KILLS'] ?? 5);
/** Messages of a shard that a backend may have and not confirmed. */
const WINDOW = 20;
const SHARDS = 2;

/** Clients with the names `0` and so on, whose connections are counted when they end. */
async function clientsOf(t: TestContext, server: Server, count: number): Promise<{ clients: Socket[]; losses: () => number }> {
  let lost = 0;
  const clients = Array.from({ length: count }, (_, name) => client(t, server.port, { auth: { name: `${name}` } }));
  await Promise.all(clients.map((one) => happens(one, 'connect')));
  for (const one of clients) one.on('disconnect', () => (lost += 1));
  return { clients, losses: () => lost };
}

/** Kills apps one after another while clients send numbers, with another app ready each time. */
async function killApps(t: TestContext, server: Server, event: string, onLine: OnLine, ...options: string[]): Promise<{ clients: number; sent: number }> {
  const last = new Map<string, number>();
  let total = 0;
  const noted: OnLine = (name, number, redelivered) => {
    last.set(name, number);
    total += 1;
    onLine(name, number, redelivered);
  };
  let app = new App(t, server, noted, ...options);
  await app.ready();
  const { clients, losses } = await clientsOf(t, server, 4);
  let sent = 0;
  const sending = setInterval(() => {
    sent += 1;
    for (const one of clients) one.emit(event, sent);
  }, 2);
  t.after(() => clearInterval(sending));
  for (let kill = 0; kill < KILLS; kill += 1) {
    const next = new App(t, server, noted, ...options);
    await next.ready();
    await app.kill();
    app = next;
    const before = total;
    await eventually(() => total > before + 50, 'the next app handles events');
  }
  clearInterval(sending);
  await eventually(() => last.size === clients.length && [...last.values()].every((number) => number === sent), 'the last events');
  assert.equal(losses(), 0, 'clients stay connected');
  return { clients: clients.length, sent };
}

function serverWithWindow(): Promise<Server> {
  return startServer({ shards: SHARDS, limits: { backend_messages_max: WINDOW } });
}

test(`events of clients reach one app, once and in order, through ${KILLS} kills`, async (t) => {
  const server = await serverWithWindow();
  t.after(() => server.dispose());
  const handled = new Map<string, number[]>();
  const { clients, sent } = await killApps(t, server, 'count', (name, number, redelivered) => {
    assert.ok(!redelivered);
    const numbers = handled.get(name);
    if (numbers) numbers.push(number);
    else handled.set(name, [number]);
  });
  for (const [name, numbers] of handled) {
    assert.ok(numbers.every((number, index) => index === 0 || number > (numbers[index - 1] ?? 0)), `client ${name}: an event came twice or too late`);
  }
  const lost = clients * sent - [...handled.values()].reduce((sum, numbers) => sum + numbers.length, 0);
  t.diagnostic(`${clients * sent} events, ${lost} handed over and not handled in ${KILLS} kills`);
  assert.ok(lost <= KILLS * WINDOW * SHARDS, `${lost} events are lost`);
  // Events that the app had handled and not confirmed count, too.
  await eventually(async () => (await server.metric('tidewire_backend_lost_events_total')) >= lost, 'the server counts the lost events');
  assert.equal(await server.metric('tidewire_backend_redelivered_events_total'), 0);
});

test(`with \`delivery: 'again'\` no event is lost in ${KILLS} kills, and those that come twice are marked`, async (t) => {
  const server = await serverWithWindow();
  t.after(() => server.dispose());
  const newest = new Map<string, number>();
  const faults: string[] = [];
  let marked = 0;
  const { clients, sent } = await killApps(
    t,
    server,
    'count later',
    (name, number, redelivered) => {
      const before = newest.get(name) ?? 0;
      if (number > before + 1) faults.push(`client ${name}: ${number} after ${before}`);
      if (number <= before && !redelivered) faults.push(`client ${name}: ${number} came again without a mark`);
      newest.set(name, Math.max(number, before));
      marked += Number(redelivered);
    },
    'again',
  );
  assert.deepEqual(faults, []);
  assert.deepEqual([...newest.values()], Array.from({ length: clients }, () => sent));
  await eventually(async () => (await server.metric('tidewire_backend_redelivered_events_total')) >= marked, 'the server counts the events');
  const again = await server.metric('tidewire_backend_redelivered_events_total');
  t.diagnostic(`${clients * sent} events with delivery again, none lost in ${KILLS} kills, ${again} sent again`);
  assert.ok(marked > 0 && again <= KILLS * WINDOW * SHARDS, `${again} events were sent again`);
  assert.equal(await server.metric('tidewire_backend_lost_events_total'), 0);
});

test('the next app gets `socket.data` as it was after the last event, after a kill and after an exception', async (t) => {
  const server = await startServer();
  t.after(() => server.dispose());
  const first = new App(t, server);
  await first.ready();
  const { clients: [one], losses } = await clientsOf(t, server, 1);
  if (!one) return assert.fail();
  one.emit('remember', { list: [1, 'é'] });
  assert.deepEqual(await one.emitWithAck('data'), { value: { list: [1, 'é'] } });
  await first.kill();
  const second = new App(t, server);
  await second.ready();
  assert.deepEqual(await one.emitWithAck('data'), { value: { list: [1, 'é'] } });
  one.emit('remember', 2);
  assert.deepEqual(await one.emitWithAck('data'), { value: 2 });
  one.emit('throw');
  assert.equal(await second.ended(), 1, 'an exception of a handler ends the app, as with socket.io');
  const third = new App(t, server);
  await third.ready();
  assert.deepEqual(await one.emitWithAck('data'), { value: 2 });
  await third.stop();
  await new App(t, server).ready();
  assert.deepEqual(await one.emitWithAck('data'), { value: 2 });
  assert.equal(losses(), 0);
});
