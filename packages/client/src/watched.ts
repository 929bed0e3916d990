// An observed value, as a whole or by path. A subscriber is notified only when the value at its path changes.

import type { Connection } from './connection.js';
import { checkedPath, reuse, valueAt, type AnyPath } from './path.js';

interface Subscriber {
  path: AnyPath | undefined;
  last: unknown;
  callback: (value: never) => void;
}

export class Watched {
  /** Undefined while the value is unknown. */
  value: unknown;
  readonly #subscribers = new Set<Subscriber>();

  readonly #caller: Pick<Connection, 'call'>;

  constructor(caller: Pick<Connection, 'call'>) {
    this.#caller = caller;
  }

  /** The value at `path`, or the whole value. */
  at(path: AnyPath | undefined): unknown {
    return path === undefined ? this.value : valueAt(this.value, path);
  }

  subscribe(at: AnyPath | undefined, callback: Subscriber['callback']): () => void {
    const path = at === undefined ? undefined : checkedPath(at);
    const subscriber: Subscriber = { path, callback, last: this.at(path) };
    this.#subscribers.add(subscriber);
    if (this.value !== undefined) {
      queueMicrotask(() => this.#subscribers.has(subscriber) && this.#caller.call(callback, subscriber.last as never));
    }
    return () => void this.#subscribers.delete(subscriber);
  }

  /** Takes a new value, and notifies the subscribers whose part of it has changed. */
  protected show(value: unknown): void {
    this.value = reuse(this.value, value);
    for (const subscriber of [...this.#subscribers]) {
      const part = this.at(subscriber.path);
      if (part === subscriber.last) continue;
      subscriber.last = part;
      this.#caller.call(subscriber.callback, part as never);
    }
  }
}
