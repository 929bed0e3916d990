// Events: publish and subscribe. If the server keeps a history of an event, a new session receives the events that it missed.

import type { Connection, Part } from './connection.js';
import { payload, valueOf } from './data.js';
import { TidewireError, checkName, refused } from './error.js';
import { Interest, subscription, type Subscription } from './interest.js';
import { EventAction, Topic, type Message, type Position } from './protocol.js';
import { tooMany } from './request.js';
import type { EventsOf, Names, Optional, Schema, ValueOf } from './schema.js';

/** The name of an event, its position in the history, and its trace. */
export interface EventContext {
  readonly name: string;
  /**
   * The position in the event's history, for a later `from`. Absent if the server keeps no history, and for events that this client
   * emitted.
   */
  readonly position?: Position;
  /** The `traceparent` of the event's trace (W3C Trace Context); absent if the event has no trace. */
  readonly traceparent?: string;
  /** The content type of a payload of bytes, a `Uint8Array`; absent if it was emitted by this client without one. */
  readonly contentType?: string;
}

export interface EmitOptions {
  /** The content type of a payload of bytes. Without it, other clients see `application/octet-stream`. */
  contentType?: string;
}

/** How publications are traced. */
export interface TraceOptions {
  /** Returns the `traceparent` (W3C Trace Context) of an event when it is emitted, if it has a trace. */
  traceparent?: () => string | undefined;
}

/** Events that were missed and will not arrive. */
export interface Gap {
  readonly name: string;
  /** The number of missed events; absent if it is unknown. */
  readonly missed?: number;
}

export interface SubscribeOptions {
  /** The position after which the events continue, as an earlier event had it. Only for the first subscription of a name. */
  from?: Position;
  /** Called when events were missed: the server keeps no history of them, the history has ended, or this client reads too slowly. */
  onGap?: (gap: Gap) => void;
  /** Called when the server refused the subscription or revoked the right to it: no more events arrive. */
  onEnd?: (error: TidewireError) => void;
}

export type EventCallback = (payload: never, context: EventContext) => void;

interface Subscriber extends SubscribeOptions {
  callback: EventCallback;
}

/** An event that waits for a connection, and its deadline. */
interface Waiting {
  message: Message;
  deadline: number;
}

export class Events<App extends Schema = {}> {
  readonly #interest: Interest;
  readonly #subscribers = new Map<string, Set<Subscriber>>();
  readonly #positions = new Map<string, Position>();
  /**
   * Names whose subscription the server has begun with a position or a gap. Events with an offset that arrive earlier belong to a former
   * subscription of the name, and come again in this one.
   */
  readonly #begun = new Set<string>();
  /** Names with missed events that can't be recovered, because the server keeps no history of them. */
  readonly #unkept = new Set<string>();
  /**
   * The callbacks of patterns that match a name: `@tidewire/client/patterns` sets it.
   *
   * @internal
   */
  patterns: { of(name: string): EventCallback[] } | undefined;
  #queue: Waiting[] = [];

