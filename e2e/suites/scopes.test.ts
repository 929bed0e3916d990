// Presence in scopes: members with states, over both forms of the protocol, on a server with several shards.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { C } from '../harness/client.ts';
import { JsonPeer } from '../harness/json-peer.ts';
import { fresh } from '../harness/names.ts';
import { RawPeer } from '../harness/raw.ts';
import { Server } from '../harness/server.ts';

const { PRESENCE } = C.TOPIC;
/** Actions that only Tidewire has (`spec/deepstream.md`, "Scopes"). */
const SCOPE = { JOIN: 60, JOINED: 61, UPDATE: 62, LEAVE: 63, SUBSCRIBE: 64, UNSUBSCRIBE: 65, SNAPSHOT: 66, CHANGED: 67 };

interface Member {
  id: string;
  user?: string;
  state?: unknown;
}

type Change = Member & { type: string };

/** A peer of either form. */
class Peer {
  private constructor(private readonly raw: RawPeer | JsonPeer) {}

  static async login(t: TestContext, server: Server, form: 'protobuf' | 'json', username: string): Promise<Peer> {
    const raw = await (form === 'json' ? JsonPeer : RawPeer).login(server, { username });
    t.after(() => raw.close());
    return new Peer(raw);
  }

  send(action: number, name: string, state?: unknown): void {
    const data = state === undefined ? {} : { data: JSON.stringify(state) };
    this.raw.send({ topic: PRESENCE, action, name, ...data } as never);
  }

  sendText(action: number, name: string, data: string): void {
    this.raw.send({ topic: PRESENCE, action, name, data } as never);
  }

  /** The messages about a scope, with their content. */
  private of(name: string): Array<{ action: number; content: unknown }> {
    const seen = this.raw.received.seen as Array<{ topic: number; action: number; name?: string; data?: unknown; parsedData?: unknown }>;
    const found = seen.filter((message) => message.topic === PRESENCE && message.name === name);
    return found.map(({ action, data, parsedData }) => ({ action, content: parsedData ?? (data === undefined ? undefined : JSON.parse(data as string)) }));
  }

  private messages(action: number, name: string): unknown[] {
    return this.of(name).filter((message) => message.action === action).map(({ content }) => content);
  }

  /** Joins, and returns the id of the member. */
  async join(name: string, state: unknown): Promise<string> {
    const before = this.messages(SCOPE.JOINED, name).length;
    this.send(SCOPE.JOIN, name, state);
    await this.raw.received.until(() => this.messages(SCOPE.JOINED, name).length > before);
    return this.messages(SCOPE.JOINED, name).at(-1) as string;
  }

  /** Subscribes, and waits for the list. */
  async subscribe(name: string): Promise<void> {
    const before = this.messages(SCOPE.SNAPSHOT, name).length;
    this.send(SCOPE.SUBSCRIBE, name);
    await this.raw.received.until(() => this.messages(SCOPE.SNAPSHOT, name).length > before);
  }

  /** The members after the last list and the changes behind it. Checks that each change fits. */
  members(name: string): Map<string, Omit<Member, 'id'>> {
    const members = new Map<string, Omit<Member, 'id'>>();
    for (const { action, content } of this.of(name)) {
      if (action === SCOPE.SNAPSHOT) {
        members.clear();
        for (const { id, ...member } of (content as { members: Member[] }).members) members.set(id, member);
      } else if (action === SCOPE.CHANGED) {
        for (const { type, id, ...member } of content as Change[]) {
          const known = members.get(id);
          assert.ok(known || type === 'joined', `${type} of an unknown member`);
          if (type === 'left') members.delete(id);
          else members.set(id, { ...known, ...member });
        }
      }
    }
    return members;
  }

  /** Waits until the members are these. */
  async sees(name: string, expected: Record<string, Omit<Member, 'id'>>): Promise<void> {
    const text = (members: Iterable<[string, object]>): string => JSON.stringify([...members].sort((one, other) => (one[0] < other[0] ? -1 : 1)));
    const wanted = text(Object.entries(expected));
    await this.raw.received.until(() => text(this.members(name)) === wanted, undefined, `the members ${wanted}`);
  }

  /** Waits for a refusal. Returns its number and the action that it refuses. */
  async refused(name: string): Promise<[code: number, action: number]> {
    const isRefusal = (message: object): boolean => 'isError' in message && (message as { name?: string }).name === name;
    await this.raw.received.until((seen: object[]) => seen.some(isRefusal));
    const [refusal] = (this.raw.received.seen as object[]).filter(isRefusal) as Array<{ action: number; originalAction: number }>;
    this.raw.received.take();
    assert.ok(refusal);
    return [refusal.action, refusal.originalAction];
  }

  settle(): Promise<void> {
    return this.raw.settle();
  }

  get changeCount(): number {
    return (this.raw.received.seen as Array<{ action: number; topic: number }>).filter(({ topic, action }) => topic === PRESENCE && action === SCOPE.CHANGED).length;
  }

  abort(): void {
    this.raw.abort();
  }
}

