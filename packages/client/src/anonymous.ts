// Anonymous records: a handle that can switch to another record and keeps its subscriptions. A separate entry,
// `@tidewire/client/anonymous`.

import { deferred } from './deferred.js';
import { TidewireError } from './error.js';
import type { OpenOptions, RecordHandle, Records } from './records.js';
import type { AnyPath, Names, RecordsOf, Schema, ValueAt, ValueOf } from './schema.js';

/** The names whose documents are of the type `Doc`. */
export type NamesOf<App, Doc> = NameOf<RecordsOf<App>, Names<RecordsOf<App>>, Doc>;
type NameOf<Part, Name, Doc> = Name extends string ? ([Doc, ValueOf<Part, Name>] extends [ValueOf<Part, Name>, Doc] ? Name : never) : never;

/**
 * Opens a handle that can be switched to other records of the same type. At first it is switched to `name`. Close it when the app no longer
 * needs it.
 *
 * @param records `client.record`
 * @param name a record, or undefined for none yet: then give the types of the names, as in ``openAnonymous<App, `todos/${string}`>``
 */
export function openAnonymous<App extends Schema, Name extends Names<RecordsOf<App>>>(
  records: Records<App>,
  name: Name | undefined,
  options: OpenOptions<ValueOf<RecordsOf<App>, Name>> = {},
): AnonymousRecord<ValueOf<RecordsOf<App>, Name>, NamesOf<App, ValueOf<RecordsOf<App>, Name>>> {
  const made = new AnonymousRecord<ValueOf<RecordsOf<App>, Name>, NamesOf<App, ValueOf<RecordsOf<App>, Name>>>(records as unknown as Records, options as OpenOptions);
  void made.switchTo(name as NamesOf<App, ValueOf<RecordsOf<App>, Name>> | undefined);
  return made;
}

/** A callback, the path that it observes, and its removal from the current record. */
interface Watch {
  path: AnyPath<unknown> | undefined;
  callback: (value: unknown) => void;
  stop?: (() => void) | undefined;
}

/** A record whose name can be switched. Without a name it has no value, and can't be edited. */
export class AnonymousRecord<Doc = unknown, Name extends string = string> {
  readonly #records: Records;
  readonly #options: OpenOptions;
  readonly #watches = new Set<Watch>();
  readonly #onName = new Set<(name: Name | undefined) => void>();
  #handle: RecordHandle | undefined;
  #ready = deferred();
  #isReady = false;
  /** The current record was refused or deleted. */
  #hasEnded = false;
  #isClosed = false;

  /** Call `openAnonymous` to create a handle. */
  constructor(records: Records, options: OpenOptions) {
    this.#records = records;
    this.#options = options;
  }

  /** The name of the current record. */
  get name(): Name | undefined {
    return this.#handle?.name as Name | undefined;
  }

  /** Fulfilled when the value of the current record has arrived, rejected if the server refuses the record. */
  get ready(): Promise<void> {
    return this.#ready.promise;
  }

  /** The document; undefined before `ready`, without a name, and after the record was deleted. */
  get value(): Doc | undefined {
    return this.#handle?.value as Doc | undefined;
  }

  /** The version that the server has confirmed; -1 before `ready` and without a name. */
  get version(): number {
    return this.#handle?.version ?? -1;
  }

  /** Whether all edits of the current record are durable at the server. */
  get isSaved(): boolean {
    return this.#handle?.isSaved ?? true;
  }

  /** The value at a path. */
  readonly get: RecordHandle<Doc>['get'] = (path) => this.#handle?.get(path as never) as never;

  /** An edit belongs to the record that is current when it is made. After a switch it still reaches the server. */
  readonly set: RecordHandle<Doc>['set'] = (...change: unknown[]) => this.#named().set(...(change as [unknown]));
  readonly setWithAck: RecordHandle<Doc>['setWithAck'] = async (...change: unknown[]) => this.#named().setWithAck(...(change as [unknown]));
  readonly patch: RecordHandle<Doc>['patch'] = async (changes) => this.#named().patch(changes as object);
  readonly update: RecordHandle<Doc>['update'] = async (update) => this.#named().update(update as never);

  /** Fulfilled when all edits of the current record are durable; rejected with the first refusal. */
  async saved(): Promise<void> {
    await this.#handle?.saved();
  }

  /**
   * Switches to another record, or to none. Fulfilled when its value has arrived, rejected if the server refuses it. If another switch
   * follows before that, the promise settles with the last switch.
   */
  switchTo(name: Name | undefined): Promise<void> {
    if (this.#isClosed) throw closed();
    if (name === this.name && !this.#hasEnded) return this.ready;
    const onEnd = (error: TidewireError): void => {
      this.#hasEnded = true;
      this.#options.onEnd?.(error);
    };
    const handle = name === undefined ? undefined : this.#records.open(name, { ...this.#options, onEnd });
    this.#handle?.close();
    this.#handle = handle;
    this.#hasEnded = false;
    if (this.#isReady) this.#ready = deferred();
    this.#isReady = false;
    if (handle) {
      handle.ready.then(
        () => this.#settle(handle),
        (error) => this.#settle(handle, error),
      );
    } else this.#settle(undefined);
    for (const watch of this.#watches) this.#follow(watch);
    this.#records.connection.callAll(this.#onName, name);
    return this.ready;
  }

  /**
   * Calls `callback` with the document, or with the value at a path: as soon as it has arrived, at every change, and after every switch.
   * Returns the removal.
   */
  subscribe(callback: (value: Doc | undefined) => void): () => void;
  subscribe<At extends AnyPath<Doc>>(path: At, callback: (value: ValueAt<Doc, At> | undefined) => void): () => void;
  subscribe(...args: [unknown, unknown?]): () => void {
    if (this.#isClosed) throw closed();
    const path = typeof args[0] === 'function' ? undefined : (args[0] as AnyPath<unknown>);
    const callback = path === undefined ? args[0] : args[1];
    this.#records.connection.checkCallback(callback);
    const watch: Watch = { path, callback: callback as Watch['callback'] };
    this.#follow(watch);
    this.#watches.add(watch);
    return () => {
      this.#watches.delete(watch);
      watch.stop?.();
    };
  }

  /** Calls `callback` with the name after every switch; returns the removal. */
  onName(callback: (name: Name | undefined) => void): () => void {
    this.#onName.add(callback);
    return () => void this.#onName.delete(callback);
  }

  /** Closes the handle and ends its subscriptions; edits still reach the server. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#handle?.close();
    this.#ready.reject(closed());
  }

  #follow(watch: Watch): void {
    const { path, callback } = watch;
    watch.stop = path === undefined ? this.#handle?.subscribe(callback) : this.#handle?.subscribe(path, callback);
  }

  #settle(handle: RecordHandle | undefined, error?: unknown): void {
    if (handle !== this.#handle) return;
    this.#isReady = true;
    if (error === undefined) this.#ready.resolve();
    else this.#ready.reject(error);
  }

  #named(): RecordHandle {
    if (this.#handle) return this.#handle;
    throw new TidewireError('INVALID_ARGUMENT', 'there is no record to edit: switchTo() gives the handle a name');
  }
}

function closed(): TidewireError {
  return new TidewireError('CLOSED', 'the anonymous record is closed');
}
