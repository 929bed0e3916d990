// The admin page in Chromium: sign-in, all views and actions, on a phone, by keyboard alone, and that it never runs a name as markup.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Page, Route } from 'playwright-core';
import { findings } from '../browser/axe.ts';
import { browserDuring, servePage } from '../browser/page.ts';
import { Operator, shownKey } from '../harness/admin-page.ts';
import { connect } from '../harness/client.ts';
import { Server } from '../harness/server.ts';
import { Inbox, eventually } from '../harness/wait.ts';
import { VIEWS, enter, openPage, overflow, row, table, view } from './page.ts';
import { Unguarded } from './unguarded.ts';

/** A name that would run as a script if it became markup, and that has no place for a line break. */
const EVIL = `<img src=x onerror="document.title='broken'">${'x'.repeat(120)}`;

const RULES = `
record: { "*": { create: true, read: true, write: "user.id === 'alice'", delete: true, listen: true } }
event: { "*": { publish: true, subscribe: true, listen: true } }
rpc: { "*": { provide: true, request: true } }
presence: { "*": { allow: true } }
`;

/** A server with content in every view; all names are as hostile as possible. */
async function peopled(t: Parameters<typeof Server.during>[0]): Promise<Server> {
  const server = await Server.during(t, { permissions: RULES });
  const client = await connect(t, server, { login: { username: EVIL } });
  client.event.subscribe(EVIL, () => {});
  client.rpc.provide(EVIL, (data: unknown, response: { send(data: unknown): void }) => response.send(data));
  const record = client.record.getRecord(EVIL);
  await record.whenReady();
  const operator = await Operator.of(server);
  assert.ok((await operator.fetch('PUT', `/records/${encodeURIComponent(EVIL)}`, { html: EVIL, n: 1 })).ok);
  assert.ok((await operator.fetch('POST', '/v1/revocations', { user: `revoked ${EVIL}` })).ok);
  return server;
}

/** Opens the record with the hostile name and presses the buttons of other views, so that all parts of the page are visible. */
async function unfold(page: Page, name: string): Promise<void> {
  if (name === 'Records') {
    await row(page, 'Records', EVIL).click();
    await page.getByRole('button', { name: 'Save' }).waitFor();
  } else if (name === 'Try out') {
    await page.getByLabel('Name').fill(EVIL);
    await page.getByRole('button', { name: 'Do it' }).click();
    await page.getByRole('list', { name: 'Outcomes' }).getByRole('listitem').filter({ hasText: 'published' }).waitFor();
  } else if (name === 'Rules') {
    await page.getByLabel('User id').fill(EVIL);
    await page.getByLabel('Name', { exact: true }).fill(EVIL);
    await page.getByRole('button', { name: 'Explain' }).click();
    await page.getByText('allowed', { exact: true }).waitFor();
  } else if (name === 'Names') {
    await row(page, 'Names', EVIL).first().waitFor();
  } else if (name === 'Connections') {
    await row(page, 'Connections', EVIL).click();
    await page.getByRole('group', { name: 'One connection' }).getByRole('button', { name: 'Close' }).waitFor();
  } else if (name === 'Providers') {
    await row(page, 'Providers', EVIL).waitFor();
  } else if (name === 'Live tail') {
    await page.getByRole('button', { name: 'Follow' }).click();
    await page.getByText('Following').waitFor();
  } else if (name === 'Revoke') {
    await row(page, 'Revocations', EVIL).waitFor();
  }
}

