// Presence: who is online, and who comes and goes. What changed while the connection was lost is told after it is back.

import type { Connection, Part } from './connection.js';
import { valueOf } from './data.js';
import { deferred, type Deferred } from './deferred.js';
import { TidewireError, checkName, refused } from './error.js';
import { Interest, subscription, type Subscription } from './interest.js';
import { PresenceAction, Topic, type Message } from './protocol.js';
import { Requests, type RequestLimits, type RequestOptions } from './request.js';

export interface PresenceOptions {
  /** The server refused the subscription, or has taken the right to it back. */
  onEnd?: (error: TidewireError) => void;
}

/** Called with what is known at first, and with every change. */
export type UserCallback = (isOnline: boolean, user: string) => void;
/** Called with all who are online, without a change at first; the set is the client's own and changes. */
export type EveryoneCallback = (users: ReadonlySet<string>, change?: { user: string; isOnline: boolean }) => void;

interface Subscriber<Callback> extends PresenceOptions {
  callback: Callback;
}

/** What is known of one user. */
interface Watched {
  subscribers: Set<Subscriber<UserCallback>>;
  isOnline: boolean | undefined;
  /** Whether a change came after the server was asked: it is newer than the answer. */
  isNewer: boolean;
  known: Deferred;
}

/** What is known of all users. */
interface Everyone {
  subscribers: Set<Subscriber<EveryoneCallback>>;
  users: Set<string> | undefined;
  /** Changes that came after the server was asked. */
  newer: Map<string, boolean>;
  known: Deferred;
}

/** The request for all users has no correlation id of its own. */
const ALL = 'all';

