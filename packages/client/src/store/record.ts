// Records: their shared values, the parts that components show, and their edits.

import type { TidewireError } from '../error.js';
import type { AnyPath } from '../path.js';
import type { Merge } from '../record.js';
import type { RecordHandle } from '../records.js';
import type { LiveOptions } from './live.js';
import type { Kind, Store, Tell } from './shared.js';

/** The edits of a record. They show at once, in all components. */
export type Edits<Doc> = Pick<RecordHandle<Doc>, 'set' | 'setWithAck' | 'patch' | 'update'>;

export interface RecordOptions<Doc, At, Part> extends LiveOptions<Part> {
  /** Shows only the value at this path, a text or an array. The component renders again only when that value changes. */
  path?: At;
  /**
   * False shows the record only if it exists. If it does not, the value is undefined, and the error has the code RECORD_NOT_FOUND until
   * another client writes the record. By default true: a missing record is created.
   */
  create?: boolean;
  /**
   * How edits are merged if another client wrote first; by default `local`. It applies to all components that show the record. Offline records
   * have one option `merge` for all, at the provider.
   */
  merge?: Merge<Doc>;
}

/** An open record, as a new object for each of its changes. */
export interface OpenRecord {
  handle: RecordHandle;
  value: unknown;
}

const RECORD: Kind<OpenRecord> = kindOf(true);
const EXISTING: Kind<OpenRecord> = kindOf(false);

/** The kind of records that are created if they are missing, or of those that are not. */
export function recordKind(create = true): Kind<OpenRecord> {
  return create ? RECORD : EXISTING;
}

function kindOf(create: boolean): Kind<OpenRecord> {
  return {
    start: (client, name, tell) => followed(client.record.open(name, { create, onEnd: ended(tell) }), tell),
    // Whether a record exists is only known with a connection.
    ...(create && { startOffline: (offline, name, tell) => followed(offline.open(name as never, { onEnd: ended(tell) }), tell) }),
  };
}

function ended(tell: Tell<OpenRecord>): (error: TidewireError) => void {
  return (error) => tell({ value: undefined, isReady: false, error });
}

function followed(handle: RecordHandle, tell: Tell<OpenRecord>): () => void {
  const show = (): void => {
    const { notFound: error, value } = handle;
    if (error) tell({ value: undefined, isReady: true, error });
    // After the end of the record there is no value, and `onEnd` reports the reason.
    else if (value !== undefined) tell({ value: { handle, value }, isReady: true, error: undefined });
  };
  handle.subscribe(show);
  show();
  handle.ready.catch((error) => (handle.notFound ? show() : tell({ error })));
  return () => handle.close();
}

/** A path as text. A component may pass a new array with the same steps each time; its text stays equal. */
export function pathText(path: AnyPath | undefined): string | undefined {
  return path === undefined ? undefined : JSON.stringify(path);
}

/** Returns a function that selects the value at a path, given as `pathText` has returned it. */
export function partAt(text: string | undefined): (record: OpenRecord) => unknown {
  if (text === undefined) return ({ value }) => value;
  const path = JSON.parse(text) as string;
  return ({ handle }) => handle.get(path);
}

/** The record that a component shows and edits. */
export interface RecordTarget {
  store: Store;
  name: string | undefined;
  create?: boolean | undefined;
}

/** Sets how edits of the record are merged. */
export function mergeBy({ store: { client, offline }, name, create = true }: RecordTarget, merge: Merge | undefined): void {
  if (merge !== undefined && offline && create) throw new Error('offline records have one merge for all: give it to the provider, offline={{ merge }}');
  if (name !== undefined && merge !== undefined && !client.closeReason) client.record.open(name, { merge, create }).close();
}

/**
 * The edits of the record that `target` returns at the time of the edit. Each opens the record by itself: the client has one document for
 * all handles, and keeps it until it is saved.
 */
export function recordEdits(target: () => RecordTarget): Edits<unknown> {
  const on = (act: (handle: RecordHandle) => Promise<void> | void): Promise<void> | void => {
    const { store, name, create = true } = target();
    if (name === undefined) throw new Error('there is no record to edit: useRecord has no name');
    return store.withRecords(create, (records) => {
      const handle = records.open(name, { create });
      try {
        return act(handle);
      } finally {
        handle.close();
      }
    });
  };
  const acknowledged = on as (act: (handle: RecordHandle) => Promise<void>) => Promise<void>;
  return {
    // Without its module, the offline records can't report the error themselves.
    set: (...change: [unknown]) => void on((handle) => handle.set(...change))?.catch((error) => target().store.client.record.connection.onError(error)),
    setWithAck: (...change: [unknown]) => acknowledged((handle) => handle.setWithAck(...change)),
    patch: (changes) => acknowledged((handle) => handle.patch(changes)),
    update: (update) => acknowledged((handle) => handle.update(update)),
  };
}
