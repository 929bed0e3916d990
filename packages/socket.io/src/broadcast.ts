// Broadcast operators: the targets of an event, or of an operation on sockets.

import type { AskError, Payload } from '@tidewire/server';
import type { Namespace } from './namespace.js';
import { valuesOf } from './payload.js';
import { perform, type Selection, type SocketDetails } from './siblings.js';
import type { Socket } from './socket.js';
import { checkName, listOf, type AckOf, type BroadcastParams, type DefaultEventsMap, type EventNames, type EventParams, type EventsMap, type Room, type SocketId, type WithoutAck } from './types.js';

/** The sockets for an event. */
export interface Targets {
  rooms: ReadonlySet<Room>;
  except: ReadonlySet<Room>;
  sender?: Socket | undefined;
  isLocal?: boolean | undefined;
  /** Whether clients that come back do not get it. */
  isVolatile?: boolean | undefined;
}

/** The time for acknowledgements without `timeout()`, as in `socket.io`. */
const DEFAULT_TIMEOUT_MS = 1;

/** Gets the answers of all clients, or an error and the answers that have arrived. Of a single socket it gets the answer. */
type Done = (error: Error | null, responses: unknown) => void;

interface Flags {
  isLocal?: boolean;
  isVolatile?: boolean;
  /** Whether an acknowledgement gets one answer instead of a list. */
  isSingle?: boolean;
  timeoutMs?: number | undefined;
}

/** A socket of another backend, as `fetchSockets` returns it. */
export class RemoteSocket<EmitEvents extends EventsMap = DefaultEventsMap, SocketData = unknown> {
  readonly id: SocketId;
  readonly handshake: Socket['handshake'];
  readonly rooms: Set<Room>;
  readonly data: SocketData;
  readonly #operator: BroadcastOperator<EmitEvents, SocketData>;

  constructor(namespace: Namespace, { id, handshake, rooms, data }: SocketDetails) {
    this.id = id;
    this.handshake = handshake;
    this.rooms = new Set(rooms);
    this.data = data as SocketData;
    this.#operator = new BroadcastOperator<EmitEvents, SocketData>(namespace, new Set([id]), new Set(), undefined, { isSingle: true });
  }

  /** An acknowledgement gets the answer of this socket. */
  timeout(timeoutMs: number): BroadcastOperator<EmitEvents, SocketData> {
    return this.#operator.timeout(timeoutMs);
  }

  emit<Event extends EventNames<EmitEvents>>(event: Event, ...args: BroadcastParams<EventParams<EmitEvents, Event>>): boolean {
    return this.#operator.emit(event, ...args);
  }

  join(rooms: Room | Room[]): void {
    this.#operator.socketsJoin(rooms);
  }

  leave(room: Room): void {
    this.#operator.socketsLeave(room);
  }

  disconnect(close = false): this {
    this.#operator.disconnectSockets(close);
    return this;
  }
}

/** The sockets in some rooms and not in others. Each method returns a new operator. */
export class BroadcastOperator<EmitEvents extends EventsMap = DefaultEventsMap, SocketData = unknown> {
  readonly #namespace: Namespace;
  readonly #rooms: ReadonlySet<Room>;
  readonly #except: ReadonlySet<Room>;
  readonly #sender: Socket | undefined;
  readonly #flags: Flags;

  constructor(namespace: Namespace, rooms: ReadonlySet<Room> = new Set(), except: ReadonlySet<Room> = new Set(), sender?: Socket, flags: Flags = {}) {
    this.#namespace = namespace;
    this.#rooms = rooms;
    this.#except = except;
    this.#sender = sender;
    this.#flags = flags;
  }

  #with(rooms: ReadonlySet<Room>, except: ReadonlySet<Room>, flags: Flags = {}): BroadcastOperator<EmitEvents, SocketData> {
    return new BroadcastOperator(this.#namespace, rooms, except, this.#sender, { ...this.#flags, ...flags });
  }

  to(room: Room | readonly Room[]): BroadcastOperator<EmitEvents, SocketData> {
    return this.#with(new Set([...this.#rooms, ...listOf(room)]), this.#except);
  }

  in(room: Room | readonly Room[]): BroadcastOperator<EmitEvents, SocketData> {
    return this.to(room);
  }

  except(room: Room | readonly Room[]): BroadcastOperator<EmitEvents, SocketData> {
    return this.#with(this.#rooms, new Set([...this.#except, ...listOf(room)]));
  }

