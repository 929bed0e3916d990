// Several servers with one store, and clients that write to them without a pause.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import type { TestContext } from 'node:test';
import { admin } from '../harness/admin.ts';
import { atEnd } from '../harness/cleanup.ts';
import { connect, subscribed, type TestClient } from '../harness/client.ts';
import { Database } from '../harness/database.ts';
import { fresh } from '../harness/names.ts';
import { ready } from '../harness/outage.ts';
import { environment, Server, type ServerOptions } from '../harness/server.ts';
import { eventually, type Inbox } from '../harness/wait.ts';
import type { Network } from './network.ts';

/** The store of a cluster, and the broker of its links; without one the nodes are linked directly. */
export interface Setup {
  name: string;
  store: 'postgres' | 'redis';
  broker?: 'nats' | 'redis' | 'amqp' | 'kafka';
  /** Whether only `make proof-cluster` runs it. */
  isProof?: boolean;
}

/** The broker of links is a separate server, also if the store is of the same kind. */
const ALL: Setup[] = [
  { name: 'PostgreSQL', store: 'postgres' },
  { name: 'Redis', store: 'redis' },
  { name: 'PostgreSQL and links over NATS', store: 'postgres', broker: 'nats' },
  { name: 'PostgreSQL and links over Redis', store: 'postgres', broker: 'redis', isProof: true },
  { name: 'PostgreSQL and links over AMQP', store: 'postgres', broker: 'amqp', isProof: true },
  { name: 'PostgreSQL and links over Kafka', store: 'postgres', broker: 'kafka', isProof: true },
];

const WANTED = process.env['CLUSTER_SETUP'];
/** The setups of a run: `CLUSTER_SETUP=NATS` selects by a word of their names, and `CLUSTER_SETUP=all` selects every one. */
export const SETUPS = ALL.filter(({ name, isProof }) => (WANTED === undefined ? !isProof : WANTED === 'all' || name.includes(WANTED)));
/** The setups of tests that depend little on store and links: only `make proof-cluster` runs them on each. */
export const FEW_SETUPS = WANTED === undefined ? SETUPS.slice(0, 1) : SETUPS;

/** A database that is the store and the registry of a cluster, and the broker of its links. */
export class Cluster {
  private constructor(
    private readonly test: TestContext,
    private readonly setup: Setup,
    readonly database: Database,
    readonly broker: Database | undefined,
  ) {}

  static async during(test: TestContext, setup: Setup): Promise<Cluster> {
    const broker = setup.broker && (await Database.during(test, setup.broker));
    return new Cluster(test, setup, await Database.during(test, setup.store), broker);
  }

  /** The address of the store, as the configuration has it. */
  get storeUrl(): string {
    return this.database.url + (this.setup.store === 'postgres' ? '/postgres' : '/0');
  }

  /** Starts a node, which is ready when it owns names. */
  node(options: ServerOptions = {}): Promise<Server> {
    const { store } = this.setup;
    return Server.during(this.test, {
      cluster: { enabled: true, host: '127.0.0.1', port: 0, link: this.broker?.url },
      store: { kind: store, [store]: { url: this.storeUrl } },
      logLevel: 'info',
      keepsOutput: true,
      ...options,
    });
  }

  /** Starts a node whose links and store are behind a network. */
  async nodeBehind(network: Network, options: ServerOptions = {}): Promise<Server> {
    const { cluster, storePort } = await network.place();
    const { store } = this.setup;
    const url = this.storeUrl.replace(`:${this.database.port}/`, `:${storePort}/`);
    return this.node({ ...options, cluster: { enabled: true, ...cluster }, store: { kind: store, timeout: '3s', [store]: { url } } });
  }

  async nodes(count: number, options: ServerOptions = {}): Promise<Server[]> {
    const nodes: Server[] = [];
    while (nodes.length < count) nodes.push(await this.node(options));
    return nodes;
  }
}

/** Runs `tidewire cluster` for a node. */
export function operator(node: Server, ...words: string[]): { code: number | null; out: string; error: string } {
  const place = ['--config', node.configFile];
  const { status, stdout, stderr } = spawnSync(node.binary, ['cluster', ...words, ...place], { env: environment(), encoding: 'utf8' });
  return { code: status, out: stdout, error: stderr };
}

/** One client that counts a record up, each time when the last write is acknowledged. */
export class Writer {
  /** The last value whose write was acknowledged. */
  acknowledged = 0;
  /** The longest time between two acknowledgements. */
  gapMs = 0;
  failures = 0;
  #last = performance.now();
  #isEnding = false;
  readonly #running: Promise<void>;

  constructor(
    readonly client: TestClient,
    readonly name: string,
  ) {
    this.#running = this.#run();
  }

  async #run(): Promise<void> {
    for (let n = 1; !this.#isEnding; n += 1) {
      try {
        await this.client.record.setDataWithAck(this.name, { n });
        const now = performance.now();
        this.gapMs = Math.max(this.gapMs, now - this.#last);
        this.#last = now;
        this.acknowledged = n;
      } catch {
        this.failures += 1;
      }
    }
  }

  /** Begins to measure the gaps again. */
  measure(): void {
    this.gapMs = 0;
    this.#last = performance.now();
  }

  /** Makes no further writes. Without a client each write fails at once, so a writer that continues would block the process. */
  stop(): void {
    this.#isEnding = true;
  }

