// React hooks for Tidewire. Importing this module only defines names, without side effects. The app creates the client.

import { hooks, type Hooks } from './hooks.js';

// The hooks for any name, with `unknown` values; `hooks` returns the hooks of an app.
const untyped: Hooks = hooks();
export const TidewireProvider: Hooks['TidewireProvider'] = untyped.TidewireProvider;
export const useClient: Hooks['useClient'] = untyped.useClient;
export const useConnection: Hooks['useConnection'] = untyped.useConnection;
export const useSync: Hooks['useSync'] = untyped.useSync;
export const useRecord: Hooks['useRecord'] = untyped.useRecord;
export const useEdits: Hooks['useEdits'] = untyped.useEdits;
export const useEvent: Hooks['useEvent'] = untyped.useEvent;
export const usePresence: Hooks['usePresence'] = untyped.usePresence;
export const useRpc: Hooks['useRpc'] = untyped.useRpc;
export const useProvide: Hooks['useProvide'] = untyped.useProvide;

export type { Connection, Edits, EventOptions, Live, Part, Progress, QueuedEdit, Ready, State, Sync } from '@tidewire/client/store';
export { hooks, type Hooks, type RecordOptions } from './hooks.js';
export type { LiveOptions } from './live.js';
export type { ProviderProps } from './provider.js';
