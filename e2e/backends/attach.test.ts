// Apps whose sockets share the port of their http server, on `socket.io` and on `@tidewire/socket.io`.

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http';
import { createSecureServer } from 'node:http2';
import { createServer as createTlsServer } from 'node:https';
import { connect as connectTcp } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { Server as Tidewire } from '@tidewire/socket.io';
import { Server as Reference } from 'socket.io';
import { io as connect, type Socket } from 'socket.io-client';
import { WebSocket } from 'ws';
import { certify } from '../harness/certificate.ts';
import { atEnd } from '../harness/cleanup.ts';
import { binary } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, happens, within } from '../harness/wait.ts';
import { TRANSPORTS } from './backends.ts';

type HttpServer = ConstructorParameters<typeof Tidewire>[0] & ReturnType<typeof createServer>;

/** The largest text of a test. Both packages refuse messages of a megabyte by default. */
const LONG = 'x'.repeat(500_000);
const PACKAGES = ['socket.io', '@tidewire/socket.io'] as const;

interface App {
  http: HttpServer;
  io: Reference;
  port: number;
  /** The paths of the app's own requests. */
  requests: Inbox<string>;
  errors: Inbox<Error>;
}

function answer(requests: Inbox<string>): RequestListener {
  return (incoming: IncomingMessage, outgoing: ServerResponse) => {
    requests.push(incoming.url ?? '');
    outgoing.end('of the app');
  };
}

/** The options of an app on one of the packages, and how it gets its port. */
interface Start {
  options?: object;
  attach?: (io: Reference, http: HttpServer) => unknown;
}

type Package = (typeof PACKAGES)[number];

/** An app that answers requests and has sockets on one port. */
async function start(t: TestContext, name: Package, http: HttpServer, requests: Inbox<string>, { options = {}, attach }: Start = {}): Promise<App> {
  const errors = new Inbox<Error>('errors');
  const own = { program: binary(), dataFolder: dataFolder(t) };
  const given = name === 'socket.io' ? options : { ...own, ...options };
  const make = (name === 'socket.io' ? Reference : Tidewire) as typeof Reference;
  const io = attach ? new make(given) : new make(http, given);
  attach?.(io, http);
  atEnd(t, () => io.close());
  const tidewire = name === 'socket.io' ? undefined : (io as unknown as Tidewire);
  tidewire?.on('error', errors.push);
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
  if (tidewire) await within(DEADLINE_MS, tidewire.ready, 'the server is ready');
  io.on('connection', (socket) => {
    socket.on('echo', (value: unknown, done: (value: unknown) => void) => done(value));
    socket.on('who', (done: (value: unknown) => void) => {
      const { address, secure, headers, url } = socket.handshake;
      done([address, secure, headers['host'], headers['x-test'], url.split('?')[0]]);
    });
  });
  return { http, io, port: (http.address() as { port: number }).port, requests, errors };
}

