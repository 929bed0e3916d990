// A rolling restart: three nodes behind haproxy stop and start again one after another, while clients write and call. Each client is an app
// that repeats only what it may repeat. In an upgrade the nodes begin with the server of an earlier commit.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { provide } from '../../packages/client/src/provide.ts';
import { TidewireError, type Client } from '../../packages/client/src/index.ts';
import { client } from '../harness/driver/tidewire.ts';
import { fresh } from '../harness/names.ts';
import type { Server, ServerOptions } from '../harness/server.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';
import { haproxyDuring } from '../proxies/reverse-proxy.ts';
import { Cluster, FEW_SETUPS, pass, type Setup } from './cluster.ts';
import { isUpgraded, olderServer } from './older-server.ts';

const CLIENT_COUNT = 12;
/** Operations before the restart, to compare with. */
const QUIET_COUNT = 3_000;
/** Between the loss of readiness and the end of the node's connections. haproxy checks ten times in it. */
const DRAIN_DELAY_MS = 1_000;
const CHECK_MS = 100;
/** The longest time that a rolling restart may add to the 99th percentile. */
const ADDED_MS_MAX = 250;
/** The refusals of a call that the app repeats: docs/errors.md has them as retryable. */
const CALL_REFUSALS = ['CONNECTION_LOST', 'NO_RPC_PROVIDER'];
/** The server of the earlier commit refuses writes while it stops. */
const WRITE_REFUSALS = ['RECORD_UPDATE_ERROR'];
/** The delays of the client by default: the suites use shorter ones. */
const DELAYS = { reconnectMinMs: 500, reconnectMaxMs: 10_000, requestTimeoutMs: 15_000 };

/** One client that writes and calls without a pause, and repeats a call whose outcome is unknown. */
class App {
  /** The time of each operation, with its repetitions. */
  times: number[] = [];
  /** How often it repeated an operation, by the code of the refusal. */
  readonly repeated = new Map<string, number>();
  written = 0;
  #isEnding = false;
  #running: Promise<void> = Promise.resolve();

  private constructor(
    readonly client: Client,
    readonly name: string,
    readonly rpc: string,
    readonly writeRefusals: string[],
  ) {}

  static async through(test: TestContext, address: string, [name, rpc]: [string, string], writeRefusals: string[]): Promise<App> {
    const made = client(test, address, DELAYS);
    await within(DEADLINE_MS, made.connect(), 'login');
    await provide(made.rpc, rpc, (n) => (n as number) + 1).ready;
    return new App(made, name, rpc, writeRefusals);
  }

  begin(): void {
    this.#running = this.#run();
  }

  async #run(): Promise<void> {
    const record = this.client.record.open(this.name);
    await record.ready;
    while (!this.#isEnding) {
      const n = this.written + 1;
      await this.#timed(() => this.#repeated(() => record.setWithAck({ n }), this.writeRefusals));
      this.written = n;
      // The provider has no effects, so a call may be repeated after a refusal and after an unknown outcome.
      const answer = await this.#timed(() => this.#repeated(() => this.client.rpc.call(this.rpc, n), CALL_REFUSALS));
      assert.equal(answer, n + 1);
    }
    record.close();
  }

  async #repeated<T>(operation: () => Promise<T>, refusals: string[]): Promise<T> {
    for (;;) {
      try {
        return await operation();
      } catch (error) {
        if (!(error instanceof TidewireError) || !refusals.includes(error.code)) throw error;
        this.repeated.set(error.code, (this.repeated.get(error.code) ?? 0) + 1);
        await pass(10);
      }
    }
  }

  async #timed<T>(operation: () => Promise<T>): Promise<T> {
    const begin = performance.now();
    const result = await operation();
    this.times.push(performance.now() - begin);
    return result;
  }

  /** Ends the app. Fails if one of its operations has failed. */
  async end(): Promise<void> {
    this.#isEnding = true;
    await within(DEADLINE_MS, this.#running, 'the last operation');
  }
}

/** The 99th percentile of the operations since the last call, and their number. */
function percentile(apps: App[]): { ms: number; count: number } {
  const times = apps.flatMap((app) => app.times.splice(0)).sort((a, b) => a - b);
  return { ms: times[Math.floor(times.length * 0.99)] as number, count: times.length };
}

/** haproxy in front of the nodes, without sticky sessions. */
async function balanced(t: TestContext, nodes: Server[]): Promise<string> {
  const servers = nodes.map(({ ownAddress }, index) => `  server n${index} ${ownAddress} check inter ${CHECK_MS}ms fall 1 rise 1`);
  const { address } = await haproxyDuring(t, ['  balance leastconn', '  option httpchk GET /ready', ...servers].join('\n'));
  return address;
}

/** Stops and starts each of three nodes, which begin with the program `older` if there is one. */
async function roll(t: TestContext, setup: Setup, older?: string): Promise<void> {
  const cluster = await Cluster.during(t, setup);
  // The clients share one process. On a busy machine it may need longer than a second to accept a call.
  const options: ServerOptions = { drainDelayMs: DRAIN_DELAY_MS, rpcAcceptTimeoutMs: DEADLINE_MS };
  const nodes = await cluster.nodes(3, { ...options, ...(older !== undefined && { binary: older }) });
  const address = await balanced(t, nodes);
  const prefix = fresh('rolling');
  const refusals = older === undefined ? [] : WRITE_REFUSALS;
  const begun = Array.from({ length: CLIENT_COUNT }, (_, index) => App.through(t, address, [`${prefix}/${index}`, `${prefix}/add`], refusals));
  const apps = await Promise.all(begun);
  for (const app of apps) app.begin();
  await eventually(() => apps.reduce((sum, { times }) => sum + times.length, 0) >= QUIET_COUNT, 'operations before the restart', 60_000);
  const quiet = percentile(apps);
  for (const node of nodes) {
    await node.stop();
    node.setProgram(undefined);
    await node.start();
  }
  const rolling = percentile(apps);
  for (const app of apps) await app.end();
  const repeated = [...CALL_REFUSALS, ...refusals].map((code) => `${apps.reduce((sum, app) => sum + (app.repeated.get(code) ?? 0), 0)} times ${code}`);
  const kind = older === undefined ? 'restart' : 'upgrade';
  t.diagnostic(`rolling ${kind}: p99 ${rolling.ms.toFixed(0)} ms of ${rolling.count} operations, ${quiet.ms.toFixed(0)} ms of ${quiet.count} before; repeated ${repeated.join(', ')}`);
  assert.ok(rolling.ms <= quiet.ms + ADDED_MS_MAX, `p99 ${rolling.ms} ms, ${quiet.ms} ms before`);
  const reader = client(t, address, DELAYS);
  await within(DEADLINE_MS, reader.connect(), 'login');
  for (const { name, written } of apps) assert.deepEqual(await reader.record.get(name), { n: written });
}

test('an upgrade from a commit that the clone does not have fails with a sentence', () => {
  assert.throws(() => olderServer('0'.repeat(40)), /an upgrade needs the commit 0{40}, which this clone does not have; clone the whole history/);
});

for (const setup of FEW_SETUPS.filter(({ broker }) => broker === undefined)) {
  describe(`three nodes with ${setup.name}`, () => {
    test('a rolling restart fails no operation, and adds little to the time of the slowest', (t) => roll(t, setup));
    if (isUpgraded()) {
      test('a rolling upgrade from an earlier commit does the same', (t) => roll(t, setup, olderServer()));
    }
  });
}
