// Records: their value or a part of it, and their edits.

import type { AnyPath, Client, Merge, RecordHandle } from '@tidewire/client';
import { useEffect, useMemo } from 'react';
import { useLive, type Live, type LiveOptions } from './live.js';
import { useClient } from './provider.js';
import type { Kind } from './shared.js';

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
  /** How edits are merged if another client wrote first; by default `local`. It applies to all components that show the record. */
  merge?: Merge<Doc>;
}

/** An open record, as a new object for each of its changes. */
export interface Open {
  handle: RecordHandle;
  value: unknown;
}

export const RECORD: Kind<Open> = kindOf(true);
/** Records that are not created if they are missing. */
const EXISTING: Kind<Open> = kindOf(false);

function kindOf(create: boolean): Kind<Open> {
  return {
    start(client, name, tell) {
      const handle = client.record.open(name, { create, onEnd: (error) => tell({ value: undefined, isReady: false, error }) });
      const show = (): void => {
        const { notFound: error } = handle;
        if (error) tell({ value: undefined, isReady: true, error });
        // After the end of the record there is no version, and `onEnd` reports the reason.
        else if (handle.version >= 0) tell({ value: { handle, value: handle.value }, isReady: true, error: undefined });
      };
      handle.subscribe(show);
      show();
      handle.ready.catch((error) => (handle.notFound ? show() : tell({ error })));
      return () => handle.close();
    },
  };
}

export function useRecord(
  name: string | undefined,
  { path, merge, create = true, ...options }: RecordOptions<unknown, AnyPath<unknown> | undefined, unknown> = {},
): Live<unknown> & Edits<unknown> {
  const client = useClient();
  // Each render may pass a new array with the same steps, so the paths are compared as text.
  const at = typeof path === 'object' ? JSON.stringify(path) : path;
  const part = useMemo(() => ({ handle, value }: Open) => (path === undefined ? value : handle.get(path)), [typeof path, at]);
  const live = useLive(create ? RECORD : EXISTING, name, options, part);
  useEffect(() => {
    if (name !== undefined && merge !== undefined && !client.closeReason) client.record.open(name, { merge, create }).close();
  }, [client, name, merge, create]);
  const edits = useMemo(() => editsOf(client, name, create), [client, name, create]);
  return useMemo(() => ({ ...live, ...edits }), [live, edits]);
}

/** Each edit opens the record by itself: the client has one document for all handles, and keeps it until it is saved. */
function editsOf(client: Client, name: string | undefined, create: boolean): Edits<unknown> {
  const on = <Answer>(act: (handle: RecordHandle) => Answer): Answer => {
    if (name === undefined) throw new Error('there is no record to edit: useRecord has no name');
    const handle = client.record.open(name, { create });
    try {
      return act(handle);
    } finally {
      handle.close();
    }
  };
  return {
    set: (...change: [unknown]) => on((handle) => handle.set(...change)),
    setWithAck: (...change: [unknown]) => on((handle) => handle.setWithAck(...change)),
    patch: (changes) => on((handle) => handle.patch(changes)),
    update: (update) => on((handle) => handle.update(update)),
  };
}
