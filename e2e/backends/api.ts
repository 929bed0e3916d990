// Each public member and option of `socket.io` 4.8, with the scenario that compares it on both packages, or the reason why it differs.

/** A scenario of `parity.test.ts`, `several.test.ts`, `recovery.test.ts` or `attach.test.ts`. */
export interface Same {
  scenario: string;
}

/** A difference. `docs/from-socketio.md` names it, and its use throws an error unless the entry has another effect. */
export interface Different {
  difference: 'refused' | 'a constant' | 'accepted without an effect' | 'only with an http server' | 'only of a started server';
}

export type Entry = Same | Different;

const same = (scenario: string): Same => ({ scenario });
const REFUSED: Different = { difference: 'refused' };

const EVENTS = 'events and acknowledgements in both directions';
const ROOMS = 'rooms and broadcasts';
const ROOM_EVENTS = 'events of rooms';
const KNOWN = 'what the server knows of its sockets';
const ANSWERS = 'acknowledgements of broadcasts';
const SECOND_NAMES = 'catch-all listeners, and methods with a second name';
const MAIN = 'the namespace / through the server';
const END = 'the end of a session';
const BETWEEN = 'events between apps';
const PORT = 'sockets and requests share a port';
const OTHER_PATH = 'another path, and upgrades of other code';
const FETCHED = 'each of the fetched sockets';
const RECOVERY = 'a client gets its socket back, with rooms, data and missed events';

/** The members of each class, without the ones of `EventEmitter` that the package does not declare itself. */
export const MEMBERS: Record<string, Record<string, Entry>> = {
  Server: {
    sockets: same(MAIN),
    engine: same(KNOWN),
    httpServer: same(PORT),
    encoder: REFUSED,
    serveClient: { difference: 'a constant' },
    path: same(MAIN),
    connectTimeout: REFUSED,
    adapter: REFUSED,
    listen: same(OTHER_PATH),
    attach: same(PORT),
    attachApp: REFUSED,
    bind: REFUSED,
    onconnection: REFUSED,
    of: same(MAIN),
    close: same(PORT),
    use: same('middlewares'),
    to: same(MAIN),
    in: same(MAIN),
    except: same(MAIN),
    send: same(MAIN),
    write: same(MAIN),
    serverSideEmit: same(BETWEEN),
    serverSideEmitWithAck: same(BETWEEN),
    allSockets: same(MAIN),
    compress: same(MAIN),
    volatile: same(MAIN),
    local: same(MAIN),
    timeout: same(MAIN),
    fetchSockets: same(MAIN),
    socketsJoin: same(MAIN),
    socketsLeave: same(MAIN),
    disconnectSockets: same(MAIN),
    on: same(EVENTS),
    once: same(MAIN),
    emit: same(MAIN),
    listeners: same(MAIN),
  },
  Namespace: {
    name: same('namespaces'),
    sockets: same(KNOWN),
    adapter: same(ROOMS),
    server: same(MAIN),
    use: same('middlewares'),
    to: same(ROOMS),
    in: same(ROOMS),
    except: same(ROOMS),
    emit: same(ROOMS),
    send: same(ROOMS),
    write: same(SECOND_NAMES),
    serverSideEmit: same(BETWEEN),
    serverSideEmitWithAck: same(BETWEEN),
    allSockets: same(KNOWN),
    compress: same(SECOND_NAMES),
    volatile: same(SECOND_NAMES),
    local: same(ROOMS),
    timeout: same(ANSWERS),
    fetchSockets: same(KNOWN),
    socketsJoin: same(ROOMS),
    socketsLeave: same(ROOMS),
    disconnectSockets: same(END),
    on: same(EVENTS),
    once: same(SECOND_NAMES),
    listeners: same(SECOND_NAMES),
  },
  Socket: {
    nsp: same(KNOWN),
    client: REFUSED,
    id: same(KNOWN),
    recovered: same(RECOVERY),
    handshake: same(KNOWN),
    data: same(KNOWN),
    connected: same(END),
    emit: same(EVENTS),
    emitWithAck: same(EVENTS),
    to: same(ROOMS),
    in: same(SECOND_NAMES),
    except: same(ROOMS),
    send: same(ROOMS),
    write: same(SECOND_NAMES),
    join: same(ROOMS),
    leave: same(ROOMS),
    disconnect: same(END),
    compress: same(ROOMS),
    volatile: same(SECOND_NAMES),
    broadcast: same(ROOMS),
    local: same(SECOND_NAMES),
    timeout: same(EVENTS),
    use: same('middlewares'),
    disconnected: same(KNOWN),
    request: same(SECOND_NAMES),
    conn: REFUSED,
    rooms: same(ROOMS),
    onAny: same(SECOND_NAMES),
    prependAny: same(SECOND_NAMES),
    offAny: same(SECOND_NAMES),
    listenersAny: same(SECOND_NAMES),
    onAnyOutgoing: same(SECOND_NAMES),
    prependAnyOutgoing: same(SECOND_NAMES),
    offAnyOutgoing: same(SECOND_NAMES),
    listenersAnyOutgoing: same(SECOND_NAMES),
    on: same(EVENTS),
    once: same(EVENTS),
    listeners: same(SECOND_NAMES),
  },
  BroadcastOperator: {
    to: same(ROOMS),
    in: same(SECOND_NAMES),
    except: same(ROOMS),
    compress: same(SECOND_NAMES),
    volatile: same(SECOND_NAMES),
    local: same(SECOND_NAMES),
    timeout: same('acknowledgements of all clients'),
    emit: same(ROOMS),
    emitWithAck: same(ANSWERS),
    allSockets: same(SECOND_NAMES),
    fetchSockets: same(KNOWN),
    socketsJoin: same('rooms of the sockets of both'),
    socketsLeave: same(ROOMS),
    disconnectSockets: same('the end of the sockets of both'),
  },
  RemoteSocket: {
    id: same('the sockets of both'),
    handshake: same('the sockets of both'),
    rooms: same('the sockets of both'),
    data: same('the sockets of both'),
    timeout: same(FETCHED),
    emit: same(FETCHED),
    join: same(FETCHED),
    leave: same(FETCHED),
    disconnect: same(FETCHED),
  },
};

