// The demo in tabs of a real browser.

import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { atEnd } from '../harness/cleanup.ts';
import type { Server } from '../harness/server.ts';

export interface TabOptions extends BrowserContextOptions {
  /** A script in place of the one that the server has. */
  script?: string;
}

/** Opens the demo in a tab and waits until it is connected. What the browser complains about in it fails the test. */
export async function openTab(t: TestContext, browser: Browser, server: Server, { script, ...options }: TabOptions = {}): Promise<Page> {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const complaints: string[] = [];
  // A server that was killed on purpose is complained about, too.
  const keep = (text: string): void => void (/WebSocket connection|establish a connection/.test(text) || complaints.push(text));
  page.on('pageerror', (error) => keep(String(error)));
  page.on('console', (message) => message.type() === 'error' && keep(message.text()));
  atEnd(t, async () => {
    await context.close();
    assert.deepEqual(complaints, []);
  });
  if (script !== undefined) await page.route('**/main.js', (route) => route.fulfill({ path: script, contentType: 'text/javascript' }));
  await page.goto(`http://${server.address}/`);
  await connected(page);
  return page;
}

/** Waits until the page says that it is connected. */
export async function connected(page: Page): Promise<void> {
  await page.getByRole('status').filter({ hasText: /^connected$/ }).waitFor();
}

/** The texts of the entries that are in the page. */
export function entries(page: Page): Promise<string[]> {
  return page.evaluate(`[...document.querySelectorAll('input.text')].map(({ value }) => value)`);
}

export async function add(page: Page, text: string): Promise<void> {
  await page.getByLabel('New entry').fill(text);
  await page.getByRole('button', { name: 'Add', exact: true }).click();
}

/** The names of those who are here, the own one first. */
export async function people(page: Page): Promise<string[]> {
  return page.getByRole('list', { name: 'Who is here' }).getByRole('listitem').allTextContents();
}

/** Scrolls the list from its beginning to its end and gives back how long each frame took, in milliseconds. */
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

/** The values that so large shares of `values` do not exceed. */
export function shares<T extends number[]>(values: number[], ...of: T): { [I in keyof T]: number } {
  const sorted = [...values].sort((a, b) => a - b);
  return of.map((share) => sorted[Math.ceil(share * sorted.length) - 1] as number) as { [I in keyof T]: number };
}

/** For a page: what is wider than the window, which is not `innerWidth`: a phone makes that as large as a page that is too wide. */
export const WIDE = `[...document.querySelectorAll('body *')]
  .filter((element) => Math.max(element.getBoundingClientRect().right - 1, document.scrollingElement.scrollWidth) > document.documentElement.clientWidth)
  .map((element) => element.outerHTML.slice(0, 100))`;
