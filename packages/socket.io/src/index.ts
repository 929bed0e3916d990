// The API of `socket.io` 4 on a Tidewire server, which keeps the connections, rooms and broadcasts.

export { BroadcastOperator, RemoteSocket } from './broadcast.js';
export { Namespace } from './namespace.js';
export type { ExtendedError } from './namespace.js';
export type { RecoveryOptions } from './recovery.js';
export { Server } from './server.js';
export { Server as default } from './server.js';
export type { Delivery, ServerOptions } from './server.js';
export { Socket } from './socket.js';
export type { DisconnectReason, Handshake } from './socket.js';
export type { DefaultEventsMap, EventsMap, Room, SocketId } from './types.js';
