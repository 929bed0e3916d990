// Application logic for Tidewire: a backend serves the sessions of namespaces over the backend protocol (`spec/backend.md`).

export { AskError } from './asks.js';
export type { AskFailure } from './asks.js';
export { Backend, connect } from './backend.js';
export type { BackendEvents, BackendOptions, Broadcast, EndReason, Handshake, OpenedSession, Payload, SessionHandle } from './backend.js';
export { startServer } from './child.js';
export type { ServerProcess, StartOptions } from './child.js';
export { Action, decode, encode } from './codec.js';
export type { Message } from './codec.js';
