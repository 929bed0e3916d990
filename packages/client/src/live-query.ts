// Live queries: the records of a collection that a query selects, in order, kept current by the server; and queries with one answer.
// Contract: `spec/deepstream.md`, "Queries". A separate entry, `@tidewire/client/live-query`.

import { valueOf } from './data.js';
import { TidewireError, checkName } from './error.js';
import { changesBetween, type QueryChange } from './live-query/changes.js';
import { queriesOf } from './live-query/queries.js';
import { firstInvalid, type Follower, type LiveResult } from './live-query/result.js';
import { isWhole, queryText } from './live-query/text.js';
import { QueryAction, Topic } from './protocol.js';
import type { QueryInput } from './query.js';
import type { Records } from './records.js';
import type { RequestOptions } from './request.js';
import type { Names, RecordsOf, Schema, ValueOf } from './schema.js';

export type { QueryChange } from './live-query/changes.js';
export type { QueryInput } from './query.js';
export type { SelectInput } from './query/projection.js';
export type { SortInput } from './query/sort.js';

/** A record in the result of a query. It never changes: a changed record is another object. */
export interface Row<Doc = unknown> {
  /** The last segment of the record's name. */
  readonly id: string;
  /** The version of the write that has last changed `data`. */
  readonly version: number;
  /** The document, or the parts of it that the query selects. */
  readonly data: Doc;
}

/** The collection of the records with a name: all of it before the last slash. */
type CollectionOf<Name> = Name extends `${infer First}/${infer Rest}` ? (Rest extends `${string}/${string}` ? `${First}/${CollectionOf<Rest>}` : First) : never;

/** The collections of an app's records. Any text if the app declares no types. */
export type Collections<App> = string extends Names<RecordsOf<App>> ? string : CollectionOf<Names<RecordsOf<App>>>;

/** The documents of a collection: the type of the names `COLLECTION/ID` with any id, and the types of the names with a certain id. */
export type DocIn<App, Collection extends string> = string extends Names<RecordsOf<App>>
  ? unknown
  : ValueOf<RecordsOf<App>, `${Collection}/${string}`> | ValueOf<RecordsOf<App>, Certain<Names<RecordsOf<App>>, Collection>>;
/** The names of a collection with a certain id. */
type Certain<Name, Collection extends string> = Name extends `${Collection}/${infer Id}` ? (string extends Id ? never : Id extends `${string}/${string}` ? never : Name) : never;

/** The parts of a document that a query with `select` may return. */
export type Selected<Doc> = Doc extends ReadonlyArray<infer Entry>
  ? ReadonlyArray<Selected<Entry>>
  : Doc extends object
    ? { readonly [Key in keyof Doc]?: Selected<Doc[Key]> }
    : Doc;

/** A query for whole documents. */
export type WholeQuery = QueryInput & { readonly select?: undefined };

export interface LiveQueryOptions {
  /** Called when the server refused or ended the query: no more changes arrive. Without it, `onError` of the client receives the error. */
  onEnd?: (error: TidewireError) => void;
  /**
   * Called with QUERY_UNAVAILABLE when the server can't evaluate the query for now: the client asks again with growing delays, and keeps
   * the rows. Called without an error when the server has answered again.
   */
  onUnavailable?: (error?: TidewireError) => void;
}

export interface FetchOptions extends RequestOptions {
  /** Whether the answer has the number of all records that the query selects, whatever its limit and offset. */
  count?: boolean;
}

/** The answer to a query. */
export interface QueryAnswer<Doc = unknown> {
  readonly rows: ReadonlyArray<Row<Doc>>;
  /** The number of all records that the query selects; undefined without the option `count`. */
  readonly count: number | undefined;
}

/**
 * Follows a query: its rows, and each change of them. The handles of equal queries share one subscription. Close the handle when the app no
 * longer needs it.
 *
 * @param records `client.record`
 * @param collection the name of records without their last segment
 */
export function openQuery<App extends Schema, Collection extends Collections<App>>(
  records: Records<App>,
  collection: Collection,
  query?: WholeQuery,
  options?: LiveQueryOptions,
): QueryHandle<DocIn<App, Collection>>;
export function openQuery<App extends Schema, Collection extends Collections<App>>(
  records: Records<App>,
  collection: Collection,
  query: QueryInput,
  options?: LiveQueryOptions,
): QueryHandle<Selected<DocIn<App, Collection>>>;
export function openQuery(records: Records, collection: string, query: QueryInput = {}, options: LiveQueryOptions = {}): QueryHandle {
  checkName(collection, 'collection');
  const text = queryText(query);
  records.connection.checkUse();
  return new QueryHandle(queriesOf(records).take(collection, text), options);
}

