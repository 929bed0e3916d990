// A deadline that does not count the time in which the process was asleep.

/** A timer that fires more than this late shows that the process was asleep. */
const SLEPT_MS = 1_000;

/** Settles like `promise`, or is rejected with the text `problem` after `ms` milliseconds in which the process was awake. */
export function inTime<T>(promise: Promise<T>, ms: number, problem: string): Promise<T> {
  return new Promise((resolve, reject) => {
    let timer: ReturnType<typeof setTimeout>;
    const wait = (): void => {
      const due = Date.now() + ms;
      timer = setTimeout(() => (Date.now() - due > SLEPT_MS ? wait() : reject(new Error(problem))), ms);
    };
    wait();
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
