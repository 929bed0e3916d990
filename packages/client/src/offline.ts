// Records that go on without a connection. Importing this does nothing but define.

export type { OfflineMerge, Reason, Rejection } from './offline/edit.js';
export { Offline } from './offline/offline.js';
export type { OfflineOptions } from './offline/options.js';
export type { OfflineMode, OfflineState } from './offline/state.js';
