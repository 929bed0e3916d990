// The pages that may connect in development mode: pages of loopback hosts on any port, and no others. Only a browser sends
// trustworthy Origin and Host headers; a test client could send anything.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DeepstreamClient } from '@deepstream/client';
import { Server } from '../harness/server.ts';
import { within } from '../harness/wait.ts';
import { browserDuring, FOREIGN_HOST, loginFrom, openPage, servePage } from './page.ts';

test('a page of another loopback port shares a record with a client outside the browser', async (t) => {
  const server = await Server.during(t);
  const browser = await browserDuring(t);
  const page = await openPage(browser, 'localhost', await servePage(t));
  assert.equal(await loginFrom(page, `ws://127.0.0.1:${server.port}`), 'open');

  const other = new DeepstreamClient(server.address);
  await other.login();
  const record = await other.record.getRecord('browser/shared').whenReady();
  const seen = new Promise((done) => record.subscribe('from', done));
  await page.evaluate(async () => {
    const record = await (globalThis as any).client.record.getRecord('browser/shared').whenReady();
    await record.setWithAck('from', 'the page');
  });
  assert.equal(await within(10_000, seen, 'the write of the page arrives'), 'the page');
  other.close();
});

test('a page of another host is refused, and the log names the option', async (t) => {
  const server = await Server.during(t);
  const browser = await browserDuring(t);
  const page = await openPage(browser, FOREIGN_HOST, await servePage(t));
  assert.match(await loginFrom(page, `ws://127.0.0.1:${server.port}`), /^error/);
  await server.prints(/origin/i);
});

test('a foreign name that leads to the server is refused', async (t) => {
  const server = await Server.during(t);
  const browser = await browserDuring(t);
  const page = await openPage(browser, 'localhost', await servePage(t));
  assert.match(await loginFrom(page, `ws://${FOREIGN_HOST}:${server.port}`), /^error/);
  const answer = await page.goto(`http://${FOREIGN_HOST}:${server.port}/`);
  assert.equal(answer?.status(), 403);
});
