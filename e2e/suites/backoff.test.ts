// Reconnect back-off: a client that was closed for a limit reconnects at once and forever, but the server delays its answer to the
// challenge or the login. If the client itself caused the closes, the server finally refuses it in a way that stops its reconnects.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { C, close, connect, inState, open, record, type ClientOptions, type TestClient } from '../harness/client.ts';
import { fresh } from '../harness/names.ts';
import { Proxy } from '../harness/proxy.ts';
import { RawPeer } from '../harness/raw.ts';
import { Server, againstOriginal, type ServerOptions } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';

const { OPEN, CHALLENGING, CHALLENGE_DENIED, TOO_MANY_AUTH_ATTEMPTS, AUTHENTICATING } = C.CONNECTION_STATE;
/** The length here of a minute in the server's defaults; `make proof-backoff` uses 60 s. */
const MINUTE_MS = Number(process.env['BACKOFF_MINUTE_MS'] ?? 3_000);
const CONNECTS_A_MINUTE = 5;
const HUNDRED_KILOBYTES = { text: 'x'.repeat(100_000) };
/** More than `message_bytes_max` of the servers here. */
const TOO_LARGE = { blob: 'x'.repeat(5_000) };
const LIMITS = { message_bytes_max: 4_000 };
/** Users with passwords: the server applies the back-off to a user's name only if the login proves the name. */
const PASSWORD = 'correct horse';
const USERS = { anna: { password: hashPassword(PASSWORD) }, bob: { password: hashPassword(PASSWORD) } };
const [ANNA, BOB] = [{ username: 'anna', password: PASSWORD }, { username: 'bob', password: PASSWORD }];

/** The server's defaults, with minutes of `MINUTE_MS`. */
const SCALED = {
  wait_min: `${Math.round(MINUTE_MS / 60)}ms`,
  wait_max: `${Math.round(MINUTE_MS / 2)}ms`,
  forgive_interval: `${MINUTE_MS}ms`,
};

