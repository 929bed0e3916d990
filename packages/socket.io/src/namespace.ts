// A namespace: its sockets, rooms and middlewares.

import { randomBytes } from 'node:crypto';
import { EventEmitter } from 'node:events';
import type { Backend, Broadcast, OpenedSession, Payload, SessionHandle } from '@tidewire/server';
import { BroadcastOperator, type RemoteSocket, type Targets } from './broadcast.js';
import { callListeners } from './listeners.js';
import { payloadOf, publicationOf } from './payload.js';
import { Recovery, newSecret, secretIn, type RecoveryOptions, type SavedSocket } from './recovery.js';
import type { Server } from './server.js';
import { Siblings, type Selection } from './siblings.js';
import { Socket, handshakeOf } from './socket.js';
import { checkBetweenServers, checkName, type Ack, type AckOf, type BroadcastParams, type DefaultEventsMap, type EventNames, type EventParams, type EventsMap, type Room, type SocketId, type WithoutAck } from './types.js';

export interface ExtendedError extends Error {
  data?: unknown;
}

/** The commands that a namespace gives. */
export type Link = Pick<Backend, 'accept' | 'refuse' | 'send' | 'answer' | 'broadcast' | 'ask' | 'tell' | 'reply' | 'join' | 'leave' | 'end' | 'release' | 'setData'> & {
  /** Whether the server outlives this process, so that it keeps data of sockets for the next one. */
  readonly keepsData: boolean;
  /** Reports an error that no caller waits for. */
  report(error: Error): void;
};

/** The rooms of the sockets that this backend serves. */
export class Adapter extends EventEmitter {
  readonly rooms = new Map<Room, Set<SocketId>>();
  readonly sids = new Map<SocketId, Set<Room>>();

  add(room: Room, id: SocketId): void {
    const ids = this.rooms.get(room);
    if (ids) ids.add(id);
    else this.rooms.set(room, new Set([id]));
    if (!ids) this.emit('create-room', room);
    const rooms = this.sids.get(id);
    if (rooms) rooms.add(room);
    else this.sids.set(id, new Set([room]));
    this.emit('join-room', room, id);
  }

  remove(room: Room, id: SocketId): void {
    const ids = this.rooms.get(room);
    if (!ids?.delete(id)) return;
    const rooms = this.sids.get(id);
    rooms?.delete(room);
    if (rooms?.size === 0) this.sids.delete(id);
    this.emit('leave-room', room, id);
    if (ids.size > 0) return;
    this.rooms.delete(room);
    this.emit('delete-room', room);
  }
}

type Middleware<S> = (socket: S, next: (error?: ExtendedError) => void) => void;

const REASONS = { left: 'client namespace disconnect', silent: 'ping timeout', lost: 'transport close' } as const;

