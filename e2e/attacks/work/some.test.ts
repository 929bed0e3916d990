// The worst attacks by work, each for two seconds, for a machine that other processes use at the same time. `all.test.ts` runs all of
// them in all shapes, with bounds in milliseconds.

import { ATTACKS } from './list.ts';
import { MEBIBYTE, SHAPES, summarize, testHeld, testOff } from './tests.ts';

const CONDITIONS = { times: { calmMs: 500, attackMs: 2_000, aloneMs: 0 }, slackMs: 80, again: { times: 2, right: 1 } };
const BUDGET_BYTES = 128 * MEBIBYTE;

/**
 * The names of the attacks, and the index of the shape in which each one runs. `held` runs an attack only with the limits: without them it
 * delays bystanders by tens of milliseconds, which other processes do too. `all.test.ts` shows its harm on a quiet machine.
 */
const CHOSEN: Array<[name: string, shape: number, held?: 'held']> = [
  ['reads of one large record in a burst', 2],
  ['patches of one large record', 1],
  ['patches of many paths of one large record', 0, 'held'],
  ['forbidden patches of one large record', 2],
  ['calls of 50 KB that are accepted and never answered', 0],
  ['login messages of 1 MB on connections that end at once', 2, 'held'],
];

for (const [name, shape, held] of CHOSEN) {
  const attack = ATTACKS.find((attack) => attack.name === name);
  if (attack === undefined) throw new Error(`unknown attack ${name}`);
  const one = { attack, shape: SHAPES[shape]!, budgetBytes: BUDGET_BYTES };
  testHeld(one, CONDITIONS);
  if (!held) testOff(one, CONDITIONS);
}
summarize(CONDITIONS);
