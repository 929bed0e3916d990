// An edit as it lies in the queue of all tabs, and what becomes of one that can't be made.

import { TidewireError, type Conflict } from '../index.js';
import { next, type Patch } from '../record.js';

export interface Edit {
  readonly id: string;
  readonly name: string;
  readonly patches: Patch[];
  /** The tab that made it. */
  readonly tab: string;
  /** The version that it was made on; -1 if none was known. */
  readonly on: number;
  /** The value of that version, where a function merges. */
  readonly base?: unknown;
  /** The key of the write in which it travels. It is kept before the write is sent, so that a repetition is the same write. */
  readonly sent?: string;
  /** The edits that a function has merged into this one. */
  readonly merged?: Edit[];
  /** Its place in the queue, as soon as it is kept. */
  readonly seq?: number;
}

/** An edit that the server will never make, handed to the app with what it was to change. */
export interface Rejection {
  readonly id: string;
  readonly name: string;
  /** What was to be set where; without a path the whole record. */
  readonly changes: ReadonlyArray<{ readonly path?: string | readonly (string | number)[]; readonly value?: unknown }>;
  /**
   * - `denied`: a rule said no
   * - `validation`: the server can't take such a value or path, or so large a message
   * - `conflict`: somebody else was faster, or has deleted the record
   */
  readonly reason: Reason;
  /** The code of the error behind it. */
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
  RECORD_DELETED: 'conflict',
};

/** Why an edit can never be made; undefined if it is worth trying again. */
export function reasonOf({ code }: { code: string }): Reason | undefined {
  return REASONS[code];
}

/** What the app is told of `edit`, and of each edit that was merged into it. */
export function rejections(edit: Edit, code: string): Rejection[] {
  if (edit.merged) return edit.merged.flatMap((one) => rejections(one, code));
  const { id, name, patches } = edit;
  return [{ id, name, changes: patches, reason: reasonOf({ code }) ?? 'conflict', code }];
}

export function rejected(name: string, code: string): TidewireError {
  return new TidewireError(code, `an edit of "${name}" can't be made: ${code}`, { subject: name });
}

/** Edits in the order in which they are made: as they lie in the queue, behind them those that are not kept yet. */
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

/** Edits of one write, and bytes of their JSON, unless one alone has more. */
const GROUP_EDITS_MAX = 100;
const GROUP_BYTES_MAX = 64 * 1024;

/** The first of `edits` that travel in one write: those of a write that may have been made, or as many as fit. */
export function group(edits: Edit[]): Edit[] {
  const first = edits[0] as Edit;
  let bytes = 0;
  const end = edits.findIndex((edit, at) => {
    bytes += JSON.stringify(edit.patches).length;
    return edit.sent !== first.sent || (!first.sent && (at >= GROUP_EDITS_MAX || (at > 0 && bytes > GROUP_BYTES_MAX)));
  });
  return end < 0 ? edits : edits.slice(0, end);
}

/** What becomes of edits when somebody else was faster; see the option `merge` of records. A function is told the name. */
export type OfflineMerge = 'local' | 'remote' | ((conflict: Conflict) => unknown);

/** An edit, and those that were merged into it. */
export function ids(edit: Edit): string[] {
  return [edit.id, ...(edit.merged ?? []).flatMap(ids)];
}

/** Whether `edit` was made on version `on`; a record that is only just there was not known before. */
export function isOn(edit: Edit, on: number): boolean {
  return edit.on === on || (edit.on < 0 && on === 0);
}

/** What was made on version `on` is now made on the next one, which is this device's own. */
export function rebased(edits: Edit[], on: number): Edit[] {
  return edits.map((edit) => (isOn(edit, on) ? { ...edit, on: next(on) } : edit));
}
