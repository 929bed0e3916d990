// Members of scopes in components: joining, states, leaving and errors.

import assert from 'node:assert/strict';
import { ScopeAction, Topic } from '../../../packages/client/src/protocol.ts';
import type { Client } from '../../../packages/client/src/index.ts';
import { scopesOf, type Member } from '../../../packages/client/src/scopes.ts';
import { inState } from '../../harness/driver/tidewire.ts';
import { fresh, freshUser } from '../../harness/names.ts';
import { Proxy } from '../../harness/proxy.ts';
import { DEADLINE_MS, eventually, within } from '../../harness/wait.ts';
import type { Component, Name, Options, State, Uses } from '../binding.ts';
import { other, page, type Sent } from '../stage.ts';
import type { Case } from '../suite.ts';

type MembersHook = ReturnType<ReturnType<Uses['useMembers']>>;

const [Join, Update, Leave, Subscribe, Unsubscribe] = [ScopeAction.Join, ScopeAction.Update, ScopeAction.Leave, ScopeAction.Subscribe, ScopeAction.Unsubscribe];

/** The actions of the messages about a scope. */
const actions = (sent: Sent, scope: string): number[] => sent.about(Topic.Presence, scope);
/** The ones about this session as a member. */
const memberships = (sent: Sent, scope: string): number[] => actions(sent, scope).filter((action) => action !== Subscribe && action !== Unsubscribe);

/** A component that shows the users of the members with their states; a star marks this session. */
function room(scope: Name, state?: State, options?: Options): { Room: Component; last: () => MembersHook } {
  let last: MembersHook | undefined;
  const Room: Component = ({ useMembers }) => {
    const live = useMembers(scope, state, options);
    return () => {
      last = live();
      const { value, self, isReady, error } = last;
      const shown = value?.map(({ id, user, state }) => `${user}${id === self?.id ? '*' : ''}=${state.x}`).sort().join() ?? 'nothing';
      return `${isReady} ${shown} ${error?.code ?? 'fine'};`;
    };
  };
  return { Room, last: () => last ?? assert.fail('nothing was drawn') };
}

/** Follows a scope. Returns a function that waits until its members are these. */
async function following(client: Client, scope: string): Promise<(expected: string) => Promise<void>> {
  let members: readonly Member[] = [];
  await within(DEADLINE_MS, scopesOf(client).follow(scope, (now) => void (members = now)).ready, 'the list of members');
  const text = (): string => members.map(({ user, state }) => `${user}=${(state as { x: number }).x}`).sort().join();
  return async (expected) => void (await eventually(() => text() === expected, `the members are "${expected}"`));
}

