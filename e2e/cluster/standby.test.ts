// A standby server of PostgreSQL takes over that lacks the last commits. The nodes notice it, write again what they have in memory, and
// report it. So no acknowledged write of a record in memory is lost, and no change of rights.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { ADMIN_KEY, admin } from '../harness/admin.ts';
import { connect } from '../harness/client.ts';
import { Database } from '../harness/database.ts';
import { fresh } from '../harness/names.ts';
import type { Server } from '../harness/server.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';
import { Cluster, complete, evictions, progress, revoked, sum, TROUBLES, view, writers } from './cluster.ts';
import { Network } from './network.ts';

const WRITER_COUNT = 18;
/** Records that are written once, and that the standby server lacks. More than an owner loads at the same time. */
const LOST_COUNT = 1_500;
const TAKEN_OVER = /another server has taken over the store/;
const WRITTEN_AGAIN = 'tidewire_records_written_again_total';

type Change = [method: string, path: string, body?: object];

/** Makes changes of revocations, each on the next node. Returns the statuses of the answers. */
async function changesOfRights(nodes: Server[], changes: Change[]): Promise<number[]> {
  const statuses: number[] = [];
  for (const [index, [method, path, body]] of changes.entries()) {
    const [status] = await admin(nodes[index % nodes.length] as Server, method, `/revocations${path}`, body);
    statuses.push(status);
  }
  return statuses;
}

test('an asynchronous standby server that is promoted under load loses no acknowledged write', async (t) => {
  const cluster = await Cluster.during(t, { name: 'PostgreSQL', store: 'postgres' });
  const primary = cluster.database;
  const standby = await Database.during(t, 'postgres', { standbyOf: primary });
  const network = Network.during(t, primary.port);
  const nodes: Server[] = [];
  while (nodes.length < 3) nodes.push(await cluster.nodeBehind(network, { adminKey: ADMIN_KEY }));
  const prefix = fresh('standby');
  const all = await writers(t, nodes, WRITER_COUNT, `${prefix}/written`);
  await progress(all);
  const client = await connect(t, nodes[0] as Server, { errors: TROUBLES });
  await client.record.setDataWithAck(`${prefix}/deleted`, { n: 0 });
  assert.deepEqual(await changesOfRights(nodes, [['POST', '', { user: 'restored' }]]), [201]);
  await standby.detach();

  await progress(all);
  const lost = Array.from({ length: LOST_COUNT }, (_, index) => `${prefix}/lost/${index}`);
  await within(DEADLINE_MS, Promise.all(lost.map((name, n) => client.record.setDataWithAck(name, { n }))), 'the writes');
  const deleted = client.record.getRecord(`${prefix}/deleted`);
  await deleted.whenReady();
  await deleted.delete();
  const changes: Change[] = [
    ['DELETE', '/user/restored'],
    ['POST', '', { user: 'revoked' }],
  ];
  assert.deepEqual(await changesOfRights(nodes, changes), [204, 201]);
  const before = await view(nodes[0] as Server);
  await primary.crash();
  standby.promote();
  network.moveStore(standby.port);

  await progress(all);
  // The deletion is written again as well, and some of the records that are written all the time.
  await eventually(async () => (await sum(nodes, WRITTEN_AGAIN)) > LOST_COUNT, 'the lost records are written again', 30_000);
  for (const node of nodes) await node.prints(TAKEN_OVER);
  await eventually(async () => isDeepStrictEqual(await revoked(nodes[0] as Server), ['revoked']), 'the store has the changes of rights');
  assert.ok((await view(nodes[0] as Server)) > before);
  assert.equal(await evictions(nodes), 0);
  t.diagnostic(`${await sum(nodes, WRITTEN_AGAIN)} records were written again`);

  // The other nodes load the records of a node that is killed from the store.
  await nodes[0]?.kill();
  await progress(all.filter((_, index) => index % nodes.length !== 0));
  await nodes[0]?.start();
  await complete(t, nodes, all);
  for (const node of nodes) {
    const reader = await connect(t, node);
    const found = await within(DEADLINE_MS, Promise.all(lost.map((name) => reader.record.snapshot(name))), 'the reads');
    assert.deepEqual(found, lost.map((_, n) => ({ n })));
    assert.equal(await reader.record.has(`${prefix}/deleted`), false);
  }
});
