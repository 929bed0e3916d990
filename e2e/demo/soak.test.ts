// The demo in use with a thousand bots (`soak.ts`): for a few seconds, and for ten minutes in `make proof-demo` (`SOAK_MINUTES`).

import { test } from 'node:test';
import { browserDuring, ONLY_CHROMIUM } from '../browser/page.ts';
import { isFound, planted, type Fault } from '../harness/planted.ts';
import { soak } from './soak.ts';

const MINUTES = Number(process.env['SOAK_MINUTES'] ?? 0.1);
const BOTS = 'examples/demo/src/bots.tsx';

test('two people use the demo next to a thousand bots', ONLY_CHROMIUM, async (t) => {
  await soak(t, await browserDuring(t), { minutes: MINUTES, resumes: process.env['SOAK_RESUME'] !== undefined });
});

const faults: Array<[what: string, fault: Fault, reason: RegExp]> = [
  [
    'the page keeps something of each event',
    {
      file: BOTS,
      text: 'this.#delays = [];',
      instead: 'this.#delays = []; ((globalThis as any).kept ??= []).push(...sorted.map((ms) => new Array(100).fill(ms)));',
    },
    /a page grew by/,
  ],
  [
    'the bots do not come back after a crash',
    { file: BOTS, text: 'client.onError(() => undefined);', instead: "client.onState((state) => state === 'waiting' && client.close());" },
    /the bots publish after the crash/,
  ],
];
for (const [what, fault, reason] of faults) {
  test(`planted fault: ${what}`, ONLY_CHROMIUM, async (t) => {
    const script = await planted(t, 'examples/demo/src/main.tsx', fault, 'esm');
    await isFound(soak(t, await browserDuring(t), { minutes: 0.1, script }), reason);
  });
}
