// The server behind nginx and haproxy, in an operator's configuration: the client address that the server detects, connections that are
// silent for longer than the proxies' timeouts, a path prefix, and a reload of the proxy.

import assert from 'node:assert/strict';
import { get, type IncomingMessage, type RequestOptions } from 'node:http';
import { describe, test, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { C, connect, inState, subscribed, type TestClient } from '../harness/client.ts';
import { openStream, type EventStream } from '../harness/event-stream.ts';
import { fresh } from '../harness/names.ts';
import { Server, type ServerOptions } from '../harness/server.ts';
import { haproxyDuring, nginxDuring, type ReverseProxy } from './reverse-proxy.ts';

/** nginx and haproxy close a connection that was silent for 60 s. */
const SILENCE_MS = 63_000;
/** The source address of a client, different from the proxy's. */
const CLIENT_ADDRESS = '127.0.0.77';
const EVENT = 'streamed';
const TRUSTING: ServerOptions = { trustedProxies: ['127.0.0.1'] };

/** The lines of the documents for a server behind nginx, with nginx's default timeouts. */
const nginxLocation = (server: Server, path = '/', target = ''): string => `
  location ${path} {
    proxy_pass http://${server.address}${target};
    proxy_http_version 1.1;
    proxy_set_header Host $http_host;
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header Connection "upgrade";
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
  }`;

const nginx = (t: TestContext, server: Server): Promise<ReverseProxy> => nginxDuring(t, nginxLocation(server));

const haproxy = (t: TestContext, server: Server): Promise<ReverseProxy> => {
  return haproxyDuring(t, `  option forwardfor\n  server one ${server.address}`);
};

const KINDS = [
  { name: 'nginx', options: TRUSTING, start: nginx },
  { name: 'haproxy', options: TRUSTING, start: haproxy },
  {
    name: 'haproxy with the PROXY protocol, version 1',
    options: { ...TRUSTING, proxyProtocol: true },
    start: (t: TestContext, server: Server) => haproxyDuring(t, `  server one ${server.address} send-proxy`),
  },
  {
    name: 'haproxy with the PROXY protocol, version 2',
    options: { ...TRUSTING, proxyProtocol: true },
    start: (t: TestContext, server: Server) => haproxyDuring(t, `  server one ${server.address} send-proxy-v2`),
  },
];

/** A GET request from the source address `from`. */
function request(address: string, from: string, headers: RequestOptions['headers']): Promise<IncomingMessage> {
  const [host, port] = address.split(':');
  return new Promise((done, failed) => {
    const options = { host, port, path: '/nothing', localAddress: from, headers, agent: false };
    get(options, (answer) => (answer.resume(), done(answer))).once('error', failed);
  });
}

/** Checks that both clients receive each other's events. */
async function shares(client: TestClient, other: TestClient): Promise<void> {
  const event = fresh('event');
  const inbox = await subscribed(client, event);
  const number = Math.random();
  other.event.emit(event, number);
  assert.equal(await inbox.next(), number);
}

/** An open stream that has delivered its record. */
async function streamThrough(t: TestContext, address: string): Promise<EventStream> {
  const stream = await openStream(t, `http://${address}/sse?event=${EVENT}&record=${fresh('record')}`);
  assert.equal(stream.answer.status, 200);
  assert.equal(await stream.comments.next(), 'connected');
  assert.equal((await stream.pieces.next()).event, 'deleted');
  return stream;
}

/** Checks that a small event arrives although no other data follows. */
async function tells(client: TestClient, stream: EventStream): Promise<void> {
  const data = Math.random();
  client.event.emit(EVENT, data);
  assert.deepEqual((await stream.pieces.next()).data, { name: EVENT, data });
}

// All tests wait for the same minute.
describe('behind proxies', { concurrency: 6 }, () => {
  for (const { name, options, start } of KINDS) {
    test(`${name}: the log has the address of the client, whatever headers it sends`, async (t) => {
      const server = await Server.during(t, options);
      const proxy = await start(t, server);
      const headers = { origin: 'https://foreign.example', 'x-forwarded-for': '192.0.2.66', forwarded: 'for=192.0.2.66' };
      const { statusCode } = await request(proxy.address, CLIENT_ADDRESS, headers);
      assert.equal(statusCode, 403);
      await server.prints(new RegExp(`page refused.*${CLIENT_ADDRESS}`));
    });

    test(`${name}: clients are counted at their own address`, async (t) => {
      const server = await Server.during(t, { ...options, limits: { connections_per_address_max: 1 } });
      const proxy = await start(t, server);
      const from = (localAddress: string) => ({ through: proxy.address, socketOptions: { localAddress } as never });
      const first = await connect(t, server, from('127.0.0.70'));
      const second = await connect(t, server, from('127.0.0.71'));
      await shares(first, second);
      const third = await connect(t, server, { ...from('127.0.0.71'), login: false, lazyConnect: true, errors: ['CONNECTION_ERROR'] });
      void third.login().catch(() => {});
      await server.prints(/connection refused: limits.connections_per_address_max is reached.*127\.0\.0\.71/);
      assert.equal(third.getConnectionState() === C.CONNECTION_STATE.OPEN, false);
    });

    test(`${name}: a connection that is silent for longer than the proxy waits stays open`, async (t) => {
      const server = await Server.during(t, options);
      const proxy = await start(t, server);
      const client = await connect(t, server, { through: proxy.address });
      const stream = await streamThrough(t, proxy.address);
      let isLost = false;
      client.on('connectionStateChanged', () => (isLost = true));
      // The test shows that nothing happens in this time.
      await pause(SILENCE_MS);
      assert.equal(isLost, false);
      await shares(client, client);
      await tells(client, stream);
    });

    test(`${name}: server-sent events come one by one, as they happen`, async (t) => {
      const server = await Server.during(t, options);
      const proxy = await start(t, server);
      const client = await connect(t, server, { through: proxy.address });
      const stream = await streamThrough(t, proxy.address);
      for (let count = 0; count < 3; count += 1) await tells(client, stream);
    });

    test(`${name}: a reload loses no client, and new clients connect`, async (t) => {
      const server = await Server.during(t, options);
      const proxy = await start(t, server);
      const early = await connect(t, server, { through: proxy.address });
      await proxy.reload();
      const late = await connect(t, server, { through: proxy.address });
      await inState(early, C.CONNECTION_STATE.OPEN);
      await shares(early, late);
      await shares(late, early);
    });
  }

  test('pages work below a path prefix of the proxy, and WebSockets at the path that the proxy maps', async (t) => {
    const server = await Server.during(t, TRUSTING);
    // The client removes slashes from longer paths, so its path has one part.
    const locations = nginxLocation(server, '/live/', '/') + nginxLocation(server, '/socket', '/deepstream');
    const proxy = await nginxDuring(t, locations);
    const client = await connect(t, server, { through: `${proxy.address}/socket` });
    await shares(client, client);
    assert.equal((await fetch(`http://${proxy.address}/live/health`)).status, 200);
    await tells(client, await streamThrough(t, `${proxy.address}/live`));
  });

  test('no other address is trusted, and a server without the option trusts none', async (t) => {
    for (const options of [{ trustedProxies: ['127.0.0.2'] }, {}]) {
      const server = await Server.during(t, options);
      const headers = { origin: 'https://foreign.example', 'x-forwarded-for': '192.0.2.66' };
      await request(server.address, CLIENT_ADDRESS, headers);
      await server.prints(new RegExp(`page refused.*${CLIENT_ADDRESS}`));
    }
  });
});
