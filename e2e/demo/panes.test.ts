// The demo at its first load: two users in one page, their edits, cursors and queues, the bots, and the links.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import type { Locator, Page } from 'playwright-core';
import { findings } from '../browser/axe.ts';
import { browserDuring, ONLY_CHROMIUM } from '../browser/page.ts';
import { client } from '../harness/driver/tidewire.ts';
import { isFound, planted, type Fault } from '../harness/planted.ts';
import { Server } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';
import { connected, isNothingLost, openTab, WIDE } from './tabs.ts';

/** The built page, which is embedded in the binary. */
const PAGE = join(import.meta.dirname, '../../crates/tidewire-http/pages/demo');

const you = (page: Page): Locator => page.getByRole('region', { name: 'You', exact: true });
const other = (page: Page): Locator => page.getByRole('region', { name: 'Another user', exact: true });
const note = (pane: Locator): Locator => pane.getByRole('note');

async function add(pane: Locator, text: string): Promise<void> {
  await pane.getByLabel('New entry').fill(text);
  await pane.getByRole('button', { name: 'Add', exact: true }).click();
}

function texts(pane: Locator): Promise<string[]> {
  return pane.locator('input.text').evaluateAll((fields) => fields.map((field: any) => field.value as string));
}

/** A user with a cut connection and the other user edit the list; after the return the page shows the merge. */
async function isMerged(page: Page): Promise<void> {
  await add(you(page), 'one');
  await eventually(async () => (await texts(other(page))).length === 1, 'the other user sees it');
  const connection = you(page).getByRole('switch', { name: 'Connection' });
  await connection.uncheck();
  await you(page).getByRole('status').filter({ hasText: 'connection lost' }).waitFor();
  await you(page).getByRole('checkbox', { name: 'Done: one' }).check();
  await add(you(page), 'two');
  await add(other(page), 'three');
  await eventually(async () => (await texts(other(page))).includes('three'), 'the edit shows where it was made');
  await note(other(page)).filter({ hasText: 'saved the last edit' }).waitFor();
  assert.match((await note(you(page)).textContent()) ?? '', /: 2 edits in the queue/, 'the edits wait');
  assert.equal(await you(page).locator('.ms').filter({ hasText: 'waits' }).count(), 2, 'the rows show that their edits wait');
  assert.deepEqual([await texts(you(page)), await texts(other(page))], [['two', 'one'], ['three', 'one']]);
  await connection.check();
  await note(you(page)).filter({ hasText: 'Restored' }).waitFor();
  assert.equal(await note(you(page)).textContent(), 'Restored: 2 edits sent and merged with 1 changed row of others.', 'the merge is counted');
}

