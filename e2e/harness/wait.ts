// Waiting without sleeping: every wait is for an event and has a deadline and a description. If the event does not happen in time, the
// test fails with the description.

import { inspect } from 'node:util';
import { setImmediate as nextTurn, setTimeout as pause } from 'node:timers/promises';

/** The deadline of ordinary waits. It is long, because the suites share two cores with other work. */
export const DEADLINE_MS = 15_000;

/** Settles like `promise`, or fails after `ms` milliseconds with the message that `what` did not happen. */
export async function within<T>(ms: number, promise: Promise<T>, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`did not happen within ${ms} ms: ${what}`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** All values that a callback received, in order; a test can await them one by one or together. */
export class Inbox<T> {
  readonly seen: T[] = [];
  #taken = 0;
  #waiting: Array<() => void> = [];

  constructor(private readonly what: string) {}

  /** The callback to register; it is bound and stores its first argument. */
  readonly push = (value: T): void => {
    this.seen.push(value);
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const wake of waiting) wake();
  };

  /** The oldest value that was not taken yet. */
  async next(ms = DEADLINE_MS): Promise<T> {
    await this.until(() => this.seen.length > this.#taken, ms, `value ${this.#taken + 1}`);
    return this.seen[this.#taken++] as T;
  }

  /** Takes all values so far out of the inbox, for peers that receive more than a process can keep. */
  take(): T[] {
    this.#taken = 0;
    return this.seen.splice(0);
  }

  /** The first value that `matches`, whether it was taken or not. */
  async find(matches: (value: T) => boolean, ms = DEADLINE_MS): Promise<T> {
    await this.until(() => this.seen.some(matches), ms, 'a matching value');
    return this.seen.find(matches) as T;
  }

  /** All values, as soon as there are at least `count`. */
  async count(count: number, ms = DEADLINE_MS): Promise<T[]> {
    await this.until(() => this.seen.length >= count, ms, `${count} values`);
    return this.seen;
  }

  /** Waits until `holds` returns true; it is called again after every value. */
  async until(holds: (seen: T[]) => boolean, ms = DEADLINE_MS, what = 'the condition'): Promise<void> {
    const wait = async (): Promise<void> => {
      while (!holds(this.seen)) await new Promise<void>((wake) => this.#waiting.push(wake));
    };
    try {
      await within(ms, wait(), `${what} in ${this.what}`);
    } catch (error) {
      throw new Error(`${(error as Error).message}; seen ${inspect(this.seen, { depth: 1, breakLength: 120 })}`);
    }
  }
}

interface Emitter {
  on(event: string, listener: (...args: any[]) => void): unknown;
  off(event: string, listener: (...args: any[]) => void): unknown;
}

/** Resolves with the arguments when `emitter` fires `event` with arguments that `matches`. */
export async function happens(
  emitter: Emitter,
  event: string,
  matches: (...args: any[]) => boolean = () => true,
  ms = DEADLINE_MS,
): Promise<any[]> {
  let listener: ((...args: any[]) => void) | undefined;
  const fired = new Promise<any[]>((resolve) => {
    listener = (...args) => {
      if (matches(...args)) resolve(args);
    };
    emitter.on(event, listener);
  });
  try {
    return await within(ms, fired, `event "${event}"`);
  } finally {
    if (listener) emitter.off(event, listener);
  }
}

/** Milliseconds between two calls of `probe`. */
const LOOK_INTERVAL_MS = 20;

/** Repeats `probe` until it returns a truthy value. For state that no event announces, such as a process or `/ready`. */
export async function eventually<T>(probe: () => T | Promise<T>, what: string, ms = DEADLINE_MS): Promise<T> {
  const deadline = Date.now() + ms;
  for (;;) {
    const value = await probe();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`did not happen within ${ms} ms: ${what}`);
    await pause(LOOK_INTERVAL_MS);
  }
}

/** Whether `promise` is still pending. */
export async function isPending(promise: Promise<unknown>): Promise<boolean> {
  const pending = Symbol('pending');
  const first = await Promise.race([promise.catch(() => undefined), nextTurn(pending)]);
  return first === pending;
}