function dataFolder(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-attach-'));
  atEnd(t, () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

function client(t: TestContext, app: App, options: object = {}, scheme = 'http'): Socket {
  const socket = connect(`${scheme}://127.0.0.1:${app.port}`, { forceNew: true, reconnectionDelay: 50, reconnectionDelayMax: 200, rejectUnauthorized: false, ...options });
  atEnd(t, () => void socket.disconnect());
  return socket;
}

/** The only child of this process that runs the program of the server. */
function programOf(): number {
  const children = readFileSync(`/proc/${process.pid}/task/${process.pid}/children`, 'utf8').trim().split(' ');
  const found = children.filter((pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').startsWith(binary()));
  assert.equal(found.length, 1, 'one server runs');
  return Number(found[0]);
}

/** The same program on both packages. */
const SCENARIOS: Record<string, (t: TestContext, name: Package) => Promise<void>> = {
  'sockets and requests share a port': async (t, name) => {
    const requests = new Inbox<string>('requests');
    const attach = (io: Reference, http: HttpServer): unknown => io.attach(http);
    const app = await start(t, name, createServer(answer(requests)), requests, { attach });
    assert.equal(app.io.httpServer, app.http);
    for (const transports of TRANSPORTS) {
      // A proxy in front of the app passes the host of the page on. The client sets it for WebSockets only.
      const host = transports[0] === 'websocket' ? 'app.example.com:8080' : `127.0.0.1:${app.port}`;
      const socket = client(t, app, { transports, extraHeaders: { Host: host, Origin: `http://${host}`, 'X-Test': 'a, b', 'X-Forwarded-Proto': 'https', Forwarded: 'for=10.0.0.1;proto=https' } });
      await happens(socket, 'connect');
      await eventually(() => socket.io.engine.transport.name === transports.at(-1), 'the last transport is in use');
      assert.deepEqual(await socket.emitWithAck('who'), ['127.0.0.1', false, host, 'a, b', '/socket.io/']);
      for (const value of [1, LONG, Buffer.alloc(100_000, 7)]) assert.deepEqual(await socket.emitWithAck('echo', value), value);
      const fetched = await fetch(`http://127.0.0.1:${app.port}/of?the=app`);
      assert.equal(await fetched.text(), 'of the app');
    }
    // The app's own listener gets its own requests only.
    assert.deepEqual(requests.seen, TRANSPORTS.map(() => '/of?the=app'));
    assert.equal(app.io.engine.clientsCount, TRANSPORTS.length);
    const count = await new Promise<number>((resolve) => app.http.getConnections((_error, number) => resolve(number)));
    assert.ok(count >= TRANSPORTS.length, `${count} connections`);
    const left = client(t, app, { transports: ['websocket'], reconnection: false });
    await happens(left, 'connect');
    const gone = happens(left, 'disconnect');
    const closed = happens(app.http, 'close');
    await app.io.close();
    await Promise.all([gone, closed]);
    assert.equal(app.http.listening, false);
  },

  'another path, and upgrades of other code': async (t, name) => {
    const requests = new Inbox<string>('requests');
    const http = createServer(answer(requests));
    http.on('upgrade', (incoming: IncomingMessage, socket) => {
      if (incoming.url === '/other') socket.end('HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: Upgrade\r\n\r\nhello');
    });
    const app = await start(t, name, http, requests, { options: { path: '/live' }, attach: (io, server) => io.listen(server) });
    assert.equal(app.io.path(), '/live');
    for (const transports of TRANSPORTS) {
      const socket = client(t, app, { transports, path: '/live' });
      await happens(socket, 'connect');
      assert.equal(await socket.emitWithAck('echo', 1), 1);
    }
    const upgrade = async (path: string): Promise<string> => {
      const socket = connectTcp(app.port, '127.0.0.1');
      atEnd(t, () => void socket.destroy());
      let text = '';
      socket.setEncoding('utf8').on('data', (part: string) => (text += part));
      socket.write(`GET ${path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n`);
      await happens(socket, 'end');
      return text;
    };
    assert.match(await upgrade('/other'), /hello$/);
    assert.equal(await upgrade('/socket.io/'), '', 'an upgrade that no code answers is closed');
    assert.equal((await fetch(`http://127.0.0.1:${app.port}/socket.io/`)).status, 200, 'the app has the default path');
    assert.deepEqual(requests.seen, ['/socket.io/']);
  },

  'options of the server': async (t, name) => {
    const requests = new Inbox<string>('requests');
    const options = { pingInterval: 300, pingTimeout: 200, maxHttpBufferSize: 1_000, connectTimeout: 700, cors: { origin: ['https://page.example.com'] } };
    const app = await start(t, name, createServer(answer(requests)), requests, { options });
    const socket = client(t, app, { transports: ['websocket'], reconnection: false, extraHeaders: { Origin: 'https://page.example.com' } });
    const pings = new Inbox<undefined>('pings');
    socket.io.on('ping', () => pings.push(undefined));
    type Handshake = { pingInterval: number; pingTimeout: number; maxPayload: number };
    const handshake = await within(DEADLINE_MS, new Promise<Handshake>((resolve) => socket.io.engine.once('handshake', resolve)), 'the handshake');
    assert.deepEqual([handshake.pingInterval, handshake.pingTimeout, handshake.maxPayload], [300, 200, 1_000]);
    await happens(socket, 'connect');
    await pings.count(2);
    const ended = happens(socket, 'disconnect');
    socket.emit('echo', LONG, () => undefined);
    await ended;
    // A connection that joins no namespace.
    const silent = new WebSocket(`ws://127.0.0.1:${app.port}/socket.io/?EIO=4&transport=websocket`);
    silent.on('message', (data) => String(data) === '2' && silent.send('3'));
    await happens(silent, 'close');
    const polled = await fetch(`http://127.0.0.1:${app.port}/socket.io/?EIO=4&transport=polling`, { headers: { Origin: 'https://page.example.com' } });
    assert.equal(polled.headers.get('access-control-allow-origin'), 'https://page.example.com');
  },
};

for (const protocol of ['https', 'http2']) {
  SCENARIOS[`sockets share a port of ${protocol}`] = async (t, name) => {
    const { certificate: cert, key } = certify();
    const secrets = { cert, key };
    const requests = new Inbox<string>('requests');
    const listener = answer(requests);
    const http = protocol === 'https' ? createTlsServer(secrets, listener) : createSecureServer({ ...secrets, allowHTTP1: true }, listener as never);
    const app = await start(t, name, http as unknown as HttpServer, requests);
    for (const transports of TRANSPORTS) {
      const socket = client(t, app, { transports, extraHeaders: { Origin: `https://127.0.0.1:${app.port}` } }, 'https');
      await happens(socket, 'connect');
      assert.deepEqual(((await socket.emitWithAck('who')) as unknown[]).slice(0, 2), ['127.0.0.1', true]);
      assert.equal(await socket.emitWithAck('echo', LONG), LONG);
    }
  };
}

for (const name of PACKAGES) {
  for (const [what, scenario] of Object.entries(SCENARIOS)) test(`${what}: ${name}`, (t) => scenario(t, name));
}

test('clients come back after a kill of the server that the app has started', async (t) => {
  const requests = new Inbox<string>('requests');
  const app = await start(t, '@tidewire/socket.io', createServer(answer(requests)), requests);
  const sockets = TRANSPORTS.map((transports) => client(t, app, { transports }));
  await Promise.all(sockets.map((socket) => happens(socket, 'connect')));
  const first = programOf();
  const lost = sockets.map((socket) => happens(socket, 'disconnect'));
  const back = sockets.map((socket) => happens(socket, 'connect'));
  process.kill(first, 'SIGKILL');
  await Promise.all(lost);
  assert.match((await app.errors.next()).message, /the server has ended with SIGKILL/);
  assert.equal(await (await fetch(`http://127.0.0.1:${app.port}/`)).text(), 'of the app');
  await Promise.all(back);
  for (const socket of sockets) assert.equal(await socket.emitWithAck('echo', 1), 1);
  assert.notEqual(programOf(), first);
  await eventually(() => app.io.engine.clientsCount === sockets.length, 'the app has the sockets');
});

test('an app whose server can not be started answers with 503', async (t) => {
  const http = createServer((_incoming, outgoing) => outgoing.end('of the app'));
  const io = new Tidewire(http, { program: '/no/such/program' });
  const errors = new Inbox<Error>('errors');
  io.on('error', errors.push);
  atEnd(t, () => io.close());
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
  await assert.rejects(io.ready, /no\/such\/program can't be started/);
  assert.equal((await errors.next()).message.includes('/no/such/program'), true);
  const { port } = http.address() as { port: number };
  assert.equal((await fetch(`http://127.0.0.1:${port}/socket.io/?EIO=4&transport=polling`)).status, 503);
  // A client that does not close by itself.
  const socket = connectTcp({ port, host: '127.0.0.1', allowHalfOpen: true });
  socket.once('end', () => socket.end());
  socket.setEncoding('utf8').write('GET /socket.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
  const closed = happens(socket, 'close');
  assert.match(String(await happens(socket, 'data')), /^HTTP\/1\.1 503 /);
  await closed;
});

test('a server is attached once, to a port or an http server', async (t) => {
  const http = createServer();
  const io = new Tidewire({ program: binary(), dataFolder: dataFolder(t) });
  atEnd(t, () => io.close());
  assert.throws(() => io.httpServer, /@tidewire\/socket\.io does not have io\.httpServer/);
  assert.throws(() => io.attach('4000' as never), /does not have servers of other kinds; use a port/);
  assert.equal(io.attach(http), io);
  assert.equal(io.httpServer, http);
  assert.throws(() => io.listen(3000), /attached already/);
  await within(DEADLINE_MS, io.ready, 'the server is ready');
  assert.throws(() => new Tidewire(3000, { path: '/other' }), /another one needs new Server\(httpServer\)/);
  // As in `socket.io`: the http server that is closed does not listen.
  await new Promise<void>((resolve) => void io.close((error) => (assert.match(String(error), /Server is not running/), resolve())));
});
