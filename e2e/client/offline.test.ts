// Records without a connection, in one tab of Chromium against the real server: reads, storage, edits that are made after a
// reconnect, refusals, and browsers that store nothing.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { chromium, type BrowserContext } from 'playwright-core';
import { Network } from '../browser/network.ts';
import { browserDuring, FOREIGN_HOST, LAUNCH, ONLY_CHROMIUM, servePage } from '../browser/page.ts';
import { atEnd } from '../harness/cleanup.ts';
import { client } from '../harness/driver/tidewire.ts';
import { fresh } from '../harness/names.ts';
import { Proxy } from '../harness/proxy.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';
import { OFFLINE_SCRIPT, Tab, type TabOptions } from './tab.ts';

const RULES = `
presence: { "*": { allow: true } }
event: { "*": { publish: true, subscribe: true, listen: true } }
rpc: { "*": { provide: true, request: true } }
record: { "*": { create: true, read: true, delete: true, listen: true, notify: true, write: "data.title !== 'forbidden'" } }
`;

test('records without a connection', async (t) => {
  const browser = await browserDuring(t);
  const port = await servePage(t, { script: OFFLINE_SCRIPT });
  const origin = `http://localhost:${port}`;
  const server = await Server.during(t, { permissions: RULES, origins: [`http://${FOREIGN_HOST}:${port}`] });
  const network = await Network.during(t, server);
  const other = client(t, server.address);
  await within(DEADLINE_MS, other.connect(), 'login');

  /** A new browser profile, which represents a device. */
  const device = async (inner: TestContext): Promise<BrowserContext> => {
    const context = await browser.newContext();
    atEnd(inner, () => context.close());
    return context;
  };
  const tabOf = async (inner: TestContext, options: TabOptions = {}): Promise<Tab> => Tab.during(inner, await device(inner), origin, network.address, options);
  /** Runs `act` while the server is unreachable. */
  const without = async (act: () => Promise<void>): Promise<void> => {
    await server.kill();
    await act().finally(() => server.start());
  };

  await t.test('a record is read from storage, in a tab that never had a connection', async (inner) => {
    const name = fresh('record');
    await other.record.set(name, { title: 'kept', list: [1, 2] });
    const context = await device(inner);
    const first = await Tab.open(context, origin, network.address);
    await first.record(name);
    await first.shows(name, { title: 'kept', list: [1, 2] });
    await first.close();
    await without(async () => {
      const second = await Tab.during(inner, context, origin, network.address);
      await second.record(name);
      assert.deepEqual(await second.value(name), { title: 'kept', list: [1, 2] });
      assert.notEqual((await second.state()).connection, 'open');
    });
  });

  await t.test('edits of a tab that was closed are made when another one has a connection', async (inner) => {
    const [name, unknown] = [fresh('record'), fresh('record')];
    await other.record.set(name, { title: 'old' });
    const context = await device(inner);
    const first = await Tab.open(context, origin, network.address);
    await first.record(name);
    await without(async () => {
      await first.set(name, 'title', 'new');
      await first.set(name, 'tags[1]', 'x');
      await first.set(unknown, 'title', 'created');
      assert.deepEqual(await first.value(name), { title: 'new', tags: [null, 'x'] });
      await first.close();
    });
    const second = await Tab.during(inner, context, origin, network.address);
    await second.until({ mode: 'durable', isLeader: true, pendingCount: 0 });
    await within(DEADLINE_MS, other.connect(), 'login');
    assert.deepEqual(await other.record.get(name), { title: 'new', tags: [null, 'x'] });
    assert.deepEqual(await other.record.get(unknown), { title: 'created' });
  });

  await t.test('a tab that is closed in the middle of a long queue loses nothing', async (inner) => {
    const name = fresh('record');
    const context = await device(inner);
    const first = await Tab.open(context, origin, network.address);
    await first.record(name);
    await within(DEADLINE_MS, other.connect(), 'login');
    const seen = other.record.open(name);
    await within(DEADLINE_MS, seen.ready, 'the record');
    const begun = new Promise<void>((done) => void seen.subscribe('p', (value) => value !== undefined && done()));
    await first.page.evaluate(async (of) => {
      const { records, offline } = globalThis as any;
      for (let i = 0; i < 2_000; i += 1) records[of].set(`p.e${i}`, i);
      await offline.kept();
    }, name);
    await within(DEADLINE_MS, begun, 'the first write arrives');
    const left = (await first.state()).pendingCount;
    await first.close();
    assert.ok(left > 0, 'the tab was closed in the middle');
    const second = await Tab.during(inner, context, origin, network.address);
    await second.until({ mode: 'durable', pendingCount: 0 });
    const { p = {} } = (await other.record.get(name)) as { p?: Record<string, number> };
    assert.equal(Object.keys(p).length, 2_000);
    seen.close();
  });

  await t.test('a write whose acknowledgement never reached its tab is not made again by the next one', async (inner) => {
    const name = fresh('record');
    await other.record.set(name, { title: 'old' });
    const context = await device(inner);
    const proxy = await Proxy.during(inner, server);
    const first = await Tab.open(context, origin, proxy.address);
    await first.record(name);
    await first.until({ connection: 'open' });
    proxy.silence('answers');
    await first.set(name, 'title', 'mine');
    await eventually(async () => ((await other.record.get(name)) as { title: string }).title === 'mine', 'the write is made');
    await first.close();
    await other.record.set(name, { title: 'theirs' });
    const second = await Tab.during(inner, context, origin, network.address);
    await second.until({ mode: 'durable', pendingCount: 0 });
    await second.record(name);
    await second.shows(name, { title: 'theirs' });
    assert.deepEqual(await other.record.get(name), { title: 'theirs' });
  });

  await t.test('edits of different paths never replace each other', async (inner) => {
    const name = fresh('record');
    await other.record.set(name, { mine: 0, theirs: 0 });
    const tab = await tabOf(inner);
    await tab.record(name);
    await network.cut(tab.page.context());
    await tab.set(name, 'mine', 1);
    await other.record.open(name).setWithAck('theirs', 1);
    await network.restore(tab.page.context());
    await tab.shows(name, { mine: 1, theirs: 1 });
    await tab.until({ pendingCount: 0 });
    assert.deepEqual(await other.record.get(name), { mine: 1, theirs: 1 });
  });

  await t.test('an edit that is refused permanently does not block later edits, and is passed to the app', async (inner) => {
    const name = fresh('record');
    const tab = await tabOf(inner);
    await tab.record(name);
    await network.cut(tab.page.context());
    await tab.set(name, 'count', 1);
    await tab.set(name, 'title', 'forbidden');
    await tab.set(name, '', 'no path');
    assert.deepEqual(await tab.errors(), ['INVALID_ARGUMENT']);
    const denied = tab.setWithAck(name, 'title', 'forbidden');
    await tab.set(name, 'count', 2);
    await tab.set(name, 'done', true);
    await network.restore(tab.page.context());
    assert.equal(await within(DEADLINE_MS, denied, 'the edit has an end'), 'MESSAGE_DENIED');
    await tab.until({ pendingCount: 0 });
    const told = (await tab.rejections()).map(({ changes, reason, code, name: of }) => ({ changes, reason, code, of }));
    const expected = { changes: [{ path: 'title', value: 'forbidden' }], reason: 'denied', code: 'MESSAGE_DENIED', of: name };
    assert.deepEqual(told, [expected, expected]);
    assert.deepEqual(await other.record.get(name), { count: 2, done: true });
    await tab.shows(name, { count: 2, done: true });
  });

  await t.test('if one of many edits in a write is refused, the others need few writes', async (inner) => {
    const name = fresh('record');
    const tab = await tabOf(inner);
    await tab.record(name);
    await network.cut(tab.page.context());
    await tab.until({ connection: 'waiting' });
    const bad = 23;
    for (let i = 0; i < 64; i += 1) await tab.set(name, i === bad ? 'title' : `at${i}`, i === bad ? 'forbidden' : i);
    await network.restore(tab.page.context());
    await tab.until({ pendingCount: 0 });
    assert.deepEqual((await tab.rejections()).map(({ changes }) => changes), [[{ path: 'title', value: 'forbidden' }]]);
    const record = other.record.open(name);
    await within(DEADLINE_MS, record.ready, 'the record');
    assert.equal(Object.keys(record.value as object).length, 63);
    // The client tries each half of a refused write separately: 32 edits, 16, and so on down to one.
    assert.ok(record.version <= 7, `${record.version} writes`);
  });

  for (const [merge, value, ends] of [
    ['local', { title: 'alice', done: true }, ['made', 'made']],
    ['remote', { title: 'bob' }, ['CONFLICT', 'CONFLICT']],
    ['both', { title: 'bob and alice on old' }, ['made', 'made']],
  ] as const) {
    await t.test(`a write of another client in the meantime is merged: ${merge}`, async (inner) => {
      const name = fresh('record');
      await other.record.set(name, { title: 'old' });
      const tab = await tabOf(inner, { merge });
      await tab.record(name);
      await tab.until({ connection: 'open' });
      await network.cut(tab.page.context());
      await tab.until({ connection: 'waiting' });
      const outcomes = Promise.all([tab.setWithAck(name, 'title', 'alice'), tab.setWithAck(name, 'done', true)]);
      await tab.shows(name, { title: 'alice', done: true });
      await other.record.set(name, { title: 'bob' });
      await network.restore(tab.page.context());
      assert.deepEqual(await within(DEADLINE_MS, outcomes, 'the edits have an end'), ends);
      await tab.shows(name, value);
      assert.deepEqual(await other.record.get(name), value);
      const reasons = (await tab.rejections()).map(({ changes, reason }) => [reason, changes[0]?.value]);
      assert.deepEqual(reasons, merge === 'remote' ? [['conflict', 'alice'], ['conflict', true]] : []);
      // A second edit of the same tab is not a conflict, not even in the same queue.
      assert.deepEqual([await tab.setWithAck(name, 'done', 1), await tab.setWithAck(name, 'done', 2)], ['made', 'made']);
    });
  }

  await t.test('the limits of the queue, of one edit and of the storage hold', async (inner) => {
    const [first, second, third] = [fresh('record'), fresh('record'), fresh('record')];
    const context = await device(inner);
    const tab = await Tab.open(context, origin, network.address, { editsMax: 3, editBytesMax: 100, recordsMax: 2 });
    for (const name of [first, second, third]) {
      await other.record.set(name, { title: name });
      await tab.record(name);
      await tab.shows(name, { title: name });
    }
    await network.cut(context);
    await tab.until({ connection: 'waiting' });
    assert.equal(await tab.setWithAck(first, 'title', 'x'.repeat(100)), 'TOO_LARGE');
    for (let i = 0; i < 3; i += 1) await tab.set(third, 'title', i);
    assert.equal(await tab.setWithAck(third, 'title', 3), 'TOO_MANY_PENDING');
    await tab.close();
    await network.restore(context);
    await without(async () => {
      const next = await Tab.during(inner, context, origin, network.address);
      await next.record(second);
      await next.shows(second, { title: second });
      await next.shows(third, undefined);
      const isKept = next.record(first).then(() => 'kept');
      assert.equal(await Promise.race([isKept, next.until({ connection: 'waiting' }).then(() => 'not kept')]), 'not kept');
    });
  });

  await t.test('a rejected edit is reported again later, until it is dismissed', async (inner) => {
    const name = fresh('record');
    const context = await device(inner);
    const first = await Tab.open(context, origin, network.address);
    assert.equal(await first.setWithAck(name, 'title', 'forbidden'), 'MESSAGE_DENIED');
    await first.close();
    const second = await Tab.open(context, origin, network.address);
    await second.until({ mode: 'durable' });
    const [rejection] = await second.rejections();
    assert.deepEqual(rejection?.changes, [{ path: 'title', value: 'forbidden' }]);
    await second.page.evaluate((of) => (globalThis as any).offline.dismiss(of), rejection);
    await second.close();
    const third = await Tab.during(inner, context, origin, network.address);
    await third.until({ mode: 'durable', isLeader: true });
    assert.deepEqual(await third.rejections(), []);
  });

  /** Checks that `tab` keeps its edits without storage, makes them when it has a connection, and reports the mode. */
  const goesOnAlone = async (tab: Tab, name: string): Promise<void> => {
    await tab.until({ mode: 'online-only', isLeader: true });
    assert.equal((await tab.state()).reason?.code, 'NO_STORAGE');
    assert.equal(await tab.setWithAck(name, 'alone', true), 'made');
    assert.deepEqual((await tab.page.evaluate(() => (globalThis as any).modes as string[])).at(-1), 'online-only');
    await tab.until({ pendingCount: 0 });
  };

  await t.test('a browser that refuses the database leaves records online only', ONLY_CHROMIUM, async (inner) => {
    const folder = mkdtempSync(join(tmpdir(), 'tidewire-blocked-'));
    atEnd(inner, () => rmSync(folder, { recursive: true }));
    mkdirSync(join(folder, 'Default'));
    // As in a browser whose user blocks all site data.
    const settings = { profile: { default_content_setting_values: { cookies: 2 } } };
    writeFileSync(join(folder, 'Default/Preferences'), JSON.stringify(settings));
    const context = await chromium.launchPersistentContext(folder, LAUNCH);
    atEnd(inner, () => context.close());
    const tab = await Tab.open(context, origin, network.address);
    const name = fresh('record');
    await goesOnAlone(tab, name);
    assert.match((await tab.state()).reason?.message ?? '', /denied|refused/i);
    assert.deepEqual(await other.record.get(name), { alone: true });
  });

  await t.test('a full device loses no edit, and stored edits are not made again later', ONLY_CHROMIUM, async (inner) => {
    const name = fresh('record');
    const context = await device(inner);
    const tab = await Tab.loaded(context, origin);
    const session = await context.newCDPSession(tab.page);
    await session.send('Storage.overrideQuotaForOrigin', { origin, quotaSize: 1_000_000 });
    await tab.start(network.address);
    await tab.record(name);
    await network.cut(context);
    await tab.until({ connection: 'waiting' });
    await tab.set(name, 'kept', 1);
    // The browser can't compress random data.
    const late = Promise.all(Array.from({ length: 8 }, () => tab.setWithAck(name, 'late', randomBytes(150_000).toString('base64'))));
    await tab.until({ mode: 'online-only' });
    assert.match((await tab.state()).reason?.message ?? '', /space/);
    await network.restore(context);
    assert.deepEqual(new Set(await within(DEADLINE_MS, late, 'the edits are made')), new Set(['made']));
    await goesOnAlone(tab, name);
    await other.record.open(name).setWithAck('kept', 2);
    await tab.close();
    const next = await Tab.during(inner, context, origin, network.address);
    await next.until({ mode: 'durable', isLeader: true, pendingCount: 0, connection: 'open' });
    assert.equal(((await other.record.get(name)) as { kept: number }).kept, 2);
  });

  await t.test('edits that the browser evicts from storage are made by the tab that holds them', ONLY_CHROMIUM, async (inner) => {
    const name = fresh('record');
    const context = await device(inner);
    const tab = await Tab.during(inner, context, origin, network.address);
    await tab.record(name);
    await network.cut(context);
    await tab.until({ connection: 'waiting' });
    await tab.set(name, 'kept', 1);
    const session = await context.newCDPSession(tab.page);
    await session.send('Storage.clearDataForOrigin', { origin, storageTypes: 'indexeddb' });
    await tab.until({ mode: 'online-only' });
    await network.restore(context);
    await goesOnAlone(tab, name);
    assert.deepEqual(await other.record.get(name), { kept: 1, alone: true });
  });

  await t.test('waiting for a database that does not open has a time limit', async (inner) => {
    const context = await device(inner);
    const blocker = await Tab.during(inner, context, origin, network.address);
    // The blocker holds the database open, so its deletion waits, and every later open waits for the deletion.
    await blocker.page.evaluate(async () => {
      const { indexedDB } = globalThis as any;
      await new Promise((done) => (indexedDB.open('tidewire:stuck').onsuccess = ({ target }: any) => done(((globalThis as any).stuck = target.result))));
      indexedDB.deleteDatabase('tidewire:stuck');
    });
    const tab = await Tab.during(inner, context, origin, network.address, { database: 'stuck', storageTimeoutMs: 300 });
    await goesOnAlone(tab, fresh('record'));
  });
});
