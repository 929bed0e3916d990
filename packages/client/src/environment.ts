// Features of the runtime, looked up when they are needed and never on import: pages, workers, Node, Bun, React Native.

import { TidewireError } from './error.js';

/** A WebSocket as in browsers and in the package `ws`. */
export interface WebSocketLike {
  binaryType: string;
  readonly bufferedAmount: number;
  onopen: ((event: never) => void) | null;
  onmessage: ((event: never) => void) | null;
  onclose: ((event: never) => void) | null;
  onerror: ((event: never) => void) | null;
  send(data: Uint8Array<ArrayBuffer>): void;
  close(): void;
  /** Closes the connection without waiting for the other side; only `ws` has it. */
  terminate?(): void;
}

export type WebSocketClass = new (url: string) => WebSocketLike;

interface Target {
  addEventListener?(event: string, listener: () => void): void;
  removeEventListener?(event: string, listener: () => void): void;
}

interface Surroundings extends Target {
  WebSocket?: WebSocketClass;
  location?: { protocol: string; host: string };
  document?: Target & { visibilityState: string };
}

function surroundings(): Surroundings {
  return globalThis as unknown as Surroundings;
}

/** The runtime's own WebSocket. Throws if it has none. */
export function ownWebSocket(): WebSocketClass {
  const found = surroundings().WebSocket;
  if (found) return found;
  const remedy = 'install the package "ws" and pass its class as the option webSocket';
  throw new TidewireError('NO_WEBSOCKET', `this runtime has no WebSocket (Node has one from version 22 on): ${remedy}`);
}

/**
 * The address of the native protocol for `address`: `host:port`, an address that begins with `ws`, `wss`, `http` or `https`, or a path of
 * the page's own server. An empty text is that server itself. Throws if the server's own address is needed and there is no page.
 */
export function socketUrl(address = ''): string {
  const [, scheme, host = '', path = ''] = /^(?:(\w+):\/\/)?([^/?#]*)(.*)$/s.exec(address) ?? [];
  const page = surroundings().location;
  if (host === '' && !page?.host) throw new TidewireError('INVALID_URL', 'without a page the client needs an address, such as "localhost:6020"');
  const isSecure = scheme ? /^(https|wss)$/i.test(scheme) : page?.protocol === 'https:';
  if (scheme && !/^(https?|wss?)$/i.test(scheme)) throw new TidewireError('INVALID_URL', `"${address}" is not a ws:, wss:, http: or https: address`);
  return `${isSecure ? 'wss' : 'ws'}://${host || page?.host}${/^\/?$/.test(path) ? '/deepstream' : path}`;
}

/** Calls `callback` when a page may have slept or its network has changed; returns the removal. */
export function onWake(callback: () => void): () => void {
  const own = surroundings();
  const { document } = own;
  const visible = (): void => {
    if (document?.visibilityState === 'visible') callback();
  };
  const watched: Array<[Target | undefined, string, () => void]> = [
    [own, 'online', callback],
    [own, 'offline', callback],
    [own, 'pageshow', callback],
    [document, 'resume', callback],
    [document, 'visibilitychange', visible],
  ];
  for (const [target, event, listener] of watched) target?.addEventListener?.(event, listener);
  return () => {
    for (const [target, event, listener] of watched) target?.removeEventListener?.(event, listener);
  };
}
