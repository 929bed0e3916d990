// Presence in scopes against a fake server: throttling, the end of a connection, refusals, and lists with their changes.

import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import type { Client, TidewireError } from '../src/index.js';
import { presenceOf } from '../src/presence.js';
import { ConnectionAction, PresenceAction, ScopeAction, Topic, type Message } from '../src/protocol.js';
import { scopesOf, type Member } from '../src/scopes.js';
import { opened, settle, type FakeSocket } from './fake-socket.js';

interface App {
  scopes: { [board: `board/${string}`]: { x: number } };
}

const BOARD = 'board/1';
const says = (action: number, fields: Partial<Message> = {}): Message => ({ topic: Topic.Presence, action, name: BOARD, ...fields });
const list = (...members: Member[]): Message => says(ScopeAction.Snapshot, { data: JSON.stringify({ members }) });
const changes = (...all: object[]): Message => says(ScopeAction.Changed, { data: JSON.stringify(all) });
const joined = (id: string): Message => says(ScopeAction.Joined, { data: JSON.stringify(id) });
const refusal = (action: number, originalAction: number): Message => says(action, { originalAction, isError: true });

/** The actions and data that the client has sent since the last call. */
const sent = (socket: FakeSocket): Array<[action: number, data?: unknown]> =>
  socket.take().map(({ action, data }) => (data === undefined ? [action] : [action, JSON.parse(data)]));

test('the newest of quick states is sent after the shortest time, and the last one always', async (t) => {
  const { client, last } = await opened<App>(t);
  const member = scopesOf(client).join(BOARD, { x: 0 });
  assert.deepEqual(sent(last()), [[ScopeAction.Join, { x: 0 }]]);
  assert.equal(member.id, undefined);
  last().says(joined('0.0.1.1'));
  await member.ready;
  assert.equal(member.id, '0.0.1.1');
  for (const x of [1, 2, 3]) member.update({ x });
  mock.timers.tick(49);
  assert.deepEqual(sent(last()), []);
  mock.timers.tick(1);
  assert.deepEqual(sent(last()), [[ScopeAction.Update, { x: 3 }]]);
  member.update({ x: 4 });
  mock.timers.tick(50);
  assert.deepEqual(sent(last()), [[ScopeAction.Update, { x: 4 }]]);
  mock.timers.tick(50);
  // After a pause the state is sent at once, and one that the others have is not.
  member.update({ x: 4 });
  assert.deepEqual(sent(last()), []);
  member.update({ x: 5 });
  assert.deepEqual(sent(last()), [[ScopeAction.Update, { x: 5 }]]);
  member.update({ x: 6 });
  member();
  mock.timers.tick(100);
  assert.deepEqual(sent(last()), [[ScopeAction.Leave]]);
  member.update({ x: 7 });
  mock.timers.tick(100);
  assert.deepEqual(sent(last()), []);
});

test('the time between states is an option', async (t) => {
  const { client, last } = await opened<App>(t);
  const member = scopesOf(client).join(BOARD, { x: 0 }, { throttleMs: 200 });
  member.update({ x: 1 });
  mock.timers.tick(199);
  assert.equal(sent(last()).length, 1);
  mock.timers.tick(1);
  assert.deepEqual(sent(last()), [[ScopeAction.Update, { x: 1 }]]);
});

