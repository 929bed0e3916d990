// One change of a list as data, so that a queue can store it: it is applied to the entries that the list has when the change is made.

/** An entry to add, at the end or before the one at an index; or an entry to remove, everywhere or only one occurrence of it. */
export type ListChange = readonly ['add', entry: string, index?: number | undefined] | readonly ['remove', entry: string, earlier?: number | undefined];

/** A function that updates a document; with `list`, it makes this change of a list. */
export type Update = ((value: never) => unknown) & { readonly list?: ListChange };

/** The entries after a change. */
export function changedList(entries: readonly string[], [kind, entry, at]: ListChange): string[] {
  if (kind === 'add') return [...entries.slice(0, at), entry, ...(at === undefined ? [] : entries.slice(at))];
  let seen = 0;
  return entries.filter((one) => one !== entry || (at !== undefined && seen++ !== at));
}

const NONE: readonly never[] = [];

/** The entries of a document; empty if it is not a list. */
export function entriesOf<Entry extends string>(value: unknown): readonly Entry[] {
  return Array.isArray(value) ? (value as Entry[]) : NONE;
}

/** The update that makes a change of a list. */
export function listUpdate(list: ListChange): ((value: unknown) => string[]) & { readonly list: ListChange } {
  return Object.assign((value: unknown) => changedList(entriesOf(value), list), { list });
}
