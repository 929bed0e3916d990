// Storages for offline records outside of browsers. A separate entry, `@tidewire/client/storage`: a browser's IndexedDB needs no import.

export { memoryStorage } from './offline/memory.js';
export { nodeSqlite, sqliteStorage, type NodeDatabase, type SqliteDatabase } from './offline/sqlite.js';
export type { CachedRecord, Changes, OfflineStorage, OpenStorage, StorageUse } from './offline/storage.js';
