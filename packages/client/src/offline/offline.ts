// The records of an app that work without a connection: the state that all tabs of a browser share. One tab leads, and only it
// exchanges these records with the server. The other tabs receive the server's values from it, and put their edits into the shared queue.
// Outside of browsers one process has the storage alone, and leads always.

import { RecordHandle, TidewireError, type Client, type OpenOptions, type Schema, type State } from '../index.js';
import { deferred, type Deferred } from '../deferred.js';
import { draw } from '../draw.js';
import { checkName } from '../error.js';
import { listUpdate } from '../list-change.js';
import { collectionOf } from '../path.js';
import type { Patch } from '../record.js';
import type { Device } from '../records.js';
import type { Names, RecordsOf, ValueOf } from '../schema.js';
import { byName, ids, rebased, rejected, rejections, sorted, type Edit, type Rejection } from './edit.js';
import { Election } from './election.js';
import { IndexedDb } from './indexed-db.js';
import type { OfflineOptions } from './options.js';
import { Replica, type Tab } from './replica.js';
import { Sender, type Host } from './sender.js';
import type { OfflineState, Sync } from './state.js';
import { storageError, type CachedRecord, type Changes, type OfflineStorage } from './storage.js';

/** A message between tabs. */
type Note =
  | { kind: 'edits'; edits: Edit[] }
  | { kind: 'base'; name: string; value: unknown; version: number }
  | { kind: 'made'; name: string; ids: string[]; on: number }
  | { kind: 'replaced'; edits: Edit[]; by: Edit }
  | { kind: 'rejected'; name: string; edits: Edit[]; code: string }
  | { kind: 'dismissed'; id: string }
  | { kind: 'ended'; name: string; code: string }
  | { kind: 'hello'; connection: State }
  | { kind: 'names'; tab: string; names: string[] };

/** Milliseconds between two `hello` notes of the leading tab. */
const HELLO_MS = 2_000;
/** The number of `hello` notes without an answer after which a tab counts as closed. */
const HELLOS_MAX = 5;
/** Milliseconds between two transactions that store the server's values. */
const CACHE_INTERVAL_MS = 200;
/** The prefix of the names under which results are stored. The server reserves such names, so no record has one. */
const RESULT = '\u0001query ';

