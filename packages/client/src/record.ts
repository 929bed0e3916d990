// One record as this client sees it: the server's value, with the unconfirmed edits on top. At most one write of a record is in flight,
// with the version that it expects to make. Edits that are made before its answer are sent together in the next write.

import type { Connection, Refused } from './connection.js';
import { payload, valueOf } from './data.js';
import { deferred, type Deferred } from './deferred.js';
import { TidewireError, refused } from './error.js';
import type { Update } from './list-change.js';
import { checkedPath, isEqual, reuse, withValue, type AnyPath } from './path.js';
import { RecordAction, Topic, type Message } from './protocol.js';
import { Watched } from './watched.js';

/** The argument of a merge function: the server's value, this client's value with its edits, and the last value that both had. */
export interface Conflict<Value = unknown> {
  readonly name: string;
  readonly remote: Value;
  readonly local: Value;
  readonly base: Value;
}

/**
 * How edits are merged if another client wrote first. `local` applies them again to the new value, each at its path. `remote` discards
 * them. A function returns the new value of the record.
 */
export type Merge<Value = unknown> = 'local' | 'remote' | ((conflict: Conflict<Value>) => Value);

/** A change at one path, or of the whole document without a path. Without a value, the value there is removed. */
export interface Patch {
  path?: AnyPath;
  value?: unknown;
}

interface Edit {
  patches: Patch[];
  update?: Update;
  key?: string;
  seen?: Seen | undefined;
  done: Deferred;
}

/** The state of a record that the client has seen. A repeated write names the one of its first attempt. */
export type Seen = Pick<Message, 'incarnation' | 'seenVersion'>;

/** A write that was sent to the server and has no answer yet. */
interface Flight {
  message: Message;
  count: number;
  base: unknown;
  result: unknown;
  /** The state of the record when the write was sent first. */
  seen: Seen;
  /** Whether the write was sent in an earlier session, which may have made it. */
  isRepeated: boolean;
  /** Whether the server does not know if it has made the write. */
  isUnknown?: boolean;
}

/** The most edits in one write. */
const EDITS_MAX = 100;
const VERSION_MAX = 2 ** 31 - 1;

export const next = (version: number): number => (version === VERSION_MAX ? 1 : version + 1);
/** A deep copy. If the value can't be written as JSON, this throws while the app's call is on the stack. */
export const copied = (value: unknown): unknown => valueOf(payload(value).data);

export class Document extends Watched {
  ready = deferred();
  readonly watchers = new Set<(hasProvider: boolean) => void>();
  hasProvider = false;
  /** The number of open handles. */
  users = 0;
  version = -1;
  /** The error if the server has no such record and the document must not create it. */
  notFound: TidewireError | undefined;
  merge: Merge = 'local';
  /** Whether the record is created if the server has none. */
  isCreated = false;
  /** Called with the server's value and version whenever they arrive. */
  took: ((value: unknown, version: number) => void) | undefined;
  #base: unknown;
  #incarnation: Message['incarnation'];
  #edits: Edit[] = [];
  #flight: Flight | undefined;
  /** The number of edits that are sent one at a time, because the server refused a write that contained all of them. */
  #alone = 0;
  #removed: TidewireError | undefined;
  /** Whether the record's value has arrived in this session. */
  #isRead = false;

  constructor(
    readonly name: string,
    private readonly connection: Connection,
    private readonly draw: () => string,
    /** Called when the server has refused the record. */
    private readonly ended: (error: TidewireError) => void,
    /** Called when all edits are confirmed. */
    private readonly settled: () => void,
  ) {
    super(connection);
  }

  /** The state of the record, if the server has sent its incarnation. */
  get seen(): Seen {
    return this.#incarnation === undefined ? {} : { incarnation: this.#incarnation, seenVersion: this.version };
  }

  get isSaved(): boolean {
    return this.#edits.length === 0;
  }

