// Lists: records that contain texts in an order, such as the names of other records. A separate entry, `@tidewire/client/lists`.

import { TidewireError } from './error.js';
import { entriesOf, listUpdate, type ListChange } from './list-change.js';
import type { OpenOptions, RecordHandle, Records } from './records.js';
import type { Names, RecordsOf, Schema, ValueOf } from './schema.js';

export { entriesOf } from './list-change.js';
export type { ListChange } from './list-change.js';

/** The names whose documents are lists, if the app declares the types of its documents. */
export type ListNames<App> = ListName<RecordsOf<App>, Names<RecordsOf<App>>>;
type ListName<Part, Name> = Name extends string
  ? unknown extends ValueOf<Part, Name>
    ? Name
    : ValueOf<Part, Name> extends readonly string[]
      ? Name
      : never
  : never;

/** The type of a list's entries. */
export type EntryOf<Doc> = unknown extends Doc ? string : Doc extends ReadonlyArray<infer Entry extends string> ? Entry : never;

/** A change of an entry, with its new index, or with the index from which it was removed. */
export interface EntryChange<Entry extends string = string> {
  readonly kind: 'added' | 'moved' | 'removed';
  readonly entry: Entry;
  readonly index: number;
}

/** How a list is opened. If another client changed the list first, a change is applied again to the newer entries. */
export type ListOptions = Pick<OpenOptions, 'create' | 'onEnd'>;

/**
 * Opens the list `name`. If there is no such record, it is created, unless the option `create` is false. Close the handle when the app no
 * longer needs it.
 *
 * @param records `client.record`
 */
export function openList<App extends Schema, Name extends ListNames<App>>(
  records: Records<App>,
  name: Name,
  options: ListOptions = {},
): ListHandle<EntryOf<ValueOf<RecordsOf<App>, Name>>> {
  return new ListHandle((records as unknown as Records).open(name, options));
}

/** An open list. The arrays that it returns never change; each change makes a new array. */
export class ListHandle<Entry extends string = string> {
  readonly #record: RecordHandle;

  /** Call `openList` to create a handle. */
  constructor(record: RecordHandle) {
    this.#record = record;
  }

  get name(): string {
    return this.#record.name;
  }

  /** Fulfilled when the entries have arrived, rejected if the server refuses the record. */
  get ready(): Promise<void> {
    return this.#record.ready;
  }

  /** Whether all changes are durable at the server. */
  get isSaved(): boolean {
    return this.#record.isSaved;
  }

  /** The version that the server has confirmed; -1 before `ready`. */
  get version(): number {
    return this.#record.version;
  }

  /** The entries in their order; empty before `ready`, and while the record is not a list. */
  get entries(): readonly Entry[] {
    return entriesOf(this.#record.value);
  }

  has(entry: Entry): boolean {
    return this.entries.includes(entry);
  }

  /** Adds an entry at the end, or before the one at `index`. Fulfilled, like all changes, when it is on the server's disk. */
  async add(entry: Entry, index?: number): Promise<void> {
    checkEntry(entry);
    this.#checkIndex(index, this.entries.length);
    await this.#change(['add', entry, index], (entries) => entries.includes(entry));
  }

  /** Removes all occurrences of an entry, or only the one at `index`, even if other changes have moved it. */
  async remove(entry: Entry, index?: number): Promise<void> {
    this.#checkIndex(index, this.entries.length - 1);
    if (index !== undefined && this.entries[index] !== entry) return;
    const isSame = (one: Entry): boolean => one === entry;
    const earlier = index === undefined ? undefined : this.entries.slice(0, index).filter(isSame).length;
    const count = this.entries.filter(isSame).length;
    await this.#change(['remove', entry, earlier], (entries) => entries.filter(isSame).length < count);
  }

  /** Replaces all entries. */
  async set(entries: readonly Entry[]): Promise<void> {
    if (!Array.isArray(entries)) throw new TidewireError('INVALID_ARGUMENT', 'the entries must be an array of texts');
    entries.forEach(checkEntry);
    await this.#record.setWithAck([...entries]);
  }

  /** Fulfilled when all changes so far are durable; rejected with the first refusal. */
  saved(): Promise<void> {
    return this.#record.saved();
  }

  /** Calls `callback` with the entries as soon as they have arrived and whenever they change; returns the removal. */
  subscribe(callback: (entries: readonly Entry[]) => void): () => void {
    return this.#record.subscribe((value) => callback(entriesOf(value)));
  }

  /** Calls `callback` with each later change: an entry that is added, moved or removed. Returns the removal. */
  onEntry(callback: (change: EntryChange<Entry>) => void): () => void {
    let before: readonly Entry[] | undefined;
    return this.#record.subscribe((value) => {
      const after = entriesOf<Entry>(value);
      const changes = before ? changesOf(before, after) : [];
      before = after;
      changes.forEach(callback);
    });
  }

  /** Closes the handle and ends its subscriptions; changes still reach the server. */
  close(): void {
    this.#record.close();
  }

  /** Changes the entries. If another client wrote first, the change is applied again to the newer entries. */
  async #change(change: ListChange, isMade: (entries: readonly Entry[]) => boolean): Promise<void> {
    try {
      await this.#record.update(listUpdate(change));
    } catch (error) {
      if (!(error instanceof TidewireError) || error.code !== 'WRITE_UNKNOWN') throw error;
      // A connection was lost, so the server may have made the write. The current entries show whether it has to be made again.
      if (!isMade(this.entries)) await this.#change(change, isMade);
    }
  }

  #checkIndex(index: number | undefined, max: number): void {
    if (index === undefined || (Number.isInteger(index) && index >= 0 && (index <= max || this.version < 0))) return;
    throw new TidewireError('INVALID_ARGUMENT', `the index must be a whole number from 0 to ${max}`, { subject: this.name });
  }
}

function checkEntry(entry: unknown): void {
  if (typeof entry !== 'string') throw new TidewireError('INVALID_ARGUMENT', 'an entry of a list must be a text');
}

/** Each entry with its indices. */
function placesOf<Entry extends string>(entries: readonly Entry[]): Map<Entry, number[]> {
  const places = new Map<Entry, number[]>();
  entries.forEach((entry, index) => places.set(entry, [...(places.get(entry) ?? []), index]));
  return places;
}

/** The changes from `before` to `after`, removals first. If an entry occurs several times, its last occurrences are added or removed. */
export function changesOf<Entry extends string>(before: readonly Entry[], after: readonly Entry[]): Array<EntryChange<Entry>> {
  const [old, now] = [placesOf(before), placesOf(after)];
  const changes: Array<EntryChange<Entry>> = [];
  for (const [entry, places] of old) {
    const left = now.get(entry)?.length ?? 0;
    for (const index of places.slice(left)) changes.push({ kind: 'removed', entry, index });
  }
  for (const [entry, places] of now) {
    const was = old.get(entry) ?? [];
    places.forEach((index, at) => {
      if (was[at] !== index) changes.push({ kind: was[at] === undefined ? 'added' : 'moved', entry, index });
    });
  }
  return changes;
}
