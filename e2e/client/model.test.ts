// Random edits of many devices, most of them offline, through restarts of tabs and of the server. In the end all copies are
// equal, and every edit is in the final value, was replaced by another edit that the test can name, or was rejected.

import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import type { Browser, BrowserContext } from 'playwright-core';
import { valueAt } from '../../packages/client/src/path.ts';
import { browserDuring, servePage } from '../browser/page.ts';
import { atEnd } from '../harness/cleanup.ts';
import { client } from '../harness/driver/tidewire.ts';
import { Random } from '../harness/random.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';
import { OFFLINE_SCRIPT, Tab } from './tab.ts';

const DEVICES = Number(process.env['OFFLINE_DEVICES'] ?? 3);
const EDITS = Number(process.env['OFFLINE_EDITS'] ?? 300);
const SEED = Number(process.env['OFFLINE_SEED'] ?? Date.now() % 2 ** 31);
const ROUNDS = 5;
/** After the last device has a connection, all copies must be equal within this time. */
const EQUAL_MS = 5_000;
const NAMES = ['model/a', 'model/b', 'model/c'];
const SHARED = ['title', 'list[2]', 'map.x', 'map.y', 'map'];
const RULES = `
presence: { "*": { allow: true } }
event: { "*": { publish: true, subscribe: true, listen: true } }
rpc: { "*": { provide: true, request: true } }
record: { "*": { create: true, read: true, delete: true, listen: true, notify: true, write: "data.denied === undefined" } }
`;

interface Edit {
  id: string;
  name: string;
  /** Empty for the whole record. */
  path: string;
  value: unknown;
  issuedAt: number;
  /** When its tab received the acknowledgement; unknown if the tab was closed before. */
  madeAt: number;
}

interface Device {
  context: BrowserContext;
  tab: Tab;
}

/** The id of the edit that wrote `value`. */
function writer(value: unknown): string | undefined {
  return typeof value === 'string' ? value : (value as { by?: string } | null | undefined)?.by;
}

