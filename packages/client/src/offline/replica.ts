// One record in one tab: what the server has as far as is known here, and on top of it the edits of all tabs that it has not made yet.

import { TidewireError } from '../index.js';
import type { Connection } from '../connection.js';
import { deferred } from '../deferred.js';
import { applied, checkDocument, checked, type Patch } from '../record.js';
import type { SharedRecord } from '../records.js';
import { Watched } from '../watched.js';
import type { Edit } from './edit.js';

/** What a replica asks of the tab that it is in. */
export interface Tab extends Pick<Connection, 'call'> {
  /** The edits of `name` that the server has not made, in their order. */
  pending(name: string): readonly Edit[];
  /** Fulfilled when the server has made all of them. */
  saved(name: string): Promise<void>;
  /** Takes an edit of this tab; fulfilled when the server has made it. */
  add(name: string, patches: Patch[], on: number, base: unknown): Promise<void>;
}

export class Replica extends Watched implements SharedRecord {
  readonly ready = deferred();
  version = -1;
  /** What is opened here is created by its first edit at the latest. */
  readonly notFound = undefined;
  /** Whether a client that listens provides it is told to the tab that leads alone. */
  readonly hasProvider = false;
  readonly watchers = new Set<(hasProvider: boolean) => void>();
  /** Handles that are open, and what they are told at the end. */
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

  async edit(patches: Patch[], update?: (value: never) => unknown): Promise<void> {
    if (this.#end) throw this.#end;
    const given = checked(update ? [{ value: update((this.value ?? {}) as never) }] : patches);
    const value = applied(this.value, [{ patches: given }]);
    checkDocument(value);
    const outcome = this.tab.add(this.name, given, this.version, this.#base);
    this.show(value);
    this.ready.resolve();
    return outcome;
  }

  /** Takes what the server has. */
  take(value: unknown, version: number): void {
    this.#base = value;
    this.version = version;
    this.refresh();
  }

  /** Shows the edits that are pending now. */
  refresh(): void {
    if (this.#end) return;
    const edits = this.tab.pending(this.name);
    if (this.version < 0 && edits.length === 0) return this.show(undefined);
    this.show(applied(this.#base, [...edits]));
    this.ready.resolve();
  }

  /** The server has it no more, or gives it no more. */
  end(error: TidewireError): void {
    this.#end = error;
    this.version = -1;
    this.ready.reject(error);
    this.show(undefined);
    for (const told of [...this.ends]) this.tab.call(told, error);
  }
}
