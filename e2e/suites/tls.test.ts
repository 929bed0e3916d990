// TLS: the unmodified client over wss, the negotiation in a handshake, and the renewal of the certificate under load.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request } from 'node:http';
import { describe, test, type TestContext } from 'node:test';
import { connect as connectTls, type ConnectionOptions, type TLSSocket } from 'node:tls';
import { CertificateFiles, certify, type Certified } from '../harness/certificate.ts';
import { atEnd } from '../harness/cleanup.ts';
import { C, connect, inState, record, subscribed, type ConnectOptions, type TestClient } from '../harness/client.ts';
import { fresh } from '../harness/names.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';

/** The interval at which the server checks the certificate files. */
const RELOAD_INTERVAL_MS = 200;

interface Secured {
  server: Server;
  files: CertificateFiles;
  shown: Certified;
}

/** A server with TLS on a separate port. */
async function secured(
  test: TestContext,
  { heartbeatIntervalMs, ...options }: { minVersion?: '1.2' | '1.3'; heartbeatIntervalMs?: number } = {},
): Promise<Secured> {
  const shown = certify();
  const files = new CertificateFiles(test, shown);
  const tls = { certificate: files.certificate, key: files.key, reloadIntervalMs: RELOAD_INTERVAL_MS, ...options };
  return { server: await Server.during(test, { tls, heartbeatIntervalMs }), files, shown };
}

/** A client over wss that trusts only `shown`. */
function secureClient(
  test: TestContext,
  server: Server,
  shown: Certified,
  options: ConnectOptions = {},
): Promise<TestClient> {
  const through = `wss://${server.tlsAddress}`;
  return connect(test, server, { through, socketOptions: { ca: shown.certificate } as never, ...options });
}

/** A socket after its handshake. */
async function handshake(test: TestContext, server: Server, options: ConnectionOptions): Promise<TLSSocket> {
  const socket = connectTls({ host: '127.0.0.1', port: server.tlsPort, ...options });
  atEnd(test, () => void socket.destroy());
  await within(DEADLINE_MS, once(socket, 'secureConnect'), 'the handshake');
  return socket;
}

/** The fingerprint of the certificate in a new handshake. */
async function shownNow(test: TestContext, server: Server): Promise<string | undefined> {
  const socket = await handshake(test, server, { rejectUnauthorized: false });
  const { fingerprint256 } = socket.getPeerCertificate();
  socket.destroy();
  return fingerprint256;
}

