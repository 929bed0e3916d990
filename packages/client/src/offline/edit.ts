// An edit as it is stored in the queue of all tabs, and the rejection of an edit that can't be made.

import { TidewireError, type Conflict } from '../index.js';
import { listUpdate, type ListChange, type Update } from '../list-change.js';
import { applied, next, type Patch, type Seen } from '../record.js';

export interface Edit {
  readonly id: string;
  readonly name: string;
  readonly patches: Patch[];
  /** The change of a list, in place of patches. */
  readonly list?: ListChange | undefined;
  /** The tab that made the edit. */
  readonly tab: string;
  /** The version on which the edit was made; -1 if none was known. */
  readonly on: number;
  /** The value of that version, if a function merges. */
  readonly base?: unknown;
  /** The key of the write that carries the edit. It is stored before the write is sent, so that a repetition is the same write. */
  readonly sent?: string;
  /** The state of the record before that write was sent first. */
  readonly seen?: Seen;
  /** The edits that a function has merged into this one. */
  readonly merged?: Edit[];
  /** Its position in the queue, once it is stored. */
  readonly seq?: number;
}

/** An edit that the client does not send again, given to the app with its changes. */
export interface Rejection {
  readonly id: string;
  readonly name: string;
  /** The values to set at each path; without a path, the value of the whole record. */
  readonly changes: ReadonlyArray<{ readonly path?: string | readonly (string | number)[]; readonly value?: unknown }>;
  /** The change of a list, in place of `changes`. */
  readonly list?: ListChange | undefined;
  /**
   * - `denied`: a rule refused the edit
   * - `validation`: the server can't accept the value or the path, or the message is too large
   * - `conflict`: another client wrote first, or has deleted the record; with the code `WRITE_UNKNOWN`, the server may have made the edit
   */
  readonly reason: Reason;
  /** The code of the error that caused the rejection. */
  readonly code: string;
}

export type Reason = 'denied' | 'validation' | 'conflict';

const REASONS: Record<string, Reason> = {
  MESSAGE_DENIED: 'denied',
  MESSAGE_PERMISSION_ERROR: 'denied',
  INVALID_MESSAGE_DATA: 'validation',
  INVALID_PATCH_ON_HOTPATH: 'validation',
  INVALID_ARGUMENT: 'validation',
  VALIDATION_FAILED: 'validation',
  TOO_LARGE: 'validation',
  CONFLICT: 'conflict',
  WRITE_UNKNOWN: 'conflict',
  RECORD_DELETED: 'conflict',
};

/** Why an edit can never be made; undefined if another attempt may succeed. */
export function reasonOf({ code }: { code: string }): Reason | undefined {
  return REASONS[code];
}

/** The rejections that the app receives for `edit`, and for each edit that was merged into it. */
export function rejections(edit: Edit, code: string): Rejection[] {
  if (edit.merged) return edit.merged.flatMap((one) => rejections(one, code));
  const { id, name, patches, list } = edit;
  return [{ id, name, changes: patches, ...(list && { list }), reason: reasonOf({ code }) ?? 'conflict', code }];
}

/** The value of a record after `edits`. */
export function withEdits(value: unknown, edits: readonly Edit[]): unknown {
  return applied(value, edits.map(({ patches, list }) => ({ patches, ...(list && { update: listUpdate(list) }) })));
}

/** The update that makes all of `edits` on the newest value, if one of them changes a list; otherwise their patches are enough. */
export function updateOf(edits: readonly Edit[]): Update | undefined {
  return edits.some(({ list }) => list) ? (value: unknown) => withEdits(value, edits) : undefined;
}

export function rejected(name: string, code: string): TidewireError {
  return new TidewireError(code, `an edit of "${name}" can't be made: ${code}`, { subject: name });
}

/** Edits in the order in which they are made: by their position in the queue, and after that the ones that are not stored yet. */
export function sorted(edits: Iterable<Edit>): Edit[] {
  return [...edits].sort((a, b) => (a.seq ?? Infinity) - (b.seq ?? Infinity) || 0);
}

export function byName(edits: Edit[]): Map<string, Edit[]> {
  const names = new Map<string, Edit[]>();
  for (const edit of edits) {
    const others = names.get(edit.name);
    if (others) others.push(edit);
    else names.set(edit.name, [edit]);
  }
  return names;
}

/** The most edits of one write, and about the most bytes of their JSON. A single edit may have more. */
const GROUP_EDITS_MAX = 100;
const GROUP_BYTES_MAX = 64 * 1024;

/**
 * The first of `edits` that are sent in one write. If that write may have been made already, exactly its edits; otherwise as many as fit.
 */
export function group(edits: Edit[]): Edit[] {
  const first = edits[0] as Edit;
  let bytes = 0;
  const end = edits.findIndex((edit, at) => {
    bytes += JSON.stringify([edit.patches, edit.list]).length;
    return edit.sent !== first.sent || (!first.sent && (at >= GROUP_EDITS_MAX || (at > 0 && bytes > GROUP_BYTES_MAX)));
  });
  return end < 0 ? edits : edits.slice(0, end);
}

/** How edits are merged if another client wrote first; see the option `merge` of records. A function also receives the name. */
export type OfflineMerge = 'local' | 'remote' | ((conflict: Conflict) => unknown);

/** The ids of an edit and of the edits that were merged into it. */
export function ids(edit: Edit): string[] {
  return [edit.id, ...(edit.merged ?? []).flatMap(ids)];
}

/** Whether `edit` was made on version `on`. If no version was known to it, it counts as made on version 0, a record just created. */
export function isOn(edit: Edit, on: number): boolean {
  return edit.on === on || (edit.on < 0 && on === 0);
}

/** The edits of version `on` become edits of the next version, because this device has made that version itself. */
export function rebased(edits: Edit[], on: number): Edit[] {
  return edits.map((edit) => (isOn(edit, on) ? { ...edit, on: next(on) } : edit));
}
