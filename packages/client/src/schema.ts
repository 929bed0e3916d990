// The types of an app, in one interface: names to what they carry. Without it all names are allowed, and carry `unknown`.

/**
 * What an app declares. Names may be template literals, such as `` [name: `chat/${string}`]: { text: string } ``.
 *
 * - `events`: names to payloads
 * - `rpcs`: names to functions of one argument
 */
export interface Schema {
  events?: object;
  rpcs?: object;
}

type AnyEvents = { [name: string]: unknown };
type AnyRpcs = { [name: string]: (argument?: unknown) => unknown };

export type EventsOf<App> = App extends { events: infer Events } ? Events : AnyEvents;
export type RpcsOf<App> = App extends { rpcs: infer Rpcs } ? Rpcs : AnyRpcs;

/** The names of a part of a schema. */
export type Names<Part> = keyof Part & string;

type Callable = (argument: never) => unknown;

/** The argument of an rpc; `undefined` if it takes none. */
export type Argument<Rpc> = Rpc extends Callable ? Parameters<Rpc>[0] : never;
/** The result of an rpc. */
export type Result<Rpc> = Rpc extends Callable ? Awaited<ReturnType<Rpc>> : never;

/** What may be left out if it may be undefined, and what follows it. */
export type Optional<Value, Options> = undefined extends Value ? [value?: Value, options?: Options] : [value: Value, options?: Options];
