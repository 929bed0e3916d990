// All attacks by work in all shapes, in order: `make proof-work`.

import { ATTACKS } from './list.ts';
import { MEBIBYTE, SHAPES, summarize, testHeld, testOff } from './tests.ts';

const SECONDS = Number(process.env['WORK_SECONDS'] ?? 5);
const TIMES = { calmMs: 1_000, attackMs: SECONDS * 1_000, aloneMs: SECONDS * 1_000 };
const SLACK_MS = Number(process.env['WORK_SLACK_MS'] ?? 0);

for (const attack of ATTACKS) {
  for (const shape of SHAPES) testHeld({ attack, shape, budgetBytes: 128 * MEBIBYTE }, TIMES, SLACK_MS);
  if (attack.harm === 'memory') testHeld({ attack, shape: SHAPES[1]!, budgetBytes: 1_024 * MEBIBYTE }, TIMES, SLACK_MS);
  testOff({ attack, shape: SHAPES[0]!, budgetBytes: 128 * MEBIBYTE }, TIMES, SLACK_MS);
}
summarize(TIMES);
