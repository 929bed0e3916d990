// The records of a client: handles that share one document for each name, and requests that need no subscription.

import type { Connection, Part } from './connection.js';
import { payload, valueOf } from './data.js';
import { draw } from './draw.js';
import { TidewireError, checkName, refused } from './error.js';
import { Interest } from './interest.js';
import { checkedPath } from './path.js';
import { RecordAction, Topic, type Message } from './protocol.js';
import { Document, type Merge } from './record.js';
import { Requests, type RequestOptions } from './request.js';
import type { AnyPath, Change, Names, Path, RecordsOf, Schema, ValueAt, ValueOf } from './schema.js';

export interface OpenOptions<Doc = unknown> {
  /** How edits are merged if another client wrote first; by default `local`. It applies to all handles of the record. */
  merge?: Merge<Doc>;
  /**
   * False opens the record only if it exists. If it does not, `ready` and all edits are rejected with RECORD_NOT_FOUND, and the value
   * arrives as soon as another client has written the record. By default true: a missing record is created.
   */
  create?: boolean;
  /** Called when the server refused the record or revoked the right to it, or when the record was deleted: no more changes arrive. */
  onEnd?: (error: TidewireError) => void;
}

/** Several paths with their values; undefined removes the value at its path. */
export type Changes<Doc> = { readonly [At in Path<Doc>]?: ValueAt<Doc, At> | undefined };

/** The part of a document that its handles use. */
export type SharedRecord = Pick<
  Document,
  'name' | 'ready' | 'value' | 'version' | 'notFound' | 'isSaved' | 'hasProvider' | 'watchers' | 'at' | 'edit' | 'saved' | 'subscribe'
>;

/**
 * An open record: its value, with the edits of this client that the server has not confirmed yet. A value never changes, it is only
 * replaced: an unchanged part stays the same object. The app must not change it either.
 */
export class RecordHandle<Doc = unknown> {
  readonly name: string;
  /**
   * Fulfilled when the value has arrived. Rejected if the server refuses the record, or with RECORD_NOT_FOUND if it is missing and must not
   * be created.
   */
  readonly ready: Promise<void>;
  readonly #document: SharedRecord;
  readonly #report: (error: TidewireError) => void;
  readonly #release: () => void;
  readonly #stops = new Set<() => void>();
  #isClosed = false;

  /** Call `client.record.open` or `offline.open` to create a handle. */
  constructor(document: SharedRecord, report: (error: TidewireError) => void, release: () => void) {
    this.name = document.name;
    this.ready = document.ready.promise;
    this.#document = document;
    this.#report = report;
    this.#release = release;
  }

  /** The document; undefined before `ready`, while the record does not exist, and after it was deleted. */
  get value(): Doc | undefined {
    return this.#document.value as Doc | undefined;
  }

  /** The version that the server has confirmed; -1 before `ready`. */
  get version(): number {
    return this.#document.version;
  }

  /** The error RECORD_NOT_FOUND while the server has no such record and the handle must not create it. */
  get notFound(): TidewireError | undefined {
    return this.#document.notFound;
  }

  /** Whether all edits are durable at the server. */
  get isSaved(): boolean {
    return this.#document.isSaved;
  }

  /** Whether a listening client provides the record. */
  get hasProvider(): boolean {
    return this.#document.hasProvider;
  }

  /** The value at `path`. */
  get<At extends AnyPath<Doc>>(path: At): ValueAt<Doc, At> | undefined {
    return this.#document.at(checkedPath(path)) as ValueAt<Doc, At> | undefined;
  }

  /**
   * Replaces the document, or the value at a path; undefined removes the value there. The change shows at once. If it changes nothing, it
   * is not sent. If the server refuses it, it is rolled back and `onError` receives the error.
   */
  set(value: Doc): void;
  set<At extends AnyPath<Doc>>(path: At, value: ValueAt<Doc, At> | undefined): void;
  set(...change: [unknown] | [unknown, unknown]): void {
    this.#edit(change, true).catch(this.#report);
  }

  /** Does the same. Fulfilled when the change is on the server's disk, and rejected when the server refuses it. */
  setWithAck(value: Doc): Promise<void>;
  setWithAck<At extends AnyPath<Doc>>(path: At, value: ValueAt<Doc, At> | undefined): Promise<void>;
  setWithAck(...change: [unknown] | [unknown, unknown]): Promise<void> {
    return this.#edit(change, false);
  }

  /** Changes several paths in one step: the keys of an object, or pairs of a path and a value. Fulfilled and rejected like `setWithAck`. */
  patch(changes: Changes<Doc> | ReadonlyArray<Change<Doc>>): Promise<void> {
    this.#check();
    const pairs = (Array.isArray(changes) ? changes : Object.entries(changes)) as ReadonlyArray<[AnyPath<unknown>, unknown]>;
    return this.#document.edit(pairs.map(([path, value]) => ({ path, value })));
  }

