// Traces through the real server: a collector in this process receives the spans of publications by `@tidewire/client`, by the
// unmodified client and over HTTP, and subscribers receive the context.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { describe, test, type TestContext } from 'node:test';
import type { EventContext } from '../../packages/client/src/index.ts';
import { connect, subscribed } from '../harness/client.ts';
import { Collector, attribute, type Span } from '../harness/collector.ts';
import { client } from '../harness/driver/tidewire.ts';
import { fresh } from '../harness/names.ts';
import { SHARD_COUNT, Server, type ServerOptions } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, within } from '../harness/wait.ts';

/** The number of spans of a publication whose subscribers are all on one shard. */
const TREE = 3;
const QUICK = { interval: '20ms' };

interface Traced {
  server: Server;
  collector: Collector;
}

async function traced(t: TestContext, traces: ServerOptions['traces'] = {}, options: ServerOptions = {}): Promise<Traced> {
  const collector = await Collector.during(t);
  const server = await Server.during(t, { ...options, traces: { endpoint: collector.endpoint, ...QUICK, ...traces } });
  return { server, collector };
}

/** A new trace context of a publisher. */
function context(isSampled = true): { id: string; span: string; traceparent: string } {
  const [id, span] = [randomBytes(16).toString('hex'), randomBytes(8).toString('hex')];
  return { id, span, traceparent: `00-${id}-${span}-${isSampled ? '01' : '00'}` };
}

/** The contexts that a subscriber on a separate connection receives with an event. */
async function contexts(t: TestContext, server: Server, name: string): Promise<Inbox<EventContext>> {
  const subscriber = client(t, server.address);
  await within(DEADLINE_MS, subscriber.connect(), 'login');
  const inbox = new Inbox<EventContext>(`contexts of ${name}`);
  await subscriber.event.subscribe(name, (_, told) => inbox.push(told)).ready;
  return inbox;
}

/** Emits an event once with this context. */
async function emit(t: TestContext, server: Server, name: string, traceparent?: string): Promise<void> {
  const publisher = client(t, server.address, { traceparent: () => traceparent });
  await within(DEADLINE_MS, publisher.connect(), 'login');
  publisher.event.emit(name, 'hello');
}

/** Publishes an event `count` times with one request. */
async function publish(server: Server, name: string, count: number, headers: Record<string, string>): Promise<void> {
  const command = { topic: 'event', action: 'emit', eventName: name, data: 1 };
  const answer = await fetch(`http://${server.address}/api`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ body: Array.from({ length: count }, () => command) }),
  });
  assert.equal(((await answer.json()) as { result: string }).result, 'SUCCESS');
}

function named(spans: Span[], name: string): Span[] {
  return spans.filter((span) => span.name === name);
}

/** Asserts that `spans` form one tree: a publication, and for each shard with subscribers a transfer and a delivery. */
function assertTree(spans: Span[], parent: string | undefined, shardCount: number, event: string): void {
  const [publish, ...others] = named(spans, 'publish');
  const [routes, deliveries] = [named(spans, 'route'), named(spans, 'deliver')];
  assert.ok(publish && others.length === 0, JSON.stringify(spans));
  assert.deepEqual([spans.length, routes.length, deliveries.length], [1 + 2 * shardCount, shardCount, shardCount]);
  assert.equal(new Set(spans.map(({ traceId }) => traceId)).size, 1);
  assert.equal(new Set(spans.map(({ spanId }) => spanId)).size, spans.length);
  assert.equal(publish.parentSpanId, parent);
  for (const route of routes) {
    assert.equal(route.parentSpanId, publish.spanId);
    const [delivery, ...more] = deliveries.filter(({ parentSpanId }) => parentSpanId === route.spanId);
    assert.ok(delivery && more.length === 0);
    assert.equal(delivery.startTimeUnixNano, route.endTimeUnixNano);
    assert.equal(attribute(delivery, 'tidewire.shard'), attribute(route, 'tidewire.shard'));
    assert.ok(BigInt(route.startTimeUnixNano) >= BigInt(publish.startTimeUnixNano));
  }
  assert.equal(new Set(deliveries.map((span) => attribute(span, 'tidewire.shard'))).size, shardCount);
  for (const span of spans) assert.equal(attribute(span, 'messaging.destination.name'), event);
  const ageMs = Date.now() - Number(BigInt(publish.startTimeUnixNano) / 1_000_000n);
  assert.ok(ageMs >= -1_000 && ageMs < 60_000, `${ageMs} ms old`);
}

