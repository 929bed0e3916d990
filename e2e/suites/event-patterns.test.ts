// Patterns of events with `@tidewire/client`, with streams of server-sent events and with a peer that speaks JSON: delivery, rules for each
// name, losses, and patterns that are malformed, deep, wide, many, overlapping or short-lived.

import assert from 'node:assert/strict';
import { after, before, describe, test, type TestContext } from 'node:test';
import type { Client, TidewireError } from '../../packages/client/src/index.ts';
import { subscribePattern } from '../../packages/client/src/patterns.ts';
import { client } from '../harness/driver/tidewire.ts';
import { openStream, type EventStream } from '../harness/event-stream.ts';
import { command, url } from '../harness/http.ts';
import { JsonPeer } from '../harness/json-peer.ts';
import { fresh } from '../harness/names.ts';
import { Proxy } from '../harness/proxy.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, within } from '../harness/wait.ts';

/** The numbers of the protocol. Only Tidewire has these actions. */
const EVENT = 4;
const SUBSCRIBE_PATTERNS = 122;
const UNSUBSCRIBE_PATTERNS = 123;
const INVALID_PATTERN = 124;

const emit = (eventName: string, data?: unknown): object => ({ topic: 'event', action: 'emit', eventName, data });

async function connected(t: TestContext, address: string, options: Parameters<typeof client>[2] = {}): Promise<Client> {
  const made = client(t, address, options);
  await within(DEADLINE_MS, made.connect(), 'login');
  return made;
}

/** The names of the events of a pattern, once the server has confirmed it. */
async function listen(reader: Client, pattern: string): Promise<Inbox<string>> {
  const names = new Inbox<string>(`events of ${pattern}`);
  await within(DEADLINE_MS, subscribePattern(reader.event, pattern, names.push).ready, `the subscription to ${pattern}`);
  return names;
}

/** Rules by which events under `private/USER` are for that user, and events under `gated/` need the record `open/EVENT`. */
function rules(more: object = {}): string {
  const all = (...actions: string[]): Record<string, boolean> => Object.fromEntries(actions.map((action) => [action, true]));
  return JSON.stringify({
    presence: { '*': all('allow') },
    event: {
      '*': { ...all('publish', 'listen'), subscribe: false },
      'public/*': { subscribe: true },
      'private/$user/$rest': { subscribe: 'user.id === $user' },
      'gated/$name': { subscribe: "_('open/' + $name) !== null && _('open/' + $name).open === true" },
      ...more,
    },
    rpc: { '*': all('provide', 'request') },
    record: { '*': all('create', 'read', 'write', 'delete', 'listen', 'notify') },
  });
}