describe('the admin page', { concurrency: 3 }, () => {
  test('takes the key out of the address, keeps a cookie that scripts can not read, and signs out', async (t) => {
    const [server, browser] = [await Server.during(t), await browserDuring(t)];
    const page = await enter(t, browser, server);
    assert.equal(page.url(), `http://${server.address}/admin/`);
    const [cookie] = await page.context().cookies();
    assert.deepEqual([cookie?.httpOnly, cookie?.sameSite, cookie?.path], [true, 'Strict', '/admin']);
    assert.equal(await page.evaluate(() => (globalThis as any).document.cookie), '');
    await page.reload();
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByLabel('Key').fill('wrong');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('the key is wrong').waitFor();
    await page.getByLabel('Key').fill(await shownKey(server));
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    const answer = await server.get('/admin/');
    const policy = answer.headers.get('content-security-policy') ?? '';
    for (const part of ["default-src 'self'", "frame-ancestors 'none'"]) assert.ok(policy.includes(part), policy);
    assert.ok(!policy.includes('unsafe'), policy);
  });

  test('a page of another port, with whose requests the browser sends the cookie, changes nothing', async (t) => {
    const [server, browser] = [await Server.during(t), await browserDuring(t)];
    const page = await enter(t, browser, server);
    const port = await servePage(t);
    const operator = await Operator.of(server);
    const revoked = async (): Promise<string[]> => (await operator.ask('GET', '/v1/revocations')).revocations.map(({ name }: { name: string }) => name);
    /** Makes a page in the operator's browser request a revocation; returns the server's response and the revoked users. */
    const attack = async (unguarded: Record<string, string | undefined> | undefined): Promise<[number, string, string[]]> => {
      const between = await Unguarded.during(t, server, unguarded);
      const evil = await page.context().newPage();
      await evil.goto(`http://127.0.0.1:${port}/`);
      await evil.evaluate(async (url) => {
        await fetch(url, { method: 'POST', mode: 'no-cors', credentials: 'include', body: '{"user":"mallory"}' });
      }, `http://${between.address}/admin/api/v1/revocations`);
      await evil.close();
      const [status, code] = await between.answer;
      return [status, code, await revoked()];
    };
    assert.deepEqual(await attack(undefined), [403, 'FOREIGN_PAGE', []]);
    // A browser that does not send its page's origin, and any content type: only the token protects.
    const silent = { origin: undefined, 'sec-fetch-site': undefined, 'content-type': 'application/json' };
    assert.deepEqual(await attack(silent), [403, 'TOKEN', []]);
    // Planted fault: the server seems to ignore the token. The cookie then suffices, and the test detects it.
    const token = await page.evaluate(async () => ((await (await fetch('api/session')).json()) as { token: string }).token);
    assert.deepEqual(await attack({ ...silent, 'x-admin-token': token }), [201, '', ['mallory']]);
  });

  test('plots the metrics, and continues when the server is back', async (t) => {
    const [server, browser] = [await Server.during(t), await browserDuring(t)];
    const page = await enter(t, browser, server);
    const plot = page.getByRole('img', { name: /^Connections: open 0$/ });
    await plot.waitFor();
    const client = await connect(t, server, { login: {} });
    await page.getByRole('img', { name: /^Connections: open 1$/ }).waitFor();
    client.close();
    await eventually(async () => (await page.locator('canvas').count()) === 9, 'all plots are visible');
    const inked = (): Promise<number> => page.locator('canvas').first().evaluate((canvas: any) => {
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      return data.filter((value: number) => value > 0).length;
    });
    await eventually(async () => (await inked()) > 0, 'something is drawn');
    await server.stop();
    await page.getByText('the server does not answer').waitFor();
    await server.start();
    // The restarted server has a new key.
    await page.getByLabel('Key').waitFor();
  });

  test('edits a record at the version that was read, and shows the edits of others', async (t) => {
    const [server, browser] = [await Server.during(t), await browserDuring(t)];
    const operator = await Operator.of(server);
    assert.equal((await operator.fetch('PUT', '/records/a/1', { n: 1 })).status, 201);
    const page = await enter(t, browser, server);
    await view(page, 'Records');
    await page.getByLabel('Name, or its beginning').fill('a/');
    await row(page, 'Records', 'a/1').click();
    const field = page.getByLabel('Value as JSON');
    await eventually(async () => (await field.inputValue()).includes('"n": 1'), 'the value is shown');
    await field.fill('{"n": 2}');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Saved.').waitFor();
    assert.deepEqual(await (await operator.fetch('GET', '/records/a/1')).json(), { n: 2 });
    assert.equal((await operator.fetch('PUT', '/records/a/1', { n: 3 })).status, 204);
    await page.locator('pre').filter({ hasText: '"n": 3' }).waitFor();
    await field.fill('{"n": 4}');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('The record has changed').waitFor();
    await page.getByRole('button', { name: 'Load anew' }).click();
    await eventually(async () => (await field.inputValue()).includes('"n": 3'), 'the newer value is shown');
    await page.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await eventually(async () => (await operator.fetch('GET', '/records/a/1')).status === 404, 'it is deleted');
  });

  test('shows the latest request, even if the answer to an earlier request arrives later', async (t) => {
    const [server, browser] = [await Server.during(t), await browserDuring(t)];
    const operator = await Operator.of(server);
    for (const username of ['alice', 'bob']) {
      await connect(t, server, { login: { username } });
      assert.ok((await operator.fetch('PUT', `/records/${username}`, {})).ok);
    }
    const page = await enter(t, browser, server);
    for (const [name, label, list] of [['Connections', 'User or address', 'Connections'], ['Records', 'Name, or its beginning', 'Records']] as const) {
      await view(page, name);
      const rows = table(page, list).getByRole('rowheader');
      const held = new Inbox<Route>('requests that wait');
      await page.route(/=alice\b/, held.push, { times: 1 });
      await page.getByLabel(label).fill('alice');
      const route = await held.next();
      await page.getByLabel(label).fill('bob');
      await rows.filter({ hasText: 'alice' }).waitFor({ state: 'detached' });
      const late = page.waitForResponse(route.request().url());
      await route.continue();
      await (await late).finished();
      // The page renders the result by the second frame.
      await page.evaluate(() => {
        const { requestAnimationFrame: frame } = globalThis as any;
        return new Promise((drawn) => frame(() => frame(drawn)));
      });
      assert.deepEqual(await rows.allTextContents(), ['bob'], name);
    }
  });

  test('shows names, values and user ids as text, and works at 360 x 640 with touch', async (t) => {
    const [server, browser] = [await peopled(t), await browserDuring(t)];
    const page = await enter(t, browser, server, { viewport: { width: 360, height: 640 }, hasTouch: true, isMobile: true });
    for (const name of VIEWS) {
      await page.getByRole('navigation').getByRole('link', { name, exact: true }).tap();
      await unfold(page, name);
      assert.deepEqual(await overflow(page), { by: 0, wide: [] }, name);
      for (const button of await page.locator('button:visible, input:visible, select:visible, textarea:visible').all()) {
        await button.scrollIntoViewIfNeeded();
        const box = await button.boundingBox();
        assert.ok(box && box.height >= 24 && box.x >= 0 && box.x + box.width <= 360, `${name}: ${await button.textContent()} ${JSON.stringify(box)}`);
      }
      assert.equal(await page.locator('img').count(), 0, name);
    }
    assert.equal(await page.title(), 'Revoke · Tidewire admin');
    // Check that `overflow` detects an element that is too wide.
    await page.locator('h1').evaluate((element: any) => (element.style.minWidth = '420px'));
    assert.ok((await overflow(page)).wide.length > 0);
  });

  for (const colorScheme of ['light', 'dark'] as const) {
    test(`axe-core finds nothing in any view, ${colorScheme}`, async (t) => {
      const [server, browser] = [await peopled(t), await browserDuring(t)];
      const door = await openPage(t, browser, `http://${server.address}/admin/`, { colorScheme });
      await door.getByLabel('Key').waitFor();
      assert.deepEqual(await findings(door), []);
      const page = await enter(t, browser, server, { colorScheme });
      for (const name of VIEWS) {
        await view(page, name);
        await unfold(page, name);
        assert.deepEqual(await findings(page), [], name);
      }
    });
  }

  test('is usable by keyboard alone', async (t) => {
    const [server, browser] = [await peopled(t), await browserDuring(t)];
    const page = await openPage(t, browser, `http://${server.address}/admin/`);
    const focused = (): Promise<string> => page.evaluate(() => {
      const element = (globalThis as any).document.activeElement;
      return (element.labels?.[0] ?? element).textContent.trim();
    });
    const reach = async (text: string): Promise<void> => {
      for (let presses = 0; presses < 60; presses++) {
        await page.keyboard.press('Tab');
        if ((await focused()).startsWith(text)) return;
      }
      assert.fail(`Tab does not reach ${text}`);
    };
    await page.getByLabel('Key').waitFor();
    await reach('Key');
    await page.keyboard.type(await shownKey(server));
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    for (const name of VIEWS) {
      await reach(name);
      await page.keyboard.press('Enter');
      await page.getByRole('navigation').locator('[aria-current]', { hasText: name }).waitFor();
    }
    await reach('Records');
    await page.keyboard.press('Enter');
    await reach('Name, or its beginning');
    await page.keyboard.type('by/keyboard');
    await page.keyboard.press('Enter');
    await page.getByText('The record does not exist').waitFor();
    await reach('Save');
    await page.keyboard.press('Enter');
    await page.getByText('Saved.').waitFor();
    const operator = await Operator.of(server);
    assert.deepEqual(await (await operator.fetch('GET', '/records/by%2Fkeyboard')).json(), {});
  });
});
