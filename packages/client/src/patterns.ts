// Subscriptions to patterns of events. The server sends each matching event once, under its name; the client finds the subscribers that its
// patterns match. Contract: `spec/deepstream.md`, "Patterns".

import type { Connection } from './connection.js';
import { checkName, type TidewireError } from './error.js';
import { Interest, subscription, type Subscription } from './interest.js';
import { EventAction, Topic, type Message } from './protocol.js';

/** Events of a pattern that were missed and will not arrive. */
export interface PatternGap {
  readonly pattern: string;
  /** The number of missed events; absent if it is unknown. */
  readonly missed?: number;
}

export interface PatternOptions {
  /** Called when events were missed: the connection was lost, or this client reads too slowly. */
  onGap?: (gap: PatternGap) => void;
  /** Called when the server refused the pattern or revoked the right to it: no more events arrive. */
  onEnd?: (error: TidewireError) => void;
}

export interface PatternSubscriber extends PatternOptions {
  /** Called with the name, the payload and the context of an event. */
  callback: (...args: [name: never, payload: never, context: never]) => void;
}

/** Whether the segments of a name match those of a pattern. */
function matches(pattern: string[], name: string[]): boolean {
  const last = pattern.length - 1;
  const hasRest = pattern[last] === '**';
  const fits = hasRest ? name.length > last : name.length === last + 1;
  return fits && pattern.every((segment, at) => segment === '*' || segment === name[at] || (hasRest && at === last));
}

export class Patterns {
  readonly #interest: Interest;
  readonly #subscribers = new Map<string, Set<PatternSubscriber>>();
  /** The segments of each pattern. */
  readonly #segments = new Map<string, string[]>();
  /** Patterns whose events may have been missed since the connection was lost. */
  #missed: string[] = [];

  constructor(private readonly connection: Connection) {
    this.#interest = new Interest(connection, {
      topic: Topic.Event,
      subscribe: EventAction.SubscribePatterns,
      unsubscribe: EventAction.UnsubscribePatterns,
      refused: (pattern, error) => {
        const subscribers = this.#subscribers.get(pattern) ?? [];
        this.#forget(pattern);
        connection.callEnds(subscribers, error);
      },
    });
  }

  /** The subscribers whose patterns match the name. */
  of(name: string): PatternSubscriber[] {
    if (this.#segments.size === 0) return [];
    const segments = name.split('/');
    return [...this.#segments].flatMap(([pattern, own]) => (matches(own, segments) ? [...(this.#subscribers.get(pattern) ?? [])] : []));
  }

  add(pattern: string, subscriber: PatternSubscriber): Subscription {
    checkName(pattern, 'pattern');
    this.connection.checkCallback(subscriber.callback);
    let all = this.#subscribers.get(pattern);
    if (!all) {
      this.#subscribers.set(pattern, (all = new Set()));
      this.#segments.set(pattern, pattern.split('/'));
    }
    all.add(subscriber);
    return subscription(this.#interest.want(pattern), () => {
      const left = this.#subscribers.get(pattern);
      if (!left?.delete(subscriber) || left.size > 0) return;
      this.#forget(pattern);
      this.#interest.drop(pattern);
    });
  }

  handle(message: Message, code: string | undefined): boolean {
    const { action, name = '', missed } = message;
    if (action !== EventAction.PatternGap) return this.#interest.handle(message, code);
    this.#tellGap(missed === undefined ? { pattern: name } : { pattern: name, missed });
    return true;
  }

  opened(isNew: boolean): void {
    this.#interest.opened(isNew);
    if (!isNew) return;
    const missed = this.#missed;
    this.#missed = [];
    for (const pattern of missed) this.#tellGap({ pattern });
  }

  lost(): void {
    this.#interest.lost();
    this.#missed = [...this.#subscribers.keys()];
  }

  closed(reason: TidewireError): void {
    this.#interest.closed(reason);
  }

  #tellGap(gap: PatternGap): void {
    this.connection.callAll([...(this.#subscribers.get(gap.pattern) ?? [])].flatMap(({ onGap }) => onGap ?? []), gap);
  }

  #forget(pattern: string): void {
    this.#subscribers.delete(pattern);
    this.#segments.delete(pattern);
  }
}