  async end(): Promise<void> {
    this.stop();
    await this.#running;
  }
}

/** Errors that clients report when a node of theirs ends, or when the outcome of a write is not known. */
export const TROUBLES = ['CONNECTION_ERROR', 'RECORD_UPDATE_ERROR', 'RECORD_CREATE_ERROR', 'RECORD_READ_ERROR', 'RECORD_LOAD_ERROR', 'VERSION_EXISTS', 'CACHE_RETRIEVAL_TIMEOUT', 'RESPONSE_TIMEOUT', 'ACK_TIMEOUT'];

/** Writers of `count` records, on all `nodes` in turn. */
export async function writers(test: TestContext, nodes: Server[], count: number, prefix: string): Promise<Writer[]> {
  const clients = await Promise.all(nodes.map((node) => connect(test, node, { errors: TROUBLES })));
  const all = Array.from({ length: count }, (_, index) => new Writer(clients[index % clients.length] as TestClient, `${prefix}/${index}`));
  atEnd(test, () => all.forEach((writer) => writer.stop()));
  return all;
}

/** Waits until each writer has made further writes. */
export async function progress(all: Writer[], more = 5, deadlineMs = 30_000): Promise<void> {
  const before = all.map((writer) => writer.acknowledged);
  await eventually(() => all.every((writer, index) => writer.acknowledged >= (before[index] as number) + more), 'each writer continues', deadlineMs);
}

/** No acknowledged write is lost: each node has at least the value that was acknowledged last. */
export async function complete(test: TestContext, nodes: Server[], all: Writer[]): Promise<void> {
  await Promise.all(all.map((writer) => writer.end()));
  for (const node of nodes) {
    const reader = await connect(test, node);
    for (const { name, acknowledged } of all) {
      const { n } = (await reader.record.snapshot(name)) as { n: number };
      assert.ok(n >= acknowledged, `${name} has ${n}, but ${acknowledged} was acknowledged`);
    }
  }
}

type Numbered = [from: number, number: number];

/** Clients that publish numbers under one name without a pause, each on its own node, with the events that they get. */
export class Publishers {
  readonly #sent: number[];
  readonly #timers: NodeJS.Timeout[];

  private constructor(
    private readonly clients: TestClient[],
    private readonly name: string,
    private readonly inboxes: Inbox<Numbered>[],
  ) {
    this.#sent = clients.map(() => 0);
    this.#timers = clients.map((_, from) => setInterval(() => this.#publish(from), 20));
  }

  static async on(test: TestContext, nodes: Server[]): Promise<Publishers> {
    const name = fresh('numbers');
    const clients = await Promise.all(nodes.map((node) => connect(test, node, { errors: TROUBLES })));
    const inboxes = await Promise.all(clients.map((client) => subscribed(client, name)));
    const publishers = new Publishers(clients, name, inboxes as Inbox<Numbered>[]);
    atEnd(test, () => publishers.stop());
    return publishers;
  }

  #publish(from: number): void {
    const number = this.#sent[from] as number;
    this.clients[from]?.event.emit(this.name, [from, number]);
    this.#sent[from] = number + 1;
  }

  private stop(): void {
    this.#timers.forEach(clearInterval);
  }

  /** Ends them, and returns the number of their events. Each client must have each event of each client once and in order. */
  async end(): Promise<number> {
    this.stop();
    for (const [to, inbox] of this.inboxes.entries()) {
      for (const [from, sent] of this.#sent.entries()) {
        const numbers = (): number[] => inbox.seen.filter(([by]) => by === from).map(([, number]) => number);
        const arrived = eventually(() => numbers().length >= sent, 'all events arrive', 30_000);
        await arrived.catch(() => assert.fail(`of ${sent} events of client ${from}, client ${to} misses ${gaps(numbers(), sent)}`));
        assert.deepEqual(numbers(), Array.from({ length: sent }, (_, number) => number), 'each event once and in order');
      }
    }
    return this.#sent.reduce((sum, sent) => sum + sent, 0);
  }
}

/** The ranges of the numbers below `count` that are not in `numbers`. */
function gaps(numbers: number[], count: number): string {
  const seen = new Set(numbers);
  const missing = Array.from({ length: count }, (_, number) => number).filter((number) => !seen.has(number));
  const starts = missing.filter((number) => !missing.includes(number - 1));
  const ends = missing.filter((number) => !missing.includes(number + 1));
  return starts.map((start, index) => `${start} to ${ends[index]}`).join(', ');
}

export const evictions = (nodes: Server[]): Promise<number> => sum(nodes, 'tidewire_cluster_evictions_total');

/** The sum of a metric over nodes. */
export async function sum(nodes: Server[], metric: string): Promise<number> {
  const values = await Promise.all(nodes.map((node) => node.metric(metric)));
  return values.reduce((sum, value) => sum + value, 0);
}

/** The revoked users, as the store has them. */
export async function revoked(node: Server): Promise<string[]> {
  const [status, body] = await admin(node, 'GET', '/revocations');
  assert.equal(status, 200);
  return (body.revocations as Array<{ name: string }>).map(({ name }) => name);
}

export async function view(node: Server): Promise<number> {
  return node.metric('tidewire_cluster_view');
}

export async function warns(node: Server, code: string): Promise<boolean> {
  const { warnings } = await ready(node);
  return warnings.some((warning) => warning.code === code);
}

/** Lets time pass in which something must not happen. */
export const pass = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));
