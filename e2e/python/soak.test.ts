// Events and edits of records by the Python client through kills of the server and cut connections: nothing is missing, doubled or out of
// order (`soak.py`). `SOAK_EVENTS`, `SOAK_RECORDS` and `SOAK_KILLS` set the size.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test, type TestContext } from 'node:test';
import { Proxy } from '../harness/proxy.ts';
import { Server } from '../harness/server.ts';
import { Inbox, within } from '../harness/wait.ts';
import { interpreter, newest } from './pythons.ts';

const EVENTS = Number(process.env['SOAK_EVENTS'] ?? 2_000);
const RECORDS = Number(process.env['SOAK_RECORDS'] ?? 40);
const KILLS = Number(process.env['SOAK_KILLS'] ?? 2);
const DEADLINE_MS = 3_600_000;
/** The answers that are discarded before a cut, and the most milliseconds to wait for them. */
const DISCARDED = 5;
const DISCARDED_MS = 500;
const PROGRAM = join(import.meta.dirname, 'soak.py');
/** The newest Python of this machine. */
const PYTHON = newest();

interface Outcome {
  /** Answers that were lost after the server had stored what they confirm. */
  lost: { losses: number; gaps: number; problems: string[] };
  published: { repeated: number; gaps: number; problems: string[] };
  written: { edits: number; unknown: number; problems: string[] };
}

/** The faults that `soak.py` can plant in a client. */
type Fault = 'positions' | 'keys';

interface Size {
  losses: number;
  events: number;
  records: number;
  kills: number;
}

/** Makes the trouble that the program requests. */
async function make(trouble: string, server: Server, proxy: Proxy): Promise<void> {
  switch (trouble) {
    case 'silence':
      proxy.silence('answers');
      return;
    case 'cut':
      proxy.restore();
      return;
    case 'kill':
      await server.kill();
      await server.start();
      proxy.restore();
      return;
    case 'discard':
      return discard(proxy);
    default:
      throw new Error(`unknown trouble: ${trouble}`);
  }
}

/**
 * Discards a few answers, and then cuts all connections: the server has done more than the clients know. Waits for the answers only for a
 * moment, because clients without answers soon send nothing more.
 */
async function discard(proxy: Proxy): Promise<void> {
  const discarded = new Inbox<number>('discarded answers');
  proxy.onAnswer = (bytes) => discarded.push(bytes.length);
  proxy.silence('answers');
  await discarded.count(DISCARDED, DISCARDED_MS).catch(() => undefined);
  proxy.onAnswer = () => {};
  proxy.restore();
}

async function soak(t: TestContext, { losses, events, records, kills }: Size, fault?: Fault): Promise<Outcome> {
  const server = await Server.during(t, { history: ['soak/* count=20000 bytes=8MiB age=1h keep=store'] });
  const proxy = await Proxy.during(t, server);
  const { command, env } = await interpreter(PYTHON);
  const args = [PROGRAM, server.address, proxy.address, ...[losses, events, records, kills].map(String), ...(fault ? [fault] : [])];
  const child = spawn(command, args, { env, stdio: ['pipe', 'pipe', 'inherit'] });
  t.after(() => child.kill('SIGKILL'));
  const exit = new Promise<number | null>((done) => child.once('exit', done));
  const run = async (): Promise<Outcome> => {
    for await (const text of createInterface({ input: child.stdout })) {
      const line = JSON.parse(text) as Outcome | { trouble: string };
      if (!('trouble' in line)) return line;
      await make(line.trouble, server, proxy);
      child.stdin.write('\n');
    }
    throw new Error(`the program of the soak ended with ${await exit}`);
  };
  const outcome = await within(DEADLINE_MS, run(), 'the soak ends');
  assert.equal(await within(DEADLINE_MS, exit, 'the program ends'), 0);
  return outcome;
}

test('events and edits through kills of the server arrive once and in order', { timeout: DEADLINE_MS }, async (t) => {
  const start = performance.now();
  const losses = 2 * KILLS;
  const { lost, published, written } = await soak(t, { losses, events: EVENTS, records: RECORDS, kills: KILLS });
  const seconds = ((performance.now() - start) / 1_000).toFixed(0);
  console.log(
    `soak: ${EVENTS} events arrived once and in order (${published.repeated} were sent again), ${written.edits} edits of ${RECORDS} records were ` +
      `made once (${written.unknown} unknown), through ${KILLS} kills and ${KILLS} cuts; ${losses} lost acknowledgements and events were repeated; ` +
      `${seconds} s on Python ${PYTHON.version}`,
  );
  assert.deepEqual([lost.problems, published.problems, written.problems], [[], [], []]);
  assert.deepEqual([lost.gaps, published.gaps], [0, 0]);
});

for (const [fault, what, expected] of [
  ['positions', 'does not name its position', /events are missing/],
  ['keys', 'repeats writes under new keys', /an update was made 2 times/],
] as const) {
  test(`the soak finds a client that ${what}`, { timeout: 120_000 }, async (t) => {
    const { lost } = await soak(t, { losses: 2, events: 0, records: 0, kills: 0 }, fault);
    assert.equal(lost.problems.filter((problem) => expected.test(problem)).length, 2, lost.problems.join());
  });
}