test('a new session joins with the newest state and follows again, and changes count after its list', async (t) => {
  const { client, last, returns } = await opened<App>(t);
  const seen: Array<ReadonlyArray<Member>> = [];
  const member = scopesOf(client).join(BOARD, { x: 0 });
  const followed = scopesOf(client).follow(BOARD, (members) => seen.push(members));
  last().says(joined('0.0.1.1'), list({ id: '0.0.1.1', user: 'ann', state: { x: 0 } }));
  await followed.ready;
  last().ends();
  assert.equal(member.id, undefined);
  member.update({ x: 1 });
  member.update({ x: 2 });
  last().take();
  mock.timers.tick(10);
  last().opens();
  last().says({ topic: Topic.Connection, action: ConnectionAction.Accept });
  await settle();
  last().take();
  last().says({ topic: Topic.Auth, action: 3 });
  await settle();
  assert.deepEqual(sent(last()), [[ScopeAction.Join, { x: 2 }], [ScopeAction.Subscribe]]);
  last().says(changes({ type: 'left', id: '0.0.1.1' }));
  assert.equal(seen.length, 1);
  last().says(joined('0.0.2.1'), list({ id: '0.0.2.1', user: 'ann', state: { x: 2 } }));
  assert.equal(member.id, '0.0.2.1');
  assert.deepEqual(seen.at(-1), [{ id: '0.0.2.1', user: 'ann', state: { x: 2 } }]);
  member();
  followed();
  assert.deepEqual(sent(last()), [[ScopeAction.Leave], [ScopeAction.Unsubscribe]]);
  await returns();
  assert.deepEqual(sent(last()), []);
});

test('a follower gets new arrays with the members that have not changed', async (t) => {
  const { client, last } = await opened<App>(t);
  const seen: Array<ReadonlyArray<Member>> = [];
  scopesOf(client).follow(BOARD, (members) => seen.push(members));
  assert.deepEqual(sent(last()), [[ScopeAction.Subscribe]]);
  last().says(list({ id: 'a', state: 1 }, { id: 'b', user: 'ben', state: 2 }));
  last().says(changes({ type: 'joined', id: 'c', user: 'cid', state: 3 }, { type: 'updated', id: 'b', state: 4 }, { type: 'left', id: 'a' }));
  assert.deepEqual(seen.at(-1), [{ id: 'b', user: 'ben', state: 4 }, { id: 'c', user: 'cid', state: 3 }]);
  last().says(list({ id: 'b', user: 'ben', state: 4 }, { id: 'd', state: 5 }));
  assert.equal(seen.length, 3);
  assert.equal(seen[2]?.[0], seen[1]?.[0]);
  // A later follower gets the known members, without another message.
  const late: Array<ReadonlyArray<Member>> = [];
  const other = scopesOf(client).follow(BOARD, (members) => late.push(members));
  await other.ready;
  await settle();
  assert.deepEqual(late, [seen[2]]);
  other();
  assert.deepEqual(sent(last()), []);
});

test('a follower gets the member that is this session, whatever the server says first', async (t) => {
  const { client, last, returns } = await opened<App>(t);
  const seen: Array<[ids: string, self: string | undefined]> = [];
  scopesOf(client).follow(BOARD, (members, self) => seen.push([members.map(({ id }) => id).join(), self?.id]));
  const member = scopesOf(client).join(BOARD, { x: 0 });
  last().says(list({ id: 'a', state: 1 }, { id: 'b', state: 0 }));
  last().says(joined('b'));
  last().says(changes({ type: 'updated', id: 'b', state: 2 }));
  assert.deepEqual(seen.splice(0), [['a,b', undefined], ['a,b', 'b'], ['a,b', 'b']]);
  await returns();
  // The earlier list is shown until the next one.
  last().says(joined('c'));
  assert.deepEqual(seen.splice(0), []);
  last().says(list({ id: 'a', state: 1 }, { id: 'c', state: 0 }));
  assert.deepEqual(seen.splice(0), [['a,c', 'c']]);
  const late: unknown[] = [];
  scopesOf(client).follow(BOARD, (_members, self) => late.push(self));
  await settle();
  assert.deepEqual(late, [{ id: 'c', state: 0 }]);
  member();
  last().says(changes({ type: 'left', id: 'c' }));
  assert.deepEqual(seen, [['a', undefined]]);
});

