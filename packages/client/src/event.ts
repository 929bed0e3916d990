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
   * the event exceeds the server's limit.
   */
  emit<Name extends Names<EventsOf<App>>>(name: Name, ...[value]: Optional<ValueOf<EventsOf<App>, Name>, never>): void {
    checkName(name);
    this.connection.checkUse();
    const traceparent = this.traces.traceparent?.();
    const message: Message = { topic: Topic.Event, action: EventAction.Emit, name, ...payload(value), ...(traceparent && { traceparent }) };
    this.connection.judge('event', name, message.data);
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
    else if (action === EventAction.Position) this.#positions.set(name, { epoch, offset } as Position);
    else if (action === EventAction.Gap) {
      // The position of a gap is the position of the first event after it.
      if (epoch !== undefined && offset !== undefined) this.#positions.set(name, { epoch, offset: offset - 1 });
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

  #deliver({ name = '', data, offset, traceparent }: Message): void {
    const own = [...(this.#subscribers.get(name) ?? [])].map(({ callback }) => callback);
    const callbacks = [...own, ...(this.patterns?.of(name) ?? [])];
    if (callbacks.length === 0) return;
    const last = this.#positions.get(name);
    const position = offset === undefined || !last ? undefined : { epoch: last.epoch, offset };
    if (position) this.#positions.set(name, position);
    const context: EventContext = { name, ...(position && { position }), ...(traceparent && { traceparent }) };
    const error = this.connection.validate?.('event', name, valueOf(data));
    if (error) return this.connection.onError(error);
    for (const callback of callbacks) this.connection.call(callback, valueOf(data) as never, context);
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
    this.#unkept.delete(name);
  }
}
