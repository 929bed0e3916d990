// The work of the leading tab. It opens the records that any tab has open or has edits of, and sends the edits to the server, one write of
// a record at a time. An edit that can't be made is rejected, and the edits behind it continue.

import { TidewireError, type Client, type RecordHandle } from '../index.js';
import { draw } from '../draw.js';
import type { Document, Seen } from '../record.js';
import { group, isOn, reasonOf, updateOf, withEdits, type Edit, type OfflineMerge } from './edit.js';

/** The functions of a tab that its sender uses. */
export interface Host {
  readonly merge: OfflineMerge;
  /** The records that the sender has to hold open. */
  wanted(): Set<string>;
  /** The edits of `name` that may be sent, in their order. */
  sendable(name: string): Edit[];
  /** Fulfilled when this tab stores no edits. Until then some of its edits may not be sendable. */
  stored(): Promise<void>;
  /** Stores the keys under which `edits` are sent, one for each edit or one for all, and the state that the client has seen. */
  mark(edits: Edit[], keys: string[], seen: Seen): Promise<void>;
  /** The server has made `edits`, on top of version `on`. */
  made(name: string, edits: Edit[], on: number): Promise<void>;
  reject(name: string, edits: Edit[], code: string): Promise<void>;
  /** Replaces `edits` with one edit that sets the record to `value`. */
  replace(edits: Edit[], value: unknown, on: number, base: unknown): Promise<void>;
  based(name: string, value: unknown, version: number): void;
  ended(name: string, error: TidewireError): void;
  connectionChanged(): void;
  report(error: TidewireError): void;
}

interface Held {
  handle: RecordHandle;
  document: Document;
  base: { value: unknown; version: number } | undefined;
  /** Whether the base has arrived in this session. */
  isFresh: boolean;
  isBusy: boolean;
}

/** The delay before another attempt in milliseconds: the first, and the longest. */
const RETRY_MIN_MS = 200;
const RETRY_MAX_MS = 10_000;

export class Sender {
  readonly #held = new Map<string, Held>();
  readonly #timers = new Set<ReturnType<typeof setTimeout>>();
  /** The keys under which this tab has sent nothing yet, all of this session. */
  readonly #unsent = new Set<string>();
  readonly #hasConnected: boolean;
  readonly #stopState: () => void;

  constructor(
    private readonly client: Client,
    private readonly host: Host,
  ) {
    this.#stopState = client.onState((state) => {
      // In `checking` and `stale` the session continues.
      if (state === 'waiting' || state === 'closed') {
        for (const held of this.#held.values()) held.isFresh = false;
        this.#unsent.clear();
      }
      host.connectionChanged();
    });
    this.#hasConnected = client.state === 'closed';
    // A refusal shows in the client's state.
    if (this.#hasConnected) client.connect().catch(() => undefined);
    this.hold();
  }

