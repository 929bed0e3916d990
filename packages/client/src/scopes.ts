// Presence in scopes: the sessions that are members of a named scope, each with a state such as a cursor. After a lost connection the client
// joins and follows its scopes again. Contract: `spec/deepstream.md`, "Scopes". A separate entry, `@tidewire/client/scopes`.

import type { Client } from './client.js';
import type { Connection, Part } from './connection.js';
import { payload, valueOf } from './data.js';
import { deferred, type Deferred } from './deferred.js';
import { checkName, refused, type TidewireError } from './error.js';
import { subscription, type Subscription } from './interest.js';
import { ScopeAction, Topic, type Message } from './protocol.js';
import type { Names, Schema, ScopesOf, ValueOf } from './schema.js';

/** A session in a scope. A user with two tabs has two members. */
export interface Member<State = unknown> {
  /** Identifies the session; after a reconnect it has another id. */
  readonly id: string;
  /** The user id; absent if the session has none. */
  readonly user?: string;
  readonly state: State;
}

export interface FollowOptions {
  /** Called when the server refused the subscription or revoked the right to it. */
  onEnd?: (error: TidewireError) => void;
}

export interface JoinOptions {
  /** The shortest time between two states that are sent, in milliseconds. Default 50. */
  throttleMs?: number;
  /** Called when the server refused the member or revoked the right to be one. */
  onEnd?: (error: TidewireError) => void;
  /** Called when the server refused a later state. The others still see the state before. Without it, `client.onError` is called. */
  onRefused?: (error: TidewireError) => void;
}

/** This session as a member of a scope. A call leaves the scope. */
export interface Membership<State = unknown> extends Subscription {
  /** The id of the member; undefined until the server has confirmed it, and after a lost connection. */
  readonly id: string | undefined;
  /** Replaces the state. The others see the newest one: states that follow each other faster than `throttleMs` are skipped, the last never. */
  update(state: State): void;
}

type Change = Member & { type: 'joined' | 'updated' | 'left' };

interface Joined {
  users: Set<JoinOptions>;
  /** The newest state as JSON, and the one that was sent. */
  data: string;
  sent: string | undefined;
  timer: ReturnType<typeof setTimeout> | undefined;
  throttleMs: number;
  id: string | undefined;
  ready: Deferred;
}

type Callback<State = unknown> = (members: ReadonlyArray<Member<State>>, self: Member<State> | undefined) => void;

interface Followed {
  users: Set<FollowOptions & { callback: Callback }>;
  members: readonly Member[] | undefined;
  /** The one of `members` that is this session. */
  self: Member | undefined;
  /** Whether the members are from this session, so that changes apply to them. */
  isCurrent: boolean;
  ready: Deferred;
}

/** The codes of the server's refusals from 120. */
const REFUSALS = ['INVALID_SCOPE_DATA', 'STATE_TOO_LARGE', 'TOO_MANY_SCOPES', 'SCOPE_FULL', 'NOT_A_MEMBER', 'SCOPE_UNAVAILABLE'];
const THROTTLE_MS = 50;

/** Each client that uses scopes has one entry. */
const all = new WeakMap<object, Scopes<object>>();

/** The scopes of the server of `client`: the same object at every call. */
export function scopesOf<App extends Schema>(client: Client<App>): Scopes<ScopesOf<App>> {
  const { connection } = client.event;
  let scopes = all.get(connection);
  if (!scopes) all.set(connection, (scopes = new Scopes(connection)));
  return scopes as unknown as Scopes<ScopesOf<App>>;
}

export class Scopes<States extends object> implements Part {
  readonly #connection: Connection;
  readonly #joined = new Map<string, Joined>();
  readonly #followed = new Map<string, Followed>();

  /** @internal */
  constructor(connection: Connection) {
    this.#connection = connection;
    connection.parts.set(Topic.Presence, [this, ...(connection.parts.get(Topic.Presence) ?? [])]);
  }

