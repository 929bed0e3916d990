// The example `examples/board` in tabs of a real browser, each with its own connection to cut.

import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { extname, join, resolve } from 'node:path';
import type { TestContext } from 'node:test';
import type { Browser, BrowserContextOptions, Locator, Page } from 'playwright-core';
import { atEnd } from '../harness/cleanup.ts';
import { run } from '../harness/program.ts';
import { Proxy } from '../harness/proxy.ts';
import type { Server } from '../harness/server.ts';
import { DEADLINE_MS, eventually } from '../harness/wait.ts';

export const EXAMPLE = resolve(import.meta.dirname, '../../examples/board');

/** The titles of each column, from the first card to the last. */
export interface Shown {
  'To do'?: string[];
  Doing?: string[];
  Done?: string[];
}

/** Builds the example into a folder that exists until the end of `test`. */
export function builtDuring(test: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-board-'));
  atEnd(test, () => rmSync(folder, { recursive: true }));
  run('npm', ['--prefix', EXAMPLE, 'run', '--silent', 'build', '--', folder]);
  return folder;
}

const TYPES: Record<string, string> = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' };

/** Serves the built page on a free loopback port until the end of `test`, for the server at `address`; returns the origin. */
async function served(test: TestContext, folder: string, address: string): Promise<string> {
  const site = createServer((request, response) => {
    const file = join(folder, request.url === '/' ? 'index.html' : (request.url as string));
    if (!existsSync(file)) return void response.writeHead(404).end();
    const bytes = readFileSync(file);
    response.setHeader('content-type', TYPES[extname(file)] as string);
    response.end(request.url === '/' ? bytes.toString().replace('localhost:6020', address) : bytes);
  });
  await new Promise<void>((done) => site.listen(0, '127.0.0.1', done));
  atEnd(test, () => {
    site.closeAllConnections();
    return new Promise<void>((done) => site.close(() => done()));
  });
  return `http://localhost:${(site.address() as { port: number }).port}`;
}

/** One user's tab with the board. */
export class Tab {
  private constructor(
    readonly page: Page,
    /** The connection of the tab. */
    readonly proxy: Proxy,
  ) {}

  /** Opens the board as `user`, or as a visitor without a name. Errors that the browser logs fail the test. */
  static async during(test: TestContext, browser: Browser, server: Server, folder: string, user: string, options: BrowserContextOptions = {}): Promise<Tab> {
    const proxy = await Proxy.during(test, server);
    const origin = await served(test, folder, proxy.address);
    const context = await browser.newContext(options);
    const page = await context.newPage();
    page.setDefaultTimeout(DEADLINE_MS);
    const complaints: string[] = [];
    const isLoss = (text: string): boolean => /WebSocket connection|net::ERR_|no server answers/.test(text);
    const keep = (text: string): void => void (isLoss(text) || complaints.push(text));
    page.on('pageerror', (error) => keep(String(error)));
    page.on('console', (message) => message.type() === 'error' && keep(message.text()));
    atEnd(test, async () => {
      await context.close();
      assert.deepEqual(complaints, []);
    });
    await page.goto(origin);
    const tab = new Tab(page, proxy);
    if (user !== '') await tab.signIn(user);
    await tab.reads('online');
    return tab;
  }

  /** Another tab of the same user in the same browser. */
  async another(): Promise<Tab> {
    const page = await this.page.context().newPage();
    page.setDefaultTimeout(DEADLINE_MS);
    await page.goto(this.page.url());
    const tab = new Tab(page, this.proxy);
    await tab.reads('online');
    return tab;
  }

  async signIn(user: string): Promise<void> {
    await this.page.getByLabel('Your name').fill(user);
    await this.page.getByRole('button', { name: 'Join' }).click();
    await this.page.getByRole('button', { name: 'Leave' }).waitFor();
  }

  /** Waits until the status is exactly this text. */
  async reads(status: string): Promise<void> {
    await this.page.getByRole('status').filter({ hasText: new RegExp(`^${status}$`) }).waitFor();
  }

  /** Cuts the connection and waits until the page shows it. */
  async cut(): Promise<void> {
    this.proxy.cut();
    await this.page.getByRole('status').filter({ hasText: /^offline/ }).waitFor();
  }

  column(name: string): Locator {
    return this.page.getByRole('region', { name });
  }

  /** The card with this title. */
  card(title: string): Locator {
    return this.page.locator('.card').filter({ has: this.page.getByRole('button', { name: title, exact: true }) });
  }

  async add(column: string, title: string): Promise<void> {
    await this.column(column).getByLabel('New card').fill(title);
    await this.column(column).getByRole('button', { name: 'Add' }).click();
  }

  async retitle(title: string, text: string): Promise<void> {
    await this.page.getByRole('button', { name: title, exact: true }).click();
    await this.page.getByLabel('Title').fill(text);
    await this.page.keyboard.press('Enter');
  }

  /** Moves a card by keyboard, with one key after the other. */
  async move(title: string, ...keys: string[]): Promise<void> {
    await this.page.getByRole('button', { name: title, exact: true }).focus();
    for (const key of keys) await this.page.keyboard.press(`Alt+Arrow${key}`);
  }

  /** Waits until the board has exactly these cards. */
  async shows({ 'To do': todo = [], Doing: doing = [], Done: done = [] }: Shown): Promise<void> {
    const expected = JSON.stringify([todo, doing, done]);
    const read = async (): Promise<string> => {
      const columns = ['To do', 'Doing', 'Done'].map((name) => this.column(name).locator('.title').allTextContents());
      return JSON.stringify(await Promise.all(columns));
    };
    let last = '';
    await eventually(async () => (last = await read()) === expected, 'the board has its cards').catch((error: Error) => {
      throw new Error(`${error.message}: ${expected} is expected, ${last} is shown`);
    });
  }

  /** The names of the members. */
  people(): Promise<string[]> {
    return this.page.getByRole('list', { name: 'People on the board' }).getByRole('listitem').allInnerTexts();
  }
}
