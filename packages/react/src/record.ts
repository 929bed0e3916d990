// Records: their value or a part of it, and the edits.

import type { AnyPath, Client, Merge, RecordHandle } from '@tidewire/client';
import { useEffect, useMemo } from 'react';
import { useLive, type Live, type LiveOptions } from './live.js';
import { useClient } from './provider.js';
import type { Kind } from './shared.js';

/** The edits of a record. They show at once, in all components. */
export type Edits<Doc> = Pick<RecordHandle<Doc>, 'set' | 'setWithAck' | 'patch' | 'update'>;

export interface RecordOptions<Doc, At, Part> extends LiveOptions<Part> {
  /** Shows what stands at this path only, a text or an array; the component is not drawn again when something else changes. */
  path?: At;
  /**
   * False shows the record only if there is one: without it the value is undefined, and the error has the code RECORD_NOT_FOUND until another
   * client writes the record. By default true: a missing record is created.
   */
  create?: boolean;
  /** What becomes of edits when somebody else was faster; it holds for all who show the record. By default `local`. */
  merge?: Merge<Doc>;
}

/** An open record at one of its changes. */
export interface Open {
  handle: RecordHandle;
  value: unknown;
}

export const RECORD: Kind<Open> = kindOf(true);
/** Records that are not created. */
const EXISTING: Kind<Open> = kindOf(false);

function kindOf(create: boolean): Kind<Open> {
  return {
    start(client, name, tell) {
      const handle = client.record.open(name, { create, onEnd: (error) => tell({ value: undefined, isReady: false, error }) });
      const show = (): void => {
        const { notFound: error } = handle;
        if (error) tell({ value: undefined, isReady: true, error });
        // After the end there is no version; the reason follows.
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
  // An array may be another one in each drawing, and say the same.
  const at = typeof path === 'object' ? JSON.stringify(path) : path;
  const part = useMemo(() => ({ handle, value }: Open) => (path === undefined ? value : handle.get(path)), [typeof path, at]);
  const live = useLive(create ? RECORD : EXISTING, name, options, part);
  useEffect(() => {
    if (name !== undefined && merge !== undefined && !client.closeReason) client.record.open(name, { merge, create }).close();
  }, [client, name, merge, create]);
  const edits = useMemo(() => editsOf(client, name, create), [client, name, create]);
  return useMemo(() => ({ ...live, ...edits }), [live, edits]);
}

/** Each edit opens the record for itself: the client has one document for all handles, and keeps it until it is saved. */
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
