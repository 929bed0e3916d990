// Calls the listeners of an event as an EventEmitter does, and waits for what is not finished.

import type { EventEmitter } from 'node:events';

/** Calls the listeners in order. Returns the promises of the asynchronous ones. */
export function callListeners(emitter: EventEmitter, event: string, args: readonly unknown[]): Array<PromiseLike<unknown>> {
  return emitter.rawListeners(event).flatMap((listener) => promiseOf(Reflect.apply(listener, emitter, args)));
}

/** The value in a list, if it is a promise. */
export function promiseOf(value: unknown): Array<PromiseLike<unknown>> {
  const isPromise = typeof value === 'object' && value !== null && typeof (value as { then?: unknown }).then === 'function';
  return isPromise ? [value as PromiseLike<unknown>] : [];
}

/** Work that has a part which runs now, and promises. It calls back once when all of it is done. */
export class Work {
  #left = 1;
  readonly #done: () => void;

  constructor(done: () => void) {
    this.#done = done;
  }

  /** Adds promises, before all others are settled. */
  add(promises: ReadonlyArray<PromiseLike<unknown>>): void {
    for (const promise of promises) {
      this.#left += 1;
      const end = (): void => this.end();
      // The rejection is unhandled at the promise of `Socket.track`.
      void Promise.resolve(promise).then(end, end);
    }
  }

  /** Ends one part. */
  end(): void {
    this.#left -= 1;
    if (this.#left === 0) this.#done();
  }
}
