// An app on each node of a cluster: acknowledgements of broadcasts, sockets and events of the apps of both nodes.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Server as Tidewire } from '@tidewire/socket.io';
import { Cluster } from '../cluster/cluster.ts';
import { atEnd } from '../harness/cleanup.ts';
import { DEADLINE_MS, Inbox, eventually, happens, within } from '../harness/wait.ts';
import { KEY, joined } from './backends.ts';

test('an app on each of two nodes reaches the sockets and the app of the other one', async (t) => {
  const cluster = await Cluster.during(t, { name: 'Redis', store: 'redis' });
  const nodes = [await cluster.node({ backend: { key: KEY, namespaces: ['/*'] } }), await cluster.node({ backend: { key: KEY, namespaces: ['/*'] } })];
  const apps = nodes.map((node) => new Tidewire({ url: `http://${node.address}`, key: KEY }));
  for (const io of apps) atEnd(t, () => io.handOver());
  await within(DEADLINE_MS, Promise.all(apps.map((io) => io.ready)), 'the apps are ready');
  const [first, second] = apps;
  if (!first || !second) return assert.fail();
  for (const [index, io] of apps.entries()) io.on('connection', (socket) => (socket.data = { node: index }));
  const clients = await Promise.all([0, 1, 0, 1].map((index) => joined(t, nodes[index]?.port ?? 0)));
  for (const [index, client] of clients.entries()) client.on('ask', (ack: (answer: number) => void) => ack(index));
  await eventually(() => apps.every((io) => io.sockets.sockets.size === 2), 'each app has two sockets');

  for (const io of apps) {
    const answers = await io.timeout(DEADLINE_MS).emitWithAck('ask');
    assert.deepEqual(answers.sort(), [0, 1, 2, 3]);
    assert.deepEqual((await io.local.timeout(DEADLINE_MS).emitWithAck('ask')).length, 2, 'only this node');
    const sockets = await io.fetchSockets();
    assert.deepEqual(sockets.map(({ id }) => id).sort(), clients.map(({ id }) => id ?? '').sort());
    assert.deepEqual(sockets.map(({ data }) => (data as { node: number }).node).sort(), [0, 0, 1, 1]);
  }

  second.on('question', (text: string, ack: (answer: string) => void) => ack(text.toUpperCase()));
  assert.deepEqual(await first.serverSideEmitWithAck('question', 'a'), ['A']);
  const said = new Inbox<string>('said');
  second.on('said', said.push);
  first.serverSideEmit('said', 'hello');
  assert.equal(await said.next(), 'hello');

  first.socketsJoin('all');
  await eventually(async () => (await second.local.in('all').fetchSockets()).length === 2, 'the sockets of the other node have joined');
  const gone = clients.map((client) => happens(client, 'disconnect'));
  second.in('all').disconnectSockets();
  assert.ok((await Promise.all(gone)).every(([reason]) => reason === 'io server disconnect'));
});
