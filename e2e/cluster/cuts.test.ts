// Nodes that die, and cuts of the network between the nodes, to the store, and of both, while clients of all nodes write. Each situation
// of the table in docs/guarantees.md ("Nodes and networks that fail") is one test, with a part for each column.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { fresh } from '../harness/names.ts';
import type { Server } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';
import { Cluster, complete, evictions, pass, progress, SETUPS, view, warns, writers, type Setup, type Writer } from './cluster.ts';
import { Network, STORE } from './network.ts';
import { People } from './people.ts';

const RECORD_COUNT = 18;
/** The goals are 1 s after a broken link and 3 s after silence; a busy machine and a debug build need more. */
const GAP_MS_MAX = 8_000;
/** Longer than every time after which a node could evict another one. */
const LONG_MS = 6_000;
const EVICTED = /the other members have evicted this node/;
const REJOIN_MS_MAX = 60_000;

interface Three {
  cluster: Cluster;
  network: Network;
  nodes: [Server, Server, Server];
  all: Writer[];
  people: People;
}

/** Three nodes behind a network, with writers and people on each. */
async function three(t: TestContext, setup: Setup): Promise<Three> {
  const cluster = await Cluster.during(t, setup);
  const network = Network.during(t, cluster.database.port);
  const nodes: Server[] = [];
  while (nodes.length < 3) nodes.push(await cluster.nodeBehind(network));
  const people = await People.on(t, nodes);
  const all = await writers(t, nodes, RECORD_COUNT, fresh('cut'));
  await progress(all);
  return { cluster, network, nodes: nodes as [Server, Server, Server], all, people };
}

/** The writers whose client is on a node: node `index` has each third one. */
const onNode = (all: Writer[], index: number): Writer[] => all.filter((_, number) => number % 3 === index);
const notOn = (all: Writer[], index: number): Writer[] => all.filter((_, number) => number % 3 !== index);

const isReady = async (node: Server): Promise<boolean> => (await node.get('/ready').catch(() => undefined))?.ok === true;

/** Writers continue within the limit, measured from `begin`. */
async function continues(t: TestContext, all: Writer[], what: string): Promise<void> {
  await progress(all);
  const worst = Math.max(...all.map((writer) => writer.gapMs));
  t.diagnostic(`${what}: no acknowledgement for ${worst.toFixed(0)} ms at most`);
  assert.ok(worst < GAP_MS_MAX, `${worst} ms`);
}

/** A node that was evicted is a member again, and has everything that was acknowledged. */
async function rejoins(t: TestContext, nodes: Server[], node: Server, all: Writer[]): Promise<void> {
  await eventually(() => isReady(node), 'the node has joined again', REJOIN_MS_MAX);
  await progress(all);
  await complete(t, nodes, all);
}

