// Two people use the demo for `SOAK_MINUTES`, ten by default: edits, refused edits, cursors, prices, the die, reloads, restarts of the
// server, lists of 1,000 entries. The browser logs no errors, and the pages keep no more memory than they had at the beginning.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Page } from 'playwright-core';
import { browserDuring } from '../browser/page.ts';
import { Server } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';
import { add, connected, entries, openTab, people, scrolling, shares } from './tabs.ts';

const MINUTES = Number(process.env['SOAK_MINUTES'] ?? 10);
/** Memory is compared after this share of the time: until then code is compiled and caches fill. */
const WARM_SHARE = 0.2;
/** The heap of a page, after garbage collection, may grow by this much. */
const GROWTH_BYTES_MAX = 2_000_000;
/** Actions that are not part of every round: each occurs once in this many rounds. */
const [REFUSED, RELOADED, RESTARTED, LONG] = [2, 5, 11, 17];

interface Weight {
  heapBytes: number;
  nodes: number;
}

/** The memory of the page after garbage collection. */
async function weight(page: Page): Promise<Weight> {
  const session = await page.context().newCDPSession(page);
  await session.send('HeapProfiler.collectGarbage');
  await session.send('Performance.enable');
  const { metrics } = await session.send('Performance.getMetrics');
  await session.detach();
  const of = (name: string): number => metrics.find((metric) => metric.name === name)?.value ?? assert.fail(`no metric ${name}`);
  return { heapBytes: of('JSHeapUsedSize'), nodes: of('Nodes') };
}

test('two people use the demo', async (t) => {
  const server = await Server.during(t, { withoutRules: true });
  const browser = await browserDuring(t);
  const tabs = [await openTab(t, browser, server), await openTab(t, browser, server)] as const;
  const count = { rounds: 0, edits: 0, refused: 0, reloads: 0, restarts: 0, prices: 0, throws: 0 };
  const frames: number[] = [];
  const weights: Array<{ at: number; pages: Weight[] }> = [];
  const box = (page: Page, name: string) => page.getByRole('checkbox', { name });
  const began = performance.now();
  const passed = (): number => (performance.now() - began) / (MINUTES * 60_000);
  let price = '';

  while (passed() < 1) {
    count.rounds += 1;
    const [one, other] = count.rounds % 2 === 0 ? tabs : ([tabs[1], tabs[0]] as const);
    const text = `entry ${count.rounds}`;
    await add(one, text);
    await box(other, `Done: ${text}`).check();
    await eventually(() => box(one, `Done: ${text}`).isChecked(), 'the edit is seen');
    await other.getByLabel('Text of the entry').first().focus();
    await one.locator('.cursor').waitFor();
    await one.getByLabel('Text of the entry').first().fill(`${text}, changed`);
    await eventually(async () => (await entries(other))[0] === `${text}, changed`, 'the text is seen');
    count.edits += 3;
    await eventually(async () => (await other.locator('.number').textContent()) !== price, 'the price changes');
    price = (await other.locator('.number').textContent()) ?? '';
    count.prices += 1;
    const before = await one.locator('.result').textContent();
    await one.getByRole('button', { name: 'Throw a die' }).click();
    if (before === '') await one.locator('.result').filter({ hasText: /threw [1-6]\.$/ }).waitFor();
    count.throws += 1;

    if (count.rounds % REFUSED === 0) {
      await box(one, 'Lock').check();
      await box(other, 'Lock').and(other.locator(':checked')).waitFor();
      await box(other, `Done: ${text}`).click();
      await other.locator('.notice').filter({ hasText: 'taken back' }).waitFor();
      await eventually(() => box(other, `Done: ${text}`).isChecked(), 'it is taken back where it was made');
      assert.equal(await box(one, `Done: ${text}`).isChecked(), true);
      await box(other, 'Lock').uncheck();
      await box(one, 'Lock').and(one.locator(':not(:checked)')).waitFor();
      count.refused += 1;
    }
    if (count.rounds % RELOADED === 0) {
      // Only the first tab reloads. The other page stays open through all restarts, so that a leak shows in its memory.
      await tabs[0].reload();
      await connected(tabs[0]);
      await eventually(async () => (await entries(one)).join() === (await entries(other)).join(), 'both show the same');
      count.reloads += 1;
    }
    if (count.rounds % RESTARTED === 0) {
      await server.kill();
      for (const page of tabs) await page.getByRole('status').filter({ hasText: 'connection lost' }).waitFor();
      await add(other, 'meanwhile');
      await server.start();
      for (const page of tabs) await connected(page);
      await eventually(async () => (await entries(one))[0] === 'meanwhile', 'the edit made during the restart is there');
      count.edits += 1;
      count.restarts += 1;
    }
    if (count.rounds % LONG === 0) {
      await one.getByRole('button', { name: 'Add 1,000' }).click();
      await other.getByText(/of 1\d\d\d to do/).waitFor();
      frames.push(...(await scrolling(other)));
    }
    if ((await entries(one)).length > 10) {
      await one.getByRole('button', { name: 'Remove all' }).click();
      for (const page of tabs) await eventually(async () => (await entries(page)).length === 0, 'the list is empty');
      weights.push({ at: passed(), pages: await Promise.all(tabs.map(weight)) });
    }
    await eventually(async () => (await people(one)).length === 2 && (await people(other)).length === 2, 'both are here');
  }

  const { rounds, edits, refused, reloads, restarts, prices, throws } = count;
  t.diagnostic(`${MINUTES} minutes: ${rounds} rounds, ${edits} edits, ${refused} refused, ${prices} prices, ${throws} throws, ${reloads} reloads, ${restarts} restarts`);
  if (frames.length > 0) {
    const [half, most, worst] = shares(frames, 0.5, 0.95, 1);
    t.diagnostic(`frames of 1,000 entries: median ${half.toFixed(1)} ms, 95% within ${most.toFixed(1)} ms, longest ${worst.toFixed(1)} ms of ${frames.length}`);
    assert.ok(most <= 50, `frames of ${most} ms`);
  }
  const first = weights.find(({ at }) => at >= WARM_SHARE) ?? assert.fail('memory was not measured');
  const last = weights.at(-1) ?? first;
  const told = (pages: Weight[]): string => pages.map(({ heapBytes, nodes }) => `${(heapBytes / 1e6).toFixed(2)} MB and ${nodes} nodes`).join(', ');
  t.diagnostic(`memory of the pages: ${told(first.pages)} after ${(first.at * MINUTES).toFixed(1)} minutes, ${told(last.pages)} at the end`);
  last.pages.forEach(({ heapBytes }, i) => {
    const more = heapBytes - (first.pages[i] as Weight).heapBytes;
    assert.ok(more <= GROWTH_BYTES_MAX, `a page grew by ${more} bytes`);
  });
});
