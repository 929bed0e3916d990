// The documentation that the binary serves, in a real browser: light and dark, wide and narrow, its search, and only at the configured
// path.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Page } from 'playwright-core';
import { overflow } from '../admin/page.ts';
import { findings } from '../browser/axe.ts';
import { browserDuring } from '../browser/page.ts';
import { REPOSITORY } from '../documents/block.ts';
import { Server } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';

/** Pages with all kinds of content. */
const VARIED = ['', 'tutorial', 'configuration', 'errors', 'troubleshooting', 'decisions/', 'spec/deepstream'];
/** Whether axe-core examines all pages in each theme and width, as in `make proof-docs`, or only the varied ones. */
const IS_FULL = process.env['DOCS_PAGES'] === 'all';
const WIDE = { width: 1440, height: 900 };
const PHONE = { width: 360, height: 640 };
/** The most that a page loads, compressed, before its reader searches. */
const PAGE_KB_MAX = 60;
/** The hits among which the page that answers a question must be. */
const HITS = 3;
const QUESTIONS = JSON.parse(readFileSync(join(REPOSITORY, 'e2e/documents/questions.json'), 'utf8')) as { question: string; page: string }[];

const search = (page: Page) => page.getByRole('search');
const field = (page: Page) => page.getByRole('searchbox', { name: 'Search the documentation' });

