// Shows a developer what a client does: its messages, pending edits, retries, merges and refusals. A separate entry,
// `@tidewire/client/inspect`.

import type { Client } from './client.js';
import type { Connection } from './connection.js';
import { socketUrl } from './environment.js';
import type { TidewireError } from './error.js';
import { httpServer, request } from './http.js';
import { AuthAction, ConnectionAction, RecordAction, Topic, type Message } from './protocol.js';
import type { Patch } from './record.js';
import type { Schema } from './schema.js';

/** A message, a new state of the connection, or an error that no other callback received. */
export interface InspectedEntry {
  /** Counts the entries of the inspector. */
  readonly number: number;
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly kind: 'sent' | 'received' | 'state' | 'error';
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

/** The most entries that are kept. The oldest one is removed first. */
const ENTRIES_MAX = 500;
const DATA_MAX = 2_000;
/** The ids of sent messages that are kept to recognize retries. */
const IDS_MAX = 2_000;

/** The codes of refusals by rules. */
const BY_RULES = ['MESSAGE_DENIED', 'MESSAGE_PERMISSION_ERROR'];
/** The longest wait for an answer of the server in milliseconds. */
const TIMEOUT_MS = 3_000;

/** A denial as the server lists it at `/denials`, the newest one first. */
interface Denial {
  name: string;
  by: string;
}

/** The words for actions, by topic: numbers and words in turn. */
const ACTIONS: Record<number, [topic: string, actions: string]> = {
  [Topic.Connection]: ['connection', '4 accept 5 challenge 6 reject 7 redirect 100 login-timeout'],
  [Topic.Auth]: ['login', '2 request 3 accepted 4 refused 100 too-many-attempts'],
  [Topic.Event]: [
    'event',
    '2 emit 3 subscribe 4 unsubscribe 5 listen 6 unlisten 7 serve 8 decline 11 wanted 12 unwanted 120 gap 121 position 122 subscribe-pattern 123 unsubscribe-pattern 125 pattern-gap',
  ],
  [Topic.Record]: [
    'record',
    '3 read 4 value 9 delete 10 deleted 13 deleted 14 written 16 set 18 update 19 patch 20 erase 22 subscribe 23 subscribe-or-create 26 unsubscribe 27 listen 28 unlisten 29 serve 30 decline 31 has-provider 32 has-no-provider 33 wanted 34 unwanted 35 patch 60 fetch 61 fetched 102 version-exists 108 invalid-version 120 write-unknown',
  ],
  [Topic.Rpc]: ['rpc', '2 call 4 accept 5 answer 6 reject 7 failed 8 provide 9 unprovide'],
  [Topic.Presence]: [
    'presence',
    '2 all 3 all 4 query 5 answer 6 joined 7 joined 8 left 9 left 10 subscribe 11 unsubscribe 12 subscribe-all 13 unsubscribe-all 60 join 61 joined 62 state 63 leave 64 follow 65 unfollow 66 members 67 changes',
  ],
  [Topic.Query]: ['query', '1 ask 2 ask 3 answer 4 subscribe 5 unsubscribe 6 rows 7 changes'],
};

/** Each inspected client has one entry. */
const inspectors = new WeakMap<object, Inspector>();

/** Begins to record what `client` does, or returns the inspector that does so already. */
export function inspect<App extends Schema>(client: Client<App>): Inspector {
  let inspector = inspectors.get(client);
  if (!inspector) inspectors.set(client, (inspector = new Inspector(client as unknown as Client, () => inspectors.delete(client))));
  return inspector;
}

export class Inspector {
  readonly #client: Client;
  readonly #connection: Connection;
  readonly #onEntry = new Set<(entry: InspectedEntry) => void>();
  readonly #stops: Array<() => void>;
  readonly #sent = new Set<string>();
  #entries: InspectedEntry[] = [];
  #count = 0;
  /** Refusals whose rule the server has not told. Undefined after a server did not list its denials, because it will not list others. */
  #unexplained: InspectedEntry[] | undefined = [];
  #isExplaining = false;

