// The server object of an app: namespaces over one backend.

import { EventEmitter } from 'node:events';
import { AskError, Backend, startServer, type EndReason, type ServerProcess, type SessionHandle, type StartOptions } from '@tidewire/server';
import type { BroadcastOperator, RemoteSocket } from './broadcast.js';
import { Namespace, type Adapter, type ExtendedError } from './namespace.js';
import type { RecoveryOptions } from './recovery.js';
import { HOST, isHttpServer, sharePort, type HttpServer } from './shared-port.js';
import type { Socket } from './socket.js';
import { checkRunning, environmentOf, type StartedOptions } from './start-options.js';
import { missing, type AckOf, type BroadcastParams, type DefaultEventsMap, type EventNames, type EventParams, type EventsMap, type Room, type SocketId, type WithoutAck } from './types.js';

export interface ServerOptions extends StartedOptions {
  /** The address of a running Tidewire server, or the addresses of the members of a cluster, as a list or with commas between them. */
  url: string | readonly string[];
  /** The key in `backend.key` of that server. */
  key: string;
  /** The address that a started server listens on. Default `127.0.0.1`. */
  host: string;
  /** The path of the program of a started server. */
  program: string;
  /** The folder with the data of a started server. */
  dataFolder: string;
  /** How long sockets wait for the server after the backend has lost it, in milliseconds. Default 10,000, as `backend.grace`. */
  graceMs: number;
  /** Gives clients that lose their connections their sockets back, with the events that they have missed. */
  connectionStateRecovery: RecoveryOptions;
  /**
   * Whether another process gets an event that this one was sent and has not handled when it ends: `once` does not repeat it, `again` does,
   * with `socket.redelivered`. For all namespaces, or by their names; a `*` at the end matches any text. Default `once`.
   */
  delivery: Delivery | Record<string, Delivery>;
  /** The path of the sockets on the port of an http server. The Tidewire server itself has only `/socket.io`, the default. */
  path: string;
}

/** How often a handler may get an event: at most once, or at least once. */
export type Delivery = 'once' | 'again';

/** Options of `socket.io` that are options of the Tidewire server, or that there is nothing for. */
const ELSEWHERE: Record<string, string> = {
  addTrailingSlash: 'the server accepts both paths; remove it',
  adapter: 'the server is the adapter, also in a cluster; remove it',
  allowEIO3: 'clients of version 2 are not supported; update them',
  allowRequest: 'use a middleware of io.use()',
  allowUpgrades: 'clients choose with their option `transports`',
  cleanupEmptyChildNamespaces: 'remove it',
  cookie: 'the server needs no sticky sessions; remove it',
  destroyUpgrade: 'remove it',
  destroyUpgradeTimeout: 'remove it',
  httpCompression: 'remove it',
  httpRequestBodyTimeout: 'the server limits the time of requests; remove it',
  initialPacket: 'emit an event in the handler of `connection`',
  maxBufferedChunks: 'remove it',
  parser: 'the server reads the default parser and socket.io-msgpack-parser, whichever a client has; remove it',
  perMessageDeflate: 'remove it',
  serveClient: 'load the client from npm or a CDN',
  transports: 'clients choose with their option `transports`',
  upgradeTimeout: 'set auth.login_timeout of the server',
  wsEngine: 'remove it',
};

/** Values that change nothing. */
const WITHOUT_EFFECT: Record<string, unknown> = { allowEIO3: false, cookie: false, httpCompression: false, perMessageDeflate: false, serveClient: false };

/** Events of the server itself. All others are events of the namespace `/`. */
const OWN_EVENTS = new Set(['error', 'new_namespace', 'newListener', 'removeListener']);

type ParentMatch = (name: string, auth: Record<string, unknown>, next: (error: Error | null, isAllowed: boolean) => void) => void;

/** The path of the Tidewire server. */
const PATH = '/socket.io';
const DEFAULT_GRACE_MS = 10_000;
/** The shortest time between two starts of a server that ends by itself. */
const RESTART_PAUSE_MS = 1_000;
/** How long sockets may have something to do at a hand-over. Half of the time that Docker gives a container to stop. */
const HAND_OVER_TIMEOUT_MS = 5_000;
/**
 * Sockets move in steps, so that an event waits for its own socket and not for all others: a process can open a few thousand in a second. All
 * have begun after `HAND_OVER_STEPS` steps.
 */
