// The state of the offline records, as the app sees it.

import type { State, TidewireError } from '../index.js';

/**
 * - `starting`: the browser has not opened the database yet
 * - `durable`: edits are stored on this device until the server has made them
 * - `online-only`: nothing is stored on this device; edits wait in this tab only
 */
export type OfflineMode = 'starting' | 'durable' | 'online-only';

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