  /** The unconfirmed edits, and how many of them are in flight: for `@tidewire/client/inspect`. */
  get pending(): { edits: readonly Edit[]; sent: number } {
    return { edits: this.#edits, sent: this.#flight?.count ?? 0 };
  }

  /** Fulfilled when all edits so far are durable; rejected with the first refusal. */
  async saved(): Promise<void> {
    await Promise.all(this.#edits.map(({ done }) => done.promise));
  }

  /**
   * With a `key` the edit is sent as a separate write. The server makes that write once, even if an earlier client has already sent it;
   * `seen` is then the state that the earlier client had seen.
   * With `isSkippedIfEqual`, an edit that changes nothing is dropped if no other edit waits.
   */
  async edit(patches: Patch[], update?: Edit['update'], key?: string, isSkippedIfEqual = false, seen?: Seen): Promise<void> {
    this.connection.checkUse();
    if (this.#removed) throw this.#removed;
    if (this.notFound) throw this.notFound;
    const edit: Edit = {
      patches: checked(patches),
      ...(update && { update }),
      ...(key && { key }),
      seen,
      done: deferred(),
    };
    // An edit whose function throws or whose result is invalid changes nothing, and its caller receives the error.
    if (this.version >= 0) {
      const result = applied(this.value, [edit]);
      checkDocument(result);
      const error = this.connection.validate?.('record', this.name, result);
      if (error) throw error;
      if (isSkippedIfEqual && this.isSaved && isEqual(this.value, result)) return;
    }
    this.#edits.push(edit);
    // Written before it is shown: if the server's limit is known, an edit that exceeds it never shows.
    this.#write();
    this.#show();
    return edit.done.promise;
  }

  handle(message: Message, code: string | undefined): void {
    const { action, data, version = 0, correlationId } = message;
    const flight = this.#flight;
    const isOwn = flight !== undefined && correlationId === flight.message.correlationId;
    if (action === RecordAction.ReadResponse) {
      this.#isRead = true;
      this.#incarnation = message.incarnation;
      if (version < 0) return this.#miss();
      if (flight?.isUnknown) this.#conflict(flight, valueOf(data), version);
      else this.#take(valueOf(data), version);
      this.ready.resolve();
      if (flight?.isRepeated && !flight.isUnknown) this.#repeat(flight);
    } else if (action === RecordAction.WriteAcknowledgement) {
      if (isOwn) this.#confirm(flight);
    } else if (action === RecordAction.VersionExists) {
      if (isOwn && data === undefined) this.#conflictUnseen(flight);
      else if (isOwn) this.#conflict(flight, valueOf(data), version);
    } else if (action === RecordAction.WriteUnknown) {
      // The value shows what to do next, as after a conflict.
      if (isOwn) {
        flight.isUnknown = true;
        this.#read();
      }
    } else if (action === RecordAction.InvalidVersion) {
      // The server's version is older than this client's: the server has lost writes that this client has seen.
      if (isOwn) this.#flight = undefined;
      this.#read();
    } else if (code !== undefined) {
      if (isOwn) this.#refuse(flight, refused(code, this.name));
      else if (!this.#isRead) this.ended(refused(code, this.name));
    } else if (action === RecordAction.HasProvider || action === RecordAction.HasNoProvider) {
      this.#provided(action === RecordAction.HasProvider);
    } else if (action !== RecordAction.Update && action !== RecordAction.Patch && action !== RecordAction.PatchMulti) {
      // A notice, such as that the session has already subscribed to the record.
      return;
    } else if (version === next(this.version) || action === RecordAction.Update) {
      // An update has the whole value, so it is taken even if versions between are missing. `next` also covers the step from the largest
      // version to 1.
      if (this.version < version || version === next(this.version)) this.#take(remote(this.#base, message), version);
    } else if (flight && version === next(flight.message.version as number) && flight.message.version === next(this.version)) {
      // The change follows this client's own write, whose acknowledgement still waits for the disk.
      this.#take(remote(flight.result, message), version);
    } else if (version > this.version && this.#isRead) this.#read();
    this.#write();
  }

  opened(isNew: boolean): void {
    if (!isNew) this.#write();
  }

  unanswered(): Message[] {
    return this.#flight ? [this.#flight.message] : [];
  }

  lost(tooLarge: Refused | undefined): void {
    this.#isRead = false;
    this.#provided(false);
    if (this.#flight) this.#flight.isRepeated = true;
    if (this.#flight && this.#flight.message === tooLarge?.message) this.#refuse(this.#flight, tooLarge.error);
  }

  /** Makes the document create a missing record. True if the session has to subscribe to it again for that. */
  create(): boolean {
    if (this.isCreated) return false;
    this.isCreated = true;
    if (this.version >= 0) return false;
    if (this.notFound) this.ready = deferred();
    this.notFound = undefined;
    this.#isRead = false;
    return true;
  }

  /** Discards all edits. */
  end(error: TidewireError): void {
    this.ready.reject(error);
    this.#flight = undefined;
    this.#edits.splice(0).forEach(({ done }) => done.reject(error));
    this.#show();
  }

  /** The record is gone for good: subscribers receive undefined. */
  remove(error: TidewireError): void {
    this.#removed = error;
    this.end(error);
    this.#take(undefined, -1);
  }

  /** The server has no such record. If another client creates it, that arrives as a change. */
  #miss(): void {
    const missing = new TidewireError('RECORD_NOT_FOUND', `there is no record "${this.name}"`, { subject: this.name });
    this.end(missing);
    // If the record existed before, its promise is already fulfilled and can't be rejected.
    this.ready = deferred();
    this.ready.reject(missing);
    this.notFound = missing;
    this.#take(undefined, -1);
    this.settled();
  }

  #provided(hasProvider: boolean): void {
    if (this.hasProvider === hasProvider) return;
    this.hasProvider = hasProvider;
    this.connection.callAll(this.watchers, hasProvider);
  }

  #read(): void {
    this.#isRead = false;
    this.connection.answer({ topic: Topic.Record, action: RecordAction.Read, name: this.name });
  }

  #take(value: unknown, version: number): void {
    if (this.notFound && version >= 0) {
      this.notFound = undefined;
      this.ready = deferred();
      this.ready.resolve();
    }
    this.#base = reuse(this.#base, value);
    this.version = version;
    this.#show();
    this.took?.(value, version);
    // A record of version 0 has just been created and is empty, so it is not validated.
    const error = version > 0 && this.connection.validate?.('record', this.name, value);
    if (error) this.connection.onError(error);
  }

  /** Computes the value from the base and the edits, and notifies the subscribers whose part has changed. */
  #show(): void {
    this.show(this.version < 0 ? undefined : applied(this.#base, this.#edits));
  }

  /** Sends a write again that an earlier session may have made. */
  #repeat(flight: Flight): void {
    flight.message = { ...flight.message, ...flight.seen };
    try {
      this.connection.send(flight.message);
    } catch (error) {
      this.#refuse(flight, error as TidewireError);
    }
  }

  /** If no write is in flight, sends the next edits: as many as fit in one message. */
  #write(editsMax = EDITS_MAX): void {
    if (this.#flight || this.#edits.length === 0 || !this.#isRead) return;
    const { key, seen, update } = this.#edits[0] as Edit;
    const end = this.#edits.findIndex((edit, at) => at > 0 && (key || edit.key));
    const edits = this.#edits.slice(0, this.#alone > 0 ? 1 : end < 0 ? editsMax : Math.min(end, editsMax));
    const patches = edits.flatMap((edit) => edit.patches);
    const result = applied(this.#base, edits);
    // The edits were validated on the value for which they were made, if it was known. The base may be newer.
    const error = this.connection.validate?.('record', this.name, result);
    if (error) {
      this.#refuse({ count: edits.length }, error);
      return this.#write();
    }
    const message: Message = {
      topic: Topic.Record,
      name: this.name,
      // With `local` and a key, the server makes the write regardless of the version, unless it is computed; the record is read afterwards.
      version: key && !update && this.merge === 'local' ? -1 : next(this.version),
      isWriteAck: true,
      key: key ?? this.draw(),
      ...seen,
      ...written(edits, patches, result),
    };
    message.correlationId = message.key as string;
    try {
      if (this.connection.send(message)) this.#flight = { message, count: edits.length, base: this.#base, result, seen: seen ?? this.seen, isRepeated: false };
    } catch (cause) {
      if (edits.length > 1) return this.#write(edits.length >> 1);
      this.#refuse({ count: 1 }, cause as TidewireError);
      this.#write();
    }
  }

  #confirm(flight: Flight): void {
    this.#flight = undefined;
    if (this.#alone > 0) this.#alone -= 1;
    const edits = this.#edits.splice(0, flight.count);
    const { version = 0 } = flight.message;
    if (version < 0) this.#take(applied(this.#base, edits), this.version);
    else if (version === next(this.version)) this.#take(flight.result, version);
    // Otherwise the base already includes this write: its value, or a later one, has arrived first.
    else this.#show();
    // The server may have made this write earlier, as an older version.
    if (edits[0]?.key) this.#read();
    edits.forEach(({ done }) => done.resolve());
    if (this.isSaved) this.settled();
  }

  /** Whether a conflict leaves open if an earlier attempt was made. A server that sends incarnations reads the state that a repetition names. */
  #isDoubtful(flight: Flight): boolean {
    return flight.isRepeated && (flight.message.seenVersion === undefined || this.#incarnation === undefined);
  }

  #conflict(flight: Flight, value: unknown, version: number): void {
    // A write with a key of the app, and an update, must not be made twice.
    const isOnce = this.#edits.slice(0, flight.count).some(({ update, key }) => update || (key && flight.isUnknown));
    // An older server that no longer knows the key answers with the value, which may be the result of the first attempt. It may also be the
    // result of another client's equal write. For patches the difference does not matter; of two equal updates one would be lost.
    const isDoubtful = this.#isDoubtful(flight);
    const isEqualResult = isDoubtful && version === flight.message.version && isEqual(flight.result, value);
    if (isEqualResult && !isOnce) return this.#confirm(flight);
    this.#flight = undefined;
    // If another client has made the version that this write was to make, with another value, this write was not made. In all other cases
    // it may have been.
    const isUnknown = flight.isUnknown || (isDoubtful && (isEqualResult || version !== flight.message.version));
    const local = this.value;
    const edits = this.#edits;
    if (isUnknown && isOnce) {
      this.#edits = edits.slice(flight.count);
      this.#fail(edits.slice(0, flight.count), new TidewireError('WRITE_UNKNOWN', 'the update may have been made', { subject: this.name }));
    } else if (this.merge === 'remote') {
      this.#edits = [];
      this.#fail(edits, new TidewireError(flight.isUnknown ? 'WRITE_UNKNOWN' : 'CONFLICT', 'another client was faster', { subject: this.name }));
    } else if (typeof this.merge === 'function') {
      try {
        const merged = copied(this.merge({ name: this.name, remote: value, local, base: flight.base }));
        const done = deferred();
        this.#edits = [{ patches: [{ value: merged }], done }];
        edits.forEach((edit) => done.promise.then(edit.done.resolve, edit.done.reject));
      } catch (cause) {
        this.#edits = [];
        this.#fail(edits, new TidewireError('CONFLICT', `the function that merges failed: ${String(cause)}`, { subject: this.name, cause }));
      }
    }
    this.#take(value, version);
    if (this.isSaved) this.settled();
  }

  /**
   * Another client wrote first, and this session may not read that value. There is nothing to merge with, so the edits of this write fail.
   * The shown value belongs to an older version, so the session reads the record again. Later edits wait for that answer.
   */
  #conflictUnseen(flight: Flight): void {
    this.#flight = undefined;
    if (this.#alone > 0) this.#alone -= 1;
    // If the write was repeated, its first attempt may have made the version.
    const code = this.#isDoubtful(flight) ? 'WRITE_UNKNOWN' : 'CONFLICT';
    this.#fail(this.#edits.splice(0, flight.count), new TidewireError(code, 'the newer value may not be read', { subject: this.name }));
    this.#read();
    this.#show();
    if (this.isSaved) this.settled();
  }

  #refuse(flight: Pick<Flight, 'count'>, error: TidewireError): void {
    this.#flight = undefined;
    if (flight.count > 1) {
      this.#alone = flight.count;
      return;
    }
    if (this.#alone > 0) this.#alone -= 1;
    this.#fail(this.#edits.splice(0, 1), error);
    // The store may have made the write in spite of the error.
    if (error.code === 'RECORD_UPDATE_ERROR') this.#read();
    this.#show();
    if (this.isSaved) this.settled();
  }

  #fail(edits: Edit[], error: TidewireError): void {
    edits.forEach(({ done }) => done.reject(error));
  }
}

/** `patches` with copies of their values. Throws for patches that the server would refuse. */
export function checked(patches: Patch[]): Patch[] {
  return patches.map(({ path, value }) => {
    if (path === undefined) checkDocument(value);
    return { ...(path !== undefined && { path: checkedPath(path) }), value: copied(value) };
  });
}

export function checkDocument(value: unknown): void {
  if (typeof value !== 'object' || value === null) throw new TidewireError('INVALID_ARGUMENT', 'a record is an object or an array');
}

/** `value` after `edits`. */
export function applied(value: unknown, edits: Array<Pick<Edit, 'patches' | 'update'>>): unknown {
  let own = new Set<unknown>();
  return edits.reduce((before, { patches, update }) => {
    if (!update) return patches.reduce((inside, patch) => (patch.path === undefined ? patch.value : withValue(inside, patch.path, patch.value, own)), before);
    // The app may have kept the value that it was given, so later patches must not change it in place.
    own = new Set();
    return copied(update(before as never));
  }, value);
}

/** `base` after a write of another client. */
function remote(base: unknown, { action, path = '', data }: Message): unknown {
  const value = valueOf(data);
  if (action === RecordAction.Update) return value;
  const patches = action === RecordAction.PatchMulti ? (value as Array<{ path: string; data?: unknown }>) : [{ path, data: value }];
  return patches.reduce((before, patch) => withValue(before, patch.path, patch.data), base);
}

/** The action, path and payload of a write. */
function written(edits: Edit[], patches: Patch[], result: unknown): Pick<Message, 'action' | 'path' | 'data'> {
  if (edits.some(({ update }) => update) || patches.some(({ path }) => path === undefined)) {
    return { action: RecordAction.Update, ...payload(result) };
  }
  const [{ path, value }, ...more] = patches as [Required<Patch>, ...Patch[]];
  // Only a list of patches takes a path that no text can spell.
  if (more.length > 0 || typeof path !== 'string') return { action: RecordAction.PatchMulti, ...payload(patches.map((patch) => ({ path: patch.path, data: patch.value }))) };
  return { action: value === undefined ? RecordAction.Erase : RecordAction.Patch, path, ...payload(value) };
}
