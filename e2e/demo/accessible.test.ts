// The demo's accessibility: axe-core finds nothing, in light and in dark, and the keyboard alone reaches every control.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findings } from '../browser/axe.ts';
import { browserDuring, ONLY_CHROMIUM } from '../browser/page.ts';
import { Server } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';
import { add, connected, entries, openTab } from './tabs.ts';

/** The name of the focused element, and whether its focus is visible. */
const FOCUSED = `(() => {
  const { activeElement: element } = document;
  const name = element.getAttribute('aria-label') ?? element.labels?.[0]?.textContent ?? element.textContent;
  return element === document.body ? '' : name.trim() + (getComputedStyle(element).outlineStyle === 'none' ? ' (not to be seen)' : '');
})()`;

/** The focus on the lines of a card's code, which scroll. */
const CODE = '(code)';
const short = (name: string): string => (name.includes('client.') ? CODE : name);

test('the demo is accessible', async (t) => {
  const server = await Server.during(t, { withoutRules: true });
  const browser = await browserDuring(t);

  for (const colorScheme of ['light', 'dark'] as const) {
    await t.test(`axe-core finds nothing in ${colorScheme}`, ONLY_CHROMIUM, async (inner) => {
      const page = await openTab(inner, browser, server, { colorScheme });
      const other = await openTab(inner, browser, server, { colorScheme });
      await add(page, 'to do');
      await add(page, 'done');
      await page.getByRole('checkbox', { name: 'Done: done' }).check();
      await other.getByLabel('Text of the entry').first().focus();
      await page.locator('.cursor').waitFor();
      await page.getByRole('checkbox', { name: 'Lock' }).check();
      await page.getByRole('checkbox', { name: 'Done: to do' }).click();
      await page.getByRole('alert').filter({ hasText: 'taken back' }).waitFor();
      await page.getByRole('button', { name: 'Throw a die' }).click();
      await page.locator('.result').filter({ hasText: 'threw' }).waitFor();
      assert.deepEqual(await findings(page), []);
      await page.getByRole('checkbox', { name: 'Lock' }).uncheck();
      await page.getByRole('button', { name: 'Remove all' }).click();
      await eventually(async () => (await entries(other)).length === 0, 'the list is empty');
    });
  }

  await t.test('the keyboard alone reaches every control, and the focus is always visible', async (inner) => {
    const page = await openTab(inner, browser, server);
    const press = async (...keys: string[]): Promise<void> => {
      for (const key of keys) await page.keyboard.press(key);
    };
    const focused = (): Promise<string> => page.evaluate(FOCUSED);
    const walk = async (steps: number): Promise<string[]> => {
      const names: string[] = [];
      for (let i = 0; i < steps; i += 1) {
        await press('Tab');
        names.push(await focused());
      }
      return names;
    };
    assert.deepEqual(await walk(8), ['Documentation', 'Admin page', 'Source', 'On your phone', 'Connection', 'Your name', 'Change', 'New entry']);
    for (const text of ['one', 'two', 'three']) {
      await page.keyboard.type(text);
      await press('Enter');
    }
    await eventually(async () => (await entries(page)).join() === 'three,two,one', 'three entries');
    assert.deepEqual(await walk(2), ['Add', 'Done: three']);
    await press('Space', 'ArrowDown', 'Space');
    assert.equal(await focused(), 'Done: two');
    await eventually(async () => (await page.locator('.entry :checked').count()) === 2, 'two are done');
    await press('Tab', 'End');
    await page.keyboard.type('!');
    await eventually(async () => (await entries(page))[1] === 'two!', 'the text is changed');
    assert.deepEqual(await walk(1), ['Remove: two!']);
    await press('Enter');
    await eventually(async () => (await entries(page)).join() === 'three,one', 'the entry is removed');
    await eventually(async () => (await focused()) === 'Remove: one', 'the focus goes to the entry in its place');
    const afterList = ['Add 1,000', 'Remove done', 'Remove all', 'Lock', 'Code of the list', CODE, 'Code of the price', CODE, 'Throw a die'];
    assert.deepEqual((await walk(afterList.length)).map(short), afterList);
    await press('Enter');
    await page.locator('.result').filter({ hasText: 'threw' }).waitFor();
    assert.equal(await focused(), 'Throw a die');
    const afterDie = ['Code of the call', CODE, 'Start 1,000 bots', 'Code of the bots', CODE, 'Kill the server'];
    assert.deepEqual((await walk(afterDie.length)).map(short), afterDie);
    await press('Enter');
    await page.locator('.crash .good').filter({ hasText: '0 lost' }).waitFor();
    assert.equal(await focused(), 'Kill the server');
    await connected(page);
    for (let i = 0; i < afterDie.length; i += 1) await press('Shift+Tab');
    // Back into the list, where Tab left it, and to its last row of a thousand.
    for (let i = 1; i < afterList.length; i += 1) await press('Shift+Tab');
    await press('Enter');
    await page.getByText('of 1002 to do').waitFor();
    await press('Shift+Tab');
    assert.equal(await focused(), 'Remove: one');
    for (let i = 0; i < 30; i += 1) {
      const before = await focused();
      await press('ArrowUp');
      await eventually(async () => (await focused()) !== before, 'the focus moves to a row that was not there');
    }
    assert.match(await focused(), /^Remove: Entry 97\d of 1000$/);
    assert.equal((await walk(3)).at(-1), 'Remove all');
    await press('Enter');
    await eventually(async () => (await entries(page)).length === 0, 'the list is empty');
    assert.equal(await focused(), 'Remove all');
  });
});
