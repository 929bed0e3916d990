// A backend: one connection to a server, which it makes again after a loss, and the sessions that it serves.

import { EventEmitter } from 'node:events';
import WebSocket from 'ws';
import { AskError, Asks, millisecondsOf } from './asks.js';
import { Confirmations } from './confirmations.js';
import { Action, Auth, Connection, Topic, decode, encode, type Message } from './codec.js';

/** The server's handle of a session, valid for one connection of the backend. */
export type SessionHandle = string;

/** JSON text with the attachments that its placeholders `{"_placeholder":true,"num":0}` select. */
export interface Payload {
  data: string;
  attachments?: readonly Uint8Array[] | undefined;
}

/** The request of a client, before its session is open. */
export interface Handshake {
  /** The address of the client. */
  address?: string;
  /** Path and query of its request. */
  url?: string;
  /** Whether the request came over TLS. */
  secure?: boolean;
  /** Names in lower case, and values. */
  headers?: Array<[string, string]>;
  /** The credentials that the client has sent. */
  auth: Record<string, unknown>;
}

/** A session that wants to open, or that another backend has served before. */
export interface OpenedSession {
  session: SessionHandle;
  namespace: string;
  handshake: Handshake;
  /** The public id, if the session is open already. Then it must not be accepted again. */
  id?: string | undefined;
  /** The rooms of a session that is open already. */
  rooms: readonly string[];
  /** The value that the last backend has given to {@link Backend.setData}. */
  data?: unknown;
}

/** Why a session has ended: its client left it, was silent for too long, or its connection was lost. */
export type EndReason = 'left' | 'silent' | 'lost';

/** The events of a {@link Backend}. */
export interface BackendEvents {
  /** The backend is connected and serves its namespaces. */
  connect: [];
  /** The connection is lost. The handles of all sessions are invalid now. The backend connects again by itself. */
  disconnect: [error: Error];
  opened: [session: OpenedSession];
  /**
   * An event of a client. With an id the client waits for {@link Backend.answer}. The count is the number of lost backends that the server has
   * sent the event to before.
   */
  event: [session: SessionHandle, payload: Payload, id: string | undefined, count: number];
  /** The answer of a client to {@link Backend.send} with this id. */
  answered: [session: SessionHandle, id: string, payload: Payload];
  closed: [session: SessionHandle, reason: EndReason];
  /** The backend gets no further events of a session, and releases it when it has handled all. */
  handedOver: [session: SessionHandle];
  /** Another backend that serves the namespace has sent data. With an id it waits for {@link Backend.reply}. */
  told: [namespace: string, payload: Payload, id: string | undefined];
  /** The number of backends of all nodes has changed. */
  backends: [count: number];
  /** The server has refused a command. */
  error: [error: Error];
}

export interface BackendOptions {
  /**
   * The address of the server: `ws://localhost:6020`, `wss://host`, or with `http` and `https`. The path is `/deepstream` if it has none. With
   * the addresses of several members of a cluster, as a list or with commas between them, the backend connects to the next one after a loss.
   */
  url: string | readonly string[];
  /** The key in `backend.key` of the server. */
  key: string;
  /** How often the backend pings the server, in milliseconds. At most the server's `network.heartbeat_interval`. Default 10,000. */
  pingIntervalMs?: number;
  /** The longest time between two attempts to connect, in milliseconds. Default 1,000. */
  reconnectDelayMaxMs?: number;
}

/** Targets of a broadcast. */
export interface Broadcast extends Payload {
  namespace: string;
  /** Members of any of these rooms get it; without rooms all sessions of the namespace. */
  rooms?: readonly string[] | undefined;
  /** Members of any of these rooms do not. */
  except?: readonly string[] | undefined;
  /** This session does not. */
  sender?: SessionHandle | undefined;
  /** Whether only the sessions of this backend get it, and the subscribers of other protocols on the node that it is connected to. */
  isLocal?: boolean | undefined;
}

/** A refusal that a later attempt can't change. */
class FinalError extends Error {}

/** The messages that a backend confirms. */
const CONFIRMED = new Set<number>([Action.OPENED, Action.EVENT, Action.ANSWERED, Action.CLOSED, Action.HANDED_OVER, Action.TOLD, Action.RESPONSE, Action.ASKED, Action.ASK_FAILED]);
const FIRST_DELAY_MS = 20;
/** The time in which the server sends a message to other backends. */
const TELL_TIMEOUT_MS = 15_000;

