// One measurement before, during and after an attack: the server runs on the first core, bystanders and attackers on the last.

import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, statfsSync } from 'node:fs';
import { cpus } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { Server, type ServerOptions } from '../../harness/server.ts';
import { DEADLINE_MS, within } from '../../harness/wait.ts';
import { ACCOUNTS, users } from './account.ts';
import type { Shape, WorkAttack } from './attack.ts';
import type { Bytes } from './baseline.ts';
import type { AttackReport, BystanderReport } from './report.ts';

const HERE = import.meta.dirname;
const REPOSITORY = resolve(HERE, '../../..');
const LOOK_INTERVAL_MS = 20;
/** The test kills a server that uses more bytes, so that the machine stays usable. */
const MEMORY_ENDED = 6e9;
/** The server must release its memory within this time after the attackers have left. */
const RECOVERY_MS = 10_000;
/** How far above the idle level memory may stay. */
export const KEPT_BYTES_MAX = 20e6;
/** Preparing an attack takes a while: it builds bursts, and a thousand users log in. */
const PREPARE_MS = 60_000;
const FINISH_MS = 60_000;

export interface Times {
  calmMs: number;
  attackMs: number;
  aloneMs: number;
}

export interface Measured {
  bystanders: BystanderReport;
  attack: AttackReport;
  /** The same attack without bystanders; absent if it was not measured. */
  alone?: AttackReport;
  /** Resident bytes of the server: before the attack, at most, and after its recovery or the time for it. */
  idleBytes: number;
  mostBytes: number;
  keptBytes: number;
  /** Why the server did not survive the attack. */
  ended?: string;
}

/** The folder of the servers' data: in memory if there is room, because on a busy disk each commit is slow, whatever the server does. */
const DATA_FOLDER = process.env['WORK_DATA'] ?? (hasRoom('/dev/shm') ? '/dev/shm' : undefined);

function hasRoom(folder: string): boolean {
  if (!existsSync(folder)) return false;
  const { bavail, bsize } = statfsSync(folder);
  return bavail * bsize > 1e9;
}

/** The server runs on the first core, all other processes on the last one. */
const CORES = { server: '0', others: String(cpus().length - 1) };
// This process too: on the server's core, its compiler and garbage collector would delay the server by milliseconds.
spawnSync('taskset', ['--all-tasks', '--pid', '--cpu-list', CORES.others, String(process.pid)]);

/**
 * Starts a program on a core, with precedence over other processes as far as this process may set it. Linux groups processes by session
 * and weighs the groups (`sched_autogroup`), so the program gets its own session with a weight.
 */
function onCore(core: string, groupNice: number): string[] {
  return ['setsid', 'taskset', '-c', core, 'sh', '-c', `{ echo ${groupNice} > /proc/$$/autogroup; } 2>/dev/null; exec "$@"`, 'sh'];
}

const mayPreempt = spawnSync('chrt', ['-f', '10', 'true']).status === 0;
const onServerCore = onCore(CORES.server, -20);
/**
 * Bystanders preempt the attacker on their core, because their latencies must show the server's delays, not the generator's. With several
 * garbage collection threads, a real-time thread would wait for them forever.
 */
const asBystander = [...onCore(CORES.others, -20), ...(mayPreempt ? ['chrt', '-f', '10'] : []), process.execPath, '--single-threaded-gc'];
const asAttacker = [...onCore(CORES.others, -15), process.execPath];

/** Runs an attack against a separate server. */
export async function measure(attack: WorkAttack, shape: Shape, options: ServerOptions, times: Times): Promise<Measured> {
  const dataFolder = DATA_FOLDER === undefined ? {} : { dataFolder: mkdtempSync(join(DATA_FOLDER, 'tidewire-work-')) };
  const server = await Server.start({ shards: 1, users: users(), launcher: onServerCore, ...dataFolder, ...options });
  const children: ChildProcess[] = [];
  try {
    await attack.seed?.(server.address);
    return await attacked(attack.name, shape, server, times, children);
  } finally {
    children.forEach((child) => child.kill('SIGKILL'));
    // A server that did not stop in time has shown the harm; that does not fail this test.
    if (server.isRunning) await server.kill();
    await server.dispose();
    rmSync(server.dataFolder, { recursive: true, force: true });
  }
}

/** The properties of a server that the test needs; the null server has them, too. */
interface Target {
  address: string;
  pid: number;
  isRunning: boolean;
  kill: () => Promise<void>;
}

