// A stop and a start by an operator: SIGTERM, exit code 0, the same data, and all clients with the package's default timeouts are back
// within their five attempts.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import { C, DeepstreamClient, close, connect, open, record, type RpcResponse, type TestClient } from '../harness/client.ts';
import { fresh } from '../harness/names.ts';
import { RawPeer } from '../harness/raw.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, within } from '../harness/wait.ts';

const CLIENT_COUNT = 100;
/** A stock client reconnects at once, then waits 4, 8, 12 and 16 seconds between its further attempts. */
const STOCK = {
  reconnectIntervalIncrement: 4_000,
  maxReconnectInterval: 180_000,
  maxReconnectAttempts: 5,
  subscriptionInterval: 100,
  offlineBufferTimeout: 2_000,
};
/** The limit for a stop and a start together; within it, no stock client comes near its last attempt. */
const AWAY_MAX_MS = 15_000;
const RETURN_DEADLINE_MS = 45_000;

describe('drain', { skip: againstOriginal && 'deepstream drops pending operations' }, () => {
  test(`${CLIENT_COUNT} stock clients reconnect after a stop under load, and no acknowledged write is lost`, async (t) => {
    const server = await Server.during(t);
    const clients = Array.from({ length: CLIENT_COUNT }, () => open(server.address, STOCK));
    atEnd(t, () => clients.forEach(close));
    await Promise.all(clients.map((client) => within(DEADLINE_MS, Promise.resolve(client.login()), 'login')));
    const gaveUp = new Inbox<unknown>('clients that gave up');
    clients.forEach((client) => client.on('MAX_RECONNECTION_ATTEMPTS_REACHED', gaveUp.push));
    const writers = clients.map((client) => new Writer(client));
    await Promise.all(writers.map((writer) => writer.acknowledged(5)));
    const started = Date.now();
    await server.stop();
    await server.start();
    const away = Date.now() - started;
    assert.ok(away < AWAY_MAX_MS, `stop and start took ${away} ms`);
    const isBack = (client: TestClient): boolean => client.getConnectionState() === C.CONNECTION_STATE.OPEN;
    await eventually(() => clients.every(isBack), 'all clients are back', RETURN_DEADLINE_MS);
    assert.deepEqual(gaveUp.seen, []);
    const judge = await connect(t, server);
    for (const writer of writers) await writer.check(judge);
    await Promise.all(writers.map((writer) => writer.writesOn()));
    t.diagnostic(`stop and start took ${away} ms; all ${CLIENT_COUNT} were back ${Date.now() - started} ms after the signal`);
  });

  test('a running call is answered before the server ends, and new clients are refused', async (t) => {
    const server = await Server.during(t);
    const [caller, provider] = [
      await connect(t, server, { errors: ['CONNECTION_ERROR'] }),
      await connect(t, server, { errors: ['CONNECTION_ERROR'] }),
    ];
    const name = fresh('rpc');
    const waiting = new Inbox<RpcResponse>('responses');
    provider.rpc.provide(name, (_data, response) => waiting.push(response));
    await provider.wire.acknowledged('RPC', C.RPC_ACTION.PROVIDE, name);
    const call = caller.rpc.make(name, null);
    const response = await waiting.next();
    const stopped = server.stop();
    await eventually(async () => (await ready(server)) !== 200, 'the server is no longer ready');
    response.send('answered in the last moment');
    assert.equal(await within(DEADLINE_MS, call, 'the answer'), 'answered in the last moment');
    await stopped;
    assert.equal(await ready(server), 0);
  });

  test('the server closes connections with 1001 after all pending messages', async (t) => {
    const server = await Server.during(t);
    const peer = await RawPeer.login(server);
    const name = fresh('record');
    const writes = 200;
    for (let i = 1; i <= writes; i += 1) {
      const ack = { isWriteAck: true, correlationId: `${i}` };
      const write = { action: C.RECORD_ACTION.CREATEANDPATCH, version: -1, path: 'n', data: `${i}` };
      peer.send({ topic: C.TOPIC.RECORD, name, ...write, ...ack });
    }
    await peer.expect(C.TOPIC.RECORD, C.RECORD_ACTION.WRITE_ACKNOWLEDGEMENT);
    await server.stop();
    assert.equal(await within(DEADLINE_MS, peer.closed, 'the connection is closed'), 1001);
    const isAck = ({ topic, action }: C.Message): boolean =>
      topic === C.TOPIC.RECORD && action === C.RECORD_ACTION.WRITE_ACKNOWLEDGEMENT;
    const acknowledged = peer.received.seen.filter(isAck).length;
    await server.start();
    const judge = await connect(t, server);
    assert.ok((await judge.record.head(name)) >= acknowledged, 'the acknowledged writes are there');
  });
});

/** Writes one record repeatedly, each time after the acknowledgement of the last write, until the connection is lost. */
class Writer {
  readonly #name = fresh('drain');
  readonly #acks = new Inbox<number>(`acknowledged writes of ${this.#name}`);
  #isLost = false;

  constructor(private readonly client: TestClient) {
    void this.#write();
  }

  async acknowledged(count: number): Promise<void> {
    await this.#acks.count(count);
  }

  /** Checks that the server has the acknowledged writes. The write in flight may be there or not. */
  async check(judge: DeepstreamClient): Promise<void> {
    const { n } = (await judge.record.snapshot(this.#name)) as { n: number };
    const last = this.#acks.seen.at(-1) ?? 0;
    assert.ok(n === last || n === last + 1, `${this.#name} is at ${n}, acknowledged was ${last}`);
  }

  /** Checks that the client can continue to write, to a record that it opens now. */
  async writesOn(): Promise<void> {
    assert.equal(this.#isLost, true);
    const opened = await record(this.client, this.#name);
    await within(DEADLINE_MS, opened.setWithAck('after', true), 'a write after the reconnect');
  }

  async #write(): Promise<void> {
    for (let n = 1; ; n += 1) {
      try {
        await this.client.record.setDataWithAck(this.#name, { n } as never);
      } catch {
        this.#isLost = true;
        return;
      }
      this.#acks.push(n);
    }
  }
}

/** The status of `/ready`; 0 if there is no answer. */
async function ready(server: Server): Promise<number> {
  try {
    return (await server.get('/ready')).status;
  } catch {
    return 0;
  }
}
