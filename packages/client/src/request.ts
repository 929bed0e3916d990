// Questions that are answered once: kept until the answer, the deadline, an abort, or the loss of the connection.

import type { Connection, Refused } from './connection.js';
import { deferred, type Deferred } from './deferred.js';
import { TidewireError } from './error.js';
import type { Message } from './protocol.js';

/** What of an AbortSignal is used; runtimes without that class may bring their own. */
export interface Signal {
  readonly aborted: boolean;
  readonly reason?: unknown;
  addEventListener(event: 'abort', listener: () => void): void;
  removeEventListener(event: 'abort', listener: () => void): void;
}

export interface RequestOptions {
  /** Ends the waiting, with the signal's reason; what the server does meanwhile goes on. */
  signal?: Signal | undefined;
  /** Milliseconds until the request fails with TIMEOUT, the time without a connection included; by default the client's `requestTimeoutMs`. */
  timeoutMs?: number | undefined;
}

export interface RequestLimits {
  /** Milliseconds until a request fails with TIMEOUT; by default 15,000. */
  requestTimeoutMs?: number;
  /** Requests, and events without a connection, that may wait at a time; by default 10,000. More fail with TOO_MANY_PENDING. */
  pendingMax?: number;
}

interface Pending {
  message: Message;
  answer: Deferred<Message>;
  isSent: boolean;
  /** Whether asking once more does no harm. */
  isRepeatable: boolean;
}

export class Requests {
  readonly #pending = new Map<string, Pending>();
  readonly #timeoutMs: number;
  readonly #max: number;
  #count = 0;

  constructor(
    private readonly connection: Connection,
    { requestTimeoutMs = 15_000, pendingMax = 10_000 }: RequestLimits,
  ) {
    this.#timeoutMs = requestTimeoutMs;
    this.#max = pendingMax;
  }

  /**
   * Sends `message` as soon as there is a connection, under a correlation id of its own unless `id` is given, and waits for what
   * `settle` is called with.
   */
  async ask(message: Message, isRepeatable: boolean, { signal, timeoutMs = this.#timeoutMs }: RequestOptions = {}, id?: string): Promise<Message> {
    this.connection.checkUse();
    if (signal?.aborted) throw abortReason(signal);
    if (this.#pending.size >= this.#max) throw tooMany(this.#max);
    const key = id ?? String(this.#count++);
    const pending: Pending = {
      message: id === undefined ? { ...message, correlationId: key } : message,
      answer: deferred<Message>(),
      isSent: false,
      isRepeatable,
    };
    this.#pending.set(key, pending);
    const subject = message.name;
    const late = (): void => {
      const why = pending.isSent ? 'no answer came' : 'there was no connection';
      pending.answer.reject(new TidewireError('TIMEOUT', `${why} within ${timeoutMs} ms`, { subject }));
    };
    const timer = setTimeout(late, timeoutMs);
    const abort = (): void => pending.answer.reject(abortReason(signal as Signal));
    signal?.addEventListener('abort', abort);
    try {
      pending.isSent = this.connection.send(pending.message);
      return await pending.answer.promise;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
      this.#pending.delete(key);
    }
  }

  /** Answers the request `id`, or fails it; false if nobody waits for it any more. */
  settle(id: string | undefined, answer: Message | TidewireError): boolean {
    const pending = this.#pending.get(id ?? '');
    if (answer instanceof TidewireError) pending?.answer.reject(answer);
    else pending?.answer.resolve(answer);
    return pending !== undefined;
  }

  opened(): void {
    for (const pending of this.#pending.values()) {
      try {
        if (!pending.isSent) pending.isSent = this.connection.send(pending.message);
      } catch (error) {
        pending.answer.reject(error);
      }
    }
  }

  unanswered(): Message[] {
    return [...this.#pending.values()].flatMap(({ message, isSent }) => (isSent ? message : []));
  }

  /** What can be repeated is asked again; of the rest nobody knows whether it was done. */
  lost(refused?: Refused): void {
    for (const pending of this.#pending.values()) {
      if (pending.message === refused?.message) pending.answer.reject(refused.error);
      else if (pending.isRepeatable) pending.isSent = false;
      else if (pending.isSent) {
        const text = 'the connection was lost before the answer: nobody knows whether the request was carried out';
        pending.answer.reject(new TidewireError('CONNECTION_LOST', text, { subject: pending.message.name }));
      }
    }
  }

  closed(reason: TidewireError): void {
    for (const pending of this.#pending.values()) pending.answer.reject(reason);
  }
}

export function tooMany(max: number): TidewireError {
  return new TidewireError('TOO_MANY_PENDING', `more than ${max} requests or events wait: wait for answers, or raise pendingMax`);
}

function abortReason(signal: Signal): unknown {
  return signal.reason ?? new TidewireError('ABORTED', 'the request was aborted');
}
