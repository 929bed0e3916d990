// Listening: serving the events or records that somebody subscribes to, by patterns of their names. The server asks one provider at a time.
// An entry of its own, `@tidewire/client/listen`: few clients do it, and most of those are no pages.

import type { Connection, Part } from './connection.js';
import { deferred, type Deferred } from './deferred.js';
import { TidewireError, checkName, refused } from './error.js';
import { Events } from './event.js';
import { subscription, type Subscription } from './interest.js';
import { Topic, type Message } from './protocol.js';
import type { Records } from './records.js';
import type { EventsOf, Names, RecordsOf, Schema } from './schema.js';

/** What ends the serving of a name; false if this client does not serve it, so that the next provider is asked. */
export type Served = (() => void) | false;

/** Asked for a name that matches. */
export type Serve<Name extends string> = (name: Name) => Served | Promise<Served>;

export interface ListenOptions {
  /** The server refused the pattern, or has taken the right to it back: nothing more is asked for. */
  onEnd?: (error: TidewireError) => void;
}

/** The numbers of events; those of records are greater by `RECORD_SHIFT`, and their errors by `RECORD_ERROR_SHIFT`. */
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

/** A name that this client was asked for, and what ends the serving of it. */
interface Serving {
  pattern: string;
  end?: () => void;
}

/** One for the events and one for the records of each client that listens. */
const all = new WeakMap<object, Listening>();

/**
 * Serves names of events or records that match the regular expression `pattern`, which is found anywhere in them: `serve` is called with each
 * name that somebody subscribes to. It gives back what is to be called when nobody wants the name any more, the connection is lost or the
 * listening ends; or false, and the next provider is asked.
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
    // Whoever answers too late is not told for which pattern.
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

  /** Asks the app whether it serves `name`, and tells the server unless that is over meanwhile. */
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
