// The client of Tidewire. Importing this module only defines names, without side effects.

export { Client, type ClientOptions } from './client.js';
export type { Auth, AuthContext, ConnectOptions, ConnectionOptions, Credentials, RequestLimits, State, StateCallback, Validate, ValueKind } from './connection.js';
export type { WebSocketClass, WebSocketLike } from './environment.js';
export { TidewireError } from './error.js';
export type { EmitOptions, EventContext, Events, Gap, SubscribeOptions, TraceOptions } from './event.js';
export type { Subscription } from './interest.js';
export type { Position } from './protocol.js';
export type { Conflict, Merge } from './record.js';
export { RecordHandle, type Changes, type OpenOptions, type Records } from './records.js';
export type { RequestOptions } from './request.js';
export type { Rpcs } from './rpc.js';
export type { AnyPath, Argument, Change, EventsOf, Names, Optional, Path, RecordsOf, Result, RpcsOf, Schema, ScopesOf, Step, Steps, ValueAt, ValueOf } from './schema.js';
export type { Signal } from './wait.js';
