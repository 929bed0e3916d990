// Single sessions on the admin page, among 10,000 connections, in Chromium at 360 and 1,440 pixels: subscriptions,
// disconnecting, questions before destructive actions, providers and running calls, denials, and live tails.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Locator, Page } from 'playwright-core';
import { findings } from '../browser/axe.ts';
import { browserDuring } from '../browser/page.ts';
import { Operator } from '../harness/admin-page.ts';
import { C, connect, record, subscribed } from '../harness/client.ts';
import { post } from '../harness/http.ts';
import { JsonPeer } from '../harness/json-peer.ts';
import { Server } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';
import { CROWD_SERVER, crowdDuring } from './crowd.ts';
import { enter, overflow, row, table, view } from './page.ts';

const SIZE = 10_000;
const EVENTS = 1_000;
const SCREENS = [
  { width: 1440, height: 900 },
  { width: 360, height: 640 },
];

const RULES = `
record: { "*": { create: true, read: true, write: true, delete: true, listen: true } }
event: { "*": { publish: "user.id !== 'mallory'", subscribe: true, listen: true } }
rpc: { "*": { provide: true, request: true } }
presence: { "*": { allow: true } }
`;

async function isClean(page: Page, where: string): Promise<void> {
  assert.deepEqual(await findings(page), [], where);
  assert.deepEqual(await overflow(page), { by: 0, wide: [] }, where);
}

/** Presses a button with the keyboard alone. */
async function press(page: Page, button: Locator): Promise<void> {
  await button.focus();
  await page.keyboard.press('Enter');
}

/** Opens the connection of a user, which must be the only one whose name contains the text. */
async function openUser(page: Page, user: string): Promise<Locator> {
  await view(page, 'Connections');
  await page.getByLabel('User or address').fill(user);
  const connections = table(page, 'Connections');
  await eventually(async () => (await connections.getByRole('rowheader').allTextContents()).join() === user, `the list has only ${user}`);
  await connections.focus();
  await page.keyboard.press('Home');
  await page.keyboard.press('Enter');
  const card = page.getByRole('group', { name: 'One connection' });
  await card.getByRole('heading', { name: user }).waitFor();
  return card;
}

