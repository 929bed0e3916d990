// A collector of traces in this process: it accepts OTLP over HTTP with JSON, checks the format and keeps the spans.

import assert from 'node:assert/strict';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { TestContext } from 'node:test';
import { text } from 'node:stream/consumers';
import { atEnd } from './cleanup.ts';
import { DEADLINE_MS, Inbox } from './wait.ts';

/** A span in OTLP's JSON format. */
export interface Span {
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  name: string;
  kind: number;
  startTimeUnixNano: string;
  endTimeUnixNano: string;
  attributes: Array<{ key: string; value: { stringValue?: string; intValue?: string } }>;
}

interface Request {
  resourceSpans: Array<{
    resource: { attributes: Span['attributes'] };
    scopeSpans: Array<{ spans: Span[] }>;
  }>;
}

export class Collector {
  /** All spans, in the order of their arrival. */
  readonly spans = new Inbox<Span>('spans');
  /** Names of the services that sent them. */
  readonly services = new Set<string>();
  /** The status of the next responses; the collector does not keep spans that it refuses. */
  status = 200;
  /** The number of received requests. */
  requestCount = 0;
  /** If set, responses wait for this promise. */
  held: Promise<void> | undefined;

  private constructor(readonly endpoint: string) {}

  static async during(test: TestContext): Promise<Collector> {
    const server = createServer();
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    const collector = new Collector(`http://127.0.0.1:${(server.address() as AddressInfo).port}/v1/traces`);
    server.on('request', (request, answer) => {
      void collector.#take(request).then((status) => {
        answer.writeHead(status, { 'content-type': 'application/json' }).end('{"partialSuccess":{}}');
      });
    });
    atEnd(test, () => void (server.closeAllConnections(), server.close()));
    return collector;
  }

  /** The spans of a trace once there are `count` of them. */
  async trace(traceId: string, count: number): Promise<Span[]> {
    const known = (): Span[] => this.spans.seen.filter((span) => span.traceId === traceId);
    await this.spans.until(() => known().length >= count, DEADLINE_MS, `${count} spans of the trace ${traceId}`);
    return known();
  }

  async #take(request: IncomingMessage): Promise<number> {
    const body = await text(request);
    this.requestCount += 1;
    await this.held;
    if (this.status !== 200) return this.status;
    assert.deepEqual([request.method, request.url, request.headers['content-type']], ['POST', '/v1/traces', 'application/json']);
    for (const { resource, scopeSpans } of (JSON.parse(body) as Request).resourceSpans) {
      this.services.add(attribute(resource, 'service.name') ?? '');
      for (const span of scopeSpans.flatMap(({ spans }) => spans)) {
        assert.match(span.traceId, /^[0-9a-f]{32}$/);
        assert.match(span.spanId, /^[0-9a-f]{16}$/);
        assert.ok(BigInt(span.endTimeUnixNano) >= BigInt(span.startTimeUnixNano), JSON.stringify(span));
        this.spans.push(span);
      }
    }
    return 200;
  }
}

/** A text or number attribute of a span or resource. */
export function attribute({ attributes }: Pick<Span, 'attributes'>, name: string): string | undefined {
  const found = attributes.find(({ key }) => key === name);
  return found?.value.stringValue ?? found?.value.intValue;
}
