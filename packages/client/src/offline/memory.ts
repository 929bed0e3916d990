// A storage in memory: for tests, for programs whose edits need not outlive them, and the model of the other ones.

import { deferred, type Deferred } from '../deferred.js';
import type { Edit, Rejection } from './edit.js';
import { inTime } from './in-time.js';
import type { CachedRecord, OpenStorage } from './storage.js';

/** The rows of one database, each as JSON, so that a later change of an object changes no row. */
interface Rows {
  records: Map<string, string>;
  edits: Map<number, string>;
  rejections: Map<string, string>;
  last: number;
  /** Settles when the storage that is open is closed. */
  closed: Deferred | undefined;
}

/**
 * Stores records in the memory of this process: they stay while the returned function exists. `Offline` has the mode `memory` then. Only one
 * `Offline` can use a name at the same time; the next one waits until it is closed.
 */
export function memoryStorage(): OpenStorage {
  const databases = new Map<string, Rows>();
  return async (name, { timeoutMs }) => {
    const rows: Rows = databases.get(name) ?? { records: new Map(), edits: new Map(), rejections: new Map(), last: 0, closed: undefined };
    databases.set(name, rows);
    // Two queues of the same edits would send them twice.
    while (rows.closed) await inTime(rows.closed.promise, timeoutMs, 'another Offline uses the storage');
    const closed = (rows.closed = deferred());
    const { records, edits, rejections } = rows;
    return {
      isDurable: false,
      async load() {
        const queue = [...edits].sort(([a], [b]) => a - b).map(([seq, text]) => ({ ...(JSON.parse(text) as Edit), seq }));
        return { edits: queue, rejections: [...rejections.values()].map((text) => JSON.parse(text) as Rejection) };
      },
      async read(of) {
        const text = records.get(of);
        return text === undefined ? undefined : (JSON.parse(text) as CachedRecord);
      },
      async change({ add = [], put = [], remove = [], cache = [], forget, reject = [], dismiss }, recordsMax = Infinity) {
        // Everything that may throw comes first, so that a failure changes nothing.
        const [added, replaced, cached, rejected] = [add, put, cache, reject].map((list) => list.map((one) => JSON.stringify(one))) as [string[], string[], string[], string[]];
        const places = added.map((text) => {
          edits.set((rows.last += 1), text);
          return rows.last;
        });
        put.forEach(({ seq }, at) => edits.set(seq as number, replaced[at] as string));
        remove.forEach(({ seq }) => edits.delete(seq as number));
        cache.forEach((record, at) => {
          // A map is in the order of insertion, so the oldest value is the first one.
          records.delete(record.name);
          records.set(record.name, cached[at] as string);
        });
        if (forget !== undefined) records.delete(forget);
        reject.forEach(({ id }, at) => rejections.set(id, rejected[at] as string));
        if (dismiss !== undefined) rejections.delete(dismiss);
        for (const oldest of records.keys()) {
          if (records.size <= recordsMax) break;
          records.delete(oldest);
        }
        return places;
      },
      close() {
        if (rows.closed === closed) rows.closed = undefined;
        closed.resolve();
      },
    };
  };
}
