// The demo in tabs of a real browser.

import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { atEnd } from '../harness/cleanup.ts';
import type { Server } from '../harness/server.ts';

export interface TabOptions extends BrowserContextOptions {
  /** A script that replaces the server's script. */
  script?: string;
}

/** Opens the demo in a tab and waits until it is connected. Errors that the browser logs fail the test. */
export async function openTab(t: TestContext, browser: Browser, server: Server, { script, ...options }: TabOptions = {}): Promise<Page> {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const complaints: string[] = [];
  // The browser also logs an error when the test kills the server.
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

/** Waits until the page reports that it is connected. */
export async function connected(page: Page): Promise<void> {
  await page.getByRole('status').filter({ hasText: /^connected$/ }).waitFor();
}

/** The texts of the entries that are currently in the page. */
export function entries(page: Page): Promise<string[]> {
  return page.evaluate(`[...document.querySelectorAll('input.text')].map(({ value }) => value)`);
}

export async function add(page: Page, text: string): Promise<void> {
  await page.getByLabel('New entry').fill(text);
  await page.getByRole('button', { name: 'Add', exact: true }).click();
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

/** The quantiles `of` of `values`. */
export function shares<T extends number[]>(values: number[], ...of: T): { [I in keyof T]: number } {
  const sorted = [...values].sort((a, b) => a - b);
  return of.map((share) => sorted[Math.ceil(share * sorted.length) - 1] as number) as { [I in keyof T]: number };
}

/** For a page: elements wider than the window. The page can't compare with `innerWidth`: on a phone it grows to the width of the page. */
export const WIDE = `[...document.querySelectorAll('body *')]
  .filter((element) => Math.max(element.getBoundingClientRect().right - 1, document.scrollingElement.scrollWidth) > document.documentElement.clientWidth)
  .map((element) => element.outerHTML.slice(0, 100))`;
