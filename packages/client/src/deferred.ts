// A promise that is settled from outside.

export interface Deferred<T = void> {
  promise: Promise<T>;
  resolve(value: T): void;
  reject(reason: unknown): void;
}

/** A promise and the functions that settle it. Its rejection may stay unhandled, because the error is reported in other ways, too. */
export function deferred<T = void>(): Deferred<T> {
  let resolve!: (value: T) => void;
  let reject!: (reason: unknown) => void;
  const promise = new Promise<T>((resolved, rejected) => {
    resolve = resolved;
    reject = rejected;
  });
  promise.catch(() => undefined);
  return { promise, resolve, reject };
}
