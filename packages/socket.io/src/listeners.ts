// Calls the listeners of an event as an EventEmitter does, and returns what is not finished.

import type { EventEmitter } from 'node:events';

/** Calls the listeners in order. Returns the promises of the asynchronous ones. */
export function callListeners(emitter: EventEmitter, event: string, args: readonly unknown[]): Array<PromiseLike<unknown>> {
  const running = [];
  for (const listener of emitter.rawListeners(event)) {
    const result: unknown = Reflect.apply(listener, emitter, args);
    if (isPromise(result)) running.push(result);
  }
  return running;
}

function isPromise(value: unknown): value is PromiseLike<unknown> {
  return typeof value === 'object' && value !== null && typeof (value as { then?: unknown }).then === 'function';
}
