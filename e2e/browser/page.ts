// A page in a real browser, and a small web server that serves it a client's bundle.

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { createServer, type Server as HttpServer } from 'node:http';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import type { TestContext } from 'node:test';
import { chromium, firefox, type Browser, type Page } from 'playwright-core';
import { atEnd } from '../harness/cleanup.ts';
import { webkit } from './webkit.ts';

/** A host name that is not a loopback name, although the browser resolves it to this machine. */
export const FOREIGN_HOST = 'elsewhere.example';

const BUNDLE = createRequire(import.meta.url).resolve('@deepstream/client/dist/bundle/ds.min.js');
const PAGE = '<!doctype html><meta charset="utf-8"><title>page</title><script src="/client.js"></script>';

/** Launch options of Chromium. */
export const LAUNCH = {
  executablePath: process.env['CHROMIUM_BIN'] ?? '/usr/bin/chromium',
  args: [
    '--no-sandbox',
    '--disable-gpu',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
    // No authority has signed the certificates of tests.
    '--ignore-certificate-errors',
    `--host-resolver-rules=MAP ${FOREIGN_HOST} 127.0.0.1`,
  ],
};

/** The browser under test. */
export const BROWSER = process.env['E2E_BROWSER'] ?? 'chromium';

/** For tests that need a function that only Chromium offers, such as setting a site's storage. */
export const ONLY_CHROMIUM = BROWSER === 'chromium' ? {} : { skip: `${BROWSER} lets no test do this` };

/** For tests with pages of `FOREIGN_HOST`: WebKit resolves host names only through the system. */
export const NEEDS_FOREIGN_HOST = BROWSER === 'webkit' ? { skip: `${BROWSER} does not find ${FOREIGN_HOST}` } : {};

/** Launch options of the system's Firefox, which supports WebDriver BiDi. */
const LAUNCH_FIREFOX = {
  channel: 'moz-firefox',
  executablePath: resolve(import.meta.dirname, 'firefox-relay.ts'),
  firefoxUserPrefs: { 'network.dns.localDomains': FOREIGN_HOST },
};

/** Starts the browser; it closes at the end of `test`. `args` are for Chromium. */
export async function browserDuring(test: TestContext, ...args: string[]): Promise<Browser> {
  const start: Record<string, () => Promise<Browser>> = {
    chromium: () => chromium.launch({ ...LAUNCH, args: [...LAUNCH.args, ...args] }),
    firefox: () => firefox.launch(LAUNCH_FIREFOX),
    webkit: async () => webkit(),
  };
  const browser = await (start[BROWSER]?.() ?? assert.fail(`E2E_BROWSER is ${BROWSER}; it can be ${Object.keys(start).join(', ')}`));
  atEnd(test, () => browser.close());
  return browser;
}

/** The content and headers of the page. */
export interface Served {
  /** The file of `/client.js`, which may load `/diagnosis.js` from the same folder; by default the bundle of deepstream's client. */
  script?: string;
  /** The header `Content-Security-Policy`. */
  policy?: string;
  /** The text of `/worker.js`. */
  worker?: string;
}

/** Serves the page on a free loopback port until the end of `test`; returns the port. */
export async function servePage(test: TestContext, { script = BUNDLE, policy, worker = '' }: Served = {}): Promise<number> {
  const scripts: Record<string, string | Buffer> = { '/client.js': readFileSync(script), '/worker.js': worker };
  const diagnosis = join(dirname(script), 'diagnosis.js');
  if (existsSync(diagnosis)) scripts['/diagnosis.js'] = readFileSync(diagnosis);
  const server: HttpServer = createServer((request, response) => {
    const found = scripts[request.url ?? ''];
    response.setHeader('content-type', found === undefined ? 'text/html' : 'text/javascript');
    if (policy) response.setHeader('content-security-policy', policy);
    response.end(found ?? PAGE);
  });
  return listening(test, server);
}

/** Serves a page with this HTML on a free loopback port until the end of `test`; returns the port. */
export async function serveHtml(test: TestContext, text: string): Promise<number> {
  const server = createServer((_, response) => response.setHeader('content-type', 'text/html').end(text));
  return listening(test, server);
}

async function listening(test: TestContext, server: HttpServer): Promise<number> {
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  atEnd(test, () => {
    server.closeAllConnections();
    return new Promise<void>((done) => server.close(() => done()));
  });
  return (server.address() as { port: number }).port;
}

/** Opens the page under `host`. */
export async function openPage(browser: Browser, host: string, port: number): Promise<Page> {
  const page = await browser.newPage();
  await page.goto(`http://${host}:${port}/`);
  return page;
}

/** Logs in from the page and returns the result within ten seconds: `open`, or the error of the socket. */
export function loginFrom(page: Page, address: string): Promise<string> {
  return page.evaluate(async (url) => {
    const { DeepstreamClient } = (globalThis as any).DeepstreamClient;
    const client = new DeepstreamClient(url, { maxReconnectAttempts: 1, reconnectIntervalIncrement: 1 });
    (globalThis as any).client = client;
    const failed = new Promise<string>((done) => client.on('error', (text: unknown) => done(`error: ${text}`)));
    const late = new Promise<string>((done) => setTimeout(() => done('late'), 10_000));
    return Promise.race([client.login().then(() => 'open'), failed, late]);
  }, address);
}
