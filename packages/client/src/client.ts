// The client that an app creates: one connection, and the primitives that use it.

import { Connection, type Auth, type ConnectOptions, type ConnectionOptions, type State, type StateCallback } from './connection.js';
import type { TidewireError } from './error.js';
import { Events, type TraceOptions } from './event.js';
import { Records } from './records.js';
import { Rpcs } from './rpc.js';
import type { Schema } from './schema.js';

export interface ClientOptions extends ConnectionOptions, TraceOptions {}

/**
 * The client of one server. It sends nothing before `connect()`: subscriptions, providers and requests wait for the connection.
 *
 * @typeParam App the types of the app: see {@link Schema}
 */
export class Client<App extends Schema = {}> {
  readonly record: Records<App>;
  readonly event: Events<App>;
  readonly rpc: Rpcs<App>;
  readonly #connection: Connection;

  /** @param url `host:port`, or an address that begins with `ws`, `wss`, `http` or `https`; a page may omit it to use its own server */
  constructor(url?: string, options: ClientOptions = {}) {
    const connection = new Connection(url, options);
    this.#connection = connection;
    this.record = new Records<App>(connection);
    this.event = new Events<App>(connection, options);
    this.rpc = new Rpcs<App>(connection);
  }

  /** The state of the connection. */
  get state(): State {
    return this.#connection.state;
  }

  /** The client data that the server sent at the login (`clientData`). */
  get loginData(): unknown {
    return this.#connection.loginData;
  }

  /** Why the client is closed: an error with the code CLOSED after `close()`, else the error with which the server refused it for good. */
  get closeReason(): TidewireError | undefined {
    return this.#connection.reason;
  }

  /**
   * Why the first connection does not open, once the client has found out: UNREACHABLE, FORBIDDEN, PATH_NOT_FOUND or UPGRADE_FAILED. The client
   * still tries again.
   */
  get problem(): TidewireError | undefined {
    return this.#connection.problem;
  }

  /**
   * Connects and logs in. Fulfilled when the connection is open, however long that takes; rejected when the server refuses for good, when
   * the signal aborts or when the time has passed. In the last two cases the client is closed again, unless other calls wait or it was open
   * before. After a rejection, and after `close()`, it may be called again.
   */
  connect(options?: ConnectOptions): Promise<void> {
    return this.#connection.connect(options);
  }

  /**
   * Renews the login of the open session with other credentials of the same user. If the server rejects them, the session continues as it
   * was.
   */
  renew(auth?: Auth): Promise<void> {
    return this.#connection.renew(auth);
  }

  /**
   * Checks by a round trip that the connection is alive. A page does this by itself when it wakes up. In other runtimes, call it when the
   * app comes to the foreground.
   */
  check(): void {
    this.#connection.check();
  }

  /** Closes the connection; messages that were sent before still leave. */
  close(): void {
    this.#connection.close();
  }

  /** Calls `callback` with every new state, and with the reason for `waiting` and `closed`; returns the removal. */
  onState(callback: StateCallback): () => void {
    const { onState } = this.#connection;
    onState.add(callback);
    return () => void onState.delete(callback);
  }

  /**
   * Calls `callback` with each error that no other callback or promise receives; returns the removal. Without a callback, errors go to the
   * console.
   */
  onError(callback: (error: TidewireError) => void): () => void {
    const { onErrors } = this.#connection;
    onErrors.add(callback);
    return () => void onErrors.delete(callback);
  }
}
