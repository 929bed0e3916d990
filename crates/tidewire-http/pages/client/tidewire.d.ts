/** A WebSocket as in browsers and in the package `ws`. */
export interface WebSocketLike {
	binaryType: string;
	readonly bufferedAmount: number;
	onopen: ((event: never) => void) | null;
	onmessage: ((event: never) => void) | null;
	onclose: ((event: never) => void) | null;
	onerror: ((event: never) => void) | null;
	send(data: Uint8Array<ArrayBuffer>): void;
	close(): void;
	/** Closes the connection without waiting for the other side; only `ws` has it. */
	terminate?(): void;
}
export type WebSocketClass = new (url: string) => WebSocketLike;
interface ErrorDetails {
	/** The name of the event, rpc or record, or the user id. */
	subject?: string | undefined;
	/** The reason that the other side gave. */
	data?: unknown;
	cause?: unknown;
}
/** An error of the client or of the server. Act on `code`, never on the text. */
export declare class TidewireError extends Error {
	readonly code: string;
	readonly name = "TidewireError";
	readonly subject: string | undefined;
	readonly data: unknown;
	constructor(code: string, message: string, details?: ErrorDetails);
}
/** A position in an event's history: the session has received everything up to `offset` of `epoch`. */
export interface Position {
	epoch: number;
	offset: number;
}
interface Message {
	topic: number;
	action: number;
	/** A JSON text. */
	data?: string;
	correlationId?: string;
	isError?: boolean;
	isAck?: boolean;
	isWriteAck?: boolean;
	name?: string;
	names?: string[];
	subscription?: string;
	originalTopic?: number;
	originalAction?: number;
	path?: string;
	version?: number;
	/** A number of 64 bits; its varint if it may exceed the safe integers. */
	incarnation?: number | Uint8Array;
	only?: number;
	existed?: boolean;
	key?: string;
	seenVersion?: number;
	url?: string;
	protocolVersion?: string;
	sdkVersion?: string;
	sdkType?: string;
	batches?: boolean;
	jumps?: boolean;
	missed?: number;
	epoch?: number;
	offset?: number;
	positions?: Array<{
		name: string;
	} & Partial<Position>>;
	traceparent?: string | undefined;
	/** Of `bytes`. */
	contentType?: string;
	/** A payload that is not JSON. */
	bytes?: Uint8Array;
	requestorName?: string;
	requestorData?: string;
}
/** The parts of an AbortSignal that the client uses. Runtimes without that class may pass their own object. */
export interface Signal {
	readonly aborted: boolean;
	readonly reason?: unknown;
	addEventListener(event: "abort", listener: () => void): void;
	removeEventListener(event: "abort", listener: () => void): void;
}
/**
 * - `closed`: not started, closed by the app, or refused for good; only `connect()` leaves this state
 * - `connecting`: a socket is being opened
 * - `authenticating`: the server has accepted the connection and receives the credentials
 * - `open`: messages flow
 * - `checking`: the page was asleep or its network changed; the state is `open` again after one round trip
 * - `stale`: the server has not answered a heartbeat in time; no messages flow at the moment
 * - `waiting`: the connection was lost; the next attempt follows after a delay
 */
