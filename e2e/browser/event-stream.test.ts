// EventSource of a real browser: it reconnects by itself with the last event id, and logs in with one-time tickets.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Page } from 'playwright-core';
import { command } from '../harness/http.ts';
import { Proxy } from '../harness/proxy.ts';
import { Server } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { Inbox } from '../harness/wait.ts';
import { browserDuring, FOREIGN_HOST, openPage, servePage } from './page.ts';

const write = (recordName: string, data: unknown): object => ({ topic: 'record', action: 'write', recordName, data });
const LOGIN = { username: 'alice', password: 'abcdefgh' };

/** An event of a page's EventSource. */
interface Said {
  kind: string;
  data?: any;
  id?: string;
  /** `readyState`: 0 means connecting, 2 means closed permanently. */
  state?: number;
}

/** Makes the page open an EventSource to `address` and returns its events. */
async function listen(page: Page, address: string): Promise<Inbox<Said>> {
  const said = new Inbox<Said>('pieces in the page');
  const name = `say${Math.random().toString(36).slice(2)}`;
  await page.exposeFunction(name, said.push);
  await page.evaluate(
    ([address, name]) => {
      const say = (globalThis as any)[name as string];
      const source = new (globalThis as any).EventSource(address);
      for (const kind of ['event', 'record', 'deleted', 'refused', 'gap', 'end']) {
        source.addEventListener(kind, (piece: any) => say({ kind, data: JSON.parse(piece.data), id: piece.lastEventId }));
      }
      source.onopen = () => say({ kind: 'open' });
      source.onerror = () => say({ kind: 'error', state: source.readyState });
    },
    [address, name],
  );
  return said;
}

/** The next event of this kind; fails at the deadline. */
async function next(said: Inbox<Said>, kind: string): Promise<Said> {
  const one = await said.next();
  assert.equal(one.kind, kind, JSON.stringify(one));
  return one;
}

test('a page receives events and records, and after a lost connection the changes in between', async (t) => {
  const server = await Server.during(t);
  const proxy = await Proxy.during(t, server);
  const browser = await browserDuring(t);
  const page = await openPage(browser, 'localhost', await servePage(t));
  await command(server, write('same', { a: 1 }));
  await command(server, write('changed', { b: 1 }));
  const said = await listen(page, `http://${proxy.address}/sse?event=e&record=same&record=changed`);
  await next(said, 'open');
  // Records of different shards arrive in any order.
  const first = [await next(said, 'record'), await next(said, 'record')].map(({ data }) => data);
  assert.deepEqual(first.sort((one, other) => one.name.localeCompare(other.name)), [
    { name: 'changed', version: 1, data: { b: 1 } },
    { name: 'same', version: 1, data: { a: 1 } },
  ]);
  await command(server, { topic: 'event', action: 'emit', eventName: 'e', data: 'ä\n' });
  assert.deepEqual((await next(said, 'event')).data, { name: 'e', data: 'ä\n' });

  proxy.cut();
  assert.equal((await next(said, 'error')).state, 0);
  await command(server, write('changed', { b: 2 }));
  proxy.restore();
  // The browser may try more than once before the server accepts it.
  const opened = await said.find(({ kind }) => kind === 'open' && said.seen.filter((one) => one.kind === 'open').length === 2);
  assert.ok(opened);
  let piece = await said.next();
  while (piece.kind === 'error' || piece.kind === 'open') piece = await said.next();
  assert.deepEqual(piece.data, { name: 'changed', version: 2, data: { b: 2 } });
  await command(server, write('same', { a: 2 }));
  assert.deepEqual((await next(said, 'record')).data, { name: 'same', version: 2, data: { a: 2 } });
});

test('with logins a ticket is valid once, and a new one continues after the last event', async (t) => {
  const port = await servePage(t);
  const users = { [LOGIN.username]: { password: hashPassword(LOGIN.password) } };
  const server = await Server.during(t, { users, origins: [`http://localhost:${port}`], authAttemptsMax: 100 });
  const proxy = await Proxy.during(t, server);
  const browser = await browserDuring(t);
  const page = await openPage(browser, 'localhost', port);
  const ticket = (): Promise<string> =>
    page.evaluate(
      async ([address, login]) => {
        const headers = { 'content-type': 'application/json' };
        const answer = await fetch(`http://${address}/api/auth`, { method: 'POST', headers, body: login as string });
        return ((await answer.json()) as { ticket: string }).ticket;
      },
      [server.address, JSON.stringify(LOGIN)],
    );
  await command(server, write('same', { a: 1 }), { authData: LOGIN });
  await command(server, write('changed', { b: 1 }), { authData: LOGIN });
  const path = `http://${proxy.address}/sse?record=same&record=changed`;

  const bare = await listen(page, path);
  assert.equal((await next(bare, 'error')).state, 2);
  const said = await listen(page, `${path}&ticket=${await ticket()}`);
  await next(said, 'open');
  await next(said, 'record');
  const { id } = await next(said, 'record');
  proxy.cut();
  assert.equal((await next(said, 'error')).state, 0);
  proxy.restore();
  // The ticket has been used, so the browser gives up.
  await said.find(({ kind, state }) => kind === 'error' && state === 2);
  await command(server, write('changed', { b: 2 }), { authData: LOGIN });
  const again = await listen(page, `${path}&ticket=${await ticket()}&last_event_id=${encodeURIComponent(id ?? '')}`);
  await next(again, 'open');
  assert.deepEqual((await next(again, 'record')).data, { name: 'changed', version: 2, data: { b: 2 } });
});

test('a page of another host receives nothing', async (t) => {
  const server = await Server.during(t);
  const browser = await browserDuring(t);
  const page = await openPage(browser, FOREIGN_HOST, await servePage(t));
  const said = await listen(page, `http://127.0.0.1:${server.port}/sse?event=e`);
  assert.equal((await next(said, 'error')).state, 2);
});
