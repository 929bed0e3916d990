// The connection, the edits that wait on this device, and those that the server has refused.

import { useConnection, useSync } from './tidewire.ts';

/** The reasons of `useSync`, for the user. */
const REASONS = {
  denied: 'the rules of the board do not allow it',
  validation: 'the server can not store it',
  conflict: 'another member has changed or removed the card',
};

export function Status() {
  const { state, error } = useConnection();
  const { queue, conflicts, keep, drop, mode } = useSync();
  const waiting = queue.length === 0 ? '' : `, ${queue.length} ${queue.length === 1 ? 'edit waits' : 'edits wait'}`;
  return (
    <div className="status">
      <p role="status" className={state}>
        {state === 'open' ? 'online' : state === 'closed' && error ? `closed: ${error.code}` : 'offline'}
        {waiting}
        {mode === 'online-only' && ' (this browser stores nothing: keep the page open)'}
      </p>
      {conflicts.map((conflict) => (
        <p role="alert" key={conflict.id}>
          Not saved: {summary(conflict.changes)}. Reason: {REASONS[conflict.reason]} ({conflict.code}).
          <button onClick={() => void keep(conflict)}>Try again</button>
          <button onClick={() => void drop(conflict)}>Dismiss</button>
        </p>
      ))}
    </div>
  );
}

/** The changes of an edit as text. */
function summary(changes: ReadonlyArray<{ path?: string | readonly (string | number)[]; value?: unknown }>): string {
  const whole = changes.find(({ path }) => path === undefined);
  if (whole) return `the new card “${String((whole.value as { title?: unknown }).title)}”`;
  return changes.filter(({ path }) => path === 'title' || path === 'column' || path === 'isDeleted').map(({ path, value }) => `${String(path)} “${String(value)}”`).join(', ') || 'a move';
}