  /**
   * Replaces the document with the result of `update`. If another client wrote first, `update` is called again, so it must have no side
   * effects.
   */
  update(update: (value: Doc) => Doc): Promise<void> {
    this.#check();
    return this.#document.edit([], update);
  }

  /** Fulfilled when everything edited so far is durable; rejected with the first refusal. */
  saved(): Promise<void> {
    return this.#document.saved();
  }

  /**
   * Calls `callback` with the document, or with the value at a path, as soon as it has arrived and at every change; returns the removal.
   */
  subscribe(callback: (value: Doc | undefined) => void): () => void;
  subscribe<At extends AnyPath<Doc>>(path: At, callback: (value: ValueAt<Doc, At> | undefined) => void): () => void;
  subscribe(...[first, second]: [unknown] | [unknown, unknown]): () => void {
    this.#check();
    const path = typeof first === 'function' ? undefined : (first as AnyPath<unknown>);
    const callback = path === undefined ? first : second;
    if (typeof callback !== 'function') throw new TidewireError('INVALID_ARGUMENT', 'the callback must be a function');
    return this.#keep(this.#document.subscribe(path, callback as (value: never) => void));
  }

  /** Calls `callback` when the record gets a provider, and when it loses its last one; returns the removal. */
  onProvider(callback: (hasProvider: boolean) => void): () => void {
    this.#check();
    // A new function for each registration, so that the same callback can be registered twice.
    const watcher = (hasProvider: boolean): void => callback(hasProvider);
    this.#document.watchers.add(watcher);
    return this.#keep(() => void this.#document.watchers.delete(watcher));
  }

  /** Closes the handle and ends its subscriptions; edits still reach the server. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#stops.forEach((stop) => stop());
    this.#release();
  }

  async #edit(change: [unknown] | [unknown, unknown], isSkippedIfEqual: boolean): Promise<void> {
    this.#check();
    const patch = change.length === 1 ? { value: change[0] } : { path: change[0] as AnyPath<unknown>, value: change[1] };
    return this.#document.edit([patch], undefined, undefined, isSkippedIfEqual);
  }

  /** Registers `stop` for the time when the handle is closed, and returns a removal that calls it earlier. */
  #keep(stop: () => void): () => void {
    this.#stops.add(stop);
    return () => {
      this.#stops.delete(stop);
      stop();
    };
  }

  #check(): void {
    if (this.#isClosed) throw new TidewireError('CLOSED', `the handle of "${this.name}" is closed`, { subject: this.name });
  }
}

/** The live queries of a client, for its records. `@tidewire/client/live-query` has them. */
export interface LiveResults {
  /** Whether the app follows a query of the record's collection. */
  follows(name: string): boolean;
  /** The newest row that shows the whole record. */
  row(name: string): { readonly version: number; readonly data: unknown } | undefined;
  /** `device` of the records has changed. */
  deviceChanged(): void;
}

/** The records and results on the user's device, for live queries. `@tidewire/client/offline` has them. */
export interface Device {
  /** The record of this name, if edits of it wait on the device. */
  waiting(name: string): SharedRecord | undefined;
  /** Opens all such records of a collection. */
  openWaiting(collection: string): void;
  /** The rows of a collection have changed: its open records take values from them that are newer than their own. */
  rebase(collection: string): void;
  /** All open records of the device. */
  records(): Iterable<SharedRecord>;
  /** The rows that were stored last for a query. */
  read(query: string): Promise<unknown>;
  /** Stores the rows of a query; undefined removes them. */
  keep(query: string, rows: unknown): void;
}

export class Records<App extends Schema = {}> {
  readonly #interest: Interest;
  readonly #requests: Requests;
  /**
   * The documents that open handles share: for `@tidewire/client/offline` and `@tidewire/client/inspect`.
   *
   * @internal
   */
  readonly documents = new Map<string, Document>();
  /**
   * Called with each new document: for `@tidewire/client/live-query`.
   *
   * @internal
   */
  added: ((document: SharedRecord) => void) | undefined;
  /**
   * Declared without a field, like `device`: few apps have them, and the script of a page may not grow.
   *
   * @internal
   */
  declare results: LiveResults | undefined;
  /** @internal */
  declare device: Device | undefined;
  readonly #onEnd = new Map<Document, Set<(error: TidewireError) => void>>();
  #keyPrefix = '';
  #keys = 0;