test('each refusal has its code and its callback', async (t) => {
  const { client, last, errors } = await opened<App>(t);
  const ends: string[] = [];
  const onEnd = ({ code }: TidewireError): void => void ends.push(code);
  const member = scopesOf(client).join(BOARD, { x: 0 }, { onEnd, onRefused: ({ code }) => ends.push(`later ${code}`) });
  const followed = scopesOf(client).follow(BOARD, () => {}, { onEnd });
  last().says(refusal(121, ScopeAction.Update), refusal(124, ScopeAction.Update), refusal(123, ScopeAction.Join), refusal(102, ScopeAction.Subscribe));
  await assert.rejects(member.ready, { code: 'SCOPE_FULL', subject: BOARD });
  await assert.rejects(followed.ready, { code: 'MESSAGE_DENIED', subject: BOARD });
  assert.deepEqual(ends, ['later STATE_TOO_LARGE', 'SCOPE_FULL', 'MESSAGE_DENIED']);
  last().take();
  member.update({ x: 1 });
  member();
  followed();
  mock.timers.tick(100);
  assert.deepEqual(sent(last()), []);
  scopesOf(client).join(BOARD, { x: 0 });
  last().says(refusal(101, ScopeAction.Update), refusal(122, ScopeAction.Join));
  assert.deepEqual(errors.map(({ code }) => code), ['MESSAGE_PERMISSION_ERROR', 'TOO_MANY_SCOPES']);
  assert.throws(() => scopesOf(client).join('' as never as typeof BOARD, { x: 0 }), { code: 'INVALID_ARGUMENT' });
  assert.throws(() => scopesOf(client).follow(BOARD, undefined as never), { code: 'INVALID_ARGUMENT' });
  assert.throws(() => scopesOf(client).join(BOARD, (() => {}) as never), { code: 'INVALID_ARGUMENT' });
});

test('a session is one member of a scope, and leaves with the last membership', async (t) => {
  const { client, last } = await opened<App>(t);
  const [one, two] = [scopesOf(client).join(BOARD, { x: 0 }), scopesOf(client).join(BOARD, { x: 1 })];
  mock.timers.tick(50);
  assert.deepEqual(sent(last()), [[ScopeAction.Join, { x: 0 }], [ScopeAction.Update, { x: 1 }]]);
  one();
  one.update({ x: 9 });
  mock.timers.tick(50);
  assert.deepEqual(sent(last()), []);
  two();
  assert.deepEqual(sent(last()), [[ScopeAction.Leave]]);
  client.close();
  assert.throws(() => two.update({ x: 2 }), { code: 'CLOSED' });
});

for (const isFirst of [true, false]) {
  test(`scopes and the presence of users work side by side, ${isFirst ? 'scopes' : 'presence'} first`, async (t) => {
    const { client, last } = await opened<App>(t);
    const online: boolean[] = [];
    const use = [() => void scopesOf(client).join(BOARD, { x: 0 }), () => void presenceOf(client).subscribe('bob', (isOnline) => online.push(isOnline))];
    for (const begin of isFirst ? use : use.reverse()) begin();
    await settle();
    const asked = last().take().find(({ action }) => action === PresenceAction.Subscribe);
    last().says({ topic: Topic.Presence, action: PresenceAction.Subscribe, isAck: true, correlationId: asked?.correlationId ?? '' }, joined('1'));
    await settle();
    const { correlationId = '' } = last().take().at(-1) ?? {};
    last().says({ topic: Topic.Presence, action: PresenceAction.QueryResponse, correlationId, data: '{"bob":true}' });
    await settle();
    assert.deepEqual(online, [true]);
    const member = scopesOf(client).join(BOARD, { x: 0 });
    assert.equal(member.id, '1');
  });
}

test('names and states have the types of the app', () => {
  const typed = (client: Client<App>): void => {
    const member = scopesOf(client).join(BOARD, { x: 1 });
    member.update({ x: 2 });
    // @ts-expect-error A text is not a number.
    member.update({ x: 'two' });
    // @ts-expect-error The app has no such scope.
    scopesOf(client).join('room/1', { x: 1 });
    scopesOf(client).follow(BOARD, (members) => members.map(({ state }) => state.x.toFixed()));
  };
  const untyped = (client: Client): void => {
    scopesOf(client).join('any', 'state');
    scopesOf(client).follow('any', (members: ReadonlyArray<Member>) => members.length);
  };
  assert.equal(typeof typed, typeof untyped);
});