describe('tls', { skip: againstOriginal && 'the original server speaks no TLS', concurrency: 3 }, () => {
  test('an encrypted and an unencrypted client share events, records and rpcs', async (t) => {
    const { server, shown } = await secured(t);
    const secure = await secureClient(t, server, shown);
    const clear = await connect(t, server);
    const [event, rpc, name] = [fresh('event'), fresh('rpc'), fresh('record')];
    const inboxes = [await subscribed(secure, event), await subscribed(clear, event)];
    clear.event.emit(event, 'to the secure one');
    assert.equal(await inboxes[0]?.next(), 'to the secure one');
    secure.event.emit(event, 'to the clear one');
    assert.equal(await inboxes[1]?.find((data) => data === 'to the clear one'), 'to the clear one');
    secure.rpc.provide(rpc, (data, response) => response.send([data]));
    await eventually(async () => (await server.metric('tidewire_tls_handshakes_total')) >= 1, 'the handshake is counted');
    await eventually(() => clear.rpc.make(rpc, 1).then(() => true, () => false), 'the provider is known');
    const [mine, theirs] = [await record(secure, name), await record(clear, name)];
    await mine.setWithAck('from', 'the secure one');
    await eventually(() => theirs.get('from') === 'the secure one', 'the write arrives');
  });

  test('messages of many TLS records arrive complete in both directions', async (t) => {
    const { server, shown } = await secured(t);
    const [sender, receiver] = [await secureClient(t, server, shown), await secureClient(t, server, shown)];
    const event = fresh('event');
    const inbox = await subscribed(receiver, event);
    // A message of more than 16 KiB needs more than one TLS record.
    for (const length of [1, 16_383, 16_384, 16_385, 100_000, 900_000]) {
      const text = 'x'.repeat(length);
      sender.event.emit(event, text);
      assert.equal(await inbox.next(), text);
    }
  });

  test('heartbeats over wss keep a connection open for longer than the timeout of a silent one', async (t) => {
    // Long intervals, so that a slow login or a late answer on a busy machine does not count as silence. The client waits for an answer for
    // twice its interval.
    const { server, shown } = await secured(t, { heartbeatIntervalMs: 2_000 });
    const alive = await secureClient(t, server, shown, { heartbeatInterval: 1_000 });
    const lost: string[] = [];
    alive.on('connectionStateChanged', (state: string) => lost.push(state));
    // Twice the timeout: a second silent client connects after the server has closed the first.
    for (let i = 0; i < 2; i += 1) {
      const silent = await secureClient(t, server, shown, { heartbeatInterval: 600_000 });
      await inState(silent, C.CONNECTION_STATE.RECONNECTING);
      silent.close();
    }
    assert.deepEqual(lost, []);
    assert.equal(await alive.record.has(fresh('record')), false);
  });

  test('a handshake negotiates HTTP/1.1, and a ticket resumes it', async (t) => {
    const { server } = await secured(t);
    for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
      const options = { rejectUnauthorized: false, ALPNProtocols: ['http/1.1'], minVersion: version, maxVersion: version };
      const first = connectTls({ host: '127.0.0.1', port: server.tlsPort, ...options });
      atEnd(t, () => void first.destroy());
      const ticket = within(DEADLINE_MS, once(first, 'session'), `a ticket of ${version}`);
      await within(DEADLINE_MS, once(first, 'secureConnect'), 'the handshake');
      assert.equal(first.alpnProtocol, 'http/1.1');
      assert.equal(first.getProtocol(), version);
      assert.equal(first.isSessionReused(), false);
      first.write('GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n');
      const [session] = await ticket;
      const second = await handshake(t, server, { ...options, session });
      assert.equal(second.isSessionReused(), true, version);
    }
  });

  test('older versions and other protocols are refused', async (t) => {
    const { server } = await secured(t, { minVersion: '1.3' });
    const old = connectTls({ host: '127.0.0.1', port: server.tlsPort, rejectUnauthorized: false, maxVersion: 'TLSv1.2' });
    const [refusal] = await within(DEADLINE_MS, once(old, 'error'), 'TLS 1.2 is refused');
    assert.match(String(refusal), /version/i);
    const other = connectTls({ host: '127.0.0.1', port: server.tlsPort, rejectUnauthorized: false, ALPNProtocols: ['h3'] });
    const [unknown] = await within(DEADLINE_MS, once(other, 'error'), 'h3 alone is refused');
    assert.match(String(unknown), /alert|protocol/i);
    assert.equal(await server.metric('tidewire_tls_handshake_failures_total'), 2);
  });

  test('plain HTTP on the TLS port gets an answer that explains the error', async (t) => {
    const { server } = await secured(t);
    const asked = request(`http://${server.tlsAddress}/health`).end();
    const [answer] = await within(DEADLINE_MS, once(asked, 'response'), 'an answer');
    const [text] = await within(DEADLINE_MS, once(answer, 'data'), 'a text');
    assert.equal(answer.statusCode, 400);
    assert.match(String(text), /https:\/\/ and wss:\/\//);
  });

  test('new connections get a renewed certificate, and old ones continue', async (t) => {
    const { server, files, shown } = await secured(t);
    const [publisher, subscriber] = [await secureClient(t, server, shown), await secureClient(t, server, shown)];
    const event = fresh('event');
    const inbox = await subscribed(subscriber, event);
    let sent = 0;
    const load = setInterval(() => publisher.event.emit(event, (sent += 1)), 1);
    atEnd(t, () => clearInterval(load));
    await inbox.count(20);

    const renewed = certify();
    files.replace(renewed);
    await eventually(async () => (await shownNow(t, server)) === renewed.fingerprint, 'the new certificate is shown');
    const late = await secureClient(t, server, renewed);
    late.event.emit(event, 'from the new connection');
    await inbox.find((data) => data === 'from the new connection');

    files.replace({ ...renewed, key: certify().key });
    const isStale = async (): Promise<boolean> => (await server.metric('tidewire_tls_certificate_stale')) === 1;
    await eventually(isStale, 'the server detects a key that does not match');
    assert.equal(await shownNow(t, server), renewed.fingerprint, 'the server keeps the previous certificate');
    await server.prints(/is not the key of/);
    files.replace({ ...renewed, certificate: 'no certificate' });
    await server.prints(/has no certificate/);
    assert.equal((await server.get('/ready')).status, 200, 'the server continues');

    const last = certify();
    files.replace(last);
    await eventually(async () => (await shownNow(t, server)) === last.fingerprint, 'the last certificate is shown');
    assert.equal(await isStale(), false);
    clearInterval(load);
    await inbox.until((seen) => seen.includes(sent), DEADLINE_MS, 'the last event of the old connection');
    const numbers = inbox.seen.filter((data) => typeof data === 'number');
    assert.deepEqual(numbers, Array.from({ length: sent }, (_, i) => i + 1), 'nothing was lost');
  });
});
