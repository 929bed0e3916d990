// The names that a session subscribes to, provides or opens: events, users, rpcs and records. Names that are added in one turn of the event
// loop are sent in one message. A new session asks for all names again.

import type { Connection } from './connection.js';
import { deferred, type Deferred } from './deferred.js';
import { refused, type TidewireError } from './error.js';
import type { Message } from './protocol.js';

/** The removal of a subscription or a provider; it may be called more than once. */
export interface Subscription {
  (): void;
  /** Fulfilled when the server confirms, so that nothing after that is missed; rejected when the server refuses. */
  readonly ready: Promise<void>;
}

/** `stop` as a removal that takes effect once. */
export function subscription(ready: Promise<void>, stop: () => void): Subscription {
  let isOver = false;
  const remove = (): void => {
    if (isOver) return;
    isOver = true;
    stop();
  };
  return Object.assign(remove, { ready });
}

/** The messages that subscribe to names and unsubscribe from them. */
export interface InterestActions {
  topic: number;
  subscribe: number;
  unsubscribe: number;
  /** Subscribes to names that must not be created, if the primitive has such names. */
  subscribeExisting?: number;
  isExisting?(name: string): boolean;
  /** More fields of the message that subscribes to `names`. */
  fields?(names: string[]): Partial<Message>;
  /** The server has confirmed `names` for the first time in this session. */
  held?(names: string[]): void;
  /** The server refused `name`, or revoked it; the client does not subscribe to it again. */
  refused(name: string, error: TidewireError): void;
}

/** The most names of one message, and about the most bytes, so that a message stays small. */
const BULK_MAX = 1_000;
const BULK_BYTES_MAX = 256 * 1024;

export class Interest {
  readonly #wanted = new Map<string, Deferred>();
  /** The names that the session has requested: the id of the message that did so, and the promise of the request. */
  readonly #asked = new Map<string, { id: string; ready: Deferred | undefined }>();
  readonly #bulks = new Map<string, string[]>();
  #changed = new Set<string>();
  #count = 0;

  constructor(
    private readonly connection: Connection,
    private readonly actions: InterestActions,
  ) {}

  /** Subscribes to `name`, once for any number of calls. Fulfilled when the server has confirmed. */
  want(name: string): Promise<void> {
    let ready = this.#wanted.get(name);
    if (!ready) {
      ready = deferred();
      this.#wanted.set(name, ready);
      this.#change(name);
    }
    return ready.promise;
  }

  /** Unsubscribes from `name`. */
  drop(name: string): void {
    if (this.#wanted.delete(name)) this.#change(name);
  }

  /** The server has ended the subscription to `name` by itself, and the client no longer needs it. */
  forget(name: string): void {
    this.#asked.delete(name);
    this.#wanted.delete(name);
  }

  /** Handles acknowledgements and refusals; false if `message` is neither. */
  handle(message: Message, code: string | undefined): boolean {
    const { topic, subscribe, unsubscribe, subscribeExisting = subscribe } = this.actions;
    const { action, correlationId = '', originalAction, name } = message;
    if (message.isAck && (action === subscribe || action === subscribeExisting || action === unsubscribe)) {
      const held = this.#take(correlationId).filter((one) => this.#asked.get(one)?.id === correlationId);
      for (const one of held) this.#asked.get(one)?.ready?.resolve();
      if (held.length > 0) this.actions.held?.(held);
      return true;
    }
    if (message.topic !== topic || code === undefined || (originalAction !== subscribe && originalAction !== subscribeExisting)) return false;
    // A refusal without a name refuses the whole message. A refusal without a correlation id revokes a right.
    const asked = this.#take(correlationId);
    const left = asked.filter((one) => one !== name);
    if (name !== undefined && left.length > 0) this.#bulks.set(correlationId, left);
    const names = name === undefined ? asked : [name];
    for (const one of names) {
      const last = this.#asked.get(one);
      if (last && (correlationId === '' || last.id === correlationId)) this.#refuse(one, refused(code, one));
    }
    return true;
  }

  /** In a new session, subscribes to all names. In the same session, sends the changes that have waited for the connection. */
  opened(isNew: boolean): void {
    if (isNew) {
      this.lost();
      this.#changed = new Set(this.#wanted.keys());
    }
    this.#flush();
  }

  lost(): void {
    this.#asked.clear();
    this.#bulks.clear();
  }

  /**
   * The connection is closed. The promises that still wait are rejected. After the next `connect()`, the client subscribes to the names
   * again.
   */
  closed(reason: TidewireError): void {
    for (const ready of this.#wanted.values()) ready.reject(reason);
  }

  #change(name: string): void {
    if (this.#changed.size === 0) queueMicrotask(() => this.#flush());
    this.#changed.add(name);
  }

  #flush(): void {
    if (this.connection.state !== 'open') return;
    const changed = [...this.#changed];
    this.#changed = new Set();
    // If a name was dropped and is wanted again, the session unsubscribes and subscribes again, so that it receives the current value.
    const unwanted = changed.filter((name) => this.#asked.get(name)?.ready !== this.#wanted.get(name) && this.#asked.delete(name));
    const wanted = changed.filter((name) => this.#wanted.has(name) && !this.#asked.has(name));
    const { subscribe, unsubscribe, subscribeExisting, isExisting = () => false } = this.actions;
    this.#say(unsubscribe, unwanted);
    this.#say(subscribe, wanted.filter((name) => !isExisting(name)));
    if (subscribeExisting !== undefined) this.#say(subscribeExisting, wanted.filter(isExisting));
  }

  #say(action: number, all: string[]): void {
    const isSubscribe = action !== this.actions.unsubscribe;
    // A UTF-16 code unit has at most three bytes. A name may occur in two fields, one of which also has numbers.
    const bytesMax = Math.min(BULK_BYTES_MAX, this.connection.messageBytesMax / 2);
    for (let at = 0, end = 0; at < all.length; at = end) {
      for (let bytes = 0; end < all.length && end - at < BULK_MAX; end += 1) {
        bytes += (all[end] as string).length * 6 + 40;
        if (bytes > bytesMax && end > at) break;
      }
      const names = all.slice(at, end);
      const id = String(this.#count++);
      this.#bulks.set(id, names);
      if (isSubscribe) for (const name of names) this.#asked.set(name, { id, ready: this.#wanted.get(name) });
      const fields = isSubscribe ? this.actions.fields?.(names) : {};
      try {
        this.connection.send({ topic: this.actions.topic, action, names, correlationId: id, ...fields });
      } catch (error) {
        this.#take(id);
        for (const name of names) this.#refuse(name, error as TidewireError);
      }
    }
  }

  #take(id: string): string[] {
    const names = this.#bulks.get(id) ?? [];
    this.#bulks.delete(id);
    return names;
  }

  #refuse(name: string, error: TidewireError): void {
    const ready = this.#wanted.get(name);
    this.forget(name);
    if (!ready) return;
    ready.reject(error);
    this.actions.refused(name, error);
  }
}