for (const setup of SETUPS.filter(({ broker }) => broker === undefined)) {
  describe(`three nodes with ${setup.name}`, () => {
    test('a node dies', async (t) => {
      const { nodes, all, people } = await three(t, setup);
      const others = notOn(all, 2);
      for (const writer of all) writer.measure();
      await nodes[2].kill();
      await t.test('reads and subscriptions of the other nodes continue', () => people.without(2).read());
      await t.test('acknowledged writes are kept, and names are writable again', () => continues(t, others, 'a node was killed'));
      await t.test('other writes reach the subscribers of the other nodes', () => people.without(2).write());
      await t.test('events, calls and presence of the other nodes continue', () => people.without(2).talk());
      await t.test('a user of the node goes offline', () => people.without(2).miss(2));
      await nodes[2].start();
      await rejoins(t, nodes, nodes[2], all);
    });

    test('a node is cut off from its peers, not from the store', async (t) => {
      const { network, nodes, all, people } = await three(t, setup);
      const others = notOn(all, 2);
      for (const writer of all) writer.measure();
      network.isolate(3);
      await t.test('it is evicted, and closes its clients', async () => {
        await nodes[2].prints(EVICTED);
        await people.isClosed(2);
      });
      await t.test('it has evicted no other node', () => {
        for (const node of nodes.slice(0, 2)) assert.doesNotMatch(node.output, EVICTED);
      });
      await t.test('reads and subscriptions of the other nodes continue', () => people.without(2).read());
      await t.test('acknowledged writes are kept, and names are writable again', () => continues(t, others, 'a node was cut off'));
      await t.test('other writes reach the subscribers of the other nodes', () => people.without(2).write());
      await t.test('events, calls and presence of the other nodes continue', () => people.without(2).talk());
      network.restore();
      await rejoins(t, nodes, nodes[2], all);
      await people.talk();
    });

    test('one direction between two nodes is cut', async (t) => {
      const { network, nodes, all, people } = await three(t, setup);
      const before = await view(nodes[0]);
      for (const writer of all) writer.measure();
      network.cutOneWay(2, 3);
      // Both suspect the other one, and both reach the first node: one of them evicts the other.
      const evicted = await eventually(() => {
        return [nodes[1], nodes[2]].find((node) => EVICTED.test(node.output));
      }, 'one of the two is evicted', 30_000);
      const index = nodes.indexOf(evicted as Server);
      await continues(t, notOn(all, index), 'one direction was cut');
      await people.without(index).talk();
      assert.ok((await view(nodes[0])) > before);
      network.restore();
      await rejoins(t, nodes, nodes[index] as Server, all);
      await people.talk();
    });

    test('a node is cut off from the store only', async (t) => {
      const { network, nodes, all, people } = await three(t, setup);
      const before = await view(nodes[0]);
      network.cut(3, STORE);
      await eventually(() => warns(nodes[2], 'view_frozen'), 'the node reports that it does not reach the registry', 20_000);
      await t.test('it serves reads and subscriptions', () => people.read());
      await t.test('acknowledged writes of its names wait', async () => {
        const counts = all.map((writer) => writer.acknowledged);
        await pass(LONG_MS);
        const waiting = all.filter((writer, index) => writer.acknowledged === counts[index]);
        assert.ok(waiting.length > 0, 'the node owns some of the names');
        assert.ok(waiting.length < all.length, 'the other nodes commit');
      });
      await t.test('other writes reach all subscribers', () => people.write());
      await t.test('events, calls and presence continue', () => people.talk());
      assert.equal(await view(nodes[0]), before, 'no node is evicted');
      network.restore();
      await progress(all);
      await complete(t, nodes, all);
      assert.equal(await evictions(nodes), 0);
    });

    test('a node is cut off from everything', async (t) => {
      const { network, nodes, all, people } = await three(t, setup);
      const others = notOn(all, 2);
      for (const writer of all) writer.measure();
      network.isolate(3);
      network.cut(3, STORE);
      await t.test('it is not ready after 3 s, and closes its clients', async () => {
        await eventually(async () => !(await isReady(nodes[2])), 'it is not ready');
        await nodes[2].prints(/neither the registry nor all members answer/);
        await people.isClosed(2);
      });
      await t.test('reads and subscriptions of the other nodes continue', () => people.without(2).read());
      await t.test('acknowledged writes are kept, and names are writable again', () => continues(t, others, 'a node was cut off from everything'));
      await t.test('other writes reach the subscribers of the other nodes', () => people.without(2).write());
      await t.test('events, calls and presence of the other nodes continue', () => people.without(2).talk());
      const before = onNode(all, 2).map((writer) => writer.acknowledged);
      await pass(LONG_MS);
      assert.deepEqual(onNode(all, 2).map((writer) => writer.acknowledged), before, 'it acknowledges nothing');
      network.restore();
      await rejoins(t, nodes, nodes[2], all);
      await people.talk();
    });

    test('the store is down for all, and returns', async (t) => {
      const { cluster, nodes, all, people } = await three(t, setup);
      const before = await view(nodes[0]);
      await cluster.database.crash();
      await eventually(() => warns(nodes[0], 'view_frozen'), 'the node reports the registry', 20_000);
      await t.test('reads and subscriptions are served', () => people.read());
      await t.test('acknowledged writes wait', async () => {
        const counts = all.map((writer) => writer.acknowledged);
        await pass(LONG_MS);
        assert.deepEqual(all.map((writer) => writer.acknowledged), counts);
      });
      await t.test('other writes reach all subscribers', () => people.write());
      await t.test('events, calls and presence continue', () => people.talk());
      assert.equal(await view(nodes[0]), before, 'the view is frozen');
      await cluster.database.start();
      await progress(all);
      await complete(t, nodes, all);
      assert.equal(await evictions(nodes), 0);
    });

    test('the store is down for all, and a node dies', async (t) => {
      const { cluster, nodes, all, people } = await three(t, setup);
      await cluster.database.crash();
      await eventually(() => warns(nodes[0], 'view_frozen'), 'the node reports the registry', 20_000);
      await nodes[2].kill();
      // The others can't know whether it lives and has the store.
      await Promise.all(nodes.slice(0, 2).map((node) => node.prints(/neither the registry nor all members answer/)));
      await people.isClosed(0);
      await people.isClosed(1);
      await pass(LONG_MS);
      await cluster.database.start();
      const others = nodes.slice(0, 2);
      for (const node of others) await eventually(() => isReady(node), 'the node has joined again', REJOIN_MS_MAX);
      await progress(notOn(all, 2));
      await people.without(2).talk();
      await complete(t, others, notOn(all, 2));
    });
  });
}
