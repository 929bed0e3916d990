// Follows the tutorial in its order: writes its files, runs its commands, and uses the app in a browser, first during development and
// at the end behind nginx with TLS.

import assert from 'node:assert/strict';
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { test, type TestContext } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { browserDuring } from '../browser/page.ts';
import { atEnd } from '../harness/cleanup.ts';
import { freePort } from '../harness/ports.ts';
import { binary, environment } from '../harness/server.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';
import { nginxDuring } from '../proxies/reverse-proxy.ts';
import { REPOSITORY, TUTORIAL, blocksOf, type Block } from './block.ts';
import { configurationFolder, temporaryFolder, withCertificates } from './folder.ts';

const HOST = 'list.example.com';
/** Commands that run until they are stopped. */
const SERVES = /^(tidewire start|python3 -m http\.server)/;

class Reader {
  readonly folder: string;
  readonly #replaced: [shown: string, real: string][];
  readonly #env: NodeJS.ProcessEnv;
  #server: ChildProcess | undefined;

  constructor(readonly test: TestContext, readonly port: number, readonly pagePort: number) {
    this.folder = temporaryFolder(test);
    this.#replaced = [['6020', String(port)], ['8080', String(pagePort)]];
    const path = `${dirname(binary())}${delimiter}${process.env['PATH']}`;
    this.#env = { ...environment(), PATH: path, TIDEWIRE: REPOSITORY, TIDEWIRE_NETWORK__PORT: String(port) };
  }

  /** Replaces a part of all further blocks. */
  replace(shown: string, real: string): void {
    this.#replaced.push([shown, real]);
  }

  real(text: string): string {
    return this.#replaced.reduce((changed, [from, to]) => changed.replaceAll(from, to), text);
  }

