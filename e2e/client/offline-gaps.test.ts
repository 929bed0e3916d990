// Edits of a tab of Chromium in every state of its connection that a network can cause. Each edit is made once and in order, and edits
// that the server rejects are passed to the app with their values.

import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { browserDuring, servePage } from '../browser/page.ts';
import { atEnd } from '../harness/cleanup.ts';
import { client } from '../harness/driver/tidewire.ts';
import { fresh } from '../harness/names.ts';
import { isFound, planted, type Fault } from '../harness/planted.ts';
import { Proxy } from '../harness/proxy.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';
import { OFFLINE_SCRIPT, Tab, type TabOptions } from './tab.ts';

const SECRET = 'a secret that is long enough for HS256';
const SENDER = 'packages/client/src/offline/sender.ts';

test('edits between connections', { concurrency: 4 }, async (t) => {
  const browser = await browserDuring(t);
  /** The origin of a page with this script: the package's script or one with a planted fault. */
  const originOf = async (inner: TestContext, script: string): Promise<string> => `http://localhost:${await servePage(inner, { script })}`;
  const tabOf = async (inner: TestContext, origin: string, address: string, options: TabOptions = {}): Promise<Tab> => {
    const context = await browser.newContext();
    atEnd(inner, () => context.close());
    const tab = await Tab.during(inner, context, origin, address, options);
    await tab.until({ mode: 'durable', connection: 'open' });
    return tab;
  };
  /** Adds a path for one edit. */
  const adds = (tab: Tab, name: string, number: number): Promise<void> => tab.set(name, `edit${number}`, number);

  const refusedEdits = async (inner: TestContext, script: string): Promise<void> => {
    const [name, origin] = [fresh('record'), await originOf(inner, script)];
    const server = await Server.during(inner, { origins: [origin], limits: { nesting_max: 8 } });
    const tab = await tabOf(inner, origin, server.address);
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
  };

  const editsInGaps = async (inner: TestContext, script: string, ...gaps: string[]): Promise<void> => {
    const [name, origin] = [fresh('record'), await originOf(inner, script)];
    const server = await Server.during(inner, { origins: [origin] });
    const proxy = await Proxy.during(inner, server);
    const tab = await tabOf(inner, origin, proxy.address, { heartbeatIntervalMs: 300, staleAfterMs: 600, checkTimeoutMs: 300 });
    const reader = client(inner, server.address);
    await within(DEADLINE_MS, reader.connect(), 'login');
    const record = reader.record.open(name);
    await adds(tab, name, 0);
    await tab.until({ pendingCount: 0 });
    let number = 0;
    const expected: unknown[] = [];
    const goesThrough = async (what: string, breaks: () => unknown, ...states: string[]): Promise<void> => {
      if (!gaps.includes(what)) return;
      const from = (await tab.connections()).length;
      await breaks();
      const seen = async (): Promise<string[]> => (await tab.connections()).slice(from);
      await eventually(async () => (await seen()).join().includes(states.join()), `${what}: ${states}`);
      await adds(tab, name, (number += 1));
      await adds(tab, name, (number += 1));
      proxy.restore();
      await adds(tab, name, (number += 1));
      await tab.until({ connection: 'open', pendingCount: 0 });
    };
    await goesThrough('a loss', () => proxy.cut(), 'waiting');
    /** Makes an edit whose acknowledgement is lost. If the tab notices the silence before it sends the edit, tries with the next edit. */
    const unanswered = async (): Promise<void> => {
      const isUnanswered = async (): Promise<boolean> => {
        proxy.silence('answers');
        await adds(tab, name, (number += 1));
        const isMade = (): boolean => Object.values(record.value as object).includes(number);
        const isLost = async (): Promise<boolean> => !['open', 'stale'].includes((await tab.state()).connection);
        await eventually(async () => isMade() || (await isLost()), 'the edit is made, or the tab notices the silence');
        if (isMade()) return true;
        proxy.restore();
        await tab.until({ connection: 'open', pendingCount: 0 });
        return false;
      };
      await eventually(isUnanswered, 'the edit is made without an acknowledgement', 2 * DEADLINE_MS);
      // The tab sends the edit again. If the server made it twice, it would overwrite this value.
      expected[number] = 'of another';
      await record.setWithAck(`edit${number}`, expected[number]);
    };
    await goesThrough('silence', unanswered, 'stale');
    for (const [target, event] of [['window', 'pageshow'], ['window', 'online'], ['document', 'visibilitychange']] as const) {
      const wakes = async (): Promise<void> => {
        proxy.silence();
        await tab.page.evaluate(([of, kind]) => (globalThis as any)[of].dispatchEvent(new Event(kind)), [target, event] as const);
      };
      await goesThrough(event, wakes, 'checking', 'waiting');
    }
    const value = (await reader.record.get(name)) as object;
    const wanted = Array.from({ length: number + 1 }, (_, at) => expected[at] ?? at);
    assert.deepEqual(Object.values(value), wanted, 'each edit is there, and was made once');
    assert.deepEqual(await tab.rejections(), []);
  };

  const editsOfLogins = async (inner: TestContext, script: string, loginCount = 4): Promise<void> => {
    const [name, origin] = [fresh('record'), await originOf(inner, script)];
    const server = await Server.during(inner, { origins: [origin], auth: { chain: ['jwt'], session_lifetime: '1s', jwt: { secret: SECRET } } });
    const token = server.token('--user', 'alice');
    const tab = await tabOf(inner, origin, server.address, { auth: { token } });
    // The page makes the edits itself, without a pause: if the test waited for each one, no edit would be in flight during a login.
    const number = await tab.page.evaluate(
      async ([of, wanted]) => {
        const { offline, connections } = globalThis as any;
        const record = offline.open(of);
        let count = 0;
        while (connections.filter((state: string) => state === 'open').length < wanted) {
          record.set(`edit${count}`, count);
          count += 1;
          await new Promise((done) => setTimeout(done, 5));
        }
        await offline.kept();
        return count;
      },
      [name, loginCount] as const,
    );
    await tab.until({ pendingCount: 0 });
    const reader = client(inner, server.address, { auth: { token } });
    await within(DEADLINE_MS, reader.connect(), 'login');
    const value = (await reader.record.get(name)) as object;
    assert.deepEqual(Object.values(value), Array.from({ length: number }, (_, at) => at), 'each edit is there, and was made once');
    assert.deepEqual([await tab.rejections(), await tab.errors()], [[], []]);
  };

  const GAPS = ['a loss', 'silence', 'pageshow', 'online', 'visibilitychange'];
  await t.test('rejected edits are passed to the app with their values, and later edits are made', (inner) => refusedEdits(inner, OFFLINE_SCRIPT));
  await t.test('edits are made once when the connection was lost or stale, and when the page wakes up', (inner) => editsInGaps(inner, OFFLINE_SCRIPT, ...GAPS));
  await t.test('edits are made once while logins expire and are renewed', (inner) => editsOfLogins(inner, OFFLINE_SCRIPT));

  const faults: Array<[what: string, fault: Fault, reason: RegExp, check: (inner: TestContext, script: string) => Promise<void>]> = [
    [
      'a refused edit also rejects the other edits of its write',
      { file: SENDER, text: 'await this.#mark(edits, halves(edits), held)', instead: 'await this.host.reject(name, edits, error.code)' },
      /before/,
      refusedEdits,
    ],
    [
      'only the newest of several waiting edits is sent',
      { file: SENDER, text: 'edits.flatMap((edit) => edit.patches)', instead: 'edits.slice(-1).flatMap((edit) => edit.patches)' },
      /made once/,
      (inner, script) => editsInGaps(inner, script, 'a loss'),
    ],
    [
      'a repeated write has another key',
      { file: 'packages/client/src/record.ts', text: 'send(flight.message)', instead: 'send({ ...flight.message, key: this.draw() })' },
      /made once/,
      (inner, script) => editsInGaps(inner, script, 'silence'),
    ],
    [
      'one write marks all waiting edits as made',
      { file: SENDER, text: 'this.host.made(name, edits, on)', instead: 'this.host.made(name, this.host.sendable(name), on)' },
      /made once/,
      (inner, script) => editsOfLogins(inner, script, 2),
    ],
  ];
  const tests = faults.map(([what, fault, reason, check]) => {
    return t.test(`planted fault: ${what}`, async (inner) => {
      await isFound(check(inner, await planted(inner, 'packages/client/src/offline/page.ts', fault)), reason);
    });
  });
  await Promise.all(tests);
});