describe('presence in scopes', { concurrency: 4 }, () => {
  test('subscribers of both forms see members join, move, leave and vanish', async (t) => {
    const server = await Server.during(t, { jsonEndpoint: true });
    for (const scope of [fresh('board'), fresh('board'), fresh('board')]) {
      const readers = [await Peer.login(t, server, 'json', 'rita'), await Peer.login(t, server, 'protobuf', 'ruth')];
      const [anna, ben] = [await Peer.login(t, server, 'protobuf', 'anna'), await Peer.login(t, server, 'json', 'ben')];
      const first = await anna.join(scope, { x: 1 });
      for (const reader of readers) await reader.subscribe(scope);
      for (const reader of readers) await reader.sees(scope, { [first]: { user: 'anna', state: { x: 1 } } });
      const second = await ben.join(scope, null);
      anna.send(SCOPE.UPDATE, scope, { x: 2 });
      for (const reader of readers) await reader.sees(scope, { [first]: { user: 'anna', state: { x: 2 } }, [second]: { user: 'ben', state: null } });
      ben.send(SCOPE.LEAVE, scope);
      for (const reader of readers) await reader.sees(scope, { [first]: { user: 'anna', state: { x: 2 } } });
      // Without a close of the WebSocket, as of a killed process.
      anna.abort();
      for (const reader of readers) await reader.sees(scope, {});
    }
  });

  test('a flood of states arrives as fewer messages, and the last state is not lost', async (t) => {
    const server = await Server.during(t);
    const scope = fresh('board');
    const [writer, reader] = [await Peer.login(t, server, 'protobuf', 'anna'), await Peer.login(t, server, 'protobuf', 'rita')];
    const id = await writer.join(scope, 0);
    await reader.subscribe(scope);
    const count = 500;
    for (let state = 1; state <= count; state += 1) writer.send(SCOPE.UPDATE, scope, state);
    await reader.sees(scope, { [id]: { user: 'anna', state: count } });
    assert.ok(reader.changeCount < count, `${reader.changeCount} messages`);
  });

  test('a subscriber gets nothing after its end', async (t) => {
    const server = await Server.during(t);
    const scope = fresh('board');
    const [writer, reader] = [await Peer.login(t, server, 'protobuf', 'anna'), await Peer.login(t, server, 'protobuf', 'rita')];
    await reader.subscribe(scope);
    reader.send(SCOPE.UNSUBSCRIBE, scope);
    await reader.settle();
    await writer.join(scope, 1);
    const other = await Peer.login(t, server, 'protobuf', 'ruth');
    await other.subscribe(scope);
    assert.equal(other.members(scope).size, 1);
    await reader.settle();
    assert.equal(reader.changeCount, 0);
  });

  test('rules decide by the scope, the user and the state', async (t) => {
    const everything = { record: { '*': {} }, event: { '*': {} }, rpc: { '*': {} } };
    const board = { join: 'data.name === user.id', subscribe: "user.id !== 'eve'" };
    const server = await Server.during(t, { permissions: JSON.stringify({ ...everything, presence: { '*': { allow: true }, 'board/$id': board } }) });
    const [anna, eve] = [await Peer.login(t, server, 'protobuf', 'anna'), await Peer.login(t, server, 'protobuf', 'eve')];
    const id = await anna.join('board/1', { name: 'anna' });
    anna.send(SCOPE.UPDATE, 'board/1', { name: 'eve' });
    assert.deepEqual(await anna.refused('board/1'), [102, SCOPE.UPDATE]);
    await anna.subscribe('board/1');
    await anna.sees('board/1', { [id]: { user: 'anna', state: { name: 'anna' } } });
    eve.send(SCOPE.JOIN, 'board/1', { name: 'anna' });
    assert.deepEqual(await eve.refused('board/1'), [102, SCOPE.JOIN]);
    eve.send(SCOPE.JOIN, 'board/1', null);
    assert.deepEqual(await eve.refused('board/1'), [101, SCOPE.JOIN]);
    eve.send(SCOPE.SUBSCRIBE, 'board/1');
    assert.deepEqual(await eve.refused('board/1'), [102, SCOPE.SUBSCRIBE]);
    // No rule allows other scopes.
    eve.send(SCOPE.JOIN, 'other', { name: 'eve' });
    assert.deepEqual(await eve.refused('other'), [102, SCOPE.JOIN]);
  });

  test('limits and bad input have their codes', async (t) => {
    const limits = { presence_state_bytes_max: 20, presence_scopes_max: 2, presence_members_max: 1 };
    const server = await Server.during(t, { limits });
    const [anna, ben] = [await Peer.login(t, server, 'protobuf', 'anna'), await Peer.login(t, server, 'protobuf', 'ben')];
    anna.send(SCOPE.UPDATE, 'a', 1);
    assert.deepEqual(await anna.refused('a'), [124, SCOPE.UPDATE]);
    anna.sendText(SCOPE.JOIN, 'a', '{"x":');
    assert.deepEqual(await anna.refused('a'), [120, SCOPE.JOIN]);
    anna.send(SCOPE.JOIN, 'a', 'x'.repeat(30));
    assert.deepEqual(await anna.refused('a'), [121, SCOPE.JOIN]);
    const id = await anna.join('a', 1);
    ben.send(SCOPE.JOIN, 'a', 2);
    assert.deepEqual(await ben.refused('a'), [123, SCOPE.JOIN]);
    await ben.subscribe('a');
    await ben.subscribe('b');
    ben.send(SCOPE.SUBSCRIBE, 'c');
    assert.deepEqual(await ben.refused('c'), [122, SCOPE.SUBSCRIBE]);
    anna.abort();
    ben.send(SCOPE.UNSUBSCRIBE, 'b');
    await ben.subscribe('c');
    const reader = await Peer.login(t, server, 'protobuf', 'rita');
    await reader.subscribe('a');
    await reader.sees('a', {});
    assert.notEqual(await ben.join('a', 3), id);
  });
});
