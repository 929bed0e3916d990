// A socket: the session of one client in one namespace.

import { EventEmitter } from 'node:events';
import type { Handshake as Request, Payload, SessionHandle } from '@tidewire/server';
import { BroadcastOperator } from './broadcast.js';
import type { Namespace } from './namespace.js';
import { callListeners, promiseOf, Work } from './listeners.js';
import { payloadOf, valuesOf } from './payload.js';
import type { Server } from './server.js';
import { checkName, listOf, missing, type Ack, type AckOf, type Args, type DefaultEventsMap, type EventNames, type EventParams, type EventsMap, type Room, type SocketId, type WithoutAck } from './types.js';

export type DisconnectReason =
  | 'client namespace disconnect'
  | 'server namespace disconnect'
  | 'ping timeout'
  | 'transport close'
  | 'server shutting down';

/** The request with which a client has connected. */
export interface Handshake {
  headers: Record<string, string | string[] | undefined>;
  /** When the backend got the session. */
  time: string;
  address: string;
  xdomain: boolean;
  secure: boolean;
  issued: number;
  url: string;
  query: Record<string, string | string[] | undefined>;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  auth: Record<string, any>;
}

/** Joined as Node does it: the values of a repeated header. */
function headersOf(headers: ReadonlyArray<readonly [string, string]>): Handshake['headers'] {
  const joined: Record<string, string> = {};
  for (const [name, value] of headers) joined[name] = name in joined ? `${joined[name]}${name === 'cookie' ? '; ' : ', '}${value}` : value;
  return joined;
}

export function handshakeOf({ address = '', url = '/', secure = false, headers = [], auth }: Request): Handshake {
  const now = new Date();
  const query: Handshake['query'] = {};
  for (const [name, value] of new URL(url, 'http://localhost').searchParams) {
    const known = query[name];
    query[name] = known === undefined ? value : [...listOf(known), value];
  }
  const all = headersOf(headers);
  // An app that shares its port writes `Forwarded` last, whatever its client has sent.
  const scheme = /;proto=(\w+)$/.exec(`${all['forwarded'] ?? ''}`)?.[1] ?? all['x-forwarded-proto'];
  return {
    headers: all,
    time: `${now}`,
    address,
    xdomain: all['origin'] !== undefined,
    secure: secure || scheme === 'https',
    issued: now.getTime(),
    url,
    query,
    auth,
  };
}

/** The reasons after which a client may come back to its socket. */
const RECOVERABLE: ReadonlySet<DisconnectReason> = new Set(['ping timeout', 'transport close', 'server shutting down']);

/** The JSON form of the data of a new socket. */
const NO_DATA = '{}';

let serials = 0;

interface PendingAck {
  settle: (error: Error | undefined, args: Args) => void;
  timer: NodeJS.Timeout | undefined;
}

type Middleware = (event: [string, ...Args], next: (error?: Error) => void) => unknown;
type Catcher = (event: string, ...args: Args) => unknown;

