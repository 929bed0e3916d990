// Array paths of `@tidewire/client` against the real server: the server stores keys that no text path can express unchanged, for every
// kind of client, and text paths never reach another place than the one that they name.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import type { Client } from '../../packages/client/src/index.ts';
import { valueAt, withValue } from '../../packages/client/src/path.ts';
import { close, connect, record as stockRecord } from '../harness/client.ts';
import { client } from '../harness/driver/tidewire.ts';
import { JsonPeer } from '../harness/json-peer.ts';
import { fresh } from '../harness/names.ts';
import { Random } from '../harness/random.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';

interface Board {
  items?: Record<string, { text?: string; marks?: number[] } | number>;
  title?: string;
}
interface App {
  records: { [name: `board/${string}`]: Board; [name: `list/${string}`]: number[] };
}

const boardOf = (): `board/${string}` => fresh('board') as `board/${string}`;

async function connected(t: TestContext, server: Server): Promise<Client<App>> {
  const made = client<App>(t, server.address);
  await within(DEADLINE_MS, made.connect(), 'login');
  return made;
}

/** Keys that the grammar of text paths cannot express, and some that it can. */
const KEYS = ['ann.lee@x.org', 'a[0]', '', ' a ', '.', '..', '[', ']', '"', 'ü.ö', '\u2028', '😀.', '0', '-1', '1e3', 'plain', 'length', 'toString', 'a\\.b'];