const HAND_OVER_STEP_MS = 10;
const HAND_OVER_STEPS = 200;
const HAND_OVER_STEP_SOCKETS = 20;

export class Server<
  ListenEvents extends EventsMap = DefaultEventsMap,
  EmitEvents extends EventsMap = ListenEvents,
  ServerSideEvents extends EventsMap = DefaultEventsMap,
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  SocketData = any,
> extends EventEmitter {
  readonly sockets: Namespace<ListenEvents, EmitEvents, ServerSideEvents, SocketData>;
  /** The counts of `engine` that apps read. */
  readonly engine: { readonly clientsCount: number };
  /** The number of backends that the server has. */
  backendCount = 1;
  readonly #namespaces = new Map<string, Namespace<ListenEvents, EmitEvents, ServerSideEvents, SocketData>>();
  readonly #parents: Array<[ParentMatch, Namespace<ListenEvents, EmitEvents, ServerSideEvents, SocketData>]> = [];
  /** The namespace of each session. */
  readonly #sessions = new Map<SessionHandle, Namespace<ListenEvents, EmitEvents, ServerSideEvents, SocketData>>();
  /** Sessions whose namespace a function decides about, with later messages for them. */
  readonly #opening = new Map<SessionHandle, Array<() => void>>();
  readonly #options: Partial<ServerOptions>;
  /** The namespaces whose events come again. */
  readonly #again: readonly string[];
  #backend: Backend | undefined;
  /** The server that this app has started; another one after its end. */
  #process: Promise<ServerProcess> | undefined;
  #httpServer: HttpServer | undefined;
  #path: string;
  #isServeDue = false;
  #grace: NodeJS.Timeout | undefined;
  #isClosed = false;
  /** Resolves a hand-over when no session is left. */
  #allReleased: (() => void) | undefined;
  readonly #ready = deferred();

  constructor(options: Partial<ServerOptions>);
  constructor(place: number | HttpServer, options?: Partial<ServerOptions>);
  constructor(first?: number | HttpServer | Partial<ServerOptions>, second: Partial<ServerOptions> = {}) {
    super();
    const place = typeof first === 'number' || isHttpServer(first) ? first : undefined;
    const options = place === undefined && typeof first === 'object' ? (first as Partial<ServerOptions>) : second;
    this.#options = options;
    checkOptions(options);
    this.#path = trimmed(options.path ?? PATH);
    this.#again = repeatedOf(options.delivery);
    this.sockets = this.of('/');
    const count = (): number => [...this.#namespaces.values()].reduce((sum, { sockets }) => sum + sockets.size, 0);
    this.engine = { get clientsCount() { return count(); } };
    const url = options.url ?? process.env['TIDEWIRE_URL'];
    const key = options.key ?? process.env['TIDEWIRE_BACKEND_KEY'];
    if (place !== undefined) this.listen(place);
    else if (url !== undefined && key !== undefined) {
      checkPath(this.#path);
      checkRunning(options);
      this.#connect(url, key);
    }
    else if (url !== undefined || key !== undefined) throw new TypeError('new Server() needs both `url` and `key` of the Tidewire server');
  }

  /** Resolves when the server is connected and serves the namespaces. It fails if it is not possible. */
  get ready(): Promise<void> {
    return this.#ready.promise;
  }

  /**
   * Starts a server on this port, or on the port of an http server of this app: then the requests and connections of the path are passed on to
   * the started server, and the app keeps all others.
   */
  listen(place: number | HttpServer): this {
    if (this.#backend ?? this.#process) throw new Error('the server is attached already');
    const { program, dataFolder } = this.#options;
    const env = environmentOf(this.#options);
    if (typeof place === 'number') {
      checkPath(this.#path);
      this.#start({ port: place, host: this.#options.host, program, dataFolder, env });
    } else if (isHttpServer(place)) {
      this.#httpServer = place;
      // The server trusts this process about the addresses of clients.
      const trust = { TIDEWIRE_NETWORK__TRUSTED_PROXIES: HOST, TIDEWIRE_NETWORK__FORWARDED_HEADER: 'forwarded' };
      this.#start({ host: HOST, program, dataFolder, env: { ...env, ...trust } });
      sharePort(place, this.#path, () => this.#process ?? Promise.reject(new Error('the server has ended')));
    } else {
      throw missing('servers of other kinds', 'use a port, a server of node:http, node:https or node:http2, or new Server({ url, key })');
    }
    return this;
  }

  attach(place: number | HttpServer): this {
    return this.listen(place);
  }

  /** Starts a server as a child process, and another one in its place if it ends by itself. */
  #start(options: StartOptions): void {
    const started = startServer(options);
    const began = Date.now();
    this.#process = started;
    const again = (next: StartOptions): void => {
      // A server that ends at once is not started in a loop without a pause.
      const pause = Math.max(0, began + RESTART_PAUSE_MS - Date.now());
      setTimeout(() => !this.#isClosed && this.#start(next), pause).unref();
    };
    started.then(
      ({ url, key, port, failed }) => {
        if (this.#isClosed) return;
        if (!this.#backend) this.#connect(url, key);
        void failed.then((error) => {
          this.#fail(error);
          // The sessions have ended with the server.
          this.#unbind();
          this.#endUnbound();
          again({ ...options, port, key });
        });
      },
      (error: Error) => {
        this.#fail(error);
        // The first start fails because of its options.
        if (this.#backend) again(options);
      },
    );
  }

  #fail(error: Error): void {
    this.#ready.reject(error);
    if (this.listenerCount('error') > 0) super.emit('error', error);
    else console.error(`tidewire: ${error.message}`);
  }

  #connect(url: string | readonly string[], key: string): void {
    const backend = new Backend({ url, key });
    this.#backend = backend;
    backend.on('connect', () => {
      // Sessions that the server has not kept are not coming back.
      clearTimeout(this.#grace);
      this.#grace = setTimeout(() => this.#endUnbound(), this.#options.graceMs ?? DEFAULT_GRACE_MS);
      for (const namespace of this.#namespaces.values()) namespace.served();
      this.#ready.resolve();
    });
    backend.on('disconnect', () => {
      this.#unbind();
      clearTimeout(this.#grace);
      this.#grace = setTimeout(() => this.#endUnbound(), this.#options.graceMs ?? DEFAULT_GRACE_MS);
    });
    backend.on('backends', (count) => (this.backendCount = count));
    backend.on('opened', (opened) => {
      const { session } = opened;
      const open = (namespace: Namespace<ListenEvents, EmitEvents, ServerSideEvents, SocketData> | undefined): void => {
        if (!namespace) {
          backend.refuse(session, '{"message":"Invalid namespace"}');
          return this.#forget(session);
        }
        this.#sessions.set(session, namespace);
        namespace.open(opened);
        // The server has given it before it knew of the hand-over.
        if (this.#allReleased) backend.handOverSession(session);
      };
      const known = this.#namespaces.get(opened.namespace);
      if (known) return open(known);
      // A session of another backend may have sent events that follow at once.
      const later: Array<() => void> = [];
      this.#opening.set(session, later);
      void this.#find(opened.namespace, opened.handshake.auth).then((namespace) => {
        if (this.#opening.get(session) !== later) return;
        this.#opening.delete(session);
        open(namespace);
        for (const then of later) then();
      });
    });
    backend.on('event', (session, payload, id, count) => {
      const handled = this.#isRepeated(session) ? backend.hold() : () => undefined;
      this.#later(session, (socket) => socket.receive(payload, id, count, handled), handled);
    });
    backend.on('answered', (session, id, payload) => this.#later(session, (socket) => socket.answered(id, payload)));
    backend.on('told', (name, payload, id) => {
      const namespace = this.#namespaces.get(name);
      if (namespace) return namespace.siblings.told(payload, id);
      // A namespace of a pattern that nothing has opened here: there is nothing to say.
      if (id !== undefined) backend.reply(id, { data: '[]' });
    });
    backend.on('closed', (session, reason) => {
      const later = this.#opening.get(session);
      if (later) return void later.push(() => this.#closed(session, reason));
      this.#closed(session, reason);
    });
    backend.on('handedOver', (session) => this.#sessions.get(session)?.handedOver(session));
    backend.on('error', (error) => this.#fail(error));
    this.#serveSoon();
  }

  #closed(session: SessionHandle, reason: EndReason): void {
    this.#sessions.get(session)?.closed(session, reason);
    this.#forget(session);
  }

  #forget(session: SessionHandle): void {
    this.#sessions.delete(session);
    if (this.#sessions.size === 0 && this.#opening.size === 0) this.#allReleased?.();
  }

  /** Whether an event of a session comes again, or may do so, because its namespace is not known yet. */
  #isRepeated(session: SessionHandle): boolean {
    if (this.#again.length === 0) return false;
    const name = this.#sessions.get(session)?.name;
    return name === undefined || this.#again.some((known) => (known.endsWith('*') ? name.startsWith(known.slice(0, -1)) : name === known));
  }

  #later(session: SessionHandle, then: (socket: Socket<ListenEvents, EmitEvents, ServerSideEvents, SocketData>) => void, otherwise: () => void = () => undefined): void {
    const later = this.#opening.get(session);
    if (later) return void later.push(() => this.#later(session, then, otherwise));
    const socket = this.#sessions.get(session)?.find(session);
    if (socket) then(socket);
    else otherwise();
  }

  /** The connection to the server is lost, and with it the handles of the sessions. */
  #unbind(): void {
    this.#sessions.clear();
    this.#opening.clear();
    for (const namespace of this.#namespaces.values()) namespace.unbind();
  }

  /** Ends the sockets whose sessions have not come back. */
  #endUnbound(): void {
    for (const namespace of this.#namespaces.values()) {
      for (const socket of [...namespace.sockets.values()]) if (!socket.handle) socket.ended('transport close');
    }
  }

  /** Announces the namespaces after the code of this turn has added all. */
  #serveSoon(): void {
    if (this.#isServeDue || !this.#backend) return;
    this.#isServeDue = true;
    queueMicrotask(() => {
      this.#isServeDue = false;
      if (this.#isClosed) return;
      const names = this.#parents.length > 0 ? ['/*'] : [...this.#namespaces.keys()];
      const added = [...this.#namespaces.values()];
      this.#backend?.serve(names, this.#again).then(
        () => added.forEach((namespace) => namespace.served()),
        (error: Error) => {
          if (!this.#isClosed) this.#fail(error);
        },
      );
    });
  }

  async #find(name: string, auth: Record<string, unknown>): Promise<Namespace<ListenEvents, EmitEvents, ServerSideEvents, SocketData> | undefined> {
    const known = this.#namespaces.get(name);
    if (known) return known;
    for (const [match, parent] of this.#parents) {
      const isAllowed = await new Promise<boolean>((resolve) => match(name, auth, (error, allowed) => resolve(!error && allowed)));
      if (!isAllowed) continue;
      const other = this.#namespaces.get(name);
      if (other) return other;
      const made = this.#make(name);
      made.inherit(parent);
      super.emit('new_namespace', made);
      return made;
    }
    return undefined;
  }

  /** A namespace; with a pattern or a function, all namespaces that it accepts. */
  of(name: string | RegExp | ParentMatch, listener?: (socket: Socket<ListenEvents, EmitEvents, ServerSideEvents, SocketData>) => void): Namespace<ListenEvents, EmitEvents, ServerSideEvents, SocketData> {
    let namespace;
    if (typeof name === 'string') {
      const full = name.startsWith('/') ? name : `/${name}`;
      namespace = this.#namespaces.get(full);
      if (!namespace) {
        namespace = this.#make(full);
        if (full !== '/') super.emit('new_namespace', namespace);
      }
    } else {
      const match: ParentMatch = typeof name === 'function' ? name : (text, _auth, next) => next(null, name.test(text));
      namespace = new Namespace<ListenEvents, EmitEvents, ServerSideEvents, SocketData>(this, `/_${this.#parents.length}`, this.#link());
      this.#parents.push([match, namespace]);
      this.#serveSoon();
    }
    if (listener) namespace.on('connection', listener);
    return namespace;
  }

  #make(name: string): Namespace<ListenEvents, EmitEvents, ServerSideEvents, SocketData> {
    const namespace = new Namespace<ListenEvents, EmitEvents, ServerSideEvents, SocketData>(this, name, this.#link(), this.#options.connectionStateRecovery);
    this.#namespaces.set(name, namespace);
    // A pattern serves all names.
    if (this.#parents.length === 0) this.#serveSoon();
    else namespace.served();
    return namespace;
  }

  /** The commands of the backend. Without one they have no target. */
  #link(): ConstructorParameters<typeof Namespace>[2] {
    const of = (): Backend | undefined => this.#backend;
    // A started server ends with this process.
    const keepsData = (): boolean => this.#process === undefined;
    return {
      get keepsData() {
        return keepsData();
      },
      accept: (...args) => of()?.accept(...args),
      refuse: (session, reason) => {
        of()?.refuse(session, reason);
        this.#forget(session);
      },
      send: (...args) => of()?.send(...args),
      answer: (...args) => of()?.answer(...args),
      broadcast: (...args) => of()?.broadcast(...args),
      ask: (...args) => of()?.ask(...args) ?? Promise.reject(new AskError('the app has no connection to the server', 'lost')),
      tell: (...args) => of()?.tell(...args) ?? Promise.reject(new AskError('the app has no connection to the server', 'lost')),
      reply: (...args) => of()?.reply(...args),
      report: (error) => this.#fail(error),
      join: (...args) => of()?.join(...args),
      leave: (...args) => of()?.leave(...args),
      end: (session, withConnection) => {
        of()?.end(session, withConnection);
        this.#forget(session);
      },
      setData: (...args) => of()?.setData(...args),
      release: (session) => {
        of()?.release(session);
        this.#forget(session);
      },
    };
  }

  override on(event: 'connection' | 'connect', listener: (socket: Socket<ListenEvents, EmitEvents, ServerSideEvents, SocketData>) => void): this;
  override on(event: 'new_namespace', listener: (namespace: Namespace<ListenEvents, EmitEvents, ServerSideEvents, SocketData>) => void): this;
  override on(event: 'error', listener: (error: Error) => void): this;
  override on<Event extends EventNames<ServerSideEvents>>(event: Event, listener: ServerSideEvents[Event]): this;
  override on(event: string, listener: (...args: never[]) => void): this {
    if (OWN_EVENTS.has(event)) super.on(event, listener as () => void);
    else EventEmitter.prototype.on.call(this.sockets, event, listener as () => void);
    return this;
  }

  override once(event: 'connection' | 'connect', listener: (socket: Socket<ListenEvents, EmitEvents, ServerSideEvents, SocketData>) => void): this {
    this.sockets.once(event, listener);
    return this;
  }

  use(middleware: (socket: Socket<ListenEvents, EmitEvents, ServerSideEvents, SocketData>, next: (error?: ExtendedError) => void) => void): this {
    this.sockets.use(middleware);
    return this;
  }

  override emit<Event extends EventNames<EmitEvents>>(event: Event, ...args: BroadcastParams<EventParams<EmitEvents, Event>>): boolean {
    return this.sockets.emit(event, ...args);
  }

  emitWithAck<Event extends EventNames<EmitEvents>>(event: Event, ...args: WithoutAck<EventParams<EmitEvents, Event>>): Promise<Array<AckOf<EventParams<EmitEvents, Event>>>> {
    return this.sockets.emitWithAck(event, ...args);
  }

  send(...args: EventParams<EmitEvents, EventNames<EmitEvents>>): this {
    this.sockets.send(...args);
    return this;
  }

  write(...args: EventParams<EmitEvents, EventNames<EmitEvents>>): this {
    return this.send(...args);
  }

  to(room: Room | readonly Room[]): BroadcastOperator<EmitEvents, SocketData> {
    return this.sockets.to(room);
  }

  in(room: Room | readonly Room[]): BroadcastOperator<EmitEvents, SocketData> {
    return this.sockets.to(room);
  }

  except(room: Room | readonly Room[]): BroadcastOperator<EmitEvents, SocketData> {
    return this.sockets.except(room);
  }

  compress(compress: boolean): BroadcastOperator<EmitEvents, SocketData> {
    return this.sockets.compress(compress);
  }

  get volatile(): BroadcastOperator<EmitEvents, SocketData> {
    return this.sockets.volatile;
  }

  get local(): BroadcastOperator<EmitEvents, SocketData> {
    return this.sockets.local;
  }

  timeout(timeoutMs: number): BroadcastOperator<EmitEvents, SocketData> {
    return this.sockets.timeout(timeoutMs);
  }

  fetchSockets(): Promise<Array<RemoteSocket<EmitEvents, SocketData>>> {
    return this.sockets.fetchSockets();
  }

  socketsJoin(rooms: Room | Room[]): void {
    this.sockets.socketsJoin(rooms);
  }

  socketsLeave(rooms: Room | Room[]): void {
    this.sockets.socketsLeave(rooms);
  }

  disconnectSockets(close = false): void {
    this.sockets.disconnectSockets(close);
  }

  allSockets(): Promise<Set<SocketId>> {
    return this.sockets.allSockets();
  }

  serverSideEmit<Event extends EventNames<ServerSideEvents>>(event: Event, ...args: BroadcastParams<EventParams<ServerSideEvents, Event>>): boolean {
    return this.sockets.serverSideEmit(event, ...args);
  }

  serverSideEmitWithAck<Event extends EventNames<ServerSideEvents>>(event: Event, ...args: WithoutAck<EventParams<ServerSideEvents, Event>>): Promise<Array<AckOf<EventParams<ServerSideEvents, Event>>>> {
    return this.sockets.serverSideEmitWithAck(event, ...args);
  }

  /** The http server of the app whose port the sockets share. @throws without one. */
  get httpServer(): HttpServer {
    if (!this.#httpServer) throw missing('io.httpServer', 'the server has its own port; use new Server(httpServer)');
    return this.#httpServer;
  }

  /** @throws always. */
  get encoder(): never {
    throw missing('io.encoder', 'the server encodes packets');
  }

  /** @throws always. */
  attachApp(_app: unknown, _options?: unknown): never {
    throw missing('io.attachApp()', 'use new Server(port) or new Server({ url, key })');
  }

  /** @throws always. */
  bind(_engine: unknown): never {
    throw missing('io.bind()', 'use new Server(port) or new Server({ url, key })');
  }

  /** @throws always. */
  onconnection(_connection: unknown): never {
    throw missing('io.onconnection()', 'the server has the connections');
  }

  /** The path of the sockets. Another one than `/socket.io` needs an http server, and is set before. */
  path(): string;
  path(path: string): this;
  path(path?: string): string | this {
    if (path === undefined) return this.#path;
    if (this.#backend ?? this.#process) checkPath(path);
    this.#path = trimmed(path);
    return this;
  }

  /** The server does not have the files of the client. */
  serveClient(): boolean;
  serveClient(isServed: boolean): this;
  serveClient(isServed?: boolean): boolean | this {
    if (isServed === undefined) return false;
    if (isServed) throw missing('io.serveClient()', ELSEWHERE['serveClient'] ?? '');
    return this;
  }

  /** @throws always. */
  connectTimeout(_milliseconds?: number): never {
    throw missing('io.connectTimeout()', 'use the option connectTimeout, or set auth.login_timeout of a running server');
  }

  /** The server is the adapter: there is nothing to set. */
  adapter(): Adapter;
  adapter(adapter: unknown): never;
  adapter(adapter?: unknown): Adapter {
    if (adapter !== undefined) throw missing('io.adapter()', ELSEWHERE['adapter'] ?? '');
    return this.sockets.adapter;
  }

  /** Disconnects the clients of this backend and ends it. A server that it has started stops, and an http server whose port it shares closes. */
  async close(done?: (error?: Error) => void): Promise<void> {
    for (const namespace of this.#namespaces.values()) {
      for (const socket of [...namespace.sockets.values()]) {
        const { handle } = socket;
        if (handle) this.#backend?.end(handle, true);
        socket.ended('server shutting down');
      }
    }
    await this.#end();
    const httpServer = this.#httpServer;
    const error = httpServer && (await new Promise<Error | undefined>((resolve) => httpServer.close(resolve)));
    done?.(error);
  }

  /**
   * Ends this process of the app without disconnecting its clients: another process of the app continues their sockets. This one gets no further
   * events. Each socket moves as soon as its handlers have returned, their promises are settled, the client has its acknowledgements, and this
   * process has the ones of the client. After the timeout, 5,000 ms by default, it moves anyway. A server that this process has started stops.
   */
  async handOver({ timeoutMs = HAND_OVER_TIMEOUT_MS }: { timeoutMs?: number } = {}): Promise<void> {
    const backend = this.#backend;
    // A started server ends together with its sessions.
    if (backend && !this.#process && !this.#isClosed) await this.#releaseAll(backend, timeoutMs);
    await this.#end();
  }

  #releaseAll(backend: Backend, timeoutMs: number): Promise<void> {
    return new Promise((resolve) => {
      const left = [...this.#sessions.keys()];
      const perStep = Math.max(HAND_OVER_STEP_SOCKETS, Math.ceil(left.length / HAND_OVER_STEPS));
      const step = (): void => {
        for (const session of left.splice(0, perStep)) if (this.#sessions.has(session)) backend.handOverSession(session);
      };
      const steps = setInterval(step, HAND_OVER_STEP_MS);
      const end = (): void => {
        clearTimeout(timer);
        clearInterval(steps);
        resolve();
      };
      const timer = setTimeout(end, timeoutMs);
      let isAnswered = false;
      this.#allReleased = () => {
        if (isAnswered) end();
      };
      backend.once('disconnect', end);
      backend.handOver().then(
        () => {
          isAnswered = true;
          if (this.#sessions.size === 0 && this.#opening.size === 0) end();
        },
        // Its connection is lost, so the server has taken all sessions.
        end,
      );
    });
  }

  async #end(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#grace);
    await this.#backend?.close();
    clearTimeout(this.#grace);
    await this.#process?.then((server) => server.stop()).catch(() => undefined);
  }
}

/** The namespaces whose events come again. */
function repeatedOf(delivery: ServerOptions['delivery'] | undefined): string[] {
  const check = (value: unknown): boolean => {
    if (value !== 'once' && value !== 'again') throw new TypeError('the option delivery is `once` or `again`, for all namespaces or by their names');
    return value === 'again';
  };
  if (typeof delivery !== 'object') return check(delivery ?? 'once') ? ['/*'] : [];
  return Object.entries(delivery).flatMap(([name, value]) => (check(value) ? [name.startsWith('/') ? name : `/${name}`] : []));
}

function checkOptions(options: Partial<ServerOptions>): void {
  for (const [name, value] of Object.entries(options)) {
    const instead = ELSEWHERE[name];
    if (instead !== undefined && value !== undefined && value !== WITHOUT_EFFECT[name]) throw missing(`the option ${name}`, instead);
  }
}

/** A path without the slash at its end. */
function trimmed(path: string): string {
  return path.replace(/\/$/, '');
}

function checkPath(path: string): void {
  if (trimmed(path) !== PATH) throw missing('the option path', 'the path of the server is /socket.io; another one needs new Server(httpServer)');
}

function deferred(): { promise: Promise<void>; resolve: () => void; reject: (error: Error) => void } {
  let [resolve, reject]: [() => void, (error: Error) => void] = [() => undefined, () => undefined];
  const promise = new Promise<void>((done, fail) => ([resolve, reject] = [done, fail]));
  // An app that does not wait gets the error as an event.
  promise.catch(() => undefined);
  return { promise, resolve, reject };
}