export class Offline<App extends Schema = {}> {
  readonly #tab = draw();
  readonly #client: Client;
  readonly #options: Required<OfflineOptions>;
  readonly #replicas = new Map<string, Replica>();
  /** All edits of all tabs that are not settled, by name. */
  readonly #pending = new Map<string, Edit[]>();
  readonly #outcomes = new Map<string, Deferred>();
  /** Errors that need no report: the app receives the rejection by `onRejected`, or has closed the offline records. */
  readonly #told = new WeakSet<TidewireError>();
  readonly #rejections = new Map<string, Rejection>();
  /** The ids of the edits that are settled while the queue is being read. */
  #settled: Set<string> | undefined;
  #unkept: Edit[] = [];
  #keeping: Promise<void> | undefined;
  #isCaching = false;
  #uncached = new Map<string, { value: unknown; version: number }>();
  #storage: OfflineStorage | undefined;
  #election: Election | undefined;
  #sender: Sender | undefined;
  #channel: BroadcastChannel | undefined;
  #timer: ReturnType<typeof setInterval> | undefined;
  #heardAt = Date.now();
  #tickedAt = Date.now();
  /** The records that other tabs have open, and the number of `hello` notes since a tab's last answer. */
  readonly #tabs = new Map<string, { names: Set<string>; missed: number }>();
  #state: OfflineState = { mode: 'starting', reason: undefined, isLeader: false, connection: 'closed', pendingCount: 0 };
  #isClosed = false;
  #sync: Sync | undefined;
  readonly #onSync = new Set<(sync: Sync) => void>();
  readonly #onState = new Set<(state: OfflineState) => void>();
  readonly #onRejected = new Set<(rejection: Rejection) => void>();
  readonly #onError = new Set<(error: TidewireError) => void>();
  readonly #started: Promise<void>;
  readonly #onShow = (event: { persisted?: boolean }): void => {
    if (event.persisted) void this.#load().catch((cause) => this.#lose(cause));
  };

  /**
   * @param client the client, which the leading tab connects by itself: call `connect()` only if this tab needs a separate connection for
   *   events, rpc or presence
   */
  constructor(client: Client<App>, options: OfflineOptions = {}) {
    this.#client = client as unknown as Client;
    this.#options = {
      database: 'tidewire',
      storage: IndexedDb.open,
      merge: 'local',
      editsMax: 10_000,
      editBytesMax: 256 * 1024,
      recordsMax: 10_000,
      storageTimeoutMs: 5_000,
      leaderTimeoutMs: 6_000,
      ...options,
    };
    this.#started = this.#start().then(() => this.#attach());
  }

  /** The current state; a new object after each change. */
  get state(): OfflineState {
    return this.#state;
  }

  /** Calls `callback` after each change of the state; returns the removal. */
  onState(callback: (state: OfflineState) => void): () => void {
    this.#onState.add(callback);
    return () => void this.#onState.delete(callback);
  }

  /** The state with the queue and the edits that were not made: the same object until one of them changes. */
  get sync(): Sync {
    this.#sync ??= {
      ...this.#state,
      queue: sorted([...this.#pending.values()].flat()).map(({ id, name, patches, list, sent }) => ({ id, name, changes: patches, ...(list && { list }), isSent: sent !== undefined })),
      conflicts: [...this.#rejections.values()],
      keep: (conflict) => this.keep(conflict),
      drop: (conflict) => this.dismiss(conflict),
    };
    return this.#sync;
  }

  /** Calls `callback` after each change of `sync`; returns the removal. */
  onSync(callback: (sync: Sync) => void): () => void {
    this.#onSync.add(callback);
    return () => void this.#onSync.delete(callback);
  }

  /**
   * Calls `callback` with each edit that the server will never make, in every tab. At first it receives the stored rejections that were not
   * dismissed. Returns the removal.
   */
  onRejected(callback: (rejection: Rejection) => void): () => void {
    this.#onRejected.add(callback);
    for (const rejection of this.#rejections.values()) {
      queueMicrotask(() => this.#onRejected.has(callback) && this.#call(callback, rejection));
    }
    return () => void this.#onRejected.delete(callback);
  }

  /** Removes a rejected edit, in all tabs. */
  async dismiss({ id }: Pick<Rejection, 'id'>): Promise<void> {
    this.#forget(id);
    this.#post({ kind: 'dismissed', id });
    await this.#change({ dismiss: id });
  }

  /**
   * Makes a rejected edit again, on the value that the record has now. Fulfilled when the new edit is stored and the rejected one is removed.
   * If the server rejects it again, that is another rejection.
   */
  async keep({ id }: Pick<Rejection, 'id'>): Promise<void> {
    const rejection = this.#rejections.get(id);
    if (!rejection) return;
    const { name, changes, list } = rejection;
    const handle = this.open(name as never);
    try {
      const made = (this.#replicas.get(name) as Replica).edit(changes as Patch[], list && listUpdate(list));
      // Settles first if the edit is not even taken. Without storage, the edit waits in this tab.
      await Promise.race([made, this.kept().catch(() => undefined)]);
    } finally {
      handle.close();
    }
    await this.dismiss({ id });
  }

  /**
   * Calls `callback` with each error that no other callback or promise receives; returns the removal. Without a callback, errors go to the
   * console.
   */
  onError(callback: (error: TidewireError) => void): () => void {
    this.#onError.add(callback);
    return () => void this.#onError.delete(callback);
  }

  /**
   * Opens a record. The handle shows the value that is stored on this device, with the edits that wait, and the server's value as soon as
   * there is a connection. `update` is called once, with the value that shows at the moment. Close the handle when the app no longer needs
   * it.
   */
  open<Name extends Names<RecordsOf<App>>>(
    name: Name,
    { onEnd = () => undefined }: Pick<OpenOptions, 'onEnd'> = {},
  ): RecordHandle<ValueOf<RecordsOf<App>, Name>> {
    checkName(name);
    this.#checkUse();
    const replica = this.#replicas.get(name) ?? this.#replica(name);
    const told = (error: TidewireError): void => onEnd(error);
    replica.ends.add(told);
    const report = (error: TidewireError): void => void (this.#told.has(error) || this.#report(error));
    return new RecordHandle<ValueOf<RecordsOf<App>, Name>>(replica, report, () => {
      replica.ends.delete(told);
      this.#release(name);
    });
  }

  /** Fulfilled when all edits of this tab so far are stored on this device or made by the server; rejected if the device stores nothing. */
  async kept(): Promise<void> {
    await this.#started;
    await this.#stored();
    if (this.#state.reason && this.#state.pendingCount > 0) throw this.#state.reason;
  }

  /** Lets another tab lead, and ends all handles. Stored edits stay in the queue. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    await this.#started;
    await this.#stored();
    if (this.#uncached.size > 0) await this.#change({ cache: this.#takeUncached() });
    this.#isClosed = true;
    const { record } = this.#client;
    if (record.device === this.#device) record.device = undefined;
    clearInterval(this.#timer);
    globalThis.removeEventListener?.('pageshow', this.#onShow as EventListener);
    this.#sender?.stop();
    this.#election?.stop();
    this.#channel?.close();
    this.#storage?.close();
    const closed = new TidewireError('CLOSED', 'the offline records were closed');
    for (const replica of this.#replicas.values()) replica.end(closed);
    for (const outcome of this.#outcomes.values()) this.#fail(outcome, closed);
  }

  // ---- start, and loss of the database ----

  async #start(): Promise<void> {
    const { database, storage: open, storageTimeoutMs: timeoutMs } = this.#options;
    const lose = (cause: unknown): void => this.#lose(cause);
    let storage: OfflineStorage;
    try {
      this.#storage = storage = await open(database, { timeoutMs, onLost: lose });
      if (storage.lease) {
        // Opened before the queue is read, so that this tab hears of each edit that is stored after that.
        this.#channel = new BroadcastChannel(`tidewire:${database}`);
        this.#channel.onmessage = ({ data }) => this.#hear(data as Note);
      }
      await this.#load();
    } catch (cause) {
      return lose(cause);
    }
    this.#become({ mode: storage.isDurable ? 'durable' : 'memory' });
    this.#keep();
    for (const replica of this.#replicas.values()) this.#restore(replica);
    if (!storage.lease) return this.#leads(true);
    this.#election = new Election(`tidewire:${database}`, (isWanted) => storage.lease?.(this.#tab, isWanted) as Promise<boolean>, (isLeader) => this.#leads(isLeader), lose);
    this.#timer = setInterval(() => this.#tick(), HELLO_MS);
    globalThis.addEventListener?.('pageshow', this.#onShow as EventListener);
    this.#namesChanged();
  }

  // ---- for live queries ----

  readonly #device: Device = {
    waiting: (name) => (this.#pending.has(name) ? this.#replicas.get(name) : undefined),
    openWaiting: (collection) => {
      for (const name of this.#pending.keys()) if (collectionOf(name) === collection && !this.#replicas.has(name)) this.#replica(name);
    },
    rebase: (collection) => {
      for (const replica of this.#replicas.values()) if (collectionOf(replica.name) === collection) this.#takeRow(replica);
    },
    records: () => this.#replicas.values(),
    read: async (query) => {
      if (!this.#isStoring) return undefined;
      return (await this.#storage?.read(RESULT + query).catch((cause) => this.#lose(cause)))?.value;
    },
    keep: (query, rows) => {
      if (rows) this.#uncached.set(RESULT + query, { value: rows, version: 0 });
      else this.#uncached.delete(RESULT + query);
      void (rows ? this.#cache() : this.#change({ forget: RESULT + query }));
    },
  };

  /** The live queries of the client show the edits that wait, and store their rows. */
  #attach(): void {
    const { record } = this.#client;
    if (this.#isClosed) return;
    record.device = this.#device;
    record.results?.deviceChanged();
  }

  /** Opens the records with waiting edits that a live query shows. */
  #showWaiting(names: Iterable<string>): void {
    const { record } = this.#client;
    for (const name of names) if (!this.#replicas.has(name) && this.#pending.has(name) && record.results?.follows(name)) this.#replica(name);
  }

  /** Forgets a record without an open handle and without waiting edits. */
  #release(name: string): void {
    if (this.#pending.has(name) || this.#replicas.get(name)?.ends.size !== 0) return;
    this.#replicas.delete(name);
    this.#namesChanged();
  }

  /** Whether edits are stored, on the device or in memory. */
  get #isStoring(): boolean {
    return this.#state.mode === 'durable' || this.#state.mode === 'memory';
  }

  /** Reads the queue, and replaces all edits known so far that are stored. */
  async #load(): Promise<void> {
    const settled = (this.#settled = new Set());
    const { edits, rejections: old } = (await this.#storage?.load()) ?? { edits: [], rejections: [] };
    const unkept = [...this.#pending.values()].flat().filter(({ seq }) => seq === undefined);
    // The result may still have edits that were settled while the database was read.
    const all = [...edits, ...unkept].filter(({ id }) => !settled.has(id));
    this.#pending.clear();
    for (const [name, added] of byName(all)) this.#pending.set(name, sorted(added));
    this.#become({ pendingCount: all.length }, true);
    this.#settled = undefined;
    for (const rejection of old) this.#tell(rejection);
    for (const replica of this.#replicas.values()) replica.refresh();
    this.#showWaiting(this.#pending.keys());
  }

  /** The storage can no longer be used: this tab continues alone. */
  #lose(cause: unknown): void {
    if (this.#state.mode === 'online-only' || this.#isClosed) return;
    const { isLeader } = this.#state;
    this.#become({ mode: 'online-only', reason: storageError(cause) });
    clearInterval(this.#timer);
    this.#election?.stop();
    this.#channel?.close();
    this.#channel = undefined;
    // Other tabs make their own edits. The last leader also makes the edits of tabs that are closed.
    if (!isLeader) {
      for (const [name, edits] of [...this.#pending]) {
        this.#remove(name, edits.filter(({ tab }) => tab !== this.#tab).map(({ id }) => id));
        this.#release(name);
      }
    }
    this.#unkept = [];
    this.#become({ isLeader: true });
    this.#sender ??= new Sender(this.#client, this.#host());
    for (const name of this.#pending.keys()) this.#sender.kick(name);
  }

  /** This tab starts or stops leading, which means to connect to the server for all tabs. */
  #leads(isLeader: boolean): void {
    if (this.#state.mode === 'online-only' || this.#isClosed) return;
    if (!isLeader) {
      this.#sender?.stop();
      this.#sender = undefined;
      this.#heardAt = Date.now();
      return this.#become({ isLeader });
    }
    // Reads the queue first: it no longer has the edits that the previous leader has settled.
    this.#load().then(
      () => {
        if (this.#election?.isLeader === false || this.#sender || this.#isClosed) return;
        this.#become({ isLeader });
        const host = this.#host();
        this.#sender = new Sender(this.#client, host);
        host.connectionChanged();
      },
      (cause) => this.#lose(cause),
    );
  }

  /** If this tab leads, announces that. If not, checks whether the leading tab is still alive. */
  #tick(): void {
    const now = Date.now();
    const hasSlept = now - this.#tickedAt > 2 * HELLO_MS;
    this.#tickedAt = now;
    if (this.#sender) {
      for (const [tab, about] of this.#tabs) if ((about.missed += 1) > HELLOS_MAX) this.#tabs.delete(tab);
      this.#sender.hold();
      return this.#post({ kind: 'hello', connection: this.#client.state });
    }
    if (hasSlept) this.#heardAt = now;
    const { document } = globalThis as { document?: { visibilityState: string } };
    if (now - this.#heardAt > this.#options.leaderTimeoutMs && document?.visibilityState !== 'hidden') {
      this.#heardAt = now;
      this.#election?.take();
    }
  }

  // ---- records of this tab ----

  #replica(name: string): Replica {
    const tab: Tab = {
      call: (callback, ...args) => this.#call(callback, ...args),
      pending: (of) => this.#pending.get(of) ?? [],
      saved: async (of) => {
        await Promise.all((this.#pending.get(of) ?? []).map((edit) => this.#outcome(edit.id).promise));
      },
      add: (of, change, on, base) => this.#add(of, change, on, base),
    };
    const replica = new Replica(name, tab);
    this.#replicas.set(name, replica);
    this.#restore(replica);
    this.#namesChanged();
    this.#client.record.added?.(replica);
    return replica;
  }

  /** Shows the last known value of a record, unless a newer one has already arrived. */
  #restore(replica: Replica): void {
    const base = this.#sender?.base(replica.name);
    if (base) return replica.take(base.value, base.version);
    this.#takeRow(replica);
    if (!this.#isStoring) return;
    this.#storage?.read(replica.name).then(
      (found) => found && replica.version < found.version && replica.take(found.value, found.version),
      (cause) => this.#lose(cause),
    );
  }

  /** Shows the value that a live query has, if it is newer. */
  #takeRow(replica: Replica): void {
    const row = this.#client.record.results?.row(replica.name);
    if (row && row.version > replica.version) replica.take(row.data, row.version);
  }

  #add(name: string, change: Pick<Edit, 'patches' | 'list'>, on: number, base: unknown): Promise<void> {
    this.#checkUse();
    const { editsMax, editBytesMax, merge } = this.#options;
    if (this.#state.pendingCount + this.#rejections.size >= editsMax) {
      throw new TidewireError('TOO_MANY_PENDING', `more than ${editsMax} edits wait: dismiss rejected ones, or raise editsMax`, { subject: name });
    }
    if (new TextEncoder().encode(JSON.stringify(change)).length > editBytesMax) {
      throw new TidewireError('TOO_LARGE', `the edit has more than ${editBytesMax} bytes: make several, or raise editBytesMax`, { subject: name });
    }
    const edit: Edit = { id: draw(), name, ...change, tab: this.#tab, on, ...(typeof merge === 'function' && { base }) };
    const outcome = this.#outcome(edit.id);
    this.#replace(name, [...(this.#pending.get(name) ?? []), edit]);
    if (this.#state.mode === 'online-only') this.#sender?.kick(name);
    else {
      this.#unkept.push(edit);
      this.#keep();
    }
    return outcome.promise;
  }

  #outcome(id: string): Deferred {
    const outcome = this.#outcomes.get(id) ?? deferred();
    this.#outcomes.set(id, outcome);
    return outcome;
  }

  /** Fulfilled when no new edit waits to be stored. */
  async #stored(): Promise<void> {
    while (this.#keeping) await this.#keeping;
  }

  /** Stores new edits. The edits that arrive during a transaction are stored together in the next one. */
  #keep(): void {
    if (this.#keeping || !this.#isStoring) return;
    const work = async (): Promise<void> => {
      while (this.#unkept.length > 0) {
        const edits = this.#unkept.splice(0);
        const places = await this.#storage?.change({ add: edits });
        // The server may have made earlier edits since, on which these are based now.
        const current = ({ name, id }: Edit): Edit | undefined => this.#pending.get(name)?.find((edit) => edit.id === id);
        const kept = edits.map((edit, at) => ({ ...(current(edit) ?? edit), seq: places?.[at] as number }));
        const put = kept.filter(({ on }, at) => on !== edits[at]?.on);
        if (put.length > 0) await this.#storage?.change({ put });
        this.#post({ kind: 'edits', edits: kept });
        this.#takeEdits(kept);
      }
    };
    this.#keeping = work()
      .catch((cause) => this.#lose(cause))
      .finally(() => {
        this.#keeping = undefined;
        if (this.#unkept.length > 0) this.#keep();
      });
  }

  // ---- the queue ----

  /** Inserts edits in the order of the queue, in place of their earlier versions. */
  #insert(edits: Edit[]): void {
    for (const [name, added] of byName(edits)) {
      const all = new Map((this.#pending.get(name) ?? []).map((edit) => [edit.id, edit]));
      for (const edit of added) all.set(edit.id, edit);
      this.#replace(name, sorted(all.values()));
    }
  }

  #remove(name: string, removed: string[]): void {
    const gone = new Set(removed);
    gone.forEach((id) => this.#settled?.add(id));
    this.#replace(name, (this.#pending.get(name) ?? []).filter(({ id }) => !gone.has(id)));
  }

  #replace(name: string, edits: Edit[]): void {
    const pendingCount = this.#state.pendingCount - (this.#pending.get(name)?.length ?? 0) + edits.length;
    if (edits.length > 0) this.#pending.set(name, edits);
    else this.#pending.delete(name);
    this.#become({ pendingCount }, true);
  }

  #takeEdits(edits: Edit[]): void {
    this.#insert(edits);
    this.#showWaiting(byName(edits).keys());
    for (const name of byName(edits).keys()) {
      this.#replicas.get(name)?.refresh();
      this.#sender?.kick(name);
    }
  }

  #takeMade(name: string, made: string[], on: number): void {
    this.#remove(name, made);
    const left = this.#pending.get(name);
    if (left) this.#pending.set(name, rebased(left, on));
    this.#replicas.get(name)?.refresh();
    this.#release(name);
    for (const id of made) this.#settle(id);
  }

  #takeRejected(name: string, edits: Edit[], code: string): void {
    this.#remove(name, edits.map(({ id }) => id));
    this.#replicas.get(name)?.refresh();
    this.#release(name);
    for (const rejection of edits.flatMap((edit) => rejections(edit, code))) this.#tell(rejection);
    for (const id of edits.flatMap(ids)) this.#settle(id, rejected(name, code));
  }

  #settle(id: string, error?: TidewireError): void {
    const outcome = this.#outcomes.get(id);
    this.#outcomes.delete(id);
    if (error) this.#fail(outcome, error);
    else outcome?.resolve();
  }

  #fail(outcome: Deferred | undefined, error: TidewireError): void {
    this.#told.add(error);
    outcome?.reject(error);
  }

  #tell(rejection: Rejection): void {
    if (this.#rejections.has(rejection.id)) return;
    this.#rejections.set(rejection.id, rejection);
    this.#become({}, true);
    for (const callback of [...this.#onRejected]) this.#call(callback, rejection);
  }

  #forget(id: string): void {
    this.#rejections.delete(id);
    this.#become({}, true);
  }

  // ---- between tabs ----

  #hear(note: Note): void {
    if (note.kind === 'edits') this.#takeEdits(note.edits);
    else if (note.kind === 'base') this.#replicas.get(note.name)?.take(note.value, note.version);
    else if (note.kind === 'made') this.#takeMade(note.name, note.ids, note.on);
    else if (note.kind === 'rejected') this.#takeRejected(note.name, note.edits, note.code);
    else if (note.kind === 'dismissed') this.#forget(note.id);
    else if (note.kind === 'ended') this.#end(note.name, rejected(note.name, note.code));
    else if (note.kind === 'replaced') {
      this.#remove(note.by.name, note.edits.map(({ id }) => id));
      this.#takeEdits([note.by]);
    } else if (note.kind === 'hello') {
      this.#heardAt = Date.now();
      this.#become({ connection: note.connection });
      this.#namesChanged();
    } else this.#hearNames(note.tab, note.names);
  }

  /** Takes the names of the records that another tab has open. The leading tab sends the values of those that are new. */
  #hearNames(tab: string, names: string[]): void {
    const before = this.#tabs.get(tab)?.names;
    this.#tabs.set(tab, { names: new Set(names), missed: 0 });
    if (!this.#sender) return;
    this.#sender.hold();
    for (const name of names) {
      const base = before?.has(name) ? undefined : this.#sender.base(name);
      if (base) this.#post({ kind: 'base', name, ...base });
    }
  }

  #namesChanged(): void {
    if (this.#sender) this.#sender.hold();
    else this.#post({ kind: 'names', tab: this.#tab, names: [...this.#replicas.keys()] });
  }

  #post(note: Note): void {
    this.#channel?.postMessage(note);
  }

  // ---- for the leading tab ----

  #host(): Host {
    const sendable = (name: string): Edit[] => (this.#pending.get(name) ?? []).filter(({ seq }) => seq !== undefined || !this.#isStoring);
    return {
      merge: this.#options.merge,
      wanted: () => new Set([...this.#replicas.keys(), ...this.#pending.keys(), ...[...this.#tabs.values()].flatMap(({ names }) => [...names])]),
      sendable,
      stored: () => this.#stored(),
      mark: async (edits, keys, seen) => {
        const marked = edits.map((edit, at) => ({ ...edit, sent: keys[at] ?? (keys[0] as string), seen }));
        if (this.#isStoring) await this.#change({ put: marked });
        this.#insert(marked);
      },
      made: async (name, edits, on) => {
        // The queue changes before the other tabs are notified. If this tab closes before that, the next leader sends the edits again under
        // the same key.
        const base = this.#sender?.base(name);
        const gone = new Set(edits);
        // Unless edits are merged by path, the remaining edits must not look as if another client had written first.
        const put = this.#options.merge === 'local' ? [] : rebased(sendable(name).filter((edit) => !gone.has(edit)), on);
        await this.#change({ remove: edits, put, ...(base && { cache: [{ name, ...base }] }) });
        const made = edits.flatMap(ids);
        this.#takeMade(name, made, on);
        this.#post({ kind: 'made', name, ids: made, on });
      },
      reject: async (name, edits, code) => {
        await this.#change({ remove: edits, reject: edits.flatMap((edit) => rejections(edit, code)) });
        this.#takeRejected(name, edits, code);
        this.#post({ kind: 'rejected', name, edits, code });
      },
      replace: async (edits, value, on, base) => {
        const { name } = edits[0] as Edit;
        let by: Edit = { id: draw(), name, patches: [{ value }], tab: this.#tab, on, base, merged: edits };
        const places = await this.#change({ remove: edits, add: [by] });
        if (places?.[0] !== undefined) by = { ...by, seq: places[0] };
        this.#remove(name, edits.map(({ id }) => id));
        this.#takeEdits([by]);
        this.#post({ kind: 'replaced', edits, by });
      },
      based: (name, value, version) => {
        this.#replicas.get(name)?.take(value, version);
        // A tab that opens later announces its open records, and receives their values then.
        if (this.#tabs.size > 0) this.#post({ kind: 'base', name, value, version });
        this.#uncached.set(name, { value, version });
        void this.#cache();
      },
      ended: (name, error) => {
        const edits = this.#pending.get(name) ?? [];
        this.#uncached.delete(name);
        void this.#change({ forget: name, remove: edits, reject: edits.flatMap((edit) => rejections(edit, error.code)) });
        this.#takeRejected(name, edits, error.code);
        this.#post({ kind: 'rejected', name, edits, code: error.code });
        this.#end(name, error);
        this.#post({ kind: 'ended', name, code: error.code });
      },
      connectionChanged: () => {
        this.#become({ connection: this.#client.state });
        this.#post({ kind: 'hello', connection: this.#client.state });
      },
      report: (error) => this.#report(error),
    };
  }

  /** Stores the server's values; of each record only the newest. */
  async #cache(): Promise<void> {
    if (this.#isCaching) return;
    this.#isCaching = true;
    while (this.#uncached.size > 0) {
      await this.#change({ cache: this.#takeUncached() });
      // Of many changes in quick succession only some are stored. The first one is stored at once.
      if (this.#uncached.size > 0) await new Promise((done) => setTimeout(done, CACHE_INTERVAL_MS));
    }
    this.#isCaching = false;
  }

  #takeUncached(): CachedRecord[] {
    const cache = [...this.#uncached].map(([name, base]) => ({ name, ...base }));
    this.#uncached.clear();
    return cache;
  }

  async #change(changes: Changes): Promise<number[] | undefined> {
    if (this.#isStoring) {
      return this.#storage?.change(changes, this.#options.recordsMax).catch((cause) => {
        this.#lose(cause);
        return undefined;
      });
    }
    // If the storage still allows it, settled edits are removed, so that they do not come back in a later session.
    const { remove, dismiss } = changes;
    if (remove || dismiss) await this.#storage?.change({ ...(remove && { remove }), ...(dismiss && { dismiss }) }).catch(() => undefined);
    return undefined;
  }

  #end(name: string, error: TidewireError): void {
    const replica = this.#replicas.get(name);
    this.#replicas.delete(name);
    replica?.end(error);
  }

  // ---- callbacks of the app ----

  /** Takes a change of the state. With `isQueueNew`, the queue or the rejections have changed too. */
  #become(change: Partial<OfflineState>, isQueueNew = false): void {
    const next = { ...this.#state, ...change };
    const isSame = (Object.keys(next) as Array<keyof OfflineState>).every((key) => next[key] === this.#state[key]);
    if (isSame && !isQueueNew) return;
    this.#sync = undefined;
    if (!isSame) {
      this.#state = next;
      for (const callback of [...this.#onState]) this.#call(callback, next);
    }
    for (const callback of [...this.#onSync]) this.#call(callback, this.sync);
  }

  #call<Arguments extends unknown[]>(callback: (...args: Arguments) => unknown, ...args: Arguments): void {
    try {
      callback(...args);
    } catch (cause) {
      this.#report(new TidewireError('CALLBACK_FAILED', `a callback failed: ${String(cause)}`, { cause }));
    }
  }

  #report(error: TidewireError): void {
    if (this.#onError.size === 0) console.error(error);
    for (const callback of [...this.#onError]) callback(error);
  }

  #checkUse(): void {
    if (this.#isClosed) throw new TidewireError('CLOSED', 'the offline records were closed');
  }
}
