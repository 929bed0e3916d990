// What an app holds: one connection, and the primitives that speak over it.

import { Connection, type Auth, type ConnectionOptions, type State } from './connection.js';
import type { TidewireError } from './error.js';
import { Events, type TraceOptions } from './event.js';
import { Presence } from './presence.js';
import { Records } from './records.js';
import type { RequestLimits } from './request.js';
import { Rpcs } from './rpc.js';
import type { Schema } from './schema.js';

export interface ClientOptions extends ConnectionOptions, RequestLimits, TraceOptions {}

/**
 * A client of one server. Nothing happens before `connect()`: what is subscribed, provided or asked until then waits for it.
 *
 * @typeParam App the types of the app: see {@link Schema}
 */
export class Client<App extends Schema = {}> {
  readonly record: Records<App>;
  readonly event: Events<App>;
  readonly rpc: Rpcs<App>;
  readonly presence: Presence;
  readonly #connection: Connection;
  readonly #onState = new Set<(state: State, reason: TidewireError | undefined) => void>();
  readonly #onError = new Set<(error: TidewireError) => void>();

  /**
   * @param url `host:port`, or an address that begins with `ws`, `wss`, `http` or `https`; in a page its own server if it is left out
   */
  constructor(url?: string, options: ClientOptions = {}) {
    const connection = new Connection(url, options);
    this.#connection = connection;
    this.record = new Records<App>(connection, options);
    this.event = new Events<App>(connection, options);
    this.rpc = new Rpcs<App>(connection, options);
    this.presence = new Presence(connection, options);
    connection.onState = (state, reason) => {
      connection.callAll(this.#onState, state, reason);
    };
    connection.onError = (error) => {
      if (this.#onError.size === 0) console.error(error);
      for (const callback of [...this.#onError]) callback(error);
    };
  }

  /** The state of the connection. */
  get state(): State {
    return this.#connection.state;
  }

  /** What the server told at the login about who this is (`clientData`). */
  get loginData(): unknown {
    return this.#connection.loginData;
  }

  /** Why the client is closed: an error of the code CLOSED after `close()`, else that with which the server refused it for good. */
  get closeReason(): TidewireError | undefined {
    return this.#connection.reason;
  }

  /**
   * Connects and logs in. Fulfilled when the connection is open, however long that takes; rejected when the server refuses for good.
   * After that, and after `close()`, it may be called again.
   *
   * @param auth credentials, or a function that gives them, instead of the option
   */
  connect(auth?: Auth): Promise<void> {
    return this.#connection.connect(auth);
  }

  /** Renews the login of the open session with other credentials of the same user. Rejected, the session goes on as it was. */
  renew(auth?: Auth): Promise<void> {
    return this.#connection.renew(auth);
  }

  /** Has a round trip prove that the connection lives. Pages do so by themselves when they wake up; call it where an app comes to the foreground otherwise. */
  check(): void {
    this.#connection.check();
  }

  /** Closes the connection; what was emitted before still leaves. */
  close(): void {
    this.#connection.close();
  }

  /** Calls `callback` with every new state, and with the reason for `waiting` and `closed`; returns the removal. */
  onState(callback: (state: State, reason: TidewireError | undefined) => void): () => void {
    this.#onState.add(callback);
    return () => void this.#onState.delete(callback);
  }

  /** Calls `callback` with what went wrong and was told to nobody else; returns the removal. Without any, errors go to the console. */
  onError(callback: (error: TidewireError) => void): () => void {
    this.#onError.add(callback);
    return () => void this.#onError.delete(callback);
  }
}