  constructor(
    /** @internal */
    readonly connection: Connection,
    private readonly traces: TraceOptions,
  ) {
    this.#interest = new Interest(connection, {
      topic: Topic.Event,
      subscribe: EventAction.Subscribe,
      unsubscribe: EventAction.Unsubscribe,
      fields: (names) => ({ positions: names.map((name) => ({ name, ...this.#positions.get(name) })) }),
      refused: (name, error) => this.#end(name, error),
    });
    const own: Part = {
      handle: (message, code) => this.#handle(message, code),
      opened: (isNew) => this.#opened(isNew),
      lost: () => {
        for (const name of this.names) if (!this.#positions.has(name)) this.#unkept.add(name);
      },
      closed: () => {
        this.#queue = [];
      },
    };
    connection.parts.set(Topic.Event, [this.#interest, own]);
  }

  /** The names of all subscriptions. */
  get names(): string[] {
    return [...this.#subscribers.keys()];
  }

  /**
   * Publishes an event to all other subscribers of its name, and at once to the subscribers in this client. The server does not acknowledge
   * it. Without a connection the event waits at most `requestTimeoutMs`; if it is too late then, `onError` reports it. Throws TOO_LARGE if
   * the event exceeds the server's limit. The payload is a JSON value or, as bytes, a `Uint8Array`.
   */
  emit<Name extends Names<EventsOf<App>>>(name: Name, ...[value, options]: Optional<ValueOf<EventsOf<App>, Name>, EmitOptions>): void {
    checkName(name);
    this.connection.checkUse();
    const traceparent = this.traces.traceparent?.();
    const content = value instanceof Uint8Array ? { bytes: value.slice() } : payload(value);
    const message: Message = { ...options, topic: Topic.Event, action: EventAction.Emit, name, ...content, traceparent };
    this.connection.judge('event', name, message.bytes ?? message.data);
    // If other events wait, this one waits behind them, so that they keep their order.
    if (this.#queue.length > 0 || !this.connection.send(message)) {
      const { pendingMax, requestTimeoutMs } = this.connection.options;
      this.connection.encode(message);
      if (this.#queue.length >= pendingMax) throw tooMany(pendingMax);
      this.#queue.push({ message, deadline: Date.now() + requestTimeoutMs });
    }
    this.#deliver(message);
  }

  /** Calls `callback` with every event of `name` until the subscription is removed. */
  subscribe<Name extends Names<EventsOf<App>>>(
    name: Name,
    callback: (payload: ValueOf<EventsOf<App>, Name>, context: EventContext) => void,
    options: SubscribeOptions = {},
  ): Subscription {
    checkName(name);
    this.connection.checkCallback(callback);
    let all = this.#subscribers.get(name);
    if (options.from) {
      if (all) throw new TidewireError('INVALID_ARGUMENT', `"${name}" has a subscription already, whose place can't be changed`);
      this.#positions.set(name, options.from);
    }
    if (!all) this.#subscribers.set(name, (all = new Set()));
    const subscriber: Subscriber = { ...options, callback };
    all.add(subscriber);
    return subscription(this.#interest.want(name), () => {
      const left = this.#subscribers.get(name);
      if (!left?.delete(subscriber) || left.size > 0) return;
      this.#forget(name);
      this.#interest.drop(name);
    });
  }

  #handle(message: Message, code: string | undefined): void {
    const { action, name = '', missed, epoch, offset } = message;
    if (code !== undefined) this.connection.onError(refused(code, name));
    else if (action === EventAction.Emit) this.#deliver(message);
    else if (!this.#subscribers.has(name)) return;
    else if (action === EventAction.Position) this.#begin(name, { epoch, offset } as Position);
    else if (action === EventAction.Gap) {
      // The position of a gap is the position of the first event after it.
      if (epoch !== undefined && offset !== undefined) this.#begin(name, { epoch, offset: offset - 1 });
      // If the gap has no position and no count, the server keeps no history. A lagging subscriber gets a count and keeps its position.
      else if (missed === undefined) this.#positions.delete(name);
      this.#tellGap(missed === undefined ? { name } : { name, missed });
    }
  }

  #opened(isNew: boolean): void {
    const queue = this.#queue;
    this.#queue = [];
    for (const { message, deadline } of queue) {
      try {
        if (deadline <= Date.now()) throw new TidewireError('TIMEOUT', 'an event waited too long for a connection', { subject: message.name });
        this.connection.send(message);
      } catch (error) {
        this.connection.onError(error as TidewireError);
      }
    }
    if (!isNew) return;
    for (const name of this.#unkept) this.#tellGap({ name });
    this.#unkept.clear();
  }

  #deliver({ name = '', data, bytes, contentType, offset, traceparent }: Message): void {
    const isEarly = offset !== undefined && !this.#begun.has(name);
    const own = [...((!isEarly && this.#subscribers.get(name)) || [])].map(({ callback }) => callback);
    const callbacks = [...own, ...(this.patterns?.of(name) ?? [])];
    if (callbacks.length === 0) return;
    const last = this.#positions.get(name);
    const position = offset === undefined || !last ? undefined : { epoch: last.epoch, offset };
    if (position) this.#positions.set(name, position);
    const context: EventContext = { name, ...(position && { position }), ...(traceparent && { traceparent }), ...(contentType && { contentType }) };
    const error = this.connection.validate?.('event', name, valueOf(bytes ?? data));
    if (error) return this.connection.onError(error);
    for (const callback of callbacks) this.connection.call(callback, valueOf(bytes ?? data) as never, context);
  }

  #begin(name: string, position: Position): void {
    this.#positions.set(name, position);
    this.#begun.add(name);
  }

  #tellGap(gap: Gap): void {
    this.connection.callAll([...(this.#subscribers.get(gap.name) ?? [])].flatMap(({ onGap }) => onGap ?? []), gap);
  }

  #end(name: string, error: TidewireError): void {
    const subscribers = this.#subscribers.get(name) ?? [];
    this.#forget(name);
    this.connection.callEnds(subscribers, error);
  }

  #forget(name: string): void {
    this.#subscribers.delete(name);
    this.#positions.delete(name);
    this.#begun.delete(name);
    this.#unkept.delete(name);
  }
}