describe('array paths', { concurrency: 3, timeout: 60_000 }, () => {
  test('store every key under itself, for all clients, in HTTP and on the disk', async (t) => {
    const server = await Server.during(t);
    const [alice, bob, stock] = [await connected(t, server), await connected(t, server), await connect(t, server)];
    const name = boardOf();
    const [mine, theirs] = [alice.record.open(name), bob.record.open(name)];
    await Promise.all([mine.ready, theirs.ready]);
    const old = await stockRecord(stock, name);
    const expected: Record<string, unknown> = {};
    for (const [at, key] of KEYS.entries()) {
      await within(DEADLINE_MS, mine.setWithAck(['items', key], at), `key ${JSON.stringify(key)}`);
      expected[key] = at;
      assert.equal(mine.get(['items', key]), at);
    }
    assert.deepEqual(mine.value, { items: expected });
    await eventually(() => theirs.get(['items', 'a\\.b']) !== undefined, 'the last key arrives');
    assert.deepEqual(theirs.value, { items: expected });
    await eventually(() => old.version === mine.version, "the last key arrives at deepstream's client");
    assert.deepEqual(old.get(), { items: expected });
    close(stock);
    await server.stop();
    await server.start();
    const body = JSON.stringify({ body: [{ topic: 'record', action: 'read', recordName: name }] });
    const answer = await fetch(`http://${server.address}/api`, { method: 'POST', body, headers: { 'content-type': 'application/json' } });
    const [read] = ((await answer.json()) as { body: Array<{ data: unknown }> }).body;
    assert.deepEqual(read?.data, { items: expected });
  });

  test('set values below such keys, remove them, and mix with text paths in one step', async (t) => {
    const server = await Server.during(t);
    const [alice, bob] = [await connected(t, server), await connected(t, server)];
    const name = boardOf();
    const [mine, theirs] = [alice.record.open(name), bob.record.open(name)];
    await Promise.all([mine.ready, theirs.ready]);
    const id = 'ann.lee@x.org';
    const seen: unknown[] = [];
    theirs.subscribe(['items', id, 'text'], (text) => seen.push(text));
    await mine.setWithAck(['items', id, 'marks', 2], 7);
    assert.deepEqual(mine.value, { items: { [id]: { marks: [null, null, 7] } } });
    await mine.patch([
      [['items', id, 'text'], 'hello'],
      [['items', id, 'marks'], undefined],
      [['items', 'b.c'], 1],
      ['title', 'both'],
    ]);
    await eventually(() => seen.includes('hello'), 'the text arrives');
    assert.deepEqual([theirs.value, mine.value], [{ items: { [id]: { text: 'hello' }, 'b.c': 1 }, title: 'both' }, theirs.value]);
    mine.set(['items', id], undefined);
    await within(DEADLINE_MS, mine.saved(), 'the removal');
    assert.deepEqual(await bob.record.get(name), { items: { 'b.c': 1 }, title: 'both' });
  });

  test('of two concurrent writers are both made', async (t) => {
    const server = await Server.during(t);
    const [alice, bob] = [await connected(t, server), await connected(t, server)];
    const name = boardOf();
    const [mine, theirs] = [alice.record.open(name), bob.record.open(name)];
    await Promise.all([mine.ready, theirs.ready]);
    for (let at = 0; at < 20; at += 1) {
      mine.set(['items', `a.${at}`], at);
      theirs.set(['items', `b.${at}`], at);
    }
    await within(DEADLINE_MS, Promise.all([mine.saved(), theirs.saved()]), 'all edits');
    const { items } = (await alice.record.get(name)) as Board;
    assert.equal(Object.keys(items ?? {}).length, 40);
  });

  test('a single index addresses an array', async (t) => {
    const server = await Server.during(t);
    const alice = await connected(t, server);
    const list = alice.record.open(fresh('list') as `list/${string}`);
    await list.ready;
    await list.setWithAck([1, 2, 3]);
    await assert.rejects(list.setWithAck('[1]' as '1', 9), { code: 'INVALID_ARGUMENT' });
    await list.setWithAck([1], 9);
    await list.setWithAck('2', 8);
    assert.deepEqual([list.value, await alice.record.get(list.name as `list/${string}`)], [[1, 9, 8], [1, 9, 8]]);
  });

  test('of a JSON peer are accepted only in a list of patches, and refused if they are empty', async (t) => {
    const server = await Server.during(t, { jsonEndpoint: true });
    const alice = await connected(t, server);
    const name = boardOf();
    const mine = alice.record.open(name);
    await mine.ready;
    const peer = await JsonPeer.login(server);
    const write = (path: unknown, version: number): void =>
      peer.send({ topic: 5, action: 35, name, version, correlationId: String(version), isWriteAck: true, parsedData: [{ path, data: 1 }] });
    write(['items', 'a.b'], 1);
    await eventually(() => mine.get(['items', 'a.b']) === 1, 'the patch arrives');
    for (const path of [[], ['__proto__'], [-1], [null], [['a']], [1.5]]) {
      write(path, 2);
      const refused = await peer.received.find(({ action, correlationId }) => action === 116 && correlationId === '2');
      assert.ok(refused, JSON.stringify(path));
      peer.received.take();
    }
    assert.deepEqual([mine.value, mine.version], [{ items: { 'a.b': 1 } }, 1]);
  });

  test('a thousand random changes give the documents that the client shows', async (t) => {
    const server = await Server.during(t);
    const [alice, bob] = [await connected(t, server), await connected(t, server)];
    const random = new Random(11);
    const name = fresh('record');
    const untyped = alice as unknown as Client;
    const mine = untyped.record.open(name);
    await mine.ready;
    let model: unknown = {};
    for (let round = 0; round < 1_000; round += 1) {
      const steps = Array.from({ length: 1 + random.below(3) }, () => (random.once(4) ? random.below(3) : random.of(KEYS.filter((key) => key !== 'length'))));
      const leaf = random.of([1, 'text', null, {}, [], [1, [2]], { 'a.b': 1 }, undefined]);
      mine.set(steps as [string], leaf);
      model = withValue(model, steps, leaf);
      assert.deepEqual(mine.get(steps as [string]), valueAt(model, steps));
    }
    await within(DEADLINE_MS, mine.saved(), 'all edits');
    // Compare as JSON, which omits undefined values.
    const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value));
    assert.deepEqual(plain(mine.value), plain(model));
    assert.deepEqual(await (bob as unknown as Client).record.get(name), plain(model));
  });
});
