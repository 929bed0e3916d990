// Indexes of collections in a cluster: nodes without the option keep the entries of the indexes that another node declares, and a node
// continues the build of another one.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { url } from '../harness/http.ts';
import { basic, put, queryPath, remove, type Parameters, type Row } from '../harness/queries.ts';
import type { Server } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';
import { Cluster, SETUPS } from './cluster.ts';

interface Found {
  rows: Row[];
  count: number;
  explain: { index: string[] | null };
}

const COUNT = 1_500;
const COLLECTIONS = { cards: { indexes: [['board', 'position']] } };

async function find(server: Server, parameters: Parameters): Promise<Found> {
  const path = queryPath({ collection: 'cards', explain: 'true', count: 'true', ...parameters });
  const answer = await fetch(url(server, path), { headers: basic('root') });
  assert.equal(answer.status, 200, await answer.clone().text());
  return (await answer.json()) as Found;
}

for (const setup of SETUPS.filter(({ broker }) => broker === undefined)) {
  describe(`three nodes with ${setup.name}`, () => {
    test('build an index together, and all keep it', { timeout: 120_000 }, async (t) => {
      const cluster = await Cluster.during(t, setup);
      const nodes = await cluster.nodes(3);
      const [first, second, third] = nodes as [Server, Server, Server];
      for (let from = 0; from < COUNT; from += 60) {
        const some = Array.from({ length: 60 }, (_, index) => from + index);
        await Promise.all(some.map((n) => put(nodes[n % 3] as Server, `cards/${n}`, { board: n % 10, position: COUNT - n })));
      }
      const restart = async (node: Server): Promise<void> => {
        await node.stop();
        node.setCollections(COLLECTIONS);
        await node.start();
      };
      // The first steps of the build may have been made when the node is killed.
      await restart(second);
      await second.kill();
      await restart(third);
      // A node that declares nothing writes during the build and after it.
      await put(first, 'cards/0', { board: 1, position: -1 });
      await remove(first, `cards/${COUNT - 9}`);
      const page = { where: { board: 1 }, sort: ['position'], limit: 2 };
      await eventually(async () => (await find(third, page)).explain.index !== null, 'the index is complete');
      await second.start();
      await put(first, 'cards/10', { board: 1, position: -2 });
      for (const node of [second, third]) {
        const { rows, count, explain } = await find(node, page);
        assert.deepEqual([rows.map(({ id }) => id), count, explain.index?.join()], [['10', '0'], COUNT / 10 + 1, 'board,position']);
      }
      assert.equal((await find(first, page)).explain.index, null);
    });
  });
}
