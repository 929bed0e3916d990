// Streams whose clients do not read when a right is lost: after the acknowledgement of the change, the server passes no more bytes to the
// kernel, no matter how much hyper, h2 and TLS have buffered.

import assert from 'node:assert/strict';
import type { EventEmitter } from 'node:events';
import { connect as connectSession } from 'node:http2';
import { connect as connectSocket, type Socket } from 'node:net';
import { describe, test, type TestContext } from 'node:test';
import { connect as connectTls } from 'node:tls';
import { admin, startWithAdmin, tokenOf } from '../harness/admin.ts';
import { CertificateFiles, certify } from '../harness/certificate.ts';
import { atEnd } from '../harness/cleanup.ts';
import { command } from '../harness/http.ts';
import { Proxy } from '../harness/proxy.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';

/** An open stream through a proxy. */
interface Reader {
  /** The received text, with its heads. */
  text: () => string;
  /** Stops reading until `readOn`. */
  stall: () => void;
  readOn: () => void;
  /** Resolves when the connection has ended. */
  closed: Promise<unknown>;
}

/** The protocol of a stream, and the point where it stops when its client does not read. */
interface Way {
  name: string;
  isEncrypted: boolean;
  open: (t: TestContext, proxy: Proxy, path: string, token: string) => Promise<Reader>;
}

const LIMITS = { outbox_bytes_max: 1 << 20, outbox_lagging_bytes: 64 << 10, outbox_drained_bytes: 16 << 10 };
/** Several of these exceed the kernels' buffers. */
const PIECE = 'x'.repeat(100_000);

/** Resolves at the end of a connection, also after an error: the server may reset a connection that it ends. */
function closeOf(connection: EventEmitter): Promise<unknown> {
  return new Promise((done) => void connection.once('close', done));
}

/** A stream over HTTP/1.1 on a socket from `dial`. */
function http1(name: string, isEncrypted: boolean, dial: (proxy: Proxy) => Socket): Way {
  const open = async (t: TestContext, proxy: Proxy, path: string, token: string): Promise<Reader> => {
    const socket = dial(proxy);
    atEnd(t, () => void socket.destroy());
    socket.on('error', () => socket.destroy());
    let text = '';
    socket.on('data', (bytes) => (text += bytes.toString('latin1')));
    socket.write(`GET ${path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ${token}\r\n\r\n`);
    return { text: () => text, stall: () => proxy.stall(), readOn: () => proxy.readOn(), closed: closeOf(socket) };
  };
  return { name, isEncrypted, open };
}

/** A stream over HTTP/2. The client's socket does not read or, if `isStreamOnly`, only the stream. */
function http2(name: string, isStreamOnly: boolean): Way {
  const open = async (t: TestContext, proxy: Proxy, path: string, token: string): Promise<Reader> => {
    const session = connectSession(`https://${proxy.address}`, { rejectUnauthorized: false });
    atEnd(t, () => session.destroy());
    session.on('error', () => {});
    const stream = session.request({ ':path': path, authorization: `Bearer ${token}` });
    stream.on('error', () => {});
    let text = '';
    stream.on('data', (bytes: Buffer) => (text += bytes.toString('latin1')));
    const [stall, readOn] = isStreamOnly
      ? [() => void stream.pause(), () => void stream.resume()]
      : [() => proxy.stall(), () => proxy.readOn()];
    return { text: () => text, stall, readOn, closed: closeOf(session) };
  };
  return { name, isEncrypted: true, open };
}

const WAYS: Way[] = [
  http1('http/1.1', false, ({ address }) => connectSocket(Number(address.split(':')[1]), '127.0.0.1')),
  http1('http/1.1 over TLS', true, ({ address }) => {
    return connectTls({ host: '127.0.0.1', port: Number(address.split(':')[1]), rejectUnauthorized: false });
  }),
  http2('http/2 with a stalled socket', false),
  http2('http/2 with a stalled stream', true),
];

