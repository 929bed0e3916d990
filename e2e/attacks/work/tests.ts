// Registers the tests of attacks by work: with the limits, which must prevent the harm, and without, where it must be visible.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import type { ServerOptions } from '../../harness/server.ts';
import { SHAPES, type Shape, type WorkAttack } from './attack.ts';
import { faults, isLate, isOnlySlow, isShareUncertain, kept, memoryBound, p99, shareOf, shown, P99_MS_MAX, type Outcome } from './judge.ts';
import { measure, measureNull, type Times } from './measure.ts';

/** Selects attacks by name; all by default. */
const CHOSEN = new RegExp(process.env['ATTACKS'] ?? '');

export const MEBIBYTE = 1 << 20;
/** A memory budget that ends no session of an attack. */
const ROOMY_BYTES = 4_096 * MEBIBYTE;

export interface Case {
  attack: WorkAttack;
  shape: Shape;
  budgetBytes: number;
}

/** How the tests measure and decide. */
export interface Conditions {
  times: Times;
  /** The most milliseconds that the processes of other tests may add to a latency. */
  slackMs: number;
  /**
   * An attack that is only too slow is measured again: another program can stop a shared machine for half a second. A fault of the server
   * returns in each measurement.
   */
  again: {
    /** The most further measurements. */
    times: number;
    /** How many of them must be within the bounds. */
    right: number;
  };
}

const worst = { held: 0, off: 0, earlier: 0, p99: 0, memory: 0, share: 1 };

/** Tests an attack with the limits. */
export function testHeld({ attack, shape, budgetBytes }: Case, { times, slackMs, again }: Conditions): void {
  if (!CHOSEN.test(attack.name)) return;
  const name = `${attack.name}, ${shape.name}, ${Math.round(budgetBytes / MEBIBYTE)} MiB`;
  test(`${name}: bystanders, memory and the attacker's share are as promised`, async (t) => {
    const measureOnce = async (): Promise<Outcome> => {
      const measured: Outcome = await measure(attack, shape, withBudget(attack.options ?? {}, budgetBytes), times);
      if (isShareUncertain(measured)) measured.roomy = await measure(attack, shape, withBudget(attack.options ?? {}, ROOMY_BYTES), times);
      // The baseline takes as long as the attack, so it is measured only if the decision depends on it.
      if (measured.ended !== undefined || !isLate(measured, slackMs)) return measured;
      const { sentBytes: sent, receivedBytes: received } = measured.attack;
      const beside = async (): Promise<number> => p99(await measureNull({ sent, received }, shape, times), 'attack');
      const first = await beside();
      // A baseline that other processes have slowed down would excuse the server, so the better of two counts.
      return { ...measured, nullP99Ms: first <= P99_MS_MAX / 5 ? first : Math.min(first, await beside()) };
    };
    const isRight = (outcome: Outcome): boolean => faults(outcome, budgetBytes, slackMs).length === 0;
    const measureUntilDecided = async (): Promise<Outcome> => {
      const first = await measureOnce();
      if (!isOnlySlow(first, budgetBytes, slackMs)) return first;
      t.diagnostic(`measured again: ${shown(first)}`);
      let slow = first;
      let right = 0;
      for (let left = again.times; left + right >= again.right; left -= 1) {
        const outcome = await measureOnce();
        if (isRight(outcome)) right += 1;
        else if (isOnlySlow(outcome, budgetBytes, slackMs)) slow = outcome;
        else return outcome;
        if (right === again.right) return outcome;
        t.diagnostic(`measured again: ${shown(outcome)}`);
      }
      return slow;
    };
    const [outcome, isEarlier] = await kept(name, measureUntilDecided, isRight);
    t.diagnostic(shown(outcome));
    worst.held += 1;
    if (isEarlier) worst.earlier += 1;
    worst.p99 = Math.max(worst.p99, p99(outcome.bystanders, 'attack'));
    worst.memory = Math.max(worst.memory, outcome.mostBytes - budgetBytes);
    worst.share = Math.min(worst.share, shareOf(outcome.roomy ?? outcome));
    assert.deepEqual(faults(outcome, budgetBytes, slackMs), []);
  });
}

/**
 * Tests that an attack does harm without its limit. Attackers that share their processor with other programs need longer for it, so an attack
 * without harm runs again, each time twice as long.
 */
export function testOff({ attack, shape, budgetBytes }: Case, { times, slackMs, again }: Conditions): void {
  if (!CHOSEN.test(attack.name)) return;
  const { off } = attack;
  if ('because' in off) return;
  const name = `${attack.name}, ${shape.name}, without its limit`;
  test(`${name} the harm is seen`, async (t) => {
    const isHarmed = (outcome: Outcome): boolean => {
      if (outcome.ended !== undefined) return true;
      const isMemoryHarmed = outcome.mostBytes > memoryBound(budgetBytes);
      if (attack.harm === 'either') return isMemoryHarmed || isLate(outcome, slackMs);
      return attack.harm === 'latency' ? isLate(outcome, slackMs) : isMemoryHarmed;
    };
    const options = attack.harm === 'memory' ? merged(attack.options ?? {}, off) : merged(withBudget(attack.options ?? {}, budgetBytes), off);
    const measureUntilHarmed = async (): Promise<Outcome> => {
      for (let count = 0; ; count += 1) {
        const outcome = await measure(attack, shape, options, { ...times, attackMs: times.attackMs * 2 ** count, aloneMs: 0 });
        if (isHarmed(outcome) || count === again.times) return outcome;
        t.diagnostic(`measured again: ${shown(outcome)}`);
      }
    };
    const [outcome] = await kept(name, measureUntilHarmed, isHarmed);
    t.diagnostic(shown(outcome));
    worst.off += 1;
    assert.ok(isHarmed(outcome), `no harm was seen: ${attack.harm}`);
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
