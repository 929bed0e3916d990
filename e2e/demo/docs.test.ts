// The documentation that the binary serves, in a real browser: light and dark, wide and narrow, and only at the configured path.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findings } from '../browser/axe.ts';
import { browserDuring } from '../browser/page.ts';
import { Server } from '../harness/server.ts';

const PAGES = ['', 'configuration.html', 'errors.html', 'stores.html', 'decisions/', 'spec/deepstream.html'];
const PHONE = { width: 360, height: 640 };

test('the documentation', async (t) => {
  const server = await Server.during(t, { withoutRules: true });
  await server.prints(/docs +http:.*\/docs\//);
  const browser = await browserDuring(t);

  for (const [colorScheme, viewport] of [['light', { width: 1280, height: 800 }], ['dark', PHONE]] as const) {
    await t.test(`is accessible in ${colorScheme}, ${viewport.width} pixels wide, and nothing scrolls sideways`, async () => {
      const page = await browser.newPage({ colorScheme, viewport });
      const complaints: string[] = [];
      page.on('console', (message) => complaints.push(message.text()));
      for (const place of PAGES) {
        await page.goto(`http://${server.address}/docs/${place}`);
        assert.deepEqual(await findings(page), [], place);
        const widths = await page.evaluate<number[]>('[document.documentElement.scrollWidth, document.documentElement.clientWidth]');
        assert.ok((widths[0] ?? 0) <= (widths[1] ?? 0), `${place}: ${widths}`);
      }
      assert.deepEqual(complaints, []);
      await page.close();
    });
  }

  await t.test('leads from page to page', async () => {
    const page = await browser.newPage();
    await page.goto(`http://${server.address}/docs`);
    await page.getByRole('navigation', { name: 'Documents' }).getByRole('link', { name: 'Stores', exact: true }).click();
    await page.getByRole('heading', { level: 1, name: 'Stores' }).waitFor();
    await page.getByRole('navigation', { name: 'On this page' }).getByRole('link', { name: 'PostgreSQL' }).click();
    assert.match(page.url(), /\/docs\/stores\.html#postgresql$/);
    await page.close();
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
