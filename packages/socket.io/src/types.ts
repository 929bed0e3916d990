// The types of events, with the names and the defaults of `socket.io`.

/** Events, each with its listener. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export interface EventsMap { [event: string]: any }

/** Events with any arguments. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export interface DefaultEventsMap { [event: string]: (...args: any[]) => void }

export type EventNames<Map extends EventsMap> = keyof Map & string;
/** The arguments of an event. */
export type EventParams<Map extends EventsMap, Event extends EventNames<Map>> = Parameters<Map[Event]>;

type Last<List extends unknown[]> = List extends [...infer _, infer Final] ? Final : unknown;
type AllButLast<List extends unknown[]> = List extends [...infer Start, infer _] ? Start : never;
/** The first argument of the acknowledgement of an event. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type AckOf<List extends unknown[]> = Last<List> extends (...args: infer Args) => any ? (Args extends [infer First, ...unknown[]] ? First : void) : unknown;
/** The arguments without the acknowledgement. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type WithoutAck<List extends unknown[]> = Last<List> extends (...args: any[]) => any ? AllButLast<List> : List;

/** The arguments of a broadcast: its acknowledgement gets an error or the answers of all clients. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type BroadcastParams<List extends unknown[]> = Last<List> extends (...args: any[]) => any
  ? [...AllButLast<List>, (error: Error, responses: Array<AckOf<List>>) => void]
  : List;

/** Any arguments of an event at run time. */
export type Args = unknown[];
/** A callback for an acknowledgement. */
export type Ack = (...args: Args) => void;
export type Room = string;
export type SocketId = string;

/** Events that each side fires itself. */
const RESERVED = new Set(['connect', 'connect_error', 'disconnect', 'disconnecting', 'newListener', 'removeListener']);

/** @throws if apps must not send an event with this name. */
export function checkName(event: unknown): asserts event is string {
  if (typeof event !== 'string') throw new TypeError(`the name of an event is a string, not ${typeof event}`);
  if (RESERVED.has(event)) throw new Error(`"${event}" is a reserved event name`);
}

/** Events of a namespace that other apps can't send. */
const RESERVED_BETWEEN_SERVERS = new Set(['connect', 'connection', 'new_namespace']);

/** @throws if apps must not send each other an event with this name. */
export function checkBetweenServers(event: unknown): asserts event is string {
  if (typeof event !== 'string') throw new TypeError(`the name of an event is a string, not ${typeof event}`);
  if (RESERVED_BETWEEN_SERVERS.has(event)) throw new Error(`"${event}" is a reserved event name`);
}

/** A part of the API that this package does not have. */
export function missing(what: string, instead: string): Error {
  return new Error(`@tidewire/socket.io does not have ${what}; ${instead}`);
}

/** An array of what may be one value. */
export function listOf<T>(values: T | readonly T[]): readonly T[] {
  return Array.isArray(values) ? (values as readonly T[]) : [values as T];
}
