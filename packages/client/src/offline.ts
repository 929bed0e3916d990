// Records that work without a connection. Importing this module only defines names, without side effects.

export type { OfflineMerge, Reason, Rejection } from './offline/edit.js';
export { Offline } from './offline/offline.js';
export type { OfflineOptions } from './offline/options.js';
export type { OfflineMode, OfflineState, QueuedEdit, Sync } from './offline/state.js';
export type { CachedRecord, Changes as StorageChanges, OfflineStorage, OpenStorage, StorageUse } from './offline/storage.js';
