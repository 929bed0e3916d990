// The demo that the binary serves, as a user sees it who has started the server without any option.

import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import type { Page } from 'playwright-core';
import { provide } from '../../packages/client/src/provide.ts';
import { BROWSER, browserDuring, ONLY_CHROMIUM } from '../browser/page.ts';
import { atEnd } from '../harness/cleanup.ts';
import { client } from '../harness/driver/tidewire.ts';
import { isFound, planted, type Fault } from '../harness/planted.ts';
import { Server } from '../harness/server.ts';
import { eventually, Inbox } from '../harness/wait.ts';
import { add, connected, entries, openTab, people, processorMs, scrolling, shares, WIDE, type TabOptions } from './tabs.ts';

const MARKUP = '<img src=x onerror="document.title = \'broken\'">';
const LIST = 'tidewire-demo/todos';

/** Its frames show how fast the machine draws now. */
const PLAIN_LIST = `<!doctype html><div class="rows" style="height: 400px; overflow: auto">${'<p>an entry</p>'.repeat(1_000)}</div>`;

/** The time between two frames of a screen with 60 Hz. */
const FRAME_MS = 1_000 / 60;

/** For a page: makes every eighth frame of `scrolling` late, by about 200 ms of work, until the result is aborted. */
const SLOW_SCROLLING = `(() => {
  const controller = new AbortController();
  let count = 0;
  const work = () => {
    if (++count % 8 !== 0) return;
    for (let i = 0; i < 4e8; i += 1) controller.last = i;
  };
  document.querySelector('.rows').addEventListener('scroll', work, { signal: controller.signal });
  return controller;
})()`;

/** Only Chromium simulates touch. */
const TAP = BROWSER === 'chromium' ? 'tap' : 'click';

const refusals = (page: Page) => page.locator('.notice');
const box = (page: Page, name: string) => page.getByRole('checkbox', { name });

/** One tab locks the list; the edit of the other tab is taken back, visibly. */
async function isTakenBack(one: Page, other: Page): Promise<void> {
  await add(one, 'kept');
  await box(one, 'Lock').check();
  await box(other, 'Lock').and(other.locator(':checked')).waitFor();
  await box(other, 'Done: kept').click();
  await refusals(other).filter({ hasText: 'taken back: MESSAGE_DENIED' }).waitFor();
  assert.equal(await other.locator('.entry.refused').count(), 1, 'the entry is marked');
  assert.equal(await box(other, 'Done: kept').isChecked(), false, 'the edit is taken back');
}

