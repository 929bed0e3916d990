// Remote procedure calls: the progress and the answer of the last call, and answering while a component is mounted.

import type { Client } from '../client.js';
import { provide, type ProvideOptions, type RpcContext } from '../provide.js';
import type { RequestOptions } from '../request.js';
import { whileUsable } from './shared.js';

/** The progress of the last call. */
export interface Progress<Value> {
  /** The answer; undefined before the first answer, and after a failure. */
  readonly value: Value | undefined;
  /** The error, if the last call has failed. */
  readonly error: unknown;
  readonly isRunning: boolean;
}

/** The calls that a component makes of one rpc. */
export class Calls {
  progress: Progress<unknown> = { value: undefined, error: undefined, isRunning: false };
  readonly #listeners = new Set<() => void>();
  #count = 0;

  constructor(
    private readonly client: Client,
    readonly name: string,
  ) {}

  /** Calls `listener` after each change of the progress; returns the removal. */
  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  };

  readonly call = (argument?: unknown, options?: RequestOptions): Promise<unknown> => {
    const number = (this.#count += 1);
    const show = (progress: Progress<unknown>): void => {
      if (number !== this.#count) return;
      this.progress = progress;
      this.#listeners.forEach((listener) => listener());
    };
    show({ value: this.progress.value, error: undefined, isRunning: true });
    const answer = this.client.rpc.call(this.name, argument, options);
    // A component that ignores the promise sees the failure in `error`.
    answer.then(
      (value) => show({ value, error: undefined, isRunning: false }),
      (error: unknown) => show({ value: undefined, error, isRunning: false }),
    );
    return answer;
  };
}

/** The callbacks of a component that provides an rpc, as it passed them last. */
export interface AnswerHandlers extends ProvideOptions {
  answer(argument: unknown, context: RpcContext): unknown;
}

/** Answers calls by the functions that `handlers` returns at the time of the call, until the returned function is called. */
export function answerCalls(client: Client, name: string | undefined, handlers: () => AnswerHandlers): () => void {
  if (name === undefined) return () => {};
  // Without an `onEnd`, the client reports the end by `onError`. So one is passed only if the component has one.
  const hasEnd = handlers().onEnd !== undefined;
  return whileUsable(client, () =>
    provide(client.rpc, name, (argument, context) => handlers().answer(argument, context), {
      ...(hasEnd && { onEnd: (error) => handlers().onEnd?.(error) }),
    }),
  );
}
