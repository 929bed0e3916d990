// The address of a view: its name and its settings, behind the `#`, so that reload, Back and bookmarks lead to the same view. The server
// does not receive this part.

import { useEffect, useState } from 'preact/hooks';

/** The parameters of a view: filters, order, and the row that is open. A parameter that is not set is absent. */
export type Parameters = Readonly<Record<string, string>>;

export interface Address {
  /** The name of the view in lower case, with `-` for spaces. */
  view: string;
  parameters: Parameters;
}

/** The view without an address. */
export const FIRST_VIEW = 'overview';

const listeners = new Set<() => void>();

function read(): Address {
  const [path = '', query] = location.hash.split(/\?(.*)/s);
  return { view: /^#\/([\w-]+)$/.exec(path)?.[1] ?? FIRST_VIEW, parameters: Object.fromEntries(new URLSearchParams(query)) };
}

/** The address as text, for a link. */
export function addressOf(view: string, parameters: Parameters = {}): string {
  const given = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== '')).toString();
  return `#/${view}${given === '' ? '' : `?${given}`}`;
}

/** The current address. */
export function useAddress(): Address {
  const [address, setAddress] = useState(read);
  useEffect(() => {
    const change = (): void => setAddress(read());
    listeners.add(change);
    addEventListener('hashchange', change);
    return () => {
      listeners.delete(change);
      removeEventListener('hashchange', change);
    };
  }, []);
  return address;
}

/** Opens a view. Back returns to the address before it. */
export function visit(view: string, parameters: Parameters = {}): void {
  history.pushState(null, '', addressOf(view, parameters));
  for (const listener of listeners) listener();
}

/** Changes parameters of the current view. Back does not stop at each letter of a filter, so this replaces the address. */
export function refine(changes: Parameters): void {
  const { view, parameters } = read();
  history.replaceState(null, '', addressOf(view, { ...parameters, ...changes }));
  for (const listener of listeners) listener();
}
