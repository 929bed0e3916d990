// The admin page in a tab of a real browser.

import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { Browser, BrowserContextOptions, Locator, Page } from 'playwright-core';
import { shownKey } from '../harness/admin-page.ts';
import { atEnd } from '../harness/cleanup.ts';
import type { Server } from '../harness/server.ts';

export const VIEWS = ['Overview', 'Connections', 'Names', 'Providers', 'Live tail', 'Records', 'Try out', 'Rules', 'Revoke'];

/** Opens the address in a tab. Errors that the browser logs fail the test, except for failed requests, which the page itself shows. */
export async function openPage(t: TestContext, browser: Browser, address: string, options: BrowserContextOptions = {}): Promise<Page> {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const complaints: string[] = [];
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('console', (message) => {
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) complaints.push(message.text());
  });
  atEnd(t, async () => {
    await context.close();
    assert.deepEqual(complaints, []);
  });
  await page.goto(address);
  return page;
}

/** Opens the page from the address on the first screen, and waits for the sign-in. */
export async function enter(t: TestContext, browser: Browser, server: Server, options: BrowserContextOptions = {}): Promise<Page> {
  const page = await openPage(t, browser, `http://${server.address}/admin/#key=${await shownKey(server)}`, options);
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  return page;
}

export async function view(page: Page, name: string): Promise<void> {
  await page.getByRole('navigation').getByRole('link', { name, exact: true }).click();
  await page.getByRole('heading', { level: 2 }).first().waitFor();
}

/** A table by its name. */
export function table(page: Page, name: string): Locator {
  return page.getByRole('grid', { name, exact: true });
}

/** The row of a table whose first cell has this text. */
export function row(page: Page, name: string, text: string): Locator {
  return table(page, name).getByRole('row').filter({ has: page.getByRole('rowheader', { name: text }) });
}

/**
 * The pixels by which the page scrolls sideways, and the elements wider than the window. A table scrolls sideways inside its frame, so its
 * frame counts and its cells do not. `innerWidth` is not usable: a phone increases it
 * to the width of a page that is too wide.
 */
export function overflow(page: Page): Promise<{ by: number; wide: string[] }> {
  return page.evaluate(() => {
    const { document } = globalThis as any;
    const width = document.documentElement.clientWidth;
    const all = [...document.querySelectorAll('body *:not([role=grid] *)')];
    const wide = all.filter((element: any) => element.getBoundingClientRect().right > width + 0.5);
    return { by: document.scrollingElement.scrollWidth - width, wide: wide.map((element: any) => element.outerHTML.slice(0, 80)) };
  });
}
