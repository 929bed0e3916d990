// The load of the crash tests: clients of the npm package that write, patch and delete records with acknowledgement. They write many
// records at a time, each in a separate chain, and note every request and confirmation in the ledger. `verify` reads all records back
// through another client.

import { randomInt } from 'node:crypto';
import { type TestClient, close, open } from '../harness/client.ts';
import { DEADLINE_MS, within } from '../harness/wait.ts';
import type { Ledger, Seen, State } from './ledger.ts';

const CLIENT_COUNT = 4;
/** Records that each client writes at the same time. */
const RECORDS_PER_CLIENT = 16;
/** Characters of the longest filling; records have from a few bytes to several pages. */
const FILLING_MAX = 10_000;
/** Records that no client writes; every shard owns some of them. */
const ASKED_NAMES = 64;
/** Acknowledged patches between a whole write and a delete. */
const PATCHES_MAX = 6;

/** Writers that run until they are stopped. */
export class Writers {
  /** The errors that ended chains. After a crash there are many; before it the list must be empty. */
  readonly errors: string[] = [];
  readonly #clients: TestClient[] = [];
  #isStopped = false;
  #isDeaf = false;
  #acknowledgedCount = 0;
  #reached: Array<{ count: number; done: () => void }> = [];

  private constructor(
    private readonly ledger: Ledger,
    private readonly numbers: { next: number },
  ) {}

  /** The number of chains. */
  get count(): number {
    return this.#clients.length * RECORDS_PER_CLIENT;
  }

  /** The number of acknowledged writes and deletes. */
  get acknowledgedCount(): number {
    return this.#acknowledgedCount;
  }

  /** Starts all chains. `numbers` continues over all crashes, so that no two writes are equal. */
  static async start(address: string, ledger: Ledger, numbers: { next: number }): Promise<Writers> {
    const writers = new Writers(ledger, numbers);
    for (let i = 0; i < CLIENT_COUNT; i += 1) writers.#clients.push(await loggedIn(address));
    for (const [i, client] of writers.#clients.entries()) {
      for (let k = 0; k < RECORDS_PER_CLIENT; k += 1) writers.#startChain(client, `crash/${i}/${k}`, k % 2 === 0);
    }
    return writers;
  }

  /** Waits until `count` writes and deletes were acknowledged. */
  async reach(count: number): Promise<void> {
    const reached = new Promise<void>((done) => this.#reached.push({ count, done }));
    try {
      await within(DEADLINE_MS, reached, `${count} acknowledgements`);
    } catch (error) {
      throw new Error(`${(error as Error).message}; there were ${this.#acknowledgedCount}; ${this.errors.join(', ')}`);
    }
  }

  /**
   * Waits for all earlier acknowledgements of the server. A read is answered on the same way, from a record's owner over the
   * connection, and the names are numerous enough that every shard owns some.
   */
  async caughtUp(): Promise<void> {
    const names = Array.from({ length: ASKED_NAMES }, (_, i) => `asked/${i}`);
    const heads = this.#clients.flatMap((client) => names.map((name) => client.record.head(name)));
    await within(DEADLINE_MS, Promise.all(heads), 'every shard answers every client');
  }

  /** Ignores acknowledgements that arrive later. */
  hearNoMore(): void {
    this.#isDeaf = true;
  }

  /** Ends all chains; writes in flight stay in flight in the ledger. */
  stop(): void {
    this.#isStopped = true;
    this.#clients.forEach(close);
  }

  #startChain(client: TestClient, name: string, throughRecord: boolean): void {
    const chain = throughRecord ? this.#writeRecord(client, name) : this.#setData(client, name);
    chain.catch((error: unknown) => this.errors.push(String(error)));
  }

  /** Creates a record, writes it whole and by path, deletes it, and repeats. */
  async #writeRecord(client: TestClient, name: string): Promise<void> {
    while (!this.#isStopped) {
      if (this.ledger.isMissing(name)) this.ledger.begin(name, 'created');
      const record = client.record.getRecord(name);
      await record.whenReady();
      await this.#step(name, (n) => record.setWithAck(value(n)), () => record.version);
      for (let patches = randomInt(PATCHES_MAX); patches > 0; patches -= 1) {
        await this.#step(name, (n) => record.setWithAck('n', n), () => record.version);
      }
      this.ledger.begin(name, 'missing');
      await record.delete();
      this.#acknowledge(name, 'missing', -1);
    }
  }

  /** Writes a record whole and by path without reading it first. */
  async #setData(client: TestClient, name: string): Promise<void> {
    while (!this.#isStopped) {
      await this.#step(name, (n) => client.record.setDataWithAck(name, value(n)));
      await this.#step(name, (n) => client.record.setDataWithAck(name, 'n', n as never));
    }
  }

  async #step(name: string, write: (n: number) => unknown, version = (): number => -1): Promise<void> {
    const n = this.numbers.next;
    this.numbers.next += 1;
    this.ledger.begin(name, n);
    await write(n);
    this.#acknowledge(name, n, version());
  }

  #acknowledge(name: string, state: State, version: number): void {
    if (this.#isDeaf) return;
    this.ledger.acknowledge(name, state, version);
    this.#acknowledgedCount += 1;
    this.#reached = this.#reached.filter(({ count, done }) => {
      if (this.#acknowledgedCount < count) return true;
      done();
      return false;
    });
  }
}

/** Reads every record of the ledger and returns the faults. */
export async function verify(address: string, ledger: Ledger): Promise<string[]> {
  const client = await loggedIn(address);
  try {
    const compare = async (name: string): Promise<string | undefined> => ledger.compare(name, await see(client, name));
    const faults = await within(DEADLINE_MS, Promise.all(ledger.names.map(compare)), 'all records are read');
    return faults.filter((fault) => fault !== undefined);
  } finally {
    close(client);
  }
}

/** A client that is logged in and that no test closes. */
export async function loggedIn(address: string): Promise<TestClient> {
  const client = open(address);
  await within(DEADLINE_MS, client.login({}), 'login');
  return client;
}

function value(n: number): { n: number; filling: string } {
  return { n, filling: 'x'.repeat(randomInt(FILLING_MAX)) };
}

async function see(client: TestClient, name: string): Promise<Seen> {
  const version = await client.record.head(name);
  if (version === -1) return { state: 'missing', version };
  const data = (await client.record.snapshot(name)) as { n?: number };
  return { state: data.n ?? 'created', version };
}
