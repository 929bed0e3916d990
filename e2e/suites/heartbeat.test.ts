// Heartbeats: each side detects that the other has become silent.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { C, connect, inState } from '../harness/client.ts';
import { fresh } from '../harness/names.ts';
import { Proxy } from '../harness/proxy.ts';
import { RawPeer } from '../harness/raw.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, within } from '../harness/wait.ts';

const { CONNECTION } = C.TOPIC;
const { PING, PONG } = C.CONNECTION_ACTION;

/** The server's interval: it closes a connection that was silent for two of them. Long, because a busy machine may delay a test. */
const SILENCE_MS = 2_000;
/** Interval of the side that sends. A stock client gives up after twice this time without a message, so it must be long, too. */
const SPEAK_MS = 1_000;

describe('heartbeat', { concurrency: 4 }, () => {
  test('the server answers every PING with a PONG', async (t) => {
    const server = await Server.during(t);
    const peer = await RawPeer.login(server);
    for (let i = 0; i < 5; i += 1) peer.send({ topic: CONNECTION, action: PING });
    await peer.expectCount(CONNECTION, PONG, 5);
    await peer.settle();
    const pongs = peer.received.seen.filter(({ topic, action }) => topic === CONNECTION && action === PONG);
    assert.equal(pongs.length, 6);
    peer.close();
  });

  test('the server closes a silent connection, but not one with heartbeats', async (t) => {
    const server = await Server.during(t, { heartbeatIntervalMs: SILENCE_MS });
    const client = await connect(t, server, { heartbeatInterval: SPEAK_MS });
    const started = Date.now();
    const silent = await RawPeer.login(server);
    await within(DEADLINE_MS, silent.closed, 'the silent connection is closed');
    assert.ok(Date.now() - started >= SILENCE_MS, 'the server did not close it too early');
    assert.equal(client.getConnectionState(), C.CONNECTION_STATE.OPEN);
    assert.equal(await client.record.has(fresh('record')), false);
  });

  test('any message counts as a sign of life', async (t) => {
    const server = await Server.during(t, { heartbeatIntervalMs: SILENCE_MS });
    const peer = await RawPeer.login(server);
    const silent = await RawPeer.login(server);
    const speak = setInterval(() => {
      peer.send({ topic: C.TOPIC.EVENT, action: C.EVENT_ACTION.EMIT, name: 'sign of life', data: '1' });
    }, SPEAK_MS);
    t.after(() => clearInterval(speak));
    await within(DEADLINE_MS, silent.closed, 'the silent connection is closed');
    assert.equal(peer.isOpen, true);
    await peer.settle();
    peer.close();
  });

  test('a client leaves a server that has become silent, and reconnects', async (t) => {
    const server = await Server.during(t);
    const proxy = await Proxy.during(t, server);
    const errors = ['HEARTBEAT_TIMEOUT', 'CONNECTION_ERROR'];
    const client = await connect(t, server, { through: proxy.address, heartbeatInterval: SPEAK_MS, errors });
    proxy.silence();
    await client.errors.find(({ event }) => event === 'HEARTBEAT_TIMEOUT');
    const lost = inState(client, C.CONNECTION_STATE.RECONNECTING);
    proxy.cut();
    await lost;
    proxy.restore();
    await inState(client, C.CONNECTION_STATE.OPEN);
    assert.equal(await client.record.has(fresh('record')), false);
  });
});
