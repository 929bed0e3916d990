// A proxy between a browser and the server that changes request headers, so that the server seems to lack some of its checks.

import { createServer, request as ask, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import type { TestContext } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import type { Server } from '../harness/server.ts';

export class Unguarded {
  private constructor(
    readonly address: string,
    /** The status of the one response, and its error code; the code is empty without an error. */
    readonly answer: Promise<[status: number, code: string]>,
  ) {}

  /** Sets `headers` in each request, and removes headers that are undefined. */
  static async during(test: TestContext, server: Server, headers: Record<string, string | undefined> = {}): Promise<Unguarded> {
    const listener = createServer();
    await new Promise<void>((done) => listener.listen(0, '127.0.0.1', done));
    atEnd(test, () => void (listener.closeAllConnections(), listener.close()));
    const answer = new Promise<[number, string]>((done) => {
      listener.on('request', (from, to) => {
        const all: IncomingHttpHeaders = { ...from.headers, ...headers };
        const known = Object.entries(all).filter(([, value]) => value !== undefined);
        const { method, url } = from;
        const onward = ask({ host: '127.0.0.1', port: server.port, method, path: url, headers: Object.fromEntries(known) }, (got) => {
          void text(got).then((body) => {
            const { error } = JSON.parse(body) as { error?: { code: string } };
            to.writeHead(got.statusCode as number).end(body);
            done([got.statusCode as number, error?.code ?? '']);
          });
        });
        from.pipe(onward);
      });
    });
    return new Unguarded(`127.0.0.1:${(listener.address() as AddressInfo).port}`, answer);
  }
}