async function attacked(name: string, shape: Shape, target: Target, times: Times, children: ChildProcess[], stores = 'stores'): Promise<Measured> {
  const bystanders = start(asBystander, 'bystanders.ts', [target.address, JSON.stringify(ACCOUNTS), stores], children);
  await heard(bystanders, 'the bystanders begin', PREPARE_MS);
  const attacker = start(asAttacker, 'attacker.ts', [name, shape.name, target.address], children);
  await heard(attacker, 'the attackers are ready', PREPARE_MS);
  bystanders.send('calm');
  await pause(times.calmMs);
  const idleBytes = memoryBytes(target);
  const memory = { most: idleBytes, ended: undefined as string | undefined };
  const looking = setInterval(() => {
    if (!target.isRunning) memory.ended ??= 'the server ended by itself';
    else memory.most = Math.max(memory.most, memoryBytes(target));
    if (memory.most > MEMORY_ENDED && memory.ended === undefined) {
      memory.ended = `more than ${MEMORY_ENDED / 1e9} GB`;
      void target.kill();
    }
  }, LOOK_INTERVAL_MS);

  bystanders.send('attack');
  attacker.send('go');
  await pause(times.attackMs);
  const attack = await stop<AttackReport>(attacker, 'stop', 'the attackers stop');
  bystanders.send('after');
  let keptBytes = memoryBytes(target);
  const deadline = performance.now() + RECOVERY_MS;
  // The bystanders keep sending, because a server that releases memory may delay them as well.
  await pause(500);
  while (target.isRunning && (keptBytes = memoryBytes(target)) > idleBytes + KEPT_BYTES_MAX && performance.now() < deadline) await pause(LOOK_INTERVAL_MS);
  const report = await stop<BystanderReport>(bystanders, 'finish', 'the bystanders finish');
  clearInterval(looking);
  let alone: AttackReport | undefined;
  if (times.aloneMs > 0 && memory.ended === undefined) {
    const again = start(asAttacker, 'attacker.ts', [name, shape.name, target.address], children);
    await heard(again, 'the attackers are ready again', PREPARE_MS);
    again.send('go');
    await pause(times.aloneMs);
    alone = await stop<AttackReport>(again, 'stop', 'the attackers stop again');
  }
  const ended = memory.ended === undefined ? {} : { ended: memory.ended };
  return { bystanders: report, attack, ...(alone && { alone }), idleBytes, mostBytes: memory.most, keptBytes, ...ended };
}

/** Measures the bystanders while the same bytes go to and from a null server, whose arguments may plant faults. */
export async function measureNull(bytes: Bytes, shape: Shape, times: Times, faults: string[] = []): Promise<BystanderReport> {
  const program = resolve(REPOSITORY, 'target/release/tidewire-bench');
  if (!existsSync(program)) throw new Error(`no null server at ${program}; build it: cargo build --release --package tidewire-bench`);
  const [first, ...rest] = [...onServerCore, program, 'null', '--rooms', ...faults];
  const child = spawn(first as string, rest, { stdio: ['ignore', 'pipe', 'inherit'] });
  const children: ChildProcess[] = [child];
  try {
    const line = await within(DEADLINE_MS, new Promise<string>((done) => child.stdout.once('data', (text: Buffer) => done(text.toString()))), 'the null server starts');
    const address = /ws:\/\/(\S+),/.exec(line)?.[1];
    if (address === undefined) throw new Error(`the null server printed ${line}`);
    const target = {
      address,
      pid: child.pid as number,
      get isRunning() {
        return child.exitCode === null && child.signalCode === null;
      },
      kill: async () => void child.kill('SIGKILL'),
    };
    const { attack, bystanders } = await attacked(JSON.stringify(bytes), shape, target, { ...times, aloneMs: 0 }, children, 'stores nothing');
    if (attack.operations === 0) throw new Error('the null server has answered nothing');
    return bystanders;
  } finally {
    children.forEach((child) => child.kill('SIGKILL'));
  }
}

function start(launcher: string[], file: string, args: string[], children: ChildProcess[]): ChildProcess {
  const [program, ...rest] = [...launcher, '--import', 'tsx', resolve(HERE, file), ...args];
  const child = spawn(program as string, rest, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  children.push(child);
  return child;
}

/** The next message of a process; fails if the process ends first. */
function heard<T>(child: ChildProcess, what: string, ms: number): Promise<T> {
  const message = new Promise<T>((done, fail) => {
    child.once('message', (value) => done(value as T));
    // Not 'exit', which can come before the last message.
    child.once('disconnect', () => fail(new Error(`the process ended with ${child.exitCode ?? child.signalCode ?? 'no report'}: ${what}`)));
  });
  return within(ms, message, what);
}

function stop<T>(child: ChildProcess, order: string, what: string): Promise<T> {
  const report = heard<T>(child, what, FINISH_MS);
  child.send(order);
  return report;
}

/** Resident bytes of the server; 0 if it has ended. */
function memoryBytes({ pid, isRunning }: Target): number {
  if (!isRunning) return 0;
  try {
    return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) * 1_024;
  } catch {
    return 0;
  }
}