test('the demo', async (t) => {
  const server = await Server.during(t, { withoutRules: true });
  const browser = await browserDuring(t);
  const tab = (inner: TestContext, options: TabOptions = {}): Promise<Page> => openTab(inner, browser, server, options);

  await t.test('two tabs see each other and the edits of the other one', async (inner) => {
    const [one, other] = [await tab(inner), await tab(inner)];
    await eventually(async () => (await people(one)).length === 2 && (await people(other)).length === 2, 'each sees two people');
    await add(one, 'milk');
    await box(other, 'Done: milk').check();
    await eventually(() => box(one, 'Done: milk').isChecked(), 'the first tab sees it done');
    await one.getByLabel('Text of the entry').fill('oat milk');
    await eventually(async () => (await entries(other))[0] === 'oat milk', 'the other tab sees the text');

    // Show where the other tab edits.
    await other.getByLabel('Text of the entry').focus();
    const cursor = one.locator('.cursor');
    await cursor.waitFor();
    const [name = ''] = await people(other);
    assert.equal(`${await cursor.textContent()} (you)`, name);

    await other.getByRole('button', { name: 'Remove: oat milk' }).click();
    await eventually(async () => (await entries(one)).length === 0, 'the first tab sees it removed');
    await other.context().close();
    await eventually(async () => (await people(one)).length === 1, 'the user who left disappears');
  });

  await t.test('a name that is changed is seen by others, and kept when the page is loaded again', async (inner) => {
    const [one, other] = [await tab(inner), await tab(inner)];
    await one.getByLabel('Your name').fill('Ada');
    await one.getByRole('button', { name: 'Change' }).click();
    await eventually(async () => (await people(other)).includes('Ada'), 'the other tab sees the name');
    assert.equal((await people(other)).length, 2);
    await one.reload();
    await connected(one);
    assert.equal((await people(one))[0], 'Ada (you)');
  });

  await t.test('an edit of a locked list shows, is refused, and goes back where it was made', async (inner) => {
    const [one, other] = [await tab(inner), await tab(inner)];
    await isTakenBack(one, other);
    await other.getByLabel('Text of the entry').fill('changed');
    await eventually(async () => (await entries(other))[0] === 'kept', 'the text is taken back');
    assert.deepEqual(await entries(one), ['kept']);
    assert.equal(await refusals(one).textContent(), '');
    await box(other, 'Lock').uncheck();
    await box(one, 'Lock').and(one.locator(':not(:checked)')).waitFor();
    await one.getByRole('button', { name: 'Remove: kept' }).click();
    await eventually(async () => (await entries(other)).length === 0, 'an unlocked list can be changed');
  });

  const faults: Array<[what: string, fault: Fault, reason: RegExp]> = [
    [
      'a refused edit stays in the page',
      {
        file: 'packages/client/src/record.ts',
        text: 'this.#fail(this.#edits.splice(0, 1), error);',
        instead: 'const gone = this.#edits.splice(0, 1); this.#base = applied(this.#base, gone); this.#fail(gone, error);',
      },
      /the edit is taken back/,
    ],
    [
      'the page does not mark the entry',
      { file: 'examples/demo/src/todo-list.tsx', text: 'new Set(ids).add(id)', instead: 'ids' },
      /the entry is marked/,
    ],
  ];
  for (const [what, fault, reason] of faults) {
    await t.test(`planted fault: ${what}`, ONLY_CHROMIUM, async (inner) => {
      const script = await planted(inner, 'examples/demo/src/main.tsx', fault, 'esm');
      const alone = await Server.during(inner, { withoutRules: true });
      const [one, other] = [await openTab(inner, browser, alone), await openTab(inner, browser, alone, { script })];
      await isFound(isTakenBack(one, other), reason);
    });
  }

  await t.test('names and texts of others appear as text, whatever they contain', async (inner) => {
    const page = await tab(inner);
    const stranger = client(inner, server.address, { auth: { username: MARKUP } });
    await stranger.connect();
    await stranger.record.set(LIST, { items: { [`t${MARKUP}`]: { text: MARKUP }, broken: 7, wrong: { text: {} } }, locked: 'no' });
    await eventually(async () => (await entries(page))[0] === MARKUP, 'the text is there');
    await eventually(async () => (await people(page)).includes(MARKUP), 'the name is there');
    stranger.event.emit('tidewire-demo/cursor', { user: MARKUP, row: `t${MARKUP}` });
    await page.locator('.cursor').filter({ hasText: MARKUP }).waitFor();
    for (const wrong of [null, 7, { user: 7 }, { user: 'x', row: {} }]) stranger.event.emit('tidewire-demo/cursor', wrong);
    await stranger.record.set('tidewire-demo/prices', { points: [MARKUP, 5, null] });
    await page.locator('.number').filter({ hasText: '5.00' }).waitFor();
    await provide(stranger.rpc, 'tidewire-demo/throw', () => ({ number: MARKUP, by: MARKUP })).ready;
    const thrown = page.locator('.result').filter({ hasText: MARKUP });
    await eventually(async () => {
      await page.getByRole('button', { name: 'Throw a die' }).click();
      return (await thrown.count()) === 1;
    }, 'the stranger throws');
    assert.equal(await page.locator('img').count(), 1);
    assert.equal(await page.title(), 'Tidewire demo');
    await stranger.record.set(LIST, {});
  });

  await t.test('prices change in all tabs, each made once', async (inner) => {
    const [one, other] = [await tab(inner), await tab(inner)];
    const observer = client(inner, server.address);
    await observer.connect();
    const seen = new Inbox<number[]>('prices');
    const record = observer.record.open('tidewire-demo/prices');
    record.subscribe((value) => seen.push((value as { points: number[] }).points));
    await seen.count(6);
    // Each price list is derived from the previous one, so no price was made twice. The first update drops values that are not numbers.
    const [first = 0, ...later] = seen.seen.map((points) => points.filter((point) => typeof point === 'number').length);
    for (const [i, count] of later.entries()) assert.equal(count, Math.min(first + 1 + i, 120));
    // The price changes while the test queries a page.
    const shown = (page: Page): Promise<string | null> => page.locator('.number').textContent();
    await eventually(async () => {
      const last = seen.seen.at(-1)?.at(-1)?.toFixed(2);
      return (await shown(one)) === last && (await shown(other)) === last;
    }, 'both tabs show the last price');
    record.close();
  });

  await t.test('a die is thrown by a tab', async (inner) => {
    const [one] = [await tab(inner), await tab(inner)];
    await one.getByRole('button', { name: 'Throw a die' }).click();
    await one.locator('.result').filter({ hasText: /threw [1-6]\.$/ }).waitFor();
  });

  await t.test('edits made while the server is down arrive when it is back', async (inner) => {
    const [one, other] = [await tab(inner), await tab(inner)];
    await add(one, 'before');
    await eventually(async () => (await entries(other))[0] === 'before', 'the entry is there');
    await server.kill();
    for (const page of [one, other]) await page.getByRole('status').filter({ hasText: 'connection lost' }).waitFor();
    await box(one, 'Done: before').check();
    await add(other, 'meanwhile');
    await server.start();
    for (const page of [one, other]) {
      await connected(page);
      await eventually(async () => (await entries(page)).join() === 'meanwhile,before', 'both edits are there');
      assert.equal(await box(page, 'Done: before').isChecked(), true);
      await eventually(async () => (await people(page)).length === 2, 'both are here again');
    }
    await one.getByRole('button', { name: 'Remove all' }).click();
    await eventually(async () => (await entries(other)).length === 0, 'the list is empty');
  });

  await t.test('a list of 1,000 entries scrolls smoothly while another user edits it', async (inner) => {
    const [one, other] = [await tab(inner), await tab(inner)];
    await one.getByRole('button', { name: 'Add 1,000' }).click();
    await other.getByText('800 of 1000 to do').waitFor();
    assert.ok((await entries(other)).length < 40, 'only rows that can be seen are in the page');
    // In a separate window: the browser draws a page behind another one only once a second.
    const window = await browser.newContext();
    atEnd(inner, () => window.close());
    const plain = await window.newPage();
    await plain.setContent(PLAIN_LIST);
    let isDone = false;
    const isSmooth = async (): Promise<boolean> => {
      isDone = !isDone;
      const editing = (async () => {
        for (let i = 1; i <= 10; i += 1) await box(one, `Done: Entry ${i} of 1000`).setChecked(isDone);
      })();
      let frames: number[] = [];
      const scroll = async (): Promise<void> => void (frames = await scrolling(other));
      // Other programs delay frames, but use no processor time of the page.
      const workMs = BROWSER === 'chromium' ? (await processorMs(other, scroll)) / frames.length : (await scroll(), Infinity);
      const [most, worst] = shares(frames, 0.95, 1);
      const [plainMost, plainWorst] = shares(await scrolling(plain), 0.95, 1);
      await editing;
      const text = (...ms: number[]): string => ms.map((each) => each.toFixed(1)).join(' and ');
      inner.diagnostic(
        `95% and all of the frames: within ${text(most, worst)} ms; of a plain list: within ${text(plainMost, plainWorst)} ms; ` +
          `processor time of a frame: ${text(workMs)} ms`,
      );
      return workMs <= FRAME_MS || (most <= Math.max(50, 3 * plainMost) && worst <= Math.max(250, 3 * plainWorst));
    };
    // WebKit has no graphics card here.
    if (BROWSER !== 'webkit') {
      await eventually(isSmooth, 'a way through the list is smooth');
      const slow = await other.evaluateHandle(SLOW_SCROLLING);
      // If the machine is busy with other work, the plain list may be as slow for a moment.
      await eventually(async () => !(await isSmooth()), 'the test finds a slow page');
      await slow.evaluate((controller: any) => controller.abort());
    }
    await scrolling(other);
    // The end of the list was reached.
    await other.getByRole('checkbox', { name: 'Done: Entry 1000 of 1000' }).waitFor();
    await one.getByRole('button', { name: 'Remove all' }).click();
    await other.getByText('0 of 0 to do').waitFor();
  });

  const needsPhone = { skip: BROWSER === 'webkit' && 'no window of WebKit is narrower than 447 pixels' };
  await t.test('a phone of 360 pixels shows all of it, and nothing scrolls sideways', needsPhone, async (inner) => {
    const page = await tab(inner, { viewport: { width: 360, height: 640 }, hasTouch: true, isMobile: true });
    await add(page, 'a text that is much too long for the row of a phone '.repeat(3));
    const name = MARKUP.slice(0, 24);
    await page.getByLabel('Your name').fill(name);
    await page.getByRole('button', { name: 'Change' })[TAP]();
    await eventually(async () => (await people(page))[0] === `${name} (you)`, 'the new name is there');
    assert.deepEqual(await page.evaluate(WIDE), []);
    // Check that `WIDE` detects an element that is too wide.
    await page.locator('h1').evaluate((element: any) => (element.style.minWidth = '420px'));
    assert.notDeepEqual(await page.evaluate(WIDE), []);
    await page.locator('h1').evaluate((element: any) => (element.style.minWidth = ''));
    for (const button of ['Throw a die', 'Add 1,000', 'Remove all']) await page.getByRole('button', { name: button })[TAP]();
    await page.locator('.result').filter({ hasText: 'threw' }).waitFor();
    await eventually(async () => (await entries(page)).length === 0, 'the list is empty');
  });
});
