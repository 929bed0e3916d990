// The allowed effect of an attack on bystanders and memory, and how outcomes are printed and stored.

import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { binary } from '../../harness/server.ts';
import { KEPT_BYTES_MAX, type Measured } from './measure.ts';
import type { AttackReport, BystanderReport, Phase } from './report.ts';

/** The bystanders' p99 is at most this, or five times its value next to a null server that moves the same bytes. */
export const P99_MS_MAX = 20;
const NULL_FACTOR = 5;
/** Resident memory stays below 1.25 times the budget plus this. */
const MEMORY_SLACK_BYTES = 64 * (1 << 20);
/** The attackers complete at least this share of the work that they complete without bystanders. */
const SHARE_MIN = 0.2;

export interface Outcome extends Measured {
  /** The worse p99 of events and writes next to the null server, if the decision needed it. */
  nullP99Ms?: number;
  /** The attackers with a memory budget that ends none of their sessions, if the decision needed it. */
  roomy?: Attackers;
}

/** The work of the attackers, with bystanders and alone. */
export type Attackers = Pick<Measured, 'attack' | 'alone'>;

/** The worse p99 of events and writes in a phase. */
export function p99(report: BystanderReport, phase: Phase): number {
  return Math.max(report[phase]?.event.p99 ?? Infinity, report[phase]?.write.p99 ?? Infinity);
}

/** Bytes touched per second. */
export function rate({ touchedBytes, seconds }: AttackReport): number {
  return seconds > 0 ? touchedBytes / seconds : 0;
}

/** The share of the work that the attackers complete alone. Attackers that complete nothing alone lose nothing. */
export function shareOf({ attack, alone }: Attackers): number {
  return alone === undefined || rate(alone) === 0 ? 1 : rate(attack) / rate(alone);
}

/** Whether the memory budget ended sessions of the attackers, so that what they complete depends on the moment. */
export function isShareUncertain({ attack, alone }: Attackers): boolean {
  return hasSmallShare({ attack, alone }) && attack.closed > 0;
}

/** The most resident bytes that the server may use with this budget. */
export function memoryBound(budgetBytes: number): number {
  return 1.25 * budgetBytes + MEMORY_SLACK_BYTES;
}

/** The upper bound of the p99, in milliseconds. */
function latencyBound(nullP99Ms: number, slackMs: number): number {
  return Math.max(P99_MS_MAX + slackMs, NULL_FACTOR * nullP99Ms);
}

/** The faults of an outcome; empty if it is within all bounds. */
export function faults(outcome: Outcome, budgetBytes: number, slackMs: number): string[] {
  const { bystanders, mostBytes, idleBytes, keptBytes, ended, nullP99Ms = 0 } = outcome;
  const found: string[] = [];
  const fault = (isFault: boolean, text: string): void => void (isFault && found.push(text));
  const bound = latencyBound(nullP99Ms, slackMs);
  fault(ended !== undefined, `the server was ended: ${ended}`);
  fault(isLate(outcome, slackMs), `the bystanders' p99 is ${p99(bystanders, 'attack').toFixed(1)} ms, more than ${bound.toFixed(1)} ms`);
  fault(bystanders.lost > 0, `${bystanders.lost} events or writes were lost`);
  fault(bystanders.doubled > 0, `${bystanders.doubled} events or writes arrived twice, or a record does not contain each write exactly once`);
  fault(bystanders.refused > 0, `the bystanders received ${bystanders.refused} errors`);
  fault(bystanders.disconnected > 0, `${bystanders.disconnected} bystanders were disconnected`);
  fault(mostBytes > memoryBound(budgetBytes), `the server took ${megabytes(mostBytes)} MB, more than ${megabytes(memoryBound(budgetBytes))} MB`);
  fault(keptBytes > idleBytes + KEPT_BYTES_MAX, `the server kept ${megabytes(keptBytes)} MB, ${megabytes(idleBytes)} MB before the attack`);
  fault(hasSmallShare(outcome.roomy ?? outcome), `the attackers completed ${(100 * shareOf(outcome.roomy ?? outcome)).toFixed(0)} % of what they complete alone`);
  return found;
}

/** Whether all faults of an outcome are a latency or a share, which other programs on the machine can cause. */
export function isOnlySlow(outcome: Outcome, budgetBytes: number, slackMs: number): boolean {
  const slow = Number(isLate(outcome, slackMs)) + Number(hasSmallShare(outcome.roomy ?? outcome));
  return slow > 0 && faults(outcome, budgetBytes, slackMs).length === slow;
}

function hasSmallShare(attackers: Attackers): boolean {
  return shareOf(attackers) < SHARE_MIN;
}

/** Whether the latency of the bystanders is above its bound, which is the lowest one if the null server was not measured. */
export function isLate({ bystanders, nullP99Ms = 0 }: Outcome, slackMs: number): boolean {
  return p99(bystanders, 'attack') > latencyBound(nullP99Ms, slackMs);
}

/** An outcome in one line. */
export function shown({ bystanders, attack, alone, idleBytes, mostBytes, keptBytes, nullP99Ms, ended, roomy }: Outcome): string {
  const times = (phase: Phase): string => {
    const each = (['event', 'write'] as const).map((kind) => {
      const { p50, p99, max } = bystanders[phase]?.[kind] ?? { p50: NaN, p99: NaN, max: NaN };
      return `${kind}s ${p50.toFixed(1)}/${p99.toFixed(1)}/${max.toFixed(0)}`;
    });
    return each.join(' ');
  };
  const part = (attackers: Attackers): string => (attackers.alone === undefined ? '' : `, ${(100 * shareOf(attackers)).toFixed(0)} % of ${megabytes(rate(attackers.alone))} MB/s alone`);
  const share = `${part({ attack, alone })}${roomy === undefined ? '' : ` (without ended sessions${part(roomy)})`}`;
  return [
    `p50/p99/max ms ${times('attack')} (calm ${times('calm')}; after ${times('after')}${nullP99Ms === undefined ? '' : `; null p99 ${nullP99Ms.toFixed(1)}`})`,
    `lost ${bystanders.lost}, doubled ${bystanders.doubled}, refused ${bystanders.refused}, disconnected ${bystanders.disconnected}`,
    `memory ${megabytes(idleBytes)} -> ${megabytes(mostBytes)} -> ${megabytes(keptBytes)} MB`,
    `attack ${attack.operations} operations, ${megabytes(rate(attack))} MB/s touched${share}, sent ${megabytes(attack.sentBytes)} MB, received ${megabytes(attack.receivedBytes)} MB, closed ${attack.closed}`,
    ...(ended === undefined ? [] : [`ENDED: ${ended}`]),
  ].join('; ');
}

const megabytes = (bytes: number): string => (bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0);

const FOLDER = resolve(import.meta.dirname, '../../../target/attacks');

/** The measured outcome or, with `ATTACK_RESUME`, the outcome of an earlier run with the same program that had no fault. */
export async function kept(name: string, measure: () => Promise<Outcome>, isRight: (outcome: Outcome) => boolean): Promise<[Outcome, boolean]> {
  const path = resolve(FOLDER, `work-${name.replace(/\W+/g, '-')}.json`);
  const isEarlier = process.env['ATTACK_RESUME'] !== undefined && existsSync(path) && statSync(path).mtimeMs > statSync(binary()).mtimeMs;
  if (isEarlier) return [JSON.parse(readFileSync(path, 'utf8')) as Outcome, true];
  const outcome = await measure();
  mkdirSync(dirname(path), { recursive: true });
  if (isRight(outcome)) writeFileSync(path, JSON.stringify(outcome));
  return [outcome, false];
}
