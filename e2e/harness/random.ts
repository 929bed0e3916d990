// Random choices from a seed, so that a failing run can be repeated.

export class Random {
  #state: number;

  constructor(readonly seed: number) {
    this.#state = seed >>> 0;
  }

  /** A number from 0 to below `limit` (mulberry32). */
  below(limit: number): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * limit);
  }

  /** One of `choices`. */
  of<T>(choices: readonly T[]): T {
    return choices[this.below(choices.length)] as T;
  }

  /** True once in `times`. */
  once(times: number): boolean {
    return this.below(times) === 0;
  }
}
