// The bundle of `@tidewire/client` in Chromium: under a strict policy, without a secure context, in a worker, without a network,
// after a pause, and in a frozen renderer.

import assert from 'node:assert/strict';
import { resolve } from 'node:path';
import { test } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { presenceOf } from '../../packages/client/src/presence.ts';
import { provide } from '../../packages/client/src/provide.ts';
import { Network } from '../browser/network.ts';
import { browserDuring, FOREIGN_HOST, NEEDS_FOREIGN_HOST, openPage, servePage } from '../browser/page.ts';
import { renderers, signal } from '../browser/renderer.ts';
import { atEnd } from '../harness/cleanup.ts';
import { client } from '../harness/driver/tidewire.ts';
import { command } from '../harness/http.ts';
import { fresh } from '../harness/names.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, isPending, within } from '../harness/wait.ts';

const SCRIPT = resolve(import.meta.dirname, '../../packages/client/dist/tidewire-all.min.js');
/** A policy that allows neither inline scripts nor `eval`. */
const POLICY = "default-src 'none'; script-src 'self'; worker-src 'self'; connect-src ws:";
const QUICK = { reconnectMinMs: 20, reconnectMaxMs: 200 };

/** Connects a client in `page` as `client` and collects its states in `states`. */
async function connectFrom(page: Page, address: string): Promise<string> {
  return page.evaluate(
    async ([url, options]) => {
      const { Client } = (globalThis as any).Tidewire;
      const made = new Client(url, options);
      const states: string[] = [];
      made.onState((state: string) => states.push(state));
      Object.assign(globalThis, { client: made, states });
      await made.connect();
      return made.state as string;
    },
    [address, QUICK] as const,
  );
}

/** The later states of the page's client, until it reaches `last`. */
function statesUntil(page: Page, last: string): Promise<string[]> {
  return page.evaluate((wanted) => {
    const states: string[] = [];
    return new Promise<string[]>((done) => {
      (globalThis as any).client.onState((state: string) => {
        states.push(state);
        if (state === wanted) done(states);
      });
    });
  }, last);
}

/** Collects the events of `name` in the page as `heard`, with the page's time of the last event as `heardAt`. */
async function hears(page: Page, name: string): Promise<void> {
  await page.evaluate(async (event) => {
    const heard: unknown[] = [];
    Object.assign(globalThis, { heard });
    // Collect gaps like events. tsx adds a helper call to named functions, which does not exist in the page, so use no function here.
    const options = { onGap: heard.push.bind(heard) };
    await (globalThis as any).client.event.subscribe(event, (payload: unknown) => Object.assign(globalThis, { heardAt: Date.now() }) && heard.push(payload), options).ready;
  }, name);
}

const heardBy = (page: Page): Promise<unknown[]> => page.evaluate(() => (globalThis as any).heard as unknown[]);