describe('traces', { concurrency: 4 }, () => {
  test('a publication with a context becomes one tree with its subscribers on all shards, who receive their delivery span as parent', async (t) => {
    const { server, collector } = await traced(t, { service_name: 'shop' });
    const name = fresh('event');
    const inboxes = await Promise.all(Array.from({ length: SHARD_COUNT }, () => contexts(t, server, name)));
    const { id, span, traceparent } = context();
    await emit(t, server, name, traceparent);
    const spans = await collector.trace(id, 1 + 2 * SHARD_COUNT);
    assertTree(spans, span, SHARD_COUNT, name);
    assert.deepEqual([...collector.services], ['shop']);
    const told = await Promise.all(inboxes.map(async (inbox) => (await inbox.next()).traceparent));
    const deliveries = named(spans, 'deliver').map(({ spanId }) => `00-${id}-${spanId}-01`);
    assert.deepEqual(told.sort(), deliveries.sort());
    assert.equal(collector.spans.seen.length, spans.length);
    await eventually(async () => (await server.metric('tidewire_trace_exported_spans_total')) === spans.length, 'the spans are counted');
  });

  test('the server starts traces for clients without trace support if configured, and they receive their events unchanged', async (t) => {
    const { server, collector } = await traced(t, { sample_ratio: 1 });
    const [publisher, subscriber] = [await connect(t, server), await connect(t, server)];
    const name = fresh('event');
    const [inbox, told] = [await subscribed(subscriber, name), await contexts(t, server, name)];
    publisher.event.emit(name, { a: 1 });
    assert.deepEqual(await inbox.next(), { a: 1 });
    const [, id = ''] = (await told.next()).traceparent?.split('-') ?? [];
    assertTree(await collector.trace(id, 1 + 2 * 2), undefined, 2, name);
  });

  test('publications outside a recorded trace are not recorded, and their context is passed on', async (t) => {
    const { server, collector } = await traced(t);
    const name = fresh('event');
    const inbox = await contexts(t, server, name);
    await emit(t, server, name);
    assert.equal((await inbox.next()).traceparent, undefined);
    const unsampled = context(false);
    await emit(t, server, name, unsampled.traceparent);
    assert.equal((await inbox.next()).traceparent, unsampled.traceparent);
    await emit(t, server, name, 'no context');
    assert.equal((await inbox.next()).traceparent, undefined);
    // This recorded publication comes after all that must not be recorded.
    const sampled = context();
    await emit(t, server, name, sampled.traceparent);
    await collector.trace(sampled.id, TREE);
    assert.equal(collector.spans.seen.length, TREE);
  });

  test('without a collector the subscribers receive the context unchanged', async (t) => {
    const server = await Server.during(t);
    const name = fresh('event');
    const inbox = await contexts(t, server, name);
    const { traceparent } = context();
    await emit(t, server, name, traceparent);
    assert.equal((await inbox.next()).traceparent, traceparent);
    assert.equal(await server.metric('tidewire_trace_exported_spans_total'), 0);
  });

  test('a request with the header traceparent publishes in its trace, and an event with history has its tree and its offset', async (t) => {
    const { server, collector } = await traced(t, {}, { history: ['kept/*'] });
    const name = fresh('kept/event');
    const inbox = await contexts(t, server, name);
    const { id, span, traceparent } = context();
    await publish(server, name, 1, { traceparent });
    const spans = await collector.trace(id, TREE);
    assertTree(spans, span, 1, name);
    const told = await inbox.next();
    assert.equal(told.traceparent, `00-${id}-${named(spans, 'deliver')[0]?.spanId}-01`);
    assert.equal(told.position?.offset, 1);
  });

  test('the API description contains the request header, and an invalid header is ignored', async (t) => {
    const { server, collector } = await traced(t);
    const { paths, components } = (await (await server.get('/openapi.json')).json()) as any;
    assert.deepEqual(paths['/api'].post.parameters, [{ $ref: '#/components/parameters/Traceparent' }]);
    const { name: header, in: place, required } = components.parameters.Traceparent;
    assert.deepEqual([place, required], ['header', false]);
    const name = fresh('event');
    const inbox = await contexts(t, server, name);
    const { id, span, traceparent } = context();
    for (const wrong of ['', 'no context', traceparent.toUpperCase(), `${traceparent}-more`, `00-${'0'.repeat(32)}-${span}-01`, `ff${traceparent.slice(2)}`]) {
      await publish(server, name, 1, { [header]: wrong });
      assert.equal((await inbox.next()).traceparent, undefined, wrong);
    }
    await publish(server, name, 2, { [header]: traceparent });
    const spans = await collector.trace(id, 2 * TREE);
    assert.equal(collector.spans.seen.length, spans.length, 'nothing of the others was recorded');
    for (let number = 1; number <= 2; number += 1) assert.equal((await inbox.next()).traceparent?.slice(3, 35), id, 'all events of a request are in its trace');
  });

  test('an export is repeated after a collector refuses it temporarily', async (t) => {
    const { server, collector } = await traced(t);
    const name = fresh('event');
    await contexts(t, server, name);
    collector.status = 503;
    const { id, span, traceparent } = context();
    await emit(t, server, name, traceparent);
    await eventually(() => collector.requestCount > 0, 'the collector receives a request');
    collector.status = 200;
    assertTree(await collector.trace(id, TREE), span, 1, name);
    await server.prints(/does not accept spans.*it answers 503/);
  });

  test('spans that a slow collector cannot take are dropped and counted, and nothing waits for it', async (t) => {
    const { server, collector } = await traced(t, { sample_ratio: 1, queue_max: TREE });
    let release = (): void => {};
    collector.held = new Promise((done) => (release = done));
    const name = fresh('event');
    const inbox = await contexts(t, server, name);
    const publisher = await connect(t, server);
    const count = 50;
    publisher.event.emit(name, 0);
    await eventually(() => collector.requestCount > 0, 'the collector receives a request');
    for (let number = 1; number < count; number += 1) publisher.event.emit(name, number);
    await inbox.count(count);
    const dropped = await eventually(() => server.metric('tidewire_trace_dropped_spans_total'), 'spans are dropped');
    release();
    const all = count * TREE;
    await eventually(async () => {
      const [exported, lost] = [await server.metric('tidewire_trace_exported_spans_total'), await server.metric('tidewire_trace_dropped_spans_total')];
      return exported + lost === all;
    }, 'every span is exported or dropped');
    assert.ok(dropped > 0);
  });

  test('a stop exports all collected spans', async (t) => {
    const { server, collector } = await traced(t, { interval: '10m' });
    const name = fresh('event');
    const inbox = await contexts(t, server, name);
    const { id, traceparent } = context();
    await emit(t, server, name, traceparent);
    await inbox.next();
    assert.equal(collector.spans.seen.length, 0);
    await server.stop();
    await collector.trace(id, TREE);
  });
});