export class Namespace<
  ListenEvents extends EventsMap = DefaultEventsMap,
  EmitEvents extends EventsMap = ListenEvents,
  ServerSideEvents extends EventsMap = DefaultEventsMap,
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  SocketData = any,
> extends EventEmitter {
  readonly name: string;
  readonly server: Server<ListenEvents, EmitEvents, ServerSideEvents, SocketData>;
  readonly sockets = new Map<SocketId, Socket<ListenEvents, EmitEvents, ServerSideEvents, SocketData>>();
  readonly adapter = new Adapter();
  readonly link: Link;
  /** The events for clients that come back, if the app wants that. */
  readonly recovery: Recovery | undefined;
  /** The other backends. */
  readonly siblings: Siblings = new Siblings(this as unknown as Namespace);
  readonly #middlewares: Array<Middleware<Socket<ListenEvents, EmitEvents, ServerSideEvents, SocketData>>> = [];
  /** Sessions whose middlewares run, and open ones, by the server's handle. */
  readonly #byHandle = new Map<SessionHandle, Socket<ListenEvents, EmitEvents, ServerSideEvents, SocketData>>();
  /** Open sockets by the secrets of their clients. */
  readonly #bySecret = new Map<string, Socket<ListenEvents, EmitEvents, ServerSideEvents, SocketData>>();
  /** Sessions whose clients come back, until the other backends are known. */
  readonly #recovering = new Set<SessionHandle>();
  /** Sessions that are released as soon as their work is done. */
  readonly #leaving = new Set<SessionHandle>();

  /** Only the server makes namespaces. */
  constructor(server: Server<ListenEvents, EmitEvents, ServerSideEvents, SocketData>, name: string, link: Link, recovery?: RecoveryOptions) {
    super();
    this.server = server;
    this.name = name;
    this.link = link;
    this.recovery = recovery && new Recovery(recovery);
  }

  /** Adds a listener for new sockets, or for an event of other apps. */
  override on(event: 'connection' | 'connect', listener: (socket: Socket<ListenEvents, EmitEvents, ServerSideEvents, SocketData>) => void): this;
  override on<Event extends EventNames<ServerSideEvents>>(event: Event, listener: ServerSideEvents[Event]): this;
  override on(event: string, listener: (...args: never[]) => void): this {
    return super.on(event, listener as (...args: unknown[]) => void);
  }

  override once(event: 'connection' | 'connect', listener: (socket: Socket<ListenEvents, EmitEvents, ServerSideEvents, SocketData>) => void): this;
  override once<Event extends EventNames<ServerSideEvents>>(event: Event, listener: ServerSideEvents[Event]): this;
  override once(event: string, listener: (...args: never[]) => void): this {
    return super.once(event, listener as (...args: unknown[]) => void);
  }

  /** Adds a function that decides about each new socket. */
  use(middleware: Middleware<Socket<ListenEvents, EmitEvents, ServerSideEvents, SocketData>>): this {
    this.#middlewares.push(middleware);
    return this;
  }

  /** The middlewares, for namespaces that are made by a pattern. */
  inherit(parent: Namespace<ListenEvents, EmitEvents, ServerSideEvents, SocketData>): void {
    this.#middlewares.push(...parent.#middlewares);
    for (const event of ['connection', 'connect'] as const) {
      for (const listener of parent.listeners(event)) super.on(event, listener as () => void);
    }
  }

  #all(): BroadcastOperator<EmitEvents, SocketData> {
    return new BroadcastOperator<EmitEvents, SocketData>(this as unknown as Namespace);
  }

  to(room: Room | readonly Room[]): BroadcastOperator<EmitEvents, SocketData> {
    return this.#all().to(room);
  }

  in(room: Room | readonly Room[]): BroadcastOperator<EmitEvents, SocketData> {
    return this.#all().to(room);
  }

  except(room: Room | readonly Room[]): BroadcastOperator<EmitEvents, SocketData> {
    return this.#all().except(room);
  }

  compress(compress: boolean): BroadcastOperator<EmitEvents, SocketData> {
    return this.#all().compress(compress);
  }

  get volatile(): BroadcastOperator<EmitEvents, SocketData> {
    return this.#all().volatile;
  }

  get local(): BroadcastOperator<EmitEvents, SocketData> {
    return this.#all().local;
  }

  timeout(timeoutMs: number): BroadcastOperator<EmitEvents, SocketData> {
    return this.#all().timeout(timeoutMs);
  }

  override emit<Event extends EventNames<EmitEvents>>(event: Event, ...args: BroadcastParams<EventParams<EmitEvents, Event>>): boolean {
    return this.#all().emit(event, ...args);
  }

  emitWithAck<Event extends EventNames<EmitEvents>>(event: Event, ...args: WithoutAck<EventParams<EmitEvents, Event>>): Promise<Array<AckOf<EventParams<EmitEvents, Event>>>> {
    return this.#all().emitWithAck(event, ...args);
  }

  send(...args: EventParams<EmitEvents, EventNames<EmitEvents>>): this {
    this.emit('message' as EventNames<EmitEvents>, ...(args as BroadcastParams<typeof args>));
    return this;
  }

  write(...args: EventParams<EmitEvents, EventNames<EmitEvents>>): this {
    return this.send(...args);
  }

  fetchSockets(): Promise<Array<RemoteSocket<EmitEvents, SocketData>>> {
    return this.#all().fetchSockets();
  }

  socketsJoin(rooms: Room | Room[]): void {
    this.#all().socketsJoin(rooms);
  }

  socketsLeave(rooms: Room | Room[]): void {
    this.#all().socketsLeave(rooms);
  }

  disconnectSockets(close = false): void {
    this.#all().disconnectSockets(close);
  }

  allSockets(): Promise<Set<SocketId>> {
    return this.#all().allSockets();
  }

  /** Sends an event to the apps of the other backends. If the last argument is a function, it gets their answers. */
  serverSideEmit<Event extends EventNames<ServerSideEvents>>(event: Event, ...args: BroadcastParams<EventParams<ServerSideEvents, Event>>): boolean {
    checkBetweenServers(event);
    const values = args as unknown[];
    const ack = values.at(-1);
    if (typeof ack !== 'function') {
      this.siblings.emit(event, values);
      return true;
    }
    this.siblings.emitWithAck(event, values.slice(0, -1)).then(
      (responses) => queueMicrotask(() => (ack as Ack)(null, responses)),
      (error: Error & { responses?: unknown[] }) => queueMicrotask(() => (ack as Ack)(error, error.responses ?? [])),
    );
    return true;
  }

  /** Sends an event to the apps of the other backends, and resolves with their answers. */
  async serverSideEmitWithAck<Event extends EventNames<ServerSideEvents>>(event: Event, ...args: WithoutAck<EventParams<ServerSideEvents, Event>>): Promise<Array<AckOf<EventParams<ServerSideEvents, Event>>>> {
    checkBetweenServers(event);
    return (await this.siblings.emitWithAck(event, args as unknown[])) as Array<AckOf<EventParams<ServerSideEvents, Event>>>;
  }

  /** For operators: the sockets of this backend in any of the rooms, and in none of the excepted ones. */
  matching({ rooms, except }: Selection): Socket[] {
    const isIn = (some: Room[]) => (socket: Socket): boolean => some.some((room) => socket.rooms.has(room));
    const sockets = [...this.sockets.values()] as unknown as Socket[];
    const chosen = rooms.length > 0 ? sockets.filter(isIn(rooms)) : sockets;
    return except.length > 0 ? chosen.filter((socket) => !isIn(except)(socket)) : chosen;
  }

  /** For other backends: an event of their apps. */
  dispatch(event: string, args: readonly unknown[]): void {
    super.emit(event, ...args);
  }

  /** Sends an event to sockets. */
  publish(event: string, args: readonly unknown[], to: Targets): void {
    checkName(event);
    this.link.broadcast(this.#broadcast(event, args, to, this.kept(event, args, to)));
  }

  /** Sends an event to sockets and resolves with the answers of their clients. */
  ask(event: string, args: readonly unknown[], to: Targets, timeoutMs: number): Promise<Payload[]> {
    return this.link.ask(this.#broadcast(event, args, to), timeoutMs);
  }

  #broadcast(event: string, args: readonly unknown[], to: Targets, payload = publicationOf(event, args)): Broadcast {
    checkName(event);
    return {
      namespace: this.name,
      rooms: [...to.rooms],
      except: [...to.except],
      sender: to.sender?.handle,
      isLocal: to.isLocal,
      ...payload,
    };
  }

  /** For sockets, too: the payload of an event that clients get again if they have missed it. */
  kept(event: string, args: readonly unknown[], { rooms, except, sender, isVolatile }: Targets): Payload | undefined {
    if (!this.recovery || isVolatile) return undefined;
    const payload = payloadOf([event, ...args, this.recovery.nextOffset()]);
    this.recovery.keep(payload, rooms, except, sender?.id);
    return payload;
  }

  /** For the server: a session wants to open, or comes from another backend. */
  open({ session, handshake, id, rooms, data }: OpenedSession): void {
    const known = id === undefined ? undefined : this.sockets.get(id);
    if (known) {
      this.#byHandle.set(session, known);
      known.rebind(session, rooms);
      return;
    }
    const made = (id: SocketId, isRecovered: boolean, pid?: string): Socket<ListenEvents, EmitEvents, ServerSideEvents, SocketData> => {
      const socket = new Socket<ListenEvents, EmitEvents, ServerSideEvents, SocketData>(this, id, session, handshakeOf(handshake), isRecovered, pid);
      this.#byHandle.set(session, socket);
      return socket;
    };
    if (id !== undefined) {
      const socket = made(id, true);
      socket.restore(rooms);
      socket.restoreData(data);
      return this.#opened(socket, rooms);
    }
    const begin = (): void => {
      const socket = made(randomBytes(15).toString('base64url'), false, this.recovery && newSecret());
      this.#run(socket, session, 0, () => this.#accept(socket, session));
    };
    const { recovery } = this;
    const pid = recovery && secretIn(handshake.auth);
    if (!recovery || pid === undefined) return begin();
    this.#recovering.add(session);
    void this.siblings.areThere().then((areThere) => {
      // The client may have gone before the others answered.
      if (!this.#recovering.delete(session)) return;
      recovery.noteOthers(areThere);
      this.#takeOver(pid);
      const taken = recovery.take(pid, handshake.auth['offset']);
      if (!taken) return begin();
      const socket = made(taken.socket.id, true, pid);
      const accept = (): void => this.#recover(socket, session, taken);
      if (recovery.skipsMiddlewares) return accept();
      this.#run(socket, session, 0, accept);
    });
  }

  /** Ends a socket that is still connected, as far as the server knows, after its client has connected again. */
  #takeOver(pid: string): void {
    const socket = this.#bySecret.get(pid);
    if (!socket) return;
    const { handle } = socket;
    socket.ended('transport close');
    if (handle) this.link.end(handle, true);
  }

  /** Opens a socket with the state of an earlier one. The client gets what it has missed before it is connected, as in `socket.io`. */
  #recover(socket: Socket<ListenEvents, EmitEvents, ServerSideEvents, SocketData>, session: SessionHandle, { socket: { rooms, data }, missed }: { socket: SavedSocket; missed: Payload[] }): void {
    socket.restore(rooms);
    socket.data = data as SocketData;
    for (const payload of missed) this.link.send(session, payload);
    this.#accept(socket, session);
  }

  #accept(socket: Socket<ListenEvents, EmitEvents, ServerSideEvents, SocketData>, session: SessionHandle): void {
    this.link.accept(session, socket.id, socket.pid);
    if (socket.pid !== undefined) {
      this.#bySecret.set(socket.pid, socket);
      this.recovery?.began(socket.pid);
    }
    this.#opened(socket, []);
  }

  #run(socket: Socket<ListenEvents, EmitEvents, ServerSideEvents, SocketData>, session: SessionHandle, index: number, accept: () => void): void {
    const middleware = this.#middlewares[index];
    if (!middleware) {
      // The client may have gone while a middleware waited.
      if (this.#byHandle.get(session) === socket) accept();
      return;
    }
    middleware(socket, (error) => {
      if (!error) return this.#run(socket, session, index + 1, accept);
      if (!this.#byHandle.delete(session)) return;
      socket.ended('server namespace disconnect');
      const { message, data } = error;
      this.link.refuse(session, JSON.stringify({ message, data }));
    });
  }

  #opened(socket: Socket<ListenEvents, EmitEvents, ServerSideEvents, SocketData>, rooms: readonly Room[]): void {
    this.sockets.set(socket.id, socket);
    socket.opened(rooms);
    for (const event of ['connect', 'connection']) socket.track(callListeners(this, event, [socket]));
    socket.dataMayChange();
    this.workDone(socket as unknown as Socket);
  }

  /** For sockets: whether the server keeps their data for the next process. */
  get keepsData(): boolean {
    return this.link.keepsData;
  }

  /** For the server: releases a session, which gets no further events, as soon as its work is done. */
  handedOver(session: SessionHandle): void {
    this.#leaving.add(session);
    const socket = this.#byHandle.get(session);
    if (socket) this.workDone(socket as unknown as Socket);
  }

  /** For sockets: one may have nothing left to do. */
  workDone(socket: Socket): void {
    const { handle } = socket;
    if (handle === undefined || socket.isBusy || !this.#leaving.delete(handle)) return;
    socket.sendData();
    this.#byHandle.delete(handle);
    socket.released();
    this.link.release(handle);
  }

  /** For the server: the socket of a handle, which may not be open. */
  find(session: SessionHandle): Socket<ListenEvents, EmitEvents, ServerSideEvents, SocketData> | undefined {
    return this.#byHandle.get(session);
  }

  /** For the server: a session has ended. */
  closed(session: SessionHandle, reason: keyof typeof REASONS): void {
    const socket = this.#byHandle.get(session);
    this.#byHandle.delete(session);
    this.#recovering.delete(session);
    socket?.ended(REASONS[reason] ?? 'transport close');
  }

  /** For the server: the backend serves the namespace, also after it has lost its server. */
  served(): void {
    if (this.recovery) void this.siblings.areThere().then((areThere) => this.recovery?.noteOthers(areThere));
  }

  /** For sockets: it has ended. */
  forget(socket: Socket): void {
    this.sockets.delete(socket.id);
    if (socket.pid !== undefined) this.#bySecret.delete(socket.pid);
    if (socket.handle) this.#byHandle.delete(socket.handle);
  }

  /** For the server: the backend has lost its server. The handles are invalid, and sessions that were not open are forgotten. */
  unbind(): void {
    for (const socket of this.#byHandle.values()) if (!socket.connected) socket.ended('transport close');
    this.#byHandle.clear();
    this.#recovering.clear();
    for (const socket of this.sockets.values()) socket.rebind(undefined);
  }
}
