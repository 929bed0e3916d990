// The storage in the IndexedDB of a browser, which all tabs of an origin share. Every operation has a deadline, because browsers leave some
// requests without an answer.

import type { Edit, Rejection } from './edit.js';
import { inTime } from './in-time.js';
import { LEASE_MS, type CachedRecord, type Changes, type OfflineStorage, type StorageUse } from './storage.js';

const RECORDS = 'records';
const EDITS = 'edits';
const REJECTIONS = 'rejections';
const LEASES = 'leases';
/** The time when a record's value last arrived. */
const USED = 'used';

export class IndexedDb implements OfflineStorage {
  readonly isDurable = true;
  readonly #database: IDBDatabase;
  readonly #timeoutMs: number;

  private constructor(database: IDBDatabase, timeoutMs: number) {
    this.#database = database;
    this.#timeoutMs = timeoutMs;
  }

  /** Opens the database `name`. `onLost` is called if the browser closes the database or deletes it. */
  static async open(name: string, { timeoutMs, onLost }: StorageUse): Promise<IndexedDb> {
    let isLate = false;
    const opened = new Promise<IDBDatabase>((resolve, reject) => {
      const request = indexedDB.open(`tidewire:${name}`, 1);
      request.onupgradeneeded = () => {
        const { result } = request;
        result.createObjectStore(RECORDS, { keyPath: 'name' }).createIndex(USED, USED);
        result.createObjectStore(EDITS, { keyPath: 'seq', autoIncrement: true });
        result.createObjectStore(REJECTIONS, { keyPath: 'id' });
        result.createObjectStore(LEASES);
      };
      request.onerror = () => reject(request.error);
      // The browser may open the database after the deadline. Then it is closed at once.
      request.onsuccess = () => (isLate ? request.result.close() : resolve(request.result));
    });
    try {
      const database = await inTime(opened, timeoutMs, late('opening the database', timeoutMs));
      database.onclose = () => onLost(new Error('the browser has closed the database'));
      database.onversionchange = () => {
        database.close();
        onLost(new Error('the database is being deleted'));
      };
      return new IndexedDb(database, timeoutMs);
    } finally {
      isLate = true;
    }
  }

  close(): void {
    this.#database.close();
  }

  async load(): Promise<{ edits: Edit[]; rejections: Rejection[] }> {
    return this.#transact('readonly', (store) => {
      const [edits, rejections] = [store(EDITS).getAll(), store(REJECTIONS).getAll()];
      return () => ({ edits: edits.result as Edit[], rejections: rejections.result as Rejection[] });
    });
  }

  async read(name: string): Promise<CachedRecord | undefined> {
    return this.#transact('readonly', (store) => {
      const found = store(RECORDS).get(name);
      return () => found.result as CachedRecord | undefined;
    });
  }

  async change(changes: Changes, recordsMax = Infinity): Promise<number[]> {
    const { add = [], put = [], remove = [], cache = [], forget, reject = [], dismiss } = changes;
    return this.#transact('readwrite', (store) => {
      const places = add.map((edit) => store(EDITS).add(edit));
      put.forEach((edit) => store(EDITS).put(edit));
      remove.forEach(({ seq }) => seq !== undefined && store(EDITS).delete(seq));
      cache.forEach((record) => store(RECORDS).put({ ...record, [USED]: Date.now() }));
      if (forget !== undefined) store(RECORDS).delete(forget);
      reject.forEach((rejection) => store(REJECTIONS).put(rejection));
      if (dismiss !== undefined) store(REJECTIONS).delete(dismiss);
      if (cache.length > 0) forgetOldest(store(RECORDS), recordsMax);
      return () => places.map(({ result }) => result as number);
    });
  }

  async lease(tab: string, isWanted: boolean): Promise<boolean> {
    return this.#transact('readwrite', (store) => {
      const leases = store(LEASES);
      const now = Date.now();
      const found = leases.get(0);
      let isOwn = false;
      found.onsuccess = () => {
        const { holder = tab, until = 0 } = (found.result ?? {}) as { holder?: string; until?: number };
        // A lease that ends later than any new one would was written while the clock was wrong.
        isOwn = holder === tab || until < now || until > now + LEASE_MS;
        // The read and this write are in one transaction, so two tabs never take the lease at the same time.
        if (isOwn) leases.put({ holder: tab, until: isWanted ? now + LEASE_MS : 0 }, 0);
      };
      return () => isOwn && isWanted;
    });
  }

  #transact<T>(mode: IDBTransactionMode, act: (store: (name: string) => IDBObjectStore) => () => T): Promise<T> {
    const done = new Promise<T>((resolve, reject) => {
      const stores = [RECORDS, EDITS, REJECTIONS, LEASES];
      const transaction = this.#database.transaction(stores, mode, { durability: 'strict' });
      transaction.onabort = () => reject(transaction.error ?? new Error('the transaction was aborted'));
      try {
        const result = act((name) => transaction.objectStore(name));
        transaction.oncomplete = () => resolve(result());
      } catch (error) {
        // The browser would make the changes before the one that can't be stored.
        transaction.abort();
        reject(error);
      }
    });
    return inTime(done, this.#timeoutMs, late('a transaction', this.#timeoutMs));
  }
}

function late(what: string, ms: number): string {
  return `${what} took more than ${ms} ms`;
}

function forgetOldest(records: IDBObjectStore, max: number): void {
  const count = records.count();
  count.onsuccess = () => {
    let left = count.result - max;
    if (left <= 0) return;
    const cursor = records.index(USED).openKeyCursor();
    cursor.onsuccess = () => {
      if (!cursor.result || left <= 0) return;
      left -= 1;
      records.delete(cursor.result.primaryKey);
      cursor.result.continue();
    };
  };
}
