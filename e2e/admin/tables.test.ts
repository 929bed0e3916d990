// The tables of the admin page with 10,000 connections, in Chromium at 360 and 1,440 pixels: sorting, scrolling, the keyboard, addresses
// that survive reload and Back, and local dates.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Locator, Page } from 'playwright-core';
import { findings } from '../browser/axe.ts';
import { browserDuring } from '../browser/page.ts';
import { Operator } from '../harness/admin-page.ts';
import { Server } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';
import { CROWD_SERVER, crowdDuring, member } from './crowd.ts';
import { enter, overflow, table, view } from './page.ts';

const SIZE = 10_000;
const EVENTS = 1_000;
const SCREENS = [
  { width: 1440, height: 900 },
  { width: 360, height: 640 },
];
/** Elements of a table with thousands of rows: only visible rows have elements. */
const ROWS_MAX = 80;

/** The users in the rendered rows, in their order from top to bottom. */
async function users(rows: Locator): Promise<string[]> {
  const all = await rows.evaluateAll((elements: any[]) =>
    elements.map((element) => [Number(element.getAttribute('aria-rowindex')), element.querySelector('[role=rowheader]')?.textContent] as [number, string | undefined]));
  return all.filter(([, user]) => user !== undefined).sort(([left], [right]) => left - right).map(([, user]) => user as string);
}

async function activeText(page: Page): Promise<string> {
  return page.evaluate(() => {
    const { document } = globalThis as any;
    return document.getElementById(document.activeElement.getAttribute('aria-activedescendant'))?.querySelector('[role=rowheader]').textContent ?? '';
  });
}

describe('the tables of the admin page', () => {
  test(`${SIZE} connections, sorted by any column, by mouse and by keyboard, at 360 and 1,440 pixels`, async (t) => {
    const server = await Server.during(t, CROWD_SERVER);
    const browser = await browserDuring(t);
    const sockets = await crowdDuring(t, server, SIZE, EVENTS);
    for (const viewport of SCREENS) {
      const where = `at ${viewport.width} pixels`;
      const page = await enter(t, browser, server, { viewport });
      await view(page, 'Connections');
      const connections = table(page, 'Connections');
      const rows = connections.getByRole('row');
      await page.getByText('10 k connections').waitFor();
      assert.equal(await connections.getAttribute('aria-rowcount'), String(SIZE + 1));
      assert.ok((await rows.count()) < ROWS_MAX, `${where}: ${await rows.count()} rows are elements`);

      await connections.getByRole('button', { name: 'User' }).click();
      await eventually(async () => (await users(rows))[0] === member(0), `${where}: sorted by user`);
      assert.match(page.url(), /#\/connections\?sort=user$/);
      await connections.getByRole('button', { name: 'User' }).click();
      await eventually(async () => (await users(rows))[0] === member(SIZE - 1), `${where}: sorted the other way round`);
      await page.reload();
      await eventually(async () => (await users(rows))[0] === member(SIZE - 1), `${where}: the order survives a reload`);

      await connections.focus();
      await page.keyboard.press('End');
      await eventually(async () => (await activeText(page)) === member(0), `${where}: End leads to the last row`);
      await page.keyboard.press('ArrowUp');
      await eventually(async () => (await activeText(page)) === member(1), `${where}: the arrow leads one row up`);
      await page.keyboard.press('Enter');
      const card = page.getByRole('group', { name: 'One connection' });
      await card.getByRole('heading', { name: member(1) }).waitFor();
      await card.getByText('127.0.0.1:').waitFor();
      assert.deepEqual(await findings(page), [], where);
      assert.deepEqual(await overflow(page), { by: 0, wide: [] }, where);
      await page.reload();
      await card.getByRole('heading', { name: member(1) }).waitFor();
      await page.goBack();
      await card.waitFor({ state: 'detached' });

      await page.getByLabel('User or address').fill(member(77));
      await eventually(async () => (await users(rows)).join() === member(77), `${where}: one row matches`);
      await page.reload();
      await page.getByText('1 connections').waitFor();
      assert.equal(await page.getByLabel('User or address').inputValue(), member(77));
      await page.goBack();
      await page.getByRole('heading', { name: 'Overview' }).waitFor();
      await page.goForward();
      await page.getByText('1 connections').waitFor();

      await view(page, 'Names');
      await page.getByText('1,000 names').waitFor();
      const names = table(page, 'Names');
      await names.getByRole('button', { name: 'Name' }).click();
      await eventually(async () => (await users(names.getByRole('row')))[0] === 'event/0', `${where}: sorted by name`);
      await names.focus();
      await page.keyboard.press('End');
      await eventually(async () => (await activeText(page)) === 'event/999', `${where}: End leads to the last name`);
      assert.deepEqual(await findings(page), [], where);
      assert.deepEqual(await overflow(page), { by: 0, wide: [] }, where);
      await page.context().close();
    }
    assert.ok(sockets.every((socket) => !socket.destroyed));
  });

  test('dates and numbers are in the language and time zone of the browser', async (t) => {
    const [server, browser] = [await Server.during(t), await browserDuring(t)];
    const operator = await Operator.of(server);
    assert.ok((await operator.fetch('POST', '/v1/revocations', { user: 'mallory' })).ok);
    const { revocations } = await operator.ask('GET', '/v1/revocations');
    const page = await enter(t, browser, server, { locale: 'de-DE', timezoneId: 'Asia/Tokyo' });
    await view(page, 'Revoke');
    const since = new Date(revocations[0].since * 1000).toLocaleString('de-DE', { timeZone: 'Asia/Tokyo', dateStyle: 'medium', timeStyle: 'medium' });
    await table(page, 'Revocations').getByText(since).waitFor();
    await view(page, 'Overview');
    await page.getByRole('img', { name: /^Memory: process \d+,\d MB/ }).waitFor();
  });
});