  /** The server decides about compression. */
  compress(_compress: boolean): BroadcastOperator<EmitEvents, SocketData> {
    return this.#with(this.#rooms, this.#except);
  }

  /** A client that comes back does not get a volatile event that it has missed. Otherwise the server sends it as others. */
  get volatile(): BroadcastOperator<EmitEvents, SocketData> {
    return this.#with(this.#rooms, this.#except, { isVolatile: true });
  }

  get local(): BroadcastOperator<EmitEvents, SocketData> {
    return this.#with(this.#rooms, this.#except, { isLocal: true });
  }

  timeout(timeoutMs: number): BroadcastOperator<EmitEvents, SocketData> {
    return this.#with(this.#rooms, this.#except, { timeoutMs });
  }

  /** Sends an event. If the last argument is a function, it gets the answers of all clients, or an error with the answers until the timeout. */
  emit<Event extends EventNames<EmitEvents>>(event: Event, ...args: BroadcastParams<EventParams<EmitEvents, Event>>): boolean {
    checkName(event);
    const values = args as unknown[];
    const ack = values.at(-1);
    if (typeof ack !== 'function') {
      this.#namespace.publish(event, values, this.#targets());
      return true;
    }
    this.#ask(event, values.slice(0, -1), ack as Done);
    return true;
  }

  /** Sends an event and resolves with the answers of all clients. The error at the timeout has `responses`, the answers that have arrived. */
  emitWithAck<Event extends EventNames<EmitEvents>>(event: Event, ...args: WithoutAck<EventParams<EmitEvents, Event>>): Promise<Array<AckOf<EventParams<EmitEvents, Event>>>> {
    checkName(event);
    return new Promise((resolve, reject) => {
      this.#ask(event, args as unknown[], (error, responses) => (error ? reject(Object.assign(error, { responses })) : resolve(responses as never)));
    });
  }

  #targets(): Targets {
    return { rooms: this.#rooms, except: this.#except, sender: this.#sender, isLocal: this.#flags.isLocal, isVolatile: this.#flags.isVolatile };
  }

  #ask(event: string, args: readonly unknown[], done: Done): void {
    const first = (answers: readonly Payload[]): unknown[] => answers.map((answer) => valuesOf(answer)[0]);
    // Not a part of the promise, so that what the app throws is not an unhandled rejection.
    const settle = (error: Error | null, responses: unknown[]): void => {
      const shown = !this.#flags.isSingle ? responses : error ? null : responses[0];
      queueMicrotask(() => done(error, shown));
    };
    this.#namespace.ask(event, args, this.#targets(), this.#flags.timeoutMs ?? DEFAULT_TIMEOUT_MS).then(
      (answers) => settle(null, first(answers)),
      (error: AskError) => settle(error.reason === 'timeout' ? new Error('operation has timed out') : error, first(error.answers)),
    );
  }

  /** The sockets of all backends. It fails if one of these does not answer in time. */
  async fetchSockets(): Promise<Array<RemoteSocket<EmitEvents, SocketData>>> {
    const own = this.#own() as unknown as Array<RemoteSocket<EmitEvents, SocketData>>;
    if (this.#flags.isLocal) return own;
    const others = await this.#namespace.siblings.fetchSockets(this.#selection());
    return [...own, ...others.map((details) => new RemoteSocket<EmitEvents, SocketData>(this.#namespace, details))];
  }

  /** The ids of the same sockets. */
  async allSockets(): Promise<Set<SocketId>> {
    return new Set((await this.fetchSockets()).map(({ id }) => id));
  }

  socketsJoin(rooms: Room | Room[]): void {
    this.#perform({ socketsJoin: [...listOf(rooms)] });
  }

  socketsLeave(rooms: Room | Room[]): void {
    this.#perform({ socketsLeave: [...listOf(rooms)] });
  }

  disconnectSockets(close = false): void {
    this.#perform({ disconnectSockets: close });
  }

  #selection(): Selection {
    return { rooms: [...this.#rooms], except: [...this.#except] };
  }

  #own(): Socket[] {
    return this.#namespace.matching(this.#selection()).filter((socket) => socket !== this.#sender);
  }

  #perform(command: Parameters<typeof perform>[1]): void {
    for (const socket of this.#own()) perform(socket, command);
    if (!this.#flags.isLocal) this.#namespace.siblings.command(this.#selection(), command);
  }
}
