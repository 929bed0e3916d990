// Scenarios of deepstream's own suite that need several nodes, by its unmodified clients.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { C, connect, inState, record, subscribed, type RpcResponse, type TestClient } from '../harness/client.ts';
import { fresh } from '../harness/names.ts';
import type { Server } from '../harness/server.ts';
import { eventually, Inbox } from '../harness/wait.ts';
import { Cluster, FEW_SETUPS, TROUBLES } from './cluster.ts';

const CALLS = 20;
const NAMES = 6;

for (const setup of FEW_SETUPS.filter(({ broker }) => broker === undefined)) {
  describe(`scenarios of several nodes with ${setup.name}`, () => {
    test('a node restarts while the clients of the others stay', async (t) => {
      const cluster = await Cluster.during(t, setup);
      const nodes = (await cluster.nodes(3)) as [Server, Server, Server];
      const [first, second] = (await Promise.all(nodes.slice(0, 2).map((node) => connect(t, node, { errors: TROUBLES })))) as [TestClient, TestClient];
      const changes: string[] = [];
      for (const client of [first, second]) client.on('connectionStateChanged', (state: string) => changes.push(state));
      const names = Array.from({ length: NAMES }, (_, index) => fresh(`stays${index}`));
      // A creation that is not acknowledged would be lost with its owner.
      for (const name of names) await first.record.setDataWithAck(name, { by: 'the first node' });
      const inboxes = await Promise.all(names.map((name) => subscribed(second, name)));
      const copies = await Promise.all(names.map((name) => record(second, name)));
      await nodes[2].kill();
      await nodes[2].start();
      const third = await connect(t, nodes[2]);
      for (const [index, name] of names.entries()) {
        first.event.emit(name, 'from the first node');
        third.event.emit(name, 'from the restarted node');
        const seen = await inboxes[index]?.count(2);
        assert.deepEqual([...(seen ?? [])].sort(), ['from the first node', 'from the restarted node']);
        await third.record.setDataWithAck(name, { by: 'the restarted node' });
        await eventually(() => copies[index]?.get('by') === 'the restarted node', `${name} has the change`);
      }
      assert.deepEqual(changes, [], 'the clients have not reconnected');
    });

    test('a client that returns after the restart of its node gets the value of the others', async (t) => {
      const cluster = await Cluster.during(t, setup);
      const nodes = (await cluster.nodes(2)) as [Server, Server];
      const [away, stays] = (await Promise.all(nodes.map((node) => connect(t, node, { errors: TROUBLES })))) as [TestClient, TestClient];
      const names = Array.from({ length: NAMES }, (_, index) => fresh(`returns${index}`));
      for (const name of names) await away.record.setDataWithAck(name, { n: 1 });
      const copies = await Promise.all(names.map((name) => record(away, name)));
      await nodes[0].kill();
      await inState(away, C.CONNECTION_STATE.RECONNECTING);
      for (const name of names) {
        const write = async (): Promise<boolean> => Promise.resolve(stays.record.setDataWithAck(name, { n: 2 })).then(() => true, () => false);
        await eventually(write, `${name} is written at the other node`);
      }
      await nodes[0].start();
      await inState(away, C.CONNECTION_STATE.OPEN, 30_000);
      for (const [index, copy] of copies.entries()) await eventually(() => copy.get('n') === 2, `${names[index]} has the value of the other node`);
    });

    test('the provider on the own node of the caller is asked first', async (t) => {
      const cluster = await Cluster.during(t, setup);
      const nodes = await cluster.nodes(3);
      const clients = await Promise.all(nodes.map((node) => connect(t, node)));
      for (let index = 0; index < NAMES; index += 1) {
        const name = fresh(`near${index}`);
        for (const [by, client] of clients.entries()) {
          client.rpc.provide(name, (_: unknown, response: RpcResponse) => response.send(by));
          await client.wire.acknowledged('RPC', C.RPC_ACTION.PROVIDE, name);
        }
        for (const [by, client] of clients.entries()) {
          const answers = await Promise.all(Array.from({ length: CALLS }, () => client.rpc.make(name, null)));
          assert.deepEqual(answers, Array.from({ length: CALLS }, () => by), 'the provider of the same node answers');
        }
      }
    });

    test('the listener on the own node of the subscriber is asked first', async (t) => {
      const cluster = await Cluster.during(t, setup);
      // A listener that answers later than the timeout is passed over, and the clients of the test share one process.
      const nodes = await cluster.nodes(3, { listenResponseTimeoutMs: 30_000 });
      const listeners = await Promise.all(nodes.map((node) => connect(t, node)));
      const subscribers = await Promise.all(nodes.map((node) => connect(t, node)));
      const prefix = fresh('listened');
      const accepted = { event: listeners.map(() => new Inbox<string>('events')), record: listeners.map(() => new Inbox<string>('records')) };
      for (const [by, { event, record, wire }] of listeners.entries()) {
        event.listen(`^${prefix}.*`, (name, response) => {
          response.accept();
          accepted.event[by]?.push(name);
        });
        await wire.acknowledged('EVENT', C.EVENT_ACTION.LISTEN, `^${prefix}.*`);
        record.listen(`^${prefix}.*`, (name, response) => {
          response.accept();
          accepted.record[by]?.push(name);
        });
        await wire.acknowledged('RECORD', C.RECORD_ACTION.LISTEN, `^${prefix}.*`);
      }
      for (const [by, subscriber] of subscribers.entries()) {
        const names = Array.from({ length: NAMES }, (_, index) => `${prefix}/${by}/${index}`);
        for (const name of names) {
          await subscribed(subscriber, name);
          await record(subscriber, name);
        }
        for (const inboxes of [accepted.event, accepted.record]) {
          assert.deepEqual([...((await inboxes[by]?.count(NAMES)) ?? [])].sort(), names, 'the listener of the same node provides them');
        }
      }
      const expected = listeners.map((_, by) => Array.from({ length: NAMES }, (_, index) => `${prefix}/${by}/${index}`));
      for (const [topic, inboxes] of Object.entries(accepted)) {
        assert.deepEqual(inboxes.map(({ seen }) => [...seen].sort()), expected, `and no other listener is asked for ${topic}s`);
      }
    });

    test('a local provider rejects, and the call goes to another node', async (t) => {
      const cluster = await Cluster.during(t, setup);
      const nodes = await cluster.nodes(2);
      const [local, remote] = (await Promise.all(nodes.map((node) => connect(t, node)))) as [TestClient, TestClient];
      for (let index = 0; index < NAMES; index += 1) {
        const name = fresh(`rejects${index}`);
        let rejected = 0;
        local.rpc.provide(name, (_: unknown, response: RpcResponse) => {
          rejected += 1;
          response.reject();
        });
        remote.rpc.provide(name, (_: unknown, response: RpcResponse) => response.send('remote'));
        for (const client of [local, remote]) await client.wire.acknowledged('RPC', C.RPC_ACTION.PROVIDE, name);
        for (let call = 0; call < 3; call += 1) assert.equal(await local.rpc.make(name, null), 'remote');
        assert.equal(rejected, 3, 'the local provider is asked first');
      }
    });
  });
}
