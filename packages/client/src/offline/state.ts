// The state of the offline records, and of their queue, as the app sees them.

import type { State, TidewireError } from '../index.js';
import type { Rejection } from './edit.js';

/**
 * - `starting`: the storage is not open yet
 * - `durable`: edits are stored on this device until the server has made them
 * - `memory`: edits are stored until the process ends, because the app has chosen `memoryStorage`
 * - `online-only`: nothing is stored on this device; edits wait in this tab only
 */
export type OfflineMode = 'starting' | 'durable' | 'memory' | 'online-only';

export interface OfflineState {
  readonly mode: OfflineMode;
  /** Why the mode is `online-only`. */
  readonly reason: TidewireError | undefined;
  /** Whether this tab leads: it connects to the server for all tabs. */
  readonly isLeader: boolean;
  /** The state of the leading tab's connection. */
  readonly connection: State;
  /** The number of edits of all tabs that the server has not made yet. */
  readonly pendingCount: number;
}

/** An edit of any tab that the server has not made yet. */
export interface QueuedEdit extends Pick<Rejection, 'id' | 'name' | 'changes' | 'list'> {
  /** Whether a tab has sent it, so that the server may have made it. */
  readonly isSent: boolean;
}

/** The state of offline records that an app shows. */
export interface Sync extends OfflineState {
  /** The edits that wait, in the order in which they were made. */
  readonly queue: readonly QueuedEdit[];
  /** The edits that the server will not make; each has a `reason`. They stay until the app keeps or drops them. */
  readonly conflicts: readonly Rejection[];
  /** Makes the edit again, on the value that the record has now. */
  keep(conflict: Pick<Rejection, 'id'>): Promise<void>;
  /** Forgets the edit. */
  drop(conflict: Pick<Rejection, 'id'>): Promise<void>;
}