export class Presence {
  readonly #interest: Interest;
  readonly #requests: Requests;
  readonly #watched = new Map<string, Watched>();
  #everyone: Everyone | undefined;
  /** The last request for all users: answers can't be told apart, so that one is asked after the other. */
  #lastAll: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly connection: Connection,
    limits: RequestLimits,
  ) {
    this.#requests = new Requests(connection, limits);
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
        if (isNew && this.#everyone) this.#sayAll(PresenceAction.SubscribeAll);
      },
      closed: (reason) => {
        this.#everyone?.known.reject(reason);
        for (const { known } of this.#watched.values()) known.reject(reason);
      },
    };
    connection.parts.set(Topic.Presence, [this.#interest, this.#requests, own]);
  }

  /** The ids of all other users who are online. */
  all(options?: RequestOptions): Promise<string[]> {
    const ask = (): Promise<Message> => this.#requests.ask({ topic: Topic.Presence, action: PresenceAction.QueryAll }, true, options, ALL);
    const answer = this.#lastAll.then(ask, ask);
    this.#lastAll = answer;
    return answer.then(({ names = [] }) => names);
  }

  /** Which of `users` are online. */
  async query(users: string[], options?: RequestOptions): Promise<Record<string, boolean>> {
    if (!Array.isArray(users) || users.length === 0) throw new TidewireError('INVALID_ARGUMENT', 'users must be an array that is not empty');
    for (const user of users) checkName(user, 'user');
    const answer = await this.#requests.ask({ topic: Topic.Presence, action: PresenceAction.Query, names: users }, true, options);
    return valueOf(answer.data) as Record<string, boolean>;
  }

  /** Calls `callback` with whether `user` is online, now and whenever that changes. `ready` comes after the first call. */
  subscribe(user: string, callback: UserCallback, options: PresenceOptions = {}): Subscription {
    checkName(user, 'user');
    this.#check(callback);
    let watched = this.#watched.get(user);
    if (!watched) {
      watched = { subscribers: new Set(), isOnline: undefined, isNewer: false, known: deferred() };
      this.#watched.set(user, watched);
      this.#interest.want(user).catch(watched.known.reject);
    }
    const { subscribers, isOnline, known } = watched;
    const subscriber = { ...options, callback };
    subscribers.add(subscriber);
    if (isOnline !== undefined) queueMicrotask(() => subscribers.has(subscriber) && this.connection.call(callback, isOnline, user));
    return subscription(known.promise, () => {
      subscribers.delete(subscriber);
      if (subscribers.size > 0 || this.#watched.get(user)?.subscribers !== subscribers) return;
      this.#watched.delete(user);
      this.#interest.drop(user);
    });
  }

  /** Calls `callback` with all other users who are online, now and whenever one comes or goes. `ready` comes after the first call. */
  subscribeAll(callback: EveryoneCallback, options: PresenceOptions = {}): Subscription {
    this.#check(callback);
    if (!this.#everyone) {
      this.#everyone = { subscribers: new Set(), users: undefined, newer: new Map(), known: deferred() };
      this.#sayAll(PresenceAction.SubscribeAll);
    }
    const { subscribers, users, known } = this.#everyone;
    const subscriber = { ...options, callback };
    subscribers.add(subscriber);
    if (users) queueMicrotask(() => subscribers.has(subscriber) && this.connection.call(callback, users));
    return subscription(known.promise, () => {
      subscribers.delete(subscriber);
      if (subscribers.size > 0 || this.#everyone?.subscribers !== subscribers) return;
      this.#everyone = undefined;
      this.#sayAll(PresenceAction.UnsubscribeAll);
    });
  }

  #handle(message: Message, code: string | undefined): void {
    const { action, name = '', correlationId, isAck, originalAction } = message;
    if (code !== undefined) {
      const error = refused(code);
      if (originalAction === PresenceAction.SubscribeAll) this.#endAll(error);
      else if (!this.#requests.settle(originalAction === PresenceAction.QueryAll ? ALL : correlationId, error)) this.connection.onError(error);
    } else if (action === PresenceAction.QueryResponse) this.#requests.settle(correlationId, message);
    else if (action === PresenceAction.QueryAllResponse) this.#requests.settle(ALL, message);
    else if (action === PresenceAction.SubscribeAll && isAck) void this.#learnAll();
    else if (action === PresenceAction.Join || action === PresenceAction.Leave) {
      const watched = this.#watched.get(name);
      if (watched) watched.isNewer = true;
      this.#set(name, action === PresenceAction.Join);
    } else if (action === PresenceAction.JoinAll || action === PresenceAction.LeaveAll) {
      this.#everyone?.newer.set(name, action === PresenceAction.JoinAll);
      this.#setOfAll(name, action === PresenceAction.JoinAll);
    }
  }

  #check(callback: unknown): void {
    this.connection.checkUse();
    if (typeof callback !== 'function') throw new TidewireError('INVALID_ARGUMENT', 'the callback must be a function');
  }

  #sayAll(action: number): void {
    this.connection.answer({ topic: Topic.Presence, action });
  }

  /** Asks for the state of users who are watched from now on; changes that come meanwhile are newer than the answer. */
  async #learn(users: string[]): Promise<void> {
    const asked = users.map((user) => [user, this.#watched.get(user)] as const);
    for (const [, watched] of asked) if (watched) watched.isNewer = false;
    const states = await this.query(users).catch((error: TidewireError) => this.#unknown(error));
    for (const [user, watched] of asked) {
      const isOnline = states?.[user];
      if (!watched || this.#watched.get(user) !== watched) continue;
      if (isOnline !== undefined && !watched.isNewer) this.#set(user, isOnline);
      watched.known.resolve();
    }
  }

  async #learnAll(): Promise<void> {
    const everyone = this.#everyone;
    everyone?.newer.clear();
    const answer = await this.all().catch((error: TidewireError) => this.#unknown(error));
    if (!everyone || this.#everyone !== everyone) return;
    if (answer) {
      const online = new Set(answer);
      for (const [user, isOnline] of everyone.newer) {
        if (isOnline) online.add(user);
        else online.delete(user);
      }
      if (everyone.users) {
        for (const user of new Set([...everyone.users, ...online])) this.#setOfAll(user, online.has(user));
      } else {
        everyone.users = online;
        for (const { callback } of [...everyone.subscribers]) this.connection.call(callback, online);
      }
    }
    everyone.known.resolve();
  }

  /** The state can't be had. If the connection is lost it is asked for again after that. */
  #unknown(error: TidewireError): undefined {
    if (error.code !== 'CLOSED') this.connection.onError(error);
    return undefined;
  }

  #set(user: string, isOnline: boolean): void {
    const watched = this.#watched.get(user);
    if (!watched || watched.isOnline === isOnline) return;
    watched.isOnline = isOnline;
    for (const { callback } of [...watched.subscribers]) this.connection.call(callback, isOnline, user);
  }

  #setOfAll(user: string, isOnline: boolean): void {
    const { users, subscribers = [] } = this.#everyone ?? {};
    if (!users || users.has(user) === isOnline) return;
    if (isOnline) users.add(user);
    else users.delete(user);
    for (const { callback } of [...subscribers]) this.connection.call(callback, users, { user, isOnline });
  }

  #end(user: string, error: TidewireError): void {
    const subscribers = this.#watched.get(user)?.subscribers ?? [];
    this.#watched.delete(user);
    this.#tellEnd([...subscribers], error);
  }

  #endAll(error: TidewireError): void {
    const everyone = this.#everyone;
    this.#everyone = undefined;
    everyone?.known.reject(error);
    this.#tellEnd([...(everyone?.subscribers ?? [])], error);
  }

  #tellEnd(subscribers: PresenceOptions[], error: TidewireError): void {
    if (!subscribers.some(({ onEnd }) => onEnd)) this.connection.onError(error);
    for (const { onEnd } of subscribers) if (onEnd) this.connection.call(onEnd, error);
  }
}
