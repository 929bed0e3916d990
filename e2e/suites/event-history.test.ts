// Events with history: unmodified clients see no difference, and streams that reconnect with an id receive the events that they missed.

import assert from 'node:assert/strict';
import { after, before, describe, test, type TestContext } from 'node:test';
import { EventSource } from 'eventsource';
import { atEnd } from '../harness/cleanup.ts';
import { connect, subscribed } from '../harness/client.ts';
import { openStream, type EventStream, type Piece } from '../harness/event-stream.ts';
import { command, url } from '../harness/http.ts';
import { fresh } from '../harness/names.ts';
import { Proxy } from '../harness/proxy.ts';
import { Server } from '../harness/server.ts';
import { Inbox } from '../harness/wait.ts';

/** Events of each name that the server keeps. */
const KEPT = 20;
const HISTORY = [`kept/* count=${KEPT}`];

const emit = (eventName: string, data: unknown): object => ({ topic: 'event', action: 'emit', eventName, data });

/** Publishes the numbers from `first` to `last`. */
async function publish(server: Server, name: string, first: number, last: number): Promise<void> {
  for (let number = first; number <= last; number += 1) await command(server, emit(name, number));
}

/** Receives the numbers from `first` to `last`, which are also the offsets. Returns the id of the last one. */
async function take(stream: EventStream, name: string, first: number, last: number): Promise<string> {
  let id = '';
  for (let number = first; number <= last; number += 1) {
    const piece: Piece = await stream.pieces.next();
    assert.deepEqual([piece.event, piece.data], ['event', { name, offset: number, data: number }]);
    id = piece.id ?? assert.fail('an event with history has an id');
  }
  return id;
}

/** An event that an EventSource fires. */
interface Said {
  kind: string;
  data?: any;
}

/** An EventSource as in web pages, which reconnects by itself. */
function eventSource(t: TestContext, address: string): Inbox<Said> {
  const said = new Inbox<Said>('pieces of an EventSource');
  const source = new EventSource(address);
  for (const kind of ['event', 'gap', 'end']) {
    source.addEventListener(kind, ({ data }) => said.push({ kind, data: JSON.parse(data as string) }));
  }
  source.addEventListener('open', () => said.push({ kind: 'open' }));
  source.addEventListener('error', () => said.push({ kind: 'error' }));
  atEnd(t, () => source.close());
  return said;
}

