// One record in one tab: the server's last known value, with the edits of all tabs on top that the server has not made yet.

import { TidewireError } from '../index.js';
import type { Connection } from '../connection.js';
import { deferred } from '../deferred.js';
import type { Update } from '../list-change.js';
import { applied, checkDocument, checked, type Patch } from '../record.js';
import type { SharedRecord } from '../records.js';
import { Watched } from '../watched.js';
import { withEdits, type Edit } from './edit.js';

/** The functions of a tab that its replicas use. */
export interface Tab extends Pick<Connection, 'call'> {
  /** The edits of `name` that the server has not made, in their order. */
  pending(name: string): readonly Edit[];
  /** Fulfilled when the server has made all of them. */
  saved(name: string): Promise<void>;
  /** Takes an edit of this tab; fulfilled when the server has made it. */
  add(name: string, change: Pick<Edit, 'patches' | 'list'>, on: number, base: unknown): Promise<void>;
}

export class Replica extends Watched implements SharedRecord {
  readonly ready = deferred();
  version = -1;
  /** Never set: a missing record is created by its first edit at the latest. */
  readonly notFound = undefined;
  /** Always false: only the leading tab learns whether a listening client provides the record. */
  readonly hasProvider = false;
  readonly watchers = new Set<(hasProvider: boolean) => void>();
  /** One callback for each open handle, which is called when the record ends. */
  readonly ends = new Set<(error: TidewireError) => void>();
  #base: unknown;
  #end: TidewireError | undefined;

  constructor(
    readonly name: string,
    private readonly tab: Tab,
  ) {
    super(tab);
    this.refresh();
  }

  get isSaved(): boolean {
    return this.tab.pending(this.name).length === 0;
  }

  saved(): Promise<void> {
    return this.tab.saved(this.name);
  }

  async edit(patches: Patch[], update?: Update): Promise<void> {
    if (this.#end) throw this.#end;
    const given = checked(update ? [{ value: update((this.value ?? {}) as never) }] : patches);
    const value = applied(this.value, [{ patches: given }]);
    checkDocument(value);
    // A change of a list is stored as such, and merged by entry. Other functions can't be stored, only their result.
    const list = update?.list;
    const outcome = this.tab.add(this.name, { patches: list ? [] : given, ...(list && { list }) }, this.version, this.#base);
    this.show(value);
    this.ready.resolve();
    return outcome;
  }

  /** Takes the server's value and version. */
  take(value: unknown, version: number): void {
    this.#base = value;
    this.version = version;
    this.refresh();
  }

  /** Shows the base with the edits that are pending now. */
  refresh(): void {
    if (this.#end) return;
    const edits = this.tab.pending(this.name);
    if (this.version < 0 && edits.length === 0) return this.show(undefined);
    this.show(withEdits(this.#base, edits));
    this.ready.resolve();
  }

  /** Ends the record: it was deleted or refused, or the offline records were closed. */
  end(error: TidewireError): void {
    this.#end = error;
    this.version = -1;
    this.ready.reject(error);
    this.show(undefined);
    for (const told of [...this.ends]) this.tab.call(told, error);
  }
}
