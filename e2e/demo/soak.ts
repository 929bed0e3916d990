// Two people use the demo while a page with a thousand bots is open: edits, refused edits, cursors, prices, the die, reloads, restarts and
// crashes of the server, lists of 1,000 entries. The browser logs no errors, the bots go on after each crash, no acknowledged edit is lost,
// and the pages keep no more memory than they had at the beginning. An interrupted run continues where it was, with `SOAK_RESUME`.

import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { TestContext } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { binary, Server } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';
import { add, connected, entries, isNothingLost, openTab, people, scrolling, shares } from './tabs.ts';

/** Memory is compared after this share of the time: until then code is compiled and caches fill. */
const WARM_SHARE = 0.2;
/** Memory is measured once in this share of the time. */
const WEIGHED_SHARE = 0.05;
/** The heap of a page, after garbage collection, may grow by this much. */
const GROWTH_BYTES_MAX = 2_000_000;
/** A run on a busy machine takes longer than its minutes: a page that keeps something grows between these measurements. */
const WEIGHTS_MIN = 3;
/** Actions that are not part of every round: each occurs once in this many rounds. */
const [REFUSED, CRASHED, RELOADED, RESTARTED, LONG] = [2, 3, 5, 11, 17];
/** The state of an interrupted run. */
const STATE = join(import.meta.dirname, '../../target/soak/demo.json');

export interface Soak {
  minutes: number;
  /** Whether an earlier run of the same program counts. */
  resumes?: boolean;
  /** A script that replaces the script of the page with the bots. */
  script?: string;
}

interface Done {
  /** The time of earlier runs and of this one. */
  ms: number;
  count: Record<'rounds' | 'edits' | 'refused' | 'reloads' | 'restarts' | 'crashes' | 'prices' | 'throws', number>;
  /** In each round: the deliveries to bots in a second, and their p99 in milliseconds. */
  rates: number[];
  p99s: number[];
  /** After each crash: milliseconds until the page was connected again. */
  awayMs: number[];
}

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

/** Deliveries to the bots of the page in the last second, and their p99. */
async function load(page: Page): Promise<{ rate: number; p99: number }> {
  const text = (await page.locator('.figures').textContent()) ?? '';
  const [, rate = '0', p99 = '0'] = /^([\d,]+) deliveries a second, .* p99 ([\d.]+) ms$/.exec(text) ?? [];
  return { rate: Number(rate.replaceAll(',', '')), p99: Number(p99) };
}

/** Waits until the page shows the figures of another second, or that it has none. */
async function nextSecond(page: Page): Promise<void> {
  const text = (): Promise<string | null> => page.locator('.figures').textContent();
  const shown = await text();
  await eventually(async () => (await load(page)).rate === 0 || (await text()) !== shown, 'the figures change');
}

function earlier(minutes: number): Done | undefined {
  const isSame = existsSync(STATE) && statSync(STATE).mtimeMs > statSync(binary()).mtimeMs;
  const done = isSame ? (JSON.parse(readFileSync(STATE, 'utf8')) as Done) : undefined;
  return done && done.ms < minutes * 60_000 ? done : undefined;
}