  /**
   * Makes this session a member of the scope with this state. A session is at most once a member of a scope: a second call replaces the
   * state, and the session leaves with the last membership.
   */
  join<Name extends Names<States>>(scope: Name, state: ValueOf<States, Name>, options: JoinOptions = {}): Membership<ValueOf<States, Name>> {
    checkName(scope, 'scope');
    this.#connection.checkUse();
    const data = text(state);
    const known = this.#joined.get(scope);
    const joined: Joined = known ?? { users: new Set(), data, sent: undefined, timer: undefined, throttleMs: 0, id: undefined, ready: deferred() };
    const user = { ...options };
    joined.users.add(user);
    joined.throttleMs = options.throttleMs ?? THROTTLE_MS;
    if (known) this.#update(scope, joined, data);
    else {
      this.#joined.set(scope, joined);
      this.#sayJoin(scope, joined);
    }
    const leave = subscription(joined.ready.promise, () => {
      joined.users.delete(user);
      if (joined.users.size > 0 || this.#joined.get(scope) !== joined) return;
      this.#drop(scope, joined);
      this.#say(ScopeAction.Leave, scope);
    });
    const update = (next: ValueOf<States, Name>): void => {
      this.#connection.checkUse();
      const newest = text(next);
      if (joined.users.has(user) && this.#joined.get(scope) === joined) this.#update(scope, joined, newest);
    };
    return Object.defineProperty(Object.assign(leave, { update }), 'id', { get: () => joined.id }) as unknown as Membership<ValueOf<States, Name>>;
  }

  /**
   * Calls `callback` with all members of the scope, this session included if it is one, and with this session's member: at first, and after
   * each change. The array and the members are never changed; a member that has not changed is the same object. `ready` is fulfilled after
   * the first call.
   */
  follow<Name extends Names<States>>(
    scope: Name,
    callback: (members: ReadonlyArray<Member<ValueOf<States, Name>>>, self: Member<ValueOf<States, Name>> | undefined) => void,
    options: FollowOptions = {},
  ): Subscription {
    checkName(scope, 'scope');
    this.#connection.checkCallback(callback);
    let followed = this.#followed.get(scope);
    const own: Followed = (followed ??= { users: new Set(), members: undefined, self: undefined, isCurrent: false, ready: deferred() });
    const user = { ...options, callback: callback as Callback };
    if (own.users.size === 0) {
      this.#followed.set(scope, own);
      this.#say(ScopeAction.Subscribe, scope);
    }
    own.users.add(user);
    if (own.members) queueMicrotask(() => own.users.has(user) && own.members && this.#connection.call(user.callback, own.members, own.self));
    return subscription(own.ready.promise, () => {
      own.users.delete(user);
      if (own.users.size > 0 || this.#followed.get(scope) !== own) return;
      this.#followed.delete(scope);
      this.#say(ScopeAction.Unsubscribe, scope);
    });
  }

  /** @internal */
  handle({ action, name: scope = '', data, originalAction }: Message, code: string | undefined): boolean {
    const isRefusal = originalAction === ScopeAction.Join || originalAction === ScopeAction.Update || originalAction === ScopeAction.Subscribe;
    const joined = this.#joined.get(scope);
    const followed = this.#followed.get(scope);
    if (isRefusal) {
      this.#refused(originalAction, scope, refused(code ?? REFUSALS[action - 120] ?? `refusal ${action}`, scope));
    } else if (action === ScopeAction.Joined) {
      if (joined) joined.id = valueOf(data) as string;
      joined?.ready.resolve();
      // The list may have come first.
      if (followed?.isCurrent && followed.members && !followed.self) this.#show(scope, followed, followed.members);
    } else if (action === ScopeAction.Snapshot) {
      if (followed) this.#show(scope, followed, kept(followed.members, (valueOf(data) as { members: Member[] }).members));
    } else if (action === ScopeAction.Changed) {
      // After a new request, the list comes first.
      if (followed?.isCurrent && followed.members) this.#show(scope, followed, changed(followed.members, valueOf(data) as Change[]));
    } else return false;
    return true;
  }

  /** @internal */
  opened(isNew: boolean): void {
    for (const [scope, joined] of [...this.#joined]) {
      if (isNew) this.#sayJoin(scope, joined);
      else this.#send(scope, joined);
    }
    if (isNew) for (const scope of [...this.#followed.keys()]) this.#say(ScopeAction.Subscribe, scope);
  }

  /** @internal */
  lost(): void {
    for (const joined of this.#joined.values()) joined.id = joined.sent = undefined;
    for (const followed of this.#followed.values()) followed.isCurrent = false;
  }

  /** @internal */
  closed(reason: TidewireError): void {
    for (const joined of this.#joined.values()) {
      clearTimeout(joined.timer);
      joined.ready.reject(reason);
    }
    for (const { ready } of this.#followed.values()) ready.reject(reason);
  }

  #say(action: number, name: string, fields: Partial<Message> = {}): void {
    const error = this.#connection.answer({ topic: Topic.Presence, action, name, ...fields });
    if (error) this.#refused(action, name, error);
  }

  #sayJoin(scope: string, joined: Joined): void {
    joined.sent = joined.data;
    this.#wait(scope, joined);
    this.#say(ScopeAction.Join, scope, { data: joined.data });
  }

  #update(scope: string, joined: Joined, data: string): void {
    joined.data = data;
    if (joined.timer === undefined) this.#send(scope, joined);
  }

  /** Sends the newest state, unless the others have it. Without a connection it is sent later. */
  #send(scope: string, joined: Joined): void {
    const { data } = joined;
    if (joined.sent === undefined || joined.sent === data) return;
    try {
      if (!this.#connection.send({ topic: Topic.Presence, action: ScopeAction.Update, name: scope, data })) return;
    } catch (error) {
      this.#refused(ScopeAction.Update, scope, error as TidewireError);
    }
    joined.sent = data;
    this.#wait(scope, joined);
  }

  /** Sends the newest state after the shortest time between two of them. */
  #wait(scope: string, joined: Joined): void {
    clearTimeout(joined.timer);
    joined.timer = setTimeout(() => {
      joined.timer = undefined;
      this.#send(scope, joined);
    }, joined.throttleMs);
  }

  #drop(scope: string, joined: Joined): void {
    clearTimeout(joined.timer);
    this.#joined.delete(scope);
    joined.id = undefined;
  }

  #refused(action: number, scope: string, error: TidewireError): void {
    const joined = this.#joined.get(scope);
    const followed = this.#followed.get(scope);
    if (action === ScopeAction.Update) {
      // The session may have left or been refused before the server took the state.
      if (!joined || error.code === 'NOT_A_MEMBER') return;
      const callbacks = [...joined.users].flatMap(({ onRefused }) => onRefused ?? []);
      if (callbacks.length === 0) this.#connection.onError(error);
      this.#connection.callAll(callbacks, error);
    } else if (action === ScopeAction.Join && joined) {
      this.#drop(scope, joined);
      joined.ready.reject(error);
      this.#connection.callEnds(joined.users, error);
    } else if (action === ScopeAction.Subscribe && followed) {
      this.#followed.delete(scope);
      followed.ready.reject(error);
      this.#connection.callEnds(followed.users, error);
    }
  }

  #show(scope: string, followed: Followed, members: readonly Member[]): void {
    const id = this.#joined.get(scope)?.id;
    followed.isCurrent = true;
    followed.members = members;
    followed.self = members.find((member) => member.id === id);
    this.#connection.callAll([...followed.users].map(({ callback }) => callback), members, followed.self);
    followed.ready.resolve();
  }
}

/** A state as JSON. */
function text(state: unknown): string {
  return payload(state ?? null).data as string;
}

/** The members of a list, with the known objects of those that are equal. */
function kept(known: readonly Member[] = [], members: readonly Member[]): readonly Member[] {
  const before = new Map(known.map((member) => [JSON.stringify(member), member]));
  return members.map((member) => before.get(JSON.stringify(member)) ?? member);
}

/** The members after changes, in the order in which they have joined. */
function changed(known: readonly Member[], changes: readonly Change[]): readonly Member[] {
  const members = new Map(known.map((member) => [member.id, member]));
  for (const { type, ...change } of changes) {
    const before = members.get(change.id);
    if (type === 'left') members.delete(change.id);
    else if (type === 'joined' || before) members.set(change.id, { ...(type === 'updated' && before), ...change });
  }
  return [...members.values()];
}
