// Compares two builds of the server: the bench drives both in alternating turns, so that the load of the machine falls on both alike.
// `npm --prefix e2e run compare -- OLD NEW [TURNS] [PATTERN]` prints the medians of each figure and their ratio, and fails if the new
// program is worse than RATIO_MIN of the old one. PATTERN selects runs by the arguments of the bench, for example `publishers 1 `. Build the bench first: `cargo build --release --package tidewire-bench`.

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { run } from '../harness/program.ts';

const REPOSITORY = resolve(import.meta.dirname, '../..');
const BENCH = join(REPOSITORY, 'target/release/tidewire-bench');
const RATIO_MIN = Number(process.env['RATIO_MIN'] ?? '0.98');
const TURN_SECONDS_MAX = 300;

/** A run of the bench. */
interface Workload {
  args: string[];
  /** The figures that are compared. Each is better if it is larger, except those of `SMALLER_IS_BETTER`. */
  figures: string[];
}

const grid = (subscribers: number, publishers: number, rounds: number): Workload => ({
  args: ['grid', '--subscribers', String(subscribers), '--publishers', String(publishers), '--rounds', String(rounds)],
  figures: ['deliveries_per_server_cpu_second'],
});

// Each grid uses about a second of the server's time: in shorter runs the ratio of two equal programs differs by a tenth.
const WORKLOADS: Workload[] = [
  grid(10, 1, 20_000),
  grid(100, 10, 2_000),
  grid(1_000, 500, 30),
  grid(10_000, 1_000, 12),
  { args: ['records', '--patches', '200000', '--acks', '200000'], figures: ['deliveries_per_server_cpu_second', 'acks_per_server_cpu_second'] },
  { args: ['rpc'], figures: ['requests_per_server_cpu_second'] },
  { args: ['pairs'], figures: ['server_us_per_message'] },
  { args: ['idle', '--connections', '10000', '--seconds', '2', '--churn', '0'], figures: ['connection_bytes'] },
  { args: ['idle', '--connections', '10000', '--seconds', '2', '--churn', '0', '--one-user'], figures: ['connection_bytes'] },
  { args: ['idle', '--connections', '10000', '--seconds', '2', '--churn', '100000'], figures: ['connection_bytes_after_churn'] },
];
const SMALLER_IS_BETTER = new Set(['connection_bytes', 'connection_bytes_after_churn', 'server_us_per_message']);

interface Cell {
  cell: string;
  status: string;
  figures: Record<string, number>;
}

/** The figures of one run against `program`, by name. A run may have several cells with the same figures. */
function measure(program: string, { args, figures }: Workload): Map<string, number> {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-compare-'));
  try {
    const file = join(folder, 'results.json');
    run(BENCH, [...args, '--server-bin', resolve(program), '--json', file], { timeoutMs: TURN_SECONDS_MAX * 1_000 });
    const { cells } = JSON.parse(readFileSync(file, 'utf8')) as { cells: Cell[] };
    const found = new Map<string, number>();
    for (const { cell, status, figures: measured } of cells) {
      if (status !== 'complete') throw new Error(`${args.join(' ')}: the cell ${cell} of ${program} is ${status}`);
      for (const name of figures) {
        if (measured[name] !== undefined) found.set(`${args[0]} ${cell}: ${name}`, measured[name]);
      }
    }
    if (found.size === 0) throw new Error(`${args.join(' ')} has none of ${figures.join(', ')}: it has ${cells.flatMap(({ figures }) => Object.keys(figures)).join(', ')}`);
    return found;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function median(values: number[]): number {
  const sorted = values.toSorted((one, other) => one - other);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 === 1 ? (sorted[middle] as number) : ((sorted[middle - 1] as number) + (sorted[middle] as number)) / 2;
}

const [old, current, turns = '7', pattern = ''] = process.argv.slice(2);
if (old === undefined || current === undefined) throw new Error('usage: compare OLD NEW [TURNS] [PATTERN]');
const workloads = WORKLOADS.filter(({ args }) => new RegExp(pattern).test(args.join(' ')));
if (workloads.length === 0) throw new Error(`no run matches ${pattern}`);
const worse: string[] = [];
for (const workload of workloads) {
  const samples = new Map<string, [number[], number[]]>();
  for (let turn = 0; turn < Number(turns); turn += 1) {
    // The program that begins changes, because the first run of a turn may find the machine in another state.
    const programs = turn % 2 === 0 ? [old, current] : [current, old];
    for (const program of programs) {
      for (const [name, value] of measure(program, workload)) {
        const [olds, news] = samples.get(name) ?? samples.set(name, [[], []]).get(name)!;
        (program === old ? olds : news).push(value);
      }
    }
  }
  for (const [name, [olds, news]] of samples) {
    const [before, after] = [median(olds), median(news)];
    const isSmallerBetter = SMALLER_IS_BETTER.has(name.split(': ')[1] as string);
    const ratio = isSmallerBetter ? before / after : after / before;
    console.log(`${name}: ${before.toFixed(0)} before, ${after.toFixed(0)} now, ratio ${ratio.toFixed(3)} over ${olds.length} turns`);
    if (ratio < RATIO_MIN) worse.push(`${name} (${ratio.toFixed(3)})`);
  }
}
console.log(worse.length === 0 ? `all ratios are at least ${RATIO_MIN}` : `below ${RATIO_MIN}: ${worse.join(', ')}`);
process.exitCode = worse.length === 0 ? 0 : 1;
