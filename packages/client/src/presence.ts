// Presence: which users are online, and which join or leave. Changes during a lost connection are reported after it is back. A separate
// entry, `@tidewire/client/presence`.

import type { Client } from './client.js';
import type { Connection, Part } from './connection.js';
import { valueOf } from './data.js';
import { deferred, type Deferred } from './deferred.js';
import { TidewireError, checkName, refused } from './error.js';
import { Interest, subscription, type Subscription } from './interest.js';
import { PresenceAction, Topic, type Message } from './protocol.js';
import { Requests, type RequestOptions } from './request.js';
import type { Schema } from './schema.js';

export interface PresenceOptions {
  /** Called when the server refused the subscription or revoked the right to it. */
  onEnd?: (error: TidewireError) => void;
}

/** Called with the known state at first, and with every change. */
export type UserCallback = (isOnline: boolean, user: string) => void;
/** Called with all users that are online, at first without `change`. The set belongs to the client, which changes it later. */
export type EveryoneCallback = (users: ReadonlySet<string>, change?: { user: string; isOnline: boolean }) => void;

interface Subscriber<Callback> extends PresenceOptions {
  callback: Callback;
}

/** The watch of one user, or of all users. */
interface Watch {
  subscribers: Set<Subscriber<UserCallback | EveryoneCallback>>;
  /** The watched users that are online; undefined until the server has answered. */
  online: Set<string> | undefined;
  /** Changes that arrived after the query was sent, and are newer than its answer. */
  newer: Map<string, boolean>;
  known: Deferred;
}

/** The key of the watch of all users; no user has this name. */
const EVERYONE = '';
/** The query for all users has no correlation id, and waits for its answer under this key. */
const ALL = 'all';

/** Each client that uses presence has one entry. */
const all = new WeakMap<object, Presence>();

/** The presence of the users that share the server with `client`: the same object at every call. */
export function presenceOf<App extends Schema>(client: Client<App>): Presence {
  const { connection } = client.event;
  let presence = all.get(connection);
  if (!presence) all.set(connection, (presence = new Presence(connection)));
  return presence;
}

export class Presence {
  readonly #connection: Connection;
  readonly #interest: Interest;
  readonly #requests: Requests;
  readonly #watches = new Map<string, Watch>();
  /** The last query for all users. Its answer has no correlation id, so each query waits for the answer to the previous one. */
  #lastAll: Promise<unknown> = Promise.resolve();

