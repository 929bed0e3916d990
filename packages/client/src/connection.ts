// One connection that reconnects: it dials, logs in, checks that the server still answers, and reports its state. The primitives are
// elsewhere.

import { decode, encode } from './codec.js';
import { payload, valueOf } from './data.js';
import { deferred, type Deferred } from './deferred.js';
import { onWake, ownWebSocket, socketUrl, type WebSocketClass, type WebSocketLike } from './environment.js';
import { TidewireError, tooLarge } from './error.js';
import { AuthAction, ConnectionAction, RpcAction, Topic, refusal, type Message } from './protocol.js';
import { limited, type Signal } from './wait.js';

/**
 * - `closed`: not started, closed by the app, or refused for good; only `connect()` leaves this state
 * - `connecting`: a socket is being opened
 * - `authenticating`: the server has accepted the connection and receives the credentials
 * - `open`: messages flow
 * - `checking`: the page was asleep or its network changed; the state is `open` again after one round trip
 * - `stale`: the server has not answered a heartbeat in time; no messages flow at the moment
 * - `waiting`: the connection was lost; the next attempt follows after a delay
 */
export type State = 'closed' | 'connecting' | 'authenticating' | 'open' | 'checking' | 'stale' | 'waiting';

/** Credentials as the server's auth chain requires them, such as `{ token }`. */
export type Credentials = object;

/** The argument of a function that returns credentials. */
export interface AuthContext {
  /** The reason why the server refused the previous credentials; undefined if it did not. */
  readonly refusal: unknown;
  /** Calls the function again after `ms` milliseconds, to renew the login while the session is open. */
  renewIn(ms: number): void;
}

/** Credentials, or a function that returns them; the client calls it before each login. */
export type Auth = Credentials | ((context: AuthContext) => Credentials | Promise<Credentials>);

/** How `connect` logs in, and how long it waits. */
export interface ConnectOptions {
  /** Credentials, or a function that returns them, in place of the client's option `auth`. */
  auth?: Auth | undefined;
  /** Ends the wait: `connect` rejects with ABORTED. */
  signal?: Signal | undefined;
  /** Milliseconds until `connect` rejects with TIMEOUT; by default it waits for any time. */
  timeoutMs?: number | undefined;
}

/** The kind of the validated value: a whole document, a payload, or the argument or result of a call. */
export type ValueKind = 'record' | 'event' | 'argument' | 'result';

/** Returns the error that makes a value invalid, or undefined for a valid value. */
export type Validate = (kind: ValueKind, name: string, value: unknown) => TidewireError | undefined;

export interface RequestLimits {
  /** Milliseconds until a request fails with TIMEOUT; by default 15,000. */
  requestTimeoutMs?: number;
  /**
   * The most requests, and events without a connection, that may wait at a time; by default 10,000. Further ones fail with
   * TOO_MANY_PENDING.
   */
  pendingMax?: number;
}

export interface ConnectionOptions extends RequestLimits {
  /** Credentials, or a function that returns them; by default `{}`. */
  auth?: Auth;
  /** The class of sockets for runtimes without `WebSocket`, such as the one of the package `ws`. */
  webSocket?: WebSocketClass;
  /** Milliseconds between two heartbeats; by default 15,000. The server ends a connection that is silent for a minute. */
  heartbeatIntervalMs?: number;
  /**
   * Milliseconds without an answer to a heartbeat until the state is `stale`. After the same time again, the client gives the connection
   * up. By default 4,000.
   */
  staleAfterMs?: number;
  /** Milliseconds for the round trip of `checking`; by default 2,000. */
  checkTimeoutMs?: number;
  /** Milliseconds to open a socket; by default 10,000. */
  connectTimeoutMs?: number;
  /**
   * The delay before the first new attempt is at most this number of milliseconds. For each further attempt the limit doubles. By default
   * 500.
   */
  reconnectMinMs?: number;
  /** The longest delay between two attempts in milliseconds; by default 10,000. */
  reconnectMaxMs?: number;
  /** Bytes that may wait in the socket before sending is refused with `OVERLOADED`; by default 16 MiB. */
  sendBufferBytesMax?: number;
  /**
   * Validates the values that the client sends and receives: `validateWith` of `@tidewire/client/validation` makes such a function of
   * schemas.
   */
  validate?: Validate;
}

