// The broker that carries the links is killed, restarted and frozen while clients of all nodes write and publish.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { describe, test } from 'node:test';
import type { Database } from '../harness/database.ts';
import { fresh } from '../harness/names.ts';
import { binary, environment, type Server } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';
import { Cluster, complete, evictions, pass, progress, Publishers, SETUPS, sum, view, warns, writers } from './cluster.ts';

const RECORD_COUNT = 12;
const KILLS = Number(process.env['BROKER_KILLS'] ?? 3);
/** Longer than the 3 s after which a side without a majority evicts the others. */
const LONG_MS = 6_000;
const READY_MS_MAX = 5_000;
/** RabbitMQ accepts connections before it is started. On a busy machine the rest of its start takes a minute. */
const CONTINUED_MS_MAX = 120_000;

for (const setup of SETUPS.filter(({ broker }) => broker !== undefined)) {
  describe(`the broker of a cluster with ${setup.name}`, () => {
    for (const count of [3, 2]) {
      test(`is killed and restarted under load, and ${count} nodes lose and double nothing`, async (t) => {
        const cluster = await Cluster.during(t, setup);
        const broker = cluster.broker as Database;
        const nodes = await cluster.nodes(count);
        const all = await writers(t, nodes, RECORD_COUNT, fresh('broker'));
        const publishers = await Publishers.on(t, nodes);
        await progress(all);
        const before = await view(nodes[0] as Server);
        const [reportedMs, continuedMs]: [number[], number[]] = [[], []];
        for (let kill = 0; kill < KILLS; kill += 1) {
          await broker.crash();
          const crashed = performance.now();
          await eventually(async () => warns(nodes[0] as Server, 'link_down'), 'the node reports its links', READY_MS_MAX);
          reportedMs.push(performance.now() - crashed);
          if (kill === 0) await pass(LONG_MS);
          await broker.start();
          const restarted = performance.now();
          await progress(all, 1, CONTINUED_MS_MAX);
          continuedMs.push(performance.now() - restarted);
        }
        await progress(all);
        const events = await publishers.end();
        await complete(t, nodes, all);
        const writes = all.reduce((sum, writer) => sum + writer.acknowledged, 0);
        const resent = await sum(nodes, 'tidewire_cluster_link_resent_frames_total');
        console.log(
          `${KILLS} kills: ${events} events on each of ${count} nodes and ${writes} acknowledged writes, none lost or doubled; ` +
            `reported within ${ms(Math.max(...reportedMs))}; all writers continued after ${ms(median(continuedMs))}, ${ms(Math.max(...continuedMs))} at most; ${resent} frames sent again`,
        );
        // A link repeats the frames that were on their way when the broker was killed, each once or a few times.
        assert.ok(resent <= events + writes, `${resent} frames were sent again`);
        assert.equal(all.reduce((sum, writer) => sum + writer.failures, 0), 0, 'no write failed');
        assert.equal(await evictions(nodes), 0, 'no node was evicted');
        for (const node of nodes) assert.equal(await view(node), before, 'the view is the same');
      });
    }

    test('is frozen, and no node is evicted', async (t) => {
      const cluster = await Cluster.during(t, setup);
      const nodes = await cluster.nodes(2);
      const all = await writers(t, nodes, RECORD_COUNT, fresh('frozen'));
      const publishers = await Publishers.on(t, nodes);
      await progress(all);
      const before = await view(nodes[0] as Server);
      cluster.broker?.freeze();
      await eventually(async () => warns(nodes[0] as Server, 'link_down'), 'the node reports its links', READY_MS_MAX);
      await pass(LONG_MS);
      cluster.broker?.thaw();
      await progress(all);
      await publishers.end();
      await complete(t, nodes, all);
      for (const node of nodes) assert.equal(await view(node), before, 'the view is the same');
    });

    test('returns, and the names of a node that was killed without it are writable again', async (t) => {
      const cluster = await Cluster.during(t, setup);
      const nodes = await cluster.nodes(3);
      const [killed, ...others] = nodes as [Server, Server, Server];
      const all = await writers(t, others, RECORD_COUNT, fresh('both'));
      await progress(all);
      const before = await view(others[0] as Server);
      await cluster.broker?.crash();
      await killed.kill();
      await eventually(async () => warns(others[0] as Server, 'link_down'), 'the node reports its links', READY_MS_MAX);
      await pass(LONG_MS);
      assert.equal(await view(others[0] as Server), before, 'no node is evicted without the broker');
      await cluster.broker?.start();
      await progress(all);
      await eventually(async () => (await view(others[0] as Server)) > before, 'the killed node is evicted');
      assert.equal(await others[0]?.metric('tidewire_cluster_evictions_total'), 1, 'and no other one');
      await complete(t, others, all);
      await killed.start();
      await complete(t, nodes, all);
    });
  });
}

const ms = (time: number): string => `${time.toFixed(0)} ms`;
const median = (times: number[]): number => times.sort((one, other) => one - other)[times.length >> 1] as number;

test('a URL that names no broker is refused without its secrets', () => {
  for (const url of ['http://links:hunter2@host', 'nats://links:hunter2@host:port', 'kafka://links:hunter2@host:9092']) {
    const options = ['--set', 'cluster.enabled=true', '--set', 'store.kind=redis', '--set', 'store.redis.url=redis://127.0.0.1:1/0'];
    const { status, stdout, stderr } = spawnSync(binary(), ['start', '--permissions', 'allow_all', ...options], {
      env: { ...environment(), TIDEWIRE_CLUSTER__LINK: url },
      encoding: 'utf8',
    });
    assert.equal(status, 2, stderr);
    assert.match(stderr, /cluster\.link: /);
    assert.doesNotMatch(stdout + stderr, /hunter2/);
  }
});