  /** @internal */
  constructor(client: Client, closed: () => void) {
    this.#client = client;
    this.#connection = client.event.connection;
    this.#connection.tap = (message, isSent, code) => this.#message(message, isSent, code);
    const { onErrors } = this.#connection;
    const error = (what: TidewireError): void => {
      this.#add({ kind: 'error', what: what.message, code: what.code });
      // Without a callback of the app, errors go to the console, with and without an inspector.
      if (onErrors.size === 1) console.error(what);
    };
    onErrors.add(error);
    this.#stops = [
      () => onErrors.delete(error),
      client.onState((state, reason) => this.#add({ kind: 'state', what: state, ...(reason && { code: reason.code, data: reason.message }) })),
      () => (this.#connection.tap = undefined),
      closed,
    ];
  }

  /** The last 500 entries, the newest one at the end. */
  get entries(): readonly InspectedEntry[] {
    return this.#entries;
  }

  /** The edits that the server has not confirmed, in their order for each record. */
  get pending(): PendingEdit[] {
    const documents = [...this.#client.record.documents.values()];
    return documents.flatMap(({ name, pending: { edits, sent } }) => edits.map(({ patches }, at) => ({ name, changes: patches, isSent: at < sent })));
  }

  /** Calls `callback` with every further entry; returns the removal. */
  onEntry(callback: (entry: InspectedEntry) => void): () => void {
    this.#onEntry.add(callback);
    return () => void this.#onEntry.delete(callback);
  }

  /** Ends the recording. */
  close(): void {
    this.#stops.splice(0).forEach((stop) => stop());
  }

  #message(message: Message, isSent: boolean, code: string | undefined): void {
    const { topic, action, name, names, data, bytes, version } = message;
    if (topic === Topic.Connection && (action === ConnectionAction.Ping || action === ConnectionAction.Pong)) return;
    const isLogin = topic === Topic.Auth && action === AuthAction.Request;
    const subject = name ?? names?.join(', ');
    const added = this.#add({
      kind: isSent ? 'sent' : 'received',
      what: wordsOf(message),
      ...(subject !== undefined && { name: subject }),
      ...(data !== undefined && !isLogin && { data: data.slice(0, DATA_MAX) }),
      ...(bytes && { data: `${bytes.length} bytes` }),
      ...(version !== undefined && { version }),
      ...(isSent && this.#isRetry(message) && { isRetry: true }),
      ...(topic === Topic.Record && action === RecordAction.VersionExists && { isMerge: true }),
      ...(code !== undefined && { code }),
    });
    if (isSent || code === undefined || !BY_RULES.includes(code)) return;
    this.#unexplained?.push(added);
    void this.#explain();
  }

  /** Adds the rules to the refusals that wait for them. Refusals that arrive during a request wait for the next one. */
  async #explain(): Promise<void> {
    if (this.#isExplaining) return;
    this.#isExplaining = true;
    while (this.#unexplained?.length) {
      const refusals = this.#unexplained;
      this.#unexplained = [];
      const denials = await deniedBy(this.#connection.address);
      if (!denials) this.#unexplained = undefined;
      for (const refusal of refusals) {
        const rule = denials?.find(({ name }) => name === (refusal.name ?? ''))?.by;
        if (rule !== undefined) this.#replace({ ...refusal, rule });
      }
    }
    this.#isExplaining = false;
  }

  /** Replaces the entry with the same number, unless it is no longer kept or the recording has ended. */
  #replace(entry: InspectedEntry): void {
    const isKept = this.#entries.some(({ number }) => number === entry.number);
    if (!isKept || this.#stops.length === 0) return;
    this.#entries = this.#entries.map((kept) => (kept.number === entry.number ? entry : kept));
    this.#connection.callAll(this.#onEntry, entry);
  }

  #isRetry({ topic, action, correlationId }: Message): boolean {
    if (correlationId === undefined) return false;
    const id = `${topic} ${action} ${correlationId}`;
    if (this.#sent.has(id)) return true;
    this.#sent.add(id);
    for (const oldest of this.#sent) {
      if (this.#sent.size <= IDS_MAX) break;
      this.#sent.delete(oldest);
    }
    return false;
  }

  #add(entry: Omit<InspectedEntry, 'number' | 'at'>): InspectedEntry {
    const added: InspectedEntry = { number: this.#count++, at: Date.now(), ...entry };
    this.#entries = [...this.#entries.slice(1 - ENTRIES_MAX), added];
    this.#connection.callAll(this.#onEntry, added);
    return added;
  }
}

/** The last denials of the server at `address`; undefined if it does not list them. */
async function deniedBy(address: string | undefined): Promise<Denial[] | undefined> {
  try {
    const answer = await request(`${httpServer(new URL(socketUrl(address)))}/denials`, { signal: AbortSignal.timeout(TIMEOUT_MS) });
    return answer.ok ? ((await answer.json()) as Denial[]) : undefined;
  } catch {
    return undefined;
  }
}

function wordsOf({ topic, action, isAck, originalAction }: Message): string {
  const [primitive = `topic ${topic}`, actions = ''] = ACTIONS[topic] ?? [];
  const word = (number: number): string => new RegExp(`(?:^| )${number} (\\S+)`).exec(actions)?.[1]?.replaceAll('-', ' ') ?? `action ${number}`;
  const words = originalAction === undefined ? word(action) : `${word(originalAction)} refused`;
  return `${primitive} ${words}${isAck ? ' confirmed' : ''}`;
}
