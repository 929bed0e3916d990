// The outcomes of attacks: stored in `target/attacks`, so that an interrupted proof can continue, and summed up at the end.

import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { binary } from '../harness/server.ts';
import { SECONDS, type Attack } from './attack.ts';

export interface Felt {
  /** The duration of the attack, which is longer than `SECONDS` on a busy machine. */
  seconds: number;
  /** Worst p99 of a pair before and during the attack, in milliseconds. `calm` is measured only with the limit. */
  calm: number;
  attacked: number;
  /** The largest growth of the server's memory, in bytes. */
  growth: number;
  logLines: number;
  /** The growth of the metric that reports the attack. */
  counted: number;
  harm: number;
}

const FOLDER = resolve(import.meta.dirname, '../../target/attacks');
/** If set, an attack is not repeated if it passed earlier with the same program and duration. */
const resumes = process.env['ATTACK_RESUME'] !== undefined;
const held: Felt[] = [];
let [seenCount, earlierCount] = [0, 0];

/** The outcome of a run that passed: of this run or, with `ATTACK_RESUME`, of an earlier one. */
export async function felt(attack: Attack, isHeld: boolean, suffer: () => Promise<Felt>): Promise<Felt> {
  const name = `${SECONDS}s-${attack.name.replace(/\W+/g, '-')}-${isHeld ? 'held' : 'off'}.json`;
  const path = resolve(FOLDER, name);
  const isEarlier = resumes && existsSync(path) && statSync(path).mtimeMs > statSync(binary()).mtimeMs;
  const outcome = isEarlier ? (JSON.parse(readFileSync(path, 'utf8')) as Felt) : await suffer();
  if (isEarlier) earlierCount += 1;
  if (isHeld) held.push(outcome);
  else seenCount += 1;
  mkdirSync(dirname(path), { recursive: true });
  if (!isEarlier) writeFileSync(path, JSON.stringify(outcome));
  return outcome;
}

export function shown({ calm, attacked, growth, logLines, counted, harm }: Felt): string {
  const megabytes = (growth / 1e6).toFixed(1);
  const p99 = `p99 ${calm.toFixed(1)} -> ${attacked.toFixed(1)} ms`;
  return `harm ${Math.round(harm)}, counted ${counted}, ${p99}, memory +${megabytes} MB, log +${logLines} lines`;
}

/** The worst numbers of all attacks with their limits. */
export function summary(): string {
  const most = (number: (felt: Felt) => number): number => held.reduce((most, felt) => Math.max(most, number(felt)), 0);
  const pairs = `control pairs: p99 at most ${most(({ attacked }) => attacked).toFixed(1)} ms, alone ${most(({ calm }) => calm).toFixed(1)} ms`;
  const memory = `memory +${(most(({ growth }) => growth) / 1e6).toFixed(1)} MB`;
  const counts = `attacks: ${held.length} held for ${SECONDS} s, harm seen in ${seenCount} without a limit, ${earlierCount} of an earlier run`;
  return `${counts}; ${pairs}, ${memory}, log +${most(({ logLines }) => logLines)} lines at most`;
}
