// Changes of rules on three nodes: loaded from the file of one, in force on all when that node reports it, and on nodes that start later.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { ADMIN_KEY, admin } from '../harness/admin.ts';
import { C, connect, record, subscribed, type TestClient } from '../harness/client.ts';
import { fresh } from '../harness/names.ts';
import { ready } from '../harness/outage.ts';
import type { Server, ServerOptions } from '../harness/server.ts';
import { eventually, Inbox } from '../harness/wait.ts';
import { Cluster, FEW_SETUPS, operator, TROUBLES, warns } from './cluster.ts';

const REJOIN_MS_MAX = 60_000;
/** Almost the longest file of rules. */
const COMMENT = `# ${'x'.repeat(100)}\n`.repeat(10_000);

/** Rules that allow everything, except that the condition `refused` denies subscriptions to events and reads of records. */
function rules(refused: string, comment = ''): string {
  const all = (...actions: string[]): Record<string, string | boolean> => Object.fromEntries(actions.map((action) => [action, true]));
  const text = JSON.stringify({
    presence: { '*': all('allow') },
    record: { '*': { ...all('create', 'write', 'delete', 'listen', 'notify'), read: `!(${refused})` } },
    event: { '*': { ...all('publish', 'listen'), subscribe: `!(${refused})` } },
    rpc: { '*': all('provide', 'request') },
  });
  return `${comment}${text}\n`;
}

const OPEN = rules('false');
const SECRET = rules("name.startsWith('secret/')", COMMENT);
const OPTIONS: ServerOptions = { permissions: OPEN, adminKey: ADMIN_KEY };

interface RulesInForce {
  change: number;
  file: string;
  sha256: string;
}

/** The rules that a node uses, as its status shows them. */
async function inForce(node: Server): Promise<RulesInForce> {
  const [status, { rules }] = await admin(node, 'GET', '/cluster');
  assert.equal(status, 200);
  return rules as RulesInForce;
}

/** Waits until a node has reported that the rules of its file are in force on all nodes. */
async function reloaded(node: Server, count: number): Promise<void> {
  await eventually(async () => (await node.metric('tidewire_rules_reloads_total')) >= count, 'the new rules are in force', REJOIN_MS_MAX);
}

async function start(cluster: Cluster, count: number): Promise<Server[]> {
  const nodes: Server[] = [];
  while (nodes.length < count) nodes.push(await cluster.node(OPTIONS));
  return nodes;
}

const clientOf = (test: TestContext, node: Server): Promise<TestClient> =>
  connect(test, node, { errors: ['MESSAGE_DENIED', ...TROUBLES] });

/** Whether a node lets a client subscribe to an event and read a record. The same rule decides about both. */
async function allows(test: TestContext, node: Server, event: string, name: string): Promise<boolean> {
  const client = await clientOf(test, node);
  const isSent = client.wire.sends(({ topic, action }) => topic === C.TOPIC.EVENT && action === C.EVENT_ACTION.SUBSCRIBE);
  client.event.subscribe(event, () => {});
  await isSent;
  await client.record.setDataWithAck(name, { number: 0 });
  const isRead = await client.record.snapshot(name).then(
    () => true,
    (error: unknown) => (assert.match(String(error), /MESSAGE_DENIED/), false),
  );
  await client.presence.getAll();
  const isDenied = client.errors.seen.some(({ event: error, topic }) => error === 'MESSAGE_DENIED' && topic === 'EVENT');
  client.close();
  assert.equal(isDenied, !isRead, 'the event and the record have the same rule');
  return isRead;
}

interface Reader {
  client: TestClient;
  open: Inbox<number>;
  secret: Inbox<number>;
  /** The values of the secret record. */
  values: number[];
  /** The names that the reader has lost. */
  lost: Inbox<string>;
}

async function reader(test: TestContext, node: Server, open: string, secret: string, name: string): Promise<Reader> {
  const client = await clientOf(test, node);
  const held = await record(client, name);
  const values: number[] = [];
  held.subscribe('number', (value: number) => values.push(value));
  const lost = new Inbox<string>('lost names');
  held.on('error', (error: string) => lost.push(`${error} ${held.name}`));
  return { client, open: await subscribed(client, open), secret: await subscribed(client, secret), values, lost };
}