describe('after a close for a limit', { concurrency: 4, skip: againstOriginal && 'deepstream has no back-off' }, () => {
  /** A client behind a proxy that is not logged in. */
  async function outsider(t: TestContext, options: ServerOptions, clientOptions: Partial<ClientOptions> = {}) {
    const server = await Server.during(t, { limits: LIMITS, ...options });
    const proxy = await Proxy.during(t, server);
    const client = open(proxy.address, clientOptions);
    t.after(() => close(client));
    return { server, proxy, client };
  }

  /** Exceeds a limit whenever `client` has logged in. */
  function offendWhenIn(client: TestClient): void {
    client.on('connectionStateChanged', (state: C.CONNECTION_STATE) => {
      if (state === OPEN) client.event.emit(fresh('e'), TOO_LARGE);
    });
  }

  /** Waits until no client is connected, and then long enough for a client to reconnect if it tries. */
  async function staysAway(t: TestContext, server: Server, proxy: Proxy, login: Record<string, unknown> = {}): Promise<void> {
    await eventually(() => proxy.openCount === 0, 'the refused client is gone');
    const count = proxy.connectedAt.length;
    // On a busy machine the bystander's own heartbeats may be late, which does no harm: the time passes anyway.
    const errors = ['HEARTBEAT_TIMEOUT', 'CONNECTION_ERROR'];
    const bystander = await connect(t, server, { heartbeatInterval: 400, errors, login });
    for (let pongs = 0; pongs < 2; pongs += 1) {
      await bystander.wire.receives(({ action, topic }) => topic === C.TOPIC.CONNECTION && action === C.CONNECTION_ACTION.PONG);
    }
    assert.equal(proxy.connectedAt.length, count, 'the client reconnected');
  }

  test('a client whose logins are all too large connects at most five times a minute', async (t) => {
    const { proxy, client } = await outsider(t, { backoff: { ...SCALED, faults_max: 1_000_000 } });
    Promise.resolve(client.login(TOO_LARGE)).catch(() => undefined);
    const wanted = CONNECTS_A_MINUTE + 2;
    await eventually(() => proxy.connectedAt.length >= wanted, `${wanted} connects`, 2 * MINUTE_MS + DEADLINE_MS);
    const connects = proxy.connectedAt.map((time) => time - (proxy.connectedAt[0] as number));
    console.log(`connects at ${connects.map((time) => (time / MINUTE_MS * 60).toFixed(1)).join(' ')} s of 60`);
    for (let first = 0; first + CONNECTS_A_MINUTE < connects.length; first += 1) {
      const later = connects[first + CONNECTS_A_MINUTE] as number;
      assert.ok(later - (connects[first] as number) >= MINUTE_MS, `six connects within a minute: ${connects}`);
    }
  });

  test('the server delays the challenge, and a client with quick heartbeats waits for it', async (t) => {
    const { server, proxy, client } = await outsider(
      t,
      { backoff: { wait_min: '5s' } },
      { heartbeatInterval: 1_500 },
    );
    const login = client.login({ username: 'anna' });
    await inState(client, OPEN);
    await login;
    client.event.emit(fresh('e'), TOO_LARGE);
    await eventually(() => proxy.connectedAt.length === 2, 'the client reconnects at once');
    await inState(client, CHALLENGING);
    await eventually(async () => (await server.metric('tidewire_delayed_sessions')) === 1, 'it waits');
    const waited = performance.now();
    await inState(client, OPEN);
    assert.ok(performance.now() - waited > 200, 'the wait was too short');
    assert.equal(proxy.connectedAt.length, 2, 'the client gave up while waiting');
    assert.equal(await server.metric('tidewire_backoff_waits_total'), 1);
    await eventually(async () => (await server.metric('tidewire_delayed_sessions')) === 0, 'no session waits');
  });

  test('a user waits at its login from every connection, another user does not', async (t) => {
    const { server, client } = await outsider(t, { users: USERS, backoff: { wait_min: '5s', wait_max: '5s' } });
    const login = client.login(ANNA);
    await inState(client, OPEN);
    await login;
    client.event.emit(fresh('e'), TOO_LARGE);
    await eventually(async () => (await server.metric('tidewire_delayed_sessions')) === 1, 'its return waits');
    const [again, other] = [open(server.address), open(server.address)];
    t.after(() => [again, other].forEach(close));
    const otherIn = other.login(BOB);
    const againIn = again.login(ANNA);
    await within(DEADLINE_MS, Promise.resolve(otherIn), 'another user from the same address logs in');
    await inState(again, AUTHENTICATING);
    await eventually(async () => (await server.metric('tidewire_delayed_sessions')) === 2, 'the same user waits');
    await within(DEADLINE_MS, Promise.resolve(againIn), 'the same user logs in after its wait');
  });

  test('the server finally rejects an address without a successful login, and the client stays away', async (t) => {
    const { server, proxy, client } = await outsider(t, { backoff: { wait_min: '10ms', wait_max: '50ms', faults_max: 3 } });
    Promise.resolve(client.login(TOO_LARGE)).catch(() => undefined);
    await inState(client, CHALLENGE_DENIED);
    assert.equal(proxy.connectedAt.length, 4);
    await staysAway(t, server, proxy);
    assert.equal(client.getConnectionState(), CHALLENGE_DENIED);
    assert.equal(await server.metric('tidewire_backoff_refusals_total'), 1);
  });

  test('a user that keeps exceeding a limit is finally refused for too many attempts, and the client stays away', async (t) => {
    const backoff = { wait_min: '10ms', wait_max: '50ms', faults_max: 3 };
    const { server, proxy, client } = await outsider(t, { users: USERS, backoff });
    offendWhenIn(client);
    await Promise.resolve(client.login(ANNA));
    await inState(client, TOO_MANY_AUTH_ATTEMPTS);
    assert.equal(proxy.connectedAt.length, 4);
    await staysAway(t, server, proxy, BOB);
    assert.equal(client.getConnectionState(), TOO_MANY_AUTH_ATTEMPTS);
  });

  test('anonymous users are not affected by other anonymous users that break the protocol', async (t) => {
    const server = await Server.during(t, { backoff: { wait_min: '10ms', wait_max: '20ms', faults_max: 3 } });
    const proxy = await Proxy.during(t, server);
    const bystander = await connect(t, server, { through: proxy.address, login: {}, errors: ['CONNECTION_ERROR'] });
    const name = fresh('record');
    const written = await record(bystander, name);
    for (const username of [undefined, undefined, undefined, undefined, undefined, 'anna', 'anna', 'anna', 'anna', 'anna']) {
      // From a separate address: the back-off of anonymous users applies to their address.
      const options = { localAddress: '127.0.0.2' };
      const peer = await RawPeer.login(server, { username }, { url: `ws://${server.address}`, options });
      peer.sendText('\xff'.repeat(6));
      peer.sendBytes(Buffer.alloc(5_000_000));
      await within(DEADLINE_MS, peer.closed, 'the peer is closed');
    }
    assert.equal(bystander.getConnectionState(), OPEN);
    await written.setWithAck('still', 'here');
    const waited = await server.metric('tidewire_backoff_waits_total');
    for (const login of [{}, { username: 'anna' }]) await connect(t, server, { login });
    assert.equal(await server.metric('tidewire_backoff_waits_total'), waited, 'another client logs in at once');
    proxy.cut();
    await inState(bystander, C.CONNECTION_STATE.RECONNECTING);
    proxy.restore();
    await inState(bystander, OPEN);
    assert.equal(await server.metric('tidewire_backoff_refusals_total'), 0);
  });

  test('a slow reader waits when it reconnects', async (t) => {
    const server = await Server.during(t, { limits: { outbox_bytes_max: 65_536 }, backoff: { wait_min: '10s' } });
    const proxy = await Proxy.during(t, server);
    const slow = await connect(t, server, { through: proxy.address, login: { username: 'anna' }, errors: ['CONNECTION_ERROR'] });
    const writer = await connect(t, server, { login: { username: 'bob' } });
    const name = fresh('record');
    await record(slow, name);
    proxy.stall();
    const cut = async (): Promise<boolean> => (await server.metric('tidewire_slow_disconnects_total')) > 0;
    for (let count = 0; !(await cut()); count += 1) await writer.record.setDataWithAck(name, { count, ...HUNDRED_KILOBYTES });
    proxy.readOn();
    await eventually(async () => (await server.metric('tidewire_backoff_waits_total')) === 1, 'its return waits');
  });

  test('a stop does not wait for delayed sessions', async (t) => {
    const { server, client } = await outsider(t, { backoff: { wait_min: '30s' } });
    Promise.resolve(client.login(TOO_LARGE)).catch(() => undefined);
    await eventually(async () => (await server.metric('tidewire_delayed_sessions')) === 1, 'it waits');
    await within(DEADLINE_MS, server.stop(), 'the server stops');
    assert.equal(client.getConnectionState(), C.CONNECTION_STATE.RECONNECTING);
  });
});
