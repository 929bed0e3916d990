// Messages of `@tidewire/client` that are larger than the real server accepts: the client refuses them before it sends them. A client
// that does not know the limit loses its connection once.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { WebSocket } from 'ws';
import { decode, encode } from '../../packages/client/src/codec.ts';
import type { Client, TidewireError, WebSocketClass } from '../../packages/client/src/index.ts';
import { presenceOf } from '../../packages/client/src/presence.ts';
import { ConnectionAction, Topic } from '../../packages/client/src/protocol.ts';
import { provide } from '../../packages/client/src/provide.ts';
import { client, inState } from '../harness/driver/tidewire.ts';
import { fresh } from '../harness/names.ts';
import { RawPeer } from '../harness/raw.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, within } from '../harness/wait.ts';

const LIMIT = 64 * 1024;
const LONG = 'x'.repeat(LIMIT);
const limits = { message_bytes_max: LIMIT };

async function connected(t: TestContext, server: Server, options: Parameters<typeof client>[2] = {}): Promise<Client> {
  const made = client(t, server.address, options);
  await within(DEADLINE_MS, made.connect(), 'login');
  return made;
}

/** Sockets that do not announce a limit, as with an older server, or behind a proxy with a lower limit. */
class Untold extends WebSocket {
  constructor(url: string) {
    super(url);
    const set = (handle: (event: { data: ArrayBuffer }) => void): void => {
      this.addEventListener('message', ({ data }) => {
        const messages = decode(new Uint8Array(data as ArrayBuffer)).map(({ data: limits, ...message }) => {
          const isAccept = message.topic === Topic.Connection && message.action === ConnectionAction.Accept;
          return encode(isAccept || limits === undefined ? message : { ...message, data: limits });
        });
        handle({ data: new Uint8Array(Buffer.concat(messages)).buffer });
      });
    };
    Object.defineProperty(this, 'onmessage', { set });
  }
}