export async function soak(t: TestContext, browser: Browser, { minutes, resumes, script }: Soak): Promise<void> {
  const server = await Server.during(t, { withoutRules: true });
  const tabs = [await openTab(t, browser, server), await openTab(t, browser, server)] as const;
  const bots = await openTab(t, browser, server, { ...(script !== undefined && { script }) });
  const all = [...tabs, bots];
  const none = { rounds: 0, edits: 0, refused: 0, reloads: 0, restarts: 0, crashes: 0, prices: 0, throws: 0 };
  const done: Done = (resumes ? earlier(minutes) : undefined) ?? { ms: 0, count: none, rates: [], p99s: [], awayMs: [] };
  const { count } = done;
  const frames: number[] = [];
  const weights: Array<{ at: number; pages: Weight[] }> = [];
  const box = (page: Page, name: string) => page.getByRole('checkbox', { name });
  const before = done.ms;
  const began = performance.now();
  /** The share of the time that has passed, in all runs and in this one. */
  const passed = (): number => done.ms / (minutes * 60_000);
  const here = (): number => (done.ms - before) / (minutes * 60_000 - before);
  let price = '';
  await bots.getByRole('button', { name: 'Start 1,000 bots' }).click();
  await eventually(async () => (await load(bots)).rate > 0, 'the bots publish');

  while (passed() < 1 || done.awayMs.length === 0 || weights.length < WEIGHTS_MIN) {
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
    const thrown = await one.locator('.result').textContent();
    await one.getByRole('button', { name: 'Throw a die' }).click();
    if (thrown === '') await one.locator('.result').filter({ hasText: /threw [1-6]\.$/ }).waitFor();
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
    if (count.rounds % CRASHED === 0) {
      done.awayMs.push(await isNothingLost(one));
      for (const page of all) await connected(page);
      // The second that is shown may have begun before the crash, and the next one too.
      for (let i = 0; i < 2; i += 1) await nextSecond(bots);
      const isBack = eventually(async () => (await load(bots)).rate > 0, 'deliveries');
      assert.ok(await isBack.catch(() => false), 'the bots publish after the crash');
      count.crashes += 1;
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
      for (const page of all) await connected(page);
      await eventually(async () => (await entries(one))[0] === 'meanwhile', 'the edit made during the restart is there');
      count.edits += 1;
      count.restarts += 1;
    }
    if (count.rounds % LONG === 0) {
      await one.getByRole('button', { name: 'Add 1,000' }).click();
      await other.getByText(/of 1\d\d\d to do/).waitFor();
      frames.push(...(await scrolling(other)));
    }
    const isDue = here() - (weights.at(-1)?.at ?? 0) >= WEIGHED_SHARE;
    if (isDue || (await entries(one)).length > 10) {
      await one.getByRole('button', { name: 'Remove all' }).click();
      for (const page of tabs) await eventually(async () => (await entries(page)).length === 0, 'the list is empty');
    }
    if (isDue) weights.push({ at: here(), pages: await Promise.all(all.map(weight)) });
    await eventually(async () => (await people(one)).length === 3 && (await people(other)).length === 3, 'all are here');
    const { rate, p99 } = await load(bots);
    done.rates.push(rate);
    done.p99s.push(p99);
    done.ms = before + performance.now() - began;
    if (resumes) {
      mkdirSync(dirname(STATE), { recursive: true });
      writeFileSync(STATE, JSON.stringify(done));
    }
  }

  const { rounds, edits, refused, reloads, restarts, crashes, prices, throws } = count;
  t.diagnostic(
    `${minutes} minutes: ${rounds} rounds, ${edits} edits, ${refused} refused, ${prices} prices, ${throws} throws, ${reloads} reloads, ${restarts} restarts, ` +
      `${crashes} crashes`,
  );
  const [usual] = shares(done.rates, 0.5);
  const [p99, worstP99] = shares(done.p99s, 0.5, 1);
  const [away, longest] = shares(done.awayMs, 0.5, 1);
  t.diagnostic(`1,000 bots: ${usual} deliveries a second, p99 ${p99} ms, in the worst second ${worstP99} ms`);
  t.diagnostic(`crashes: no acknowledged edit lost, connected again after ${away} ms, ${longest} ms at most`);
  if (frames.length > 0) {
    const [half, most, worst] = shares(frames, 0.5, 0.95, 1);
    t.diagnostic(`frames of 1,000 entries: median ${half.toFixed(1)} ms, 95% within ${most.toFixed(1)} ms, longest ${worst.toFixed(1)} ms of ${frames.length}`);
    assert.ok(most <= 50, `frames of ${most} ms`);
  }
  const first = weights.find(({ at }) => at >= WARM_SHARE) ?? assert.fail('memory was not measured');
  const last = weights.at(-1) ?? first;
  const told = (pages: Weight[]): string => pages.map(({ heapBytes, nodes }) => `${(heapBytes / 1e6).toFixed(2)} MB and ${nodes} nodes`).join(', ');
  t.diagnostic(`memory of the pages: ${told(first.pages)} after ${Math.round(first.at * 100)}% of the time, ${told(last.pages)} at the end`);
  last.pages.forEach(({ heapBytes }, i) => {
    const more = heapBytes - (first.pages[i] as Weight).heapBytes;
    assert.ok(more <= GROWTH_BYTES_MAX, `a page grew by ${more} bytes`);
  });
  if (resumes) rmSync(STATE, { force: true });
}
