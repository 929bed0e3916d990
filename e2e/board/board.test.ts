// The example `examples/board` in Chromium: its members, offline edits, refusals and rules, with the rules file of the example.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { findings } from '../browser/axe.ts';
import { browserDuring } from '../browser/page.ts';
import { client } from '../harness/driver/tidewire.ts';
import { run } from '../harness/program.ts';
import { binary, Server } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';
import { builtDuring, EXAMPLE, Tab } from './tabs.ts';

const permissions = readFileSync(join(EXAMPLE, 'permissions.yml'), 'utf8');
const LONG = 'x'.repeat(81);

test('the board', { concurrency: 2 }, async (t) => {
  const folder = builtDuring(t);
  const browser = await browserDuring(t);
  /** A server for one test, and the tabs of these users. */
  const boards = async (inner: TestContext, ...users: string[]): Promise<{ server: Server; tabs: Tab[] }> => {
    const server = await Server.during(inner, { permissions });
    const tabs = await Promise.all(users.map((user) => Tab.during(inner, browser, server, folder, user)));
    return { server, tabs };
  };

  await Promise.all([
    t.test('two tabs see the cards, moves and attention of each other', async (inner) => {
      const { tabs } = await boards(inner, 'ada', 'ben');
      const [ada, ben] = tabs as [Tab, Tab];
      await eventually(async () => (await ada.people()).length === 2, 'ada sees two members');
      await ada.add('To do', 'milk');
      await ada.add('To do', 'bread');
      await ben.shows({ 'To do': ['milk', 'bread'] });

      await ada.page.getByRole('button', { name: 'milk', exact: true }).click();
      await ben.card('milk').getByText('ada is writing').waitFor();
      await ada.page.getByLabel('Title').fill('oat milk');
      await ada.page.keyboard.press('Enter');
      await ben.shows({ 'To do': ['oat milk', 'bread'] });
      await ben.card('oat milk').getByText('ada is writing').waitFor({ state: 'detached' });

      await ben.card('oat milk').dragTo(ben.column('Done'));
      await ada.shows({ 'To do': ['bread'], Done: ['oat milk'] });
      await ada.card('oat milk').getByText('title by ada, moved by ben').waitFor();
      await ben.card('bread').dragTo(ben.card('oat milk'));
      await ada.shows({ Done: ['bread', 'oat milk'] });

      await ada.move('bread', 'Down', 'Left', 'Left');
      await ben.shows({ 'To do': ['bread'], Done: ['oat milk'] });
      assert.equal(await ada.page.evaluate('document.activeElement.textContent'), 'bread');
      await ada.page.getByText('moved to To do, 1 of 1').waitFor();
      await ben.page.getByRole('button', { name: 'Delete: bread' }).click();
      await ada.shows({ Done: ['oat milk'] });

      await ben.page.context().close();
      await eventually(async () => (await ada.people()).length === 1, 'ben is no longer shown');
    }),

    t.test('both tabs show the same board after a cut, with the edits of both', async (inner) => {
      const { tabs } = await boards(inner, 'ada', 'ben');
      const [ada, ben] = tabs as [Tab, Tab];
      for (const title of ['milk', 'bread', 'tea']) await ada.add('To do', title);
      await ben.shows({ 'To do': ['milk', 'bread', 'tea'] });
      await ada.cut();
      await eventually(async () => (await ben.people()).length === 1, 'ada is no longer shown');
      await ada.retitle('milk', 'oat milk');
      await ada.move('tea', 'Right');
      await ada.add('To do', 'salt');
      await ada.reads('offline, 3 edits wait');
      await ada.shows({ 'To do': ['oat milk', 'bread', 'salt'], Doing: ['tea'] });
      await ada.card('salt').getByText('waits for a connection').waitFor();
      await ben.move('milk', 'Right', 'Right');
      await ben.page.getByRole('button', { name: 'Delete: bread' }).click();
      await ben.add('Doing', 'soap');
      await ben.shows({ 'To do': ['tea'], Doing: ['soap'], Done: ['milk'] });

      ada.proxy.restore();
      await ada.reads('online');
      const merged = { 'To do': ['salt'], Doing: ['tea', 'soap'], Done: ['oat milk'] };
      for (const tab of [ada, ben]) {
        await tab.shows(merged);
        await tab.card('oat milk').getByText('title by ada, moved by ben').waitFor();
      }
      await eventually(async () => (await ben.people()).length === 2, 'ada is shown again');
    }),

    t.test('edits without a connection stay over a reload of the page', async (inner) => {
      const { tabs } = await boards(inner, 'ada', 'ben');
      const [ada, ben] = tabs as [Tab, Tab];
      await ada.add('To do', 'milk');
      await ben.shows({ 'To do': ['milk'] });
      await ada.cut();
      await ada.retitle('milk', 'oat milk');
      await ada.add('Doing', 'bread');
      await ada.reads('offline, 2 edits wait');
      await ada.page.reload();
      await ada.reads('offline, 2 edits wait');
      await ada.shows({ 'To do': ['oat milk'], Doing: ['bread'] });
      await ada.move('bread', 'Right');
      await ada.reads('offline, 3 edits wait');
      ada.proxy.restore();
      await ada.reads('online');
      for (const tab of [ada, ben]) await tab.shows({ 'To do': ['oat milk'], Done: ['bread'] });
    }),

    t.test('two tabs of one user show the edits of each other without a connection', async (inner) => {
      const { tabs } = await boards(inner, 'ada', 'ben');
      const [first, ben] = tabs as [Tab, Tab];
      await first.add('To do', 'milk');
      const second = await first.another();
      await second.shows({ 'To do': ['milk'] });
      await first.cut();
      await second.reads('offline');
      await second.retitle('milk', 'oat milk');
      await second.add('Doing', 'bread');
      await first.shows({ 'To do': ['oat milk'], Doing: ['bread'] });
      await first.move('bread', 'Right');
      await second.shows({ 'To do': ['oat milk'], Done: ['bread'] });
      for (const tab of [first, second]) await tab.reads('offline, 3 edits wait');
      first.proxy.restore();
      for (const tab of [first, second]) await tab.reads('online');
      for (const tab of [first, second, ben]) await tab.shows({ 'To do': ['oat milk'], Done: ['bread'] });
    }),

    t.test('a refused edit is taken back and shown with its reason', async (inner) => {
      const { tabs } = await boards(inner, 'ada', 'ben');
      const [ada, ben] = tabs as [Tab, Tab];
      await ada.add('To do', 'milk');
      await ben.shows({ 'To do': ['milk'] });
      await ada.retitle('milk', LONG);
      const alert = ada.page.getByRole('alert');
      await alert.filter({ hasText: 'the rules of the board do not allow it (MESSAGE_DENIED)' }).waitFor();
      await ada.shows({ 'To do': ['milk'] });
      await alert.getByRole('button', { name: 'Dismiss' }).click();
      await alert.waitFor({ state: 'detached' });

      await ada.cut();
      await ada.add('Doing', LONG);
      await ada.retitle('milk', 'oat milk');
      await ada.shows({ 'To do': ['oat milk'], Doing: [LONG] });
      ada.proxy.restore();
      await alert.filter({ hasText: 'the new card' }).waitFor();
      for (const tab of [ada, ben]) await tab.shows({ 'To do': ['oat milk'] });
    }),

    t.test('a visitor without a name sees the board and can not write, and no user can sign for another one', async (inner) => {
      const { server, tabs } = await boards(inner, 'ada', '');
      const [ada, visitor] = tabs as [Tab, Tab];
      await ada.add('To do', 'milk');
      await visitor.shows({ 'To do': ['milk'] });
      assert.deepEqual((await visitor.people()).map((text) => text.replace(/\s+/g, ' ')), ['A ada']);
      assert.equal(await visitor.page.getByRole('button', { name: 'milk', exact: true }).isDisabled(), true);
      assert.equal(await visitor.page.getByLabel('New card').count(), 0);

      const card = { title: 'bread', titleBy: 'eve', column: 'todo', position: 5, movedBy: 'eve', isDeleted: false };
      const denied = async (auth: { username?: string }, change: object): Promise<void> => {
        const stranger = client(inner, server.address, { auth });
        await stranger.connect();
        await assert.rejects(stranger.record.set('board/1/card/1', { ...card, ...change }), { code: 'MESSAGE_DENIED' });
        stranger.close();
      };
      await denied({}, {});
      for (const change of [{ titleBy: 'ada' }, { movedBy: 'ada' }, { title: '' }, { title: LONG }, { column: 'later' }, { position: '1' }, { isDeleted: 0 }]) {
        await denied({ username: 'eve' }, change);
      }
      await ada.shows({ 'To do': ['milk'] });
    }),

    t.test('axe-core finds nothing in light and in dark', async (inner) => {
      const server = await Server.during(inner, { permissions });
      for (const colorScheme of ['light', 'dark'] as const) {
        const tab = await Tab.during(inner, browser, server, folder, 'ada', { colorScheme });
        await tab.add('Doing', colorScheme);
        await tab.retitle(colorScheme, LONG);
        await tab.page.getByRole('alert').waitFor();
        await tab.cut();
        await tab.retitle(colorScheme, 'waits');
        await tab.card('waits').getByText('waits for a connection').waitFor();
        assert.deepEqual(await findings(tab.page), []);
      }
    }),
  ]);
});

test('the server accepts the options and rules of the example', () => {
  const text = run(binary(), ['config', 'check', '--config', 'tidewire.yml'], { cwd: EXAMPLE });
  assert.doesNotMatch(text, /error/i);
});