test('the documentation', async (t) => {
  const server = await Server.during(t, { withoutRules: true });
  await server.prints(/docs +http:.*\/docs\//);
  const browser = await browserDuring(t);
  const at = (path: string): string => `http://${server.address}/docs/${path}`;
  const first = await browser.newPage();
  await first.goto(at(''));
  const menu = await first.getByRole('navigation', { name: 'Documents' }).getByRole('link').evaluateAll(
    (links: any[]) => links.map((link) => new URL(link.href).pathname.replace(/^\/docs\//, '')),
  );
  await first.close();
  assert.ok(menu.length > 40, `${menu.length} pages`);

  const pages = IS_FULL ? menu : VARIED;
  for (const [colorScheme, viewport] of [['light', PHONE], ['dark', WIDE], ['light', WIDE], ['dark', PHONE]] as const) {
    await t.test(`is accessible in ${colorScheme}, ${viewport.width} pixels wide, and nothing scrolls sideways`, async () => {
      const page = await browser.newPage({ colorScheme, viewport });
      const complaints: string[] = [];
      page.on('console', (message) => complaints.push(message.text()));
      page.on('pageerror', (error) => complaints.push(String(error)));
      for (const place of pages) {
        await page.goto(at(place));
        assert.deepEqual(await findings(page), [], place);
        assert.ok((await overflow(page)).by <= 0, place);
      }
      await field(page).fill('record');
      await search(page).getByRole('link').first().waitFor();
      assert.deepEqual(await findings(page), [], 'with hits');
      assert.ok((await overflow(page)).by <= 0, 'with hits');
      assert.deepEqual(complaints, []);
      t.diagnostic(`${pages.length} pages in ${colorScheme}, ${viewport.width} pixels wide`);
      await page.close();
    });
  }

  await t.test('no page scrolls sideways on a phone', async () => {
    const page = await browser.newPage({ viewport: PHONE });
    for (const place of menu) {
      await page.goto(at(place));
      assert.ok((await overflow(page)).by <= 0, place);
    }
    await page.close();
  });

  await t.test('leads from page to page, and old addresses to the new ones', async () => {
    const page = await browser.newPage({ viewport: WIDE });
    await page.goto(at(''));
    await page.getByRole('navigation', { name: 'Documents' }).getByRole('link', { name: 'Stores', exact: true }).click();
    await page.getByRole('heading', { level: 1, name: 'Stores' }).waitFor();
    await page.getByRole('navigation', { name: 'On this page' }).getByRole('link', { name: 'PostgreSQL' }).click();
    assert.equal(page.url(), at('stores#postgresql'));
    await page.goto(at('stores.html#postgresql'));
    assert.equal(page.url(), at('stores#postgresql'));
    await page.goto(at('index.html'));
    assert.equal(page.url(), at(''));
    await page.goto(at('records'));
    await page.getByRole('link', { name: /^Next/ }).click();
    await page.getByRole('heading', { level: 1, name: 'Data modelling' }).waitFor();
    await page.getByRole('link', { name: /^Previous/ }).click();
    await page.getByRole('heading', { level: 1, name: 'Records' }).waitFor();
    await page.getByRole('heading', { level: 2, name: 'Writing' }).getByRole('link').click();
    assert.equal(page.url(), at('records#writing'));
    await page.close();
  });

  await t.test('keeps menu and outline in view, and marks the section in view', async () => {
    const page = await browser.newPage({ viewport: WIDE });
    await page.goto(at('operations#tls'));
    for (const name of ['Documents', 'On this page']) {
      const box = await page.getByRole('navigation', { name }).boundingBox();
      assert.ok(box !== null && box.y >= 0 && box.y < WIDE.height / 3, `${name}: ${JSON.stringify(box)}`);
    }
    const current = page.locator('.outline [aria-current]');
    await eventually(async () => (await current.allTextContents()).join() === 'TLS', 'the section is marked');
    await page.close();
  });

  await t.test(`each page loads at most ${PAGE_KB_MAX} KB`, async () => {
    const page = await browser.newPage({ viewport: WIDE });
    const bytesOf = (type: 'navigation' | 'resource'): Promise<number> =>
      page.evaluate(`performance.getEntriesByType('${type}').reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0)`);
    // All pages have the same scripts and styles. The browser reports their sizes only where it has not cached them.
    await page.goto(at(''));
    const shared = await bytesOf('resource');
    assert.ok(shared > 4_000, `${shared} bytes of scripts and styles`);
    let largest = { place: '', bytes: 0 };
    for (const place of menu) {
      await page.goto(at(place));
      const bytes = shared + (await bytesOf('navigation'));
      assert.ok(bytes > shared, place);
      if (bytes > largest.bytes) largest = { place, bytes };
    }
    t.diagnostic(`the largest page is ${largest.place}, ${largest.bytes} bytes with scripts and styles`);
    assert.ok(largest.bytes <= PAGE_KB_MAX * 1024);
    await page.close();
  });

  await t.test(`finds the page for each of ${QUESTIONS.length} questions among the first ${HITS} hits`, async () => {
    const page = await browser.newPage({ viewport: WIDE });
    await page.goto(at(''));
    await field(page).fill('records');
    await search(page).getByRole('link').first().waitFor();
    const missed: string[] = [];
    for (const { question, page: expected } of QUESTIONS) {
      await field(page).fill(question);
      const links = await search(page).getByRole('link').evaluateAll((found: any[]) => found.map(({ href }) => new URL(href).pathname));
      const places = links.slice(0, HITS).map((path) => path.replace(/^\/docs\//, ''));
      if (!places.includes(expected)) missed.push(`${question}: ${places.join(', ')}; not ${expected}`);
    }
    assert.deepEqual(missed, []);
    assert.ok(QUESTIONS.length >= 20);
    await field(page).fill('xyzzyplugh');
    await search(page).getByText('No page has these words.').waitFor();
    await page.close();
  });

  await t.test('searches by keyboard alone', async () => {
    const page = await browser.newPage({ viewport: WIDE });
    await page.goto(at('spec/deepstream'));
    await page.keyboard.press('/');
    await page.keyboard.type('presenc');
    await search(page).getByRole('link').first().waitFor();
    await page.keyboard.press('Escape');
    assert.equal(await search(page).getByRole('link').count(), 0);
    await page.keyboard.type('e');
    await search(page).getByRole('link').first().waitFor();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowUp');
    const focused = await page.evaluate<string>('document.activeElement.textContent');
    assert.match(focused, /Presence/);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'Presence' }).waitFor();
    await page.keyboard.press('/');
    await page.keyboard.type('glossary');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'Glossary' }).waitFor();
    await page.close();
  });

  await t.test('copies code, and of a terminal only the commands', async () => {
    const context = await browser.newContext({ viewport: WIDE, permissions: ['clipboard-read', 'clipboard-write'] });
    const page = await context.newPage();
    const copied = async (place: string, language: string): Promise<string> => {
      await page.goto(at(place));
      const block = page.locator('.code').filter({ has: page.locator(`.language-${language}`) }).first();
      await block.getByRole('button', { name: 'Copy' }).click();
      await block.getByRole('button', { name: 'Copied' }).waitFor();
      return page.evaluate<string>('navigator.clipboard.readText()');
    };
    assert.match(await copied('records', 'ts'), /^import \{ Client \} from '@tidewire\/client'\n[\s\S]*desk\.close\(\)\n$/);
    assert.equal(await copied('permissions', 'console'), 'tidewire rules explain record.write profile/bob --user ann\n');
    await context.close();
  });

  await t.test('is complete without scripts', async () => {
    const context = await browser.newContext({ javaScriptEnabled: false, viewport: PHONE });
    const page = await context.newPage();
    await page.goto(at('records'));
    assert.equal(await page.getByRole('searchbox').count(), 0);
    await page.getByRole('link', { name: 'Menu' }).click();
    await page.getByRole('navigation', { name: 'Documents' }).getByRole('link', { name: 'Events', exact: true }).click();
    await page.getByRole('heading', { level: 1, name: 'Events' }).waitFor();
    await context.close();
  });
});

test('the documentation is at another path only if the options say so', async (t) => {
  const status = async (...launcher: string[]): Promise<number> => {
    const server = await Server.during(t, { withoutRules: true, launcher: ['env', ...launcher] });
    return (await fetch(`http://${server.address}/docs/`)).status;
  };
  assert.equal(await status('TIDEWIRE_PAGES__DOCS=never'), 404);
  assert.equal(await status('TIDEWIRE_DEV=false'), 404);
  assert.equal(await status('TIDEWIRE_DEV=false', 'TIDEWIRE_PAGES__DOCS=always'), 200);
});
