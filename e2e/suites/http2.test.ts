// HTTP/2 on the TLS port: protocol negotiation, the whole HTTP API and many streams on one connection, names and origins, limits and
// timeouts, floods, and the stop of the server.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { constants, type ClientHttp2Session } from 'node:http2';
import { describe, test, type TestContext } from 'node:test';
import { connect as connectTls } from 'node:tls';
import { CertificateFiles, certify } from '../harness/certificate.ts';
import { atEnd } from '../harness/cleanup.ts';
import { connect, subscribed } from '../harness/client.ts';
import { url } from '../harness/http.ts';
import { FLAG, FRAME, Http2Peer, ask, frame, head, number32, openEvents, openSession } from '../harness/http2.ts';
import { fresh } from '../harness/names.ts';
import { Server, againstOriginal, type ServerOptions } from '../harness/server.ts';
import { DEADLINE_MS, eventually, isPending, within } from '../harness/wait.ts';

const { NGHTTP2_CANCEL, NGHTTP2_ENHANCE_YOUR_CALM, NGHTTP2_NO_ERROR } = constants;
/** Interval of the server's pings. Long, because a busy machine may delay the answer of a test. */
const PINGS_MS = 2_000;
const JSON_TYPE = { 'content-type': 'application/json' };
const emit = (eventName: string, data?: unknown): object => ({ topic: 'event', action: 'emit', eventName, data });

/** A server for this test, with TLS on a separate port. */
function secured(test: TestContext, options: ServerOptions = {}, http2?: boolean): Promise<Server> {
  const { certificate, key } = new CertificateFiles(test, certify());
  return Server.during(test, { tls: { certificate, key, http2 }, ...options });
}

/** Waits until the server has read all frames that were sent before. */
function taken(session: ClientHttp2Session): Promise<unknown> {
  const answered = new Promise<void>((done, fail) => {
    session.ping((error) => (error ? fail(error) : done()));
  });
  return within(DEADLINE_MS, answered, 'a ping is answered');
}

/** The protocol that a handshake negotiates, false without one, or undefined if the handshake fails. */
async function agreed(test: TestContext, server: Server, offered: string[] | undefined): Promise<string | false | undefined> {
  const options = { host: '127.0.0.1', port: server.tlsPort, rejectUnauthorized: false };
  const socket = connectTls({ ...options, ...(offered && { ALPNProtocols: offered }) });
  atEnd(test, () => void socket.destroy());
  const failed = once(socket, 'error').then(() => undefined);
  const opened = once(socket, 'secureConnect').then(() => socket.alpnProtocol ?? false);
  return within(DEADLINE_MS, Promise.race([opened, failed]), 'the end of the handshake');
}

/** Waits for the end of a session. Returns the codes of the GOAWAY frames that arrived before it. */
function goodbyes(session: ClientHttp2Session): Promise<number[]> {
  const codes: number[] = [];
  session.on('goaway', (code) => codes.push(code));
  return within(DEADLINE_MS, once(session, 'close').then(() => codes), 'the server ends the connection');
}