describe('patterns of events', { concurrency: 4, skip: againstOriginal && 'deepstream has no patterns of events' }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start({ limits: { event_pattern_segments_max: 32, event_patterns_max: 1_000 } });
  });
  after(() => server.dispose());

  test('a pattern receives the events that it matches, with their names', async (t) => {
    const base = fresh('shop');
    const [writer, reader] = [await connected(t, server.address), await connected(t, server.address)];
    const seen = new Inbox<[string, unknown]>('events');
    await subscribePattern(reader.event, `${base}/*/price`, (name, value) => seen.push([name, value])).ready;
    const rest = await listen(reader, `${base}/**`);
    for (const name of ['a/price', 'a/stock', 'price', 'a/b/price', '/price', 'ü 🎉/price']) writer.event.emit(`${base}/${name}`, { name });
    const expected = ['a/price', '/price', 'ü 🎉/price'].map((name) => [`${base}/${name}`, { name }]);
    assert.deepEqual(await seen.count(3), expected);
    await rest.count(6);
    assert.deepEqual([seen.seen.length, rest.seen.length], [3, 6]);
  });

  test('an event that several subscriptions match is sent once and reaches each callback', async (t) => {
    const base = fresh('event');
    const [writer, reader] = [await connected(t, server.address), await connected(t, server.address)];
    const calls = new Inbox<string>('calls');
    await reader.event.subscribe(`${base}/a`, () => calls.push('name')).ready;
    for (const pattern of [`${base}/*`, `${base}/**`, `${base}/*`]) await subscribePattern(reader.event, pattern, () => calls.push(pattern)).ready;
    writer.event.emit(`${base}/a`, 1);
    writer.event.emit(`${base}/b`, 2);
    const each = [`${base}/*`, `${base}/*`, `${base}/**`];
    assert.deepEqual(await calls.count(7), ['name', ...each, ...each]);
  });

  test('the order of one publisher holds over all names of a pattern', async (t) => {
    const base = fresh('event');
    const [writer, reader] = [await connected(t, server.address), await connected(t, server.address)];
    const numbers = new Inbox<number>('numbers');
    await subscribePattern(reader.event, `${base}/*`, (_name, number) => numbers.push(number as number)).ready;
    const expected = Array.from({ length: 2_000 }, (_, number) => number);
    for (const number of expected) writer.event.emit(`${base}/${number % 7}`, number);
    assert.deepEqual(await numbers.count(2_000), expected);
  });

  test('a publisher receives its own event once, from itself', async (t) => {
    const base = fresh('event');
    const [one, other] = [await connected(t, server.address), await connected(t, server.address)];
    const [own, others] = [await listen(one, `${base}/*`), await listen(other, `${base}/*`)];
    one.event.emit(`${base}/first`);
    assert.equal(await others.next(), `${base}/first`);
    other.event.emit(`${base}/second`);
    await own.find((name) => name === `${base}/second`);
    assert.deepEqual(own.seen, [`${base}/first`, `${base}/second`]);
  });

  test('nothing arrives after the subscription was removed', async (t) => {
    const base = fresh('event');
    const [writer, reader] = [await connected(t, server.address), await connected(t, server.address)];
    const names = new Inbox<string>('names');
    const subscription = subscribePattern(reader.event, `${base}/*`, names.push);
    await subscription.ready;
    const end = await listen(reader, `${base}/end/*`);
    writer.event.emit(`${base}/a`);
    await names.next();
    subscription();
    // A round trip: the server has handled the removal.
    await listen(reader, `${base}/other/*`);
    writer.event.emit(`${base}/b`);
    writer.event.emit(`${base}/end/c`);
    await end.next();
    assert.deepEqual(names.seen, [`${base}/a`]);
  });

  test('texts that are not patterns are refused with a code', async (t) => {
    const reader = await connected(t, server.address);
    const malformed = ['a', 'a/b', '**/a', 'a/**/b', 'a*', '*a/b', '***', '/**x', `${'a/'.repeat(32)}*`, `${'x'.repeat(1_024)}/*`];
    for (const pattern of malformed) {
      const ends = new Inbox<TidewireError>('ends');
      const { ready } = subscribePattern(reader.event, pattern, () => {}, { onEnd: ends.push });
      await assert.rejects(within(DEADLINE_MS, ready, 'an answer'), { code: 'INVALID_PATTERN' }, pattern);
      assert.equal((await ends.next()).code, 'INVALID_PATTERN');
    }
    assert.throws(() => subscribePattern(reader.event, '', () => {}), { code: 'INVALID_ARGUMENT' });
    // The connection continues.
    await listen(reader, `${fresh('event')}/*`);
  });

  test('deep and wide patterns match what they say', async (t) => {
    const base = fresh('deep');
    const [writer, reader] = [await connected(t, server.address), await connected(t, server.address)];
    const stars = await listen(reader, `${base}${'/*'.repeat(30)}`);
    const rest = await listen(reader, `${base}${'/*'.repeat(29)}/**`);
    const name = `${base}${'/é'.repeat(30)}`;
    for (const text of [`${base}${'/é'.repeat(29)}`, name, `${name}/more`, `${base}${'/'.repeat(500)}`]) writer.event.emit(text);
    await rest.count(3);
    assert.deepEqual(stars.seen, [name]);
    assert.deepEqual(rest.seen, [name, `${name}/more`, `${base}${'/'.repeat(500)}`]);
  });

  test('a thousand patterns that match one name cost one delivery, and the next one is denied', async (t) => {
    const base = fresh('many');
    const [writer, reader] = [await connected(t, server.address), await connected(t, server.address)];
    // Each of ten segments is a text or `*`, in every combination: 1,024 patterns, of which all match one name.
    const patterns = Array.from({ length: 1_024 }, (_, bits) => [base, ...Array.from({ length: 10 }, (_, at) => ((bits >> at) & 1 ? '*' : 'x'))].join('/'));
    const wildcards = patterns.filter((pattern) => pattern.includes('*')).slice(0, 1_000);
    const calls = new Inbox<string>('calls');
    const denied = new Inbox<string>('denials');
    const subscriptions = wildcards.map((pattern) => subscribePattern(reader.event, pattern, calls.push, { onEnd: ({ code }) => denied.push(code) }));
    await within(DEADLINE_MS, Promise.all(subscriptions.map(({ ready }) => ready)), 'all subscriptions');
    writer.event.emit(`${base}/${Array(10).fill('x').join('/')}`, 1);
    assert.equal((await calls.count(1_000)).length, 1_000);
    const more = subscribePattern(reader.event, `${base}/more/*`, calls.push, { onEnd: ({ code }) => denied.push(code) });
    await assert.rejects(more.ready, { code: 'MESSAGE_DENIED' });
    assert.deepEqual(denied.seen, ['MESSAGE_DENIED']);
    // One that is removed makes room for another.
    subscriptions[0]?.();
    await listen(reader, `${base}/again/*`);
  });

  test('patterns that come and go leave nothing behind', async (t) => {
    const base = fresh('churn');
    const writer = await connected(t, server.address);
    for (let round = 0; round < 20; round += 1) {
      const reader = await connected(t, server.address);
      const names = new Inbox<string>('names');
      const subscriptions = Array.from({ length: 200 }, (_, number) => subscribePattern(reader.event, `${base}/${round}/*/${number}/**`, names.push));
      await within(DEADLINE_MS, Promise.all(subscriptions.map(({ ready }) => ready)), 'all subscriptions');
      writer.event.emit(`${base}/${round}/x/7/y`);
      assert.equal(await names.next(), `${base}/${round}/x/7/y`);
      if (round % 2 === 0) subscriptions.forEach((remove) => remove());
      reader.close();
    }
    const late = await listen(writer, `${base}/**`);
    const other = await connected(t, server.address);
    other.event.emit(`${base}/0/x/7/y`);
    assert.equal(await late.next(), `${base}/0/x/7/y`);
  });

  test('a peer that speaks JSON sees the same', async (t) => {
    const base = fresh('json');
    const writer = await connected(t, server.address);
    const peer = await JsonPeer.login(server);
    peer.send({ topic: EVENT, action: SUBSCRIBE_PATTERNS, names: [`${base}/*`, '**/x'], correlationId: '1' });
    const refusal = await peer.expect(EVENT, INVALID_PATTERN);
    assert.deepEqual([refusal.name, refusal.originalAction, refusal.correlationId], ['**/x', SUBSCRIBE_PATTERNS, '1']);
    await peer.expect(EVENT, SUBSCRIBE_PATTERNS, (message) => message.isAck === true);
    writer.event.emit(`${base}/a`, { n: 1 });
    const event = await peer.expect(EVENT, 2);
    assert.equal(event.name, `${base}/a`);
    peer.send({ topic: EVENT, action: UNSUBSCRIBE_PATTERNS, names: [`${base}/*`], correlationId: '2' });
    await peer.expect(EVENT, UNSUBSCRIBE_PATTERNS, (message) => message.isAck === true && message.correlationId === '2');
  });

  test('a client that reconnects subscribes again and reports the gap', async (t) => {
    const base = fresh('loss');
    const proxy = await Proxy.during(t, server);
    const [writer, reader] = [await connected(t, server.address), await connected(t, proxy.address)];
    const [names, gaps] = [new Inbox<string>('names'), new Inbox<unknown>('gaps')];
    await subscribePattern(reader.event, `${base}/*`, names.push, { onGap: gaps.push }).ready;
    writer.event.emit(`${base}/before`);
    assert.equal(await names.next(), `${base}/before`);
    proxy.cut();
    proxy.restore();
    assert.deepEqual(await gaps.next(), { pattern: `${base}/*` });
    await listen(reader, `${base}/other/*`);
    writer.event.emit(`${base}/after`);
    assert.equal(await names.next(), `${base}/after`);
  });
});

