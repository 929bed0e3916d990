// Updates of one record by 1, 8 and 64 clients, through kills of the server that lose acknowledgements: in SQLite, PostgreSQL and Redis no
// update is made twice, and none is lost.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { WebSocket } from 'ws';
import { decode, encode } from '../../packages/client/src/codec.ts';
import type { Client, RecordHandle, TidewireError, WebSocketClass } from '../../packages/client/src/index.ts';
import { Database, type DatabaseKind } from '../harness/database.ts';
import { client } from '../harness/driver/tidewire.ts';
import { Proxy } from '../harness/proxy.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, within } from '../harness/wait.ts';

const KILLS = 3;
/** Answers to wait for between two kills. */
const ANSWERS_A_ROUND = 32;
/** The most milliseconds to wait for an update while no client hears of the newest version. */
const REFUSED_MS = 1_000;
const NAME = 'shared/counts';

/** The number of updates that each client has made, by the client's number. */
type Counts = Record<string, number>;

interface App {
  records: { [NAME]: Counts };
}

/** A planted fault: a write that is sent again has a new key. */
class RepeatsUnderNewKeys extends WebSocket {
  readonly #sent: Set<string>;

  constructor(url: string, sent: Set<string>) {
    super(url);
    this.#sent = sent;
  }

  override send(bytes: Uint8Array): void {
    for (const message of decode(bytes)) {
      const { key } = message;
      const isRepeated = key !== undefined && this.#sent.has(key);
      if (key !== undefined) this.#sent.add(key);
      super.send(encode(isRepeated ? { ...message, key: `${key} again`, incarnation: undefined, seenVersion: undefined } : message));
    }
  }
}

/** The socket class of one client with the planted fault. */
function faulty(): WebSocketClass {
  const sent = new Set<string>();
  return class extends RepeatsUnderNewKeys {
    constructor(url: string) {
      super(url, sent);
    }
  };
}

/** A client that updates the record again and again, and counts the answers. */
class Writer {
  acknowledged = 0;
  unknown = 0;
  #isStopped = false;

  private constructor(
    readonly number: string,
    private readonly record: RecordHandle<Counts>,
    private readonly answers: Inbox<string>,
  ) {}

  static async start(of: Client<App>, number: number, answers: Inbox<string>): Promise<Writer> {
    await within(DEADLINE_MS, of.connect(), 'login');
    const record = of.record.open(NAME);
    await within(DEADLINE_MS, record.ready, 'the record');
    return new Writer(String(number), record, answers);
  }

  async run(): Promise<void> {
    while (!this.#isStopped) {
      try {
        await this.record.update((counts) => ({ ...counts, [this.number]: (counts[this.number] ?? 0) + 1 }));
        this.acknowledged += 1;
        this.answers.push('acknowledged');
      } catch (error) {
        assert.equal((error as TidewireError).code, 'WRITE_UNKNOWN');
        this.unknown += 1;
        this.answers.push('unknown');
      }
    }
  }

  stop(): void {
    this.#isStopped = true;
  }

  /** Whether the record has more or fewer updates of this client than the server's answers allow. */
  fault(made: number): string | undefined {
    if (made < this.acknowledged) return `${made} of ${this.acknowledged} acknowledged updates were made`;
    if (made > this.acknowledged + this.unknown) return `${made} updates were made, ${this.acknowledged} acknowledged and ${this.unknown} unknown`;
    return undefined;
  }
}

/** Discards the server's answers until it has made an update without an answer. */
async function loseAnswer(proxy: Proxy, seen: RecordHandle<Counts>, answers: Inbox<string>): Promise<void> {
  for (;;) {
    const { version } = seen;
    const versions = new Inbox<number>('versions');
    const stop = seen.subscribe(() => versions.push(seen.version));
    proxy.silence('answers');
    const isMade = await versions.find((made) => made > version, REFUSED_MS).then(() => true, () => false);
    stop();
    if (isMade) return;
    // All updates on their way were of an older version. Their clients learn that only after a new connection.
    const answered = answers.seen.length;
    proxy.restore();
    await answers.count(answered + 1);
  }
}

/** Runs the writers through the kills, and returns the differences between answers and record. */
async function faults(t: TestContext, store: Record<string, unknown>, writerCount: number, webSocket?: () => WebSocketClass): Promise<string[]> {
  const server = await Server.during(t, { store });
  const proxy = await Proxy.during(t, server);
  const witness = client<App>(t, server.address);
  await within(DEADLINE_MS, witness.connect(), 'login');
  const seen = witness.record.open(NAME);
  await within(DEADLINE_MS, seen.ready, 'the record');
  const answers = new Inbox<string>('answers to updates');
  const started = Array.from({ length: writerCount }, (_, i) => Writer.start(client<App>(t, proxy.address, webSocket && { webSocket: webSocket() }), i, answers));
  const writers = await Promise.all(started);
  const runs = Promise.all(writers.map((writer) => writer.run()));
  for (let kill = 1; kill <= KILLS; kill += 1) {
    await answers.count(kill * ANSWERS_A_ROUND);
    await loseAnswer(proxy, seen, answers);
    // This later write is durable only together with the update whose answer was lost.
    await seen.setWithAck(['witness'], kill);
    await server.kill();
    await server.start();
    proxy.restore();
  }
  await answers.count((KILLS + 1) * ANSWERS_A_ROUND);
  // The writes that were on their way at a kill are repeated, and each is answered before its writer ends.
  writers.forEach((writer) => writer.stop());
  await within(6 * DEADLINE_MS, runs, 'the last answers');
  const counts = await within(DEADLINE_MS, witness.record.get(NAME), 'the record is read');
  assert.equal(counts?.['witness'], KILLS);
  const total = (key: 'acknowledged' | 'unknown'): number => writers.reduce((sum, writer) => sum + writer[key], 0);
  t.diagnostic(`${writerCount} writers: ${total('acknowledged')} updates acknowledged, ${total('unknown')} unknown, ${KILLS} kills`);
  return writers.flatMap((writer) => writer.fault(counts?.[writer.number] ?? 0) ?? []);
}

const STORES: Array<[name: string, kind?: DatabaseKind, path?: string]> = [['sqlite'], ['postgres', 'postgres', '/postgres'], ['redis', 'redis', '/0']];

for (const [name, kind, path] of STORES) {
  describe(`repeated writes in ${name}`, { timeout: 300_000 }, () => {
    async function store(t: TestContext): Promise<Record<string, unknown>> {
      if (kind === undefined) return {};
      const database = await Database.during(t, kind);
      return { kind: name, [name]: { url: database.url + path } };
    }

    for (const writerCount of [1, 8, 64]) {
      test(`are made once, with ${writerCount} writers`, async (t) => {
        assert.deepEqual(await faults(t, await store(t), writerCount), []);
      });
    }

    test('of a client that repeats them under new keys are found', async (t) => {
      const found = await faults(t, await store(t), 1, faulty);
      assert.equal(found.length, 1);
      assert.match(found[0] as string, /updates were made/);
    });
  });
}