  /** @internal */
  constructor(connection: Connection) {
    this.#connection = connection;
    this.#requests = new Requests(connection);
    this.#interest = new Interest(connection, {
      topic: Topic.Presence,
      subscribe: PresenceAction.Subscribe,
      unsubscribe: PresenceAction.Unsubscribe,
      held: (users) => void this.#learn(users),
      refused: (user, error) => this.#end(user, error),
    });
    const own: Part = {
      handle: (message, code) => this.#handle(message, code),
      opened: (isNew) => {
        if (isNew && this.#watches.has(EVERYONE)) this.#sayAll(PresenceAction.SubscribeAll);
      },
      closed: (reason) => {
        for (const { known } of this.#watches.values()) known.reject(reason);
      },
    };
    const { parts } = connection;
    parts.set(Topic.Presence, [...(parts.get(Topic.Presence) ?? []), this.#interest, this.#requests, own]);
  }

  /** The ids of all other users that are online. */
  all(options?: RequestOptions): Promise<string[]> {
    const ask = (): Promise<Message> => this.#requests.ask({ topic: Topic.Presence, action: PresenceAction.QueryAll }, true, options, ALL);
    const answer = this.#lastAll.then(ask, ask);
    this.#lastAll = answer;
    return answer.then(({ names = [] }) => names);
  }

  /** Tells for each of `users` whether it is online. */
  async query(users: string[], options?: RequestOptions): Promise<Record<string, boolean>> {
    if (!Array.isArray(users) || users.length === 0) throw new TidewireError('INVALID_ARGUMENT', 'users must be an array that is not empty');
    for (const user of users) checkName(user, 'user');
    const answer = await this.#requests.ask({ topic: Topic.Presence, action: PresenceAction.Query, names: users }, true, options);
    return valueOf(answer.data) as Record<string, boolean>;
  }

  /** Calls `callback` with whether `user` is online, now and whenever that changes. `ready` is fulfilled after the first call. */
  subscribe(user: string, callback: UserCallback, options: PresenceOptions = {}): Subscription {
    checkName(user, 'user');
    return this.#watch(user, { ...options, callback });
  }

  /**
   * Calls `callback` with all other users that are online, now and whenever a user joins or leaves. `ready` is fulfilled after the first
   * call.
   */
  subscribeAll(callback: EveryoneCallback, options: PresenceOptions = {}): Subscription {
    return this.#watch(EVERYONE, { ...options, callback });
  }

  #watch(key: string, subscriber: Subscriber<UserCallback | EveryoneCallback>): Subscription {
    this.#connection.checkCallback(subscriber.callback);
    const watch: Watch = this.#watches.get(key) ?? { subscribers: new Set(), online: undefined, newer: new Map(), known: deferred() };
    const { subscribers, known } = watch;
    if (subscribers.size === 0) {
      this.#watches.set(key, watch);
      if (key === EVERYONE) this.#sayAll(PresenceAction.SubscribeAll);
      else this.#interest.want(key).catch(known.reject);
    }
    subscribers.add(subscriber);
    if (watch.online) queueMicrotask(() => subscribers.has(subscriber) && this.#call(key, watch, subscriber));
    return subscription(known.promise, () => {
      subscribers.delete(subscriber);
      if (subscribers.size > 0 || this.#watches.get(key) !== watch) return;
      this.#watches.delete(key);
      if (key === EVERYONE) this.#sayAll(PresenceAction.UnsubscribeAll);
      else this.#interest.drop(key);
    });
  }

  #handle(message: Message, code: string | undefined): void {
    const { action, name = '', correlationId, isAck, originalAction } = message;
    if (code !== undefined) {
      const error = refused(code);
      if (originalAction === PresenceAction.SubscribeAll) this.#end(EVERYONE, error);
      else if (!this.#requests.settle(originalAction === PresenceAction.QueryAll ? ALL : correlationId, error)) this.#connection.onError(error);
    } else if (action === PresenceAction.QueryResponse) this.#requests.settle(correlationId, message);
    else if (action === PresenceAction.QueryAllResponse) this.#requests.settle(ALL, message);
    else if (action === PresenceAction.SubscribeAll && isAck) void this.#learnAll();
    else if (action === PresenceAction.Join || action === PresenceAction.Leave) this.#change(name, name, action === PresenceAction.Join);
    else if (action === PresenceAction.JoinAll || action === PresenceAction.LeaveAll) {
      this.#change(EVERYONE, name, action === PresenceAction.JoinAll);
    }
  }

  #sayAll(action: number): void {
    this.#connection.answer({ topic: Topic.Presence, action });
  }

  /** Queries the state of users whose subscription the server has just confirmed. */
  async #learn(users: string[]): Promise<void> {
    const asked = users.map((user) => this.#asking(user));
    const states = await this.query(users).catch((error: TidewireError) => this.#unknown(error));
    users.forEach((user, at) => this.#take(user, asked[at], states && (states[user] ? [user] : [])));
  }

  async #learnAll(): Promise<void> {
    const asked = this.#asking(EVERYONE);
    this.#take(EVERYONE, asked, await this.all().catch((error: TidewireError) => this.#unknown(error)));
  }

  /** Starts a query: only changes that arrive after this are newer than its answer. */
  #asking(key: string): Watch | undefined {
    const watch = this.#watches.get(key);
    watch?.newer.clear();
    return watch;
  }

  /** Reports that a query failed, unless the client was closed: the next session queries again. */
  #unknown(error: TidewireError): undefined {
    if (error.code !== 'CLOSED') this.#connection.onError(error);
    return undefined;
  }

  /** Applies the answer to the query of `watch`. */
  #take(key: string, watch: Watch | undefined, answer: string[] | undefined): void {
    if (!watch || this.#watches.get(key) !== watch) return;
    if (answer) {
      const online = new Set(answer);
      watch.newer.forEach((isOnline, user) => put(online, user, isOnline));
      if (watch.online) for (const user of new Set([...watch.online, ...online])) this.#set(key, watch, user, online.has(user));
      else {
        watch.online = online;
        for (const subscriber of [...watch.subscribers]) this.#call(key, watch, subscriber);
      }
    }
    watch.known.resolve();
  }

  #change(key: string, user: string, isOnline: boolean): void {
    const watch = this.#watches.get(key);
    watch?.newer.set(user, isOnline);
    if (watch) this.#set(key, watch, user, isOnline);
  }

  #set(key: string, watch: Watch, user: string, isOnline: boolean): void {
    if (!watch.online || watch.online.has(user) === isOnline) return;
    put(watch.online, user, isOnline);
    for (const subscriber of [...watch.subscribers]) this.#call(key, watch, subscriber, { user, isOnline });
  }

  #call(key: string, { online }: Watch, { callback }: Subscriber<UserCallback | EveryoneCallback>, change?: { user: string; isOnline: boolean }): void {
    const users = online as Set<string>;
    if (key === EVERYONE) this.#connection.call(callback as EveryoneCallback, users, change);
    else this.#connection.call(callback as UserCallback, users.has(key), key);
  }

  #end(key: string, error: TidewireError): void {
    const watch = this.#watches.get(key);
    this.#watches.delete(key);
    watch?.known.reject(error);
    this.#connection.callEnds(watch?.subscribers ?? [], error);
  }
}

function put(users: Set<string>, user: string, isOnline: boolean): void {
  if (isOnline) users.add(user);
  else users.delete(user);
}
