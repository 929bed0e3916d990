// The unconfirmed edits of this client in live results: they show at once, and are rolled back with the record if the server refuses them.
// `live-query/queries.ts` loads this module when an app opens a record of a live query.

import { collectionOf, isEqual } from './path.js';
import { Query, type QueryInput } from './query.js';
import type { SharedRecord } from './records.js';
import type { Queries } from './live-query/queries.js';
import type { LiveResult } from './live-query/result.js';
import type { Row } from './live-query.js';

/** A record that this client has edited. */
interface Edited {
  readonly id: string;
  readonly document: SharedRecord;
  /** Whether the edits are on the server's disk. Its results may still lack them. */
  isSaved: boolean;
}

/** Milliseconds that an edit which the server has confirmed may differ from a result. After that the result counts. */
const LINGER_MS = 2_000;

export class LocalEdits {
  /** The edited records by collection and id. */
  readonly #edited = new Map<string, Map<string, Edited>>();
  readonly #watched = new WeakSet<SharedRecord>();
  /** The parsed queries. */
  readonly #parsed = new WeakMap<LiveResult, { query: Query; isWhole: boolean }>();

  constructor(private readonly queries: Pick<Queries, 'of' | 'shown'>) {}

  /** Shows the edits of a record from now. */
  watch(document: SharedRecord): void {
    if (this.#watched.has(document)) return;
    this.#watched.add(document);
    const look = (): void => {
      if (this.queries.shown(document) !== document) return;
      const collection = collectionOf(document.name);
      if (!document.isSaved) this.#enter(collection, document);
      if (this.#edited.get(collection)?.has(idOf(document))) this.#refresh(collection);
    };
    document.subscribe(undefined, look);
    look();
  }

  /** The server's rows of a result with the edits. */
  apply(result: LiveResult): readonly Row[] {
    const { server = [] } = result;
    const edited = this.#edited.get(result.collection);
    if (!edited) return server;
    const { query, isWhole } = this.#parse(result);
    const { limit, offset } = query;
    let rows = server;
    for (const { id, document, isSaved } of edited.values()) {
      const { value, version } = document;
      const place = rows.findIndex((row) => row.id === id);
      const known = rows[place];
      if (value === undefined || (isSaved && known && known.version >= version)) continue;
      const others = known ? rows.filter((row) => row !== known) : rows;
      const own = { id, value, version };
      rows = others;
      if (!query.matches(own)) continue;
      const data = query.project(value);
      // Parts of documents may lack the values that decide about the order. So a row keeps its place, and a new one waits for the server.
      const after = isWhole ? others.findIndex((row) => query.compare(own, { id: row.id, value: row.data, version: row.version }) < 0) : place;
      if (!isWhole && !known) continue;
      const at = after < 0 ? others.length : after;
      // Other records before the offset may be between this one and the first row.
      if (isWhole && at === 0 && offset > 0 && place !== 0) continue;
      const row = known && isEqual(known.data, data) ? known : { id, version: known?.version ?? version, data };
      rows = [...others.slice(0, at), row, ...others.slice(at)];
    }
    return limit === undefined ? rows : rows.slice(0, limit);
  }

  /** Forgets the confirmed edits of a collection that all its results have. */
  tidy(collection: string): void {
    const edited = this.#edited.get(collection);
    const results = this.queries.of(collection);
    for (const { id, isSaved } of edited?.values() ?? []) {
      const has = (rows: readonly Row[] | undefined): unknown => rows?.find((row) => row.id === id)?.data;
      if (isSaved && results.every(({ rows, server }) => isEqual(has(rows), has(server)))) this.#leave(collection, id);
    }
  }

  #enter(collection: string, document: SharedRecord): void {
    const id = idOf(document);
    const all = this.#edited.get(collection) ?? new Map<string, Edited>();
    const known = all.get(id);
    if (known?.document === document && !known.isSaved) return;
    const edited: Edited = { id, document, isSaved: false };
    this.#edited.set(collection, all.set(id, edited));
    void this.#settle(collection, edited);
  }

  /** Waits until the server has confirmed or refused the edits. */
  async #settle(collection: string, edited: Edited): Promise<void> {
    const { document, id } = edited;
    let isClosed = false;
    while (!document.isSaved && !isClosed) await document.saved().catch(({ code }) => void (isClosed = code === 'CLOSED'));
    edited.isSaved = true;
    this.#refresh(collection);
    this.tidy(collection);
    const timer = setTimeout(() => {
      if (this.#edited.get(collection)?.get(id) !== edited) return;
      this.#leave(collection, id);
      this.#refresh(collection);
    }, LINGER_MS);
    // Outside of pages, the timer must not keep the process alive.
    (timer as { unref?(): void }).unref?.();
  }

  #leave(collection: string, id: string): void {
    const edited = this.#edited.get(collection);
    edited?.delete(id);
    if (edited?.size === 0) this.#edited.delete(collection);
  }

  #refresh(collection: string): void {
    for (const result of this.queries.of(collection)) result.refresh();
  }

  #parse(result: LiveResult): { query: Query; isWhole: boolean } {
    let parsed = this.#parsed.get(result);
    if (!parsed) {
      // The server has accepted the query, because the result has rows.
      const input = JSON.parse(result.text) as QueryInput;
      this.#parsed.set(result, (parsed = { query: new Query(input), isWhole: !('select' in input) }));
    }
    return parsed;
  }
}

function idOf({ name }: SharedRecord): string {
  return name.slice(name.lastIndexOf('/') + 1);
}