test('the demo at its first load', async (t) => {
  const server = await Server.during(t, { withoutRules: true });
  const browser = await browserDuring(t);

  await t.test('an edit of one user appears at the other one, with its milliseconds', async (inner) => {
    const page = await openTab(inner, browser, server, { panes: 2 });
    await add(you(page), 'milk');
    await eventually(async () => (await texts(other(page))).join() === 'milk', 'the other user sees it');
    await you(page).locator('.ms').filter({ hasText: /^\d+ ms$/ }).waitFor();
    await note(you(page)).filter({ hasText: /saved the last edit after \d+ ms/ }).waitFor();
    await other(page).getByRole('button', { name: 'Remove all' }).click();
    await eventually(async () => (await texts(you(page))).length === 0, 'the list is empty');
  });

  await t.test('the cursor and the selection of the other user are drawn in the text', async (inner) => {
    const page = await openTab(inner, browser, server, { panes: 2 });
    await add(you(page), 'bread and butter');
    const field = other(page).getByLabel('Text of the entry');
    await field.click();
    await page.keyboard.press('Home');
    for (let i = 0; i < 5; i += 1) await page.keyboard.press('Shift+ArrowRight');
    const caret = you(page).locator('.caret');
    await eventually(async () => ((await caret.boundingBox())?.width ?? 0) > 20, 'five letters are marked');
    const [mark, text] = [await caret.boundingBox(), await you(page).locator('.field').boundingBox()];
    assert.ok(mark && text && mark.x >= text.x && mark.x + mark.width < text.x + text.width / 2, 'at the beginning of the text');
    await page.keyboard.press('End');
    await eventually(async () => ((await caret.boundingBox())?.width ?? 99) < 5, 'a cursor without a selection');
    await you(page).getByRole('button', { name: 'Remove all' }).click();
    await eventually(async () => (await texts(other(page))).length === 0, 'the list is empty');
  });

  await t.test('a cut connection shows its queue, and its return the merge', async (inner) => {
    const page = await openTab(inner, browser, server, { panes: 2 });
    await isMerged(page);
    for (const pane of [you(page), other(page)]) {
      await eventually(async () => (await texts(pane)).join() === 'three,two,one', 'both have all edits');
      assert.ok(await pane.getByRole('checkbox', { name: 'Done: one' }).isChecked());
    }
    await you(page).getByRole('button', { name: 'Remove all' }).click();
    await eventually(async () => (await texts(other(page))).length === 0, 'the list is empty');
  });

  const faults: Array<[what: string, fault: Fault, reason: RegExp]> = [
    [
      'the page does not count the rows that others changed',
      { file: 'examples/demo/src/edits.tsx', text: 'old.get(row.id) !== JSON.stringify(row)', instead: 'false' },
      /the merge is counted/,
    ],
    [
      'a user with a cut connection receives the edits of the other one',
      { file: 'examples/demo/src/pane.tsx', text: 'if (wanted) cable.cut();', instead: 'if (wanted) setState("waiting");' },
      /the edits wait/,
    ],
  ];
  for (const [what, fault, reason] of faults) {
    await t.test(`planted fault: ${what}`, ONLY_CHROMIUM, async (inner) => {
      const script = await planted(inner, 'examples/demo/src/main.tsx', fault, 'esm');
      const alone = await Server.during(inner, { withoutRules: true });
      await isFound(isMerged(await openTab(inner, browser, alone, { panes: 2, script })), reason);
    });
  }

  await t.test('bots publish, and the p99 of their events is at the top of the page', async (inner) => {
    const page = await openTab(inner, browser, server, { panes: 2 });
    await page.getByRole('button', { name: 'Start 1,000 bots' }).click();
    await page.locator('.top .p99').filter({ hasText: /^p99 \d+\.\d ms$/ }).waitFor();
    // 10 connections receive 500 events a second; a busy machine makes fewer.
    const rate = async (): Promise<number> => {
      const [, deliveries = '0'] = /^([\d,]+) deliveries/.exec((await page.locator('.figures').textContent()) ?? '') ?? [];
      return Number(deliveries.replaceAll(',', ''));
    };
    await eventually(async () => (await rate()) > 1_000, 'the bots publish');
    await page.getByRole('button', { name: 'Stop the bots' }).click();
    await eventually(async () => (await page.locator('.top .p99').count()) === 0, 'the figure is gone');
  });

  await t.test('a button kills the server and starts it again, and the page shows that no acknowledged edit is lost', async (inner) => {
    const alone = await Server.during(inner, { withoutRules: true });
    const page = await openTab(inner, browser, alone, { panes: 2 });
    for (let time = 1; time <= 2; time += 1) {
      const ms = await isNothingLost(page);
      assert.ok(ms >= 1 && ms < 10_000, `${ms} ms`);
      await alone.prints(new RegExp(`(ready on[^]*){${time + 1}}`));
      await connected(page, 2);
      await add(you(page), `after ${time}`);
      await eventually(async () => (await texts(other(page))).includes(`after ${time}`), 'both users go on');
    }
    const observer = client(inner, alone.address);
    await observer.connect();
    await eventually(async () => Object.keys((await observer.record.get('tidewire-demo/crash')) as object).length === 0, 'the edits are removed');
  });

  await t.test('planted fault: an edit that was acknowledged disappears', ONLY_CHROMIUM, async (inner) => {
    const fault = {
      file: 'examples/demo/src/crash.tsx',
      text: 'await Promise.race([handle.saved(), failed]);',
      instead: "handle.set([run, '1'], undefined); await handle.saved();",
    };
    const script = await planted(inner, 'examples/demo/src/main.tsx', fault, 'esm');
    const alone = await Server.during(inner, { withoutRules: true });
    await isFound(isNothingLost(await openTab(inner, browser, alone, { panes: 2, script })), /nothing is lost/);
  });

  await t.test('a server that keeps its records in memory refuses to crash, and the page shows why', async (inner) => {
    const alone = await Server.during(inner, { withoutRules: true, store: { kind: 'memory' } });
    const page = await openTab(inner, browser, alone, { panes: 2, refused: 409 });
    await page.getByRole('button', { name: 'Kill the server' }).click();
    await page.locator('.crash').filter({ hasText: 'a crash would lose them' }).waitFor();
    await page.getByRole('button', { name: 'Kill the server' }).and(page.locator('[aria-disabled="false"]')).waitFor();
  });

  await t.test('only development mode ends the server, only for programs of this machine and for its own pages', async (inner) => {
    const crash = (to: Server, headers: Record<string, string> = {}, method = 'POST') => fetch(`http://${to.address}/crash`, { method, headers });
    const production = await Server.during(inner, { withoutRules: true, dev: false });
    assert.equal((await crash(production)).status, 404);
    assert.equal((await crash(server, {}, 'GET')).status, 405);
    const foreign: Array<Record<string, string>> = [{ origin: 'http://localhost:1' }, { origin: 'null' }, { 'sec-fetch-site': 'same-site' }, { 'x-forwarded-for': '203.0.113.7' }];
    for (const headers of foreign) assert.equal((await crash(server, headers)).status, 403, JSON.stringify(headers));
    await Promise.all([production, server].map(async (each) => assert.ok((await each.get('/health')).ok)));
    assert.ok(!/ready on[^]*ready on/.test(server.output), 'no refused request has ended the server');
  });

  await t.test('each card has its code, and the page leads to the documentation, the admin page, the source and a phone', async (inner) => {
    const page = await openTab(inner, browser, server, { panes: 2 });
    const codes = page.locator('.code');
    assert.equal(await codes.count(), 5);
    for (const code of await codes.all()) {
      assert.ok(await code.locator('pre').isVisible(), 'a wide page shows the code');
      const lines = ((await code.locator('pre').textContent()) ?? '').split('\n');
      assert.ok(lines.length >= 8 && lines.length <= 13, `${lines.length} lines`);
    }
    const links = page.getByRole('navigation', { name: 'More' }).getByRole('link');
    const targets = await links.evaluateAll((all) => all.map((link: any) => link.getAttribute('href') as string));
    assert.deepEqual(targets, ['/docs/', '/admin/', 'https://github.com/tidewire/tidewire']);
    for (const path of ['/docs/', '/admin/']) assert.equal((await fetch(`http://${server.address}${path}`)).status, 200, path);
    await page.getByText('On your phone').click();
    await page.getByRole('img', { name: `QR code of http://${server.address}/?panes=1` }).waitFor();
  });

  await t.test('the page has at most 80 KB with gzip', () => {
    const files = readdirSync(PAGE).map((name) => [name, gzipSync(readFileSync(join(PAGE, name))).length] as const);
    const total = files.reduce((sum, [, size]) => sum + size, 0);
    assert.ok(total > 10_000 && total <= 80_000, `${total} bytes: ${JSON.stringify(files)}`);
  });

  for (const colorScheme of ['light', 'dark'] as const) {
    for (const width of [360, 1_440]) {
      await t.test(`in ${colorScheme} at ${width} pixels axe-core finds nothing, and nothing scrolls sideways`, ONLY_CHROMIUM, async (inner) => {
        const page = await openTab(inner, browser, server, { panes: 2, colorScheme, viewport: { width, height: 900 } });
        await isNothingLost(page);
        await connected(page, 2);
        await add(you(page), 'an entry with a text that is much longer than the row of a phone');
        await other(page).getByLabel('Text of the entry').first().click();
        await you(page).locator('.caret').waitFor({ state: 'attached' });
        await you(page).getByRole('switch').uncheck();
        await add(you(page), 'queued');
        await note(you(page)).filter({ hasText: '1 edit in the queue' }).waitFor();
        const closed = page.locator('details:not([open]) > summary');
        while ((await closed.count()) > 0) await closed.first().click();
        if (process.env['DEMO_SHOTS']) await page.screenshot({ path: `${process.env['DEMO_SHOTS']}/${colorScheme}-${width}.png`, fullPage: true });
        assert.deepEqual(await findings(page), []);
        assert.deepEqual(await page.evaluate(WIDE), []);
        await you(page).getByRole('switch').check();
        await note(you(page)).filter({ hasText: 'Restored: 1 edit sent' }).waitFor();
        await you(page).getByRole('button', { name: 'Remove all' }).click();
        await eventually(async () => (await texts(other(page))).length === 0, 'the list is empty');
      });
    }
  }
});
