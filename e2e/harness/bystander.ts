// A process with one real client that uses everything that another peer can reach, and that continuously checks its own traffic with the
// next process of its kind. It reports the number of checks, and all exceptions and errors of its client.

import { C, list, open, record, type TestClient } from './client.ts';

/** The report of a bystander. */
export interface Account {
  /** Correct events, answers and changes of its neighbours. */
  checked: number;
  /** Messages of the fuzzing peer that the client delivered as values. */
  touched: number;
  failures: string[];
}

/** The names that the fuzzing peer attacks. */
export const TARGETS = {
  event: 'fuzz/event',
  record: 'fuzz/record',
  list: 'fuzz/list',
  provided: 'fuzz/provided',
  rpc: 'fuzz/rpc',
};

/** Milliseconds between two rounds of checked traffic. */
const ROUND_MS = 50;
/** The caller of an rpc may have left when the answer arrives; invalid bytes do not cause this error. */
const EXPECTED_ERRORS = ['UNKNOWN_CORRELATION_ID'];

class Bystander {
  readonly account: Account = { checked: 0, touched: 0, failures: [] };
  readonly #client: TestClient;
  #expected = 0;

  constructor(
    private readonly index: number,
    private readonly count: number,
    address: string,
  ) {
    this.#client = open(address);
    this.#client.on('error', (detail: unknown, event: string, topic: string) => {
      if (!EXPECTED_ERRORS.includes(event)) this.fail(`error ${event} ${topic}: ${JSON.stringify(detail)}`);
    });
    this.#client.on('connectionStateChanged', (state: string) => {
      if (state === C.CONNECTION_STATE.RECONNECTING) this.fail('the connection was lost');
    });
  }

  fail(what: string): void {
    if (this.account.failures.length < 20) this.account.failures.push(what.slice(0, 1_000));
  }

  async start(): Promise<void> {
    const client = this.#client;
    await client.login({ username: `bystander-${this.index}` });
    const touch = (): void => {
      this.account.touched += 1;
    };
    client.event.subscribe(TARGETS.event, touch);
    client.rpc.provide(TARGETS.rpc, (data, response) => {
      touch();
      response.send(data);
    });
    for (const handler of [client.event, client.record]) {
      handler.listen('^fuzz/', (_name, response) => response.accept());
    }
    client.presence.subscribe(touch);
    client.presence.subscribe('fuzz-user', touch);
    this.#keepOpen(TARGETS.record, touch);
    this.#keepList(TARGETS.list, touch);
    client.event.subscribe(`check/event/${this.index}`, (number) => this.#check(number));
    await client.wire.acknowledged('EVENT', C.EVENT_ACTION.SUBSCRIBE, `check/event/${this.index}`);
    client.rpc.provide(`check/rpc/${this.index}`, (data, response) => response.send([data]));
    await client.wire.acknowledged('RPC', C.RPC_ACTION.PROVIDE, `check/rpc/${this.index}`);
  }

  /** Keeps a record open, which any peer may delete at any time. */
  #keepOpen(name: string, touch: () => void): void {
    const opened = this.#client.record.getRecord(name);
    opened.subscribe(touch);
    opened.on('delete', () => setImmediate(() => this.#keepOpen(name, touch)));
  }

  /** Keeps a list open, which any peer may delete at any time. */
  #keepList(name: string, touch: () => void): void {
    const opened = this.#client.record.getList(name);
    opened.subscribe(touch);
    opened.on('delete', () => setImmediate(() => this.#keepList(name, touch)));
  }

  #check(number: unknown): void {
    if (number === this.#expected) this.account.checked += 1;
    else this.fail(`event ${String(number)} instead of ${this.#expected}`);
    this.#expected = Number(number) + 1;
  }

  /** Sends and checks traffic in rounds until the process ends. */
  async run(): Promise<void> {
    const client = this.#client;
    const next = (this.index + 1) % this.count;
    const mine = await record(client, `check/record/${this.index}`);
    const entries = await list(client, `check/list/${this.index}`);
    for (let round = 0; ; round += 1) {
      client.event.emit(`check/event/${next}`, round);
      await mine.setWithAck('round', round);
      await entries.setEntriesWithAck([`${round}`, 'end']);
      const [answer, value, held] = await Promise.all([
        client.rpc.make(`check/rpc/${next}`, round),
        client.record.snapshot(`check/record/${this.index}`),
        client.presence.getAll([`bystander-${next}`]),
      ]);
      const right = answer[0] === round && (value as { round: number }).round === round && held[`bystander-${next}`] === true;
      if (right) this.account.checked += 3;
      else this.fail(`round ${round}: ${JSON.stringify([answer, value, held])}`);
      // The fuzzing peer provides this rpc: its answer may be anything, or may not arrive.
      client.rpc.make(TARGETS.provided, round, () => {
        this.account.touched += 1;
      });
      await client.presence.getAll();
      await new Promise((resume) => setTimeout(resume, ROUND_MS));
    }
  }
}

if (process.send) {
  const [address, index, count] = process.argv.slice(2) as [string, string, string];
  const bystander = new Bystander(Number(index), Number(count), address);
  process.on('uncaughtException', (error) => bystander.fail(`thrown: ${error.stack}`));
  process.on('unhandledRejection', (reason) => bystander.fail(`rejected: ${String(reason)}`));
  process.on('disconnect', () => process.exit());
  await bystander.start();
  process.send(bystander.account);
  process.on('message', (message) => {
    if (message === 'run') void bystander.run().catch((error: unknown) => bystander.fail(`rejected: ${String(error)}`));
    else process.send?.(bystander.account);
  });
}
