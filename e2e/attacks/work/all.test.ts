// All attacks by work in all shapes, in order: `make proof-work`.

import { ATTACKS } from './list.ts';
import { MEBIBYTE, SHAPES, summarize, testHeld, testOff } from './tests.ts';

const SECONDS = Number(process.env['WORK_SECONDS'] ?? 5);
const TIMES = { calmMs: 1_000, attackMs: SECONDS * 1_000, aloneMs: SECONDS * 1_000 };
const CONDITIONS = { times: TIMES, slackMs: Number(process.env['WORK_SLACK_MS'] ?? 0), again: { times: 2, right: 2 } };

for (const attack of ATTACKS) {
  for (const shape of SHAPES) testHeld({ attack, shape, budgetBytes: 128 * MEBIBYTE }, CONDITIONS);
  if (attack.harm !== 'latency') testHeld({ attack, shape: SHAPES[1]!, budgetBytes: 1_024 * MEBIBYTE }, CONDITIONS);
  testOff({ attack, shape: SHAPES[1]!, budgetBytes: 128 * MEBIBYTE }, CONDITIONS);
}
summarize(CONDITIONS);
