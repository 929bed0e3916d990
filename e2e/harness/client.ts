// The unmodified npm client with three external additions: it closes at the end of its test, errors that the test did not announce fail
// the test, and a tap on its socket (an option of the client) shows when the server acknowledged a request.

import type { TestContext } from 'node:test';
import { C, DeepstreamClient } from '@deepstream/client';
import { socketFactory } from '@deepstream/client/dist/src/connection/socket-factory.js';
import { atEnd } from './cleanup.ts';
import type { Server } from './server.ts';
import { DEADLINE_MS, Inbox, eventually, happens, within } from './wait.ts';

export { C, DeepstreamClient };
export type ClientOptions = NonNullable<ConstructorParameters<typeof DeepstreamClient>[1]>;
export type Message = C.Message;

export interface ConnectOptions extends Partial<ClientOptions> {
  /** Login details; `false` leaves the client connected without logging in. */
  login?: Record<string, unknown> | false;
  /** The `error` events that the test expects, such as `MESSAGE_DENIED`. */
  errors?: string[];
  /** Host and port to connect to instead of the server's, such as a proxy's. */
  through?: string;
}

/** An error that a client reported through its `error` event. */
export interface ClientError {
  event: string;
  topic: string;
  detail: unknown;
}

/** A client of the npm package as the suites use it. */
export interface TestClient extends DeepstreamClient {
  /** All errors that the client reported. */
  readonly errors: Inbox<ClientError>;
  readonly wire: Wire;
}

/** Short intervals, so that the suites do not wait for the client's defaults. */
const QUICK: Partial<ClientOptions> = {
  nativeTimerRegistry: true,
  subscriptionInterval: 5,
  reconnectIntervalIncrement: 50,
  maxReconnectAttempts: 200,
  maxReconnectInterval: 200,
  recordDiscardTimeout: 20,
  offlineBufferTimeout: DEADLINE_MS,
};

/** A new client that logs in (unless the options say otherwise) and closes at the end of the test. */
export async function connect(test: TestContext, server: Pick<Server, 'address'>, options: ConnectOptions = {}): Promise<TestClient> {
  const { login = {}, errors = [], through, ...clientOptions } = options;
  const client = open(through ?? server.address, clientOptions);
  atEnd(test, () => {
    close(client);
    const surprises = client.errors.seen.filter(({ event }) => !errors.includes(event));
    if (surprises.length > 0) {
      throw new Error(`the client reported errors that the test did not expect: ${JSON.stringify(surprises)}`);
    }
  });
  if (login === false) {
    if (!clientOptions.lazyConnect) await inState(client, C.CONNECTION_STATE.AWAITING_AUTHENTICATION);
  } else {
    await within(DEADLINE_MS, client.login(login as C.JSONObject), 'login');
  }
  return client;
}

/** Two logged in clients. */
export async function pair(test: TestContext, server: Server, options: ConnectOptions = {}): Promise<[TestClient, TestClient]> {
  return [await connect(test, server, options), await connect(test, server, options)];
}

/** A client that the test must close; for tests that manage many clients. */
export function open(address: string, options: Partial<ClientOptions> = {}): TestClient {
  const wire = new Wire();
  const tapped = { ...QUICK, ...options, socketFactory: wire.socketFactory } as Partial<ClientOptions>;
  const client = new DeepstreamClient(address, tapped);
  const errors = new Inbox<ClientError>('errors of the client');
  client.on('error', (detail: unknown, event: unknown, topic: string) => {
    errors.push({ event: String(event), topic, detail });
  });
  return Object.assign(client, { errors, wire });
}

/** Closes `client` if it is open; the client reports an error if it is closed twice. */
export function close(client: DeepstreamClient): void {
  const { CLOSING, CLOSED } = C.CONNECTION_STATE;
  const state = client.getConnectionState();
  if (state !== CLOSING && state !== CLOSED) client.close();
}

/** Waits until `client` is in `state`. */
export async function inState(client: DeepstreamClient, state: C.CONNECTION_STATE, ms = DEADLINE_MS): Promise<void> {
  if (client.getConnectionState() === state) return;
  await happens(client, 'connectionStateChanged', (current) => current === state, ms);
}

/** A protocol message that one client received or sent. */
type Seen = { direction: 'in' | 'out'; message: Message };

/** Observes the messages of one client, over all of its sockets. */
export class Wire {
  readonly #acknowledged = new Set<string>();
  readonly #listeners: Array<(message: Message) => void> = [];
  readonly #waiting: Array<{ matches: (seen: Seen) => boolean; done: (message: Message) => void }> = [];
  #requests = new Map<string, string[]>();

  /** Passed to the client as its option of this name. */
  readonly socketFactory = (...args: Parameters<typeof socketFactory>): ReturnType<typeof socketFactory> => {
    const socket = socketFactory(...args);
    this.#acknowledged.clear();
    this.#requests = new Map();
    const send = socket.sendParsedMessage;
    socket.sendParsedMessage = (message) => {
      this.#noteRequest(message);
      send(message);
      this.#tell({ direction: 'out', message });
    };
    let handler: typeof socket.onparsedmessages;
    Object.defineProperty(socket, 'onparsedmessages', {
      get: () => this.#receiver(handler),
      set: (value: typeof handler) => {
        handler = value;
      },
    });
    return socket;
  };

