// Requests that have one answer each: they wait until the answer, the deadline, an abort, or the loss of the connection.

import type { Connection, Refused } from './connection.js';
import { deferred, type Deferred } from './deferred.js';
import { TidewireError } from './error.js';
import type { Message } from './protocol.js';
import { limited, type Signal } from './wait.js';

export interface RequestOptions {
  /** Ends the wait, with the signal's reason. The server may still carry out the request. */
  signal?: Signal | undefined;
  /**
   * Milliseconds until the request fails with TIMEOUT, including the time without a connection; by default the client's `requestTimeoutMs`.
   */
  timeoutMs?: number | undefined;
}

interface Pending {
  message: Message;
  answer: Deferred<Message>;
  isSent: boolean;
  /** Whether the request may be sent twice without harm. */
  isRepeatable: boolean;
}

export class Requests {
  readonly #pending = new Map<string, Pending>();
  #count = 0;

  constructor(private readonly connection: Connection) {}

  /**
   * Sends `message` as soon as the connection is open, and waits until `settle` is called for it. Without `id`, the message gets a new
   * correlation id.
   */
  async ask(message: Message, isRepeatable: boolean, options: RequestOptions = {}, id?: string): Promise<Message> {
    const { pendingMax, requestTimeoutMs } = this.connection.options;
    const { signal, timeoutMs = requestTimeoutMs } = options;
    const failed = (isLate: boolean): unknown => {
      if (!isLate) return signal?.reason ?? new TidewireError('ABORTED', 'the request was aborted');
      const why = pending.isSent ? 'no answer came' : 'there was no connection';
      return new TidewireError('TIMEOUT', `${why} within ${timeoutMs} ms`, { subject: message.name });
    };
    this.connection.checkUse();
    if (signal?.aborted) throw failed(false);
    if (this.#pending.size >= pendingMax) throw tooMany(pendingMax);
    const key = id ?? String(this.#count++);
    const pending: Pending = {
      message: id === undefined ? { ...message, correlationId: key } : message,
      answer: deferred<Message>(),
      isSent: false,
      isRepeatable,
    };
    this.#pending.set(key, pending);
    try {
      pending.isSent = this.connection.send(pending.message);
      return await limited(pending.answer.promise, signal, timeoutMs, failed);
    } finally {
      this.#pending.delete(key);
    }
  }

  /** Settles the request `id` with an answer or an error; false if the request no longer waits. */
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

  /**
   * A repeatable request is sent again in the next session. Any other request fails if it was sent, because the server may have carried it
   * out.
   */
  lost(refused?: Refused): void {
    for (const pending of this.#pending.values()) {
      if (pending.message === refused?.message) pending.answer.reject(refused.error);
      else if (pending.isRepeatable) pending.isSent = false;
      else if (pending.isSent) {
        const text = 'the connection was lost before the answer: the server may have carried out the request';
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
