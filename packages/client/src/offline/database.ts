// The IndexedDB of one app and user: records as the server last sent them, the queue of edits, and the rejected edits. Every operation has
// a deadline, because browsers leave some requests without an answer.

import { TidewireError } from '../index.js';
import type { Edit, Rejection } from './edit.js';

/** A record as the server last sent it. */
export interface CachedRecord {
  name: string;
  value: unknown;
  version: number;
}

/** The changes of one transaction. */
export interface Changes {
  add?: Edit[];
  put?: Edit[];
  remove?: Edit[];
  cache?: CachedRecord[];
  forget?: string;
  reject?: Rejection[];
  dismiss?: string;
}

const RECORDS = 'records';
const EDITS = 'edits';
const REJECTIONS = 'rejections';
const LEASES = 'leases';
/** The time when a record's value last arrived. */
const USED = 'used';
/** The length of a lease: a tab without locks leads for this time, unless it renews the lease. */
export const LEASE_MS = 3_000;
/** A timer that fires more than this late shows that the process was asleep. */
const SLEPT_MS = 1_000;

/** Settles like `promise`, or is rejected after `ms` milliseconds in which the process was awake. */
function inTime<T>(promise: Promise<T>, ms: number, what: string): Promise<T> {
  return new Promise((resolve, reject) => {
    let timer: ReturnType<typeof setTimeout>;
    const wait = (): void => {
      const due = Date.now() + ms;
      timer = setTimeout(() => (Date.now() - due > SLEPT_MS ? wait() : reject(new Error(`${what} took more than ${ms} ms`))), ms);
    };
    wait();
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

export class Database {
  readonly #database: IDBDatabase;
  readonly #timeoutMs: number;

  private constructor(database: IDBDatabase, timeoutMs: number) {
    this.#database = database;
    this.#timeoutMs = timeoutMs;
  }

  /** Opens the database `name`. `onLost` is called if the browser closes the database or deletes it. */
  static async open(name: string, timeoutMs: number, onLost: (error: unknown) => void): Promise<Database> {
    let isLate = false;
    const opened = new Promise<IDBDatabase>((resolve, reject) => {
      const request = indexedDB.open(name, 1);
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
      const database = await inTime(opened, timeoutMs, 'opening the database');
      database.onclose = () => onLost(new Error('the browser has closed the database'));
      database.onversionchange = () => {
        database.close();
        onLost(new Error('the database is being deleted'));
      };
      return new Database(database, timeoutMs);
    } finally {
      isLate = true;
    }
  }

  close(): void {
    this.#database.close();
  }

  /** All edits that are not settled, and the rejections that were not dismissed. */
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

  /**
   * Makes all changes or none. Fulfilled with the queue positions of the added edits, when the changes are on the disk. If more than
   * `recordsMax` records are stored, the ones whose values arrived longest ago are removed.
   */
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

  /** Makes `tab` the leader for the next `LEASE_MS`, unless another tab leads; or ends its lease. True if `tab` leads. */
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
      const result = act((name) => transaction.objectStore(name));
      transaction.oncomplete = () => resolve(result());
      transaction.onabort = () => reject(transaction.error ?? new Error('the transaction was aborted'));
    });
    return inTime(done, this.#timeoutMs, 'a transaction');
  }
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

/** The error of a database that can't be used. */
export function storageError(cause: unknown): TidewireError {
  const { name, message } = (cause ?? {}) as Partial<Error>;
  const text = name === 'QuotaExceededError' ? 'its space is used up' : String(message ?? cause);
  return new TidewireError('NO_STORAGE', `this device no longer stores records: ${text}`, { cause });
}
