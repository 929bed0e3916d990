// One record as this client sees it: what the server has, and on top of it the edits that it has not confirmed. One write of a record
// is on its way at a time, with the version that it expects to make; edits that come meanwhile travel together in the next one.

import type { Connection, Refused } from './connection.js';
import { payload, valueOf } from './data.js';
import { deferred, type Deferred } from './deferred.js';
import { TidewireError, refused } from './error.js';
import { checkedPath, isEqual, reuse, withValue, type AnyPath } from './path.js';
import { RecordAction, Topic, type Message } from './protocol.js';
import { Watched } from './watched.js';

/** What a function that merges is told: the value of the server, this client's with its edits, and the last one that both had. */
export interface Conflict<Value = unknown> {
  readonly name: string;
  readonly remote: Value;
  readonly local: Value;
  readonly base: Value;
}

/**
 * What becomes of edits when somebody else was faster: `local` makes them again on the new value, each at its path; `remote` gives
 * them up; a function says what the record is to be.
 */
export type Merge<Value = unknown> = 'local' | 'remote' | ((conflict: Conflict<Value>) => Value);

/** A change of one place, or of all without a path; without a value it is removed. */
export interface Patch {
  path?: AnyPath;
  value?: unknown;
}

interface Edit {
  patches: Patch[];
  update?: (value: never) => unknown;
  key?: string;
  done: Deferred;
}

/** A write that the server was asked to make. */
interface Flight {
  message: Message;
  count: number;
  base: unknown;
  result: unknown;
  /** Whether it was sent in an earlier session, where it may have been made. */
  isRepeated: boolean;
}

/** Edits of one write. */
const EDITS_MAX = 100;
const VERSION_MAX = 2 ** 31 - 1;

export const next = (version: number): number => (version === VERSION_MAX ? 1 : version + 1);
/** Also what has no JSON is told where it is given. */
export const copied = (value: unknown): unknown => valueOf(payload(value).data);

export class Document extends Watched {
  ready = deferred();
  readonly watchers = new Set<(hasProvider: boolean) => void>();
  hasProvider = false;
  /** Handles that are open. */
  users = 0;
  version = -1;
  /** The server has no such record, and it is not to be created. */
  notFound: TidewireError | undefined;
  merge: Merge = 'local';
  /** Whether the record is created if the server has none. */
  isCreated = false;
  /** Told what the server has, whenever that is heard. */
  took: ((value: unknown, version: number) => void) | undefined;
  #base: unknown;
  #edits: Edit[] = [];
  #flight: Flight | undefined;
  /** How many edits travel alone, because the server refused a write that they had in common. */
  #alone = 0;
  #removed: TidewireError | undefined;
  /** Whether the value of this session is here. */
  #isRead = false;

  constructor(
    readonly name: string,
    private readonly connection: Connection,
    private readonly draw: () => string,
    /** The server has it no more, or gives it no more. */
    private readonly ended: (error: TidewireError) => void,
    /** All edits are confirmed. */
    private readonly settled: () => void,
  ) {
    super(connection);
  }

  get isSaved(): boolean {
    return this.#edits.length === 0;
  }