export const SCOPES: Record<string, Case> = {
  async 'a component is a member with its newest state, and shows the others and itself'(t, on, server) {
    const [ann, ben, scope] = [freshUser(), freshUser(), fresh('room')];
    const bob = await other(t, server.address, { username: ben });
    const sees = await following(bob, scope);
    const state = on.variable<unknown>({ x: 1 });
    const { shown, show, sent } = page(t, on, server.address, { auth: { username: ann } });
    const users = (...texts: string[]): string => texts.sort().join();
    show(room(scope, state).Room);
    await shown.reads(`true ${ann}*=1 fine;`);
    await sees(`${ann}=1`);
    const member = scopesOf(bob).join(scope, { x: 5 });
    await shown.reads(`true ${users(`${ann}*=1`, `${ben}=5`)} fine;`);
    state.write({ x: 2 });
    await shown.reads(`true ${users(`${ann}*=2`, `${ben}=5`)} fine;`);
    await sees(users(`${ann}=2`, `${ben}=5`));
    member();
    await shown.reads(`true ${ann}*=2 fine;`);
    state.write({ x: 2 });
    state.write(undefined);
    await shown.reads('true  fine;');
    await sees('');
    state.write({ x: 3 });
    await shown.reads(`true ${ann}*=3 fine;`);
    show();
    await sees('');
    assert.deepEqual(memberships(sent, scope), [Join, Update, Leave, Join, Leave]);
  },

  async 'a component without a state sees members and is none'(t, on, server) {
    const [ben, scope] = [freshUser(), fresh('room')];
    const bob = await other(t, server.address, { username: ben });
    await within(DEADLINE_MS, scopesOf(bob).join(scope, { x: 1 }).ready, 'joined');
    const { shown, show, sent } = page(t, on, server.address);
    show(room(scope).Room);
    await shown.reads(`true ${ben}=1 fine;`);
    show();
    await eventually(() => actions(sent, scope).length === 2, 'the subscription ends');
    assert.deepEqual(actions(sent, scope), [Subscribe, Unsubscribe]);
  },

  async 'components of a scope share one member and one subscription, which leave with the last component'(t, on, server) {
    const [ann, scope] = [freshUser(), fresh('room')];
    const bob = await other(t, server.address);
    const sees = await following(bob, scope);
    const { shown, show, sent } = page(t, on, server.address, { auth: { username: ann } });
    const state = { x: 1 };
    show(room(scope, state).Room, room(scope, { x: 1 }).Room, room(scope).Room);
    await shown.reads(`true ${ann}*=1 fine;`.repeat(3));
    // Other components in their place are the same member.
    show(room(scope, { x: 2 }).Room, room(scope).Room);
    await shown.reads(`true ${ann}*=2 fine;`.repeat(2));
    await sees(`${ann}=2`);
    assert.deepEqual(memberships(sent, scope), [Join, Update]);
    show();
    await sees('');
    await eventually(() => actions(sent, scope).at(-1) === Unsubscribe, 'the subscription ends');
    assert.deepEqual(memberships(sent, scope), [Join, Update, Leave]);
  },

  async 'another scope is left and joined, and without a name there is no request'(t, on, server) {
    const [ann, one, two] = [freshUser(), fresh('room'), fresh('room')];
    const bob = await other(t, server.address);
    const [seesOne, seesTwo] = [await following(bob, one), await following(bob, two)];
    const scope = on.variable<string | undefined>(undefined);
    const { shown, show, sent } = page(t, on, server.address, { auth: { username: ann } });
    show(room(scope, { x: 1 }).Room);
    await shown.reads('false nothing fine;');
    scope.write(one);
    await shown.reads(`true ${ann}*=1 fine;`);
    await seesOne(`${ann}=1`);
    scope.write(two);
    await shown.reads(`true ${ann}*=1 fine;`);
    await seesOne('');
    await seesTwo(`${ann}=1`);
    scope.write(undefined);
    await shown.reads('false nothing fine;');
    await seesTwo('');
    for (const name of [one, two]) assert.deepEqual(memberships(sent, name), [Join, Leave]);
  },

  async 'after a loss the component is a member with its newest state'(t, on, server) {
    const [ann, ben, scope] = [freshUser(), freshUser(), fresh('room')];
    const bob = await other(t, server.address, { username: ben });
    const sees = await following(bob, scope);
    const proxy = await Proxy.during(t, server);
    const state = on.variable<unknown>({ x: 1 });
    const { shown, show, client } = page(t, on, proxy.address, { auth: { username: ann } });
    const { Room, last } = room(scope, state);
    show(Room);
    await shown.reads(`true ${ann}*=1 fine;`);
    const before = last().self?.id;
    const lost = inState(client, 'waiting');
    proxy.cut();
    await lost;
    state.write({ x: 7 });
    scopesOf(bob).join(scope, { x: 5 });
    await sees(`${ben}=5`);
    assert.equal(shown.text, `true ${ann}*=1 fine;`);
    proxy.restore();
    const users = [`${ann}*=7`, `${ben}=5`].sort().join();
    await shown.reads(`true ${users} fine;`);
    await sees([`${ann}=7`, `${ben}=5`].sort().join());
    assert.notEqual(last().self?.id, before);
  },

  async 'after another login the component is a member again'(t, on, server) {
    const [ann, scope] = [freshUser(), fresh('room')];
    const bob = await other(t, server.address);
    const sees = await following(bob, scope);
    const state = on.variable<unknown>({ x: 1 });
    const { shown, show, client } = page(t, on, server.address, { auth: { username: ann } });
    show(room(scope, state).Room);
    await shown.reads(`true ${ann}*=1 fine;`);
    client.close();
    await sees('');
    state.write({ x: 2 });
    await client.connect({ auth: { username: ann } });
    await shown.reads(`true ${ann}*=2 fine;`);
    await sees(`${ann}=2`);
  },

  async 'refusals are errors, and a retry asks again'(t, on, server) {
    const [ann, scope] = [freshUser(), fresh('closed')];
    const bob = await other(t, server.address);
    const sees = await following(bob, scope);
    const state = on.variable<unknown>({ x: 1 });
    const { shown, show, sent } = page(t, on, server.address, { auth: { username: ann } });
    const { Room, last } = room(scope, state);
    show(Room);
    // The rule refuses the member, and the list is still shown.
    await shown.reads('true  MESSAGE_DENIED;');
    last().retry();
    await eventually(() => actions(sent, scope).filter((action) => action === Join).length === 2, 'the component asks to join again');
    await shown.reads('true  MESSAGE_DENIED;');
    state.write(undefined);
    await shown.reads('true  fine;');
    state.write({ x: 1, key: 'open' });
    await shown.reads(`true ${ann}*=1 fine;`);
    // A refused later state leaves the one before.
    state.write({ x: 2, key: 'open', text: 'n'.repeat(2_000) });
    await shown.reads(`true ${ann}*=1 STATE_TOO_LARGE;`);
    state.write({ x: 3, key: 'open' });
    await shown.reads(`true ${ann}*=3 fine;`);
    await sees(`${ann}=3`);
    assert.equal(actions(sent, scope).filter((action) => action === Join).length, 3);
  },

  async 'a scope that the user may not see is an error, with which a waiting component fails'(t, on, server) {
    const scope = fresh('room');
    const plain = page(t, on, server.address, { auth: { username: 'eve' } });
    const { Room, last } = room(scope);
    plain.show(Room);
    await plain.shown.reads('false nothing MESSAGE_DENIED;');
    last().retry();
    await eventually(() => actions(plain.sent, scope).filter((action) => action === Subscribe).length === 2, 'the list is asked for again');
    await plain.shown.reads('false nothing MESSAGE_DENIED;');
    const waiting = page(t, on, server.address, { keepMs: 5_000, auth: { username: 'eve' } });
    waiting.show(room(scope, undefined, { suspense: true }).Room);
    await waiting.shown.reads('failed: MESSAGE_DENIED');
  },

  async 'a component that waits appears with the members, and initial ones are shown until then'(t, on, server) {
    const [ben, scope] = [freshUser(), fresh('room')];
    const bob = await other(t, server.address, { username: ben });
    await within(DEADLINE_MS, scopesOf(bob).join(scope, { x: 1 }).ready, 'joined');
    const { shown, show, client } = page(t, on, server.address, { autoConnect: false, keepMs: 5_000 });
    show(room(scope, undefined, { initial: [{ id: '1', user: 'old', state: { x: 0 } }] }).Room);
    await shown.reads('false old=0 fine;');
    await client.connect();
    await shown.reads(`true ${ben}=1 fine;`);
    const waiting = page(t, on, server.address, { keepMs: 5_000 });
    waiting.show(room(scope, undefined, { suspense: true }).Room);
    await waiting.shown.reads(`true ${ben}=1 fine;`);
    assert.deepEqual(actions(waiting.sent, scope), [Subscribe]);
  },
};
