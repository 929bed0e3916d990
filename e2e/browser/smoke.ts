// A subset of the Chromium tests for the other browsers (`E2E_BROWSER`): the demo in two tabs, and a record that is held offline.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OFFLINE_SCRIPT, Tab } from '../client/tab.ts';
import { add, connected, entries, openTab, people } from '../demo/tabs.ts';
import { atEnd } from '../harness/cleanup.ts';
import { client } from '../harness/driver/tidewire.ts';
import { fresh } from '../harness/names.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';
import { Network } from './network.ts';
import { BROWSER, browserDuring, servePage } from './page.ts';

test(`in ${BROWSER}`, async (t) => {
  const [server, browser] = await Promise.all([Server.during(t, { withoutRules: true }), browserDuring(t)]);

  await t.test('two tabs of the demo see each other and the edits of the other one, also after the server was down', async (inner) => {
    const [one, other] = await Promise.all([openTab(inner, browser, server), openTab(inner, browser, server)]);
    await eventually(async () => (await people(one)).length === 2 && (await people(other)).length === 2, 'each sees two people');
    await add(one, 'milk');
    await other.getByRole('checkbox', { name: 'Done: milk' }).check();
    await eventually(() => one.getByRole('checkbox', { name: 'Done: milk' }).isChecked(), 'the first tab sees it done');
    await server.kill();
    await one.getByRole('status').filter({ hasText: 'connection lost' }).waitFor();
    await add(one, 'bread');
    await server.start();
    await connected(other);
    await eventually(async () => (await entries(other)).join() === 'bread,milk', 'the other tab has the edit made in the meantime');
  });

  await t.test('an edit without a connection is kept, and made by another tab', async (inner) => {
    const name = fresh('record');
    const other = client(inner, server.address);
    await within(DEADLINE_MS, other.connect(), 'login');
    await other.record.set(name, { title: 'old' });
    const origin = `http://localhost:${await servePage(inner, { script: OFFLINE_SCRIPT })}`;
    const network = await Network.during(inner, server);
    const context = await browser.newContext();
    atEnd(inner, () => context.close());
    const tab = await Tab.open(context, origin, network.address);
    await tab.record(name);
    await tab.shows(name, { title: 'old' });
    await network.cut(context);
    await tab.until({ mode: 'durable', connection: 'waiting' });
    await tab.set(name, 'title', 'new');
    await tab.close();
    await network.restore(context);
    const next = await Tab.during(inner, context, origin, network.address);
    await next.until({ isLeader: true, pendingCount: 0, connection: 'open' });
    assert.deepEqual(await other.record.get(name), { title: 'new' });
  });
});