/** `path` and all paths above it, up to the whole record. */
function upwards(path: string): string[] {
  const above = path.replace(/(\.[^.[]+|\[\d+\]|^[^.[]+)$/, '');
  return path === '' ? [''] : [path, ...upwards(above)];
}

/** The fate of `edit`, which was not rejected; undefined if the edit is lost. */
function outcome(edit: Edit, final: unknown, edits: Map<string, Edit>): string | undefined {
  for (const path of upwards(edit.path)) {
    const by = edits.get(writer(path === '' ? final : valueAt(final, path)) ?? '');
    if (by?.id === edit.id) return 'in the final value';
    // An edit that was made before this edit was issued can't have replaced it.
    if (by && by.path === path && by.madeAt >= edit.issuedAt) return `replaced by ${by.id}`;
  }
  return undefined;
}

/** Runs the model; returns the number of edits for each fate, and the lost edits. */
async function run(t: TestContext, browser: Browser, { count, devices: size, prepare, seed = SEED }: { count: number; devices: number; prepare?: string; seed?: number }) {
  console.log(`OFFLINE_SEED=${seed}`);
  const random = new Random(seed);
  const port = await servePage(t, { script: OFFLINE_SCRIPT });
  const origin = `http://localhost:${port}`;
  const server = await Server.during(t, { permissions: RULES });
  const open = async (context: BrowserContext): Promise<Tab> => {
    const tab = await Tab.open(context, origin, server.address);
    await tab.until({ mode: 'durable' });
    return tab;
  };
  const devices: Device[] = [];
  for (let i = 0; i < size; i += 1) {
    const context = await browser.newContext();
    atEnd(t, () => context.close());
    if (prepare) await context.addInitScript(prepare);
    devices.push({ context, tab: await open(context) });
  }
  const edits = new Map<string, Edit>();
  /** Collects a tab's acknowledgements and rejections. */
  const collect = async ({ tab }: Device): Promise<void> => {
    const known = await tab.page.evaluate(() => (globalThis as any).outcomes ?? {});
    for (const [id, told] of Object.entries(known)) Object.assign(edits.get(id) as Edit, told);
  };
  let made = 0;
  let restarts = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const device of devices) {
      if (random.below(3) > 0) await device.context.setOffline(true);
      const share = Math.ceil((count - made) / ((ROUNDS - round) * size - devices.indexOf(device)));
      const batch = Array.from({ length: share }, () => {
        made += 1;
        const id = `e${made}`;
        const kind = random.below(200);
        const path = kind < 100 ? `own.${id}` : kind === 100 ? '' : kind < 110 ? 'denied' : random.of(SHARED);
        const value = path === '' || path === 'map' ? { by: id } : id;
        const edit: Edit = { id, name: random.of(NAMES), path, value, issuedAt: 0, madeAt: Infinity };
        edits.set(id, edit);
        return edit;
      });
      await device.tab.page.evaluate(async (all) => {
        const { records, offline } = globalThis as any;
        const outcomes = ((globalThis as any).outcomes ??= {});
        for (const { id, name, path, value } of all) {
          records[name] ??= offline.open(name);
          const told: any = (outcomes[id] = { issuedAt: Date.now() });
          const done = path === '' ? records[name].setWithAck(value) : records[name].setWithAck(path, value);
          done.then(() => (told.madeAt = Date.now()), () => undefined);
        }
        await offline.kept();
      }, batch);
    }
    if (random.once(2) || round === 0) {
      restarts += 1;
      await server.kill();
      await server.start();
    }
    for (const device of devices) {
      if (random.once(2)) {
        await collect(device);
        restarts += 1;
        await device.tab.close();
        // Loading the page needs the network.
        await device.context.setOffline(false);
        device.tab = await open(device.context);
      }
      if (random.below(3) > 0) await device.context.setOffline(false);
    }
  }
  for (const { context, tab } of devices) {
    await context.setOffline(false);
    for (const name of NAMES) await tab.record(name);
  }
  for (const { tab } of devices) await tab.until({ connection: 'open' });
  const back = performance.now();
  for (const { tab } of devices) await tab.until({ pendingCount: 0 }, 60_000);
  const reader = client(t, server.address);
  await within(DEADLINE_MS, reader.connect(), 'login');
  const finals = await Promise.all(NAMES.map(async (name) => [name, await reader.record.get(name)] as const));
  for (const { tab } of devices) {
    for (const [name, final] of finals) {
      await eventually(async () => JSON.stringify(await tab.value(name)) === JSON.stringify(final), `a copy of ${name} is equal`);
    }
  }
  const equalMs = performance.now() - back;
  const rejected = new Map<string, string>();
  for (const device of devices) {
    await collect(device);
    for (const { changes, reason } of await device.tab.rejections()) rejected.set(writer(changes[0]?.value) as string, reason);
  }
  const counts: Record<string, number> = {};
  const lost = [...edits.values()].filter((edit) => {
    const end = rejected.get(edit.id) ?? outcome(edit, new Map(finals).get(edit.name), edits);
    const kind = end?.startsWith('replaced') ? 'replaced' : end ?? 'lost';
    counts[kind] = (counts[kind] ?? 0) + 1;
    return end === undefined;
  });
  const text = Object.entries(counts).map(([kind, many]) => `${many} ${kind}`).join(', ');
  console.log(`${edits.size} edits of ${size} devices, ${restarts} restarts: ${text}; all copies were equal after ${equalMs.toFixed(0)} ms`);
  return { lost, counts, equalMs };
}

test('random edits of many devices through restarts', { timeout: 1_800_000 }, async (t) => {
  const browser = await browserDuring(t);

  await t.test('all copies are equal, and every edit is accounted for', async (inner) => {
    const { lost, counts, equalMs } = await run(inner, browser, { count: EDITS, devices: DEVICES });
    assert.deepEqual(lost, []);
    assert.ok((counts['denied'] ?? 0) > 0 && (counts['replaced'] ?? 0) > 0, 'edits had all kinds of ends');
    assert.ok(equalMs <= EQUAL_MS, `${equalMs} ms`);
  });

  await t.test('the test detects a browser that forgets some edits of its queue', async (inner) => {
    // The browser reports edits as stored that are not on the disk.
    const forgets = `
      const add = IDBObjectStore.prototype.add
      let count = 0
      IDBObjectStore.prototype.add = function (...args) {
        const request = add.apply(this, args)
        count += 1
        if (this.name === 'edits' && count % 5 === 0) request.addEventListener('success', () => this.delete(request.result))
        return request
      }`;
    // With this seed tabs are closed while edits are pending; with a few other seeds no tab is.
    const { lost } = await run(inner, browser, { count: 200, devices: 2, prepare: forgets, seed: 1 });
    assert.ok(lost.length > 0, 'an edit is missed');
    console.log(`planted fault: ${lost.length} edits are missed`);
  });
});
