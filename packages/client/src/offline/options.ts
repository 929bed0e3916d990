// What an app chooses.

import type { OfflineMerge } from './edit.js';

export interface OfflineOptions {
  /** The name of the database: each user of the app needs one. By default `tidewire`. */
  database?: string;
  /** What becomes of edits when somebody else was faster; by default `local`. All tabs must say the same. */
  merge?: OfflineMerge;
  /** Edits that may wait, those that were rejected and not dismissed included; by default 10,000. More are refused with TOO_MANY_PENDING. */
  editsMax?: number;
  /** Bytes of one edit as JSON, at most what the server takes as one message; by default 256 KiB. */
  editBytesMax?: number;
  /** Records that are kept to be read without a connection; by default 10,000. Those that were heard of longest ago go first. */
  recordsMax?: number;
  /** Milliseconds for the browser to open the database, and for each use of it; by default 5,000. */
  storageTimeoutMs?: number;
  /** Milliseconds without a sign of the tab that leads until a visible one takes its place; by default 6,000. */
  leaderTimeoutMs?: number;
}