test('the client in a browser', async (t) => {
  const browser: Browser = await browserDuring(t);
  const worker = `
    importScripts('/client.js')
    onmessage = async ({ data }) => {
      const client = new Tidewire.Client(data)
      await client.connect()
      postMessage(await client.rpc.call('worker/echo', 'from a worker'))
      client.close()
    }
  `;
  const port = await servePage(t, { script: SCRIPT, policy: POLICY, worker });
  const server = await Server.during(t, { origins: [`http://${FOREIGN_HOST}:${port}`], history: ['kept/*'] });
  const other = client(t, server.address);
  await within(DEADLINE_MS, other.connect(), 'login');

  await t.test('speaks under a policy that forbids eval and inline scripts', async (inner) => {
    const page = await openPage(browser, 'localhost', port);
    atEnd(inner, () => page.close());
    assert.equal(await connectFrom(page, server.address), 'open');
    const name = fresh('event');
    await hears(page, name);
    other.event.emit(name, { text: 'to the page' });
    await eventually(async () => (await heardBy(page)).length === 1, 'the page receives the event');
    assert.deepEqual(await heardBy(page), [{ text: 'to the page' }]);
    await page.evaluate((rpc) => (globalThis as any).Tidewire.provide((globalThis as any).client.rpc, rpc, (argument: unknown) => [argument]).ready, name);
    assert.deepEqual(await other.rpc.call(name, 'there and back'), ['there and back']);
  });

  await t.test('needs no secure context', NEEDS_FOREIGN_HOST, async (inner) => {
    const page = await openPage(browser, FOREIGN_HOST, port);
    atEnd(inner, () => page.close());
    assert.equal(await page.evaluate(() => (globalThis as any).isSecureContext as boolean), false);
    assert.equal(await connectFrom(page, server.address), 'open');
    const name = fresh('rpc');
    await provide(other.rpc, name, (argument) => argument).ready;
    assert.equal(await page.evaluate((rpc) => (globalThis as any).client.rpc.call(rpc, 'plain http'), name), 'plain http');
  });

  await t.test('runs in a worker', async (inner) => {
    await provide(other.rpc, 'worker/echo', (argument) => argument).ready;
    const page = await openPage(browser, 'localhost', port);
    atEnd(inner, () => page.close());
    const answer = page.evaluate((address) => {
      const made = new (globalThis as any).Worker('/worker.js');
      made.postMessage(address);
      return new Promise((done) => (made.onmessage = ({ data }: { data: unknown }) => done(data)));
    }, server.address);
    assert.equal(await within(DEADLINE_MS, answer, 'the worker answers'), 'from a worker');
  });

  await t.test('checks a connection when its page is shown, visible or online again, before it reports open', async (inner) => {
    const page = await openPage(browser, 'localhost', port);
    atEnd(inner, () => page.close());
    await connectFrom(page, server.address);
    for (const [target, event] of [['window', 'pageshow'], ['window', 'online'], ['document', 'visibilitychange']] as const) {
      const states = statesUntil(page, 'open');
      await page.evaluate(([of, name]) => (globalThis as any)[of].dispatchEvent(new Event(name)), [target, event] as const);
      assert.deepEqual(await within(DEADLINE_MS, states, `open after ${event}`), ['checking', 'open'], event);
    }
  });

  await t.test('reconnects when the network returns, and receives missed events', async (inner) => {
    const page = await openPage(browser, 'localhost', port);
    atEnd(inner, () => page.close());
    const network = await Network.during(inner, server);
    await connectFrom(page, network.address);
    const name = `kept/${fresh('event')}`;
    await hears(page, name);
    const lost = statesUntil(page, 'waiting');
    await network.cut(page.context());
    await within(DEADLINE_MS, lost, 'the page notices');
    other.event.emit(name, 'missed');
    const back = statesUntil(page, 'open');
    await network.restore(page.context());
    await within(DEADLINE_MS, back, 'the page is back');
    await eventually(async () => (await heardBy(page)).length === 1, 'the page has the missed events');
    assert.deepEqual(await heardBy(page), ['missed']);
  });

  await t.test('a renderer that was frozen until its session ended receives missed events within a second', async (inner) => {
    const short = await Server.during(inner, { heartbeatIntervalMs: 500, history: ['kept/*'], origins: [`http://localhost:${port}`] });
    const watcher = client(inner, short.address, { heartbeatIntervalMs: 100 });
    await within(DEADLINE_MS, watcher.connect(), 'login');
    const page = await openPage(browser, 'localhost', port);
    atEnd(inner, () => page.close());
    await page.evaluate((address) => {
      const made = new (globalThis as any).Tidewire.Client(address, { heartbeatIntervalMs: 100, auth: { username: 'sleeper' } });
      Object.assign(globalThis, { client: made });
      return made.connect();
    }, short.address);
    const name = `kept/${fresh('event')}`;
    await hears(page, name);
    const sleeper = new Inbox<boolean>('presence of the page');
    await presenceOf(watcher).subscribe('sleeper', sleeper.push).ready;
    await sleeper.until((seen) => seen.at(-1) === true, DEADLINE_MS, 'the page is online');
    // The test does not know which of the processes is the renderer of this page. No other page is open, so it stops all of them.
    const stopped = renderers();
    signal('SIGSTOP', ...stopped);
    atEnd(inner, () => signal('SIGCONT', ...stopped));
    const answer = page.evaluate(() => Date.now());
    await sleeper.until((seen) => seen.at(-1) === false, DEADLINE_MS, 'the session has ended');
    // Unlike an event of the watcher, whose own session may just have ended, this one is acknowledged.
    assert.deepEqual(await command(short, { topic: 'event', action: 'emit', eventName: name, data: 'while it was frozen' }), { success: true });
    // The renderer is frozen: an evaluation that was requested after the stop is still pending.
    assert.ok(await isPending(answer));
    signal('SIGCONT', ...stopped);
    const woken = await within(DEADLINE_MS, answer, 'the page runs again');
    await eventually(async () => (await heardBy(page)).length > 0, 'the page has the missed events');
    assert.deepEqual(await heardBy(page), ['while it was frozen']);
    // Measure with the page's clock, so that a delay of the test process does not count.
    const ms = (await page.evaluate(() => (globalThis as any).heardAt as number)) - woken;
    assert.ok(ms < 1_000, `after ${ms} ms`);
  });
});
