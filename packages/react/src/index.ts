// React hooks for Tidewire. Importing this module only defines names, without side effects. The app creates the client.

import { hooks, type Hooks } from './hooks.js';

// The hooks for any name, with `unknown` values; `hooks` returns the hooks of an app.
const untyped: Hooks = hooks();
export const TidewireProvider: Hooks['TidewireProvider'] = untyped.TidewireProvider;
export const useClient: Hooks['useClient'] = untyped.useClient;
export const useConnection: Hooks['useConnection'] = untyped.useConnection;
export const useRecord: Hooks['useRecord'] = untyped.useRecord;
export const useEvent: Hooks['useEvent'] = untyped.useEvent;
export const usePresence: Hooks['usePresence'] = untyped.usePresence;
export const useRpc: Hooks['useRpc'] = untyped.useRpc;
export const useProvide: Hooks['useProvide'] = untyped.useProvide;

export type { EventOptions } from './event.js';
export { hooks, type Hooks, type Part, type Ready } from './hooks.js';
export type { Live, LiveOptions } from './live.js';
export type { Connection, ProviderProps } from './provider.js';
export type { Edits, RecordOptions } from './record.js';
export type { Progress } from './rpc.js';
export type { State } from './shared.js';
