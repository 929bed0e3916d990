// Edits of a tab of Chromium while its connection is in every state that a network can bring it into: each is made once, in its order, and what
// the server can't take is handed over with its value.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test, type TestContext } from 'node:test';
import { browserDuring, servePage } from '../browser/page.ts';
import { atEnd } from '../harness/cleanup.ts';
import { client } from '../harness/driver/tidewire.ts';
import { fresh } from '../harness/names.ts';
import { Proxy } from '../harness/proxy.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';
import { OFFLINE_SCRIPT, Tab, type TabOptions } from './tab.ts';

const SECRET = 'a secret that is long enough for HS256';

test('edits between connections', async (t) => {
  const browser = await browserDuring(t);
  const port = await servePage(t, { script: OFFLINE_SCRIPT });
  const origin = `http://localhost:${port}`;
  const tabOf = async (inner: TestContext, address: string, options: TabOptions = {}): Promise<Tab> => {
    const context = await browser.newContext();
    atEnd(inner, () => context.close());
    const tab = await Tab.during(inner, context, origin, address, options);
    await tab.until({ mode: 'durable', connection: 'open' });
    return tab;
  };
  /** An edit of a path of its own. */
  const adds = (tab: Tab, name: string, number: number): Promise<void> => tab.set(name, `edit${number}`, number);

  await t.test('what the server can not take is handed over with its value, and what is behind it is made', async (inner) => {
    const name = fresh('record');
    const server = await Server.during(inner, { origins: [origin], limits: { nesting_max: 8 } });
    const tab = await tabOf(inner, server.address);
    await tab.record(name);
    await tab.page.context().setOffline(true);
    await tab.until({ connection: 'waiting' });
    const deep = { a: { b: { c: { d: { e: { f: { g: { h: 1 } } } } } } } };
    await tab.set(name, 'before', 1);
    await tab.set(name, 'deep', deep);
    await tab.set(name, 'after', 2);
    await tab.page.context().setOffline(false);
    await tab.until({ pendingCount: 0 });
    const told = (await tab.rejections()).map(({ name: of, changes, reason, code }) => ({ of, changes, reason, code }));
    assert.deepEqual(told, [{ of: name, changes: [{ path: 'deep', value: deep }], reason: 'validation', code: 'INVALID_MESSAGE_DATA' }]);
    await tab.shows(name, { before: 1, after: 2 });
    const reader = client(inner, server.address);
    await within(DEADLINE_MS, reader.connect(), 'login');
    assert.deepEqual(await reader.record.get(name), { before: 1, after: 2 });
  });

  await t.test('edits are made once when the connection was lost, was stale, and when the page wakes up', async (inner) => {
    const name = fresh('record');
    const server = await Server.during(inner, { origins: [origin] });
    const proxy = await Proxy.during(inner, server);
    const tab = await tabOf(inner, proxy.address, { heartbeatIntervalMs: 300, staleAfterMs: 300, checkTimeoutMs: 300 });
    await adds(tab, name, 0);
    await tab.until({ pendingCount: 0 });
    let number = 0;
    const goesThrough = async (what: string, breaks: () => unknown, ...states: string[]): Promise<void> => {
      const from = (await tab.connections()).length;
      await breaks();
      const seen = async (): Promise<string[]> => (await tab.connections()).slice(from);
      await eventually(async () => (await seen()).join().includes(states.join()), `${what}: ${states}`);
      await adds(tab, name, (number += 1));
      proxy.restore();
      await adds(tab, name, (number += 1));
      await tab.until({ connection: 'open', pendingCount: 0 });
    };
    await goesThrough('a loss', () => proxy.cut(), 'waiting');
    await goesThrough('silence', () => proxy.silence('answers'), 'stale');
    for (const [target, event] of [['window', 'pageshow'], ['window', 'online'], ['document', 'visibilitychange']] as const) {
      const wakes = async (): Promise<void> => {
        proxy.silence();
        await tab.page.evaluate(([of, kind]) => (globalThis as any)[of].dispatchEvent(new Event(kind)), [target, event] as const);
      };
      await goesThrough(event, wakes, 'checking', 'waiting');
    }
    const reader = client(inner, server.address);
    await within(DEADLINE_MS, reader.connect(), 'login');
    const record = reader.record.open(name);
    await within(DEADLINE_MS, record.ready, 'the record');
    assert.deepEqual(Object.values(record.value as object), Array.from({ length: number + 1 }, (_, at) => at));
    assert.ok(record.version <= number + 1, `${record.version} writes of ${number + 1} edits`);
    assert.deepEqual(await tab.rejections(), []);
  });

  await t.test('edits are made once while logins end and begin anew', async (inner) => {
    const name = fresh('record');
    const server = await Server.during(inner, { origins: [origin], auth: { chain: ['jwt'], session_lifetime: '1s', jwt: { secret: SECRET } } });
    const token = execFileSync(server.binary, ['token', '--config', server.configFile, '--user', 'alice'], { encoding: 'utf8' }).trim();
    const tab = await tabOf(inner, server.address, { auth: { token } });
    let number = 0;
    const logins = async (): Promise<number> => (await tab.connections()).filter((state) => state === 'open').length;
    while ((await logins()) < 4) await adds(tab, name, number++);
    await tab.until({ pendingCount: 0 });
    const reader = client(inner, server.address, { auth: { token } });
    await within(DEADLINE_MS, reader.connect(), 'login');
    const value = (await reader.record.get(name)) as object;
    assert.deepEqual(Object.values(value), Array.from({ length: number }, (_, at) => at));
    assert.deepEqual([await tab.rejections(), await tab.errors()], [[], []]);
  });
});
