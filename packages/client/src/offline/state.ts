// How things stand, told to the app.

import type { State, TidewireError } from '../index.js';

/**
 * - `starting`: the browser has not opened the database yet
 * - `durable`: edits are kept on this device until the server has made them
 * - `online-only`: nothing is kept on this device; edits wait in this tab alone
 */
export type OfflineMode = 'starting' | 'durable' | 'online-only';

export interface OfflineState {
  readonly mode: OfflineMode;
  /** Why the mode is `online-only`. */
  readonly reason: TidewireError | undefined;
  /** Whether this tab speaks to the server for all. */
  readonly isLeader: boolean;
  /** The state of the connection of the tab that leads. */
  readonly connection: State;
  /** Edits of all tabs that the server has not made yet. */
  readonly pendingCount: number;
}
