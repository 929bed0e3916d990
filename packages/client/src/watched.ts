// A value that is watched, all of it or by path: whoever watches hears of what has changed there, and of nothing else.

import type { Connection } from './connection.js';
import { checkedPath, reuse, valueAt, type AnyPath } from './path.js';

interface Subscriber {
  path: AnyPath | undefined;
  last: unknown;
  callback: (value: never) => void;
}

export class Watched {
  /** Undefined while nothing is known. */
  value: unknown;
  readonly #subscribers = new Set<Subscriber>();

  readonly #caller: Pick<Connection, 'call'>;

  constructor(caller: Pick<Connection, 'call'>) {
    this.#caller = caller;
  }

  /** What stands at `path`, or all. */
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

  /** Takes a value, and tells who sees a change. */
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
