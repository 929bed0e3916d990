// What one session holds by name: subscriptions to events and users, rpc names, records. Names that come in one turn of the event
// loop travel in one message, and all come back in a new session.

import type { Connection } from './connection.js';
import { deferred, type Deferred } from './deferred.js';
import { refused, type TidewireError } from './error.js';
import type { Message } from './protocol.js';

/** The removal of what was subscribed or provided; it may be called more than once. */
export interface Subscription {
  (): void;
  /** Fulfilled when the server confirms, so that nothing later is missed; rejected when it refuses. */
  readonly ready: Promise<void>;
}

/** `stop` as a removal that acts once. */
export function subscription(ready: Promise<void>, stop: () => void): Subscription {
  let isOver = false;
  const remove = (): void => {
    if (isOver) return;
    isOver = true;
    stop();
  };
  return Object.assign(remove, { ready });
}

/** Which messages ask for names and give them back. */
export interface InterestActions {
  topic: number;
  subscribe: number;
  unsubscribe: number;
  /** Asks for names that must not be created, if there are such. */
  subscribeExisting?: number;
  isExisting?(name: string): boolean;
  /** More fields of the message that asks for `names`. */
  fields?(names: string[]): Partial<Message>;
  /** The server has confirmed `names`, in this session for the first time. */
  held?(names: string[]): void;
  /** The server does not give `name`, or takes it back; it is not asked for again. */
  refused(name: string, error: TidewireError): void;
}

/** Names of one message, and about how many bytes they have, so that it stays small. */
const BULK_MAX = 1_000;
const BULK_BYTES_MAX = 256 * 1024;

export class Interest {
  readonly #wanted = new Map<string, Deferred>();
  /** What the session was asked for: by which message, and for whom. */
  readonly #asked = new Map<string, { id: string; ready: Deferred | undefined }>();
  readonly #bulks = new Map<string, string[]>();
  #changed = new Set<string>();
  #count = 0;

  constructor(
    private readonly connection: Connection,
    private readonly actions: InterestActions,
  ) {}

  /** Asks for `name`, once however often it is called; fulfilled when the server has confirmed. */
  want(name: string): Promise<void> {
    let ready = this.#wanted.get(name);
    if (!ready) {
      ready = deferred();
      this.#wanted.set(name, ready);
      this.#change(name);
    }
    return ready.promise;
  }

  /** Gives `name` back. */
  drop(name: string): void {
    if (this.#wanted.delete(name)) this.#change(name);
  }

  /** The server has ended what was held of `name` by itself, and it is not wanted any more. */
  forget(name: string): void {
    this.#asked.delete(name);
    this.#wanted.delete(name);
  }

  /** Takes acknowledgements and refusals; false if `message` is neither. */
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
    // Without a name all of the message is refused; without a correlation id a right was lost.
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

  /** Asks for everything in a new session, or for what has changed meanwhile in the same one. */
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

  /** The connection is closed: who waits is told, and what is wanted is asked for after the next `connect()`. */
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
    // What was given back and is wanted again starts afresh, with its value.
    const unwanted = changed.filter((name) => this.#asked.get(name)?.ready !== this.#wanted.get(name) && this.#asked.delete(name));
    const wanted = changed.filter((name) => this.#wanted.has(name) && !this.#asked.has(name));
    const { subscribe, unsubscribe, subscribeExisting, isExisting = () => false } = this.actions;
    this.#say(unsubscribe, unwanted);
    this.#say(subscribe, wanted.filter((name) => !isExisting(name)));
    if (subscribeExisting !== undefined) this.#say(subscribeExisting, wanted.filter(isExisting));
  }

  #say(action: number, all: string[]): void {
    const isSubscribe = action !== this.actions.unsubscribe;
    // A character has at most three bytes; a name may stand in two fields, one of which has numbers.
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