/** The events that an app can listen to. */
export const EVENTS_OF: Record<string, Record<string, Entry>> = {
  Server: { connection: same(MAIN), new_namespace: same('namespaces') },
  Socket: { disconnect: same(END), disconnecting: same(END), error: same('middlewares') },
  Adapter: { 'create-room': same(ROOM_EVENTS), 'join-room': same(ROOM_EVENTS), 'leave-room': same(ROOM_EVENTS), 'delete-room': same(ROOM_EVENTS) },
};

/** The options of `new Server()`, with a value that `socket.io` accepts. */
export const OPTIONS: Record<string, Entry & { value?: unknown }> = {
  path: { difference: 'only with an http server' },
  serveClient: { ...REFUSED, value: true },
  adapter: { ...REFUSED, value: () => undefined },
  parser: { ...REFUSED, value: {} },
  connectTimeout: { difference: 'only of a started server' },
  connectionStateRecovery: same(RECOVERY),
  cleanupEmptyChildNamespaces: { ...REFUSED, value: true },
  pingTimeout: { difference: 'only of a started server' },
  pingInterval: { difference: 'only of a started server' },
  upgradeTimeout: { ...REFUSED, value: 1_000 },
  maxHttpBufferSize: { difference: 'only of a started server' },
  httpRequestBodyTimeout: { ...REFUSED, value: 1_000 },
  allowRequest: { ...REFUSED, value: () => undefined },
  transports: { ...REFUSED, value: ['websocket'] },
  allowUpgrades: { ...REFUSED, value: true },
  perMessageDeflate: { ...REFUSED, value: true },
  httpCompression: { ...REFUSED, value: true },
  maxBufferedChunks: { ...REFUSED, value: 1 },
  wsEngine: { ...REFUSED, value: () => undefined },
  initialPacket: { ...REFUSED, value: 'hello' },
  cookie: { ...REFUSED, value: true },
  cors: { difference: 'only of a started server' },
  allowEIO3: { ...REFUSED, value: true },
  destroyUpgrade: { ...REFUSED, value: true },
  destroyUpgradeTimeout: { ...REFUSED, value: 1_000 },
  addTrailingSlash: { ...REFUSED, value: false },
};
