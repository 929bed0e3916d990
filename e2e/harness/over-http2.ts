// Replaces `fetch` by HTTP/2: all requests to a server use one connection to its TLS port. A program that imports this before a suite
// repeats the suite over HTTP/2.

import { connect, constants, type ClientHttp2Session, type ClientHttp2Stream, type IncomingHttpHeaders, type OutgoingHttpHeaders } from 'node:http2';
import { againstOriginal, encrypted } from './server.ts';

/** Headers that HTTP/2 does not allow. */
const OF_CONNECTIONS = ['connection', 'host', 'keep-alive', 'transfer-encoding'];
/** Statuses of responses without a body. */
const BARE = [204, 304];

const sessions = new Map<string, ClientHttp2Session>();
const plainFetch = globalThis.fetch;

encrypted.isWanted = !againstOriginal;
globalThis.fetch = async (input, init = {}) => {
  const address = new URL(String(input));
  const port = encrypted.ports.get(Number(address.port));
  if (port === undefined) return plainFetch(input, init);
  const request = new Request(address, init);
  const headers: OutgoingHttpHeaders = { ':method': request.method, ':path': `${address.pathname}${address.search}`, ':authority': address.host };
  for (const [name, value] of request.headers) if (!OF_CONNECTIONS.includes(name)) headers[name] = value;
  const body = request.body === null ? undefined : Buffer.from(await request.arrayBuffer());
  if (body !== undefined) headers['content-length'] = body.length;
  const stream = sessionOf(`https://127.0.0.1:${port}`).request(headers, { endStream: body === undefined, signal: request.signal });
  const answered = new Promise<IncomingHttpHeaders>((done, fail) => {
    stream.once('response', done);
    stream.on('error', fail);
    stream.once('close', () => fail(new TypeError('fetch failed: the stream was reset')));
  });
  if (body !== undefined) stream.end(body);
  const head = await answered;
  const status = Number(head[':status']);
  const own = Object.entries(head).filter(([name]) => !name.startsWith(':'));
  const isBare = request.method === 'HEAD' || BARE.includes(status);
  if (isBare) stream.resume();
  return new Response(isBare ? null : bodyOf(stream), { status, headers: own.map(([name, value]) => [name, String(value)]) });
};

/** The body, streamed as it arrives. If the server does not need the rest of a request, it ends the stream after its response. */
function bodyOf(stream: ClientHttp2Stream): ReadableStream<Uint8Array> {
  return new ReadableStream({
    start(body) {
      let isOver = false;
      const end = (error?: Error): void => {
        if (isOver) return;
        isOver = true;
        if (error) body.error(error);
        else body.close();
      };
      stream.on('data', (bytes: Buffer) => isOver || body.enqueue(new Uint8Array(bytes)));
      stream.once('end', () => end());
      stream.once('error', end);
      stream.once('close', () => end(stream.rstCode === constants.NGHTTP2_NO_ERROR ? undefined : new TypeError(`reset with ${stream.rstCode}`)));
    },
    cancel() {
      stream.close(constants.NGHTTP2_CANCEL);
    },
  });
}

/** The open session with a server; opens a new one after a GOAWAY. */
function sessionOf(origin: string): ClientHttp2Session {
  const known = sessions.get(origin);
  if (known && !known.closed && !known.destroyed) return known;
  const session = connect(origin, { rejectUnauthorized: false });
  session.on('error', () => {});
  session.on('goaway', () => sessions.delete(origin));
  // The connection must not keep the process alive after the tests.
  session.unref();
  sessions.set(origin, session);
  return session;
}