describe('patterns of events in streams', { concurrency: 4, skip: againstOriginal }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start({ history: ['kept/* count=10'] });
  });
  after(() => server.dispose());

  /** A stream whose patterns are active: it has received its record, which it requests last. */
  async function settled(t: TestContext, parameters: Array<[string, string]>): Promise<EventStream> {
    const stream = await openStream(t, url(server, `/sse?${new URLSearchParams([...parameters, ['record', fresh('marker')]])}`));
    await stream.pieces.find(({ event }) => event === 'deleted');
    stream.pieces.take();
    return stream;
  }

  test('a stream receives the events of its patterns, each once', async (t) => {
    const base = fresh('stream');
    const { pieces } = await settled(t, [['pattern', `${base}/*`], ['pattern', `${base}/**`], ['event', `${base}/a`]]);
    for (const name of ['a', 'b', 'c/d']) await command(server, emit(`${base}/${name}`, name));
    const seen = [await pieces.next(), await pieces.next(), await pieces.next()];
    assert.deepEqual(seen.map(({ event, data }) => [event, data.name, data.data]), ['a', 'b', 'c/d'].map((name) => ['event', `${base}/${name}`, name]));
  });

  test('events with history arrive with their offset and without an id', async (t) => {
    const name = `kept/${fresh('stream')}`;
    const { pieces } = await settled(t, [['pattern', 'kept/**']]);
    await command(server, emit(name, 1));
    const piece = await pieces.find(({ data }) => data.name === name);
    assert.deepEqual([piece.data.offset, piece.data.data, piece.id], [1, 1, undefined]);
  });

  test('a malformed pattern is refused, and the stream continues', async (t) => {
    const base = fresh('stream');
    const stream = await openStream(t, url(server, `/sse?${new URLSearchParams([['pattern', '**/a'], ['pattern', `${base}/*`]])}`));
    const refused = await stream.pieces.next();
    assert.deepEqual([refused.event, refused.data], ['refused', { name: '**/a', topic: 'pattern', code: 'INVALID_PATTERN' }]);
    await eventually(async () => {
      await command(server, emit(`${base}/b`));
      return stream.pieces.seen.some(({ data }) => data.name === `${base}/b`);
    }, 'an event arrives');
    assert.equal((await openStream(t, url(server, `/sse?${'pattern=a/*&'.repeat(101)}`))).answer.status, 400);
  });
});

