// The demo in tabs of a real browser.

import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { atEnd } from '../harness/cleanup.ts';
import type { Server } from '../harness/server.ts';

export interface TabOptions extends BrowserContextOptions {
  /** The number of users in the page: two at a first load, by default one. */
  panes?: 1 | 2;
  /** A script that replaces the server's script. */
  script?: string;
  /** The status of a request that the server is expected to refuse; the browser logs it as an error. */
  refused?: number;
}

/** Opens the demo in a tab and waits until it is connected. Errors that the browser logs fail the test. */
export async function openTab(t: TestContext, browser: Browser, server: Server, { script, panes = 1, refused, ...options }: TabOptions = {}): Promise<Page> {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const complaints: string[] = [];
  // Each browser also logs an error, in its own words, when the test kills the server.
  const isExpected = (text: string): boolean => refused !== undefined && text.includes(`status of ${refused}`);
  const isLoss = (text: string): boolean => /WebSocket connection|establish a connection|connection to ws:\S+ was interrupted/.test(text);
  const keep = (text: string): void => void (isLoss(text) || isExpected(text) || complaints.push(text));
  page.on('pageerror', (error) => keep(String(error)));
  page.on('console', (message) => message.type() === 'error' && keep(message.text()));
  atEnd(t, async () => {
    await context.close();
    assert.deepEqual(complaints, []);
  });
  if (script !== undefined) await page.route('**/main.js', (route) => route.fulfill({ path: script, contentType: 'text/javascript' }));
  await page.goto(`http://${server.address}/${panes === 1 ? '?panes=1' : ''}`);
  await connected(page, panes);
  return page;
}

/** Waits until the page reports that all its users are connected. */
export async function connected(page: Page, panes = 1): Promise<void> {
  await page.getByRole('status').filter({ hasText: /^connected$/ }).nth(panes - 1).waitFor();
}

/** Kills the server with the button of the page, and asserts that no acknowledged edit is lost. Returns the milliseconds until the return. */
export async function isNothingLost(page: Page): Promise<number> {
  await page.getByRole('button', { name: 'Kill the server' }).click();
  const verdict = page.locator('.crash .good, .crash .bad');
  await verdict.waitFor();
  assert.match((await verdict.textContent()) ?? '', /^All \d{3,} acknowledged edits are there, 0 lost\.$/, 'nothing is lost');
  const [, ms] = /^(\d+) ms until/.exec((await page.locator('.crash .big').textContent()) ?? '') ?? [];
  return Number(ms ?? assert.fail('the page shows no time'));
}

/** The texts of the entries that are currently in the page, of all its users. */
export function entries(page: Page): Promise<string[]> {
  return page.evaluate(`[...document.querySelectorAll('input.text')].map(({ value }) => value)`);
}

/** Adds an entry as the first user of the page. */
export async function add(page: Page, text: string): Promise<void> {
  await page.getByLabel('New entry').first().fill(text);
  await page.getByRole('button', { name: 'Add', exact: true }).first().click();
}

/** The names of the users who are online, with this tab's user first. */
export async function people(page: Page): Promise<string[]> {
  return page.getByRole('list', { name: 'Users online' }).getByRole('listitem').allTextContents();
}

/** Scrolls the list from its beginning to its end and returns the duration of each frame, in milliseconds. */
export function scrolling(page: Page): Promise<number[]> {
  return page.evaluate(`new Promise((done) => {
    const list = document.querySelector('.rows');
    const frames = [];
    list.scrollTop = 0;
    let last;
    requestAnimationFrame(function step(now) {
      if (last !== undefined) frames.push(now - last);
      last = now;
      const before = list.scrollTop;
      list.scrollTop += 400;
      if (list.scrollTop === before) done(frames);
      else requestAnimationFrame(step);
    });
  })`);
}

/** Milliseconds of processor time that the main thread of the page uses during `action`. Only Chromium reports them. */
export async function processorMs(page: Page, action: () => Promise<unknown>): Promise<number> {
  const session = await page.context().newCDPSession(page);
  const used = async (): Promise<number> => {
    const { metrics } = await session.send('Performance.getMetrics');
    return metrics.find(({ name }) => name === 'TaskDuration')?.value ?? assert.fail('no metric TaskDuration');
  };
  await session.send('Performance.enable', { timeDomain: 'threadTicks' });
  const before = await used();
  await action();
  const ms = 1_000 * ((await used()) - before);
  await session.detach();
  return ms;
}

/** The quantiles `of` of `values`. */
export function shares<T extends number[]>(values: number[], ...of: T): { [I in keyof T]: number } {
  const sorted = [...values].sort((a, b) => a - b);
  return of.map((share) => sorted[Math.ceil(share * sorted.length) - 1] as number) as { [I in keyof T]: number };
}

/** For a page: elements wider than the window. The page can't compare with `innerWidth`: on a phone it grows to the width of the page. */
export const WIDE = `[...document.querySelectorAll('body *')]
  .filter((element) => Math.max(element.getBoundingClientRect().right - 1, document.scrollingElement.scrollWidth) > document.documentElement.clientWidth)
  .map((element) => element.outerHTML.slice(0, 100))`;
