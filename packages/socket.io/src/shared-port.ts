// The port of an http server of the app: requests and connections of the path of Socket.IO go to the Tidewire server, all others to the app.

import { request, type IncomingMessage, type RequestListener, type Server as PlainServer, type ServerResponse } from 'node:http';
import type { Http2SecureServer } from 'node:http2';
import type { Server as TlsServer } from 'node:https';
import { connect, isIPv6, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';

/** A server of `node:http`, `node:https` or `node:http2` with TLS, whose port the sockets share. */
export type HttpServer = PlainServer | TlsServer | Http2SecureServer;

/** Where a started Tidewire server listens. */
export interface Target {
  port: number;
}

/** The host of started servers. Nothing outside of this machine reaches them. */
export const HOST = '127.0.0.1';
/** Their path. */
const PATH = '/socket.io';
/** How long other code may take to answer an upgrade of another path, in milliseconds. */
const DESTROY_MS = 1_000;

/** Headers about one connection. `expect` is answered by Node, and `forwarded` is written here. */
const NOT_PASSED = new Set(['connection', 'expect', 'forwarded', 'http2-settings', 'keep-alive', 'proxy-connection', 'te', 'trailer', 'transfer-encoding']);

/** Whether a value is a server whose port can be shared. */
export function isHttpServer(value: unknown): value is HttpServer {
  const server = value as Partial<PlainServer> | undefined;
  return typeof server === 'object' && server !== null && typeof server.listen === 'function' && typeof server.on === 'function';
}

/**
 * Takes the requests and upgrades of `path` from `server`. `target` resolves when a Tidewire server is ready, and rejects if it is not possible.
 * A client whose connection or request fails here comes back by itself, as after any loss of its connection.
 */
export function sharePort(server: HttpServer, path: string, target: () => Promise<Target>): void {
  const isOwn = ({ url = '' }: IncomingMessage): boolean => url.startsWith(path) && /^[/?]|^$/.test(url.slice(path.length));
  const urlOf = ({ url = '' }: IncomingMessage): string => PATH + url.slice(path.length);
  // The listeners that the app has added before get the other requests, and no request of the path.
  const others = server.listeners('request') as RequestListener[];
  server.removeAllListeners('request');
  const onRequest = (incoming: IncomingMessage, outgoing: ServerResponse): void => {
    if (isOwn(incoming)) passRequest(incoming, outgoing, urlOf(incoming), target);
    else for (const other of others) other.call(server, incoming, outgoing);
  };
  const onUpgrade = (incoming: IncomingMessage, socket: Duplex, head: Buffer): void => {
    if (isOwn(incoming)) return passUpgrade(incoming, socket as Socket, head, urlOf(incoming), target);
    // Other code of the app may answer it. A connection that nothing answers would stay open for ever.
    setTimeout(() => {
      if (socket.writable && (socket as Socket).bytesWritten === 0) socket.end();
    }, DESTROY_MS).unref();
  };
  server.on('request', onRequest as RequestListener);
  server.on('upgrade', onUpgrade);
}

/** Passes a request of long polling on, and its answer back. */
function passRequest(incoming: IncomingMessage, outgoing: ServerResponse, path: string, target: () => Promise<Target>): void {
  const fail = (): void => {
    if (outgoing.headersSent) return void outgoing.destroy();
    outgoing.writeHead(503);
    outgoing.end();
  };
  target().then(({ port }) => {
    if (outgoing.destroyed) return;
    // Each request has its own connection: one that is kept could close while a request is written to it.
    const passed = request({ host: HOST, port, path, method: incoming.method ?? 'GET', agent: false, setHost: false });
    for (const [name, values] of headersOf(incoming)) passed.setHeader(name, values);
    passed.once('response', (answer) => {
      for (const [name, values] of grouped(answer.rawHeaders).values()) outgoing.setHeader(name, values);
      outgoing.writeHead(answer.statusCode ?? 502);
      answer.once('error', fail);
      answer.pipe(outgoing);
    });
    passed.once('error', fail);
    incoming.once('error', () => passed.destroy());
    outgoing.once('close', () => passed.destroy());
    incoming.pipe(passed);
  }, fail);
}

/** Passes a connection on: the request, the bytes that Node has read behind it, and everything that follows in both directions. */
function passUpgrade(incoming: IncomingMessage, socket: Socket, head: Buffer, path: string, target: () => Promise<Target>): void {
  socket.on('error', () => socket.destroy());
  target().then(
    ({ port }) => {
      if (socket.destroyed) return;
      const passed = connect({ host: HOST, port, noDelay: true });
      const lines = headersOf(incoming).flatMap(([name, values]) => values.map((value) => `${name}: ${value}`));
      lines.push('Connection: Upgrade');
      // Node reads header values as Latin-1.
      passed.write(`${incoming.method} ${path} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`, 'latin1');
      if (head.length > 0) passed.write(head);
      socket.setTimeout(0);
      socket.setNoDelay(true);
      for (const [one, other] of [[socket, passed], [passed, socket]] as const) {
        // After an error follows `close`. The last bytes, such as a close frame, may still wait for the other side.
        one.on('error', () => one.destroy());
        one.once('close', () => other.destroySoon());
        one.pipe(other);
      }
    },
    () => {
      socket.write('HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n');
      socket.destroySoon();
    },
  );
}

/** The headers of a request that are passed on, and the address and scheme of the client. */
function headersOf(incoming: IncomingMessage): Array<[string, string[]]> {
  const headers = grouped(incoming.rawHeaders);
  // HTTP/2 has the host in a field that is not a header.
  const authority = incoming.headers[':authority'];
  if (typeof authority === 'string') headers.set('host', ['Host', [authority]]);
  const { remoteAddress = HOST } = incoming.socket;
  const address = remoteAddress.replace(/^::ffff:/, '');
  const from = isIPv6(address) ? `"[${address}]"` : address;
  headers.set('forwarded', ['Forwarded', [`for=${from};proto=${(incoming.socket as TLSSocket).encrypted ? 'https' : 'http'}`]]);
  return [...headers.values()];
}

/** The raw headers of Node that are passed on: each as it was written, with its values, by its name in lower case. */
function grouped(raw: readonly string[]): Map<string, [string, string[]]> {
  const headers = new Map<string, [string, string[]]>();
  for (let index = 0; index < raw.length; index += 2) {
    const [name = '', value = ''] = raw.slice(index, index + 2);
    const key = name.toLowerCase();
    if (NOT_PASSED.has(key) || name.startsWith(':')) continue;
    const known = headers.get(key);
    if (known) known[1].push(value);
    else headers.set(key, [name, [value]]);
  }
  return headers;
}