describe('rules for the events of a pattern', { concurrency: 4, skip: againstOriginal }, () => {
  const login = (username: string): { auth: object } => ({ auth: { username } });

  test('each user receives what the rules allow for each name, as by the names', async (t) => {
    const server = await Server.during(t, { permissions: rules() });
    const writer = await connected(t, server.address, login('writer'));
    const names = ['public/a', 'private/ann/1', 'private/bob/1', 'private/ann/2', 'hidden/a', 'private/eve/3', 'public/b'];
    for (const user of ['ann', 'bob']) {
      const reader = await connected(t, server.address, { ...login(user), errors: ['MESSAGE_DENIED'] });
      const byName = new Inbox<string>(`events of ${user}`);
      const ready = await Promise.allSettled(names.map((name) => reader.event.subscribe(name, () => byName.push(name)).ready));
      const allowed = names.filter((_, at) => ready[at]?.status === 'fulfilled');
      const other = await connected(t, server.address, login(user));
      const byPattern = await listen(other, '**');
      for (let round = 0; round < 3; round += 1) names.forEach((name) => writer.event.emit(name, round));
      const expected = [...allowed, ...allowed, ...allowed];
      assert.equal(allowed.length, user === 'ann' ? 4 : 3);
      assert.deepEqual(await byPattern.count(expected.length), expected);
      assert.deepEqual(await byName.count(expected.length), expected);
    }
  });

  test('a pattern without an allowed name is denied at once', async (t) => {
    const server = await Server.during(t, { permissions: rules() });
    const reader = await connected(t, server.address, { ...login('ann'), errors: ['MESSAGE_DENIED'] });
    await assert.rejects(subscribePattern(reader.event, 'hidden/*', () => {}).ready, { code: 'MESSAGE_DENIED' });
    await listen(reader, 'private/*/*');
  });

  test('a rule that reads a record decides for each name, in order', async (t) => {
    const server = await Server.during(t, { permissions: rules() });
    const [writer, reader] = [await connected(t, server.address, login('writer')), await connected(t, server.address, login('ann'))];
    for (const name of ['a', 'c']) await command(server, { topic: 'record', action: 'write', recordName: `open/${name}`, data: { open: true } });
    const names = await listen(reader, '**');
    for (const name of ['gated/a', 'public/1', 'gated/b', 'gated/c', 'public/2', 'gated/a']) writer.event.emit(name);
    assert.deepEqual(await names.count(5), ['gated/a', 'public/1', 'gated/c', 'public/2', 'gated/a']);
  });

  test('after new rules are in force, no event arrives that they deny', async (t) => {
    const server = await Server.during(t, { permissions: rules() });
    const [writer, reader] = [await connected(t, server.address, login('writer')), await connected(t, server.address, { ...login('ann'), errors: ['MESSAGE_DENIED'] })];
    const names = await listen(reader, '**');
    const ends = new Inbox<string>('ends');
    await subscribePattern(reader.event, 'private/ann/*', () => {}, { onEnd: ({ code }) => ends.push(code) }).ready;
    writer.event.emit('public/a');
    writer.event.emit('private/ann/1');
    assert.deepEqual(await names.count(2), ['public/a', 'private/ann/1']);
    server.setPermissions(rules({ 'private/$user/$rest': { subscribe: false } }));
    server.hangUp();
    assert.equal(await ends.next(), 'MESSAGE_DENIED');
    for (const name of ['private/ann/2', 'public/b']) writer.event.emit(name);
    await names.find((name) => name === 'public/b');
    assert.deepEqual(names.seen, ['public/a', 'private/ann/1', 'public/b']);
  });
});
