// `make proof-torture-nodes` and its like: hundreds of faults of three nodes, in runs of 50 with recorded seeds. A run that passed counts in
// a later proof with the same program, so an interrupted proof continues. TORTURE_LINK is the broker of the links, TORTURE_FAULTS the
// number of faults.

import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { test } from 'node:test';
import { Database, type DatabaseKind } from '../harness/database.ts';
import { binary } from '../harness/server.ts';
import { figure, restartCommand, torture } from './torture.ts';

const LINK = process.env['TORTURE_LINK'] as DatabaseKind | undefined;
const FAULTS = Number(process.env['TORTURE_FAULTS'] ?? 500);
const CHUNK = Math.min(50, FAULTS);
/** No run begins after this time, so that the proof ends within its hour. */
const LAST_START_MS = 50 * 60_000;
const STATE = resolve(import.meta.dirname, `../../target/torture/nodes-${LINK ?? 'direct'}-${CHUNK}.json`);
const SUMS = ['faults', 'rejoins', 'acked writes', 'acked replacements', 'repeated writes', 'unknown outcomes', 'reads', 'delivered events', 'reported gaps'];

/** A run that passed. */
interface Chunk {
  seed: number;
  sums: Record<string, number>;
  /** Seconds until all names were writable after kills and after silence. */
  median: [number, number];
  most: [number, number];
}

/** The runs that passed with the same program. */
function earlier(): Chunk[] {
  const isCurrent = existsSync(STATE) && statSync(STATE).mtimeMs > statSync(binary()).mtimeMs;
  return isCurrent ? (JSON.parse(readFileSync(STATE, 'utf8')) as Chunk[]) : [];
}

function seconds(text: string, after: string): [median: number, most: number] {
  const found = new RegExp(`^all names writable after ${after}: median ([\\d.]+) s, maximum ([\\d.]+) s`, 'm').exec(text);
  assert.ok(found, text);
  return [Number(found[1]), Number(found[2])];
}

test(`${FAULTS} faults pass on three nodes, linked ${LINK === undefined ? 'directly' : `over ${LINK}`}`, async (t) => {
  const [database, broker] = await Promise.all([Database.during(t, 'postgres'), LINK && Database.during(t, LINK)]);
  const restarts = ['--restart-store', await restartCommand(t, database)];
  if (broker !== undefined) restarts.push('--link', broker.url, '--restart-link', await restartCommand(t, broker));
  const chunks = earlier();
  const start = performance.now();
  for (let seed = 1; chunks.length * CHUNK < FAULTS; seed += 1) {
    if (chunks.some((chunk) => chunk.seed === seed)) continue;
    assert.ok(performance.now() - start < LAST_START_MS, `${chunks.length * CHUNK} of ${FAULTS} faults passed; run the proof again to continue`);
    const store = `${database.url}/${database.newDatabase(`seed_${seed}`)}`;
    const { code, text } = await torture(t, ['--nodes', '3', '--store', store, '--faults', String(CHUNK), '--seed', String(seed), ...restarts]);
    assert.equal(code, 0, text);
    const [kill, silence] = [seconds(text, 'a kill'), seconds(text, 'silence')];
    const sums = Object.fromEntries(SUMS.map((name) => [name, figure(text, name)]));
    chunks.push({ seed, sums, median: [kill[0], silence[0]], most: [kill[1], silence[1]] });
    mkdirSync(dirname(STATE), { recursive: true });
    writeFileSync(STATE, JSON.stringify(chunks));
  }
  const sum = (name: string): number => chunks.reduce((all, chunk) => all + (chunk.sums[name] ?? 0), 0);
  const middle = (index: 0 | 1): number => chunks.map(({ median }) => median[index]).sort((a, b) => a - b)[chunks.length >> 1] as number;
  const most = (index: 0 | 1): number => Math.max(...chunks.map((chunk) => chunk.most[index]));
  const writable = ([0, 1] as const).map((index) => `median ${middle(index).toFixed(2)} s, maximum ${most(index).toFixed(2)} s`);
  console.log(`nodes: ${SUMS.map((name) => `${sum(name)} ${name}`).join(', ')}, seeds ${chunks.map(({ seed }) => seed).join(' ')}`);
  console.log(`writable again: after a kill ${writable[0]}, after silence ${writable[1]}`);
});
