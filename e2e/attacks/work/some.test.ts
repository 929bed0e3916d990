// The worst attacks by work, each for two seconds, for a machine that others use at the same time. All of them, in all
// shapes and judged by milliseconds, are in `all.test.ts`.

import { ATTACKS } from './list.ts';
import { MEBIBYTE, SHAPES, summarize, testHeld, testOff } from './tests.ts';

const TIMES = { calmMs: 500, attackMs: 2_000, aloneMs: 0 };
/** What the processes of other tests may add to the time of an event or write. */
const SLACK_MS = 80;
const BUDGET_BYTES = 128 * MEBIBYTE;

/** The attacks by name, and the index of the shape in which each is tested. */
const CHOSEN: Array<[name: string, shape: number]> = [
  ['reads of one large record in a burst', 2],
  ['patches of one large record', 1],
  ['patches of many paths of one large record', 0],
  ['forbidden patches of one large record', 2],
  ['calls of 50 KB that are accepted and never answered', 0],
  ['login messages of 1 MB on connections that end at once', 2],
];

for (const [name, shape] of CHOSEN) {
  const attack = ATTACKS.find((attack) => attack.name === name);
  if (attack === undefined) throw new Error(`unknown attack ${name}`);
  const one = { attack, shape: SHAPES[shape]!, budgetBytes: BUDGET_BYTES };
  testHeld(one, TIMES, SLACK_MS);
  testOff(one, TIMES, SLACK_MS);
}
summarize(TIMES);