  /** Waits until the server acknowledged a request of this kind that named `name`. Each acknowledgement counts once. */
  async acknowledged(topic: keyof typeof C.TOPIC, action: number, name = ''): Promise<void> {
    const wanted = key(C.TOPIC[topic], action, name);
    if (!this.#acknowledged.has(wanted)) {
      const what = `acknowledgement of ${topic} ${action} "${name}"`;
      await this.#when(() => this.#acknowledged.has(wanted), what);
    }
    this.#acknowledged.delete(wanted);
  }

  /** Calls `listener` with every message from the server, after the client has handled it. */
  onReceived(listener: (message: Message) => void): void {
    this.#listeners.push(listener);
  }

  /** The next message from the server that `matches`. */
  async receives(matches: (message: Message) => boolean, what = 'a message of the server'): Promise<Message> {
    return this.#when(({ direction, message }) => direction === 'in' && matches(message), what);
  }

  /** The next message of the client that `matches`. */
  async sends(matches: (message: Message) => boolean, what = 'a message of the client'): Promise<Message> {
    return this.#when(({ direction, message }) => direction === 'out' && matches(message), what);
  }

  #receiver(handler: (messages: Message[]) => void): (messages: Message[]) => void {
    return (messages) => {
      handler(messages);
      for (const message of messages) {
        if (message.isAck) this.#noteAcknowledgement(message);
        this.#tell({ direction: 'in', message });
      }
    };
  }

  #noteRequest(message: Message): void {
    const names = message.names?.length ? message.names : [message.name ?? ''];
    names.forEach((name) => this.#acknowledged.delete(key(message.topic, message.action, name)));
    if (message.correlationId && message.names) {
      this.#requests.set(key(message.topic, message.action, message.correlationId), names);
    }
  }

  #noteAcknowledgement(message: Message): void {
    const id = message.correlationId && key(message.topic, message.action, message.correlationId);
    const names = (id && this.#requests.get(id)) || [message.name ?? ''];
    names.forEach((name) => this.#acknowledged.add(key(message.topic, message.action, name)));
  }

  #tell(seen: Seen): void {
    if (seen.direction === 'in') this.#listeners.forEach((listener) => listener(seen.message));
    for (let i = this.#waiting.length - 1; i >= 0; i -= 1) {
      const waiting = this.#waiting[i];
      if (!waiting?.matches(seen)) continue;
      this.#waiting.splice(i, 1);
      waiting.done(seen.message);
    }
  }

  #when(matches: (seen: Seen) => boolean, what: string): Promise<Message> {
    return within(DEADLINE_MS, new Promise((done) => this.#waiting.push({ matches, done })), what);
  }
}

function key(topic: number, action: number, name: string): string {
  return `${topic}/${action}/${name}`;
}

/** Subscribes `client` to the event `name` and waits until the server confirmed it. */
export async function subscribed(client: TestClient, name: string): Promise<Inbox<any>> {
  const inbox = new Inbox<any>(`event ${name}`);
  client.event.subscribe(name, inbox.push);
  await client.wire.acknowledged('EVENT', C.EVENT_ACTION.SUBSCRIBE, name);
  return inbox;
}

/**
 * Waits until the record `name`, of which `client` has discarded its last copy, is released on both sides: the server has acknowledged,
 * and the client has forgotten the record. The client forgets it in a separate timer, possibly after the acknowledgement; if a test
 * opens the name before, it receives the old value.
 */
export async function discarded(client: TestClient, name: string): Promise<void> {
  await client.wire.acknowledged('RECORD', C.RECORD_ACTION.UNSUBSCRIBE, name);
  await eventually(() => !client.record.names().includes(name), `the client forgot ${name}`);
}

export type DeepstreamRecord = ReturnType<DeepstreamClient['record']['getRecord']>;
export type List = ReturnType<DeepstreamClient['record']['getList']>;
export type Dequeue = ReturnType<DeepstreamClient['record']['getDq']>;
/** How a provider answers a call. */
export type RpcResponse = Parameters<Parameters<DeepstreamClient['rpc']['provide']>[1]>[1];
/** How a listener answers a request to provide a name. */
export type ListenResponse = Parameters<Parameters<DeepstreamClient['event']['listen']>[1]>[1];

/** The record `name` of `client`, ready for use. */
export async function record(client: DeepstreamClient, name: string): Promise<DeepstreamRecord> {
  return within(DEADLINE_MS, client.record.getRecord(name).whenReady(), `record ${name} is ready`);
}

/** Performs every change that dequeues support, on a dequeue of a, b, c and d; m, a, c and d remain. */
export function changeDequeue(dequeue: Dequeue): void {
  dequeue.push('e');
  dequeue.unshift('x');
  dequeue.insertEntry('m', 1);
  dequeue.removeEntry('b');
  dequeue.pop();
  dequeue.shift();
}

/** The list `name` of `client`, ready for use. */
export async function list(client: DeepstreamClient, name: string): Promise<List> {
  return within(DEADLINE_MS, client.record.getList(name).whenReady(), `list ${name} is ready`);
}
