// A storage in an SQLite database, for Node and React Native. The app opens the database with a driver of its choice.

import type { Edit, Rejection } from './edit.js';
import type { CachedRecord, Changes, OfflineStorage, OpenStorage } from './storage.js';

type Row = Record<string, unknown>;

/** The functions of an SQLite driver that the storage uses. It runs one statement at a time. */
export interface SqliteDatabase {
  /** Runs one statement and returns its rows, as objects; an empty array if the statement has none. */
  query(sql: string, values: Array<string | number>): Row[] | Promise<Row[]>;
  close(): unknown;
}

/** A database of `node:sqlite`, or of another driver with the same functions. */
export interface NodeDatabase {
  prepare(sql: string): { all(...values: Array<string | number>): unknown[] };
  close(): unknown;
}

const SCHEMA = [
  'CREATE TABLE IF NOT EXISTS tidewire_records (name TEXT PRIMARY KEY, row TEXT NOT NULL, used INTEGER NOT NULL)',
  'CREATE INDEX IF NOT EXISTS tidewire_used ON tidewire_records (used)',
  // With AUTOINCREMENT, SQLite never uses the position of a removed edit again.
  'CREATE TABLE IF NOT EXISTS tidewire_edits (seq INTEGER PRIMARY KEY AUTOINCREMENT, row TEXT NOT NULL)',
  'CREATE TABLE IF NOT EXISTS tidewire_rejections (id TEXT PRIMARY KEY, row TEXT NOT NULL)',
];
/** Milliseconds between two attempts to open a database that another process has locked. */
const LOCKED_MS = 50;

/** The functions that the storage needs, of a database of `node:sqlite`. */
export function nodeSqlite(database: NodeDatabase): SqliteDatabase {
  return { query: (sql, values) => database.prepare(sql).all(...values) as Row[], close: () => database.close() };
}

/**
 * Stores records in an SQLite database. `open` is called with the option `database` at each start, and returns a database that only this
 * storage uses: it holds the database locked until it is closed.
 */
export function sqliteStorage(open: (name: string) => SqliteDatabase | Promise<SqliteDatabase>): OpenStorage {
  return async (name, { timeoutMs }) => {
    const database = await open(name);
    const storage = new Sqlite(database);
    const until = Date.now() + timeoutMs;
    for (;;) {
      try {
        await storage.prepare();
        return storage;
      } catch (error) {
        // Another process, or the last page of this one, may be about to close the database.
        if (!/locked|busy/i.test(String(error)) || Date.now() > until) {
          await database.close();
          throw error;
        }
        await new Promise((done) => setTimeout(done, LOCKED_MS));
      }
    }
  };
}

class Sqlite implements OfflineStorage {
  readonly isDurable = true;
  /** The transactions so far. SQLite has one at a time on a connection, and drivers with promises would mix their statements. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(private readonly database: SqliteDatabase) {}

  async prepare(): Promise<void> {
    // A second process would not learn of the edits of this one. With the lock it fails at once, and its mode says why.
    await this.#run('PRAGMA locking_mode = EXCLUSIVE');
    // An edit counts as stored when it is on the disk.
    await this.#run('PRAGMA synchronous = FULL');
    await this.#transact(async () => {
      for (const statement of SCHEMA) await this.#run(statement);
    }, 'BEGIN EXCLUSIVE');
  }

  async load(): Promise<{ edits: Edit[]; rejections: Rejection[] }> {
    return this.#transact(async () => ({
      edits: (await this.#run('SELECT seq, row FROM tidewire_edits ORDER BY seq')).map(({ seq, row }) => ({ ...parsed<Edit>(row), seq: Number(seq) })),
      rejections: (await this.#run('SELECT row FROM tidewire_rejections')).map(({ row }) => parsed<Rejection>(row)),
    }));
  }

  async read(name: string): Promise<CachedRecord | undefined> {
    const [found] = await this.#transact(() => this.#run('SELECT row FROM tidewire_records WHERE name = ?', name));
    return found && parsed<CachedRecord>(found['row']);
  }

  async change(changes: Changes, recordsMax = Infinity): Promise<number[]> {
    const { add = [], put = [], remove = [], cache = [], forget, reject = [], dismiss } = changes;
    return this.#transact(async () => {
      const places: number[] = [];
      for (const edit of add) {
        await this.#run('INSERT INTO tidewire_edits (row) VALUES (?)', JSON.stringify(edit));
        const [last] = await this.#run('SELECT last_insert_rowid() AS seq');
        places.push(Number(last?.['seq']));
      }
      for (const edit of put) await this.#run('INSERT OR REPLACE INTO tidewire_edits (seq, row) VALUES (?, ?)', edit.seq as number, JSON.stringify(edit));
      for (const { seq } of remove) if (seq !== undefined) await this.#run('DELETE FROM tidewire_edits WHERE seq = ?', seq);
      for (const record of cache) {
        const next = '(SELECT coalesce(max(used), 0) + 1 FROM tidewire_records)';
        await this.#run(`INSERT OR REPLACE INTO tidewire_records (name, row, used) VALUES (?, ?, ${next})`, record.name, JSON.stringify(record));
      }
      if (forget !== undefined) await this.#run('DELETE FROM tidewire_records WHERE name = ?', forget);
      for (const rejection of reject) {
        await this.#run('INSERT OR REPLACE INTO tidewire_rejections (id, row) VALUES (?, ?)', rejection.id, JSON.stringify(rejection));
      }
      if (dismiss !== undefined) await this.#run('DELETE FROM tidewire_rejections WHERE id = ?', dismiss);
      if (cache.length > 0 && recordsMax < Infinity) {
        const oldest = 'SELECT name FROM tidewire_records ORDER BY used DESC LIMIT -1 OFFSET ?';
        await this.#run(`DELETE FROM tidewire_records WHERE name IN (${oldest})`, recordsMax);
      }
      return places;
    });
  }

  close(): void {
    // After the transactions that run; the app has the outcome of each of them.
    void this.#last.then(() => this.database.close());
  }

  async #run(sql: string, ...values: Array<string | number>): Promise<Row[]> {
    return this.database.query(sql, values);
  }

  #transact<Result>(act: () => Promise<Result>, begin = 'BEGIN IMMEDIATE'): Promise<Result> {
    const result = this.#last.then(async () => {
      await this.#run(begin);
      try {
        const made = await act();
        await this.#run('COMMIT TRANSACTION');
        return made;
      } catch (error) {
        // A failed transaction may have ended already, and its error is the one that counts.
        await this.#run('ROLLBACK TRANSACTION').catch(() => undefined);
        throw error;
      }
    });
    this.#last = result.catch(() => undefined);
    return result;
  }
}

function parsed<Value>(row: unknown): Value {
  return JSON.parse(String(row)) as Value;
}
