// Subscriptions to patterns of events. The server sends each matching event once, under its name; the client finds the subscribers that its
// patterns match. Contract: `spec/deepstream.md`, "Patterns". A separate entry, `@tidewire/client/patterns`.

import type { Connection, Part } from './connection.js';
import { checkName, type TidewireError } from './error.js';
import type { EventCallback, EventContext, Events } from './event.js';
import { Interest, subscription, type Subscription } from './interest.js';
import { EventAction, Topic, type Message } from './protocol.js';
import type { EventsOf, Names, Schema, ValueOf } from './schema.js';

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

interface PatternSubscriber extends PatternOptions {
  callback: EventCallback;
}

/** Each client that subscribes to patterns has one entry. */
const all = new WeakMap<object, Patterns>();

/**
 * Calls `callback` with the name and payload of every event whose name matches `pattern`, until the subscription is removed. Segments are
 * divided by `/`; `*` matches one segment, and `**` at the end matches one or more. The server authorizes each name.
 *
 * @param events `client.event`
 */
export function subscribePattern<App extends Schema>(
  events: Events<App>,
  pattern: string,
  callback: (name: Names<EventsOf<App>>, payload: ValueOf<EventsOf<App>, Names<EventsOf<App>>>, context: EventContext) => void,
  options: PatternOptions = {},
): Subscription {
  const { connection } = events;
  checkName(pattern, 'pattern');
  connection.checkCallback(callback);
  let patterns = all.get(events);
  if (!patterns) {
    patterns = new Patterns(connection);
    all.set(events, patterns);
    events.patterns = patterns;
    connection.parts.get(Topic.Event)?.unshift(patterns);
  }
  return patterns.add(pattern, { ...options, callback: (payload, context) => callback(context.name as never, payload, context) });
}

/** Whether the segments of a name match the segments of a pattern. */
function matches(pattern: string[], name: string[]): boolean {
  const last = pattern.length - 1;
  const hasRest = pattern[last] === '**';
  const fits = hasRest ? name.length > last : name.length === last + 1;
  return fits && pattern.every((segment, at) => segment === '*' || segment === name[at] || (hasRest && at === last));
}

class Patterns implements Part {
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

  /** The callbacks of the patterns that match the name. */
  of(name: string): EventCallback[] {
    const segments = name.split('/');
    const matching = [...this.#segments].flatMap(([pattern, own]) => (matches(own, segments) ? [...(this.#subscribers.get(pattern) ?? [])] : []));
    return matching.map(({ callback }) => callback);
  }

  add(pattern: string, subscriber: PatternSubscriber): Subscription {
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