export type StateCallback = (state: State, reason: TidewireError | undefined) => void;

/** The options that have a value if the app gives none. */
type Defaults = Required<Omit<ConnectionOptions, 'auth' | 'webSocket' | 'validate'>>;

/** A part of the client that handles the messages of a topic. */
export interface Part {
  /** Handles `message`. If the message is a refusal, `code` is its code. Returns true if no further part needs the message. */
  handle?(message: Message, code: string | undefined): boolean | void;
  /** Messages flow. If `isNew`, the session is new and has no state of the previous one; otherwise the same session continues. */
  opened?(isNew: boolean): void;
  /** The messages that still wait for an answer from the server. */
  unanswered?(): Message[];
  /** The session has ended. If it ended because a message was too large for the server, `refused` is that message. */
  lost?(refused: Refused | undefined): void;
  /** The connection is closed for `reason`. */
  closed?(reason: TidewireError): void;
}

/** A message that must not be sent again, and the reason. */
export interface Refused {
  message: Message;
  error: TidewireError;
}

/** The close code of a server whose peer has sent too large a message. */
const TOO_BIG = 1009;

/** A timer that fires more than this late shows that the process was asleep. */
const SLEPT_MS = 5_000;
const REDIRECTS_MAX = 5;
/** With a longer delay, a timer fires at once. */
const TIMER_MAX_MS = 2 ** 31 - 1;

export class Connection {
  /** The parts of each topic, in the order in which they are notified. */
  readonly parts = new Map<number, Part[]>();
  /** The client data that the server sent at the login. */
  loginData: unknown;
  /** The limit of a message in bytes; infinite if the server has not announced one. */
  messageBytesMax = Infinity;
  /** The reason why the connection is closed; undefined before the first `connect()`. */
  reason: TidewireError | undefined;
  /** Why the first connection does not open, once `diagnosis.ts` has found out. */
  problem: TidewireError | undefined;
  /** Called at every change of the state. */
  readonly onState = new Set<StateCallback>();
  /** Called for errors that no other callback receives. */
  readonly onErrors = new Set<(error: TidewireError) => void>();
  /** Called with each message that was sent or has arrived, with the code of a refusal: for `@tidewire/client/inspect`. */
  tap: ((message: Message, isSent: boolean, code?: string) => void) | undefined;
  readonly validate: Validate | undefined;
  readonly options: Defaults & ConnectionOptions;
  #auth: Auth;
  #state: State = 'closed';
  #socket: WebSocketLike | undefined;
  #opening: Deferred | undefined;
  /** No session has been open since the connection was closed. */
  #isFirst: boolean | undefined;
  #renewal: Deferred | undefined;
  /**
   * The timer of the current phase: opening a socket, time between heartbeats, waiting for their answers, or delay before the next attempt.
   */
  #timer: ReturnType<typeof setTimeout> | undefined;
  #renewTimer: ReturnType<typeof setTimeout> | undefined;
  /** The largest message of this session that the server does not answer, such as an event. */
  #largest: { message: Message; bytes: number } | undefined;
  /** The login was due for renewal while the connection was not open. */
  #isRenewalDue: boolean | undefined;
  #stopWaking: (() => void) | undefined;
  #credentials: Promise<Credentials> | undefined;
  /** Attempts and redirects since `connect()`, which sets both. */
  #attempts!: number;
  #redirects!: number;
  #openedAt: number | undefined;
  /** Messages that wait until the server has proved that the connection is alive. */
  #held: Message[] = [];
  /** The number of heartbeats without an answer. A new socket has none. */
  #pings!: number;
  /** A heartbeat was sent, and no message has arrived since. */
  #isAnswerDue: boolean | undefined;
  #refusal: unknown;
  #wasAskedAgain: boolean | undefined;

