// Listening: serves the events or records that sessions subscribe to, by patterns of their names. The server asks one provider at a time. A
// separate entry, `@tidewire/client/listen`: few clients listen, and most of them do not run in a page.

import type { Connection, Part } from './connection.js';
import { deferred, type Deferred } from './deferred.js';
import { TidewireError, checkName, refused } from './error.js';
import { Events } from './event.js';
import { subscription, type Subscription } from './interest.js';
import { Topic, type Message } from './protocol.js';
import type { Records } from './records.js';
import type { EventsOf, Names, RecordsOf, Schema } from './schema.js';

/** Ends the serving of a name. False if this client does not serve the name; then the server asks the next provider. */
export type Served = (() => void) | false;

/** Called with a name that matches the pattern. */
export type Serve<Name extends string> = (name: Name) => Served | Promise<Served>;

export interface ListenOptions {
  /** Called when the server refused the pattern or revoked the right to it: `serve` is no longer called. */
  onEnd?: (error: TidewireError) => void;
}

/** The actions of events. Each action of records is greater by `RECORD_SHIFT`, and each of their errors by `RECORD_ERROR_SHIFT`. */
const enum ListenAction {
  Listen = 5,
  Unlisten = 6,
  Accept = 7,
  Reject = 8,
  Found = 11,
  Removed = 12,
  InvalidPattern = 100,
  TooLate = 101,
}
const RECORD_SHIFT = 22;
const RECORD_ERROR_SHIFT = 10;

interface Listener extends ListenOptions {
  serve: Serve<never>;
  ready: Deferred;
}

/** A name that the server has offered to this client, and the function that ends serving it. */
interface Serving {
  pattern: string;
  end?: () => void;
}

/** Each client that listens has one entry for its events and one for its records. */
const all = new WeakMap<object, Listening>();

/**
 * Serves names of events or records that match the regular expression `pattern`, anywhere in the name. The client calls `serve` with each
 * matching name that a session subscribes to. `serve` returns a function that ends the serving, or false: then the server asks the next
 * provider. The client calls that function when no session subscribes to the name, when the connection is lost, or when the listening ends.
 *
 * @param part `client.event` or `client.record`
 */
export function listen<App extends Schema>(
  part: Events<App>,
  pattern: string,
  serve: Serve<Names<EventsOf<App>>>,
  options?: ListenOptions,
): Subscription;
export function listen<App extends Schema>(
  part: Records<App>,
  pattern: string,
  serve: Serve<Names<RecordsOf<App>>>,
  options?: ListenOptions,
): Subscription;
export function listen(part: Events | Records, pattern: string, serve: Serve<never>, options: ListenOptions = {}): Subscription {
  const { connection } = part;
  let listening = all.get(part);
  if (!listening) {
    const topic = part instanceof Events ? Topic.Event : Topic.Record;
    listening = new Listening(connection, topic);
    all.set(part, listening);
    connection.parts.get(topic)?.unshift(listening);
  }
  return listening.listen(pattern, serve, options);
}

class Listening implements Part {
  readonly #listeners = new Map<string, Listener>();
  readonly #servings = new Map<string, Serving>();
  readonly #shift: number;
  readonly #errorShift: number;

  constructor(
    private readonly connection: Connection,
    private readonly topic: Topic,
  ) {
    this.#shift = topic === Topic.Record ? RECORD_SHIFT : 0;
    this.#errorShift = topic === Topic.Record ? RECORD_ERROR_SHIFT : 0;
  }

  listen(pattern: string, serve: Serve<never>, options: ListenOptions): Subscription {
    checkName(pattern, 'pattern');
    this.connection.checkCallback(serve);
    if (this.#listeners.has(pattern)) throw new TidewireError('INVALID_ARGUMENT', `"${pattern}" is listened for by this client already`);
    const listener: Listener = { ...options, serve, ready: deferred() };
    this.#listeners.set(pattern, listener);
    const tooLarge = this.#say(ListenAction.Listen, pattern);
    if (tooLarge) this.#refuse(pattern, tooLarge);
    return subscription(listener.ready.promise, () => {
      if (this.#listeners.get(pattern) !== listener) return;
      this.#forget(pattern);
      this.#say(ListenAction.Unlisten, pattern);
    });
  }

  handle({ action, name = '', subscription: found = '', isAck, originalAction }: Message, code: string | undefined): boolean {
    const what = action - this.#shift;
    const error = action - this.#errorShift;
    if (error === ListenAction.InvalidPattern) this.#refuse(name, refused('INVALID_LISTEN_REGEX', name));
    else if (code !== undefined && originalAction === ListenAction.Listen + this.#shift) this.#refuse(name, refused(code, name));
    else if (isAck && what === ListenAction.Listen) this.#listeners.get(name)?.ready.resolve();
    else if (isAck && what === ListenAction.Unlisten) return true;
    else if (what === ListenAction.Found) void this.#ask(name, found);
    // The refusal of an answer that is too late has no pattern, so the name alone finds the serving.
    else if (what === ListenAction.Removed || error === ListenAction.TooLate) this.#end(found);
    else return false;
    return true;
  }

  opened(isNew: boolean): void {
    if (isNew) for (const pattern of this.#listeners.keys()) this.#say(ListenAction.Listen, pattern);
  }

  lost(): void {
    for (const name of [...this.#servings.keys()]) this.#end(name);
  }

  closed(reason: TidewireError): void {
    for (const { ready } of this.#listeners.values()) ready.reject(reason);
  }

  #say(action: ListenAction, pattern: string, name?: string): TidewireError | undefined {
    const fields = name === undefined ? {} : { subscription: name };
    return this.connection.answer({ topic: this.topic, action: action + this.#shift, name: pattern, ...fields });
  }

  /** Calls `serve` for `name`, and sends its answer to the server unless the serving has ended by then. */
  async #ask(pattern: string, name: string): Promise<void> {
    const serving: Serving = { pattern };
    this.#servings.set(name, serving);
    let end: Served = false;
    try {
      end = (await this.#listeners.get(pattern)?.serve(name as never)) ?? false;
    } catch (cause) {
      const text = `the function that serves "${name}" failed: ${String(cause)}`;
      this.connection.onError(new TidewireError('CALLBACK_FAILED', text, { subject: name, cause }));
    }
    if (this.#servings.get(name) !== serving) {
      if (end) this.connection.call(end);
      return;
    }
    this.#say(end ? ListenAction.Accept : ListenAction.Reject, pattern, name);
    if (end) serving.end = end;
    else this.#servings.delete(name);
  }

  #end(name: string): void {
    const end = this.#servings.get(name)?.end;
    this.#servings.delete(name);
    if (end) this.connection.call(end);
  }

  #forget(pattern: string): void {
    this.#listeners.delete(pattern);
    for (const [name, serving] of [...this.#servings]) if (serving.pattern === pattern) this.#end(name);
  }

  #refuse(pattern: string, error: TidewireError): void {
    const listener = this.#listeners.get(pattern);
    if (!listener) return;
    this.#forget(pattern);
    listener.ready.reject(error);
    this.connection.callEnds([listener], error);
  }
}