export class Socket<
  ListenEvents extends EventsMap = DefaultEventsMap,
  EmitEvents extends EventsMap = ListenEvents,
  ServerSideEvents extends EventsMap = DefaultEventsMap,
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  SocketData = any,
> extends EventEmitter {
  readonly id: SocketId;
  readonly nsp: Namespace<ListenEvents, EmitEvents, ServerSideEvents, SocketData>;
  readonly handshake: Handshake;
  /** Whether another backend has served the session before, or a socket continues that had lost its connection. */
  readonly recovered: boolean;
  /** The secret with which the client can have the socket back. */
  readonly pid: string | undefined;
  /** Any value. Another process that continues the socket gets its JSON form, as it was after the last event. */
  data = {} as SocketData;
  /** While listeners of an event run: whether a process that has ended may have handled the event. See the option `delivery`. */
  redelivered = false;
  /** Later sockets have larger numbers. */
  readonly serial = (serials += 1);
  connected = false;
  readonly rooms = new Set<Room>();
  #hasEnded = false;
  #handle: SessionHandle | undefined;
  #acks = new Map<string, PendingAck>();
  #ackCount = 0;
  #timeoutMs: number | undefined;
  #isVolatile = false;
  /** Handlers of events that run, and answers that the client waits for. */
  #workCount = 0;
  /** The JSON form of the data that the server has. */
  #knownData = NO_DATA;
  #isDataDue = false;
  readonly #middlewares: Middleware[] = [];
  readonly #catchers = { incoming: [] as Catcher[], outgoing: [] as Catcher[] };

  /** Only the namespace makes sockets. */
  constructor(namespace: Namespace<ListenEvents, EmitEvents, ServerSideEvents, SocketData>, id: SocketId, handle: SessionHandle, handshake: Handshake, recovered: boolean, pid?: string) {
    super();
    this.nsp = namespace;
    this.id = id;
    this.#handle = handle;
    this.handshake = handshake;
    this.recovered = recovered;
    this.pid = pid;
  }

  get disconnected(): boolean {
    return !this.connected;
  }

  get server(): Server<ListenEvents, EmitEvents, ServerSideEvents, SocketData> {
    return this.nsp.server;
  }

  /** Whether it is not open yet, has something to do for its client, or waits for an answer of the client. */
  get isBusy(): boolean {
    return !this.connected || this.#workCount > 0 || this.#acks.size > 0;
  }

  /** The server's handle; `undefined` while the backend has lost its server. */
  get handle(): SessionHandle | undefined {
    return this.#handle;
  }

  /** @throws always. */
  get conn(): never {
    throw missing('socket.conn', 'the server has the connection; socket.handshake has the address and the headers');
  }

  /** @throws always. */
  get client(): never {
    throw missing('socket.client', 'the server has the connection; use io.of(namespace).sockets');
  }

  /** The parts of the request that middlewares read. */
  get request(): { headers: Handshake['headers']; url: string; method: string; connection: { remoteAddress: string }; socket: { remoteAddress: string } } {
    const { headers, url, address: remoteAddress } = this.handshake;
    return { headers, url, method: 'GET', connection: { remoteAddress }, socket: { remoteAddress } };
  }

  /** Adds a listener for an event of the client, or for `disconnecting` and `disconnect`. */
  override on<Event extends EventNames<ListenEvents>>(event: Event, listener: ListenEvents[Event]): this;
  override on(event: 'disconnect' | 'disconnecting', listener: (reason: DisconnectReason, description?: unknown) => void): this;
  override on(event: 'error', listener: (error: Error) => void): this;
  override on(event: string, listener: (...args: never[]) => void): this {
    return super.on(event, listener as (...args: unknown[]) => void);
  }

  override once<Event extends EventNames<ListenEvents>>(event: Event, listener: ListenEvents[Event]): this;
  override once(event: 'disconnect' | 'disconnecting', listener: (reason: DisconnectReason, description?: unknown) => void): this;
  override once(event: string, listener: (...args: never[]) => void): this {
    return super.once(event, listener as (...args: unknown[]) => void);
  }

  /** Sends an event to the client. If the last argument is a function, it gets the answer of the client. */
  override emit<Event extends EventNames<EmitEvents>>(event: Event, ...args: EventParams<EmitEvents, Event>): boolean {
    checkName(event);
    const timeoutMs = this.#timeoutMs;
    this.#timeoutMs = undefined;
    const values = args as unknown[];
    const last = values.at(-1);
    for (const catcher of this.#catchers.outgoing) catcher(event, ...values);
    const isVolatile = this.#isVolatile;
    this.#isVolatile = false;
    if (typeof last !== 'function') {
      this.#publish(event, values, isVolatile);
      return true;
    }
    const ack = last as Ack;
    const settle: PendingAck['settle'] = (error, answer) => {
      if (timeoutMs === undefined) ack(...answer);
      else if (error) ack(error);
      else ack(null, ...answer);
    };
    this.#request([event, ...values.slice(0, -1)], timeoutMs, settle);
    return true;
  }

  /** Sends an event and resolves with the answer of the client. Without a timeout it waits as long as the client is connected. */
  emitWithAck<Event extends EventNames<EmitEvents>>(event: Event, ...args: WithoutAck<EventParams<EmitEvents, Event>>): Promise<AckOf<EventParams<EmitEvents, Event>>> {
    checkName(event);
    const timeoutMs = this.#timeoutMs;
    this.#timeoutMs = undefined;
    for (const catcher of this.#catchers.outgoing) catcher(event, ...(args as unknown[]));
    return new Promise((resolve, reject) => {
      this.#request([event, ...(args as unknown[])], timeoutMs, (error, [answer]) => (error ? reject(error) : resolve(answer as AckOf<EventParams<EmitEvents, Event>>)));
    });
  }

  send(...args: EventParams<EmitEvents, EventNames<EmitEvents>>): this {
    this.emit('message' as EventNames<EmitEvents>, ...args);
    return this;
  }

  write(...args: EventParams<EmitEvents, EventNames<EmitEvents>>): this {
    return this.send(...args);
  }

  #send(values: Args, id?: string): void {
    if (this.connected && this.#handle) this.nsp.link.send(this.#handle, payloadOf(values), id);
  }

  /** Sends an event without an acknowledgement. While the connection is lost, it waits for the client that comes back. */
  #publish(event: string, values: Args, isVolatile: boolean): void {
    const none = new Set<Room>();
    const kept = this.connected ? this.nsp.kept(event, values, { rooms: new Set([this.id]), except: none, isVolatile }) : undefined;
    if (!kept) return this.#send([event, ...values]);
    if (this.#handle) this.nsp.link.send(this.#handle, kept);
  }

  #request(values: Args, timeoutMs: number | undefined, settle: PendingAck['settle']): void {
    const id = `${this.#ackCount}`;
    this.#ackCount += 1;
    const expire = (): void => {
      this.#acks.delete(id);
      settle(new Error('operation has timed out'), []);
    };
    const timer = timeoutMs === undefined ? undefined : setTimeout(expire, timeoutMs);
    this.#acks.set(id, { settle, timer });
    this.#send(values, id);
  }

  /** The next emit fails if the client does not answer in time. */
  timeout(timeoutMs: number): this {
    this.#timeoutMs = timeoutMs;
    return this;
  }

  /** The server decides about compression. */
  compress(_compress: boolean): this {
    return this;
  }

  /** A client that comes back does not get the next event if it has missed it. Otherwise the server sends it as others. */
  get volatile(): this {
    this.#isVolatile = true;
    return this;
  }

  #others(): BroadcastOperator<EmitEvents, SocketData> {
    const [timeoutMs, isVolatile] = [this.#timeoutMs, this.#isVolatile];
    this.#timeoutMs = undefined;
    this.#isVolatile = false;
    return new BroadcastOperator<EmitEvents, SocketData>(this.nsp as unknown as Namespace, new Set(), new Set(), this as unknown as Socket, { timeoutMs, isVolatile });
  }

  get broadcast(): BroadcastOperator<EmitEvents, SocketData> {
    return this.#others();
  }

  get local(): BroadcastOperator<EmitEvents, SocketData> {
    return this.#others().local;
  }

  to(room: Room | readonly Room[]): BroadcastOperator<EmitEvents, SocketData> {
    return this.#others().to(room);
  }

  in(room: Room | readonly Room[]): BroadcastOperator<EmitEvents, SocketData> {
    return this.to(room);
  }

  except(room: Room | readonly Room[]): BroadcastOperator<EmitEvents, SocketData> {
    return this.#others().except(room);
  }

  /** Joins rooms. The server learns of a middleware's rooms when the session opens. After the end of the socket it has no effect. */
  join(rooms: Room | Room[]): void {
    if (this.#hasEnded) return;
    const added = listOf(rooms).filter((room) => !this.rooms.has(room));
    for (const room of added) {
      if (typeof room !== 'string' || room === '') throw new TypeError('a room is a string that is not empty');
      this.rooms.add(room);
      this.nsp.adapter.add(room, this.id);
    }
    if (this.connected && this.#handle) this.nsp.link.join(this.#handle, added);
  }

  leave(room: Room): void {
    if (!this.rooms.delete(room)) return;
    this.nsp.adapter.remove(room, this.id);
    if (this.connected && this.#handle) this.nsp.link.leave(this.#handle, [room]);
  }

  /** Ends the session, or with `close` the connection of the client with all its sessions. */
  disconnect(close = false): this {
    if (!this.connected) return this;
    const handle = this.#handle;
    this.ended('server namespace disconnect');
    if (handle) this.nsp.link.end(handle, close);
    return this;
  }

  /** Adds a function that sees each event of the client first. */
  use(middleware: Middleware): this {
    this.#middlewares.push(middleware);
    return this;
  }

  onAny(listener: Catcher): this {
    this.#catchers.incoming.push(listener);
    return this;
  }

  prependAny(listener: Catcher): this {
    this.#catchers.incoming.unshift(listener);
    return this;
  }

  offAny(listener?: Catcher): this {
    this.#catchers.incoming = listener ? without(this.#catchers.incoming, listener) : [];
    return this;
  }

  listenersAny(): Catcher[] {
    return [...this.#catchers.incoming];
  }

  onAnyOutgoing(listener: Catcher): this {
    this.#catchers.outgoing.push(listener);
    return this;
  }

  prependAnyOutgoing(listener: Catcher): this {
    this.#catchers.outgoing.unshift(listener);
    return this;
  }

  offAnyOutgoing(listener?: Catcher): this {
    this.#catchers.outgoing = listener ? without(this.#catchers.outgoing, listener) : [];
    return this;
  }

  listenersAnyOutgoing(): Catcher[] {
    return [...this.#catchers.outgoing];
  }

  /** For the namespace: the socket continues with these data, which the server has. */
  restoreData(data: unknown): void {
    if (data === undefined) return;
    this.data = data as SocketData;
    this.#knownData = jsonOf(data);
  }

  /** For the namespace: the socket continues in these rooms. */
  restore(rooms: readonly Room[]): void {
    for (const room of rooms) {
      this.rooms.add(room);
      this.nsp.adapter.add(room, this.id);
    }
  }

  /** For the namespace: the session is open. The server has it in these rooms. */
  opened(known: readonly Room[]): void {
    this.connected = true;
    const early = [...this.rooms].filter((room) => !known.includes(room));
    if (this.#handle && early.length > 0) this.nsp.link.join(this.#handle, early);
    this.join(this.id);
  }

  /** For the namespace: the session has this handle, or none while the backend has lost its server. */
  rebind(handle: SessionHandle | undefined, rooms: readonly Room[] = []): void {
    this.#handle = handle;
    if (!handle) return;
    const known = new Set(rooms);
    this.nsp.link.join(handle, [...this.rooms].filter((room) => !known.has(room)));
    this.nsp.link.leave(handle, rooms.filter((room) => !this.rooms.has(room)));
  }

  /** For the namespace: an event of the client, the number of processes that may have had it before, and a callback at the end of its handlers. */
  receive(payload: Payload, id: string | undefined, count: number, handled: () => void): void {
    const [event, ...args] = valuesOf(payload) as [string, ...Args];
    if (id !== undefined) args.push(this.#answering(id));
    const [done, work] = [this.#begin(), new Work(handled)];
    /** Adds what listeners or middlewares have begun. */
    const run = (call: () => ReadonlyArray<PromiseLike<unknown>>): void => {
      this.redelivered = count > 0;
      try {
        const running = call();
        work.add(running);
        this.track(running);
      } finally {
        this.redelivered = false;
      }
    };
    const pass = (index: number): void => {
      const middleware = this.#middlewares[index];
      if (!middleware) {
        try {
          return run(() => (this.connected ? callListeners(this, `${event}`, args) : []));
        } finally {
          done();
        }
      }
      run(() =>
        promiseOf(
          middleware([`${event}`, ...args], (error) => {
            if (!error) return pass(index + 1);
            if (this.listenerCount('error') > 0) super.emit('error', error);
            done();
          }),
        ),
      );
    };
    try {
      run(() => [...this.#catchers.incoming].flatMap((catcher) => promiseOf(catcher(event, ...args))));
      pass(0);
    } finally {
      work.end();
      this.dataMayChange();
    }
  }

  #answering(id: string): Ack {
    let isSent = false;
    const done = this.#begin();
    return (...args) => {
      if (isSent) return;
      isSent = true;
      if (this.connected && this.#handle) this.nsp.link.answer(this.#handle, id, payloadOf(args));
      done();
    };
  }

  /** Begins some work for the client. The returned function notes its end. */
  #begin(): () => void {
    this.#workCount += 1;
    let isDone = false;
    return () => {
      if (isDone) return;
      isDone = true;
      this.#workCount -= 1;
      this.nsp.workDone(this as unknown as Socket);
    };
  }

  /** For the namespace, too: handlers of the socket run until these promises are settled. A rejection stays unhandled. */
  track(running: ReadonlyArray<PromiseLike<unknown>>): void {
    for (const promise of running) {
      const done = this.#begin();
      void Promise.resolve(promise).finally(() => {
        this.dataMayChange();
        done();
      });
    }
  }

  /** For the namespace, too: gives the server the data at the end of this turn, if they have changed. */
  dataMayChange(): void {
    if (this.#isDataDue) return;
    this.#isDataDue = true;
    queueMicrotask(() => {
      this.#isDataDue = false;
      this.sendData();
    });
  }

  /** For the namespace: gives the server the data, if they have changed. */
  sendData(): void {
    if (!this.connected || !this.#handle || !this.nsp.keepsData) return;
    const data = jsonOf(this.data);
    if (data === this.#knownData) return;
    this.#knownData = data;
    this.nsp.link.setData(this.#handle, data);
  }

  /** For the namespace: the answer of the client to an event. */
  answered(id: string, payload: Payload): void {
    const pending = this.#acks.get(id);
    if (!pending) return;
    this.#acks.delete(id);
    clearTimeout(pending.timer);
    pending.settle(undefined, valuesOf(payload));
    this.dataMayChange();
    this.nsp.workDone(this as unknown as Socket);
  }

  /** For the namespace: another process continues the socket. There is no event: for the client it has not ended. */
  released(): void {
    this.#leaveAll();
    this.nsp.forget(this as unknown as Socket);
    this.connected = false;
    this.#handle = undefined;
  }

  /** For the namespace: the session has ended. */
  ended(reason: DisconnectReason): void {
    if (!this.connected) return this.#leaveAll();
    super.emit('disconnecting', reason);
    this.#save(reason);
    this.#leaveAll();
    this.nsp.forget(this as unknown as Socket);
    this.connected = false;
    this.#handle = undefined;
    const acks = this.#acks;
    this.#acks = new Map();
    for (const { settle, timer } of acks.values()) {
      // Without a timeout the callback is not called, as in `socket.io`.
      if (timer === undefined) continue;
      clearTimeout(timer);
      settle(new Error('socket has been disconnected'), []);
    }
    super.emit('disconnect', reason);
  }

  /** Keeps its state for a client that comes back, unless one side has ended it. */
  #save(reason: DisconnectReason): void {
    const { pid, id, rooms, data } = this;
    if (pid === undefined) return;
    if (RECOVERABLE.has(reason)) this.nsp.recovery?.save({ pid, id, rooms: [...rooms], data });
    else this.nsp.recovery?.forget(pid);
  }

  #leaveAll(): void {
    this.#hasEnded = true;
    for (const room of this.rooms) this.nsp.adapter.remove(room, this.id);
    this.rooms.clear();
  }
}

function without(list: Catcher[], listener: Catcher): Catcher[] {
  const index = list.indexOf(listener);
  return list.filter((_, at) => at !== index);
}

/** The JSON form of the data of a socket. Data without one are not kept, so that the next process gets no old ones. */
function jsonOf(data: unknown): string {
  try {
    return JSON.stringify(data) ?? NO_DATA;
  } catch (error) {
    process.emitWarning(`socket.data has no JSON form, so another process that continues a socket does not get it: ${(error as Error).message}`, { code: 'TIDEWIRE_SOCKET_DATA' });
    return NO_DATA;
  }
}