  constructor(
    readonly address: string | undefined,
    options: ConnectionOptions,
  ) {
    this.#auth = options.auth ?? {};
    this.validate = options.validate;
    this.options = {
      heartbeatIntervalMs: 15_000,
      staleAfterMs: 4_000,
      checkTimeoutMs: 2_000,
      connectTimeoutMs: 10_000,
      reconnectMinMs: 500,
      reconnectMaxMs: 10_000,
      sendBufferBytesMax: 16 * 1024 * 1024,
      requestTimeoutMs: 15_000,
      pendingMax: 10_000,
      ...options,
    };
  }

  get state(): State {
    return this.#state;
  }

  /** Dials if the connection is closed. Fulfilled when the connection is open, rejected when it is closed for good. */
  connect(options: ConnectOptions = {}): Promise<void> {
    const connected = this.#connect(options);
    connected.catch(() => undefined);
    return connected;
  }

  async #connect({ auth, signal, timeoutMs }: ConnectOptions): Promise<void> {
    const failed = (isLate: boolean): TidewireError => {
      const why = this.problem?.message ?? 'the connection is not open';
      return isLate ? new TidewireError('TIMEOUT', `${why}, after ${timeoutMs} ms`) : new TidewireError('ABORTED', why, { cause: signal?.reason });
    };
    if (signal?.aborted) throw failed(false);
    if (auth !== undefined) this.#auth = auth;
    if (this.#state === 'open') return;
    const isFirst = this.#state === 'closed';
    const opening = (this.#opening ??= deferred());
    if (isFirst) {
      this.reason = this.problem = undefined;
      this.#attempts = this.#redirects = 0;
      this.#isFirst = true;
      this.#stopWaking = onWake(() => this.check());
      this.#dial(this.address);
    }
    try {
      await limited(opening.promise, signal, timeoutMs, failed);
    } catch (error) {
      // The call that began to connect ends the attempts; any other call only stops waiting.
      if (isFirst && opening === this.#opening) this.#end(error as TidewireError);
      throw error;
    }
  }

  /** Logs the open session in again, with other credentials of the same user. */
  async renew(auth?: Auth): Promise<void> {
    if (auth !== undefined) this.#auth = auth;
    const session = this.#openedAt;
    await this.connect();
    // The wait was for a new session, which has already logged in with these credentials.
    if (session === undefined || session !== this.#openedAt) return;
    if (this.#renewal) return this.#renewal.promise;
    const renewal = (this.#renewal = deferred());
    try {
      const credentials = await this.#ask();
      if (this.#renewal === renewal) this.#write({ topic: Topic.Auth, action: AuthAction.Request, ...payload(credentials) });
    } catch (error) {
      this.#settleRenewal(error);
    }
    return renewal.promise;
  }

  /** Checks by a round trip that the connection is alive. If the client waits before its next attempt, it dials at once. */
  check(): void {
    if (this.#state === 'waiting') this.#dial(this.address);
    else if (this.#isLoggedIn) {
      this.#ping();
      this.#after(this.options.checkTimeoutMs, () => this.#lose('no answer after a pause'));
      this.#become('checking');
    }
  }

  /** Closes the connection; messages that were sent before still leave. */
  close(): void {
    if (!this.reason) this.#end(new TidewireError('CLOSED', 'the client was closed'));
  }

  /** The bytes of `message`. Throws `TOO_LARGE` if they exceed the limit that the server has announced. */
  encode(message: Message): Uint8Array {
    const frame = encode(message);
    if (frame.length > this.messageBytesMax) throw tooLarge(frame.length, this.messageBytesMax, message.name);
    return frame;
  }

  /** Sends `message` if the connection is open, else returns false. Throws `TOO_LARGE` if the message exceeds the server's limit. */
  send(message: Message): boolean {
    if (this.#state !== 'open') return false;
    this.#write(message);
    return true;
  }

  /**
   * Sends `message` in this session or not at all. While the client checks whether the connection is alive, the message waits. Returns the
   * error of a message that is too large.
   */
  answer(message: Message): TidewireError | undefined {
    try {
      if (this.send(message) || !this.#isLoggedIn) return undefined;
      this.encode(message);
      this.#held.push(message);
    } catch (error) {
      return error as TidewireError;
    }
    return undefined;
  }

  /** Reports an error that no other callback receives. */
  onError(error: TidewireError): void {
    if (this.onErrors.size === 0) console.error(error);
    for (const callback of [...this.onErrors]) callback(error);
  }

  /** Calls a function of the app. If it throws, `onError` receives the error, and other callbacks still run. */
  call<Arguments extends unknown[]>(callback: (...args: Arguments) => unknown, ...args: Arguments): void {
    try {
      callback(...args);
    } catch (cause) {
      this.onError(new TidewireError('CALLBACK_FAILED', `a callback failed: ${String(cause)}`, { cause }));
    }
  }

  /** Calls all of `callbacks`. A callback that adds or removes others does not change which ones this call reaches. */
  callAll<Arguments extends unknown[]>(callbacks: Iterable<(...args: Arguments) => unknown>, ...args: Arguments): void {
    for (const callback of [...callbacks]) this.call(callback, ...args);
  }

  /** Calls every `onEnd` of `all` with the error. If no entry has one, `onError` receives it. */
  callEnds(all: Iterable<{ onEnd?: (error: TidewireError) => void }>, error: TidewireError): void {
    const told = [...all].flatMap(({ onEnd }) => onEnd ?? []);
    if (told.length === 0) this.onError(error);
    this.callAll(told, error);
  }

  /** Throws the error that the app's validation returns for the payload `data`. */
  judge(kind: ValueKind, name: string, data: string | Uint8Array | undefined): void {
    const error = this.validate?.(kind, name, valueOf(data));
    if (error) throw error;
  }

  /** Does what `checkUse` does, for a function that registers `callback`. */
  checkCallback(callback: unknown): void {
    this.checkUse();
    if (typeof callback !== 'function') throw new TidewireError('INVALID_ARGUMENT', 'the callback must be a function');
  }

  /** Throws if the connection was closed, or if too many bytes wait in its socket. */
  checkUse(): void {
    if (this.reason) throw new TidewireError('CLOSED', `the client is closed: ${this.reason.message}`, { cause: this.reason });
    const { sendBufferBytesMax } = this.options;
    if (this.#socket && this.#socket.bufferedAmount > sendBufferBytesMax) {
      throw new TidewireError('OVERLOADED', `more than ${sendBufferBytesMax} bytes wait to be sent: send less, or raise sendBufferBytesMax`);
    }
  }

  get #isLoggedIn(): boolean {
    return this.#openedAt !== undefined;
  }

  #dial(address: string | undefined): void {
    let socket: WebSocketLike;
    try {
      const Socket = this.options.webSocket ?? ownWebSocket();
      socket = new Socket(socketUrl(address));
    } catch (cause) {
      const error = cause instanceof TidewireError ? cause : new TidewireError('INVALID_URL', (cause as Error).message, { cause });
      return this.#end(error);
    }
    socket.binaryType = 'arraybuffer';
    this.#socket = socket;
    this.#largest = undefined;
    this.#pings = 0;
    this.#refusal = undefined;
    this.#wasAskedAgain = false;
    this.#credentials = this.#ask();
    this.#credentials.catch(() => undefined);
    socket.onopen = () => {
      if (socket !== this.#socket) return;
      this.#write({ topic: Topic.Connection, action: ConnectionAction.Challenge, sdkType: 'tidewire', batches: true, jumps: true });
      this.#beat();
    };
    socket.onmessage = ({ data }: { data: unknown }) => this.#receive(socket, data);
    // Browsers do not reveal why a socket failed. The close event follows, and it is handled below.
    socket.onerror = () => {};
    socket.onclose = (event: { code?: number; reason?: string }) => {
      if (socket === this.#socket) this.#lose(`closed with ${event.code}${event.reason ? ` ${event.reason}` : ''}`, event.code);
    };
    this.#after(this.options.connectTimeoutMs, () => this.#lose('the server could not be reached in time'));
    this.#become('connecting');
  }

  /** Returns the credentials; if the app gave a function, calls it. */
  async #ask(): Promise<Credentials> {
    if (typeof this.#auth !== 'function') return this.#auth;
    clearTimeout(this.#renewTimer);
    this.#isRenewalDue = false;
    const renewIn = (ms: number): void => {
      clearTimeout(this.#renewTimer);
      this.#renewTimer = setTimeout(() => this.#renewByItself(), Math.min(ms, TIMER_MAX_MS));
    };
    try {
      return await this.#auth({ refusal: this.#refusal, renewIn });
    } catch (cause) {
      throw new TidewireError('AUTH_CALLBACK_FAILED', `the function that gives credentials failed: ${String(cause)}`, { cause });
    }
  }

  #renewByItself(): void {
    this.#isRenewalDue = this.#state !== 'open';
    if (this.#isRenewalDue) return;
    this.renew().catch((error: TidewireError) => {
      this.onError(error);
      if (error.code === 'AUTH_CALLBACK_FAILED' || error.code === 'AUTH_UNAVAILABLE') {
        this.#renewTimer = setTimeout(() => this.#renewByItself(), this.options.reconnectMaxMs);
      }
    });
  }

  #receive(socket: WebSocketLike, data: unknown): void {
    let messages: Message[];
    try {
      if (typeof data === 'string') throw new Error('the server sent text: is this the path of the native protocol?');
      messages = decode(new Uint8Array(data as ArrayBuffer));
    } catch (cause) {
      if (socket !== this.#socket) return;
      this.onError(new TidewireError('INVALID_MESSAGE', (cause as Error).message, { cause }));
      return this.#lose('bytes that are not a message');
    }
    if (socket === this.#socket && this.#isAnswerDue) this.#beat();
    for (const message of messages) {
      // The message before this one may have closed or replaced the socket.
      if (socket !== this.#socket) return;
      const code = refusal(message);
      this.tap?.(message, false, code);
      if (message.topic === Topic.Connection) this.#handleConnection(message);
      else if (message.topic === Topic.Auth) this.#handleAuth(message);
      else if (this.#isLoggedIn) this.parts.get(message.topic)?.some((part) => part.handle?.(message, code));
    }
    if (socket === this.#socket && this.#state === 'stale') this.#goOn();
  }

  #handleConnection({ action, url, data }: Message): void {
    if (action === ConnectionAction.Pong) {
      this.#pings -= 1;
      if (this.#state === 'checking' && this.#pings === 0) this.#goOn();
    } else if (action === ConnectionAction.Accept) {
      this.messageBytesMax = (valueOf(data) as { messageBytesMax?: number } | undefined)?.messageBytesMax ?? Infinity;
      this.#become('authenticating');
      this.#login(this.#credentials as Promise<Credentials>);
    } else if (action === ConnectionAction.Redirect) {
      this.#redirects += 1;
      if (this.#redirects > REDIRECTS_MAX) return this.#lose(`more than ${REDIRECTS_MAX} redirects`);
      this.#drop();
      this.#dial(url);
    } else if (action === ConnectionAction.Reject) {
      this.#end(new TidewireError('CONNECTION_REJECTED', 'the server rejected this client'));
    } else if (action === ConnectionAction.AuthenticationTimeout) {
      this.#end(new TidewireError('AUTHENTICATION_TIMEOUT', 'no credentials were accepted in time'));
    }
  }

  #login(credentials: Promise<Credentials>): void {
    const socket = this.#socket;
    credentials.then(
      (given) => {
        if (socket !== this.#socket) return;
        try {
          this.#write({ topic: Topic.Auth, action: AuthAction.Request, ...payload(given) });
        } catch (error) {
          this.#end(error as TidewireError);
        }
      },
      (error: TidewireError) => {
        if (socket !== this.#socket) return;
        this.onError(error);
        this.#lose('no credentials');
      },
    );
  }

  #handleAuth({ action, data }: Message): void {
    const told = valueOf(data);
    if (action === AuthAction.Successful) {
      this.loginData = told;
      this.#refusal = undefined;
      if (this.#isLoggedIn) return this.#settleRenewal();
      this.#openedAt = Date.now();
      this.#redirects = 0;
      this.#goOn(true);
    } else if (action === AuthAction.Unsuccessful) {
      this.#refusal = told;
      if (this.#renewal) {
        const { code = 'AUTH_REFUSED' } = (told ?? {}) as { code?: string };
        this.#settleRenewal(new TidewireError(code, 'the login was not renewed', { data: told }));
      } else if (!this.#isLoggedIn && typeof this.#auth === 'function' && !this.#wasAskedAgain) {
        this.#wasAskedAgain = true;
        this.#login(this.#ask());
      } else if (!this.#isLoggedIn) {
        this.#refuseLogin(told);
      }
      // If the session is open, the server's next message ends it.
    } else if (action === AuthAction.TooManyAttempts || action === AuthAction.InvalidMessageData) {
      this.#refuseLogin(this.#refusal ?? told);
    }
  }

  /** In development mode the server explains why it refused a login. */
  #refuseLogin(data: unknown): void {
    const why = (data as { explanation?: string } | undefined)?.explanation;
    this.#end(new TidewireError('AUTH_REFUSED', `the server refused the credentials${why ? `: ${why}` : ''}`, { data }));
  }

  #settleRenewal(error?: unknown): void {
    const renewal = this.#renewal;
    this.#renewal = undefined;
    if (error === undefined) renewal?.resolve();
    else renewal?.reject(error);
  }

  /** Makes the connection `open`: after the login of a new session, or again after `checking` or `stale`. */
  #goOn(isNew = false): void {
    // The state changes first, so that the parts can send. The app is notified last: by then the parts have sent the subscriptions of a new
    // session.
    this.#state = 'open';
    this.#isFirst = this.problem = undefined;
    this.#beat();
    this.#all.forEach((part) => part.opened?.(isNew));
    this.#held.splice(0).forEach((message) => this.#write(message));
    this.#report();
    this.#opening?.resolve();
    this.#opening = undefined;
    if (this.#isRenewalDue) this.#renewByItself();
  }

  get #all(): Part[] {
    return [...this.parts.values()].flat();
  }

  #become(state: State): void {
    if (state === this.#state) return;
    this.#state = state;
    this.#report();
  }

  #report(reason?: TidewireError): void {
    this.callAll(this.onState, this.#state, reason);
  }

  /** Schedules the next heartbeat. */
  #beat(): void {
    const due = Date.now() + this.options.heartbeatIntervalMs;
    this.#after(this.options.heartbeatIntervalMs, () => {
      if (this.#isLoggedIn && Date.now() - due > SLEPT_MS) return this.check();
      this.#ping();
      this.#answers(() => {
        this.#answers(() => this.#lose('no answer to a heartbeat'));
        if (this.#isLoggedIn) this.#become('stale');
      });
    });
  }

  /** Calls `late` if no message arrives in time. A message that arrives schedules the next heartbeat instead. */
  #answers(late: () => void): void {
    this.#after(this.options.staleAfterMs, late);
    this.#isAnswerDue = true;
  }

  #ping(): void {
    this.#pings += 1;
    this.#write({ topic: Topic.Connection, action: ConnectionAction.Ping });
  }

  /** Sets the timer of the next phase, in place of the last one's. */
  #after(ms: number, callback: () => void): void {
    clearTimeout(this.#timer);
    this.#isAnswerDue = false;
    this.#timer = setTimeout(callback, ms);
  }

  #write(message: Message): void {
    const frame = this.encode(message);
    const { topic, action } = message;
    const isAnswered = topic === Topic.Rpc ? action === RpcAction.Request : topic !== Topic.Event;
    if (!isAnswered && frame.length > (this.#largest?.bytes ?? 0)) this.#largest = { message, bytes: frame.length };
    this.#socket?.send(frame as Uint8Array<ArrayBuffer>);
    this.tap?.(message, true);
  }

  /**
   * The message that was too large, so that the server closed the connection: the largest of the unanswered ones. The server does not
   * answer a message that is too large, so an answered one cannot be the cause.
   */
  #tooBig(): Refused | undefined {
    const unanswered = this.#all.flatMap((part) => part.unanswered?.() ?? []);
    const sent = unanswered.map((message) => ({ message, bytes: encode(message).length }));
    const [largest] = (this.#largest ? [...sent, this.#largest] : sent).sort((one, other) => other.bytes - one.bytes);
    if (!largest) return undefined;
    const { message, bytes } = largest;
    const error = tooLarge(bytes, undefined, message.name);
    if (largest === this.#largest) this.onError(error);
    return { message, error };
  }

  /** Gives up the socket and schedules another attempt. */
  #lose(why: string, code?: number): void {
    if (code === TOO_BIG && !this.#isLoggedIn) return this.#end(new TidewireError('TOO_LARGE', 'the credentials have more bytes than the server accepts'));
    const refused = code === TOO_BIG ? this.#tooBig() : undefined;
    const reason = this.problem ?? new TidewireError('CONNECTION_LOST', `the connection was lost: ${why}`, { data: code });
    const lasted = this.#openedAt === undefined ? 0 : Date.now() - this.#openedAt;
    const { reconnectMinMs, reconnectMaxMs } = this.options;
    // The delay is random, so that clients do not reconnect at the same moment. Its limit starts again after a session that lasted longer
    // than the longest delay.
    if (lasted > reconnectMaxMs) this.#attempts = 0;
    const wait = Math.random() * Math.min(reconnectMaxMs, reconnectMinMs * 2 ** this.#attempts);
    this.#attempts += 1;
    if (this.#isFirst && this.#state === 'connecting') this.#diagnose();
    this.#state = 'waiting';
    this.#after(wait, () => this.#dial(this.address));
    this.#drop(reason, refused);
    // The parts call functions of the app, which may have closed the client.
    if (this.#state === 'waiting') this.#report(reason);
  }

  /**
   * Finds out why the first connection does not open, after 2, 4, 8 and so on failures, because the cause may change. The module for that is
   * loaded here and not before. Without the module or without `fetch`, the cause stays unknown.
   */
  #diagnose(): void {
    const opening = this.#opening;
    const failures = this.#attempts;
    if (failures < 2 || failures & (failures - 1)) return;
    import('./diagnosis.js').then(({ diagnose }) => diagnose(this, TidewireError, failures, () => opening === this.#opening)).catch(() => {});
  }

  /** Closes the socket. If that ends a session, notifies the parts. */
  #drop(reason?: TidewireError, refused?: Refused): void {
    const socket = this.#socket;
    const wasLoggedIn = this.#isLoggedIn;
    this.#socket = this.#openedAt = undefined;
    this.#held = [];
    if (reason?.code === 'CLOSED' || !socket?.terminate) socket?.close();
    else socket.terminate();
    this.#settleRenewal(reason);
    if (wasLoggedIn) this.#all.forEach((part) => part.lost?.(refused));
  }

  /** Closes the connection for good; no other attempt follows. */
  #end(reason: TidewireError): void {
    clearTimeout(this.#timer);
    clearTimeout(this.#renewTimer);
    this.#stopWaking?.();
    this.#state = 'closed';
    this.reason = reason;
    const opening = this.#opening;
    this.#opening = undefined;
    this.#drop(reason);
    this.#all.forEach((part) => part.closed?.(reason));
    this.#report(reason);
    opening?.reject(reason);
  }
}