describe('the admin page and single sessions', () => {
  test(`among ${SIZE} connections it shows the subscriptions of one, and disconnects it without a ban after a question`, async (t) => {
    const server = await Server.during(t, CROWD_SERVER);
    const browser = await browserDuring(t);
    const sockets = await crowdDuring(t, server, SIZE, EVENTS);
    const ann = await connect(t, server, { login: { username: 'ann' } });
    const names = Array.from({ length: 1_200 }, (_, number) => `news/${String(number).padStart(4, '0')}`);
    await Promise.all(names.map((name) => subscribed(ann, name)));
    await record(ann, 'ann/record');
    ann.rpc.provide('ann/rpc', () => {});
    ann.event.listen('ann/.*', () => {});
    const operator = await Operator.of(server);
    for (const viewport of SCREENS) {
      const where = `at ${viewport.width} pixels`;
      const page = await enter(t, browser, server, { viewport });
      let card = await openUser(page, 'ann');
      await card.getByText('1,203 subscriptions').waitFor();
      const subscriptions = table(page, 'Subscriptions');
      await row(page, 'Subscriptions', 'ann/.*').getByText('event listener').waitFor();
      await subscriptions.focus();
      await page.keyboard.press('End');
      await row(page, 'Subscriptions', 'news/1199').getByText('event', { exact: true }).waitFor();
      await isClean(page, where);
      await subscriptions.getByRole('button', { name: 'Kind' }).click();
      await row(page, 'Subscriptions', 'news/0000').waitFor();
      await card.getByLabel('Part of a name').fill('ann/');
      await card.getByText('3 subscriptions', { exact: true }).waitFor();
      assert.deepEqual((await subscriptions.getByRole('rowheader').allTextContents()).sort(), ['ann/.*', 'ann/record', 'ann/rpc']);

      // A second connection, which speaks without a client library, so that the test sees how it is closed.
      const bob = await JsonPeer.login(server, { username: 'bob' });
      card = await openUser(page, 'bob');
      const disconnect = card.getByRole('button', { name: 'Disconnect …' });
      const question = page.getByRole('dialog', { name: /^Close this connection of bob\?/ });
      await press(page, disconnect);
      await question.waitFor();
      await isClean(page, `${where}, with the question`);
      await page.keyboard.press('Escape');
      await question.waitFor({ state: 'detached' });
      await press(page, disconnect);
      await question.waitFor();
      // The first button cancels, so Enter alone changes nothing.
      await page.keyboard.press('Enter');
      await question.waitFor({ state: 'detached' });
      await bob.settle();
      assert.ok(bob.isOpen, where);
      await press(page, disconnect);
      await question.waitFor();
      await page.keyboard.press('Tab');
      await page.keyboard.press('Enter');
      assert.deepEqual(await bob.closed, { code: 1013, reason: 'disconnected by an operator' }, where);
      await card.getByText('This connection has ended.').waitFor();
      (await JsonPeer.login(server, { username: 'bob' })).close();
      assert.deepEqual((await operator.ask('GET', '/v1/revocations')).revocations, []);
      await page.context().close();
    }
    const audited = server.output.split('\n').filter((line) => /"action":"disconnect","about":"[\d.]+ bob"/.test(line));
    assert.equal(audited.length, SCREENS.length, server.output.slice(-2_000));
    assert.ok(sockets.every((socket) => !socket.destroyed));
    assert.equal(ann.getConnectionState(), C.CONNECTION_STATE.OPEN);
  });

  test('asks back before it deletes a record, revokes a user, or lifts a revocation', async (t) => {
    const [server, browser] = [await Server.during(t), await browserDuring(t)];
    const operator = await Operator.of(server);
    assert.equal((await operator.fetch('PUT', '/records/a/1', { n: 1 })).status, 201);
    const revoked = async (): Promise<string[]> => (await operator.ask('GET', '/v1/revocations')).revocations.map(({ name }: { name: string }) => name);
    for (const viewport of SCREENS) {
      const where = `at ${viewport.width} pixels`;
      const page = await enter(t, browser, server, { viewport });
      await view(page, 'Records');
      await page.getByLabel('Name, or its beginning').fill('a/');
      await row(page, 'Records', 'a/1').click();
      await page.getByRole('button', { name: 'Delete' }).click();
      const question = page.getByRole('dialog');
      await question.getByText('Delete the record a/1?').waitFor();
      await isClean(page, where);
      await question.getByRole('button', { name: 'Cancel' }).click();
      await question.waitFor({ state: 'detached' });
      assert.equal((await operator.fetch('GET', '/records/a/1')).status, 200, where);

      await view(page, 'Revoke');
      await page.getByLabel('User id, or id').fill('mallory');
      await page.keyboard.press('Enter');
      await question.getByText('Revoke the user mallory?').waitFor();
      await page.keyboard.press('Escape');
      await question.waitFor({ state: 'detached' });
      assert.deepEqual(await revoked(), [], where);
      await page.getByLabel('User id, or id').focus();
      await page.keyboard.press('Enter');
      await question.getByRole('button', { name: 'Revoke' }).click();
      await page.getByText('user mallory is revoked.').waitFor();
      assert.deepEqual(await revoked(), ['mallory'], where);
      await page.getByRole('button', { name: 'Lift user mallory' }).click();
      await question.getByRole('button', { name: 'Lift' }).click();
      await page.getByText('user mallory may log in again.').waitFor();
      assert.deepEqual(await revoked(), [], where);
      await page.context().close();
    }
  });

  test(`among ${SIZE} connections it shows providers, listeners and running calls`, async (t) => {
    const server = await Server.during(t, CROWD_SERVER);
    const browser = await browserDuring(t);
    await crowdDuring(t, server, SIZE, EVENTS);
    const [bob, ann] = [await connect(t, server, { login: { username: 'bob' } }), await connect(t, server, { login: { username: 'ann' } })];
    const asked = new Set<string>();
    const names = Array.from({ length: 1_100 }, (_, number) => `rpc/${String(number).padStart(4, '0')}`);
    for (const name of names) bob.rpc.provide(name, () => void asked.add(name));
    bob.event.listen('weather/.*', () => {});
    bob.record.listen('city/.*', () => {});
    const operator = await Operator.of(server);
    await eventually(async () => (await operator.ask('GET', '/providers')).total === 1_102, 'all are registered');
    // The provider never responds, so the call runs until its time is over.
    const call = (name: string): void => void ann.rpc.make(name, {}).catch(() => {});
    for (const name of names.slice(0, 3)) call(name);
    const running = async (): Promise<any[]> => (await operator.ask('GET', '/calls?sort=name')).calls;
    await eventually(async () => (await running()).filter(({ accepted }) => accepted).length === 3, 'three calls run');
    const calls = await running();
    assert.deepEqual(calls.map(({ name, caller, provider }) => [name, caller.user, provider.user]), names.slice(0, 3).map((name) => [name, 'ann', 'bob']));
    assert.ok(calls.every(({ seconds }) => seconds >= 0 && seconds < 15), JSON.stringify(calls));
    for (const viewport of SCREENS) {
      const where = `at ${viewport.width} pixels`;
      for (const name of names.slice(0, 3)) call(name);
      const page = await enter(t, browser, server, { viewport });
      await view(page, 'Providers');
      await page.getByText('1,102 providers and listeners').waitFor();
      await row(page, 'Running calls', 'rpc/0000').first().getByText('ann').waitFor();
      await isClean(page, where);
      const providers = table(page, 'Providers');
      await providers.focus();
      await page.keyboard.press('End');
      await row(page, 'Providers', 'weather/.*').getByText('event listener').waitFor();
      await page.getByLabel('Kind').selectOption('record listener');
      await page.getByText('1 providers and listeners').waitFor();
      await row(page, 'Providers', 'city/.*').getByText('bob').waitFor();
      assert.match(page.url(), /kind=record\+listener/);
      await page.reload();
      await row(page, 'Providers', 'city/.*').waitFor();
      await providers.focus();
      await page.keyboard.press('Home');
      await page.keyboard.press('Enter');
      await page.getByRole('group', { name: 'One connection' }).getByRole('heading', { name: 'bob' }).waitFor();
      await page.goBack();
      await row(page, 'Providers', 'city/.*').waitFor();
      await page.context().close();
    }
    assert.ok(asked.size >= 3);
  });

  test('a denial names the rule that denied, with its line', async (t) => {
    const [server, browser] = [await Server.during(t, { permissions: RULES }), await browserDuring(t)];
    const mallory = await connect(t, server, { login: { username: 'mallory' }, errors: ['MESSAGE_DENIED'] });
    mallory.event.emit('secret/plan', 1);
    const rule = /:3:\d+ "\*" publish: user\.id !== 'mallory'/;
    const operator = await Operator.of(server);
    await eventually(async () => (await operator.ask('GET', '/denials')).denials.length === 1, 'the denial is listed');
    const [denial] = (await operator.ask('GET', '/denials')).denials;
    assert.deepEqual([denial.user, denial.kind, denial.name, denial.outcome], ['mallory', 'event.publish', 'secret/plan', 'denied']);
    assert.match(denial.by, rule);
    for (const viewport of SCREENS) {
      const where = `at ${viewport.width} pixels`;
      const page = await enter(t, browser, server, { viewport });
      await view(page, 'Rules');
      await row(page, 'Denials', 'secret/plan').first().waitFor();
      await table(page, 'Denials').focus();
      await page.keyboard.press('End');
      await page.keyboard.press('Enter');
      const card = page.getByRole('group', { name: 'One denial' });
      await card.getByText(rule).waitFor();
      await card.getByText('mallory wanted event.publish secret/plan').waitFor();
      await isClean(page, where);
      await view(page, 'Try out');
      await page.getByLabel('Name').fill('secret/plan');
      await page.getByLabel(/^As user/).fill('mallory');
      await page.getByRole('button', { name: 'Do it' }).click();
      await page.getByRole('list', { name: 'Outcomes' }).getByText(rule).waitFor();
      await page.context().close();
    }
  });

  test(`among ${SIZE} connections it follows events and one session live`, async (t) => {
    const server = await Server.during(t, CROWD_SERVER);
    const browser = await browserDuring(t);
    await crowdDuring(t, server, SIZE, EVENTS);
    const [ann, bob] = [await connect(t, server, { login: { username: 'ann' } }), await connect(t, server, { login: { username: 'bob' } })];
    await subscribed(bob, 'news/bob');
    for (const viewport of SCREENS) {
      const where = `at ${viewport.width} pixels`;
      const page = await enter(t, browser, server, { viewport });
      await view(page, 'Live tail');
      await page.getByLabel("Beginning of the events' names").fill('news/');
      await page.keyboard.press('Enter');
      await page.getByText('Following').waitFor();
      ann.event.emit('other/1', 1);
      ann.event.emit('news/1', 'five!');
      const line = row(page, 'Messages', 'news/1');
      await line.waitFor();
      assert.match((await line.getByRole('gridcell').allTextContents()).join('|'), /^event\|publish\|from client\|7 B\|ann\|.*\d\d/);
      assert.equal(await row(page, 'Messages', 'other/1').count(), 0, where);
      await isClean(page, where);
      assert.match(page.url(), /events=news%2F/);
      await page.getByRole('button', { name: 'Stop' }).click();
      await page.getByRole('button', { name: 'Follow' }).waitFor();

      const card = await openUser(page, 'bob');
      await press(page, card.getByRole('button', { name: 'Live tail' }));
      await page.getByText('Following').waitFor();
      ann.event.emit('news/bob', { for: 'bob' });
      bob.event.emit('by/bob', 1);
      await row(page, 'Messages', 'news/bob').getByText('to client').waitFor();
      await row(page, 'Messages', 'by/bob').getByText('from client').waitFor();
      await isClean(page, where);
      await page.context().close();
    }
  });

  test('a page that takes its lines too slowly loses some, learns how many, and delays nothing', async (t) => {
    const server = await Server.during(t, { shards: 1 });
    const operator = await Operator.of(server);
    const [publisher, reader] = [await connect(t, server, { login: { username: 'ann' } }), await connect(t, server, { login: {} })];
    const inbox = await subscribed(reader, 'flood');
    const { tail } = await operator.ask('POST', '/tails', { events: '' });
    const count = 3_000;
    for (let number = 0; number < count; number++) publisher.event.emit('flood', number);
    assert.equal((await inbox.count(count)).length, count);
    const { lines, lost } = await operator.ask('GET', `/tails/${tail}`);
    assert.deepEqual([lines.length, lost], [1_000, count - 1_000]);
    publisher.event.emit('flood', -1);
    await inbox.count(1);
    const next = await operator.ask('GET', `/tails/${tail}`);
    assert.deepEqual(next.lines.map(({ topic, action, name, bytes, user }: any) => ({ topic, action, name, bytes, user })), [
      { topic: 'event', action: 'publish', name: 'flood', bytes: 2, user: 'ann' },
    ]);
    assert.equal(next.lost, 0);
    const other = await Operator.of(server);
    assert.equal((await other.fetch('GET', `/tails/${tail}`)).status, 404, 'another session cannot read it');
    assert.equal((await operator.fetch('DELETE', `/tails/${tail}`)).status, 204);
    assert.equal((await operator.fetch('GET', `/tails/${tail}`)).status, 404);
    for (let open = 0; open < 8; open++) await operator.ask('POST', '/tails', { events: 'x' });
    const refused = await operator.fetch('POST', '/tails', { events: 'x' });
    assert.deepEqual([refused.status, ((await refused.json()) as any).error.code], [409, 'LIMIT']);
    assert.equal((await operator.fetch('POST', '/tails', {})).status, 400);
    assert.equal((await operator.fetch('GET', '/connections/0.1.1/x')).status, 400);
    assert.equal((await operator.fetch('POST', '/connections/0.1.1')).status, 405);
    assert.equal((await post(server, '/admin/api/tails', {})).status, 401);
  });
});