/** The address with a scheme of WebSockets and a path. */
export function addressOf(url: string): string {
  const address = new URL(url.includes('://') ? url : `ws://${url}`);
  address.protocol = address.protocol.replace('http', 'ws');
  if (address.pathname === '/') address.pathname = '/deepstream';
  return address.href;
}

/** The addresses of a server or of the members of a cluster. */
export function addressesOf(url: string | readonly string[]): [string, ...string[]] {
  const urls = typeof url === 'string' ? url.split(',') : url;
  const [first, ...others] = urls.map((one) => addressOf(one.trim()));
  if (first === undefined) throw new TypeError('a backend needs the address of a server; set `url`');
  return [first, ...others];
}

/** The part of a handle that names the shard of its session. */
function shardOf(session: SessionHandle): string {
  return session.split('.', 2).join('.');
}

/** One backend of a server. It connects at once. */
export class Backend extends EventEmitter<BackendEvents> {
  readonly #options: BackendOptions;
  /** The first one is that of the connection. */
  readonly #addresses: string[];
  /** The server's name of the connection, with which the backend asks for its sessions at another member after a loss. */
  #id: SessionHandle | undefined;
  /** By shard: one of its sessions, and the number of messages about its sessions that this connection has received. */
  readonly #received = new Map<string, { session: SessionHandle; count: number }>();
  #namespaces: readonly string[] = [];
  #again: readonly string[] = [];
  #socket: WebSocket | undefined;
  #isServing = false;
  #isClosed = false;
  /** Whether it has begun to hand its sessions over. Then it does not connect again. */
  #isLeaving = false;
  #delayMs = FIRST_DELAY_MS;
  #retry: NodeJS.Timeout | undefined;
  #ping: NodeJS.Timeout | undefined;
  #outgoing: Buffer[] = [];
  readonly #confirmations = new Confirmations(() => this.#confirm());
  #correlations = 0;
  readonly #asks = new Asks();
  readonly #waiting = new Map<string, { resolve: () => void; reject: (error: Error) => void }>();

  constructor(options: BackendOptions) {
    super();
    this.#options = options;
    this.#addresses = addressesOf(options.url);
    if (typeof options.key !== 'string' || options.key === '') throw new TypeError('a backend needs the key of the server; set `key` to the value of backend.key');
    this.#connect();
  }

  /** Whether the server has accepted the login. */
  get isConnected(): boolean {
    return this.#isServing;
  }

  /** The namespaces that it serves. */
  get namespaces(): readonly string[] {
    return this.#namespaces;
  }