  /** Fulfilled when what was edited so far is durable; rejected with the first refusal. */
  async saved(): Promise<void> {
    await Promise.all(this.#edits.map(({ done }) => done.promise));
  }

  /**
   * With a `key` the edit is a write of its own, which the server makes once although a client before this one may have sent it. One that may
   * be skipped is not made if it changes nothing and no other waits.
   */
  async edit(patches: Patch[], update?: Edit['update'], key?: string, isSkippedIfEqual = false): Promise<void> {
    this.connection.checkUse();
    const over = this.#removed ?? this.notFound;
    if (over) throw over;
    const edit: Edit = {
      patches: checked(patches),
      ...(update && { update }),
      ...(key && { key }),
      done: deferred(),
    };
    // A function that fails changes nothing, and its caller is told.
    if (this.version >= 0) {
      const result = applied(this.value, [edit]);
      checkDocument(result);
      const error = this.connection.validate?.('record', this.name, result);
      if (error) throw error;
      if (isSkippedIfEqual && this.isSaved && isEqual(this.value, result)) return;
    }
    this.#edits.push(edit);
    // What is too large for the server is never shown, if that is known already.
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
      if (version < 0) return this.#miss();
      this.#take(valueOf(data), version);
      this.ready.resolve();
      if (flight?.isRepeated) this.#repeat(flight);
    } else if (action === RecordAction.WriteAcknowledgement) {
      if (isOwn) this.#confirm(flight);
    } else if (action === RecordAction.VersionExists) {
      if (isOwn && data === undefined) this.#conflictUnseen(flight);
      else if (isOwn) this.#conflict(flight, valueOf(data), version);
    } else if (action === RecordAction.InvalidVersion) {
      // The server is behind: what this client saw was lost with it.
      if (isOwn) this.#flight = undefined;
      this.#read();
    } else if (code !== undefined) {
      if (isOwn) this.#refuse(flight, refused(code, this.name));
      else if (!this.#isRead) this.ended(refused(code, this.name));
    } else if (action === RecordAction.HasProvider || action === RecordAction.HasNoProvider) {
      this.#provided(action === RecordAction.HasProvider);
    } else if (action !== RecordAction.Update && action !== RecordAction.Patch && action !== RecordAction.PatchMulti) {
      // Notes, such as that it is subscribed already.
      return;
    } else if (version === next(this.version) || action === RecordAction.Update) {
      if (this.version < version || version === next(this.version)) this.#take(remote(this.#base, message), version);
    } else if (flight && version === next(flight.message.version as number) && flight.message.version === next(this.version)) {
      // This client's own write lies between, whose acknowledgement waits for the disk.
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

  /** Is created if it is missing, from now on; true if the server has to be asked for that. */
  create(): boolean {
    if (this.isCreated) return false;
    this.isCreated = true;
    if (this.version >= 0) return false;
    if (this.notFound) this.ready = deferred();
    this.notFound = undefined;
    this.#isRead = false;
    return true;
  }

  /** Gives up all edits. */
  end(error: TidewireError): void {
    this.ready.reject(error);
    this.#flight = undefined;
    this.#edits.splice(0).forEach(({ done }) => done.reject(error));
    this.#show();
  }

  /** It is over, for good: subscribers get undefined. */
  remove(error: TidewireError): void {
    this.#removed = error;
    this.end(error);
    this.#take(undefined, -1);
  }

  /** There is no such record. Its creation by another client comes as a change. */
  #miss(): void {
    const missing = new TidewireError('RECORD_NOT_FOUND', `there is no record "${this.name}"`, { subject: this.name });
    this.end(missing);
    // One that was there before has a promise that is fulfilled.
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
    // One that was only just created is empty.
    const error = version > 0 && this.connection.validate?.('record', this.name, value);
    if (error) this.connection.onError(error);
  }

  /** Works the value out, and tells who sees a change. */
  #show(): void {
    this.show(this.version < 0 ? undefined : applied(this.#base, this.#edits));
  }

  /** Sends what may have been made in an earlier session once more. */
  #repeat(flight: Flight): void {
    try {
      this.connection.send(flight.message);
    } catch (error) {
      this.#refuse(flight, error as TidewireError);
    }
  }

  /** Sends the next edits, if nothing is on its way: as many as one message takes. */
  #write(editsMax = EDITS_MAX): void {
    if (this.#flight || this.#edits.length === 0 || !this.#isRead) return;
    const { key } = this.#edits[0] as Edit;
    const end = this.#edits.findIndex((edit, at) => at > 0 && (key || edit.key));
    const edits = this.#edits.slice(0, this.#alone > 0 ? 1 : end < 0 ? editsMax : Math.min(end, editsMax));
    const patches = edits.flatMap((edit) => edit.patches);
    const result = applied(this.#base, edits);
    // On what they were made it was right, if that was known.
    const error = this.connection.validate?.('record', this.name, result);
    if (error) {
      this.#refuse({ count: edits.length }, error);
      return this.#write();
    }
    const message: Message = {
      topic: Topic.Record,
      name: this.name,
      // What is merged by path and has a key is made whoever was faster; the record is read behind it.
      version: key && this.merge === 'local' ? -1 : next(this.version),
      isWriteAck: true,
      key: key ?? this.draw(),
      ...written(edits, patches, result),
    };
    message.correlationId = message.key as string;
    try {
      if (this.connection.send(message)) this.#flight = { message, count: edits.length, base: this.#base, result, isRepeated: false };
    } catch (cause) {
      if (edits.length > 1) return this.#write(edits.length >> 1);
      this.#refuse({ count: 1 }, cause as TidewireError);
      this.#write();
    }
  }

  #confirm(flight: Flight): void {
    this.#flight = undefined;
    this.#alone = Math.max(0, this.#alone - 1);
    const edits = this.#edits.splice(0, flight.count);
    const { version = 0 } = flight.message;
    if (version < 0) this.#take(applied(this.#base, edits), this.version);
    else if (version === next(this.version)) this.#take(flight.result, version);
    else this.#show();
    // It may have been made as an earlier version.
    if (edits[0]?.key) this.#read();
    edits.forEach(({ done }) => done.resolve());
    if (this.isSaved) this.settled();
  }

  #conflict(flight: Flight, value: unknown, version: number): void {
    // After a restart the server has forgotten keys: this may be what the first one made.
    if (flight.isRepeated && version === flight.message.version && isEqual(flight.result, value)) return this.#confirm(flight);
    this.#flight = undefined;
    // The version that it was to make is somebody else's: it was not made.
    const isUnknown = flight.isRepeated && version !== flight.message.version;
    const local = this.value;
    const edits = this.#edits;
    if (isUnknown && edits.slice(0, flight.count).some(({ update }) => update)) {
      this.#edits = edits.slice(flight.count);
      this.#fail(edits.slice(0, flight.count), new TidewireError('WRITE_UNKNOWN', 'the update may have been made', { subject: this.name }));
    } else if (this.merge === 'remote') {
      this.#edits = [];
      this.#fail(edits, new TidewireError('CONFLICT', 'another client was faster', { subject: this.name }));
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
   * Another client was faster, and this session may not read the value that it wrote. There is nothing to merge with, so the edits of
   * this write fail. The value shown is that of an older version, so the record is read again: later edits wait for that answer.
   */
  #conflictUnseen(flight: Flight): void {
    this.#flight = undefined;
    this.#alone = Math.max(0, this.#alone - 1);
    // A write that was repeated may be the one that made the version.
    const code = flight.isRepeated ? 'WRITE_UNKNOWN' : 'CONFLICT';
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
    this.#alone = Math.max(0, this.#alone - 1);
    this.#fail(this.#edits.splice(0, 1), error);
    // Whether the store has it is not known.
    if (error.code === 'RECORD_UPDATE_ERROR') this.#read();
    this.#show();
    if (this.isSaved) this.settled();
  }

  #fail(edits: Edit[], error: TidewireError): void {
    edits.forEach(({ done }) => done.reject(error));
  }
}

/** `patches` with copies of their values. Throws where the server would refuse them. */
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
    // The app may have kept what it was given.
    own = new Set();
    return copied(update(before as never));
  }, value);
}

/** `base` after a write of somebody else. */
function remote(base: unknown, { action, path = '', data }: Message): unknown {
  const value = valueOf(data);
  if (action === RecordAction.Update) return value;
  const patches = action === RecordAction.PatchMulti ? (value as Array<{ path: string; data?: unknown }>) : [{ path, data: value }];
  return patches.reduce((before, patch) => withValue(before, patch.path, patch.data), base);
}

/** The fields that say what is written. */
function written(edits: Edit[], patches: Patch[], result: unknown): Pick<Message, 'action' | 'path' | 'data'> {
  if (edits.some(({ update }) => update) || patches.some(({ path }) => path === undefined)) {
    return { action: RecordAction.Update, ...payload(result) };
  }
  const [{ path, value }, ...more] = patches as [Required<Patch>, ...Patch[]];
  // Only a list of patches takes a path that no text can spell.
  if (more.length > 0 || typeof path !== 'string') return { action: RecordAction.PatchMulti, ...payload(patches.map((patch) => ({ path: patch.path, data: patch.value }))) };
  return { action: value === undefined ? RecordAction.Erase : RecordAction.Patch, path, ...payload(value) };
}
