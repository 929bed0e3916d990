// Records that several tabs of Chromium hold together: all tabs share one connection, whichever tab leads and however it ends. Also the
// state of a tab after the server was down, after the tab was frozen, and after its clock was moved.

import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import type { BrowserContext } from 'playwright-core';
import { presenceOf } from '../../packages/client/src/presence.ts';
import { Network } from '../browser/network.ts';
import { browserDuring, BROWSER, FOREIGN_HOST, NEEDS_FOREIGN_HOST, servePage } from '../browser/page.ts';
import { rendererOf, signal } from '../browser/renderer.ts';
import { atEnd } from '../harness/cleanup.ts';
import { client } from '../harness/driver/tidewire.ts';
import { fresh } from '../harness/names.ts';
import { Proxy } from '../harness/proxy.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, isPending, within } from '../harness/wait.ts';
import { OFFLINE_SCRIPT, Tab } from './tab.ts';

/** After a tab was frozen, it must have every change within this time. */
const BACK_MS = 1_000;

/** `ms` is a difference of the page's clock, so that a delay of the test process does not count. */
const assertSoon = (ms: number): void => assert.ok(ms < BACK_MS, `after ${ms} ms`);

test('records that several tabs hold', async (t) => {
  // Each tab has its own process, so that the test can freeze one of them.
  const browser = await browserDuring(t, '--disable-features=ProcessPerSiteUpToMainFrameThreshold');
  const port = await servePage(t, { script: OFFLINE_SCRIPT });
  const origin = `http://localhost:${port}`;
  const foreign = `http://${FOREIGN_HOST}:${port}`;
  const server = await Server.during(t, { origins: [foreign] });
  const other = client(t, server.address);
  await within(DEADLINE_MS, other.connect(), 'login');

  const device = async (inner: TestContext): Promise<BrowserContext> => {
    const context = await browser.newContext();
    atEnd(inner, () => context.close());
    return context;
  };

  for (const [from, hasLocks] of [[origin, true], [foreign, false]] as const) {
    const title = `two tabs have one connection, and the other one when the first is closed, ${hasLocks ? 'with' : 'without'} locks`;
    await t.test(title, hasLocks ? {} : NEEDS_FOREIGN_HOST, async (inner) => {
      const name = fresh('record');
      await other.record.set(name, { title: 'old' });
      const proxy = await Proxy.during(inner, server);
      const context = await device(inner);
      const first = await Tab.during(inner, context, from, proxy.address);
      assert.equal(await first.page.evaluate(() => Boolean((globalThis as any).navigator.locks)), hasLocks);
      await first.until({ isLeader: true, connection: 'open' });
      const second = await Tab.during(inner, context, from, proxy.address);
      await second.until({ mode: 'durable', isLeader: false, connection: 'open' });
      await second.record(name);
      await second.shows(name, { title: 'old' });
      // Updates from the server reach the second tab through the first one, and edits of the second tab leave through it.
      await other.record.set(name, { title: 'new' });
      await second.shows(name, { title: 'new' });
      assert.equal(await within(DEADLINE_MS, second.setWithAck(name, 'from', 'second'), 'the edit has an end'), 'made');
      assert.deepEqual(await other.record.get(name), { title: 'new', from: 'second' });
      await first.record(name);
      await first.set(name, 'from', 'first');
      await second.shows(name, { title: 'new', from: 'first' });
      assert.deepEqual([proxy.openCount, proxy.connectedAt.length], [1, 1]);
      await first.close();
      await second.until({ isLeader: true, connection: 'open', pendingCount: 0 });
      await other.record.set(name, { title: 'newer' });
      await second.shows(name, { title: 'newer' });
      assert.equal(await second.setWithAck(name, 'from', 'second'), 'made');
      assert.deepEqual([proxy.openCount, proxy.connectedAt.length], [1, 2]);
    });
  }

  // WebKit's driver waits for the frozen window before it handles the other one.
  const needsDriver = { skip: BROWSER === 'webkit' && 'the driver of WebKit handles no window while another one is frozen' };
  await t.test('a tab takes over from a frozen leader, which steps back when it runs again', needsDriver, async (inner) => {
    const name = fresh('record');
    const context = await device(inner);
    const options = { leaderTimeoutMs: 3_000 };
    const first = await Tab.during(inner, context, origin, server.address, options);
    await first.until({ isLeader: true, connection: 'open' });
    const second = await Tab.during(inner, context, origin, server.address, options);
    await second.record(name);
    await second.until({ isLeader: false, connection: 'open' });
    const pid = await rendererOf(first.page);
    signal('SIGSTOP', pid);
    atEnd(inner, () => signal('SIGCONT', pid));
    const answer = first.now();
    assert.equal(await within(DEADLINE_MS, second.setWithAck(name, 'title', 'mine'), 'the edit has an end'), 'made');
    assert.ok(await isPending(answer));
    assert.equal((await second.state()).isLeader, true);
    signal('SIGCONT', pid);
    await first.until({ isLeader: false });
    await first.record(name);
    await first.shows(name, { title: 'mine' });
    assert.equal((await second.state()).isLeader, true);
  });

  await t.test('an offline edit is merged with a write of another device in the meantime', async (inner) => {
    const name = fresh('record');
    const [mine, theirs] = [await device(inner), await device(inner)];
    const network = await Network.during(inner, server);
    const [alice, bob] = [await Tab.during(inner, mine, origin, network.address), await Tab.during(inner, theirs, origin, server.address)];
    await alice.record(name);
    await bob.record(name);
    await alice.until({ connection: 'open' });
    await network.cut(mine);
    await alice.until({ connection: 'waiting' });
    await alice.set(name, 'todos.a', 'hers');
    assert.equal(await bob.setWithAck(name, 'todos.b', 'his'), 'made');
    assert.deepEqual([await alice.value(name), await bob.value(name)], [{ todos: { a: 'hers' } }, { todos: { b: 'his' } }]);
    await network.restore(mine);
    for (const tab of [alice, bob]) await eventually(async () => Object.keys(((await tab.value(name)) as any).todos).length === 2, 'both have both');
    await alice.until({ pendingCount: 0 });
    assert.deepEqual(await other.record.get(name), { todos: { b: 'his', a: 'hers' } });
  });

  await t.test('a tab reconnects by itself when the server is killed and restarted', async (inner) => {
    const name = fresh('record');
    const own = await Server.during(inner, { origins: [origin] });
    const tab = await Tab.during(inner, await device(inner), origin, own.address);
    assert.equal(await tab.setWithAck(name, 'title', 'before'), 'made');
    await own.kill();
    await tab.until({ connection: 'waiting' });
    await tab.set(name, 'title', 'meanwhile');
    await own.start();
    await tab.until({ connection: 'open', pendingCount: 0 });
    const reader = client(inner, own.address);
    await within(DEADLINE_MS, reader.connect(), 'login');
    assert.deepEqual(await reader.record.get(name), { title: 'meanwhile' });
  });

  await t.test('a tab that was frozen until its session ended has every change within a second', async (inner) => {
    const name = fresh('record');
    const short = await Server.during(inner, { heartbeatIntervalMs: 500, origins: [origin] });
    const writer = client(inner, short.address, { heartbeatIntervalMs: 100 });
    await within(DEADLINE_MS, writer.connect(), 'login');
    await writer.record.set(name, { count: 0 });
    const sleeper = new Inbox<boolean>('presence of the tab');
    await presenceOf(writer).subscribe('sleeper', sleeper.push).ready;
    const tab = await Tab.during(inner, await device(inner), origin, short.address, { heartbeatIntervalMs: 100, user: 'sleeper' });
    await tab.record(name);
    await tab.shows(name, { count: 0 });
    const pid = await rendererOf(tab.page);
    await tab.until({ connection: 'open' });
    await sleeper.until((seen) => seen.at(-1) === true);
    signal('SIGSTOP', pid);
    atEnd(inner, () => signal('SIGCONT', pid));
    const [answer, shown] = [tab.now(), tab.timeOf(name, { count: 1 })];
    await sleeper.until((seen) => seen.at(-1) === false, DEADLINE_MS, 'the session has ended');
    await writer.record.set(name, { count: 1 });
    // The tab is frozen: an earlier evaluation is still pending.
    assert.ok(await isPending(answer));
    signal('SIGCONT', pid);
    const woken = await within(DEADLINE_MS, answer, 'the tab runs again');
    assertSoon((await within(DEADLINE_MS, shown, 'the tab has the change')) - woken);
  });

  await t.test('a tab whose clock was moved by half an hour has every change within a second', { skip: BROWSER === 'webkit' && 'WebDriver cannot move the clock' }, async (inner) => {
    const name = fresh('record');
    await other.record.set(name, { count: 0 });
    const context = await device(inner);
    await context.clock.install();
    const tab = await Tab.during(inner, context, origin, server.address);
    await tab.record(name);
    await tab.until({ isLeader: true, connection: 'open' });
    const before = await tab.page.evaluate(() => Date.now());
    await tab.page.clock.fastForward('30:00');
    assert.ok((await tab.page.evaluate(() => Date.now())) - before >= 1_800_000, 'its clock was moved');
    const shown = tab.timeOf(name, { count: 1 });
    await other.record.set(name, { count: 1 });
    const written = await tab.now();
    assertSoon((await within(DEADLINE_MS, shown, 'the tab has the change')) - written);
    assert.equal(await within(DEADLINE_MS, tab.setWithAck(name, 'mine', true), 'an edit is made'), 'made');
    assert.equal((await tab.state()).mode, 'durable');
  });
});
