// Records that work without a connection, for the components of a client. `Offline` is a module that is loaded only when an app uses it.

import type { Client } from '../client.js';
import { TidewireError } from '../error.js';
import type { Offline, OfflineOptions, Sync } from '../offline.js';

/** What components see before `Offline` is loaded, and on a server. */
export const STARTING: Sync = {
  mode: 'starting',
  reason: undefined,
  isLeader: false,
  connection: 'closed',
  pendingCount: 0,
  queue: [],
  conflicts: [],
  // There is no conflict yet.
  keep: async () => {},
  drop: async () => {},
};

/** The offline records of one client. They are open while a provider is mounted or a component follows a record. */
export class OfflineRecords {
  #offline: Offline | undefined;
  #users = 0;
  /** The state if the module could not be loaded. */
  #failed: Sync | undefined;

  constructor(
    private readonly client: Client,
    private readonly options: OfflineOptions,
  ) {}

  /**
   * Calls `start` when the records are open, at once if they are already. The returned function also calls the one that `start` returned, and
   * closes the records after their last use.
   */
  use(start: (offline: Offline) => () => void, fail: (error: TidewireError) => void): () => void {
    let isOver = false;
    let stop: (() => void) | undefined;
    const begin = (offline: Offline): void => {
      if (!isOver) stop = start((this.#offline = offline));
    };
    this.#users += 1;
    if (this.#offline) begin(this.#offline);
    else {
      import('../offline.js').then(
        ({ Offline }) => isOver || begin(this.#offline ?? new Offline(this.client, this.options)),
        (cause: unknown) => {
          const reason = new TidewireError('NOT_LOADED', `the module for offline records could not be loaded: ${String(cause)}`, { cause });
          this.#failed = { ...STARTING, mode: 'online-only', reason };
          if (!isOver) fail(reason);
        },
      );
    }
    return () => {
      if (isOver) return;
      isOver = true;
      stop?.();
      this.#users -= 1;
      // A component that React mounts a second time in StrictMode uses them again at once.
      setTimeout(() => {
        if (this.#users > 0) return;
        void this.#offline?.close();
        this.#offline = undefined;
      });
    };
  }

  /** Calls `act` with the open records: at once, or when they are open. */
  act(act: (offline: Offline) => Promise<void> | void): Promise<void> | void {
    if (this.#offline) return act(this.#offline);
    return new Promise<Offline>((resolve, reject) => {
      const done = this.use((offline) => {
        // The edit is taken before the records may close.
        setTimeout(() => done());
        resolve(offline);
        return () => {};
      }, (error) => {
        done();
        reject(error);
      });
    }).then(act);
  }

  /** The state that components show: the same object until it changes. */
  readonly read = (): Sync => this.#offline?.sync ?? this.#failed ?? STARTING;

  /** Calls `listener` after each change of the state; returns the removal. */
  readonly subscribe = (listener: () => void): (() => void) => {
    return this.use((offline) => {
      listener();
      return offline.onSync(listener);
    }, listener);
  };
}

/** The offline records of the provider, for a component that shows their state. */
export function offlineOf({ store: { offline } }: { store: { offline: OfflineRecords | undefined } }): OfflineRecords {
  if (offline) return offline;
  throw new Error('useSync needs the option offline of the provider');
}