for (const setup of FEW_SETUPS) {
  describe(`rules on three nodes with ${setup.name}`, () => {
    test('are in force on all nodes when one has loaded them, and on nodes that start later', async (t) => {
      const cluster = await Cluster.during(t, setup);
      const nodes = await start(cluster, 3);
      const [first, second, third] = nodes as [Server, Server, Server];
      const before = await Promise.all(nodes.map(inForce));
      assert.deepEqual(before.map(({ change }) => change), [1, 1, 1], 'the first node has given its rules to the cluster');
      assert.equal(before[0]?.file, 'permissions.yml');

      const [open, secret, name] = [fresh('open/event'), fresh('secret/event'), fresh('secret/record')];
      const readers = await Promise.all(nodes.map((node) => reader(t, node, open, secret, name)));
      const writer = await clientOf(t, second);
      let number = 0;
      let isLoading = true;
      const load = (async () => {
        while (isLoading) {
          number += 1;
          for (const event of [open, secret]) writer.event.emit(event, number);
          await writer.record.setDataWithAck(name, { number });
        }
      })();
      await Promise.all(readers.flatMap((it) => [it.open.count(20), it.secret.count(20)]));
      first.setPermissions(SECRET);
      await reloaded(first, 1);
      // No reader of any node may receive a secret that was written after this point.
      const acknowledged = number + 1;
      await Promise.all(readers.map((it) => it.open.find((value) => value >= acknowledged + 20)));
      isLoading = false;
      await load;
      for (const it of readers) {
        await it.open.find((value) => value === number);
        assert.deepEqual(it.secret.seen.filter((value) => value > acknowledged), []);
        assert.deepEqual(it.values.filter((value) => value > acknowledged), []);
        assert.deepEqual(it.lost.seen, [`MESSAGE_DENIED ${name}`]);
        it.client.close();
      }
      const now = await Promise.all(nodes.map(inForce));
      assert.deepEqual(now, nodes.map(() => ({ ...now[0] })), 'all nodes have the same rules');
      assert.equal(now[0]?.change, 2);
      for (const node of nodes) assert.equal(await allows(t, node, secret, name), false);
      assert.equal(await warns(first, 'rules_differ'), false);
      assert.ok(await warns(second, 'rules_differ'), 'the file of another node is an old one');

      const fourth = await cluster.node(OPTIONS);
      assert.equal(await allows(t, fourth, secret, name), false, 'a node that joins with an old file has the rules of the cluster');
      await fourth.prints(/differs from the rules of the cluster/);
      await second.stop();
      await second.start();
      assert.equal(await allows(t, second, secret, name), false, 'a node that starts again does not bring old rules back');
      second.hangUp();
      await eventually(() => second.output.split('differs from the rules of the cluster').length > 2, 'a reload reports the old file');
      assert.deepEqual(await inForce(second), now[0]);

      fourth.setPermissions('event:\n  "*":\n    subscribe: "user.id ==="\n');
      await fourth.prints(/could not reload the rules; the previous rules stay in force/);
      assert.deepEqual((await ready(fourth)).warnings.map(({ code }) => code), ['rules_stale']);
      assert.deepEqual(await Promise.all([...nodes, fourth].map(inForce)), [now[0], now[0], now[0], now[0]], 'wrong rules change nothing');

      await Promise.all([...nodes, fourth].map((node) => node.stop()));
      await second.start();
      assert.equal(await allows(t, second, secret, name), false, 'the store keeps the rules');
      assert.deepEqual(await inForce(second), now[0]);
      await third.start();
      // An operator takes the change back on purpose. The file is an old one, and may be read-only.
      assert.ok(await warns(third, 'rules_differ'));
      const wrong = operator(third, 'rules', third.configFile);
      assert.deepEqual([wrong.code, wrong.out], [1, '']);
      assert.match(wrong.error, /tidewire\.yml:\d+:\d+: /);
      const { code, out, error } = operator(third, 'rules', third.permissionsFile);
      assert.equal(code, 0, error);
      const { sha256 } = await inForce(second);
      assert.equal(out, `in force on all nodes: rules permissions.yml, change 3, sha256 ${sha256}\n`);
      for (const node of [second, third]) assert.equal(await allows(t, node, secret, name), true);
      assert.equal(await warns(third, 'rules_differ'), false);
      // Or the operator writes the file while its node runs.
      third.setPermissions(SECRET);
      await reloaded(third, 1);
      for (const node of [second, third]) assert.equal(await allows(t, node, secret, name), false);
    });

    test('are one change if the files of all nodes are replaced at once', async (t) => {
      const cluster = await Cluster.during(t, setup);
      const nodes = await Promise.all([1, 2, 3].map(() => cluster.node(OPTIONS)));
      assert.deepEqual((await Promise.all(nodes.map(inForce))).map(({ change }) => change), [1, 1, 1], 'one of the nodes has given its rules');
      for (const node of nodes) node.setPermissions(SECRET);
      for (const node of nodes) await reloaded(node, 1);
      assert.deepEqual((await Promise.all(nodes.map(inForce))).map(({ change }) => change), [2, 2, 2]);
      for (const node of nodes) assert.deepEqual((await ready(node)).warnings.filter(({ code }) => code.startsWith('rules')), []);
    });

    test('wait for a node that does not answer until it is evicted', async (t) => {
      const cluster = await Cluster.during(t, setup);
      const [first, , third] = (await start(cluster, 3)) as [Server, Server, Server];
      const secret = fresh('secret/event');
      process.kill(third.pid, 'SIGSTOP');
      first.setPermissions(SECRET);
      await reloaded(first, 1);
      assert.ok((await first.metric('tidewire_cluster_evictions_total')) > 0, 'the paused node is evicted before the rules are in force');
      process.kill(third.pid, 'SIGCONT');
      await third.prints(/the other members have evicted this node/);
      await eventually(async () => (await third.get('/ready').catch(() => undefined))?.ok === true, 'the node has joined again', REJOIN_MS_MAX);
      assert.equal(await allows(t, third, secret, fresh('secret/record')), false, 'with the new rules');
    });
  });
}
