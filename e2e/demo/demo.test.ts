// The demo that the binary serves, as somebody uses it who has started the server without any option.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { browserDuring } from '../browser/page.ts';
import { Server } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';
import { add, entries, openTab } from './tabs.ts';

test('two tabs see each other and what the other one edits', async (t) => {
  const server = await Server.during(t);
  const browser = await browserDuring(t);
  const [one, other] = [await openTab(t, browser, server), await openTab(t, browser, server)];
  const people = (page: typeof one): Promise<number> => page.getByRole('list', { name: 'Who is here' }).getByRole('listitem').count();
  await eventually(async () => (await people(one)) === 2 && (await people(other)) === 2, 'each sees two people');

  await add(one, 'milk');
  await other.getByRole('checkbox', { name: 'Done: milk' }).check();
  await eventually(() => one.getByRole('checkbox', { name: 'Done: milk' }).isChecked(), 'the first tab sees it done');
  await one.getByLabel('Text of the entry').fill('oat milk');
  await eventually(async () => (await entries(other))[0] === 'oat milk', 'the other tab sees the text');
  await other.getByRole('button', { name: 'Remove: oat milk' }).click();
  await eventually(async () => (await entries(one)).length === 0, 'the first tab sees it removed');

  await other.context().close();
  await eventually(async () => (await people(one)) === 1, 'who has left is gone');
  assert.equal(await one.title(), 'Tidewire demo');
});