  /**
   * Serves these namespaces, and no others. It resolves when the server knows them. A `*` at the end matches any text. If the backend is lost, the
   * next one gets the events again that it has not handled and that belong to namespaces in `again`.
   */
  serve(namespaces: readonly string[], again: readonly string[] = []): Promise<void> {
    this.#namespaces = [...namespaces];
    this.#again = [...again];
    if (!this.#isServing) return new Promise((resolve, reject) => this.#waiting.set(this.#correlation('serve'), { resolve, reject }));
    return this.#requestNamespaces();
  }

  /**
   * For a listener of `event`: the event does not count as handled before the returned function is called, nor do all later messages. The server
   * does not send more than its limit of messages that are not handled.
   */
  hold(): () => void {
    return this.#confirmations.hold();
  }

  /** Gives the server data of an open session, a JSON text, which the next backend gets. */
  setData(session: SessionHandle, data: string): void {
    this.#command({ action: Action.SET_DATA, session, data });
  }

  /** Opens a session with a public id. Its client may get a secret, too, with which it asks for the same session after a loss. */
  accept(session: SessionHandle, id: string, secret?: string): void {
    this.#command({ action: Action.ACCEPT, session, name: id, correlationId: secret });
  }

  /** Refuses a session. The reason is a JSON object with `message` and maybe `data`. */
  refuse(session: SessionHandle, reason: string): void {
    this.#command({ action: Action.REFUSE, session, data: reason });
  }

  /** Sends a session an event, a JSON array that begins with its name. With an id its client answers. */
  send(session: SessionHandle, { data, attachments }: Payload, id?: string): void {
    this.#command({ action: Action.SEND, session, data, attachments, correlationId: id });
  }

  /** Answers an event. The data are a JSON array. */
  answer(session: SessionHandle, id: string, { data, attachments }: Payload): void {
    this.#command({ action: Action.ANSWER, session, data, attachments, correlationId: id });
  }

  /** Sends an event to the members of rooms. */
  broadcast({ namespace, rooms, except, sender, isLocal, data, attachments }: Broadcast): void {
    this.#command({ action: Action.BROADCAST, name: namespace, names: rooms, except, session: sender, isLocal, data, attachments });
  }

  /**
   * Sends an event to the members of rooms, and resolves with the answers of their clients, in the order of their arrival. Each answer is a
   * JSON array.
   *
   * @throws {AskError} with the answers that have arrived, if a client has not answered in this number of milliseconds.
   */
  ask({ namespace, rooms, except, sender, isLocal, data, attachments }: Broadcast, timeoutMs: number): Promise<Payload[]> {
    if (!this.#isServing) return Promise.reject(new AskError('the backend has no connection to the server', 'lost'));
    const timeout = millisecondsOf(timeoutMs);
    const [correlationId, answers] = this.#asks.begin(timeout);
    this.#command({ action: Action.ASK, name: namespace, names: rooms, except, session: sender, isLocal, data, attachments, correlationId, timeout });
    return answers;
  }

  /**
   * Sends data to the other backends that serve the namespace, on all nodes. With a number of milliseconds it resolves with their replies, in
   * the order of their arrival. Without one it resolves, with no replies, when the server has sent them.
   *
   * @throws {AskError} with the replies that have arrived, if a backend has not replied in time or could not get it.
   */
  tell(namespace: string, { data, attachments }: Payload, timeoutMs?: number): Promise<Payload[]> {
    if (!this.#isServing) return Promise.reject(new AskError('the backend has no connection to the server', 'lost'));
    const timeout = timeoutMs === undefined ? undefined : millisecondsOf(timeoutMs);
    const [correlationId, replies] = this.#asks.begin(timeout ?? TELL_TIMEOUT_MS);
    this.#command({ action: Action.TELL, name: namespace, data, attachments, correlationId, timeout });
    return replies;
  }

  /** Replies to another backend. The data are a JSON array. */
  reply(id: string, { data, attachments }: Payload): void {
    this.#command({ action: Action.REPLY, data, attachments, correlationId: id });
  }

  join(session: SessionHandle, rooms: readonly string[]): void {
    if (rooms.length > 0) this.#command({ action: Action.JOIN, session, names: rooms });
  }

  leave(session: SessionHandle, rooms: readonly string[]): void {
    if (rooms.length > 0) this.#command({ action: Action.LEAVE, session, names: rooms });
  }

  /** Ends a session, or its connection with all sessions. The backend gets no `closed` for it. */
  end(session: SessionHandle, withConnection = false): void {
    this.#command({ action: withConnection ? Action.END_CONNECTION : Action.END, session });
  }

  /**
   * Requests that the server gives this backend no further sessions. It resolves after the last of them. Then the backend calls
   * {@link handOverSession} for each session, and at last {@link close}. If the connection is lost, the server has given all sessions
   * to other backends, and the backend does not connect again.
   */
  handOver(): Promise<void> {
    this.#isLeaving = true;
    if (!this.#isServing) return Promise.resolve();
    const correlationId = this.#correlation('hand-over');
    const handedOver = new Promise<void>((resolve, reject) => this.#waiting.set(correlationId, { resolve, reject }));
    this.#command({ action: Action.HAND_OVER, correlationId });
    return handedOver;
  }

  /** After {@link handOver}: requests that this backend gets no further events of a session. Behind the last one it emits `handedOver`. */
  handOverSession(session: SessionHandle): void {
    this.#command({ action: Action.HAND_OVER, session });
  }

  /** After `handedOver`: another backend continues the session, with the events that wait for it. */
  release(session: SessionHandle): void {
    this.#command({ action: Action.RELEASE, session });
  }

  /** Ends the connection. The server passes the sessions to other backends, or closes them after `backend.grace`. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#retry);
    clearInterval(this.#ping);
    this.#fail(new Error('the backend was closed'));
    this.#asks.lost('the backend was closed');
    const socket = this.#socket;
    if (!socket || socket.readyState === WebSocket.CLOSED) return;
    this.#flush();
    await new Promise<void>((resolve) => {
      socket.once('close', () => resolve());
      if (socket.readyState === WebSocket.CONNECTING) socket.terminate();
      else socket.close(1000);
    });
  }

  #connect(): void {
    const [address = ''] = this.#addresses;
    const socket = new WebSocket(address, { perMessageDeflate: false });
    this.#socket = socket;
    let failure: Error | undefined;
    socket.on('open', () => this.#write(socket, { topic: Topic.CONNECTION, action: Connection.CHALLENGE, url: address, protocolVersion: '0.1a', sdkType: 'backend', batches: true }));
    socket.on('message', (frame: Buffer) => {
      try {
        for (const message of decode(frame)) this.#handle(socket, message);
      } catch (error) {
        failure ??= error as Error;
        socket.terminate();
      }
      this.#confirm();
    });
    socket.on('error', (error) => (failure ??= error));
    socket.on('close', (code, reason) => {
      clearInterval(this.#ping);
      if (this.#socket === socket) this.#socket = undefined;
      const error = failure ?? new Error(`the server has closed the connection of the backend with ${code} ${reason.toString()}`);
      this.#lost(error);
    });
  }

  #lost(error: Error): void {
    const wasServing = this.#isServing;
    this.#isServing = false;
    this.#outgoing = [];
    this.#confirmations.clear();
    this.#asks.lost(`the backend has lost its server: ${error.message}`);
    if (error instanceof FinalError || this.#isLeaving) {
      this.#isClosed = true;
      this.#fail(error);
    }
    if (wasServing) this.emit('disconnect', error);
    else if (error instanceof FinalError) this.#report(error);
    if (this.#isClosed) return;
    this.#addresses.push(...this.#addresses.splice(0, 1));
    this.#retry = setTimeout(() => this.#connect(), this.#delayMs);
    this.#delayMs = Math.min(this.#delayMs * 2, this.#options.reconnectDelayMaxMs ?? 1_000);
  }

  /** Emits an error, unless the app does not listen: then it would end the process. */
  #report(error: Error): void {
    if (this.listenerCount('error') > 0) this.emit('error', error);
    else console.error(`tidewire: ${error.message}`);
  }

  #fail(error: Error): void {
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }

  #handle(socket: WebSocket, message: Message): void {
    if (message.topic === Topic.BACKEND) return this.#handleBackend(message);
    if (message.topic === Topic.CONNECTION) {
      if (message.action === Connection.ACCEPT) {
        const data = JSON.stringify({ backendKey: this.#options.key });
        this.#write(socket, { topic: Topic.AUTH, action: Auth.REQUEST, data });
      } else if (message.action === Connection.PING) this.#write(socket, { topic: Topic.CONNECTION, action: Connection.PONG });
      return;
    }
    if (message.topic !== Topic.AUTH) return;
    if (message.action === Auth.UNSUCCESSFUL) {
      throw new FinalError(`the server has refused the key of the backend (${message.data ?? 'no reason'}); set the same one in backend.key of the server`);
    }
    if (message.action !== Auth.SUCCESSFUL) return;
    this.#isServing = true;
    this.#delayMs = FIRST_DELAY_MS;
    this.#ping = setInterval(() => this.#push({ topic: Topic.CONNECTION, action: Connection.PING }), this.#options.pingIntervalMs ?? 10_000);
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    if (this.#namespaces.length === 0) return void this.emit('connect');
    this.#requestNamespaces(true).then(
      () => {
        for (const { resolve } of waiting) resolve();
        this.emit('connect');
      },
      (error: Error) => {
        for (const { reject } of waiting) reject(error);
        if (waiting.length === 0 && !this.#isClosed && this.#isServing) this.#report(error);
      },
    );
  }

  /** A correlation id that differs from the numbers of acknowledgements. */
  #correlation(request: 'serve' | 'hand-over'): string {
    return `${request}-${(this.#correlations += 1)}`;
  }

  /** The first request of a connection also names the last one, and the number of messages that arrived over it. */
  #requestNamespaces(isFirst = false): Promise<void> {
    const correlationId = this.#correlation('serve');
    return new Promise((resolve, reject) => {
      this.#waiting.set(correlationId, { resolve, reject });
      const earlier = isFirst ? this.#id : undefined;
      if (earlier !== undefined) for (const received of this.#received.values()) this.#command({ action: Action.RECEIVED, ...received });
      this.#command({ action: Action.SERVE, names: this.#namespaces, correlationId, session: earlier });
      if (this.#again.length > 0) this.#command({ action: Action.DELIVER_AGAIN, names: this.#again });
    });
  }

  #handleBackend(message: Message): void {
    // The answer about all sessions is not a message about one.
    const isConfirmed = CONFIRMED.has(message.action) && (message.action !== Action.HANDED_OVER || message.session !== undefined);
    const { session } = message;
    if (isConfirmed && session !== undefined) {
      const received = this.#received.get(shardOf(session));
      if (received) received.count += 1;
      else this.#received.set(shardOf(session), { session, count: 1 });
    }
    try {
      if (isConfirmed) this.#confirmations.handle(() => this.#dispatch(message));
      else this.#dispatch(message);
    } catch (error) {
      // A listener of the app has thrown. It is an uncaught exception, as in other emitters of I/O, and other messages are handled.
      process.nextTick(() => {
        throw error;
      });
    }
  }

  #dispatch({ action, count = 0, session = '', name = '', data = '', names, correlationId, attachments }: Message): void {
    switch (action) {
      case Action.SERVED:
        if (correlationId === undefined) return void this.emit('backends', Math.max(count, 1));
        // It precedes all messages about sessions over this connection.
        if (session !== this.#id) this.#received.clear();
        this.#id = session || undefined;
        return this.#resolve(correlationId);
      case Action.HANDED_OVER:
        if (session !== '') return void this.emit('handedOver', session);
        return this.#resolve(correlationId ?? '');
      case Action.OPENED: {
        const { data: kept, ...handshake } = JSON.parse(data) as Handshake & { data?: unknown };
        return void this.emit('opened', { session, namespace: name, handshake, id: correlationId, rooms: names ?? [], data: kept });
      }
      case Action.EVENT:
        return void this.emit('event', session, { data, attachments }, correlationId, count);
      case Action.ANSWERED:
        return void this.emit('answered', session, correlationId ?? '', { data, attachments });
      case Action.CLOSED:
        return void this.emit('closed', session, name as EndReason);
      case Action.TOLD:
        return void this.emit('told', name, { data, attachments }, correlationId);
      case Action.RESPONSE:
        return this.#asks.answered(correlationId ?? '', { data, attachments });
      case Action.ASKED:
        return this.#asks.complete(correlationId ?? '');
      case Action.ASK_FAILED: {
        const { message, reason } = JSON.parse(data) as { message: string; reason: string };
        return void this.#asks.refused(correlationId ?? '', message, reason === 'timeout' || reason === 'lost' ? reason : 'refused', count);
      }
      case Action.NOT_A_BACKEND:
      case Action.INVALID_COMMAND: {
        const { message } = JSON.parse(data) as { message: string };
        if (this.#asks.refused(correlationId ?? '', `the server has refused it: ${message}`)) return;
        const error = new Error(`the server has refused a command of the backend: ${message}`);
        const waiting = this.#waiting.get(correlationId ?? '');
        this.#waiting.delete(correlationId ?? '');
        return waiting ? waiting.reject(error) : this.#report(error);
      }
    }
  }

  #resolve(correlationId: string): void {
    this.#waiting.get(correlationId)?.resolve();
    this.#waiting.delete(correlationId);
  }

  /** Confirms the messages of a frame, so that the server sends further ones. */
  #confirm(): void {
    const count = this.#confirmations.take();
    if (count > 0) this.#command({ action: Action.CONFIRM, count });
  }

  #command(message: Omit<Message, 'topic'>): void {
    if (this.#isServing) this.#push({ topic: Topic.BACKEND, ...message });
  }

  /** Sends a message with all others of this turn. */
  #push(message: Message): void {
    if (this.#outgoing.push(encode(message)) === 1) queueMicrotask(() => this.#flush());
  }

  #flush(): void {
    const frames = this.#outgoing;
    this.#outgoing = [];
    const socket = this.#socket;
    if (socket?.readyState !== WebSocket.OPEN) return;
    // One write for all frames of the turn.
    const stream = (socket as unknown as { _socket?: { cork(): void; uncork(): void } })._socket;
    stream?.cork();
    for (const frame of frames) socket.send(frame);
    stream?.uncork();
  }

  #write(socket: WebSocket, message: Message): void {
    socket.send(encode(message));
  }
}

/** Connects a backend to a running server. It resolves when the server has accepted its login and knows its namespaces. */
export async function connect(options: BackendOptions & { namespaces?: readonly string[] }): Promise<Backend> {
  const backend = new Backend(options);
  try {
    if (options.namespaces) await backend.serve(options.namespaces);
    else if (!backend.isConnected) {
      await new Promise<void>((resolve, reject) => {
        backend.once('connect', () => resolve());
        backend.once('error', reject);
      });
    }
  } catch (error) {
    await backend.close();
    throw error;
  }
  return backend;
}
