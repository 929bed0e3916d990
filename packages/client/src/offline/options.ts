// The options of offline records.

import type { OfflineMerge } from './edit.js';
import type { OpenStorage } from './storage.js';

export interface OfflineOptions {
  /** The name of the database. Each user of the app needs a separate one. By default `tidewire`. */
  database?: string;
  /**
   * Where records and edits are stored; by default the IndexedDB of the browser. `@tidewire/client/storage` has storages for other
   * runtimes.
   */
  storage?: OpenStorage;
  /** How edits are merged if another client wrote first; by default `local`. All tabs must use the same value. */
  merge?: OfflineMerge;
  /**
   * The most edits that may wait, including rejected ones that were not dismissed; by default 10,000. Further edits fail with
   * TOO_MANY_PENDING.
   */
  editsMax?: number;
  /** The most bytes of one edit as JSON; by default 256 KiB. It must not exceed the server's limit for one message. */
  editBytesMax?: number;
  /**
   * The most records that are stored to be read without a connection; by default 10,000. The ones whose values arrived longest ago are
   * removed first.
   */
  recordsMax?: number;
  /** Milliseconds to open the storage, and for each transaction of a browser; by default 5,000. */
  storageTimeoutMs?: number;
  /** Milliseconds without a sign of life from the leading tab until a visible tab takes its place; by default 6,000. */
  leaderTimeoutMs?: number;
}
