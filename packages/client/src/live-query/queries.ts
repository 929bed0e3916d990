// The queries of one client: the messages of topic QUERY, and the live results that handles share.

import type { Part, Refused } from '../connection.js';
import { valueOf } from '../data.js';
import { TidewireError } from '../error.js';
import { QueryAction, Topic, type Message } from '../protocol.js';
import { collectionOf } from '../path.js';
import type { LiveResults, Records, SharedRecord } from '../records.js';
import { Requests } from '../request.js';
import type { LocalEdits } from '../local-edits.js';
import { LiveResult, type WireChange } from './result.js';
import type { Row } from '../live-query.js';
import { isWhole } from './text.js';

/** Each client that uses queries has one entry. */
const all = new WeakMap<object, Queries>();

/** The queries of a client: the same object at every call. */
export function queriesOf(records: Records): Queries {
  let queries = all.get(records);
  if (!queries) all.set(records, (queries = new Queries(records)));
  return queries;
}

export class Queries implements Part, LiveResults {
  /** Queries with one answer. */
  readonly requests: Requests;
  /** The live results, by collection and query. */
  readonly #results = new Map<string, LiveResult>();
  /** The live results that the session has requested, by correlation id. */
  readonly #asked = new Map<string, LiveResult>();
  readonly connection: Records['connection'];
  /** The edits of this client, once their module is loaded. */
  local: LocalEdits | undefined;
  #isLoading = false;
  #count = 0;

  constructor(private readonly records: Records) {
    const { connection } = records;
    this.connection = connection;
    this.requests = new Requests(connection);
    connection.parts.set(Topic.Query, [this.requests, this]);
    records.results = this;
    records.added = (document) => {
      if (this.local) this.local.watch(document);
      else this.#load([document]);
    };
  }

  follows(name: string): boolean {
    return this.of(collectionOf(name)).length > 0;
  }

  row(name: string): Row | undefined {
    const collection = collectionOf(name);
    const id = name.slice(collection.length + 1);
    const rows = this.of(collection).flatMap(({ text, server }) => (isWhole(text) ? (server?.find((row) => row.id === id) ?? []) : []));
    return rows.sort((a, b) => b.version - a.version)[0];
  }

  deviceChanged(): void {
    for (const result of [...this.#results.values()]) this.#onDevice(result);
    for (const record of this.records.device?.records() ?? []) this.local?.watch(record);
  }

  /** Connects a result with the user's device: without rows of the server it shows the stored ones, and the edits that wait. */
  #onDevice(result: LiveResult): void {
    const { device } = this.records;
    if (!device) return;
    if (result.server) this.keep(result);
    else device.read(result.name).then((rows) => rows && result.restore(rows as Row[], () => device.rebase(result.collection)));
    device.openWaiting(result.collection);
    if (!this.local) this.#load([]);
  }

  /** Stores the server's rows of a result on the user's device, and removes them after the end of the query. */
  keep({ name, collection, server }: LiveResult): void {
    this.records.device?.keep(name, server);
    this.records.device?.rebase(collection);
  }

  /** The record whose edits show in place of the edits of `document`: the one with all edits that wait on the user's device. */
  shown(document: SharedRecord): SharedRecord {
    return this.records.device?.waiting(document.name) ?? document;
  }

  /** The live result of a query, which exists until its last user releases it. */
  take(collection: string, text: string): LiveResult {
    const name = JSON.stringify([collection, text]);
    let result = this.#results.get(name);
    if (!result) {
      const made = new LiveResult(this, { name, collection, text }, () => {
        if (this.#results.get(name) === made) this.#results.delete(name);
      });
      this.#results.set(name, (result = made));
      if (!this.local) this.#load(this.records.documents.values());
      this.#onDevice(made);
    }
    return result;
  }

  /** Requests a live result. Returns the correlation id and the message, or the error of a message that is too large. */
  subscribe(result: LiveResult): { id: string; message: Message } | TidewireError {
    // Answers to other requests have numbers as their ids.
    const id = `live-${(this.#count += 1)}`;
    const message: Message = { topic: Topic.Query, action: QueryAction.Subscribe, name: result.collection, data: result.text, correlationId: id };
    this.#asked.set(id, result);
    const error = this.connection.answer(message);
    if (error) this.#asked.delete(id);
    return error ?? { id, message };
  }

  /** The live results of a collection. */
  of(collection: string): LiveResult[] {
    return [...this.#results.values()].filter((result) => result.collection === collection);
  }

  /**
   * If one of these records may show in a live result, loads the module that evaluates queries. Apps that edit no record of a live query do
   * not need it. Without the module, the edits show when the server sends them. With records on the user's device it is loaded at once, because
   * it can't be loaded without a connection.
   */
  #load(documents: Iterable<SharedRecord>): void {
    const { device } = this.records;
    if (this.#isLoading || (!device && ![...documents].some(({ name }) => this.follows(name)))) return;
    this.#isLoading = true;
    import('../local-edits.js').then(
      ({ LocalEdits }) => {
        this.local = new LocalEdits(this);
        const { documents, device } = this.records;
        for (const document of [...documents.values(), ...(device?.records() ?? [])]) this.local.watch(document);
      },
      () => void (this.#isLoading = false),
    );
  }

  unsubscribe(id: string): void {
    if (this.#asked.delete(id)) this.connection.answer({ topic: Topic.Query, action: QueryAction.Unsubscribe, correlationId: id });
  }

  handle(message: Message, code: string | undefined): void {
    const { action, data, name, correlationId = '' } = message;
    const result = this.#asked.get(correlationId);
    if (action === QueryAction.Changed) {
      const changes = valueOf(data) as WireChange[];
      for (const live of [...this.#asked.values()]) if (live.key === name) live.change(changes);
    } else if (action === QueryAction.Snapshot) result?.replace(name, (valueOf(data) as { rows: Row[] }).rows);
    else if (action === QueryAction.Result) this.requests.settle(correlationId, message);
    else if (code !== undefined) {
      const { message: why, ...place } = valueOf(data) as { message: string };
      const error = new TidewireError(code, `the server refused a query: ${why}`, { subject: result?.collection, data: place });
      if (result && this.#asked.delete(correlationId)) result.refuse(error);
      else this.requests.settle(correlationId, error);
    }
  }

  opened(isNew: boolean): void {
    if (!isNew) return;
    // Requests that were made without a connection were not sent.
    this.lost();
    for (const result of [...this.#results.values()]) result.ask();
  }

  unanswered(): Message[] {
    return [...this.#asked.values()].flatMap((result) => result.unanswered());
  }

  lost(refused?: Refused): void {
    this.#asked.clear();
    for (const result of [...this.#results.values()]) result.lost(refused);
  }

  closed(reason: TidewireError): void {
    for (const result of [...this.#results.values()]) result.closed(reason);
  }
}
