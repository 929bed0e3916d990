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

test(`events of clients reach one app, once and in order, through ${KILLS} kills`, async (t) => {
  const server = await startServer({ shards: SHARDS, limits: { backend_messages_max: WINDOW } });
  t.after(() => server.dispose());
  const handled = new Map<string, number[]>();
  const onLine: OnLine = (name, number) => {
    const numbers = handled.get(name);
    if (numbers) numbers.push(number);
    else handled.set(name, [number]);
  };
  const total = (): number => [...handled.values()].reduce((sum, numbers) => sum + numbers.length, 0);
  let app = new App(t, server, onLine);
  await app.ready();
  const { clients, losses } = await clientsOf(t, server, 4);
  let sent = 0;
  const sending = setInterval(() => {
    sent += 1;
    for (const one of clients) one.emit('count', sent);
  }, 2);
  t.after(() => clearInterval(sending));
  for (let kill = 0; kill < KILLS; kill += 1) {
    const next = new App(t, server, onLine);
    await next.ready();
    await app.kill();
    app = next;
    const before = total();
    await eventually(() => total() > before + 50, 'the next app handles events');
  }
  clearInterval(sending);
  await eventually(() => [...handled.values()].every((numbers) => numbers.at(-1) === sent), 'the last events');
  for (const [name, numbers] of handled) {
    assert.ok(numbers.every((number, index) => index === 0 || number > (numbers[index - 1] ?? 0)), `client ${name}: an event came twice or too late`);
  }
  const lost = clients.length * sent - total();
  t.diagnostic(`${clients.length * sent} events, ${lost} handed over and not handled in ${KILLS} kills`);
  assert.ok(lost <= KILLS * WINDOW * SHARDS, `${lost} events are lost`);
  assert.equal(losses(), 0, 'clients stay connected');
});
