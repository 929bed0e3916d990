// Revocations on three nodes: made on one, in force on all when they are acknowledged, and on nodes that start later.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { ADMIN_KEY, admin, tokenOf } from '../harness/admin.ts';
import { C, connect, subscribed, type TestClient } from '../harness/client.ts';
import { fresh } from '../harness/names.ts';
import type { Server, ServerOptions } from '../harness/server.ts';
import { DEADLINE_MS, eventually, within, type Inbox } from '../harness/wait.ts';
import { Cluster, FEW_SETUPS, revoked, TROUBLES } from './cluster.ts';

const OPTIONS: ServerOptions = {
  auth: { chain: ['jwt'], jwt: { secret: 'a secret of the nodes, long enough for HMAC' } },
  adminKey: ADMIN_KEY,
};
/** A revoked client reconnects, and the server refuses it. */
const ENDED = [...TROUBLES, 'TOO_MANY_AUTH_ATTEMPTS', 'IS_CLOSED'];

async function start(cluster: Cluster, count: number): Promise<Server[]> {
  const nodes: Server[] = [];
  while (nodes.length < count) nodes.push(await cluster.node(OPTIONS));
  return nodes;
}

/** Whether the node accepts a login of the user. */
async function accepts(test: TestContext, node: Server, user: string): Promise<boolean> {
  const client = await connect(test, node, { login: false, errors: ENDED });
  const answer = new Promise<boolean>((done) => {
    client.login({ token: tokenOf(node, user) }, (success: boolean) => done(success));
  });
  const accepted = await within(DEADLINE_MS, answer, 'an answer to the login');
  client.close();
  return accepted;
}

interface Listener {
  client: TestClient;
  heard: Inbox<unknown>;
}

async function listen(test: TestContext, nodes: Server[], user: string, event: string): Promise<Listener[]> {
  return Promise.all(
    nodes.map(async (node) => {
      const client = await connect(test, node, { login: { token: tokenOf(node, user) }, errors: ENDED });
      return { client, heard: await subscribed(client, event) };
    }),
  );
}

const isOpen = ({ client }: Listener): boolean => client.getConnectionState() === C.CONNECTION_STATE.OPEN;

for (const setup of FEW_SETUPS) {
  describe(`revocations on three nodes with ${setup.name}`, () => {
    test('hold on all nodes when they are acknowledged, and on nodes that start later', async (t) => {
      const cluster = await Cluster.during(t, setup);
      const nodes = await start(cluster, 3);
      const [first, second, third] = nodes as [Server, Server, Server];
      const event = fresh('news');
      const mallory = await listen(t, nodes, 'mallory', event);
      const alice = await listen(t, nodes, 'alice', event);

      const [status, body] = await admin(first, 'POST', '/revocations', { user: 'mallory' });
      assert.deepEqual([status, body.name], [201, 'mallory']);
      for (const [index, { client }] of alice.entries()) client.event.emit(event, index);
      for (const { heard } of alice) await heard.count(3);
      for (const listener of mallory) await eventually(() => !isOpen(listener), 'the session of the revoked user has ended');
      assert.deepEqual(mallory.flatMap(({ heard }) => heard.seen), [], 'no event reaches the revoked user after the answer');
      assert.ok(alice.every(isOpen), 'other users stay');
      for (const node of nodes) assert.deepEqual([await accepts(t, node, 'mallory'), await accepts(t, node, 'alice')], [false, true]);

      const fourth = await cluster.node(OPTIONS);
      assert.equal(await accepts(t, fourth, 'mallory'), false, 'a node that joins knows the revocation');
      for (const node of [...nodes, fourth]) assert.deepEqual(await revoked(node), ['mallory']);
      alice.forEach(({ client }) => client.close());
      mallory.forEach(({ client }) => client.close());
      await Promise.all([...nodes, fourth].map((node) => node.stop()));
      await second.start();
      assert.equal(await accepts(t, second, 'mallory'), false, 'the store keeps the revocation');

      await third.start();
      assert.equal((await admin(third, 'DELETE', '/revocations/user/mallory'))[0], 204);
      for (const node of [second, third]) {
        assert.equal(await accepts(t, node, 'mallory'), true, 'the revocation is lifted on each node');
        assert.deepEqual(await revoked(node), []);
      }
    });

    test('are all made if they are made on all nodes at once', async (t) => {
      const cluster = await Cluster.during(t, setup);
      const nodes = await start(cluster, 3);
      const users = Array.from({ length: 30 }, (_, index) => `user-${String(index).padStart(2, '0')}`);
      const answers = users.map((user, index) => admin(nodes[index % 3] as Server, 'POST', '/revocations', { user }));
      for (const [status, body] of await Promise.all(answers)) assert.equal(status, 201, JSON.stringify(body));
      for (const node of nodes) assert.deepEqual(await revoked(node), users);
      for (const node of nodes) assert.equal(await accepts(t, node, users[17] as string), false);
    });

    test('wait for a node that does not answer until it is evicted', async (t) => {
      const cluster = await Cluster.during(t, setup);
      const [first, , third] = (await start(cluster, 3)) as [Server, Server, Server];
      const event = fresh('news');
      const mallory = (await listen(t, [third], 'mallory', event)) as [Listener];
      process.kill(third.pid, 'SIGSTOP');
      const began = performance.now();
      const answer = admin(first, 'POST', '/revocations', { user: 'mallory' });
      const [status] = await answer;
      t.diagnostic(`acknowledged after ${(performance.now() - began).toFixed(0)} ms`);
      assert.equal(status, 201);
      assert.ok((await first.metric('tidewire_cluster_evictions_total')) > 0, 'the paused node is evicted before the answer');
      process.kill(third.pid, 'SIGCONT');
      await third.prints(/the other members have evicted this node/);
      await eventually(() => !isOpen(mallory[0]), 'the session has ended');
      await eventually(async () => (await third.get('/ready').catch(() => undefined))?.ok === true, 'the node has joined again', 30_000);
      assert.equal(await accepts(t, third, 'mallory'), false);
    });
  });
}