/** Rules that allow everything. If `isRefused`, they deny subscriptions to names that begin with `secret/`. */
function rules(isRefused: boolean): string {
  const right = isRefused ? "!name.startsWith('secret/')" : true;
  return JSON.stringify({
    presence: { '*': { allow: true } },
    record: { '*': { create: true, write: true, delete: true, listen: true, notify: true, read: right } },
    event: { '*': { publish: true, listen: true, subscribe: right } },
    rpc: { '*': { provide: true, request: true } },
  });
}

describe('streams that are not read', { concurrency: 4, skip: againstOriginal }, () => {
  /** A server with a stream of alice that has bytes waiting at every stage between the shard and the kernel. */
  async function stalled(t: TestContext, { isEncrypted, open }: Way): Promise<[Server, Proxy, Reader]> {
    const { certificate, key } = new CertificateFiles(t, certify());
    const server = await startWithAdmin(t, { permissions: rules(false), limits: LIMITS, tls: { certificate, key } });
    const proxy = await Proxy.during(t, server, isEncrypted ? server.tlsPort : server.port);
    const reader = await open(t, proxy, '/sse?event=secret/e&record=open/r', tokenOf(server, 'alice'));
    await eventually(() => reader.text().includes('deleted'), 'the stream is open');
    reader.stall();
    const bob = { token: tokenOf(server, 'bob') };
    await eventually(async () => {
      await command(server, { topic: 'event', action: 'emit', eventName: 'secret/e', data: PIECE }, bob);
      return (await server.metric('tidewire_lag_skipped_events_total')) > 3;
    }, 'the stream lags');
    return [server, proxy, reader];
  }

  /** Reads again after an acknowledged change, and asserts that no further bytes arrive. */
  async function getsNothingMore(server: Server, proxy: Proxy, reader: Reader): Promise<void> {
    const sent = proxy.sentBytes;
    const bob = { token: tokenOf(server, 'bob') };
    await command(server, { topic: 'event', action: 'emit', eventName: 'secret/e', data: 'too late' }, bob);
    reader.readOn();
    await within(DEADLINE_MS, reader.closed, 'the connection ends');
    assert.ok(proxy.readBytes <= sent, `${proxy.readBytes - sent} bytes arrived that the kernel did not have`);
    assert.doesNotMatch(reader.text(), /too late|event: (gap|end|refused)/);
    await eventually(async () => (await server.metric('tidewire_http_sessions')) === 0, 'the session has ended');
  }

  for (const way of WAYS) {
    test(`a change of rules: ${way.name}`, async (t) => {
      const [server, proxy, reader] = await stalled(t, way);
      server.setPermissions(rules(true));
      server.hangUp();
      await eventually(async () => (await server.metric('tidewire_rules_reloads_total')) === 1, 'the new rules are in force');
      assert.equal(await server.metric('tidewire_rights_cuts_total'), 1);
      await getsNothingMore(server, proxy, reader);
    });

    test(`a revocation: ${way.name}`, async (t) => {
      const [server, proxy, reader] = await stalled(t, way);
      assert.equal((await admin(server, 'POST', '/revocations', { user: 'alice' }))[0], 201);
      await getsNothingMore(server, proxy, reader);
    });
  }

  test('a slow reader that keeps its rights finally receives the newest value', async (t) => {
    for (const way of WAYS) {
      const [server, , reader] = await stalled(t, way);
      const bob = { token: tokenOf(server, 'bob') };
      await command(server, { topic: 'record', action: 'write', recordName: 'open/r', data: { last: true } }, bob);
      const other = rules(true).replaceAll('secret', 'other');
      server.setPermissions(other);
      server.hangUp();
      await eventually(async () => (await server.metric('tidewire_rules_reloads_total')) === 1, 'the new rules are in force');
      reader.readOn();
      await eventually(() => reader.text().includes('"last":true') && reader.text().includes('event: gap'), 'the stream reports the gap and the newest value');
      assert.equal(await server.metric('tidewire_rights_cuts_total'), 0);
    }
  });
});