  stop(): void {
    this.#stopState();
    this.#timers.forEach((timer) => clearTimeout(timer));
    for (const name of [...this.#held.keys()]) this.#drop(name);
    if (this.#hasConnected) this.client.close();
  }

  /** Opens the records that are wanted, and closes the other ones. */
  hold(): void {
    const wanted = this.host.wanted();
    for (const name of wanted) if (!this.#held.has(name)) this.#open(name);
    for (const [name, held] of [...this.#held]) if (!wanted.has(name) && !held.isBusy) this.#drop(name);
  }

  /** The last known value and version that the server has of `name`. */
  base(name: string): { value: unknown; version: number } | undefined {
    return this.#held.get(name)?.base;
  }

  /** Sends the edits of `name` that may be sent. */
  kick(name: string): void {
    const held = this.#held.get(name);
    if (!held) return this.hold();
    if (held.isBusy || !held.isFresh) return;
    held.isBusy = true;
    void this.#send(name, held).finally(() => {
      held.isBusy = false;
      if (this.#held.get(name) !== held) return;
      if (held.isFresh && this.host.sendable(name).length > 0) this.kick(name);
      else this.hold();
    });
  }

  #open(name: string): void {
    const { record } = this.client;
    const handle = record.open(name, { merge: this.host.merge, onEnd: (error) => this.#ended(name, error) });
    const document = record.documents.get(name) as Document;
    const held: Held = { handle, document, base: undefined, isFresh: false, isBusy: false };
    this.#held.set(name, held);
    const took = (value: unknown, version: number): void => {
      if (version < 0) return;
      held.base = { value, version };
      held.isFresh = true;
      this.host.based(name, value, version);
      this.kick(name);
    };
    document.took = took;
    // The app has the record open, too, and its value has already arrived.
    if (this.client.state === 'open' && document.version >= 0) took(document.value, document.version);
  }

  #drop(name: string): void {
    const held = this.#held.get(name);
    this.#held.delete(name);
    if (held) held.document.took = undefined;
    held?.handle.close();
  }

  #ended(name: string, error: TidewireError): void {
    this.#held.delete(name);
    if (reasonOf(error)) this.host.ended(name, error);
    else this.#later(RETRY_MAX_MS, () => this.hold());
  }

  async #send(name: string, held: Held): Promise<void> {
    let waitMs = RETRY_MIN_MS;
    const isHeld = (): boolean => this.#held.get(name) === held && held.isFresh;
    for (let edits = await this.#next(name, held); edits && isHeld(); edits = await this.#next(name, held)) {
      const on = held.document.version;
      const update = updateOf(edits);
      const patches = update ? [] : edits.flatMap((edit) => edit.patches);
      const [{ sent = '', seen }] = edits as [Edit];
      const repeated = this.#unsent.delete(sent) ? undefined : seen;
      const error = await held.document.edit(patches, update, sent, false, repeated).then(
        () => undefined,
        (reason: TidewireError) => reason,
      );
      // This tab no longer holds the record. The tab that leads now sends the write again under the same key.
      if (this.#held.get(name) !== held) return;
      // If the server refuses several edits, only one of them may be wrong, so their halves are tried separately. A conflict concerns all
      // of them. Any other error may be temporary: the write is sent again under the same key.
      const reason = error && reasonOf(error);
      if (!error) await this.host.made(name, edits, on);
      else if (reason && (edits.length === 1 || reason === 'conflict')) await this.host.reject(name, edits, error.code);
      else if (reason) await this.#mark(edits, halves(edits), held);
      else {
        await new Promise<void>((done) => this.#later(waitMs, done));
        waitMs = Math.min(RETRY_MAX_MS, waitMs * 2);
      }
    }
  }

  /** The edits of the next write of `name`, whose key is stored by then. */
  async #next(name: string, held: Held): Promise<Edit[] | undefined> {
    const edits = this.host.sendable(name);
    const [first] = edits;
    if (!first) return undefined;
    const { version } = held.document;
    const { merge } = this.host;
    if (first.sent !== undefined || merge === 'local' || isOn(first, version)) {
      const next = group(merge === 'local' ? edits : edits.filter((edit) => edit.on === first.on));
      if (first.sent === undefined) await this.#mark(next, [draw()], held);
    } else if (merge === 'remote') await this.host.reject(name, edits, 'CONFLICT');
    else await this.#merge(name, held, merge);
    const [marked, ...more] = this.host.sendable(name);
    return marked && (marked.sent === undefined ? this.#next(name, held) : group([marked, ...more]));
  }

  async #mark(edits: Edit[], keys: string[], { document }: Held): Promise<void> {
    const { seen } = document;
    keys.forEach((key) => this.#unsent.add(key));
    await this.host.mark(edits, keys, seen);
  }

  /** Another client wrote first: the app's function merges the edits. */
  async #merge(name: string, held: Held, merge: Exclude<OfflineMerge, string>): Promise<void> {
    // An edit that is stored after the merge would be merged again, together with its result, with the same value of the other client.
    await this.host.stored();
    const edits = this.host.sendable(name);
    const [first] = edits;
    const { version } = held.document;
    if (!first || isOn(first, version)) return;
    const remote = held.base?.value;
    let value: unknown;
    try {
      value = merge({ name, remote, local: withEdits(first.base, edits), base: first.base });
    } catch (cause) {
      this.host.report(new TidewireError('CALLBACK_FAILED', `the function that merges failed: ${String(cause)}`, { subject: name, cause }));
      return this.host.reject(name, edits, 'CONFLICT');
    }
    return this.host.replace(edits, value, version, remote);
  }

  #later(ms: number, act: () => void): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      act();
    }, ms);
    this.#timers.add(timer);
  }
}

/** Keys for `edits`, of which the server refused at least one. Each half is tried as a separate write, until the bad edit is alone. */
function halves(edits: Edit[]): string[] {
  const [first, second] = [draw(), draw()];
  return edits.map((_edit, at) => (at < edits.length / 2 ? first : second));
}
