// The types of an app in one interface, which maps names to the types of their values. Without it all names are allowed, with the type
// `unknown`.

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

type AnyRecords = { [name: string]: unknown };
type AnyEvents = { [name: string]: unknown };
type AnyRpcs = { [name: string]: (argument?: unknown) => unknown };

export type RecordsOf<App> = App extends { records: infer Records } ? Records : AnyRecords;
export type EventsOf<App> = App extends { events: infer Events } ? Events : AnyEvents;
export type ScopesOf<App> = App extends { scopes: infer Scopes extends object } ? Scopes : { [name: string]: unknown };
export type RpcsOf<App> = App extends { rpcs: infer Rpcs } ? Rpcs : AnyRpcs;

/** The names of a part of a schema. */
export type Names<Part> = keyof Part & string;

/** The keys that `Name` matches. */
type Matching<Key, Name> = Key extends string ? (Name extends Key ? Key : never) : never;
/** Those of `Keys` that match only a part of what `Key` matches. */
type Narrower<Keys, Key> = Keys extends Key & string ? (Key extends Keys ? never : Keys) : never;
/** Those of `Keys` that match all of what `Key` matches, and more. */
type Wider<Keys, Key> = Keys extends string ? (Key extends Keys ? (Keys extends Key ? never : Keys) : never) : never;
type Narrowest<Keys, All = Keys> = Keys extends unknown ? ([Narrower<All, Keys>] extends [never] ? Keys : never) : never;
type IsUnion<Type, All = Type> = Type extends unknown ? ([All] extends [Type] ? false : true) : never;

/** The types of `Key` and of all narrower keys. */
type Below<Part, Key extends string> = Part extends { [Name in Key]: infer Value } ? Value : never;
/** The members of a union that are not members of another one. */
type Without<Members, Others> = Members extends unknown ? ([Equal<Members, Others>] extends [never] ? Members : never) : never;
type Equal<Member, Others> = Others extends unknown ? ([Member, Others] extends [Others, Member] ? Member : never) : never;
/** The type that `Key` was declared with. `Part[Key]` is its intersection with the types of all wider keys. */
type Declared<Part, Key extends string & keyof Part> = [Wider<keyof Part, Key>] extends [never]
  ? Part[Key]
  : [Narrower<keyof Part, Key>] extends [never]
    ? Below<Part, Key>
    : Without<Below<Part, Key>, Below<Part, Narrower<keyof Part, Key> & string>>;
type DeclaredEach<Part, Keys> = Keys extends string & keyof Part ? Declared<Part, Keys> : never;

/** The type of the value with a name. If the name matches several keys of the part, the narrowest one counts. */
export type ValueOf<Part, Name> = string extends keyof Part
  ? Part[Name & keyof Part]
  : Name extends keyof Part
    ? true extends IsUnion<Matching<keyof Part, Name>>
      ? DeclaredEach<Part, Narrowest<Matching<keyof Part, Name>>>
      : Part[Name]
    : never;

type Callable = (argument: never) => unknown;

/** The argument of an rpc; `undefined` if it takes none. */
export type Argument<Rpc> = Rpc extends Callable ? Parameters<Rpc>[0] : never;
/** The result of an rpc. */
export type Result<Rpc> = Rpc extends Callable ? Awaited<ReturnType<Rpc>> : never;

/** A value that the caller may omit if it may be undefined, and the options after it. */
export type Optional<Value, Options> = undefined extends Value ? [value?: Value, options?: Options] : [value: Value, options?: Options];

/** The depth to which paths are checked. It is limited because a document may contain itself. */
type Deeper = [never, 0, 1, 2, 3, 4];
/** The text that may follow a value in a path. */
type Rest<Value, Depth extends number> = [Depth] extends [never]
  ? never
  : Value extends ReadonlyArray<infer Entry>
    ? `[${number}]` | `[${number}]${Rest<NonNullable<Entry>, Deeper[Depth] & number>}`
    : Value extends object
      ? `.${Path<Value, Deeper[Depth] & number>}`
      : never;

/** A key with a literal type that a text path can spell. Never a key of a map, because it may contain dots. */
type Spelled<Key extends string> = {} extends Record<Key, 1>
  ? never
  : Key extends '' | `${string}${'.' | '[' | ']'}${string}` | ` ${string}` | `${string} `
    ? never
    : Key;

/** The text paths of a document: `address.streets[2].name`. Any text if the type of the document is unknown. */
export type Path<Doc, Depth extends number = 5> = unknown extends Doc
  ? string
  : Doc extends ReadonlyArray<infer Entry>
    ? `${number}` | `${number}${Rest<NonNullable<Entry>, Depth>}`
    : Texts<Doc, Depth>[keyof Texts<Doc, Depth>];

/** The paths that begin with each of the keys that a text can spell. */
type Texts<Doc, Depth extends number> = {
  [Key in keyof Doc as Key extends string ? Spelled<Key> : never]-?: Key extends string ? Key | `${Key}${Rest<NonNullable<Doc[Key]>, Depth>}` : never;
};

/** One step of a path: a key of an object, or an index of an array. */
export type Step = string | number;

/** The array paths of a document: `['items', id, 'name']`. Their keys may be any text. */
export type Steps<Doc, Depth extends number = 5> = unknown extends Doc
  ? readonly [Step, ...Step[]]
  : Doc extends ReadonlyArray<infer Entry>
    ? readonly [number, ...Further<Entry, Depth>]
    : Doc extends object
      ? { [Key in keyof Doc & Step]: readonly [Key, ...Further<Doc[Key], Depth>] }[keyof Doc & Step]
      : never;

/** The steps that may follow a value in an array path. */
type Further<Value, Depth extends number> = unknown extends Value
  ? readonly Step[]
  : [] | ([Depth] extends [never] ? never : Steps<NonNullable<Value>, Deeper[Depth] & number>);

/** A path of a document, as a text or as an array. */
export type AnyPath<Doc> = Path<Doc> | Steps<Doc>;

/** A path and the value to set there; undefined removes the value at the path. */
export type Change<Doc> = AnyPath<Doc> extends infer At ? (At extends AnyPath<Doc> ? readonly [path: At, value: ValueAt<Doc, At> | undefined] : never) : never;

/** The type of a value behind indices: `[2][0]`. */
type Indexed<Value, Text> = Text extends `[${string}]${infer More}`
  ? NonNullable<Value> extends ReadonlyArray<infer Entry>
    ? Indexed<Entry, More>
    : never
  : Value;

/** The type of an object's value under a key, or of an array's entry. */
type Inside<Doc, Key> = Doc extends ReadonlyArray<infer Entry> ? Entry : Key extends keyof Doc ? Doc[Key] : never;
type Present<Value> = unknown extends Value ? Value : NonNullable<Value>;

/**
 * The type of the value at a path of a document; any value on the way may be undefined. A map accepts any key, so the path is split first.
 */
export type ValueAt<Doc, At> = unknown extends Doc
  ? unknown
  : At extends readonly [infer First, ...infer More]
  ? More extends readonly []
    ? Inside<Doc, First>
    : ValueAt<Present<Inside<Doc, First>>, More>
  : At extends `${infer First}.${infer More}`
    ? ValueAt<NonNullable<ValueAt<Doc, First>>, More>
    : At extends `${infer First}[${infer Index}]${infer More}`
      ? Indexed<ValueAt<Doc, First>, `[${Index}]${More}`>
      : At extends keyof Doc
        ? Doc[At]
        : Doc extends ReadonlyArray<infer Entry>
          ? Entry
          : never;