  constructor(
    /** @internal */
    readonly connection: Connection,
  ) {
    this.#requests = new Requests(connection);
    this.#interest = new Interest(connection, {
      topic: Topic.Record,
      subscribe: RecordAction.SubscribeCreateAndRead,
      unsubscribe: RecordAction.Unsubscribe,
      subscribeExisting: RecordAction.SubscribeAndRead,
      isExisting: (name) => this.documents.get(name)?.isCreated === false,
      refused: (name, error) => this.#end(name, error),
    });
    const each = (act: (document: Document) => void): void => [...this.documents.values()].forEach(act);
    const own: Part = {
      handle: (message, code) => this.#handle(message, code),
      opened: (isNew) => each((document) => document.opened(isNew)),
      unanswered: () => [...this.documents.values()].flatMap((document) => document.unanswered()),
      lost: (refused) => each((document) => document.lost(refused)),
      closed: (reason) => each((document) => document.end(reason)),
    };
    connection.parts.set(Topic.Record, [this.#interest, this.#requests, own]);
  }

  /**
   * Opens `name`. If there is no such record, it is created, unless the option `create` is false. Close the handle when the app no longer
   * needs it.
   */
  open<Name extends Names<RecordsOf<App>>>(name: Name, options: OpenOptions<ValueOf<RecordsOf<App>, Name>> = {}): RecordHandle<ValueOf<RecordsOf<App>, Name>> {
    checkName(name);
    this.connection.checkUse();
    let document = this.documents.get(name);
    if (!document) {
      document = new Document(
        name,
        this.connection,
        () => this.#key(),
        (error) => {
          this.#interest.drop(name);
          this.#end(name, error);
        },
        () => this.#tidy(name),
      );
      this.documents.set(name, document);
      document.isCreated = options.create !== false;
      this.added?.(document);
      void this.#interest.want(name);
    } else if (options.create !== false && document.create()) {
      // The session may have subscribed without creating the record, so it subscribes again.
      this.#interest.drop(name);
      void this.#interest.want(name);
    }
    const opened = document;
    opened.users += 1;
    if (options.merge) opened.merge = options.merge as Merge;
    const ends = this.#onEnd.get(opened) ?? new Set();
    const { onEnd = () => undefined } = options;
    this.#onEnd.set(opened, ends.add(onEnd));
    return new RecordHandle(opened, (error) => this.connection.onError(error), () => {
      ends.delete(onEnd);
      opened.users -= 1;
      this.#tidy(name);
    });
  }

  /** Reads a record once; undefined if it does not exist. */
  async get<Name extends Names<RecordsOf<App>>>(name: Name, options?: RequestOptions): Promise<ValueOf<RecordsOf<App>, Name> | undefined> {
    checkName(name);
    const answer = await this.#requests.ask({ topic: Topic.Record, action: RecordAction.Fetch, name }, true, options);
    this.connection.judge('record', name, answer.data);
    return valueOf(answer.data) as ValueOf<RecordsOf<App>, Name> | undefined;
  }

  /** Replaces or creates a record without opening it; fulfilled when the write is on the server's disk. */
  async set<Name extends Names<RecordsOf<App>>>(name: Name, value: ValueOf<RecordsOf<App>, Name>, options?: RequestOptions): Promise<void> {
    checkName(name);
    const fields = { version: -1, isWriteAck: true, key: this.#key(), ...payload(value) };
    this.connection.judge('record', name, fields.data);
    await this.#requests.ask({ topic: Topic.Record, action: RecordAction.CreateAndUpdate, name, ...fields }, true, options);
  }

  /** Deletes a record for all clients; fulfilled when that is on the server's disk, also if the record did not exist. */
  async delete(name: Names<RecordsOf<App>>, options?: RequestOptions): Promise<void> {
    checkName(name);
    await this.#requests.ask({ topic: Topic.Record, action: RecordAction.Delete, name }, true, options, deletion(name));
  }

  #handle(message: Message, code: string | undefined): void {
    const { action, name = '', correlationId, originalAction } = message;
    const error = code === undefined ? undefined : refused(code, name);
    const isDeletion = action === RecordAction.DeleteSuccess || originalAction === RecordAction.Delete || code === 'RECORD_DELETE_ERROR';
    const isAnswer = this.#requests.settle(isDeletion ? deletion(name) : correlationId, error ?? message);
    if (action === RecordAction.DeleteSuccess || action === RecordAction.Deleted) {
      this.#interest.forget(name);
      this.#end(name, new TidewireError('RECORD_DELETED', `"${name}" was deleted`, { subject: name }));
    } else if (!isAnswer) {
      const document = this.documents.get(name);
      if (document) document.handle(message, code);
      else if (error) this.connection.onError(error);
    }
  }

  #end(name: string, error: TidewireError): void {
    const document = this.documents.get(name);
    if (!document) return;
    this.documents.delete(name);
    const ends = this.#onEnd.get(document) ?? [];
    this.#onEnd.delete(document);
    document.remove(error);
    this.connection.callAll(ends, error);
  }

  /** Releases a record that has no open handle and no unconfirmed edits. */
  #tidy(name: string): void {
    const document = this.documents.get(name);
    if (!document || document.users > 0 || !document.isSaved) return;
    this.documents.delete(name);
    this.#onEnd.delete(document);
    this.#interest.drop(name);
  }

  #key(): string {
    this.#keyPrefix ||= draw();
    this.#keys += 1;
    return `${this.#keyPrefix}-${this.#keys}`;
  }
}

/** The key under which a deletion waits for its answer, which has no correlation id. */
function deletion(name: string): string {
  return `delete ${name}`;
}
