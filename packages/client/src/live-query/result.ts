// One live query: the server's rows, which the handles of equal queries share.

import { deferred } from '../deferred.js';
import { TidewireError } from '../error.js';
import type { Connection, Refused } from '../connection.js';
import type { LiveQueryOptions, Row } from '../live-query.js';
import type { Message } from '../protocol.js';
import { kept } from './changes.js';
import type { Queries } from './queries.js';
import { isWhole } from './text.js';

/** A change as the server sends it. */
export type WireChange = { type: 'removed'; id: string } | { type: 'added' | 'changed'; index: number; row: Row };

export type Follower = (rows: readonly Row[]) => void;

export class LiveResult {
  /** The collection and the query as one text. */
  readonly name: string;
  readonly collection: string;
  readonly text: string;
  /** The rows that the app sees. Undefined before the first answer and after the end. */
  rows: readonly Row[] | undefined;
  /** The rows as the server sent them, without the edits of this client. */
  server: readonly Row[] | undefined;
  error: TidewireError | undefined;
  readonly ready = deferred();
  /** The server's key of the query, with which it sends changes. Undefined while no answer has arrived in this session. */
  key: string | undefined;
  readonly users = new Set<LiveQueryOptions>();
  readonly followers = new Set<Follower>();
  /** Whether `rows` has edits of this client that `server` lacks. */
  #isEdited = false;
  #asked: { id: string; message: Message } | undefined;
  /** The number of answers QUERY_UNAVAILABLE since the last rows. */
  #failures = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly queries: Queries,
    { name, collection, text }: Pick<LiveResult, 'name' | 'collection' | 'text'>,
    private readonly forget: () => void,
  ) {
    this.name = name;
    this.collection = collection;
    this.text = text;
  }

  /** Calls `follower` with the rows as soon as they are there and at every change; returns the removal. */
  follow(follower: Follower): () => void {
    this.followers.add(follower);
    const { rows } = this;
    // If the rows change in the meantime, the follower has got them already.
    if (rows) queueMicrotask(() => this.rows === rows && this.followers.has(follower) && this.queries.connection.call(follower, rows));
    return () => void this.followers.delete(follower);
  }

  /** Adds a user. The first one requests the result. */
  use(user: LiveQueryOptions): void {
    this.users.add(user);
    if (this.users.size === 1) this.ask();
  }

  /** Removes a user. The last one ends the query. */
  release(user: LiveQueryOptions): void {
    this.users.delete(user);
    if (this.users.size > 0) return;
    this.#stop();
    this.forget();
  }

  /** Requests the result from the server. Without a connection, a new session does that. */
  ask(): void {
    this.#stop();
    const asked = this.queries.subscribe(this);
    if (asked instanceof TidewireError) this.#end(asked);
    else this.#asked = asked;
  }

  /** Takes a whole result. */
  replace(key: string | undefined, rows: readonly Row[]): void {
    this.key = key;
    this.#failures = 0;
    const { error } = this;
    this.error = undefined;
    this.#show(rows);
    this.ready.resolve();
    if (error) this.#tellUnavailable();
  }

  /** Takes the rows that the user's device has stored, unless the server has sent newer ones. */
  restore(rows: readonly Row[], restored: () => void): void {
    if (this.server || this.users.size === 0) return;
    this.server = rows;
    // The edits that wait show on the restored values.
    restored();
    this.refresh();
    this.ready.resolve();
  }

  /** Applies the changes of one write. */
  change(changes: readonly WireChange[]): void {
    const rows = [...(this.server ?? [])];
    for (const change of changes) {
      const id = change.type === 'removed' ? change.id : change.row.id;
      const place = rows.findIndex((row) => row.id === id);
      const isValid = place < 0 === (change.type === 'added') && (change.type === 'removed' || change.index <= rows.length);
      // The server and this client disagree about the rows, so the client requests all of them.
      if (!isValid) return this.ask();
      if (place >= 0) rows.splice(place, 1);
      if (change.type !== 'removed') rows.splice(change.index, 0, change.row);
    }
    this.#show(rows);
  }

  /** The server has refused the query, or has ended it. */
  refuse(error: TidewireError): void {
    this.#asked = this.key = undefined;
    if (error.code !== 'QUERY_UNAVAILABLE') return this.#end(error);
    const { reconnectMinMs, reconnectMaxMs } = this.queries.connection.options;
    // The delay is random like the one before a new connection, so that clients do not ask at the same moment.
    this.#timer = setTimeout(() => this.ask(), Math.random() * Math.min(reconnectMaxMs, reconnectMinMs * 2 ** this.#failures));
    this.#failures += 1;
    this.error = error;
    this.#tellUnavailable(error);
  }

  unanswered(): Message[] {
    return this.#asked && this.key === undefined ? [this.#asked.message] : [];
  }

  lost(refused: Refused | undefined): void {
    const isTooLarge = refused !== undefined && refused.message === this.#asked?.message;
    this.#asked = this.key = undefined;
    clearTimeout(this.#timer);
    if (isTooLarge) this.#end(refused.error);
  }

  /** The client is closed. After the next `connect()`, the query continues. */
  closed(reason: TidewireError): void {
    clearTimeout(this.#timer);
    this.ready.reject(reason);
  }

  #stop(): void {
    clearTimeout(this.#timer);
    if (this.#asked) this.queries.unsubscribe(this.#asked.id);
    this.#asked = this.key = undefined;
  }

  #end(error: TidewireError): void {
    this.#stop();
    this.forget();
    this.rows = this.server = undefined;
    this.queries.keep(this);
    this.error = error;
    this.ready.reject(error);
    this.queries.connection.callEnds(this.users, error);
  }

  /** Shows the rows of the server with the edits of this client. */
  refresh(): void {
    const { rows: before, server } = this;
    if (!server) return;
    const rows = this.queries.local?.apply(this) ?? server;
    // Without edits of this client, before and now, the rows of the server are compared already.
    const isEdited = rows !== server;
    const after = before && (isEdited || this.#isEdited) ? kept(before, rows) : rows;
    this.#isEdited = isEdited;
    if (before?.length === after.length && before.every((row, index) => row === after[index])) return;
    this.rows = after;
    this.queries.connection.callAll(this.followers, after);
  }

  #show(rows: readonly Row[]): void {
    const before = this.server ?? [];
    this.server = kept(before, rows);
    if (this.server !== before) this.queries.keep(this);
    this.#validate(before, this.server);
    this.refresh();
    this.queries.local?.tidy(this.collection);
  }

  /** Reports the first new document that the app's validation refuses. Parts of documents are not validated. */
  #validate(before: readonly Row[], after: readonly Row[]): void {
    const { connection } = this.queries;
    if (!connection.validate || !isWhole(this.text)) return;
    const known = new Set(before);
    const error = firstInvalid(connection, this.collection, after.filter((row) => !known.has(row)));
    if (error) connection.onError(error);
  }

  #tellUnavailable(error?: TidewireError): void {
    this.queries.connection.callAll([...this.users].flatMap(({ onUnavailable }) => onUnavailable ?? []), ...(error ? [error] : []));
  }
}

/** The error of the first row whose document the app's validation refuses. */
export function firstInvalid({ validate }: Pick<Connection, 'validate'>, collection: string, rows: readonly Row[]): TidewireError | undefined {
  for (const { id, data } of validate ? rows : []) {
    const error = validate?.('record', `${collection}/${id}`, data);
    if (error) return error;
  }
  return undefined;
}