describe('http2', { skip: againstOriginal && 'the original server speaks no TLS', concurrency: 4 }, () => {
  test('it is negotiated if both sides support it', async (t) => {
    const [on, off] = [await secured(t), await secured(t, {}, false)];
    assert.equal(await agreed(t, on, ['http/1.1', 'h2']), 'h2');
    assert.equal(await agreed(t, on, ['h2']), 'h2');
    assert.equal(await agreed(t, on, ['http/1.1']), 'http/1.1');
    assert.equal(await agreed(t, on, undefined), false);
    assert.equal(await agreed(t, off, ['h2', 'http/1.1']), 'http/1.1');
    assert.equal(await agreed(t, off, ['h2']), undefined, 'without HTTP/2 the server refuses a client that offers only h2');
  });

  test('WebSocket clients share the port, with and without ALPN', async (t) => {
    const server = await secured(t);
    const session = await openSession(t, server);
    const through = `wss://${server.tlsAddress}`;
    for (const offer of [{}, { ALPNProtocols: ['http/1.1'] }]) {
      const client = await connect(t, server, { through, socketOptions: { rejectUnauthorized: false, ...offer } as never });
      const event = fresh('event');
      const inbox = await subscribed(client, event);
      const body = JSON.stringify({ body: [emit(event, 'over http/2')] });
      const answer = await ask(session, '/api', { method: 'POST', headers: JSON_TYPE, body });
      assert.equal(JSON.parse(answer.text).result, 'SUCCESS');
      assert.equal(await inbox.next(), 'over http/2');
    }
    const refused = await ask(session, '/deepstream');
    assert.deepEqual([refused.status, refused.text], [426, 'this path accepts only WebSocket clients\n']);
  });

  test('answers are the same as over HTTP/1.1', async (t) => {
    const server = await secured(t);
    const session = await openSession(t, server);
    // These headers may differ: the headers of the connection, the date, and the tag of another record. An empty stream needs no length.
    const own = ['connection', 'keep-alive', 'transfer-encoding', 'upgrade', 'date', 'etag', ':status'];
    const told = (headers: Iterable<[string, unknown]>): object => {
      const entries = [...headers].map(([name, value]) => [name, String(value).replaceAll('two', 'one')] as const);
      return Object.fromEntries(entries.filter(([name, value]) => !own.includes(name) && !(name === 'content-length' && value === '0')));
    };
    const same = async (method: string, path: (own: string) => string, headers = {}, body?: string): Promise<void> => {
      const clear = await fetch(url(server, path('one')), { method, headers, ...(body !== undefined && { body }) });
      const answer = await ask(session, path('two'), { method, headers, ...(body !== undefined && { body }) });
      const what = `${method} ${path('one')}`;
      assert.deepEqual(
        [answer.status, answer.text.replaceAll('two', 'one'), told(Object.entries(answer.headers))],
        [clear.status, await clear.text(), told(clear.headers)],
        what,
      );
      assert.equal(answer.headers.etag === undefined, clear.headers.get('etag') === null, what);
    };
    for (const path of ['/health', '/ready', '/openapi.json', '/nothing', '/api', '/sse', '/records/', '/api/auth']) {
      await same('GET', () => path);
      await same('HEAD', () => path);
      await same('OPTIONS', () => path);
      await same('DELETE', () => path);
    }
    const record = (own: string): string => `/records/${own}/a%20b`;
    await same('GET', record);
    await same('PUT', record, JSON_TYPE, '{"text":"a"}');
    await same('GET', record);
    await same('HEAD', record);
    await same('GET', record, { 'if-none-match': '*' });
    await same('PUT', record, { ...JSON_TYPE, 'if-none-match': '*' }, '{}');
    await same('PATCH', record, { 'content-type': 'application/merge-patch+json' }, '{"more":1}');
    await same('PATCH', record, { 'content-type': 'application/json-patch+json' }, '[{"op":"remove","path":"/more"}]');
    await same('DELETE', record);
    await same('POST', () => '/api', JSON_TYPE, '{"body":[{"topic":"presence","action":"query"}]}');
    await same('POST', () => '/api', JSON_TYPE, 'no json');
    await same('POST', () => '/api/auth', JSON_TYPE, '[]');
    const page = { origin: 'http://localhost:5173', 'access-control-request-method': 'PUT' };
    await same('OPTIONS', record, page);
  });

  test('a record has the same tag over both protocols', async (t) => {
    const server = await secured(t);
    const session = await openSession(t, server);
    const path = `/records/${fresh('record')}`;
    const made = await ask(session, path, { method: 'PUT', headers: JSON_TYPE, body: '{"a":1}' });
    assert.equal(made.status, 201);
    const tag = String(made.headers.etag);
    const clear = await fetch(url(server, path));
    assert.deepEqual([clear.headers.get('etag'), await clear.json()], [tag, { a: 1 }]);
    assert.equal((await ask(session, path, { headers: { 'if-none-match': tag } })).status, 304);
    const stale = { ...JSON_TYPE, 'if-match': '"other"' };
    assert.equal((await ask(session, path, { method: 'PUT', headers: stale, body: '{}' })).status, 412);
  });

  test('many streams share one connection with requests', async (t) => {
    const server = await secured(t);
    const session = await openSession(t, server);
    const [event, count] = [fresh('event'), 40];
    const accepted = await server.metric('tidewire_sockets_accepted_total');
    const streams = [];
    for (let i = 0; i < count; i += 1) {
      const stream = await openEvents(session, `/sse?event=${event}&record=${fresh('marker')}`);
      assert.equal(stream.status, 200);
      // The server subscribes to events before it reads records, so the subscription is active.
      assert.equal((await stream.pieces.next()).event, 'deleted');
      streams.push(stream);
    }
    const body = JSON.stringify({ body: [emit(event, 'to all')] });
    assert.equal((await ask(session, '/api', { method: 'POST', headers: JSON_TYPE, body })).status, 200);
    for (const { pieces } of streams) assert.deepEqual((await pieces.next()).data, { name: event, data: 'to all' });
    const others = (await server.metric('tidewire_sockets_accepted_total')) - accepted;
    // The test itself reads the metrics over HTTP/1.1.
    assert.ok(others <= 1, `${others} further connections`);
    assert.equal(await server.metric('tidewire_http2_connections_total'), 1);
    streams.forEach(({ close }) => close());
    await eventually(async () => (await server.metric('tidewire_http_sessions')) === 0, 'their sessions end');
  });

  test('a large body and a large answer pass through small flow-control windows', async (t) => {
    const server = await secured(t);
    const session = await openSession(t, server, { settings: { initialWindowSize: 1_000 } });
    const [path, text] = [`/records/${fresh('record')}`, 'x'.repeat(900_000)];
    const body = JSON.stringify({ text });
    assert.equal((await ask(session, path, { method: 'PUT', headers: JSON_TYPE, body })).status, 201);
    assert.equal((await ask(session, path)).text, body);
    const tooLarge = await ask(session, path, { method: 'PUT', headers: { ...JSON_TYPE, 'content-length': '2000000' }, body });
    assert.equal(tooLarge.status, 413);
  });

  test('the server checks the authority as the host, and the origins of pages', async (t) => {
    const server = await secured(t);
    const session = await openSession(t, server);
    const asked = async (headers: Record<string, string>): Promise<Array<number | string | undefined>> => {
      const { status, headers: answered } = await ask(session, '/openapi.json', { headers });
      return [status, answered['access-control-allow-origin']];
    };
    const own = server.tlsAddress;
    assert.deepEqual(await asked({}), [200, undefined]);
    assert.deepEqual(await asked({ ':authority': 'evil.example' }), [403, undefined]);
    assert.deepEqual(await asked({ ':authority': own, host: 'evil.example' }), [400, undefined]);
    assert.deepEqual(await asked({ ':authority': 'evil.example', host: own }), [400, undefined]);
    assert.deepEqual(await asked({ ':authority': `me@${own}` }), [400, undefined]);
    assert.deepEqual(await asked({ origin: 'https://evil.example' }), [403, undefined]);
    assert.deepEqual(await asked({ origin: 'https://localhost:1' }), [200, 'https://localhost:1']);
    const foreign = await openEvents(session, `/sse?event=${fresh('event')}`);
    assert.equal(foreign.status, 200);
    assert.equal(await server.metric('tidewire_origin_refusals_total'), 2);
  });

  test('an open loopback server refuses requests with a foreign authority', async (t) => {
    const server = await secured(t, { auth: { chain: ['open'] } });
    const session = await openSession(t, server);
    const refused = await ask(session, '/openapi.json', { headers: { ':authority': 'rebound.example' } });
    assert.deepEqual([refused.status, refused.text], [403, 'this host name is not allowed; see network.hosts\n']);
    assert.equal((await ask(session, '/openapi.json')).status, 200);
  });

  test('a trusted proxy gives the address of each request', async (t) => {
    const server = await secured(t, { trustedProxies: ['127.0.0.1'], logLevel: 'debug' });
    const session = await openSession(t, server);
    for (const address of ['192.0.2.7', '192.0.2.8']) {
      const headers = { 'x-forwarded-for': address, origin: 'https://evil.example' };
      assert.equal((await ask(session, '/sse?event=e&ticket=secret', { headers })).status, 403);
      await server.prints(new RegExp(`"peer":"${address.replaceAll('.', '\\.')}`));
    }
    assert.doesNotMatch(server.output, /secret|initial_window|frame=/, 'the log has neither queries nor frames');
  });

  test('the server limits streams and requests of a connection', async (t) => {
    const server = await secured(t, { http: { connection_streams_max: 7, connection_requests_max: 2 } });
    const session = await openSession(t, server);
    assert.equal(session.remoteSettings.maxConcurrentStreams, 7);
    // Two requests that do not send the bodies that they announce.
    const begun = [0, 1].map(() => {
      return session.request({ ':method': 'POST', ':path': '/api', ...JSON_TYPE }, { endStream: false });
    });
    await taken(session);
    const third = ask(session, '/health');
    await taken(session);
    assert.ok(await isPending(third), 'a third request waits');
    const stream = openEvents(session, '/sse?event=e');
    begun[0]?.end('{}');
    assert.equal((await third).status, 200);
    assert.equal((await stream).status, 200);
    begun[1]?.end('{}');
  });

  test('a head that is too large or does not arrive in time is refused', async (t) => {
    const server = await secured(t, { http: { head_timeout: '2s' } });
    const session = await openSession(t, server, { maxSendHeaderBlockLength: 100_000 } as object);
    const large = async (bytes: number): Promise<number> => (await ask(session, '/health', { headers: { large: 'x'.repeat(bytes) } })).status;
    const counted = (): Promise<number> => server.metric('tidewire_refused_requests_total{cause="large_head"}');
    assert.deepEqual([await large(20_000), await counted()], [431, 1]);
    // For a head of this size, the HTTP/2 library answers without the server, so the metric does not count it.
    assert.deepEqual([await large(70_000), await counted()], [431, 1]);
    assert.deepEqual([await large(15_000), await counted()], [200, 1], 'the connection continues');
    const ended = goodbyes(session);
    assert.deepEqual((await ended).slice(0, 1), [NGHTTP2_NO_ERROR], 'the server closes the idle connection');
    const silent = await Http2Peer.dial(t, server);
    const idle = await Http2Peer.open(t, server);
    const half = await Http2Peer.open(t, server);
    half.send(frame(FRAME.HEADERS, FLAG.END_STREAM, 1, head('/health')));
    await Promise.all([silent, idle, half].map((peer) => peer.goodbye()));
  });

  test('streams outlive the timeout of ordinary connections, and requests continue next to them', async (t) => {
    const server = await secured(t, { http: { connection_timeout: '2s' }, heartbeatIntervalMs: PINGS_MS });
    const session = await openSession(t, server);
    const { comments } = await openEvents(session, '/sse?event=e');
    assert.deepEqual(await comments.count(3), ['connected', ...Array(2).fill('keep-alive')]);
    assert.equal((await ask(session, '/health')).status, 200);
    const late = await openEvents(session, '/sse?event=e');
    assert.equal(late.status, 200);
  });

  test('answers that a client does not read end at the timeout of ordinary connections', async (t) => {
    const server = await secured(t, { http: { connection_timeout: '1s' } });
    const initialWindow = 4;
    const noWindow = Buffer.concat([Buffer.from([0, initialWindow]), number32(0)]);
    const peer = await Http2Peer.open(t, server, noWindow);
    const streams = [1, 3].map((id) => frame(FRAME.HEADERS, FLAG.END_STREAM | FLAG.END_HEADERS, id, head('/sse?event=e')));
    peer.send(...streams, frame(FRAME.HEADERS, FLAG.END_STREAM | FLAG.END_HEADERS, 5, head('/openapi.json')));
    assert.equal(await peer.goodbye(), NGHTTP2_NO_ERROR);
    await eventually(async () => (await server.metric('tidewire_http_sessions')) === 0, 'the streams end with the connection');
  });

  test('the server closes a connection that does not answer pings', async (t) => {
    const server = await secured(t, { heartbeatIntervalMs: PINGS_MS, http: { connection_timeout: '60s' } });
    const [silent, session] = [await Http2Peer.open(t, server), await openSession(t, server)];
    const { comments } = await openEvents(session, '/sse?event=e');
    silent.send(frame(FRAME.HEADERS, FLAG.END_STREAM | FLAG.END_HEADERS, 1, head('/sse?event=e')));
    await silent.frames.find(({ type, flags }) => type === FRAME.PING && flags === FLAG.NONE);
    await silent.goodbye();
    await eventually(async () => (await server.metric('tidewire_http_sessions')) === 1, 'the stream ends with the connection');
    await comments.count(comments.seen.length + 1);
    assert.equal((await ask(session, '/health')).status, 200, 'a client that answers stays connected');
  });

  test('HTTP/2 connections count toward the limit of their address', async (t) => {
    const server = await secured(t, { limits: { connections_per_address_max: 3 }, trustedProxies: ['127.0.0.0/31'] });
    // The unencrypted requests of the test come from a trusted proxy, whose sockets do not count.
    const from = { localAddress: '127.0.0.2' };
    const dial = async (): Promise<boolean> => {
      const socket = connectTls({ host: '127.0.0.1', port: server.tlsPort, rejectUnauthorized: false, ALPNProtocols: ['h2'], ...from } as never);
      atEnd(t, () => void socket.destroy());
      const opened = new Promise<boolean>((done) => socket.once('secureConnect', () => done(true)).on('error', () => done(false)));
      return within(DEADLINE_MS, opened, 'the end of the handshake');
    };
    const before = await server.metric('tidewire_address_refusals_total');
    assert.deepEqual([await dial(), await dial(), await dial()], [true, true, true]);
    assert.equal(await dial(), false);
    assert.equal(await server.metric('tidewire_address_refusals_total'), before + 1);
  });

  test('a stop sends GOAWAY and ends the streams', async (t) => {
    const server = await secured(t);
    const session = await openSession(t, server);
    const { pieces } = await openEvents(session, '/sse?event=e');
    const ended = goodbyes(session);
    await server.stop();
    assert.equal((await pieces.next()).event, 'end');
    assert.equal((await ended)[0], NGHTTP2_NO_ERROR);
  });

  test('the server answers floods with GOAWAY and counts them', async (t) => {
    const server = await secured(t);
    const stream = (id: number, flags: number): Buffer => frame(FRAME.HEADERS, flags, id, head('/health'));
    const whole = FLAG.END_STREAM | FLAG.END_HEADERS;
    const resets = (count: number): Buffer[] => {
      const ids = Array.from({ length: count }, (_, i) => 2 * i + 1);
      return ids.flatMap((id) => [stream(id, whole), frame(FRAME.RST_STREAM, FLAG.NONE, id, number32(NGHTTP2_CANCEL))]);
    };
    const continued = (count: number): Buffer[] => {
      const none = Array.from({ length: count }, () => frame(FRAME.CONTINUATION, FLAG.NONE, 1));
      return [stream(1, FLAG.END_STREAM), ...none];
    };
    const emptied = (count: number): Buffer[] => {
      const none = Array.from({ length: count }, () => frame(FRAME.DATA, FLAG.NONE, 1));
      return [frame(FRAME.HEADERS, FLAG.END_HEADERS, 1, head('/api', 'POST')), ...none];
    };
    const repeated = (type: number, payload: Uint8Array): Buffer[] => Array.from({ length: 3_000 }, () => frame(type, FLAG.NONE, 0, payload));
    const pings = repeated(FRAME.PING, Buffer.alloc(8));
    const unknown = repeated(FRAME.UNKNOWN, Buffer.alloc(3));
    const cases: Array<[flood: Buffer[], reason: number]> = [
      [resets(1_000), NGHTTP2_ENHANCE_YOUR_CALM],
      [continued(1_000), NGHTTP2_ENHANCE_YOUR_CALM],
      [emptied(20_000), NGHTTP2_ENHANCE_YOUR_CALM],
      [pings, NGHTTP2_NO_ERROR],
      [repeated(FRAME.SETTINGS, new Uint8Array()), NGHTTP2_NO_ERROR],
      [unknown, NGHTTP2_NO_ERROR],
      [repeated(FRAME.WINDOW_UPDATE, number32(1)), NGHTTP2_NO_ERROR],
      [repeated(FRAME.GOAWAY, Buffer.alloc(8)), NGHTTP2_NO_ERROR],
    ];
    let floods = 0;
    for (const [flood, reason] of cases) {
      const peer = await Http2Peer.open(t, server);
      peer.send(...flood);
      assert.equal(await peer.goodbye(), reason);
      floods += 1;
      await eventually(async () => (await server.metric('tidewire_http2_floods_total')) === floods, 'the flood is counted');
    }
    await server.prints(/its peer flooded it with resets or frames/);
    assert.equal((await server.get('/health')).status, 200);
  });

  test('requests that are cancelled one by one are a flood, too', async (t) => {
    const server = await secured(t);
    const peer = await Http2Peer.open(t, server);
    // Each request waits for its body.
    const [count, batch] = [300, 10];
    for (let first = 0; first < count; first += batch) {
      const ids = Array.from({ length: batch }, (_, i) => 2 * (first + i) + 1);
      const posts = ids.map((id) => frame(FRAME.HEADERS, FLAG.END_HEADERS, id, head('/api', 'POST')));
      peer.send(...posts, frame(FRAME.PING, FLAG.NONE, 0, Buffer.alloc(8)));
      const pongs = first / batch + 1;
      const isAnswered = peer.frames.until((seen) => seen.filter(({ type }) => type === FRAME.PING).length >= pongs);
      const isOver = await Promise.race([isAnswered.then(() => false), peer.closed.then(() => true)]);
      if (isOver) break;
      peer.send(...ids.map((id) => frame(FRAME.RST_STREAM, FLAG.NONE, id, number32(NGHTTP2_CANCEL))));
    }
    assert.equal(await peer.goodbye(), NGHTTP2_NO_ERROR);
    await eventually(async () => (await server.metric('tidewire_http2_floods_total')) === 1, 'the flood is counted');
  });
});