describe('messages that are too large', { concurrency: 3, timeout: 60_000 }, () => {
  test('are refused before they are sent, and the connection stays', async (t) => {
    const server = await Server.during(t, { limits });
    const [alice, bob] = [await connected(t, server, { errors: ['TOO_LARGE'] }), await connected(t, server)];
    const states = new Inbox<string>('states');
    alice.onState(states.push);
    const name = fresh('record');
    const [mine, theirs] = [alice.record.open<string>(name), bob.record.open<string>(name)];
    await Promise.all([mine.ready, theirs.ready]);
    const told = new Inbox<TidewireError>('errors');
    alice.onError(told.push);

    await assert.rejects(within(DEADLINE_MS, mine.setWithAck('text', LONG), 'a refusal'), { code: 'TOO_LARGE', subject: name });
    mine.set('text', LONG);
    assert.equal((await told.next()).code, 'TOO_LARGE');
    await within(DEADLINE_MS, mine.saved(), 'saved() settles');
    assert.deepEqual(mine.value, {});
    assert.throws(() => alice.event.emit('news', LONG), { code: 'TOO_LARGE' });
    await assert.rejects(alice.rpc.call('add', LONG), { code: 'TOO_LARGE' });
    await assert.rejects(alice.record.set(name, { text: LONG }), { code: 'TOO_LARGE' });
    await assert.rejects(presenceOf(alice).query(Array.from({ length: 10_000 }, (_, at) => `user ${at}`)), { code: 'TOO_LARGE' });
    const rpc = fresh('rpc');
    await provide(alice.rpc, rpc, () => LONG).ready;
    await assert.rejects(bob.rpc.call(rpc), { code: 'REQUEST_ERROR', data: 'TOO_LARGE' });
    assert.equal((await told.next()).subject, rpc);

    await within(DEADLINE_MS, mine.setWithAck('text', 'short'), 'the next edit');
    await eventually(() => theirs.get('text') === 'short', 'the next edit arrives');
    assert.deepEqual(states.seen, []);
  });

  test('of several edits are split, and all edits are made', async (t) => {
    const server = await Server.during(t, { limits });
    const alice = await connected(t, server);
    const name = fresh('record');
    const mine = alice.record.open<string>(name);
    await mine.ready;
    const pieces = Array.from({ length: 40 }, (_, at) => `${at} `.repeat(2_000));
    await within(DEADLINE_MS, Promise.all(pieces.map((piece, at) => mine.setWithAck(`part${at}`, piece))), 'all edits');
    assert.deepEqual(mine.value, Object.fromEntries(pieces.map((piece, at) => [`part${at}`, piece])));
    assert.ok(mine.version > 2 && mine.version < 40, `${mine.version} messages`);
  });

  test('that fit the limit of the server are sent, to the last byte', async (t) => {
    const server = await Server.during(t, { limits });
    const alice = await connected(t, server);
    const heard = new Inbox<unknown>('events');
    const bob = await connected(t, server);
    await bob.event.subscribe('e', heard.push).ready;
    const empty = encode({ topic: Topic.Event, action: 2, name: 'e', data: '""' }).length;
    // Three lengths in the message take two more bytes than in the empty message.
    const fits = 'x'.repeat(LIMIT - empty - 6);
    assert.equal(encode({ topic: Topic.Event, action: 2, name: 'e', data: JSON.stringify(fits) }).length, LIMIT);
    alice.event.emit('e', fits);
    assert.equal(await heard.next(), fits);
    assert.throws(() => alice.event.emit('e', `${fits}x`), { code: 'TOO_LARGE' });
  });

  test('of names and credentials never cause a loop', async (t) => {
    const server = await Server.during(t, { limits });
    const alice = client(t, server.address, { auth: { token: LONG } });
    await assert.rejects(within(DEADLINE_MS, alice.connect(), 'an answer'), { code: 'TOO_LARGE' });
    const bob = await connected(t, server);
    const names = Array.from({ length: 1_000 }, (_, at) => `${at}-`.padEnd(200, 'n'));
    await within(DEADLINE_MS, Promise.all(names.map((name) => bob.event.subscribe(name, () => {}).ready)), 'all subscriptions');
  });

  test('for which the server closes the connection fail once, and other edits in flight are made', async (t) => {
    const server = await Server.during(t, { limits, logLevel: 'info' });
    const alice = await connected(t, server, { auth: { username: 'alice' }, webSocket: Untold as unknown as WebSocketClass });
    const states = new Inbox<string>('states');
    alice.onState(states.push);
    const [one, other] = [alice.record.open<string>(fresh('record')), alice.record.open<string>(fresh('record'))];
    await Promise.all([one.ready, other.ready]);
    const small = other.setWithAck('text', 'short');
    await assert.rejects(within(DEADLINE_MS, one.setWithAck('text', LONG), 'a refusal'), { code: 'TOO_LARGE' });
    await within(DEADLINE_MS, small, 'the other edit');
    await inState(alice, 'open');
    await within(DEADLINE_MS, one.setWithAck('text', 'short'), 'the next edit');
    assert.deepEqual(states.seen.filter((state) => state === 'waiting'), ['waiting']);
    const lines = (): string[] => server.output.split('\n').filter((text) => text.includes('limits.message_bytes_max'));
    await eventually(() => lines().length > 0, 'a line in the log');
    const line = lines()[0] as string;
    assert.match(line, /INFO/);
    assert.match(line, /127\.0\.0\.1:\d+/);
    assert.match(line, /alice/);
    const [, bytes, max] = /bytes"?[=:](\d+).*message_bytes_max"?[=:](\d+)/.exec(line) ?? [];
    assert.ok(Number(bytes) > LIMIT, line);
    assert.equal(Number(max), LIMIT);
  });

  test("do not concern deepstream's own client, which receives no limit", async (t) => {
    const server = await Server.during(t, { limits });
    const peer = await RawPeer.challenge(server);
    assert.deepEqual(peer.received.seen.map(({ topic, action, data, parsedData }: any) => [topic, action, data, parsedData]), [
      [Topic.Connection, ConnectionAction.Accept, undefined, undefined],
    ]);
  });
});

