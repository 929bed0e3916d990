// The client finds out why its first connection does not open, on Node and in Chromium, against the real server; and a refused login says
// why in development mode.

import assert from 'node:assert/strict';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { resolve } from 'node:path';
import { test, type TestContext } from 'node:test';
import { browserDuring, ONLY_CHROMIUM, openPage, servePage } from '../browser/page.ts';
import { atEnd } from '../harness/cleanup.ts';
import { client } from '../harness/driver/tidewire.ts';
import { freePort } from '../harness/ports.ts';
import { Server } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { DEADLINE_MS, within } from '../harness/wait.ts';

const SCRIPT = resolve(import.meta.dirname, '../../packages/client/dist/tidewire.min.js');
const CODES = ['UNREACHABLE', 'FORBIDDEN', 'PATH_NOT_FOUND', 'UPGRADE_FAILED'];

interface Problem {
  code: string;
  message: string;
}

/** The cause that a client on Node reports for `address`. */
async function problemOf(t: TestContext, address: string): Promise<Problem> {
  const made = client(t, address, { errors: CODES });
  const reported = new Promise<Problem>((done) => made.onError(done));
  void made.connect();
  const problem = await within(DEADLINE_MS, reported, 'the cause');
  assert.equal(made.problem, problem);
  return problem;
}

/** The causes that a client in a page reports in `onState` and `onError`, and the line in the console. */
async function problemInPage(t: TestContext, port: number, address: string): Promise<Problem & { lines: string[] }> {
  const browser = await browserDuring(t);
  const page = await openPage(browser, 'localhost', port);
  const lines: string[] = [];
  page.on('console', (line) => line.type() === 'error' && lines.push(line.text()));
  const found = page.evaluate((url) => {
    const made = new (globalThis as any).Tidewire.Client(url, { reconnectMinMs: 20, reconnectMaxMs: 200 });
    void made.connect();
    return new Promise<[Problem, string, string]>((done) => {
      made.onError((error: Problem) => done([{ code: error.code, message: error.message }, made.problem.code, made.state]));
    });
  }, address);
  const [problem, code] = await within(DEADLINE_MS, found, 'the cause');
  assert.equal(code, problem.code);
  return { ...problem, lines: lines.filter((line) => line.includes(problem.message)) };
}

test('on Node the cause is a port without a server, a wrong path or a refused host name', async (t) => {
  const server = await Server.during(t);
  const port = await freePort();
  const refused = await problemOf(t, `127.0.0.1:${port}`);
  assert.deepEqual([refused.code, /127\.0\.0\.1:\d+ \(ECONNREFUSED\): start it/.test(refused.message)], ['UNREACHABLE', true], refused.message);
  const missing = await problemOf(t, `${server.address}/wrong`);
  assert.equal(missing.code, 'PATH_NOT_FOUND');
  assert.match(missing.message, /404 for the path \/wrong: .*WebSocket clients connect to \/deepstream/);
});

test('in a page the cause is a foreign origin, a wrong path or a port without a server', ONLY_CHROMIUM, async (t) => {
  const port = await servePage(t, { script: SCRIPT });
  const users = { anna: { password: hashPassword('secret') } };
  const [strict, open] = [await Server.during(t, { users }), await Server.during(t, { origins: [`http://localhost:${port}`] })];
  const foreign = await problemInPage(t, port, strict.address);
  // The page cannot tell a refused origin from a port without a server, so the message names both.
  assert.equal(foreign.code, 'UNREACHABLE');
  assert.ok(foreign.message.includes(`add "http://localhost:${port}" to its option network.origins`), foreign.message);
  assert.equal(foreign.lines.length, 1);
  const missing = await problemInPage(t, port, `${open.address}/wrong`);
  assert.equal(missing.code, 'PATH_NOT_FOUND');
  assert.match(missing.message, /WebSocket clients connect to \/deepstream/);
  const refused = await problemInPage(t, port, `127.0.0.1:${await freePort()}`);
  assert.deepEqual([refused.code, refused.message.includes('Content-Security-Policy')], ['UNREACHABLE', false]);
});

test('a page whose policy blocks the request learns that too', ONLY_CHROMIUM, async (t) => {
  const port = await servePage(t, { script: SCRIPT, policy: "default-src 'none'; script-src 'self'; connect-src ws:" });
  const { code, message } = await problemInPage(t, port, `127.0.0.1:${await freePort()}`);
  assert.equal(code, 'UNREACHABLE');
  assert.match(message, /Content-Security-Policy blocks it: connect-src must allow ws:/);
});

test('the request has no credentials', ONLY_CHROMIUM, async (t) => {
  const seen: IncomingMessage[] = [];
  const other = createServer((request, response) => {
    seen.push(request);
    response.writeHead(404, { 'access-control-allow-origin': request.headers.origin ?? '*' }).end();
  });
  other.on('upgrade', (_request, socket) => socket.end('HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n'));
  await new Promise<void>((done) => other.listen(0, '127.0.0.1', done));
  atEnd(t, () => {
    other.closeAllConnections();
    other.close();
  });
  const at = `localhost:${(other.address() as AddressInfo).port}/deepstream?token=secret`;
  assert.equal((await problemOf(t, at)).code, 'PATH_NOT_FOUND');
  const port = await servePage(t, { script: SCRIPT });
  const browser = await browserDuring(t);
  const page = await openPage(browser, 'localhost', port);
  await page.evaluate(() => void ((globalThis as any).document.cookie = 'session=secret'));
  const found = page.evaluate((url) => {
    const made = new (globalThis as any).Tidewire.Client(url, { reconnectMinMs: 20, auth: { token: 'secret' } });
    void made.connect();
    return new Promise<string>((done) => made.onError((error: { code: string }) => done(error.code)));
  }, at);
  assert.equal(await within(DEADLINE_MS, found, 'the cause'), 'PATH_NOT_FOUND');
  assert.ok(seen.length >= 2);
  for (const { url, headers } of seen) {
    assert.equal(url, '/deepstream');
    assert.doesNotMatch(JSON.stringify(headers), /secret|"(?:cookie|authorization|referer)"/);
  }
});

test('in development mode a refused login says why', async (t) => {
  const users = { anna: { password: hashPassword('secret') } };
  const login = async (server: Server, username: string): Promise<string> => {
    const made = client(t, server.address, { auth: { username, password: 'wrong' } });
    const error = await within(DEADLINE_MS, made.connect(), 'an answer').catch((reason: Error) => reason);
    return (error as Error).message;
  };
  const [development, production] = [await Server.during(t, { users, dev: true }), await Server.during(t, { users })];
  assert.match(await login(development, 'anna'), /: the password of user "anna" is wrong$/);
  assert.match(await login(development, 'bert'), /: the file of users has no user "bert"$/);
  assert.equal(await login(production, 'anna'), await login(production, 'bert'));
});