/**
 * Evaluates a query once. Rejected with the code of a refusal; after QUERY_UNAVAILABLE and TOO_MANY_QUERIES the same query may succeed later.
 *
 * @param records `client.record`
 * @param collection the name of records without their last segment
 */
export function fetchQuery<App extends Schema, Collection extends Collections<App>>(
  records: Records<App>,
  collection: Collection,
  query: WholeQuery | undefined,
  options: FetchOptions & { count: true },
): Promise<QueryAnswer<DocIn<App, Collection>> & { readonly count: number }>;
export function fetchQuery<App extends Schema, Collection extends Collections<App>>(
  records: Records<App>,
  collection: Collection,
  query?: WholeQuery,
  options?: FetchOptions,
): Promise<QueryAnswer<DocIn<App, Collection>>>;
export function fetchQuery<App extends Schema, Collection extends Collections<App>>(
  records: Records<App>,
  collection: Collection,
  query: QueryInput,
  options: FetchOptions & { count: true },
): Promise<QueryAnswer<Selected<DocIn<App, Collection>>> & { readonly count: number }>;
export function fetchQuery<App extends Schema, Collection extends Collections<App>>(
  records: Records<App>,
  collection: Collection,
  query: QueryInput,
  options?: FetchOptions,
): Promise<QueryAnswer<Selected<DocIn<App, Collection>>>>;
export async function fetchQuery(records: Records, collection: string, query: QueryInput = {}, { count = false, ...options }: FetchOptions = {}): Promise<QueryAnswer> {
  checkName(collection, 'collection');
  const action = count ? QueryAction.ReadAndCount : QueryAction.Read;
  const text = queryText(query);
  const answer = await queriesOf(records).requests.ask({ topic: Topic.Query, action, name: collection, data: text }, true, options);
  const { rows, count: total } = valueOf(answer.data) as QueryAnswer;
  const error = isWhole(text) && firstInvalid(records.connection, collection, rows);
  if (error) throw error;
  return { rows, count: total };
}

/** A live query. The arrays and rows that it returns never change: a change makes a new array, in which an unchanged row is the same object. */
export class QueryHandle<Doc = unknown> {
  readonly collection: string;
  /** Fulfilled when the rows have arrived, rejected if the server refuses the query or the client is closed before. */
  readonly ready: Promise<void>;
  readonly #result: LiveResult;
  readonly #options: LiveQueryOptions;
  readonly #followers = new Set<Follower>();
  #isClosed = false;

  /** Call `openQuery` to create a handle. */
  constructor(result: LiveResult, options: LiveQueryOptions) {
    this.collection = result.collection;
    this.ready = result.ready.promise;
    this.#result = result;
    // A new object, because two handles may be given the same one.
    this.#options = { ...options };
    result.use(this.#options);
  }

  /**
   * The rows in the order of the query, with the unconfirmed edits of this client's open records; undefined before `ready` and after the end
   * of the query.
   */
  get rows(): ReadonlyArray<Row<Doc>> | undefined {
    return this.#result.rows as ReadonlyArray<Row<Doc>> | undefined;
  }

  /** Why the server has ended the query, or QUERY_UNAVAILABLE while it can't evaluate it. */
  get error(): TidewireError | undefined {
    return this.#result.error;
  }

  /**
   * Calls `callback` with the rows as soon as they have arrived and whenever they change, and with the changes since the last call; at first
   * each row is one that was added. Returns the removal.
   */
  subscribe(callback: (rows: ReadonlyArray<Row<Doc>>, changes: ReadonlyArray<QueryChange<Doc>>) => void): () => void {
    if (this.#isClosed) throw new TidewireError('CLOSED', `the query of "${this.collection}" is closed`, { subject: this.collection });
    if (typeof callback !== 'function') throw new TidewireError('INVALID_ARGUMENT', 'the callback must be a function');
    let before: readonly Row[] = [];
    const follower: Follower = (rows) => {
      const changes = changesBetween(before, rows);
      before = rows;
      callback(rows as ReadonlyArray<Row<Doc>>, changes as ReadonlyArray<QueryChange<Doc>>);
    };
    this.#followers.add(follower);
    const stop = this.#result.follow(follower);
    return () => {
      this.#followers.delete(follower);
      stop();
    };
  }

  /** Ends the subscriptions of the handle. The last handle of equal queries ends the query at the server. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#followers.forEach((follower) => this.#result.followers.delete(follower));
    this.#result.release(this.#options);
  }
}
