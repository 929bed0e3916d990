// Asks: broadcasts and messages of a backend that wait for the answers of sessions or of other backends.

import type { Payload } from './backend.js';

/** Why {@link Backend.ask} or {@link Backend.tell} has failed: the deadline, a limit or an invalid ask, or the loss of the server or of another node. */
export type AskFailure = 'timeout' | 'refused' | 'lost';

/** The error of {@link Backend.ask} and {@link Backend.tell}, with the answers that have arrived. */
export class AskError extends Error {
  override readonly name = 'AskError';
  readonly reason: AskFailure;
  readonly answers: readonly Payload[];
  /** The number of sessions or backends that got it, as far as the server knows it. */
  readonly asked: number | undefined;

  constructor(message: string, reason: AskFailure, answers: readonly Payload[] = [], asked?: number) {
    super(message);
    this.reason = reason;
    this.answers = answers;
    this.asked = asked;
  }
}

interface Ask {
  answers: Payload[];
  timer: NodeJS.Timeout;
  resolve: (answers: Payload[]) => void;
  reject: (error: AskError) => void;
}

/** How long after its deadline an ask waits for a server that is silent. */
const SILENCE_MS = 1_000;
/** The longest time of a timer of Node, with that. */
const TIMEOUT_MS_MAX = 2 ** 31 - 1 - SILENCE_MS;

/** Milliseconds as the server and timers have them. */
export function millisecondsOf(timeoutMs: number): number {
  return timeoutMs >= 1 ? Math.min(Math.ceil(timeoutMs), TIMEOUT_MS_MAX) : 1;
}

/** The asks of a backend by their correlation ids. */
export class Asks {
  readonly #asks = new Map<string, Ask>();
  #count = 0;

  /** Begins an ask with this number of milliseconds, and returns its id and its outcome. */
  begin(timeoutMs: number): [string, Promise<Payload[]>] {
    const id = `ask-${(this.#count += 1)}`;
    const answers = new Promise<Payload[]>((resolve, reject) => {
      const timer = setTimeout(() => this.#fail(id, 'not all have answered in time, and the server is silent', 'timeout'), timeoutMs + SILENCE_MS);
      this.#asks.set(id, { answers: [], timer, resolve, reject });
    });
    return [id, answers];
  }

  /** One has answered. */
  answered(id: string, answer: Payload): void {
    this.#asks.get(id)?.answers.push(answer);
  }

  /** All have answered. */
  complete(id: string): void {
    const ask = this.#take(id);
    ask?.resolve(ask.answers);
  }

  /** The server has ended or refused an ask. Returns whether there was one. */
  refused(id: string, message: string, reason: AskFailure = 'refused', asked?: number): boolean {
    return this.#fail(id, message, reason, asked);
  }

  /** The server is lost. */
  lost(message: string): void {
    for (const id of [...this.#asks.keys()]) this.#fail(id, message, 'lost');
  }

  #fail(id: string, message: string, reason: AskFailure, asked?: number): boolean {
    const ask = this.#take(id);
    ask?.reject(new AskError(message, reason, ask.answers, asked));
    return ask !== undefined;
  }

  #take(id: string): Ask | undefined {
    const ask = this.#asks.get(id);
    this.#asks.delete(id);
    clearTimeout(ask?.timer);
    return ask;
  }
}
