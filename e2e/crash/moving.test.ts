// Many records are imported, backed up while a server runs, restored and exported with little memory, and are unchanged afterwards. The
// small form runs with all tests; `MILLION_RECORDS=1000000` is the proof.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createReadStream, createWriteStream, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import { close } from '../harness/client.ts';
import { Server } from '../harness/server.ts';
import { loggedIn } from './writers.ts';

const RECORD_COUNT = Number(process.env['MILLION_RECORDS'] ?? 20_000);
const RECORD_BYTES = 1_000;
/** The memory limit of each command, independent of the number of records, which are 1 GB in the proof. */
const MEMORY_BYTES_MAX = 96 * 1_000_000;
/** The lowest speed of a busy machine, for deadlines only. */
const RECORDS_PER_SECOND_MIN = 2_000;
const COMMANDS = 6;

const timeout = 60_000 + (COMMANDS * RECORD_COUNT * 1_000) / RECORDS_PER_SECOND_MIN;

test(`${RECORD_COUNT} records of 1 KB are moved with little memory`, { timeout }, async (t) => {
  const server = await Server.during(t);
  await server.stop();
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-moving-'));
  atEnd(t, () => rmSync(folder, { recursive: true, force: true }));
  const at = (name: string): string => join(folder, name);
  const store = async (...args: string[]): Promise<string> => {
    const start = performance.now();
    const { text, memoryBytes } = await run(server.binary, ['store', ...args]);
    const seconds = ((performance.now() - start) / 1_000).toFixed(1);
    t.diagnostic(`${args[0]} of ${RECORD_COUNT} took ${seconds} s and ${(memoryBytes / 1e6).toFixed(0)} MB`);
    assert.ok(memoryBytes < MEMORY_BYTES_MAX, `${args[0]} held ${memoryBytes} bytes`);
    return text;
  };

  await writeExport(at('made.jsonl'));
  const added = `${RECORD_COUNT} records added, 0 replaced, 0 there already, 0 kept`;
  assert.ok((await store('import', at('made.jsonl'), '--data', server.dataFolder)).startsWith(added));

  await server.start();
  const client = await loggedIn(server.address);
  const backup = store('backup', at('backup'), '--data', server.dataFolder);
  // The server keeps writing during the backup, so its current write may be in the backup or not.
  let writes = 0;
  let isOver = false;
  const end = backup.finally(() => (isOver = true));
  while (!isOver) {
    await client.record.setDataWithAck('meanwhile', { writes: (writes += 1) });
  }
  assert.match(await end, /^backed up .* while the server runs/);
  t.diagnostic(`${writes} writes were acknowledged during the backup`);
  assert.ok(writes > 0);
  close(client);

  await store('restore', at('backup'), '--data', at('restored'));
  await store('export', at('exported.jsonl'), '--data', at('restored'));
  await compare(at('exported.jsonl'));
  await store('import', at('exported.jsonl'), '--data', at('imported'));
  const again = await store('import', at('exported.jsonl'), '--data', at('imported'));
  const counts = [...again.matchAll(/\d+(?= (records added|replaced|there already|kept))/g)].map(([count]) => Number(count));
  // The backup may contain one additional record, which was written at the same time.
  assert.ok([0, 1].includes((counts[2] ?? 0) - RECORD_COUNT), again);
  assert.deepEqual([counts[0], counts[1], counts[3]], [0, 0, 0], again);
});

/** Runs a command to its end; returns its output and its peak memory. */
async function run(program: string, args: string[]): Promise<{ text: string; memoryBytes: number }> {
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let text = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (part: Buffer) => (text += part.toString()));
  let memoryBytes = 0;
  const look = (): void => {
    try {
      const found = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'));
      memoryBytes = Math.max(memoryBytes, Number(found?.[1] ?? 0) * 1_024);
    } catch {
      // The process has ended.
    }
  };
  const timer = setInterval(look, 5);
  const [code] = await once(child, 'close');
  clearInterval(timer);
  assert.equal(code, 0, `${args.join(' ')}\n${text}`);
  assert.ok(memoryBytes > 0, 'the memory was never seen');
  return { text, memoryBytes };
}

function value(i: number): { n: number; filling: string } {
  return { n: i, filling: 'x'.repeat(RECORD_BYTES) };
}

async function writeExport(path: string): Promise<void> {
  const out = createWriteStream(path);
  const put = async (line: object): Promise<void> => {
    if (!out.write(`${JSON.stringify(line)}\n`)) await once(out, 'drain');
  };
  await put({ tidewire_export: 1 });
  for (let i = 0; i < RECORD_COUNT; i += 1) await put({ name: `million/${i}`, version: (i % 9) + 1, data: value(i) });
  await put({ end: RECORD_COUNT });
  out.end();
  await once(out, 'close');
}

/** Checks that an export contains every record exactly once and unchanged. */
async function compare(path: string): Promise<void> {
  const seen = new Uint8Array(RECORD_COUNT);
  let last = '';
  for await (const text of createInterface({ input: createReadStream(path) })) {
    const line = JSON.parse(text) as { name?: string; version?: number; data?: unknown };
    if (line.name?.startsWith('million/') !== true) continue;
    const i = Number(line.name.slice('million/'.length));
    assert.ok(line.name > last, `${line.name} comes after ${last}`);
    last = line.name;
    assert.equal(line.version, (i % 9) + 1, line.name);
    assert.equal(JSON.stringify(line.data), JSON.stringify(value(i)), line.name);
    seen[i] = 1;
  }
  assert.equal(seen.indexOf(0), -1, 'a record is missing');
}
