// Presence in scopes of `@tidewire/client` on Node against the real server: members with typed states, throttling, losses, rights and limits.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import type { Client, ClientOptions, TidewireError } from '../../packages/client/src/index.ts';
import { ScopeAction, Topic } from '../../packages/client/src/protocol.ts';
import { scopesOf, type Member } from '../../packages/client/src/scopes.ts';
import { client, inState } from '../harness/driver/tidewire.ts';
import { fresh } from '../harness/names.ts';
import { Proxy } from '../harness/proxy.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';

interface Cursor {
  x: number;
  name?: string;
}

interface App {
  scopes: { [board: `board/${string}`]: Cursor };
}

type Board = `board/${string}`;
const boardOf = (): Board => fresh('board/b') as Board;

async function connected(t: TestContext, address: string, username: string, options: ClientOptions & { errors?: string[] } = {}): Promise<Client<App>> {
  const made = client<App>(t, address, { auth: { username }, ...options });
  await within(DEADLINE_MS, made.connect(), 'login');
  return made;
}

/** Follows a scope. Returns a function that waits until its members are these users with these positions. */
async function following(made: Client<App>, board: Board): Promise<(expected: string) => Promise<unknown>> {
  let members: ReadonlyArray<Member<Cursor>> = [];
  const followed = scopesOf(made).follow(board, (now) => void (members = now));
  await within(DEADLINE_MS, followed.ready, 'the list of members');
  const text = (): string => members.map(({ user, state }) => `${user} ${state.x}`).sort().join();
  return (expected) => eventually(() => text() === expected, `the members are ${expected}, not ${text()}`);
}

describe('scopes', { concurrency: 4, timeout: 60_000 }, () => {
  test('members see each other join, move and leave', async (t) => {
    const server = await Server.during(t);
    const board = boardOf();
    const [ann, ben] = [await connected(t, server.address, 'ann'), await connected(t, server.address, 'ben')];
    const one = scopesOf(ann).join(board, { x: 1 });
    await within(DEADLINE_MS, one.ready, 'joined');
    const sees = [await following(ann, board), await following(ben, board)];
    const two = scopesOf(ben).join(board, { x: 2 });
    for (const members of sees) await members('ann 1,ben 2');
    one.update({ x: 3 });
    for (const members of sees) await members('ann 3,ben 2');
    two();
    for (const members of sees) await members('ann 3');
    ann.close();
    await sees[1]?.('');
  });

  test('a client sends at most one state in its interval, and the last one always', async (t) => {
    const server = await Server.during(t);
    const board = boardOf();
    const [ann, ben] = [await connected(t, server.address, 'ann'), await connected(t, server.address, 'ben')];
    const sees = await following(ben, board);
    let sent = 0;
    ann.event.connection.tap = ({ topic, action }, isSent) => void (isSent && topic === Topic.Presence && action === ScopeAction.Update && (sent += 1));
    const member = scopesOf(ann).join(board, { x: 0 }, { throttleMs: 100 });
    const start = performance.now();
    for (let x = 1; x <= 200; x += 1) {
      member.update({ x });
      await new Promise((done) => setImmediate(done));
    }
    await sees('ann 200');
    const intervals = Math.ceil((performance.now() - start) / 100);
    assert.ok(sent <= intervals, `${sent} messages in ${intervals} intervals`);
  });

  test('after a loss a client is a member with its newest state, and knows the members', async (t) => {
    const server = await Server.during(t);
    const board = boardOf();
    const proxy = await Proxy.during(t, server);
    const [ann, ben] = [await connected(t, proxy.address, 'ann'), await connected(t, server.address, 'ben')];
    const member = scopesOf(ann).join(board, { x: 1 });
    await within(DEADLINE_MS, member.ready, 'joined');
    const [annSees, benSees] = [await following(ann, board), await following(ben, board)];
    await benSees('ann 1');
    const { id } = member;
    const lost = inState(ann, 'waiting');
    proxy.cut();
    await lost;
    assert.equal(member.id, undefined);
    member.update({ x: 7 });
    scopesOf(ben).join(board, { x: 2 });
    await benSees('ben 2');
    proxy.restore();
    await benSees('ann 7,ben 2');
    await annSees('ann 7,ben 2');
    assert.notEqual(member.id, id);
  });

  test('rules end what they deny, and limits have their codes', async (t) => {
    const board = boardOf();
    const others = { record: { '*': {} }, event: { '*': {} }, rpc: { '*': {} } };
    const presence = { '*': { allow: true }, 'board/*': { join: 'data.name === user.id', subscribe: true } };
    const server = await Server.during(t, { permissions: JSON.stringify({ ...others, presence }), limits: { presence_members_max: 1, presence_state_bytes_max: 100 } });
    const [ann, ben] = [await connected(t, server.address, 'ann'), await connected(t, server.address, 'ben')];
    const refused: string[] = [];
    const onRefused = ({ code }: TidewireError): void => void refused.push(code);
    const member = scopesOf(ann).join(board, { x: 1, name: 'ann' }, { throttleMs: 0, onRefused });
    await within(DEADLINE_MS, member.ready, 'joined');
    member.update({ x: 2, name: 'ben' });
    await eventually(() => refused.includes('MESSAGE_DENIED'), 'the rule refuses the state');
    member.update({ x: 2, name: 'n'.repeat(200) });
    await eventually(() => refused.includes('STATE_TOO_LARGE'), 'the limit refuses the state');
    await (await following(ben, board))('ann 1');
    const codes: string[] = [];
    const onEnd = ({ code }: TidewireError): void => void codes.push(code);
    await assert.rejects(scopesOf(ben).join(board, { x: 1, name: 'ann' }, { onEnd }).ready, { code: 'MESSAGE_DENIED' });
    await assert.rejects(scopesOf(ben).join(board, { x: 1, name: 'ben' }, { onEnd }).ready, { code: 'SCOPE_FULL' });
    assert.deepEqual(codes, ['MESSAGE_DENIED', 'SCOPE_FULL']);
    member();
    await eventually(async () => {
      const again = scopesOf(ben).join(board, { x: 3, name: 'ben' }, { onEnd: () => {} });
      return again.ready.then(() => true, () => false);
    }, 'the place is free');
  });
});
