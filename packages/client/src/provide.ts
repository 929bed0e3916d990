// Providing remote procedure calls. A separate entry, `@tidewire/client/provide`: most providers are programs on a server.

import type { Connection, Part } from './connection.js';
import { payload, valueOf } from './data.js';
import { TidewireError, checkName } from './error.js';
import { Interest, subscription, type Subscription } from './interest.js';
import { RpcAction, Topic, type Message } from './protocol.js';
import type { Rpcs } from './rpc.js';
import type { Argument, Names, Result, RpcsOf, Schema, ValueOf } from './schema.js';
import type { Signal } from './wait.js';

/** A provider throws this to fail a call with a reason, which the caller receives as the `data` of its error. */
export class RpcError extends Error {
  override readonly name = 'RpcError';

  constructor(readonly data: unknown) {
    super(typeof data === 'string' ? data : 'the provider refused the call');
    payload(data);
  }
}

/** A provider throws this to pass a call to another provider. */
export class RpcReject extends Error {
  override readonly name = 'RpcReject';
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

interface Provider extends ProvideOptions {
  answer: (argument: never, context: RpcContext) => unknown;
  running: Set<() => void>;
}

/** The `data` of the caller's error if a provider fails in another way than by an `RpcError`. It does not reveal the cause. */
const FAILED = 'PROVIDER_FAILED';

/** Each client that provides has one entry. */
const all = new WeakMap<object, Providers>();

/**
 * Answers calls of `name` with the result of `answer`. A thrown RpcError fails the call with its data; RpcReject passes the call to another
 * provider. `onError` reports other failures, and the caller receives PROVIDER_FAILED, or TOO_LARGE for an answer that exceeds the server's
 * limit.
 *
 * @param rpcs `client.rpc`
 */
export function provide<App extends Schema, Name extends Names<RpcsOf<App>>>(
  rpcs: Rpcs<App>,
  name: Name,
  answer: (argument: Argument<ValueOf<RpcsOf<App>, Name>>, context: RpcContext) => Result<ValueOf<RpcsOf<App>, Name>> | Promise<Result<ValueOf<RpcsOf<App>, Name>>>,
  options: ProvideOptions = {},
): Subscription {
  let providers = all.get(rpcs);
  if (!providers) all.set(rpcs, (providers = new Providers(rpcs.connection)));
  return providers.add(name, { ...options, answer, running: new Set() });
}

class Providers implements Part {
  readonly #connection: Connection;
  readonly #interest: Interest;
  readonly #providers = new Map<string, Provider>();

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#interest = new Interest(connection, {
      topic: Topic.Rpc,
      subscribe: RpcAction.Provide,
      unsubscribe: RpcAction.Unprovide,
      refused: (name, error) => this.#end(name, error),
    });
    connection.parts.get(Topic.Rpc)?.unshift(this.#interest, this);
  }

  add(name: string, provider: Provider): Subscription {
    checkName(name);
    this.#connection.checkCallback(provider.answer);
    if (this.#providers.has(name)) throw new TidewireError('INVALID_ARGUMENT', `"${name}" is provided by this client already`);
    this.#providers.set(name, provider);
    return subscription(this.#interest.want(name), () => {
      if (this.#providers.get(name) !== provider) return;
      this.#providers.delete(name);
      this.#interest.drop(name);
    });
  }

  handle(message: Message): boolean {
    const isCall = message.action === RpcAction.Request;
    if (isCall) void this.#answer(message);
    return isCall;
  }

  lost(): void {
    for (const { running } of this.#providers.values()) running.forEach((abort) => abort());
  }

  async #answer({ name = '', correlationId, data, requestorName, requestorData }: Message): Promise<void> {
    let isOver = false;
    const say = (action: number, fields: Partial<Message> = {}): void => {
      if (isOver) return;
      const message: Message = { topic: Topic.Rpc, action, name, correlationId: correlationId as string };
      const error = this.#connection.answer({ ...message, ...fields });
      if (!error) return;
      this.#connection.onError(error);
      this.#connection.answer({ ...message, action: RpcAction.RequestError, ...payload(error.code) });
    };
    const provider = this.#providers.get(name);
    if (!provider) return say(RpcAction.Reject);
    const listeners = new Set<() => void>();
    const end = (): void => {
      isOver = true;
      provider.running.delete(end);
      this.#connection.callAll(listeners);
    };
    const signal: Signal = {
      get aborted() {
        return isOver;
      },
      reason: new TidewireError('CALL_OVER', `the call of "${name}" has ended`, { subject: name }),
      addEventListener: (_event, listener) => listeners.add(listener),
      removeEventListener: (_event, listener) => listeners.delete(listener),
    };
    provider.running.add(end);
    say(RpcAction.Accept);
    try {
      const context: RpcContext = { name, requestor: requestorName, requestorData: valueOf(requestorData), signal };
      const error = this.#connection.validate?.('argument', name, valueOf(data));
      if (error) throw new RpcError({ code: error.code, issues: error.data });
      const result = payload(await provider.answer(valueOf(data) as never, context));
      this.#connection.judge('result', name, result.data);
      say(RpcAction.Response, result);
    } catch (error) {
      if (error instanceof RpcReject) say(RpcAction.Reject);
      else if (error instanceof RpcError) say(RpcAction.RequestError, payload(error.data));
      else {
        say(RpcAction.RequestError, payload(FAILED));
        this.#connection.onError(new TidewireError(FAILED, `the provider of "${name}" failed: ${String(error)}`, { subject: name, cause: error }));
      }
    } finally {
      provider.running.delete(end);
    }
  }

  #end(name: string, error: TidewireError): void {
    const provider = this.#providers.get(name);
    this.#providers.delete(name);
    this.#connection.callEnds(provider ? [provider] : [], error);
  }
}