  /** Saves the block as the file that it names, or runs its commands. */
  async follow({ place, language, word, text, expected }: Block): Promise<void> {
    if (word !== '') {
      const file = join(this.folder, word);
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, this.real(text));
      return;
    }
    assert.equal(language, 'sh', `${place}: a block is a file with its name after the language, or commands`);
    let output = '';
    for (const command of this.real(text).trimEnd().split('\n')) {
      if (SERVES.test(command)) await this.#serve(command);
      else output += this.#run(command);
    }
    if (expected !== undefined) assert.equal(output, expected, place);
  }

  async stopServer(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (server === undefined) return;
    const ended = once(server, 'exit');
    server.kill('SIGTERM');
    assert.deepEqual(await within(DEADLINE_MS, ended, 'the server ends'), [0, null]);
  }

  #run(command: string): string {
    const ran = spawnSync('bash', ['-c', command], { cwd: this.folder, env: this.#env, encoding: 'utf8', timeout: DEADLINE_MS });
    assert.equal(ran.status, 0, `${command}\n${ran.stdout}${ran.stderr}`);
    return ran.stdout;
  }

  async #serve(command: string): Promise<void> {
    const isServer = command.startsWith('tidewire');
    if (isServer) await this.stopServer();
    const [program = '', ...args] = command.split(' ');
    const child = spawn(program, args, { cwd: this.folder, env: this.#env, stdio: ['ignore', 'pipe', 'pipe'] });
    atEnd(this.test, () => void child.kill('SIGKILL'));
    let output = '';
    const keep = (bytes: Buffer): void => void (output += bytes.toString());
    child.stdout.on('data', keep);
    child.stderr.on('data', keep);
    const port = isServer ? this.port : this.pagePort;
    const answers = async (): Promise<boolean> => {
      assert.equal(child.exitCode, null, `${command} has ended:\n${output}`);
      return fetch(`http://127.0.0.1:${port}/${isServer ? 'ready' : ''}`).then(({ ok }) => ok, () => false);
    };
    await eventually(answers, `${command} answers`);
    if (isServer) this.#server = child;
  }
}

/** The app in a new tab, logged in. */
async function opened(browser: Browser, url: string, username: string, password = ''): Promise<Page> {
  const page = await browser.newPage();
  await page.goto(url);
  await logIn(page, username, password);
  await says(page, 'open');
  return page;
}

async function logIn(page: Page, username: string, password: string): Promise<void> {
  await page.getByLabel('Name').fill(username);
  await page.getByLabel('Password').fill(password);
  await page.getByRole('button', { name: 'Log in' }).click();
}

const says = (page: Page, text: string): Promise<void> => page.getByRole('status').filter({ hasText: text }).waitFor();

async function add(page: Page, item: string): Promise<void> {
  await page.getByLabel('Item').fill(item);
  await page.getByRole('button', { name: 'Add' }).click();
}

const sees = (page: Page, item: string): Promise<void> => page.getByRole('listitem').filter({ hasText: item }).waitFor();

test('the tutorial leads from an empty folder to a deployed app', async (t) => {
  const reader = new Reader(t, await freePort(), await freePort());
  const browser = await browserDuring(t, `--host-resolver-rules=MAP ${HOST} 127.0.0.1`);
  const steps = readFileSync(join(REPOSITORY, TUTORIAL), 'utf8').split(/^(?=## \d)/m).slice(1).map((text) => blocksOf(TUTORIAL, text));
  assert.equal(steps.flat().length, blocksOf(TUTORIAL).length, 'all blocks are in a step');
  const [folder = [], page = [], trial = [], rules = [], logins = [], deployment = []] = steps;
  const follow = async (blocks: Block[]): Promise<void> => {
    assert.ok(blocks.length > 0);
    for (const block of blocks) await reader.follow(block);
  };

  await follow([...folder, ...page, ...trial]);
  const local = `http://localhost:${reader.pagePort}/`;
  const [ann, ben] = [await opened(browser, local, 'ann'), await opened(browser, local, 'ben')];
  await add(ann, 'milk');
  await sees(ben, 'milk');
  await ben.getByRole('checkbox', { name: 'milk' }).check();
  await eventually(() => ann.getByRole('checkbox', { name: 'milk' }).isChecked(), 'the item is ticked in the other tab');
  await reader.stopServer();
  await says(ann, 'waiting');
  await reader.follow(trial[0] as Block);
  await says(ann, 'open');
  await add(ann, 'bread');
  await sees(ben, 'bread');

  await reader.stopServer();
  await follow([...rules, ...logins]);
  const member = await opened(browser, local, 'ann', 'correct horse battery');
  await sees(member, 'milk');
  await add(member, 'tea');
  const guest = await opened(browser, local, 'ben', 'staple of a stable');
  await sees(guest, 'tea');
  await add(guest, 'wine');
  await says(guest, 'denied');
  await eventually(async () => (await guest.getByRole('listitem').filter({ hasText: 'wine' }).count()) === 0, 'the refused item disappears');

  const server = deployment.find(({ language }) => language === 'nginx')?.text ?? '';
  const [, lines] = /^server \{\n  listen 443 ssl;\n([\s\S]*)\}\n$/.exec(reader.real(server)) ?? [];
  assert.ok(lines, 'the configuration is a server with a port');
  const files = withCertificates(lines, configurationFolder(t, '', '')).replace('/srv/list', join(reader.folder, 'site'));
  const nginx = await nginxDuring(t, `include /etc/nginx/mime.types;\n${files}`, true);
  const origin = `https://${HOST}:${nginx.address.split(':')[1]}`;
  reader.replace(`https://${HOST}`, origin);
  await reader.stopServer();
  await follow(deployment);
  const deployed = await browser.newPage();
  await deployed.goto(origin);
  await logIn(deployed, 'ann', 'a wrong password');
  await says(deployed, 'The name or the password is wrong.');
  await logIn(deployed, 'ann', 'correct horse battery');
  await sees(deployed, 'tea');
  const other = await opened(browser, origin, 'ann', 'correct horse battery');
  await add(other, 'soap');
  await sees(deployed, 'soap');
});