describe('events with history', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start({ history: HISTORY });
  });
  after(() => server.dispose());

  const open = (t: TestContext, events: string[], headers = {}, id?: string): Promise<EventStream> => {
    const pairs = events.map((name): [string, string] => ['event', name]);
    if (id !== undefined) pairs.push(['last_event_id', id]);
    return openStream(t, url(server, `/sse?${new URLSearchParams(pairs)}`), headers);
  };

  test('clients of deepstream see no difference', async (t) => {
    const name = `kept/${fresh('event')}`;
    const [alice, bob, carol] = [await connect(t, server), await connect(t, server), await connect(t, server)];
    const [own, other] = [await subscribed(alice, name), await subscribed(bob, name)];
    for (let number = 1; number <= 50; number += 1) alice.event.emit(name, { number });
    for (let number = 1; number <= 50; number += 1) assert.deepEqual(await other.next(), { number });
    // A new subscriber does not receive earlier events. A client receives its own events from itself, once.
    const late = await subscribed(carol, name);
    carol.event.emit(name, 'last');
    assert.equal(await late.next(), 'last');
    assert.equal(await other.next(), 'last');
    assert.equal(await own.find((data) => data === 'last'), 'last');
    assert.deepEqual([own.seen.length, late.seen.length, other.seen.length], [51, 1, 51]);
  });

  test('a stream that reconnects receives the missed events, once and in order', async (t) => {
    const name = `kept/${fresh('event')}`;
    const first = await open(t, [name]);
    await first.ids.next();
    await publish(server, name, 1, 3);
    const id = await take(first, name, 1, 3);
    first.close();
    await publish(server, name, 4, 6);
    const second = await open(t, [name], { 'last-event-id': id });
    const newer = await take(second, name, 4, 6);
    await publish(server, name, 7, 7);
    await take(second, name, 7, 7);
    // Web pages can't set the header, so they use the parameter. If a request has both, the header is newer.
    const page = await open(t, [name], {}, id);
    await take(page, name, 4, 7);
    const both = await open(t, [name], { 'last-event-id': newer }, id);
    await take(both, name, 7, 7);
  });

  test('a stream that was lost before its first event also receives that event', async (t) => {
    const name = `kept/${fresh('event')}`;
    const first = await open(t, [name]);
    const id = await first.ids.next();
    first.close();
    await publish(server, name, 1, 2);
    const second = await open(t, [name], { 'last-event-id': id });
    await take(second, name, 1, 2);
    assert.equal(first.pieces.seen.length, 0);
  });

  test('events that are no longer kept become one gap', async (t) => {
    const name = `kept/${fresh('event')}`;
    const first = await open(t, [name]);
    const id = await first.ids.next();
    first.close();
    await publish(server, name, 1, KEPT + 5);
    const second = await open(t, [name], { 'last-event-id': id });
    const gap = await second.pieces.next();
    assert.deepEqual([gap.event, gap.data], ['gap', { name, missed: 5, offset: 6 }]);
    await take(second, name, 6, KEPT + 5);
    // The gap has an id, too, with which a stream can reconnect.
    const third = await open(t, [name], { 'last-event-id': gap.id });
    await take(third, name, 6, KEPT + 5);
  });

  test('a stream of several events and records resumes all of them', async (t) => {
    const [one, other] = [`kept/${fresh('event')}`, `kept/${fresh('event')}`];
    const [plain, record] = [fresh('event'), fresh('record')];
    const path = `/sse?${new URLSearchParams([['event', one], ['event', plain], ['event', other], ['record', record]])}`;
    const first = await openStream(t, url(server, path));
    assert.equal((await first.pieces.next()).event, 'deleted');
    await first.ids.find((id) => id.split('~')[1]?.split('_').filter((part) => part !== 'x').length === 2);
    await publish(server, one, 1, 2);
    const id = await take(first, one, 1, 2);
    first.close();
    await publish(server, other, 1, 2);
    await publish(server, plain, 1, 2);
    await command(server, { topic: 'record', action: 'write', recordName: record, data: { a: 1 } });
    const second = await openStream(t, url(server, path), { 'last-event-id': id });
    const seen = [await second.pieces.next(), await second.pieces.next(), await second.pieces.next()];
    const told = seen.map(({ event, data }) => `${event} ${data.name} ${data.offset ?? data.version}`);
    assert.deepEqual(told.sort(), [`event ${other} 1`, `event ${other} 2`, `record ${record} 1`]);
    await publish(server, plain, 3, 3);
    assert.deepEqual((await second.pieces.next()).data, { name: plain, data: 3 });
  });

  test('an EventSource reconnects by itself and receives every event once', async (t) => {
    const name = `kept/${fresh('event')}`;
    const proxy = await Proxy.during(t, server);
    const said = eventSource(t, `http://${proxy.address}/sse?${new URLSearchParams({ event: name })}`);
    assert.deepEqual(await said.next(), { kind: 'open' });
    await publish(server, name, 1, 1);
    let number = 0;
    for (const last of [1, 4]) {
      while (number < last) {
        const one = await said.next();
        // It fires `error` when its connection is lost, and `open` after the reconnect.
        if (one.kind !== 'event') continue;
        number += 1;
        assert.deepEqual(one.data, { name, offset: number, data: number });
      }
      proxy.cut();
      await publish(server, name, last + 1, last + 3);
      proxy.restore();
    }
    await said.find(({ data }) => data?.offset === 7);
    const offsets = said.seen.flatMap(({ data }) => (data ? [data.offset] : []));
    assert.deepEqual(offsets, [1, 2, 3, 4, 5, 6, 7]);
  });

  test('an id from another server causes a gap, and a malformed id is ignored', async (t) => {
    const name = `kept/${fresh('event')}`;
    await publish(server, name, 1, 2);
    const foreign = await open(t, [name], { 'last-event-id': '1_~abc-7' });
    const gap = await foreign.pieces.next();
    assert.deepEqual([gap.event, gap.data], ['gap', { name, offset: 1 }]);
    await take(foreign, name, 1, 2);
    for (const id of ['whatever', '1_~', '1_~x_x', '1_~abc']) {
      const stream = await open(t, [name], { 'last-event-id': id });
      await stream.ids.next();
      assert.equal(stream.pieces.seen.length, 0, id);
    }
    const without = await open(t, [fresh('event')], { 'last-event-id': '1_~abc-7' });
    assert.equal((await without.pieces.next()).event, 'gap');
  });
});
