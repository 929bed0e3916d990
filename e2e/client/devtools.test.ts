// The panel of `@tidewire/client/devtools` in Chromium, under a strict policy: messages, pending edits, retries, merges and refusals.

import assert from 'node:assert/strict';
import { resolve } from 'node:path';
import { test } from 'node:test';
import type { Page } from 'playwright-core';
import { browserDuring, ONLY_CHROMIUM, openPage, servePage } from '../browser/page.ts';
import { client } from '../harness/driver/tidewire.ts';
import { fresh } from '../harness/names.ts';
import { Proxy } from '../harness/proxy.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';

const SCRIPT = resolve(import.meta.dirname, '../../packages/client/dist/tidewire-all.min.js');
const POLICY = "default-src 'none'; script-src 'self'; connect-src ws: http:";

/** The rows of a view of the panel. */
async function rowsOf(page: Page, view: string): Promise<string[]> {
  const panel = page.getByRole('region', { name: 'Tidewire devtools' });
  await panel.getByRole('button', { name: view }).click();
  return panel.locator('tbody tr').allInnerTexts();
}

const shows = async (page: Page, view: string, ...texts: string[]): Promise<void> => {
  await eventually(async () => (await rowsOf(page, view)).some((row) => texts.every((text) => row.includes(text))), `${view} shows ${texts.join(' ')}`);
};

test('the panel shows what the client does', ONLY_CHROMIUM, async (t) => {
  const port = await servePage(t, { script: SCRIPT, policy: POLICY });
  const rules = JSON.stringify({
    presence: { '*': { allow: true } },
    event: { '*': { publish: true, subscribe: true, listen: true } },
    rpc: { '*': { provide: true, request: true } },
    record: { '*': { create: true, read: true, write: true, delete: true, listen: true, notify: true }, locked: { write: false } },
  });
  const server = await Server.during(t, { origins: ['*'], permissions: rules });
  const proxy = await Proxy.during(t, server);
  const page = await openPage(await browserDuring(t), 'localhost', port);
  const name = fresh('todo');
  await page.evaluate(
    async ([url, record]) => {
      const { Client, showDevtools } = (globalThis as any).Tidewire;
      const made = new Client(url, { reconnectMinMs: 20, reconnectMaxMs: 100, heartbeatIntervalMs: 200, staleAfterMs: 200 });
      Object.assign(globalThis, { client: made, hideDevtools: showDevtools(made) });
      made.onError(() => {});
      await made.connect();
      const todo = made.record.open(record);
      Object.assign(globalThis, { todo });
      await todo.setWithAck({ title: '<b>milk</b>' });
      await made.record.set('locked', {}).catch(() => {});
    },
    [proxy.address, name] as const,
  );
  await shows(page, 'messages', '→', 'record update', name, '<b>milk</b>');
  await shows(page, 'refusals', 'MESSAGE_DENIED', 'locked', 'permissions.yml:1:', '"locked" write: false');
  // The answers of the server are held back: the edit is pending, another client writes first, and the write is repeated and merged.
  proxy.silence('answers');
  await page.evaluate(() => (globalThis as any).todo.set('done', true));
  await shows(page, 'pending', name, 'done', 'true', 'yes');
  const other = client(t, server.address);
  await within(DEADLINE_MS, other.connect(), 'login');
  proxy.silence();
  await page.evaluate(() => (globalThis as any).todo.set('title', 'bread'));
  const theirs = other.record.open(name);
  await within(DEADLINE_MS, theirs.ready, 'the record');
  await theirs.setWithAck('by', 'other');
  proxy.restore();
  await eventually(() => page.evaluate(() => (globalThis as any).todo.isSaved as boolean), 'the edits are saved');
  await shows(page, 'retries', 'retry', 'record patch', name);
  assert.deepEqual(await rowsOf(page, 'pending'), []);
  await page.evaluate(() => (globalThis as any).hideDevtools());
  assert.equal(await page.getByRole('region', { name: 'Tidewire devtools' }).count(), 0);
});
