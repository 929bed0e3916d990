// Registers the tests of attacks by work: with the limits, which must prevent the harm, and without, where it must be visible.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import type { ServerOptions } from '../../harness/server.ts';
import { SHAPES, type Shape, type WorkAttack } from './attack.ts';
import { faults, isLate, isOnlyLate, kept, memoryBound, p99, shareOf, shown, P99_MS_MAX, type Outcome } from './judge.ts';
import { measure, measureNull, type Times } from './measure.ts';

/** Selects attacks by name; all by default. */
const CHOSEN = new RegExp(process.env['ATTACKS'] ?? '');

export const MEBIBYTE = 1 << 20;

export interface Case {
  attack: WorkAttack;
  shape: Shape;
  budgetBytes: number;
}

/** How the tests measure and judge. */
export interface Conditions {
  times: Times;
  /** The most milliseconds that the processes of other tests may add to a latency. */
  slackMs: number;
  /**
   * The server is judged by the best latency of this many measurements. Another program can stop a shared machine for half a second.
   * Such a pause does not return in each measurement, but a fault of the server does.
   */
  attempts: number;
}

const worst = { held: 0, off: 0, earlier: 0, p99: 0, memory: 0, share: 1 };

/** Tests an attack with the limits. */
export function testHeld({ attack, shape, budgetBytes }: Case, { times, slackMs, attempts }: Conditions): void {
  if (!CHOSEN.test(attack.name)) return;
  const name = `${attack.name}, ${shape.name}, ${Math.round(budgetBytes / MEBIBYTE)} MiB`;
  test(`${name}: bystanders, memory and the attacker's share are as promised`, async (t) => {
    const measureOnce = async (): Promise<Outcome> => {
      const measured: Outcome = await measure(attack, shape, withBudget(attack.options ?? {}, budgetBytes), times);
      // The baseline takes as long as the attack, so it is measured only if the decision depends on it.
      if (measured.ended !== undefined || !isLate(measured, slackMs)) return measured;
      const { sentBytes: sent, receivedBytes: received } = measured.attack;
      const beside = async (): Promise<number> => p99(await measureNull({ sent, received }, shape, times), 'attack');
      const first = await beside();
      // A baseline that other processes have slowed down would excuse the server, so the better of two counts.
      return { ...measured, nullP99Ms: first <= P99_MS_MAX / 5 ? first : Math.min(first, await beside()) };
    };
    const isRight = (outcome: Outcome): boolean => faults(outcome, budgetBytes, slackMs).length === 0;
    const measureUntilRight = async (): Promise<Outcome> => {
      for (let attempt = 1; ; attempt += 1) {
        const outcome = await measureOnce();
        if (attempt === attempts || !isOnlyLate(outcome, budgetBytes, slackMs)) return outcome;
        t.diagnostic(`measured again: ${shown(outcome)}`);
      }
    };
    const [outcome, isEarlier] = await kept(name, measureUntilRight, isRight);
    t.diagnostic(shown(outcome));
    worst.held += 1;
    if (isEarlier) worst.earlier += 1;
    worst.p99 = Math.max(worst.p99, p99(outcome.bystanders, 'attack'));
    worst.memory = Math.max(worst.memory, outcome.mostBytes - budgetBytes);
    if (outcome.alone !== undefined) worst.share = Math.min(worst.share, shareOf(outcome.attack, outcome.alone));
    assert.deepEqual(faults(outcome, budgetBytes, slackMs), []);
  });
}

/** Tests that an attack does harm without its limit. */
export function testOff({ attack, shape, budgetBytes }: Case, { times, slackMs }: Conditions): void {
  if (!CHOSEN.test(attack.name)) return;
  const { off } = attack;
  if ('because' in off) return;
  const name = `${attack.name}, ${shape.name}, without its limit`;
  test(`${name} the harm is seen`, async (t) => {
    const isHarmed = (outcome: Outcome): boolean => {
      if (outcome.ended !== undefined) return true;
      return attack.harm === 'latency' ? isLate(outcome, slackMs) : outcome.mostBytes > memoryBound(budgetBytes);
    };
    const options = attack.harm === 'memory' ? merged(attack.options ?? {}, off) : withBudget(merged(attack.options ?? {}, off), budgetBytes);
    const [outcome] = await kept(name, () => measure(attack, shape, options, { ...times, aloneMs: 0 }), isHarmed);
    t.diagnostic(shown(outcome));
    worst.off += 1;
    assert.ok(isHarmed(outcome), `no harm of ${attack.harm} was seen`);
  });
}

/** Prints the worst numbers after all tests. */
export function summarize({ times }: Conditions): void {
  after(() => {
    const { held, off, earlier, p99, memory, share } = worst;
    const counts = `work: ${held} attacks of ${times.attackMs / 1_000} s, harm seen in ${off} without a limit, ${earlier} of an earlier run`;
    console.log(`${counts}; p99 at most ${p99.toFixed(1)} ms, memory at most the budget and ${(memory / 1e6).toFixed(0)} MB, the attackers' share at least ${(100 * share).toFixed(0)} %`);
  });
}

function withBudget(options: ServerOptions, budgetBytes: number): ServerOptions {
  return merged(options, { limits: { memory_bytes_max: budgetBytes } });
}

function merged(options: ServerOptions, more: ServerOptions): ServerOptions {
  return { ...options, ...more, limits: { ...options.limits, ...more.limits } };
}

export { SHAPES };
