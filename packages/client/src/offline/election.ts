// Elects one tab to lead: by a lock of the browser, or by a lease in the database, which the tab has to renew. Locks exist only in secure
// contexts.

import { LEASE_MS } from './storage.js';

interface Locks {
  request(name: string, options: { signal?: AbortSignal; steal?: boolean }, callback: () => Promise<void>): Promise<void>;
}

export class Election {
  isLeader = false;
  #isOver = false;
  #release: (() => void) | undefined;
  /** The last request for the lock. */
  #request: AbortController | undefined;
  #timer: ReturnType<typeof setInterval> | undefined;
  readonly #onHide = (): void => this.#resign();

  constructor(
    private readonly name: string,
    /** Takes or renews this tab's lease, or ends it. */
    private readonly lease: (isWanted: boolean) => Promise<boolean>,
    /** Called when this tab starts or stops leading. */
    private readonly changed: (isLeader: boolean) => void,
    private readonly onLost: (error: unknown) => void,
  ) {
    const { locks } = (globalThis.navigator ?? {}) as { locks?: Locks };
    if (locks) this.#queue(locks, false);
    else this.#rent();
  }

  /** Stops leading; another tab takes over. */
  stop(): void {
    this.#isOver = true;
    clearInterval(this.#timer);
    globalThis.removeEventListener?.('pagehide', this.#onHide);
    this.#request?.abort();
    this.#resign();
    this.#become(false);
  }

  /** Takes the lead from a tab that shows no sign of life. A lease needs no such step, because it expires. */
  take(): void {
    const { locks } = (globalThis.navigator ?? {}) as { locks?: Locks };
    if (this.isLeader || !locks || this.#timer !== undefined) return;
    this.#request?.abort();
    this.#queue(locks, true);
  }

  /** Waits for the lock, or takes it at once if `steal` is set. */
  #queue(locks: Locks, steal: boolean): void {
    const request = new AbortController();
    this.#request = request;
    const lead = (): Promise<void> => {
      // The browser holds the lock until this promise is fulfilled.
      return new Promise((release) => {
        if (this.#request !== request || this.#isOver) return release();
        this.#release = release;
        this.#become(true);
      });
    };
    locks.request(this.name, steal ? { steal } : { signal: request.signal }, lead).catch((error: Error) => {
      if (this.#request !== request || this.#isOver) return;
      this.#become(false);
      // Another tab has taken the lock.
      if (error.name === 'AbortError') this.#queue(locks, false);
      // A page without an origin has locks that can't be used.
      else this.#rent();
    });
  }

  /** Leads while this tab holds the lease in the database. */
  #rent(): void {
    const renew = (): void => {
      this.lease(true).then(
        (isLeader) => this.#isOver || this.#become(isLeader),
        (error) => this.#isOver || this.onLost(error),
      );
    };
    this.#timer = setInterval(renew, LEASE_MS / 3);
    // The tab ends its lease when it closes, so that other tabs need not wait until the lease expires.
    globalThis.addEventListener?.('pagehide', this.#onHide);
    renew();
  }

  #resign(): void {
    this.#release?.();
    if (this.#timer !== undefined) this.lease(false).catch(() => undefined);
  }

  #become(isLeader: boolean): void {
    if (isLeader === this.isLeader) return;
    this.isLeader = isLeader;
    this.changed(isLeader);
  }
}
