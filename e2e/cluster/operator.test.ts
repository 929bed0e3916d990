// The commands of an operator: `tidewire cluster status`, `evict` and `leave`, on running nodes under load.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fresh } from '../harness/names.ts';
import type { Server } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';
import { Cluster, complete, operator, progress, SETUPS, writers } from './cluster.ts';

const ADMIN_KEY = 'cluster-operator-key-0123456789abcdef';
const REJOIN_MS_MAX = 60_000;
const LINE = /^node (?<node>\d+) +(?<state>\w+) +(?<slots>\d+) slots +(?<address>\S+) +(?<link>.+)$/;

const KEYS = /^keys of auth\.jwt, fingerprint (?<fingerprint>[0-9a-f]{12})$/m;

interface Member {
  node: number;
  state: string;
  slots: number;
  link: string;
}

function status(node: Server): Member[] {
  const { code, out, error } = operator(node, 'status');
  assert.equal(code, 0, error);
  const [first, keys, ...lines] = out.trimEnd().split('\n') as [string, string, ...string[]];
  assert.match(first, /^view \d+$/);
  assert.match(keys, KEYS);
  return lines.map((line) => {
    const { node: number, state, slots, link } = LINE.exec(line)?.groups ?? assert.fail(line);
    return { node: Number(number), state: state as string, slots: Number(slots), link: link as string };
  });
}

const fingerprint = (node: Server): string | undefined => KEYS.exec(operator(node, 'status').out)?.groups?.['fingerprint'];
const own = (node: Server): number => status(node).find(({ link }) => link === 'this node')?.node as number;

async function settled(node: Server, count: number): Promise<Member[]> {
  const members = await eventually(() => {
    const members = status(node);
    const others = members.filter(({ link }) => link.startsWith('linked, '));
    const isSettled = members.length === count && others.length === count - 1 && members.every(({ state }) => state === 'active');
    return isSettled ? members : undefined;
  }, `${count} linked members are active`, REJOIN_MS_MAX);
  return members as Member[];
}

for (const setup of SETUPS.filter(({ store, broker }) => store === 'postgres' && broker === undefined)) {
  test('an operator sees the members, evicts one, and lets one leave', async (t) => {
    const cluster = await Cluster.during(t, setup);
    const nodes: Server[] = [];
    for (const secret of ['one', 'one', 'another']) {
      const auth = { chain: ['jwt', 'open'], jwt: { secret: secret.padEnd(32, '.') } };
      nodes.push(await cluster.node({ adminKey: ADMIN_KEY, auth }));
    }
    const [first, second, third] = nodes as [Server, Server, Server];

    const members = await settled(first, 3);
    assert.equal(members.reduce((sum, { slots }) => sum + slots, 0), 4_096, 'each slot has an owner');
    assert.deepEqual(members.map(({ node }) => node).sort(), nodes.map(own).sort(), 'each node is one of them');

    const [same, alsoSame, other] = nodes.map(fingerprint);
    assert.ok(same === alsoSame && same !== other, 'an operator sees that the third node has another key');
    assert.equal(await third.metric(`tidewire_cluster_keys{section="auth.jwt",fingerprint="${other}"}`), 1);

    const all = await writers(t, [first, second], 12, fresh('operator'));
    await progress(all);
    const evicted = own(third);
    for (const wrong of [own(first), 65_000]) {
      const { code, error } = operator(first, 'evict', String(wrong));
      assert.equal(code, 1, error);
    }
    const { code, out, error } = operator(first, 'evict', String(evicted));
    assert.equal(code, 0, error);
    assert.equal(out, `the cluster evicts the node ${evicted}\n`);
    await third.prints(/the other members have evicted this node/);
    const again = await settled(first, 3);
    assert.ok(!again.some(({ node }) => node === evicted), 'it has joined again with another number');
    await progress(all);

    const before = all.reduce((sum, writer) => sum + writer.failures, 0);
    const left = operator(third, 'leave');
    assert.equal(left.code, 0, left.error);
    assert.equal(left.out, 'the node hands its names over, leaves the cluster and stops\n');
    await eventually(() => !third.isRunning, 'the server stops');
    await settled(first, 2);
    await progress(all);
    assert.equal(all.reduce((sum, writer) => sum + writer.failures, 0), before, 'no write failed while it left');
    await complete(t, [first, second], all);

    const after = operator(third, 'status');
    assert.equal(after.code, 1);
    assert.match(after.error, /does not answer/);
  });
}
