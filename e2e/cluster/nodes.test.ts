// Unmodified clients on three nodes with one store: each sees what the others do, whichever node owns the name.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { connect, record, subscribed, type RpcResponse, type TestClient } from '../harness/client.ts';
import { fresh } from '../harness/names.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';
import { Cluster, SETUPS } from './cluster.ts';

/** Names of all nodes with near certainty: each name has one of three owners. */
const NAME_COUNT = 24;

for (const setup of SETUPS) {
  describe(`three nodes with ${setup.name}`, () => {
    test('serve the clients of all nodes', async (t) => {
      const cluster = await Cluster.during(t, setup);
      const nodes = await cluster.nodes(3);
      const users = ['anna', 'ben', 'cleo'];
      const clients = await Promise.all(nodes.map((node, index) => connect(t, node, { login: { username: users[index] } })));
      const others = (client: TestClient): TestClient[] => clients.filter((other) => other !== client);
      const [first, second, third] = clients as [TestClient, TestClient, TestClient];
      const names = Array.from({ length: NAME_COUNT }, (_, index) => fresh(`name${index}`));

      await t.test('records', async () => {
        for (const [index, name] of names.entries()) {
          const writer = clients[index % 3] as TestClient;
          await writer.record.setDataWithAck(name, { n: 0 });
          const copies = await Promise.all(others(writer).map((client) => record(client, name)));
          for (const copy of copies) assert.deepEqual(copy.get(), { n: 0 });
          for (let n = 1; n <= 3; n += 1) await writer.record.setDataWithAck(name, { n });
          for (const copy of copies) await eventually(() => copy.get('n') === 3, `${name} has its last value on each node`);
        }
      });

      await t.test('events', async () => {
        for (const name of names.slice(0, 6)) {
          const inboxes = await Promise.all(clients.map((client) => subscribed(client, name)));
          for (const client of clients) for (let n = 0; n < 20; n += 1) client.event.emit(name, [clients.indexOf(client), n]);
          for (const inbox of inboxes) await inbox.count(60);
          for (const inbox of inboxes) {
            for (const from of [0, 1, 2]) {
              const numbers = inbox.seen.filter(([by]) => by === from).map(([, n]) => n);
              assert.deepEqual(numbers, Array.from({ length: 20 }, (_, n) => n), 'each event once and in order');
            }
          }
        }
      });

      await t.test('calls', async () => {
        for (const name of names.slice(0, 9)) {
          second.rpc.provide(name, (data: number, response: RpcResponse) => response.send({ from: 'second', data }));
          await eventually(async () => {
            const answer = await first.rpc.make(name, 1).catch(() => undefined);
            return JSON.stringify(answer) === JSON.stringify({ from: 'second', data: 1 });
          }, `${name} is provided`);
          assert.deepEqual(await within(DEADLINE_MS, third.rpc.make(name, 2) as Promise<unknown>, 'an answer'), { from: 'second', data: 2 });
        }
      });

      await t.test('presence', async () => {
        for (const client of clients) {
          const expected = users.filter((_, index) => clients[index] !== client);
          await eventually(async () => {
            const found = (await client.presence.getAll()) as string[];
            return JSON.stringify([...found].sort()) === JSON.stringify(expected);
          }, 'each client sees the users of all nodes');
        }
        const seen: string[] = [];
        first.presence.subscribe((user: string, isOnline: boolean) => seen.push(`${user} ${isOnline}`));
        await eventually(async () => (await first.presence.getAll()).length === 2, 'the subscription is known');
        await connect(t, nodes[2] as { address: string }, { login: { username: 'dora' } });
        await eventually(() => seen.includes('dora true'), 'a user of another node comes online');
      });

      await t.test('listening', async () => {
        const pattern = fresh('quotes');
        const found: string[] = [];
        third.event.listen(`${pattern}/.*`, (name: string, response: { accept(): void }) => {
          found.push(name);
          response.accept();
        });
        for (const [index, client] of clients.slice(0, 2).entries()) {
          await subscribed(client, `${pattern}/${index}`);
          await eventually(() => found.includes(`${pattern}/${index}`), 'the provider on another node is asked');
        }
      });
    });
  });
}