export type State = "closed" | "connecting" | "authenticating" | "open" | "checking" | "stale" | "waiting";
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
export type ValueKind = "record" | "event" | "argument" | "result";
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
type Defaults = Required<Omit<ConnectionOptions, "auth" | "webSocket" | "validate">>;
interface Part {
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
interface Refused {
	message: Message;
	error: TidewireError;
}
declare class Connection {
	#private;
	readonly address: string | undefined;
	/** The parts of each topic, in the order in which they are notified. */
	readonly parts: Map<number, Part[]>;
	/** The client data that the server sent at the login. */
	loginData: unknown;
	/** The limit of a message in bytes; infinite if the server has not announced one. */
	messageBytesMax: number;
	/** The reason why the connection is closed; undefined before the first `connect()`. */
	reason: TidewireError | undefined;
	/** Why the first connection does not open, once `diagnosis.ts` has found out. */
	problem: TidewireError | undefined;
	/** Called at every change of the state. */
	readonly onState: Set<StateCallback>;
	/** Called for errors that no other callback receives. */
	readonly onErrors: Set<(error: TidewireError) => void>;
	/** Called with each message that was sent or has arrived, with the code of a refusal: for `@tidewire/client/inspect`. */
	tap: ((message: Message, isSent: boolean, code?: string) => void) | undefined;
	readonly validate: Validate | undefined;
	readonly options: Defaults & ConnectionOptions;
	constructor(address: string | undefined, options: ConnectionOptions);
	get state(): State;
	/** Dials if the connection is closed. Fulfilled when the connection is open, rejected when it is closed for good. */
	connect(options?: ConnectOptions): Promise<void>;
	/** Logs the open session in again, with other credentials of the same user. */
	renew(auth?: Auth): Promise<void>;
	/** Checks by a round trip that the connection is alive. If the client waits before its next attempt, it dials at once. */
	check(): void;
	/** Closes the connection; messages that were sent before still leave. */
	close(): void;
	/** The bytes of `message`. Throws `TOO_LARGE` if they exceed the limit that the server has announced. */
	encode(message: Message): Uint8Array;
	/** Sends `message` if the connection is open, else returns false. Throws `TOO_LARGE` if the message exceeds the server's limit. */
	send(message: Message): boolean;
	/**
	 * Sends `message` in this session or not at all. While the client checks whether the connection is alive, the message waits. Returns the
	 * error of a message that is too large.
	 */
	answer(message: Message): TidewireError | undefined;
	/** Reports an error that no other callback receives. */
	onError(error: TidewireError): void;
	/** Calls a function of the app. If it throws, `onError` receives the error, and other callbacks still run. */
	call<Arguments extends unknown[]>(callback: (...args: Arguments) => unknown, ...args: Arguments): void;
	/** Calls all of `callbacks`. A callback that adds or removes others does not change which ones this call reaches. */
	callAll<Arguments extends unknown[]>(callbacks: Iterable<(...args: Arguments) => unknown>, ...args: Arguments): void;
	/** Calls every `onEnd` of `all` with the error. If no entry has one, `onError` receives it. */
	callEnds(all: Iterable<{
		onEnd?: (error: TidewireError) => void;
	}>, error: TidewireError): void;
	/** Throws the error that the app's validation returns for the payload `data`. */
	judge(kind: ValueKind, name: string, data: string | Uint8Array | undefined): void;
	/** Does what `checkUse` does, for a function that registers `callback`. */
	checkCallback(callback: unknown): void;
	/** Throws if the connection was closed, or if too many bytes wait in its socket. */
	checkUse(): void;
}
interface Deferred<T = void> {
	promise: Promise<T>;
	resolve(value: T): void;
	reject(reason: unknown): void;
}
/** An entry to add, at the end or before the one at an index; or an entry to remove, everywhere or only one occurrence of it. */
export type ListChange = readonly [
	"add",
	entry: string,
	index?: number | undefined
] | readonly [
	"remove",
	entry: string,
	earlier?: number | undefined
];
type Update = ((value: never) => unknown) & {
	readonly list?: ListChange;
};
/** The entries of a document; empty if it is not a list. */
export declare function entriesOf<Entry extends string>(value: unknown): readonly Entry[];
/**
 * The types that an app declares. Names may be template literals, such as `` [name: `chat/${string}`]: { text: string } ``. If a name
 * matches several, as with `` `board/${string}` `` and `` `board/${string}/card/${string}` ``, the narrowest one counts: declare these in
 * separate types, and join the types by `&`.
 *
 * - `records`: names to documents
 * - `events`: names to payloads
 * - `rpcs`: names to functions of one argument
 * - `scopes`: names to the states of members (`@tidewire/client/scopes`)
 */
export interface Schema {
	records?: object;
	events?: object;
	rpcs?: object;
	scopes?: object;
}
type AnyRecords = {
	[name: string]: unknown;
};
type AnyEvents = {
	[name: string]: unknown;
};
type AnyRpcs = {
	[name: string]: (argument?: unknown) => unknown;
};
export type RecordsOf<App> = App extends {
	records: infer Records;
} ? Records : AnyRecords;
export type EventsOf<App> = App extends {
	events: infer Events;
} ? Events : AnyEvents;
export type ScopesOf<App> = App extends {
	scopes: infer Scopes extends object;
} ? Scopes : {
	[name: string]: unknown;
};
export type RpcsOf<App> = App extends {
	rpcs: infer Rpcs;
} ? Rpcs : AnyRpcs;
/** The names of a part of a schema. */
export type Names<Part> = keyof Part & string;
type Matching<Key, Name> = Key extends string ? (Name extends Key ? Key : never) : never;
type Narrower<Keys, Key> = Keys extends Key & string ? (Key extends Keys ? never : Keys) : never;
type Wider<Keys, Key> = Keys extends string ? (Key extends Keys ? (Keys extends Key ? never : Keys) : never) : never;
type Narrowest<Keys, All = Keys> = Keys extends unknown ? ([
	Narrower<All, Keys>
] extends [
	never
] ? Keys : never) : never;
type IsUnion<Type, All = Type> = Type extends unknown ? ([
	All
] extends [
	Type
] ? false : true) : never;
type Below<Part, Key extends string> = Part extends {
	[Name in Key]: infer Value;
} ? Value : never;
type Without<Members, Others> = Members extends unknown ? ([
	Equal<Members, Others>
] extends [
	never
] ? Members : never) : never;
type Equal<Member, Others> = Others extends unknown ? ([
	Member,
	Others
] extends [
	Others,
	Member
] ? Member : never) : never;
type Declared<Part, Key extends string & keyof Part> = [
	Wider<keyof Part, Key>
] extends [
	never
] ? Part[Key] : [
	Narrower<keyof Part, Key>
] extends [
	never
] ? Below<Part, Key> : Without<Below<Part, Key>, Below<Part, Narrower<keyof Part, Key> & string>>;
type DeclaredEach<Part, Keys> = Keys extends string & keyof Part ? Declared<Part, Keys> : never;
/** The type of the value with a name. If the name matches several keys of the part, the narrowest one counts. */
export type ValueOf<Part, Name> = string extends keyof Part ? Part[Name & keyof Part] : Name extends keyof Part ? true extends IsUnion<Matching<keyof Part, Name>> ? DeclaredEach<Part, Narrowest<Matching<keyof Part, Name>>> : Part[Name] : never;
type Callable = (argument: never) => unknown;
/** The argument of an rpc; `undefined` if it takes none. */
export type Argument<Rpc> = Rpc extends Callable ? Parameters<Rpc>[0] : never;
/** The result of an rpc. */
export type Result<Rpc> = Rpc extends Callable ? Awaited<ReturnType<Rpc>> : never;
/** A value that the caller may omit if it may be undefined, and the options after it. */
export type Optional<Value, Options> = undefined extends Value ? [
	value?: Value,
	options?: Options
] : [
	value: Value,
	options?: Options
];
type Deeper = [
	never,
	0,
	1,
	2,
	3,
	4
];
type Rest<Value, Depth extends number> = [
	Depth
] extends [
	never
] ? never : Value extends ReadonlyArray<infer Entry> ? `[${number}]` | `[${number}]${Rest<NonNullable<Entry>, Deeper[Depth] & number>}` : Value extends object ? `.${Path<Value, Deeper[Depth] & number>}` : never;
type Spelled<Key extends string> = {} extends Record<Key, 1> ? never : Key extends "" | `${string}${"." | "[" | "]"}${string}` | ` ${string}` | `${string} ` ? never : Key;
/** The text paths of a document: `address.streets[2].name`. Any text if the type of the document is unknown. */
export type Path<Doc, Depth extends number = 5> = unknown extends Doc ? string : Doc extends ReadonlyArray<infer Entry> ? `${number}` | `${number}${Rest<NonNullable<Entry>, Depth>}` : Texts<Doc, Depth>[keyof Texts<Doc, Depth>];
type Texts<Doc, Depth extends number> = {
	[Key in keyof Doc as Key extends string ? Spelled<Key> : never]-?: Key extends string ? Key | `${Key}${Rest<NonNullable<Doc[Key]>, Depth>}` : never;
};
/** One step of a path: a key of an object, or an index of an array. */
export type Step = string | number;
/** The array paths of a document: `['items', id, 'name']`. Their keys may be any text. */
export type Steps<Doc, Depth extends number = 5> = unknown extends Doc ? readonly [
	Step,
	...Step[]
] : Doc extends ReadonlyArray<infer Entry> ? readonly [
	number,
	...Further<Entry, Depth>
] : Doc extends object ? {
	[Key in keyof Doc & Step]: readonly [
		Key,
		...Further<Doc[Key], Depth>
	];
}[keyof Doc & Step] : never;
type Further<Value, Depth extends number> = unknown extends Value ? readonly Step[] : [
] | ([
	Depth
] extends [
	never
] ? never : Steps<NonNullable<Value>, Deeper[Depth] & number>);
/** A path of a document, as a text or as an array. */
export type AnyPath<Doc> = Path<Doc> | Steps<Doc>;
/** A path and the value to set there; undefined removes the value at the path. */
export type Change<Doc> = AnyPath<Doc> extends infer At ? (At extends AnyPath<Doc> ? readonly [
	path: At,
	value: ValueAt<Doc, At> | undefined
] : never) : never;
type Indexed<Value, Text> = Text extends `[${string}]${infer More}` ? NonNullable<Value> extends ReadonlyArray<infer Entry> ? Indexed<Entry, More> : never : Value;
type Inside<Doc, Key> = Doc extends ReadonlyArray<infer Entry> ? Entry : Key extends keyof Doc ? Doc[Key] : never;
type Present<Value> = unknown extends Value ? Value : NonNullable<Value>;
/**
 * The type of the value at a path of a document; any value on the way may be undefined. A map accepts any key, so the path is split first.
 */
export type ValueAt<Doc, At> = unknown extends Doc ? unknown : At extends readonly [
	infer First,
	...infer More
] ? More extends readonly [
] ? Inside<Doc, First> : ValueAt<Present<Inside<Doc, First>>, More> : At extends `${infer First}.${infer More}` ? ValueAt<NonNullable<ValueAt<Doc, First>>, More> : At extends `${infer First}[${infer Index}]${infer More}` ? Indexed<ValueAt<Doc, First>, `[${Index}]${More}`> : At extends keyof Doc ? Doc[At] : Doc extends ReadonlyArray<infer Entry> ? Entry : never;
type AnyPath$1 = string | readonly Step[];
interface Subscriber {
	path: AnyPath$1 | undefined;
	last: unknown;
	callback: (value: never) => void;
}
declare class Watched {
	#private;
	/** Undefined while the value is unknown. */
	value: unknown;
	constructor(caller: Pick<Connection, "call">);
	/** The value at `path`, or the whole value. */
	at(path: AnyPath$1 | undefined): unknown;
	subscribe(at: AnyPath$1 | undefined, callback: Subscriber["callback"]): () => void;
	/** Takes a new value, and notifies the subscribers whose part of it has changed. */
	protected show(value: unknown): void;
}
/** The argument of a merge function: the server's value, this client's value with its edits, and the last value that both had. */
export interface Conflict<Value = unknown> {
	readonly name: string;
	readonly remote: Value;
	readonly local: Value;
	readonly base: Value;
}
/**
 * How edits are merged if another client wrote first. `local` applies them again to the new value, each at its path. `remote` discards
 * them. A function returns the new value of the record.
 */
export type Merge<Value = unknown> = "local" | "remote" | ((conflict: Conflict<Value>) => Value);
interface Patch {
	path?: AnyPath$1;
	value?: unknown;
}
interface Edit {
	patches: Patch[];
	update?: Update;
	key?: string;
	seen?: Seen | undefined;
	done: Deferred;
}
type Seen = Pick<Message, "incarnation" | "seenVersion">;
declare class Document$1 extends Watched {
	#private;
	readonly name: string;
	private readonly connection;
	private readonly draw;
	/** Called when the server has refused the record. */
	private readonly ended;
	/** Called when all edits are confirmed. */
	private readonly settled;
	ready: Deferred<void>;
	readonly watchers: Set<(hasProvider: boolean) => void>;
	hasProvider: boolean;
	/** The number of open handles. */
	users: number;
	version: number;
	/** The error if the server has no such record and the document must not create it. */
	notFound: TidewireError | undefined;
	merge: Merge;
	/** Whether the record is created if the server has none. */
	isCreated: boolean;
	/** Called with the server's value and version whenever they arrive. */
	took: ((value: unknown, version: number) => void) | undefined;
	constructor(name: string, connection: Connection, draw: () => string, 
	/** Called when the server has refused the record. */
	ended: (error: TidewireError) => void, 
	/** Called when all edits are confirmed. */
	settled: () => void);
	/** The state of the record, if the server has sent its incarnation. */
	get seen(): Seen;
	get isSaved(): boolean;
	/** The unconfirmed edits, and how many of them are in flight: for `@tidewire/client/inspect`. */
	get pending(): {
		edits: readonly Edit[];
		sent: number;
	};
	/** Fulfilled when all edits so far are durable; rejected with the first refusal. */
	saved(): Promise<void>;
	/**
	 * With a `key` the edit is sent as a separate write. The server makes that write once, even if an earlier client has already sent it;
	 * `seen` is then the state that the earlier client had seen.
	 * With `isSkippedIfEqual`, an edit that changes nothing is dropped if no other edit waits.
	 */
	edit(patches: Patch[], update?: Edit["update"], key?: string, isSkippedIfEqual?: boolean, seen?: Seen): Promise<void>;
	handle(message: Message, code: string | undefined): void;
	opened(isNew: boolean): void;
	unanswered(): Message[];
	lost(tooLarge: Refused | undefined): void;
	/** Makes the document create a missing record. True if the session has to subscribe to it again for that. */
	create(): boolean;
	/** Discards all edits. */
	end(error: TidewireError): void;
	/** The record is gone for good: subscribers receive undefined. */
	remove(error: TidewireError): void;
}
export interface RequestOptions {
	/** Ends the wait, with the signal's reason. The server may still carry out the request. */
	signal?: Signal | undefined;
	/**
	 * Milliseconds until the request fails with TIMEOUT, including the time without a connection; by default the client's `requestTimeoutMs`.
	 */
	timeoutMs?: number | undefined;
}
declare class Requests {
	#private;
	private readonly connection;
	constructor(connection: Connection);
	/**
	 * Sends `message` as soon as the connection is open, and waits until `settle` is called for it. Without `id`, the message gets a new
	 * correlation id.
	 */
	ask(message: Message, isRepeatable: boolean, options?: RequestOptions, id?: string): Promise<Message>;
	/** Settles the request `id` with an answer or an error; false if the request no longer waits. */
	settle(id: string | undefined, answer: Message | TidewireError): boolean;
	opened(): void;
	unanswered(): Message[];
	/**
	 * A repeatable request is sent again in the next session. Any other request fails if it was sent, because the server may have carried it
	 * out.
	 */
	lost(refused?: Refused): void;
	closed(reason: TidewireError): void;
}
export interface OpenOptions<Doc = unknown> {
	/** How edits are merged if another client wrote first; by default `local`. It applies to all handles of the record. */
	merge?: Merge<Doc>;
	/**
	 * False opens the record only if it exists. If it does not, `ready` and all edits are rejected with RECORD_NOT_FOUND, and the value
	 * arrives as soon as another client has written the record. By default true: a missing record is created.
	 */
	create?: boolean;
	/** Called when the server refused the record or revoked the right to it, or when the record was deleted: no more changes arrive. */
	onEnd?: (error: TidewireError) => void;
}
/** Several paths with their values; undefined removes the value at its path. */
export type Changes<Doc> = {
	readonly [At in Path<Doc>]?: ValueAt<Doc, At> | undefined;
};
type SharedRecord = Pick<Document$1, "name" | "ready" | "value" | "version" | "notFound" | "isSaved" | "hasProvider" | "watchers" | "at" | "edit" | "saved" | "subscribe">;
/**
 * An open record: its value, with the edits of this client that the server has not confirmed yet. A value never changes, it is only
 * replaced: an unchanged part stays the same object. The app must not change it either.
 */
export declare class RecordHandle<Doc = unknown> {
	#private;
	readonly name: string;
	/**
	 * Fulfilled when the value has arrived. Rejected if the server refuses the record, or with RECORD_NOT_FOUND if it is missing and must not
	 * be created.
	 */
	readonly ready: Promise<void>;
	/** Call `client.record.open` or `offline.open` to create a handle. */
	constructor(document: SharedRecord, report: (error: TidewireError) => void, release: () => void);
	/** The document; undefined before `ready`, while the record does not exist, and after it was deleted. */
	get value(): Doc | undefined;
	/** The version that the server has confirmed; -1 before `ready`. */
	get version(): number;
	/** The error RECORD_NOT_FOUND while the server has no such record and the handle must not create it. */
	get notFound(): TidewireError | undefined;
	/** Whether all edits are durable at the server. */
	get isSaved(): boolean;
	/** Whether a listening client provides the record. */
	get hasProvider(): boolean;
	/** The value at `path`. */
	get<At extends AnyPath<Doc>>(path: At): ValueAt<Doc, At> | undefined;
	/**
	 * Replaces the document, or the value at a path; undefined removes the value there. The change shows at once. If it changes nothing, it
	 * is not sent. If the server refuses it, it is rolled back and `onError` receives the error.
	 */
	set(value: Doc): void;
	set<At extends AnyPath<Doc>>(path: At, value: ValueAt<Doc, At> | undefined): void;
	/** Does the same. Fulfilled when the change is on the server's disk, and rejected when the server refuses it. */
	setWithAck(value: Doc): Promise<void>;
	setWithAck<At extends AnyPath<Doc>>(path: At, value: ValueAt<Doc, At> | undefined): Promise<void>;
	/** Changes several paths in one step: the keys of an object, or pairs of a path and a value. Fulfilled and rejected like `setWithAck`. */
	patch(changes: Changes<Doc> | ReadonlyArray<Change<Doc>>): Promise<void>;
	/**
	 * Replaces the document with the result of `update`. If another client wrote first, `update` is called again, so it must have no side
	 * effects.
	 */
	update(update: (value: Doc) => Doc): Promise<void>;
	/** Fulfilled when everything edited so far is durable; rejected with the first refusal. */
	saved(): Promise<void>;
	/**
	 * Calls `callback` with the document, or with the value at a path, as soon as it has arrived and at every change; returns the removal.
	 */
	subscribe(callback: (value: Doc | undefined) => void): () => void;
	subscribe<At extends AnyPath<Doc>>(path: At, callback: (value: ValueAt<Doc, At> | undefined) => void): () => void;
	/** Calls `callback` when the record gets a provider, and when it loses its last one; returns the removal. */
	onProvider(callback: (hasProvider: boolean) => void): () => void;
	/** Closes the handle and ends its subscriptions; edits still reach the server. */
	close(): void;
}
interface LiveResults {
	/** Whether the app follows a query of the record's collection. */
	follows(name: string): boolean;
	/** The newest row that shows the whole record. */
	row(name: string): {
		readonly version: number;
		readonly data: unknown;
	} | undefined;
	/** `device` of the records has changed. */
	deviceChanged(): void;
}
interface Device {
	/** The record of this name, if edits of it wait on the device. */
	waiting(name: string): SharedRecord | undefined;
	/** Opens all such records of a collection. */
	openWaiting(collection: string): void;
	/** The rows of a collection have changed: its open records take values from them that are newer than their own. */
	rebase(collection: string): void;
	/** All open records of the device. */
	records(): Iterable<SharedRecord>;
	/** The rows that were stored last for a query. */
	read(query: string): Promise<unknown>;
	/** Stores the rows of a query; undefined removes them. */
	keep(query: string, rows: unknown): void;
}
export declare class Records<App extends Schema = {}> {
	#private;
	/** @internal */
	readonly connection: Connection;
	/**
	 * The documents that open handles share: for `@tidewire/client/offline` and `@tidewire/client/inspect`.
	 *
	 * @internal
	 */
	readonly documents: Map<string, Document$1>;
	/**
	 * Called with each new document: for `@tidewire/client/live-query`.
	 *
	 * @internal
	 */
	added: ((document: SharedRecord) => void) | undefined;
	/**
	 * Declared without a field, like `device`: few apps have them, and the script of a page may not grow.
	 *
	 * @internal
	 */
	results: LiveResults | undefined;
	/** @internal */
	device: Device | undefined;
	constructor(
	/** @internal */
	connection: Connection);
	/**
	 * Opens `name`. If there is no such record, it is created, unless the option `create` is false. Close the handle when the app no longer
	 * needs it.
	 */
	open<Name extends Names<RecordsOf<App>>>(name: Name, options?: OpenOptions<ValueOf<RecordsOf<App>, Name>>): RecordHandle<ValueOf<RecordsOf<App>, Name>>;
	/** Reads a record once; undefined if it does not exist. */
	get<Name extends Names<RecordsOf<App>>>(name: Name, options?: RequestOptions): Promise<ValueOf<RecordsOf<App>, Name> | undefined>;
	/** Replaces or creates a record without opening it; fulfilled when the write is on the server's disk. */
	set<Name extends Names<RecordsOf<App>>>(name: Name, value: ValueOf<RecordsOf<App>, Name>, options?: RequestOptions): Promise<void>;
	/** Deletes a record for all clients; fulfilled when that is on the server's disk, also if the record did not exist. */
	delete(name: Names<RecordsOf<App>>, options?: RequestOptions): Promise<void>;
}
/** The names whose documents are of the type `Doc`. */
export type NamesOf<App, Doc> = NameOf<RecordsOf<App>, Names<RecordsOf<App>>, Doc>;
type NameOf<Part, Name, Doc> = Name extends string ? ([
	Doc,
	ValueOf<Part, Name>
] extends [
	ValueOf<Part, Name>,
	Doc
] ? Name : never) : never;
/**
 * Opens a handle that can be switched to other records of the same type. At first it is switched to `name`. Close it when the app no longer
 * needs it.
 *
 * @param records `client.record`
 * @param name a record, or undefined for none yet: then give the types of the names, as in ``openAnonymous<App, `todos/${string}`>``
 */
export declare function openAnonymous<App extends Schema, Name extends Names<RecordsOf<App>>>(records: Records<App>, name: Name | undefined, options?: OpenOptions<ValueOf<RecordsOf<App>, Name>>): AnonymousRecord<ValueOf<RecordsOf<App>, Name>, NamesOf<App, ValueOf<RecordsOf<App>, Name>>>;
/** A record whose name can be switched. Without a name it has no value, and can't be edited. */
export declare class AnonymousRecord<Doc = unknown, Name extends string = string> {
	#private;
	/** Call `openAnonymous` to create a handle. */
	constructor(records: Records, options: OpenOptions);
	/** The name of the current record. */
	get name(): Name | undefined;
	/** Fulfilled when the value of the current record has arrived, rejected if the server refuses the record. */
	get ready(): Promise<void>;
	/** The document; undefined before `ready`, without a name, and after the record was deleted. */
	get value(): Doc | undefined;
	/** The version that the server has confirmed; -1 before `ready` and without a name. */
	get version(): number;
	/** Whether all edits of the current record are durable at the server. */
	get isSaved(): boolean;
	/** The value at a path. */
	readonly get: RecordHandle<Doc>["get"];
	/** An edit belongs to the record that is current when it is made. After a switch it still reaches the server. */
	readonly set: RecordHandle<Doc>["set"];
	readonly setWithAck: RecordHandle<Doc>["setWithAck"];
	readonly patch: RecordHandle<Doc>["patch"];
	readonly update: RecordHandle<Doc>["update"];
	/** Fulfilled when all edits of the current record are durable; rejected with the first refusal. */
	saved(): Promise<void>;
	/**
	 * Switches to another record, or to none. Fulfilled when its value has arrived, rejected if the server refuses it. If another switch
	 * follows before that, the promise settles with the last switch.
	 */
	switchTo(name: Name | undefined): Promise<void>;
	/**
	 * Calls `callback` with the document, or with the value at a path: as soon as it has arrived, at every change, and after every switch.
	 * Returns the removal.
	 */
	subscribe(callback: (value: Doc | undefined) => void): () => void;
	subscribe<At extends AnyPath<Doc>>(path: At, callback: (value: ValueAt<Doc, At> | undefined) => void): () => void;
	/** Calls `callback` with the name after every switch; returns the removal. */
	onName(callback: (name: Name | undefined) => void): () => void;
	/** Closes the handle and ends its subscriptions; edits still reach the server. */
	close(): void;
}
/** The removal of a subscription or a provider; it may be called more than once. */
export interface Subscription {
	(): void;
	/** Fulfilled when the server confirms, so that nothing after that is missed; rejected when the server refuses. */
	readonly ready: Promise<void>;
}
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
type EventCallback = (payload: never, context: EventContext) => void;
export declare class Events<App extends Schema = {}> {
	#private;
	/** @internal */
	readonly connection: Connection;
	private readonly traces;
	/**
	 * The callbacks of patterns that match a name: `@tidewire/client/patterns` sets it.
	 *
	 * @internal
	 */
	patterns: {
		of(name: string): EventCallback[];
	} | undefined;
	constructor(
	/** @internal */
	connection: Connection, traces: TraceOptions);
	/** The names of all subscriptions. */
	get names(): string[];
	/**
	 * Publishes an event to all other subscribers of its name, and at once to the subscribers in this client. The server does not acknowledge
	 * it. Without a connection the event waits at most `requestTimeoutMs`; if it is too late then, `onError` reports it. Throws TOO_LARGE if
	 * the event exceeds the server's limit. The payload is a JSON value or, as bytes, a `Uint8Array`.
	 */
	emit<Name extends Names<EventsOf<App>>>(name: Name, ...[value, options]: Optional<ValueOf<EventsOf<App>, Name>, EmitOptions>): void;
	/** Calls `callback` with every event of `name` until the subscription is removed. */
	subscribe<Name extends Names<EventsOf<App>>>(name: Name, callback: (payload: ValueOf<EventsOf<App>, Name>, context: EventContext) => void, options?: SubscribeOptions): Subscription;
}
export declare class Rpcs<App extends Schema = {}> {
	#private;
	/** @internal */
	readonly connection: Connection;
	constructor(
	/** @internal */
	connection: Connection);
	/** Calls `name` with an argument. Fulfilled with the provider's answer; rejected with an error whose code is the cause of the failure. */
	call<Name extends Names<RpcsOf<App>>>(name: Name, ...[argument, options]: Optional<Argument<ValueOf<RpcsOf<App>, Name>>, RequestOptions>): Promise<Result<ValueOf<RpcsOf<App>, Name>>>;
}
export interface ClientOptions extends ConnectionOptions, TraceOptions {
}
/**
 * The client of one server. It sends nothing before `connect()`: subscriptions, providers and requests wait for the connection.
 *
 * @typeParam App the types of the app: see {@link Schema}
 */
export declare class Client<App extends Schema = {}> {
	#private;
	readonly record: Records<App>;
	readonly event: Events<App>;
	readonly rpc: Rpcs<App>;
	/** @param url `host:port`, or an address that begins with `ws`, `wss`, `http` or `https`; a page may omit it to use its own server */
	constructor(url?: string, options?: ClientOptions);
	/** The state of the connection. */
	get state(): State;
	/** The client data that the server sent at the login (`clientData`). */
	get loginData(): unknown;
	/** Why the client is closed: an error with the code CLOSED after `close()`, else the error with which the server refused it for good. */
	get closeReason(): TidewireError | undefined;
	/**
	 * Why the first connection does not open, once the client has found out: UNREACHABLE, FORBIDDEN, PATH_NOT_FOUND or UPGRADE_FAILED. The client
	 * still tries again.
	 */
	get problem(): TidewireError | undefined;
	/**
	 * Connects and logs in. Fulfilled when the connection is open, however long that takes; rejected when the server refuses for good, when
	 * the signal aborts or when the time has passed. In the last two cases the client is closed again, unless other calls wait or it was open
	 * before. After a rejection, and after `close()`, it may be called again.
	 */
	connect(options?: ConnectOptions): Promise<void>;
	/**
	 * Renews the login of the open session with other credentials of the same user. If the server rejects them, the session continues as it
	 * was.
	 */
	renew(auth?: Auth): Promise<void>;
	/**
	 * Checks by a round trip that the connection is alive. A page does this by itself when it wakes up. In other runtimes, call it when the
	 * app comes to the foreground.
	 */
	check(): void;
	/** Closes the connection; messages that were sent before still leave. */
	close(): void;
	/** Calls `callback` with every new state, and with the reason for `waiting` and `closed`; returns the removal. */
	onState(callback: StateCallback): () => void;
	/**
	 * Calls `callback` with each error that no other callback or promise receives; returns the removal. Without a callback, errors go to the
	 * console.
	 */
	onError(callback: (error: TidewireError) => void): () => void;
}
/** Shows the panel for `client` at the end of `parent`, by default the body of the page; returns the removal. */
export declare function showDevtools<App extends Schema>(client: Client<App>, parent?: Element): () => void;
/** A message, a new state of the connection, or an error that no other callback received. */
export interface InspectedEntry {
	/** Counts the entries of the inspector. */
	readonly number: number;
	/** Milliseconds since 1970. */
	readonly at: number;
	readonly kind: "sent" | "received" | "state" | "error";
	/** The primitive and the action of a message, such as `record patch`; the state; or the text of the error. */
	readonly what: string;
	/** The name, or the names, that it concerns. */
	readonly name?: string;
	/** The payload as JSON, at most its first 2,000 characters. Never credentials. */
	readonly data?: string;
	readonly version?: number;
	/** The message was sent before, and had no answer when the connection was lost. */
	readonly isRetry?: boolean;
	/** Another client wrote the record first, so the client merges its edits with the newer value. */
	readonly isMerge?: boolean;
	/** The code of a refusal or an error. */
	readonly code?: string;
	/**
	 * The rule that denied the request, with its file, line and column. Only a server in development mode tells it, and only to clients on its
	 * machine. It arrives after the refusal: the entry is replaced then, and `onEntry` is called again with the same number.
	 */
	readonly rule?: string;
}
/** An edit that the server has not confirmed. */
export interface PendingEdit {
	/** The name of the record. */
	readonly name: string;
	/** The changed paths with their values; a path that is undefined is the whole document. Empty for an `update`. */
	readonly changes: readonly Patch[];
	/** Whether the write was sent, and waits for its answer. */
	readonly isSent: boolean;
}
/** Begins to record what `client` does, or returns the inspector that does so already. */
export declare function inspect<App extends Schema>(client: Client<App>): Inspector;
export declare class Inspector {
	#private;
	/** @internal */
	constructor(client: Client, closed: () => void);
	/** The last 500 entries, the newest one at the end. */
	get entries(): readonly InspectedEntry[];
	/** The edits that the server has not confirmed, in their order for each record. */
	get pending(): PendingEdit[];
	/** Calls `callback` with every further entry; returns the removal. */
	onEntry(callback: (entry: InspectedEntry) => void): () => void;
	/** Ends the recording. */
	close(): void;
}
/** Ends the serving of a name. False if this client does not serve the name; then the server asks the next provider. */
export type Served = (() => void) | false;
/** Called with a name that matches the pattern. */
export type Serve<Name extends string> = (name: Name) => Served | Promise<Served>;
export interface ListenOptions {
	/** Called when the server refused the pattern or revoked the right to it: `serve` is no longer called. */
	onEnd?: (error: TidewireError) => void;
}
/**
 * Serves names of events or records that match the regular expression `pattern`, anywhere in the name. The client calls `serve` with each
 * matching name that a session subscribes to. `serve` returns a function that ends the serving, or false: then the server asks the next
 * provider. The client calls that function when no session subscribes to the name, when the connection is lost, or when the listening ends.
 *
 * @param part `client.event` or `client.record`
 */
export declare function listen<App extends Schema>(part: Events<App>, pattern: string, serve: Serve<Names<EventsOf<App>>>, options?: ListenOptions): Subscription;
export declare function listen<App extends Schema>(part: Records<App>, pattern: string, serve: Serve<Names<RecordsOf<App>>>, options?: ListenOptions): Subscription;
/** The names whose documents are lists, if the app declares the types of its documents. */
export type ListNames<App> = ListName<RecordsOf<App>, Names<RecordsOf<App>>>;
type ListName<Part, Name> = Name extends string ? unknown extends ValueOf<Part, Name> ? Name : ValueOf<Part, Name> extends readonly string[] ? Name : never : never;
/** The type of a list's entries. */
export type EntryOf<Doc> = unknown extends Doc ? string : Doc extends ReadonlyArray<infer Entry extends string> ? Entry : never;
/** A change of an entry, with its new index, or with the index from which it was removed. */
export interface EntryChange<Entry extends string = string> {
	readonly kind: "added" | "moved" | "removed";
	readonly entry: Entry;
	readonly index: number;
}
/** How a list is opened. If another client changed the list first, a change is applied again to the newer entries. */
export type ListOptions = Pick<OpenOptions, "create" | "onEnd">;
/**
 * Opens the list `name`. If there is no such record, it is created, unless the option `create` is false. Close the handle when the app no
 * longer needs it.
 *
 * @param records `client.record`
 */
export declare function openList<App extends Schema, Name extends ListNames<App>>(records: Records<App>, name: Name, options?: ListOptions): ListHandle<EntryOf<ValueOf<RecordsOf<App>, Name>>>;
/** An open list. The arrays that it returns never change; each change makes a new array. */
export declare class ListHandle<Entry extends string = string> {
	#private;
	/** Call `openList` to create a handle. */
	constructor(record: RecordHandle);
	get name(): string;
	/** Fulfilled when the entries have arrived, rejected if the server refuses the record. */
	get ready(): Promise<void>;
	/** Whether all changes are durable at the server. */
	get isSaved(): boolean;
	/** The version that the server has confirmed; -1 before `ready`. */
	get version(): number;
	/** The entries in their order; empty before `ready`, and while the record is not a list. */
	get entries(): readonly Entry[];
	has(entry: Entry): boolean;
	/** Adds an entry at the end, or before the one at `index`. Fulfilled, like all changes, when it is on the server's disk. */
	add(entry: Entry, index?: number): Promise<void>;
	/** Removes all occurrences of an entry, or only the one at `index`, even if other changes have moved it. */
	remove(entry: Entry, index?: number): Promise<void>;
	/** Replaces all entries. */
	set(entries: readonly Entry[]): Promise<void>;
	/** Fulfilled when all changes so far are durable; rejected with the first refusal. */
	saved(): Promise<void>;
	/** Calls `callback` with the entries as soon as they have arrived and whenever they change; returns the removal. */
	subscribe(callback: (entries: readonly Entry[]) => void): () => void;
	/** Calls `callback` with each later change: an entry that is added, moved or removed. Returns the removal. */
	onEntry(callback: (change: EntryChange<Entry>) => void): () => void;
	/** Closes the handle and ends its subscriptions; changes still reach the server. */
	close(): void;
}
/** The changes from `before` to `after`, removals first. If an entry occurs several times, its last occurrences are added or removed. */
export declare function changesOf<Entry extends string>(before: readonly Entry[], after: readonly Entry[]): Array<EntryChange<Entry>>;
/** A change of a row. */
export interface QueryChange<Doc = unknown> {
	/** `moved`: the row is the same and has another index, maybe only because of other changes. */
	readonly kind: "added" | "changed" | "moved" | "removed";
	readonly row: Row<Doc>;
	/** The new index, or the one from which the row was removed. */
	readonly index: number;
}
declare class LocalEdits {
	#private;
	private readonly queries;
	constructor(queries: Pick<Queries, "of" | "shown">);
	/** Shows the edits of a record from now. */
	watch(document: SharedRecord): void;
	/** The server's rows of a result with the edits. */
	apply(result: LiveResult): readonly Row[];
	/** Forgets the confirmed edits of a collection that all its results have. */
	tidy(collection: string): void;
}
declare class Queries implements Part, LiveResults {
	#private;
	private readonly records;
	/** Queries with one answer. */
	readonly requests: Requests;
	readonly connection: Records["connection"];
	/** The edits of this client, once their module is loaded. */
	local: LocalEdits | undefined;
	constructor(records: Records);
	follows(name: string): boolean;
	row(name: string): Row | undefined;
	deviceChanged(): void;
	/** Stores the server's rows of a result on the user's device, and removes them after the end of the query. */
	keep({ name, collection, server }: LiveResult): void;
	/** The record whose edits show in place of the edits of `document`: the one with all edits that wait on the user's device. */
	shown(document: SharedRecord): SharedRecord;
	/** The live result of a query, which exists until its last user releases it. */
	take(collection: string, text: string): LiveResult;
	/** Requests a live result. Returns the correlation id and the message, or the error of a message that is too large. */
	subscribe(result: LiveResult): {
		id: string;
		message: Message;
	} | TidewireError;
	/** The live results of a collection. */
	of(collection: string): LiveResult[];
	unsubscribe(id: string): void;
	handle(message: Message, code: string | undefined): void;
	opened(isNew: boolean): void;
	unanswered(): Message[];
	lost(refused?: Refused): void;
	closed(reason: TidewireError): void;
}
type WireChange = {
	type: "removed";
	id: string;
} | {
	type: "added" | "changed";
	index: number;
	row: Row;
};
type Follower = (rows: readonly Row[]) => void;
declare class LiveResult {
	#private;
	private readonly queries;
	private readonly forget;
	/** The collection and the query as one text. */
	readonly name: string;
	readonly collection: string;
	readonly text: string;
	/** The rows that the app sees. Undefined before the first answer and after the end. */
	rows: readonly Row[] | undefined;
	/** The rows as the server sent them, without the edits of this client. */
	server: readonly Row[] | undefined;
	error: TidewireError | undefined;
	readonly ready: Deferred<void>;
	/** The server's key of the query, with which it sends changes. Undefined while no answer has arrived in this session. */
	key: string | undefined;
	readonly users: Set<LiveQueryOptions>;
	readonly followers: Set<Follower>;
	constructor(queries: Queries, { name, collection, text }: Pick<LiveResult, "name" | "collection" | "text">, forget: () => void);
	/** Calls `follower` with the rows as soon as they are there and at every change; returns the removal. */
	follow(follower: Follower): () => void;
	/** Adds a user. The first one requests the result. */
	use(user: LiveQueryOptions): void;
	/** Removes a user. The last one ends the query. */
	release(user: LiveQueryOptions): void;
	/** Requests the result from the server. Without a connection, a new session does that. */
	ask(): void;
	/** Takes a whole result. */
	replace(key: string | undefined, rows: readonly Row[]): void;
	/** Takes the rows that the user's device has stored, unless the server has sent newer ones. */
	restore(rows: readonly Row[], restored: () => void): void;
	/** Applies the changes of one write. */
	change(changes: readonly WireChange[]): void;
	/** The server has refused the query, or has ended it. */
	refuse(error: TidewireError): void;
	unanswered(): Message[];
	lost(refused: Refused | undefined): void;
	/** The client is closed. After the next `connect()`, the query continues. */
	closed(reason: TidewireError): void;
	/** Shows the rows of the server with the edits of this client. */
	refresh(): void;
}
/** Paths to include, or `{path: 1}` or `{path: 0}`. */
export type SelectInput = readonly string[] | Readonly<Record<string, 0 | 1 | boolean>>;
/** `{path: 1 | -1}` in the order of its keys, or paths and pairs of path and direction. */
export type SortInput = Readonly<Record<string, 1 | -1>> | ReadonlyArray<string | readonly [
	string,
	"asc" | "desc"
]>;
/** A query before it is parsed. Without `where` it selects all records; with `where: null` or `undefined` it selects none. */
export interface QueryInput {
	readonly where?: Readonly<Record<string, unknown>> | string | null | undefined;
	readonly sort?: SortInput;
	readonly limit?: number;
	readonly offset?: number;
	readonly select?: SelectInput;
}
/** A record in the result of a query. It never changes: a changed record is another object. */
export interface Row<Doc = unknown> {
	/** The last segment of the record's name. */
	readonly id: string;
	/** The version of the write that has last changed `data`. */
	readonly version: number;
	/** The document, or the parts of it that the query selects. */
	readonly data: Doc;
}
type CollectionOf<Name> = Name extends `${infer First}/${infer Rest}` ? (Rest extends `${string}/${string}` ? `${First}/${CollectionOf<Rest>}` : First) : never;
/** The collections of an app's records. Any text if the app declares no types. */
export type Collections<App> = string extends Names<RecordsOf<App>> ? string : CollectionOf<Names<RecordsOf<App>>>;
/** The documents of a collection: the type of the names `COLLECTION/ID` with any id, and the types of the names with a certain id. */
export type DocIn<App, Collection extends string> = string extends Names<RecordsOf<App>> ? unknown : ValueOf<RecordsOf<App>, `${Collection}/${string}`> | ValueOf<RecordsOf<App>, Certain<Names<RecordsOf<App>>, Collection>>;
type Certain<Name, Collection extends string> = Name extends `${Collection}/${infer Id}` ? (string extends Id ? never : Id extends `${string}/${string}` ? never : Name) : never;
/** The parts of a document that a query with `select` may return. */
export type Selected<Doc> = Doc extends ReadonlyArray<infer Entry> ? ReadonlyArray<Selected<Entry>> : Doc extends object ? {
	readonly [Key in keyof Doc]?: Selected<Doc[Key]>;
} : Doc;
/** A query for whole documents. */
export type WholeQuery = QueryInput & {
	readonly select?: undefined;
};
export interface LiveQueryOptions {
	/** Called when the server refused or ended the query: no more changes arrive. Without it, `onError` of the client receives the error. */
	onEnd?: (error: TidewireError) => void;
	/**
	 * Called with QUERY_UNAVAILABLE when the server can't evaluate the query for now: the client asks again with growing delays, and keeps
	 * the rows. Called without an error when the server has answered again.
	 */
	onUnavailable?: (error?: TidewireError) => void;
}
export interface FetchOptions extends RequestOptions {
	/** Whether the answer has the number of all records that the query selects, whatever its limit and offset. */
	count?: boolean;
}
/** The answer to a query. */
export interface QueryAnswer<Doc = unknown> {
	readonly rows: ReadonlyArray<Row<Doc>>;
	/** The number of all records that the query selects; undefined without the option `count`. */
	readonly count: number | undefined;
}
/**
 * Follows a query: its rows, and each change of them. The handles of equal queries share one subscription. Close the handle when the app no
 * longer needs it.
 *
 * @param records `client.record`
 * @param collection the name of records without their last segment
 */
export declare function openQuery<App extends Schema, Collection extends Collections<App>>(records: Records<App>, collection: Collection, query?: WholeQuery, options?: LiveQueryOptions): QueryHandle<DocIn<App, Collection>>;
export declare function openQuery<App extends Schema, Collection extends Collections<App>>(records: Records<App>, collection: Collection, query: QueryInput, options?: LiveQueryOptions): QueryHandle<Selected<DocIn<App, Collection>>>;
/**
 * Evaluates a query once. Rejected with the code of a refusal; after QUERY_UNAVAILABLE and TOO_MANY_QUERIES the same query may succeed later.
 *
 * @param records `client.record`
 * @param collection the name of records without their last segment
 */
export declare function fetchQuery<App extends Schema, Collection extends Collections<App>>(records: Records<App>, collection: Collection, query: WholeQuery | undefined, options: FetchOptions & {
	count: true;
}): Promise<QueryAnswer<DocIn<App, Collection>> & {
	readonly count: number;
}>;
export declare function fetchQuery<App extends Schema, Collection extends Collections<App>>(records: Records<App>, collection: Collection, query?: WholeQuery, options?: FetchOptions): Promise<QueryAnswer<DocIn<App, Collection>>>;
export declare function fetchQuery<App extends Schema, Collection extends Collections<App>>(records: Records<App>, collection: Collection, query: QueryInput, options: FetchOptions & {
	count: true;
}): Promise<QueryAnswer<Selected<DocIn<App, Collection>>> & {
	readonly count: number;
}>;
export declare function fetchQuery<App extends Schema, Collection extends Collections<App>>(records: Records<App>, collection: Collection, query: QueryInput, options?: FetchOptions): Promise<QueryAnswer<Selected<DocIn<App, Collection>>>>;
/** A live query. The arrays and rows that it returns never change: a change makes a new array, in which an unchanged row is the same object. */
export declare class QueryHandle<Doc = unknown> {
	#private;
	readonly collection: string;
	/** Fulfilled when the rows have arrived, rejected if the server refuses the query or the client is closed before. */
	readonly ready: Promise<void>;
	/** Call `openQuery` to create a handle. */
	constructor(result: LiveResult, options: LiveQueryOptions);
	/**
	 * The rows in the order of the query, with the unconfirmed edits of this client's open records; undefined before `ready` and after the end
	 * of the query.
	 */
	get rows(): ReadonlyArray<Row<Doc>> | undefined;
	/** Why the server has ended the query, or QUERY_UNAVAILABLE while it can't evaluate it. */
	get error(): TidewireError | undefined;
	/**
	 * Calls `callback` with the rows as soon as they have arrived and whenever they change, and with the changes since the last call; at first
	 * each row is one that was added. Returns the removal.
	 */
	subscribe(callback: (rows: ReadonlyArray<Row<Doc>>, changes: ReadonlyArray<QueryChange<Doc>>) => void): () => void;
	/** Ends the subscriptions of the handle. The last handle of equal queries ends the query at the server. */
	close(): void;
}
interface Edit$1 {
	readonly id: string;
	readonly name: string;
	readonly patches: Patch[];
	/** The change of a list, in place of patches. */
	readonly list?: ListChange | undefined;
	/** The tab that made the edit. */
	readonly tab: string;
	/** The version on which the edit was made; -1 if none was known. */
	readonly on: number;
	/** The value of that version, if a function merges. */
	readonly base?: unknown;
	/** The key of the write that carries the edit. It is stored before the write is sent, so that a repetition is the same write. */
	readonly sent?: string;
	/** The state of the record before that write was sent first. */
	readonly seen?: Seen;
	/** The edits that a function has merged into this one. */
	readonly merged?: Edit$1[];
	/** Its position in the queue, once it is stored. */
	readonly seq?: number;
}
/** An edit that the client does not send again, given to the app with its changes. */
export interface Rejection {
	readonly id: string;
	readonly name: string;
	/** The values to set at each path; without a path, the value of the whole record. */
	readonly changes: ReadonlyArray<{
		readonly path?: string | readonly (string | number)[];
		readonly value?: unknown;
	}>;
	/** The change of a list, in place of `changes`. */
	readonly list?: ListChange | undefined;
	/**
	 * - `denied`: a rule refused the edit
	 * - `validation`: the server can't accept the value or the path, or the message is too large
	 * - `conflict`: another client wrote first, or has deleted the record; with the code `WRITE_UNKNOWN`, the server may have made the edit
	 */
	readonly reason: Reason;
	/** The code of the error that caused the rejection. */
	readonly code: string;
}
export type Reason = "denied" | "validation" | "conflict";
/** How edits are merged if another client wrote first; see the option `merge` of records. A function also receives the name. */
export type OfflineMerge = "local" | "remote" | ((conflict: Conflict) => unknown);
/** A record as the server last sent it. */
export interface CachedRecord {
	name: string;
	value: unknown;
	version: number;
}
/** The changes of one transaction. */
interface Changes$1 {
	/** New edits, which get the next positions of the queue. */
	add?: readonly Edit$1[];
	/** Edits in place of the ones at their positions. */
	put?: readonly Edit$1[];
	remove?: readonly Edit$1[];
	cache?: readonly CachedRecord[];
	/** The name of a record. */
	forget?: string;
	reject?: readonly Rejection[];
	/** The id of a rejection. */
	dismiss?: string;
}
/**
 * The data of one app and user: records as the server last sent them, the queue of edits, and the rejected edits. A value without a
 * property and one whose property is undefined are the same. If a function fails, the storage counts as lost.
 */
export interface OfflineStorage {
	/** Whether the data outlives the process. */
	readonly isDurable: boolean;
	/** All edits that are not settled, in the order of the queue, and the rejections that were not dismissed. */
	load(): Promise<{
		edits: Edit$1[];
		rejections: Rejection[];
	}>;
	read(name: string): Promise<CachedRecord | undefined>;
	/**
	 * Makes all changes or none, in the order of the calls. Fulfilled with the queue positions of the added edits, when the changes are stored.
	 * A position is larger than all earlier ones and is never used again. If more than `recordsMax` records are stored, the ones whose values
	 * were stored longest ago are removed.
	 */
	change(changes: Changes$1, recordsMax?: number): Promise<number[]>;
	/**
	 * Only for a storage that several tabs use at the same time: they elect one that leads. Makes `tab` the leader for the next `LEASE_MS`,
	 * unless another tab leads; or ends its lease. True if `tab` leads.
	 */
	lease?(tab: string, isWanted: boolean): Promise<boolean>;
	close(): void;
}
export interface StorageUse {
	/** The most milliseconds to open the storage, and for each transaction. */
	timeoutMs: number;
	/** Called if the storage is lost after it was opened. */
	onLost(error: unknown): void;
}
/** Opens the storage with this name, the option `database`; rejected if that is impossible. */
export type OpenStorage = (name: string, use: StorageUse) => Promise<OfflineStorage>;
export interface OfflineOptions {
	/** The name of the database. Each user of the app needs a separate one. By default `tidewire`. */
	database?: string;
	/**
	 * Where records and edits are stored; by default the IndexedDB of the browser. `@tidewire/client/storage` has storages for other
	 * runtimes.
	 */
	storage?: OpenStorage;
	/** How edits are merged if another client wrote first; by default `local`. All tabs must use the same value. */
	merge?: OfflineMerge;
	/**
	 * The most edits that may wait, including rejected ones that were not dismissed; by default 10,000. Further edits fail with
	 * TOO_MANY_PENDING.
	 */
	editsMax?: number;
	/** The most bytes of one edit as JSON; by default 256 KiB. It must not exceed the server's limit for one message. */
	editBytesMax?: number;
	/**
	 * The most records that are stored to be read without a connection; by default 10,000. The ones whose values arrived longest ago are
	 * removed first.
	 */
	recordsMax?: number;
	/** Milliseconds to open the storage, and for each transaction of a browser; by default 5,000. */
	storageTimeoutMs?: number;
	/** Milliseconds without a sign of life from the leading tab until a visible tab takes its place; by default 6,000. */
	leaderTimeoutMs?: number;
}
/**
 * - `starting`: the storage is not open yet
 * - `durable`: edits are stored on this device until the server has made them
 * - `memory`: edits are stored until the process ends, because the app has chosen `memoryStorage`
 * - `online-only`: nothing is stored on this device; edits wait in this tab only
 */
export type OfflineMode = "starting" | "durable" | "memory" | "online-only";
export interface OfflineState {
	readonly mode: OfflineMode;
	/** Why the mode is `online-only`. */
	readonly reason: TidewireError | undefined;
	/** Whether this tab leads: it connects to the server for all tabs. */
	readonly isLeader: boolean;
	/** The state of the leading tab's connection. */
	readonly connection: State;
	/** The number of edits of all tabs that the server has not made yet. */
	readonly pendingCount: number;
}
/** An edit of any tab that the server has not made yet. */
export interface QueuedEdit extends Pick<Rejection, "id" | "name" | "changes" | "list"> {
	/** Whether a tab has sent it, so that the server may have made it. */
	readonly isSent: boolean;
}
/** The state of offline records that an app shows. */
export interface Sync extends OfflineState {
	/** The edits that wait, in the order in which they were made. */
	readonly queue: readonly QueuedEdit[];
	/** The edits that the server will not make; each has a `reason`. They stay until the app keeps or drops them. */
	readonly conflicts: readonly Rejection[];
	/** Makes the edit again, on the value that the record has now. */
	keep(conflict: Pick<Rejection, "id">): Promise<void>;
	/** Forgets the edit. */
	drop(conflict: Pick<Rejection, "id">): Promise<void>;
}
export declare class Offline<App extends Schema = {}> {
	#private;
	/**
	 * @param client the client, which the leading tab connects by itself: call `connect()` only if this tab needs a separate connection for
	 *   events, rpc or presence
	 */
	constructor(client: Client<App>, options?: OfflineOptions);
	/** The current state; a new object after each change. */
	get state(): OfflineState;
	/** Calls `callback` after each change of the state; returns the removal. */
	onState(callback: (state: OfflineState) => void): () => void;
	/** The state with the queue and the edits that were not made: the same object until one of them changes. */
	get sync(): Sync;
	/** Calls `callback` after each change of `sync`; returns the removal. */
	onSync(callback: (sync: Sync) => void): () => void;
	/**
	 * Calls `callback` with each edit that the server will never make, in every tab. At first it receives the stored rejections that were not
	 * dismissed. Returns the removal.
	 */
	onRejected(callback: (rejection: Rejection) => void): () => void;
	/** Removes a rejected edit, in all tabs. */
	dismiss({ id }: Pick<Rejection, "id">): Promise<void>;
	/**
	 * Makes a rejected edit again, on the value that the record has now. Fulfilled when the new edit is stored and the rejected one is removed.
	 * If the server rejects it again, that is another rejection.
	 */
	keep({ id }: Pick<Rejection, "id">): Promise<void>;
	/**
	 * Calls `callback` with each error that no other callback or promise receives; returns the removal. Without a callback, errors go to the
	 * console.
	 */
	onError(callback: (error: TidewireError) => void): () => void;
	/**
	 * Opens a record. The handle shows the value that is stored on this device, with the edits that wait, and the server's value as soon as
	 * there is a connection. `update` is called once, with the value that shows at the moment. Close the handle when the app no longer needs
	 * it.
	 */
	open<Name extends Names<RecordsOf<App>>>(name: Name, { onEnd }?: Pick<OpenOptions, "onEnd">): RecordHandle<ValueOf<RecordsOf<App>, Name>>;
	/** Fulfilled when all edits of this tab so far are stored on this device or made by the server; rejected if the device stores nothing. */
	kept(): Promise<void>;
	/** Lets another tab lead, and ends all handles. Stored edits stay in the queue. */
	close(): Promise<void>;
}
/** Events of a pattern that were missed and will not arrive. */
export interface PatternGap {
	readonly pattern: string;
	/** The number of missed events; absent if it is unknown. */
	readonly missed?: number;
}
export interface PatternOptions {
	/** Called when events were missed: the connection was lost, or this client reads too slowly. */
	onGap?: (gap: PatternGap) => void;
	/** Called when the server refused the pattern or revoked the right to it: no more events arrive. */
	onEnd?: (error: TidewireError) => void;
}
/**
 * Calls `callback` with the name and payload of every event whose name matches `pattern`, until the subscription is removed. Segments are
 * divided by `/`; `*` matches one segment, and `**` at the end matches one or more. The server authorizes each name.
 *
 * @param events `client.event`
 */
export declare function subscribePattern<App extends Schema>(events: Events<App>, pattern: string, callback: (name: Names<EventsOf<App>>, payload: ValueOf<EventsOf<App>, Names<EventsOf<App>>>, context: EventContext) => void, options?: PatternOptions): Subscription;
export interface PresenceOptions {
	/** Called when the server refused the subscription or revoked the right to it. */
	onEnd?: (error: TidewireError) => void;
}
/** Called with the known state at first, and with every change. */
export type UserCallback = (isOnline: boolean, user: string) => void;
/** Called with all users that are online, at first without `change`. The set belongs to the client, which changes it later. */
export type EveryoneCallback = (users: ReadonlySet<string>, change?: {
	user: string;
	isOnline: boolean;
}) => void;
/** The presence of the users that share the server with `client`: the same object at every call. */
export declare function presenceOf<App extends Schema>(client: Client<App>): Presence;
export declare class Presence {
	#private;
	/** @internal */
	constructor(connection: Connection);
	/** The ids of all other users that are online. */
	all(options?: RequestOptions): Promise<string[]>;
	/** Tells for each of `users` whether it is online. */
	query(users: string[], options?: RequestOptions): Promise<Record<string, boolean>>;
	/** Calls `callback` with whether `user` is online, now and whenever that changes. `ready` is fulfilled after the first call. */
	subscribe(user: string, callback: UserCallback, options?: PresenceOptions): Subscription;
	/**
	 * Calls `callback` with all other users that are online, now and whenever a user joins or leaves. `ready` is fulfilled after the first
	 * call.
	 */
	subscribeAll(callback: EveryoneCallback, options?: PresenceOptions): Subscription;
}
/** A provider throws this to fail a call with a reason, which the caller receives as the `data` of its error. */
export declare class RpcError extends Error {
	readonly data: unknown;
	readonly name = "RpcError";
	constructor(data: unknown);
}
/** A provider throws this to pass a call to another provider. */
export declare class RpcReject extends Error {
	readonly name = "RpcReject";
}
/** The context of a call, in addition to its argument. */
export interface RpcContext {
	readonly name: string;
	/**
	 * The caller's user id and client data, if the server is configured to send them (`rpc.requestor_name`, `rpc.requestor_data`).
	 */
	readonly requestor: string | undefined;
	readonly requestorData: unknown;
	/** Aborted when the connection is lost, because the answer can no longer be sent. */
	readonly signal: Signal;
}
export interface ProvideOptions {
	/** Called when the server refused the name or revoked the right to it: no more calls arrive. */
	onEnd?: (error: TidewireError) => void;
}
/**
 * Answers calls of `name` with the result of `answer`. A thrown RpcError fails the call with its data; RpcReject passes the call to another
 * provider. `onError` reports other failures, and the caller receives PROVIDER_FAILED, or TOO_LARGE for an answer that exceeds the server's
 * limit.
 *
 * @param rpcs `client.rpc`
 */
export declare function provide<App extends Schema, Name extends Names<RpcsOf<App>>>(rpcs: Rpcs<App>, name: Name, answer: (argument: Argument<ValueOf<RpcsOf<App>, Name>>, context: RpcContext) => Result<ValueOf<RpcsOf<App>, Name>> | Promise<Result<ValueOf<RpcsOf<App>, Name>>>, options?: ProvideOptions): Subscription;
/** A session in a scope. A user with two tabs has two members. */
export interface Member<State = unknown> {
	/** Identifies the session; after a reconnect it has another id. */
	readonly id: string;
	/** The user id; absent if the session has none. */
	readonly user?: string;
	readonly state: State;
}
export interface FollowOptions {
	/** Called when the server refused the subscription or revoked the right to it. */
	onEnd?: (error: TidewireError) => void;
}
export interface JoinOptions {
	/** The shortest time between two states that are sent, in milliseconds. Default 50. */
	throttleMs?: number;
	/** Called when the server refused the member or revoked the right to be one. */
	onEnd?: (error: TidewireError) => void;
	/** Called when the server refused a later state. The others still see the state before. Without it, `client.onError` is called. */
	onRefused?: (error: TidewireError) => void;
}
/** This session as a member of a scope. A call leaves the scope. */
export interface Membership<State = unknown> extends Subscription {
	/** The id of the member; undefined until the server has confirmed it, and after a lost connection. */
	readonly id: string | undefined;
	/** Replaces the state. The others see the newest one: states that follow each other faster than `throttleMs` are skipped, the last never. */
	update(state: State): void;
}
/** The scopes of the server of `client`: the same object at every call. */
export declare function scopesOf<App extends Schema>(client: Client<App>): Scopes<ScopesOf<App>>;
export declare class Scopes<States extends object> implements Part {
	#private;
	/** @internal */
	constructor(connection: Connection);
	/**
	 * Makes this session a member of the scope with this state. A session is at most once a member of a scope: a second call replaces the
	 * state, and the session leaves with the last membership.
	 */
	join<Name extends Names<States>>(scope: Name, state: ValueOf<States, Name>, options?: JoinOptions): Membership<ValueOf<States, Name>>;
	/**
	 * Calls `callback` with all members of the scope, this session included if it is one, and with this session's member: at first, and after
	 * each change. The array and the members are never changed; a member that has not changed is the same object. `ready` is fulfilled after
	 * the first call.
	 */
	follow<Name extends Names<States>>(scope: Name, callback: (members: ReadonlyArray<Member<ValueOf<States, Name>>>, self: Member<ValueOf<States, Name>> | undefined) => void, options?: FollowOptions): Subscription;
	/** @internal */
	handle({ action, name: scope, data, originalAction }: Message, code: string | undefined): boolean;
	/** @internal */
	opened(isNew: boolean): void;
	/** @internal */
	lost(): void;
	/** @internal */
	closed(reason: TidewireError): void;
}
export interface TransactionOptions extends RequestOptions {
	/** How often the function is called at most, if other clients change the records that it has read; by default 10. */
	attemptsMax?: number;
}
/** The records that the function of a transaction reads and changes. */
export declare class Transaction<App extends Schema = {}> {
	#private;
	/** Call `runTransaction` to create one. */
	constructor(records: Records<App>, options: RequestOptions);
	/**
	 * Reads a record; undefined if it does not exist. The transaction is made only if the record is still the same then. A record that the
	 * transaction has changed has its new value.
	 */
	get<Name extends Names<RecordsOf<App>>>(name: Name): Promise<ValueOf<RecordsOf<App>, Name> | undefined>;
	/** Replaces or creates a record when the transaction is made. */
	set<Name extends Names<RecordsOf<App>>>(name: Name, value: ValueOf<RecordsOf<App>, Name>): void;
	/** Deletes a record when the transaction is made, also if it does not exist. */
	delete(name: Names<RecordsOf<App>>): void;
	/**
	 * Makes the transaction.
	 *
	 * @internal
	 */
	commit(): Promise<void>;
	/** @internal */
	end(): void;
}
/**
 * Calls `update`, which reads and changes records, and then makes all changes in one step, if no other client has changed a record that it has
 * read. Otherwise `update` is called again, so it must have no side effects. Fulfilled with its result when all changes are on the server's
 * disk.
 *
 * All records must have the same prefix `X/ID`, where `collections.X.slot_by` is `prefix` at the server. A transaction needs a connection: without
 * one it is rejected with NOT_CONNECTED. Edits of open records that the server has not confirmed are not part of it.
 *
 * @param records `client.record`
 */
export declare function runTransaction<Result, App extends Schema = {}>(records: Records<App>, update: (transaction: Transaction<App>) => Result | Promise<Result>, options?: TransactionOptions): Promise<Result>;
/** The part of a Standard Schema that is used here. `validate` must return its result at once, not as a promise. */
export interface StandardSchema<Value = unknown> {
	readonly "~standard": {
		readonly version: 1;
		readonly vendor: string;
		readonly validate: (value: unknown) => StandardResult<Value> | Promise<StandardResult<Value>>;
	};
}
export type StandardResult<Value> = {
	readonly value: Value;
	readonly issues?: undefined;
} | {
	readonly issues: readonly StandardIssue[];
};
export interface StandardIssue {
	readonly message: string;
	readonly path?: ReadonlyArray<PropertyKey | {
		readonly key: PropertyKey;
	}> | undefined;
}
/** A problem of a value and its path, such as `steps[0].text`. Without a path, the problem concerns the whole value. */
export interface Issue {
	readonly message: string;
	readonly path?: string;
}
/** The error of a value that its schema rejects. Its code is VALIDATION_FAILED. */
export declare class ValidationError extends TidewireError {
	/** Whether the value is a record, an event, or the argument or result of an rpc. */
	readonly kind: ValueKind;
	readonly issues: readonly Issue[];
	constructor(
	/** Whether the value is a record, an event, or the argument or result of an rpc. */
	kind: ValueKind, name: string, issues: readonly Issue[], cause?: unknown);
}
/** The schemas of an app. A `*` in a name matches any text. If several names match, the first one counts. */
export interface Schemas<App extends Schema = {}> {
	records?: {
		readonly [Name in Names<RecordsOf<App>>]?: StandardSchema<ValueOf<RecordsOf<App>, Name>>;
	};
	events?: {
		readonly [Name in Names<EventsOf<App>>]?: StandardSchema<ValueOf<EventsOf<App>, Name>>;
	};
	rpcs?: {
		readonly [Name in Names<RpcsOf<App>>]?: {
			argument?: StandardSchema<Argument<ValueOf<RpcsOf<App>, Name>>>;
			result?: StandardSchema<Result<ValueOf<RpcsOf<App>, Name>>>;
		};
	};
}
/** The option `validate` of a client that checks its values against `schemas`. Names without a schema are not checked. */
export declare function validateWith<App extends Schema = {}>({ records, events, rpcs }: Schemas<App>): Validate;

export {
	Changes$1 as StorageChanges,
};

export {};
