// Transactions: changes of several records that are made together or not at all. A separate entry, `@tidewire/client/transactions`.

import type { Part } from './connection.js';
import { payload, valueOf } from './data.js';
import { TidewireError, checkName } from './error.js';
import { RecordAction, Topic, type Message } from './protocol.js';
import type { Records } from './records.js';
import { Requests, type RequestOptions } from './request.js';
import type { Names, RecordsOf, Schema, ValueOf } from './schema.js';
import { limited } from './wait.js';

export interface TransactionOptions extends RequestOptions {
  /** How often the function is called at most, if other clients change the records that it has read; by default 10. */
  attemptsMax?: number;
}

/** The delay before the second attempt in milliseconds, at most; it doubles with each further one, up to `DELAY_MAX_MS`. */
const DELAY_FIRST_MS = 10;
const DELAY_MAX_MS = 1_000;

/** Codes of answers after which nothing was done and another attempt may succeed. */
const IS_REPEATED = /^(CONFLICT|RECORD_LOAD_ERROR)$/;

/** The part of a transaction about one record. */
interface Operation {
  /** The condition, if the record was read: the state that was read. */
  if?: string;
  /** The JSON of the new value, or `null` to delete the record. */
  data?: string;
  value?: unknown;
}

/** The records that the function of a transaction reads and changes. */
export class Transaction<App extends Schema = {}> {
  readonly #records: Records<App>;
  readonly #options: RequestOptions;
  readonly #operations = new Map<string, Operation>();
  #hasEnded = false;

  /** Call `runTransaction` to create one. */
  constructor(records: Records<App>, options: RequestOptions) {
    this.#records = records;
    this.#options = options;
  }

  /**
   * Reads a record; undefined if it does not exist. The transaction is made only if the record is still the same then. A record that the
   * transaction has changed has its new value.
   */
  async get<Name extends Names<RecordsOf<App>>>(name: Name): Promise<ValueOf<RecordsOf<App>, Name> | undefined> {
    const known = this.#operation(name);
    if (known.if === undefined && known.data === undefined) {
      const { data, incarnation, version = 0 } = await this.#ask({ topic: Topic.Record, action: RecordAction.Fetch, name }, true);
      this.#records.connection.judge('record', name, data);
      known.if = incarnation === undefined ? 'missing' : `${hex(incarnation)}-${version}`;
      known.value = valueOf(data);
    }
    return known.value as ValueOf<RecordsOf<App>, Name> | undefined;
  }

  /** Replaces or creates a record when the transaction is made. */
  set<Name extends Names<RecordsOf<App>>>(name: Name, value: ValueOf<RecordsOf<App>, Name>): void {
    const { data } = payload(value);
    if (data === undefined) throw new TidewireError('INVALID_ARGUMENT', 'the value of a record must not be undefined: use delete', { subject: name });
    this.#records.connection.judge('record', name, data);
    Object.assign(this.#operation(name), { data, value: valueOf(data) });
  }

  /** Deletes a record when the transaction is made, also if it does not exist. */
  delete(name: Names<RecordsOf<App>>): void {
    Object.assign(this.#operation(name), { data: 'null', value: undefined });
  }

  /**
   * Makes the transaction.
   *
   * @internal
   */
  async commit(): Promise<void> {
    this.end();
    if (this.#operations.size === 0) return;
    const operations = [...this.#operations.values()].map(({ if: state, data }) => {
      const members = [state === undefined ? '' : `"if":"${state}"`, data === undefined ? '' : `"data":${data}`];
      return `{${members.filter(Boolean).join()}}`;
    });
    const message: Message = { topic: Topic.Record, action: RecordAction.Commit, names: [...this.#operations.keys()], data: `[${operations.join()}]` };
    const { action, name, data } = await this.#ask(message, false);
    if (action === RecordAction.Committed) return;
    if (action === RecordAction.TransactionRefused) throw new TidewireError('TRANSACTION_REFUSED', `the server refused the transaction: ${valueOf(data)}`);
    throw new TidewireError('CONFLICT', `another client has changed "${name}" since the transaction read it`, { subject: name });
  }

  /** @internal */
  end(): void {
    this.#hasEnded = true;
  }

  /** Sends a request like `client.record`, which gets the answers about records. */
  #ask(message: Message, isRepeatable: boolean): Promise<Message> {
    const parts = this.#records.connection.parts.get(Topic.Record) ?? [];
    const requests = parts.find((part): part is Part & Requests => part instanceof Requests);
    if (!requests) throw new TidewireError('CLOSED', 'the client is closed');
    return requests.ask(message, isRepeatable, this.#options);
  }

  #operation(name: string): Operation {
    checkName(name);
    if (this.#hasEnded) throw new TidewireError('CLOSED', 'the transaction has ended: wait for each get before its function ends', { subject: name });
    const operation = this.#operations.get(name) ?? {};
    this.#operations.set(name, operation);
    return operation;
  }
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
export async function runTransaction<Result, App extends Schema = {}>(
  records: Records<App>,
  update: (transaction: Transaction<App>) => Result | Promise<Result>,
  options: TransactionOptions = {},
): Promise<Result> {
  const { attemptsMax = 10, ...request } = options;
  const { connection } = records;
  for (let attempt = 1; ; attempt += 1) {
    connection.checkUse();
    if (connection.state !== 'open' && connection.state !== 'checking') {
      throw new TidewireError('NOT_CONNECTED', 'a transaction needs an open connection: run it when the state of the client is open');
    }
    const transaction = new Transaction(records, request);
    try {
      const result = await update(transaction);
      await transaction.commit();
      return result;
    } catch (error) {
      transaction.end();
      const isRepeated = error instanceof TidewireError && IS_REPEATED.test(error.code);
      if (!isRepeated || attempt >= attemptsMax) throw error;
    }
    const delay = Math.random() * Math.min(DELAY_MAX_MS, DELAY_FIRST_MS * 2 ** attempt);
    const { signal } = request;
    const aborted = (): unknown => signal?.reason ?? new TidewireError('ABORTED', 'the transaction was aborted');
    if (signal?.aborted) throw aborted();
    await limited(new Promise<void>((resolve) => void setTimeout(resolve, delay)), signal, undefined, aborted);
  }
}

/** A number of 64 bits in hexadecimal digits. */
function hex(number: number | Uint8Array): string {
  if (typeof number === 'number') return number.toString(16);
  return number.reduceRight((value, byte) => (value << 7n) | BigInt(byte & 127), 0n).toString(16);
}
