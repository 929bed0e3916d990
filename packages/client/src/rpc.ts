// Remote procedure calls. Providing a name is the entry `@tidewire/client/provide`.

import type { Connection, Part } from './connection.js';
import { payload, valueOf } from './data.js';
import { TidewireError, checkName, refused } from './error.js';
import { RpcAction, Topic, type Message } from './protocol.js';
import { Requests, type RequestOptions } from './request.js';
import type { Argument, Names, Optional, Result, RpcsOf, Schema, ValueOf } from './schema.js';

export class Rpcs<App extends Schema = {}> {
  readonly #requests: Requests;

  constructor(
    /** @internal */
    readonly connection: Connection,
  ) {
    this.#requests = new Requests(connection);
    const own: Part = { handle: (message, code) => this.#handle(message, code) };
    connection.parts.set(Topic.Rpc, [this.#requests, own]);
  }

  /** Calls `name` with an argument. Fulfilled with the provider's answer; rejected with an error whose code is the cause of the failure. */
  async call<Name extends Names<RpcsOf<App>>>(
    name: Name,
    ...[argument, options]: Optional<Argument<ValueOf<RpcsOf<App>, Name>>, RequestOptions>
  ): Promise<Result<ValueOf<RpcsOf<App>, Name>>> {
    checkName(name);
    const message: Message = { topic: Topic.Rpc, action: RpcAction.Request, name, ...payload(argument) };
    this.connection.judge('argument', name, message.data);
    const answer = await this.#requests.ask(message, false, options);
    const value = valueOf(answer.data);
    if (answer.action === RpcAction.Response) {
      this.connection.judge('result', name, answer.data);
      return value as Result<ValueOf<RpcsOf<App>, Name>>;
    }
    throw new TidewireError('REQUEST_ERROR', `the provider of "${name}" refused the call`, { subject: name, data: value });
  }

  #handle(message: Message, code: string | undefined): void {
    const { action, correlationId, name = '' } = message;
    if (action === RpcAction.Response || action === RpcAction.RequestError) this.#requests.settle(correlationId, message);
    // If no request has this correlation id, the server has refused an answer to a call that had already ended. That needs no report.
    else if (code !== undefined) this.#requests.settle(correlationId, refused(code, name));
  }
}
