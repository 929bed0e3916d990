// A tab of Chromium that holds records offline: `@tidewire/client/offline` in its page, and functions for tests.

import { resolve } from 'node:path';
import type { TestContext } from 'node:test';
import type { BrowserContext, Page } from 'playwright-core';
import type { Rejection } from '../../packages/client/src/offline/edit.ts';
import type { OfflineOptions } from '../../packages/client/src/offline/options.ts';
import type { OfflineState } from '../../packages/client/src/offline/state.ts';
import { atEnd } from '../harness/cleanup.ts';
import { DEADLINE_MS, eventually } from '../harness/wait.ts';

/** The script with which a page holds records offline. */
export const OFFLINE_SCRIPT = resolve(import.meta.dirname, '../../packages/client/dist/tidewire-offline.min.js');

const QUICK = { reconnectMinMs: 20, reconnectMaxMs: 200 };

export interface TabOptions extends Omit<OfflineOptions, 'merge'> {
  merge?: 'local' | 'remote' | 'both';
  user?: string;
  /** Credentials; the default is only the user's name. */
  auth?: object;
  heartbeatIntervalMs?: number;
  staleAfterMs?: number;
  checkTimeoutMs?: number;
}

export class Tab {
  constructor(readonly page: Page) {}

  /** Opens a page of `origin` in `context` and starts to hold records of the server at `address`. */
  static async open(context: BrowserContext, origin: string, address: string, options: TabOptions = {}): Promise<Tab> {
    const tab = await Tab.loaded(context, origin);
    await tab.start(address, options);
    return tab;
  }

  /** Opens a page that does not hold records yet. */
  static async loaded(context: BrowserContext, origin: string): Promise<Tab> {
    const tab = new Tab(await context.newPage());
    // tsx wraps named functions and calls this helper to do so.
    await tab.page.addInitScript('globalThis.__name = (named) => named');
    await tab.page.goto(origin);
    return tab;
  }

  static async during(test: TestContext, context: BrowserContext, origin: string, address: string, options: TabOptions = {}): Promise<Tab> {
    const tab = await Tab.open(context, origin, address, options);
    atEnd(test, () => tab.close());
    return tab;
  }

  /** Starts to hold records offline in an open page. */
  async start(address: string, { user = 'alice', auth = { username: user }, heartbeatIntervalMs, staleAfterMs, checkTimeoutMs, merge = 'local', ...options }: TabOptions = {}): Promise<void> {
    const times = Object.entries({ heartbeatIntervalMs, staleAfterMs, checkTimeoutMs }).filter(([, ms]) => ms !== undefined);
    const settings = { ...QUICK, auth, ...Object.fromEntries(times) };
    await this.page.evaluate(
      ([url, of, given, strategy]) => {
        const { Client, Offline } = (globalThis as any).Tidewire;
        const client = new Client(url, of);
        const both = ({ remote, local, base }: any) => ({ title: `${remote.title} and ${local.title} on ${base?.title}` });
        const offline = new Offline(client, { ...given, merge: strategy === 'both' ? both : strategy });
        const rejections: unknown[] = [];
        offline.onRejected((rejection: unknown) => rejections.push(rejection));
        const modes: string[] = [];
        offline.onState(({ mode }: any) => mode === modes.at(-1) || modes.push(mode));
        const connections: string[] = [];
        offline.onState(({ connection }: any) => connection === connections.at(-1) || connections.push(connection));
        const errors: unknown[] = [];
        offline.onError(({ code }: any) => errors.push(code));
        Object.assign(globalThis, { client, offline, rejections, modes, connections, errors, records: {} });
      },
      [address, settings, options, merge] as const,
    );
  }

  /** Opens a record and waits until it has a value. */
  async record(name: string): Promise<void> {
    await this.page.evaluate((of) => {
      const record = (globalThis as any).offline.open(of);
      (globalThis as any).records[of] = record;
      return record.ready;
    }, name);
  }

  /** Sets the value at `path` and waits until the edit is stored on the device. */
  async set(name: string, path: string, value: unknown): Promise<void> {
    await this.page.evaluate(
      async ([of, at, to]) => {
        const { records, offline } = globalThis as any;
        records[of] ??= offline.open(of);
        records[of].set(at, to);
        await offline.kept();
      },
      [name, path, value] as const,
    );
  }

  /** Sets the value at `path`; returns the outcome: `made`, or the code of the error. */
  async setWithAck(name: string, path: string, value: unknown): Promise<string> {
    return this.page.evaluate(
      ([of, at, to]) => {
        const { records, offline } = globalThis as any;
        records[of] ??= offline.open(of);
        return records[of].setWithAck(at, to).then(() => 'made', ({ code }: any) => code as string) as Promise<string>;
      },
      [name, path, value] as const,
    );
  }

  value(name: string): Promise<unknown> {
    return this.page.evaluate((of) => (globalThis as any).records[of]?.value as unknown, name);
  }

  state(): Promise<OfflineState> {
    return this.page.evaluate(() => {
      const { reason, ...state } = (globalThis as any).offline.state;
      return { ...state, reason: reason && { code: reason.code, message: reason.message } };
    });
  }

  rejections(): Promise<Rejection[]> {
    return this.page.evaluate(() => (globalThis as any).rejections as Rejection[]);
  }

  /** The connection states so far. */
  connections(): Promise<string[]> {
    return this.page.evaluate(() => (globalThis as any).connections as string[]);
  }

  /** The codes of errors that no promise or callback reported. */
  errors(): Promise<string[]> {
    return this.page.evaluate(() => (globalThis as any).errors as string[]);
  }

  /** Waits until the state has all values of `wanted`. */
  async until(wanted: Partial<OfflineState>, ms = DEADLINE_MS): Promise<void> {
    const keys = Object.keys(wanted) as Array<keyof OfflineState>;
    let last: OfflineState | undefined;
    const holds = async (): Promise<boolean> => {
      const state = (last = await this.state());
      return keys.every((key) => state[key] === wanted[key]);
    };
    await eventually(holds, `a tab has ${JSON.stringify(wanted)}`, ms).catch((error: Error) => {
      throw new Error(`${error.message}; it has ${JSON.stringify(last)}`);
    });
  }

  /** Waits until the value of `name` is `wanted`. */
  async shows(name: string, wanted: unknown, ms = DEADLINE_MS): Promise<void> {
    let last: unknown;
    const holds = async (): Promise<boolean> => JSON.stringify((last = await this.value(name))) === JSON.stringify(wanted);
    await eventually(holds, `a tab shows ${JSON.stringify(wanted)}`, ms).catch((error: Error) => {
      throw new Error(`${error.message}; it shows ${JSON.stringify(last)}`);
    });
  }

  /** The time of the page's clock. */
  now(): Promise<number> {
    return this.page.evaluate(() => Date.now());
  }

  /** Resolves with the page's time at which the open record `name` becomes `wanted`. Call it before the change. */
  timeOf(name: string, wanted: unknown): Promise<number> {
    return this.page.evaluate(
      ([of, value]) =>
        new Promise<number>((done) => {
          (globalThis as any).records[of].subscribe((shown: unknown) => JSON.stringify(shown) === value && done(Date.now()));
        }),
      [name, JSON.stringify(wanted)] as const,
    );
  }

  async close(): Promise<void> {
    await this.page.close();
  }
}
