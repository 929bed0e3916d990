// The code blocks of the documents run: JavaScript and TypeScript as programs against a server, whose output is that of a block of
// text behind them (of components only the types are checked here), YAML through `tidewire config check`,
// shell lines as they stand, with the server's address in place of the default one.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join, relative, resolve } from 'node:path';
import { test, type TestContext } from 'node:test';
import { Authority, certify } from '../harness/certificate.ts';
import { Server } from '../harness/server.ts';
import { within } from '../harness/wait.ts';

const REPOSITORY = resolve(import.meta.dirname, '../..');
const DOCUMENTS = ['README.md', 'packages/client/README.md', 'packages/react/README.md', 'examples/demo/README.md', 'CONTRIBUTING.md', 'ARCHITECTURE.md', 'CHANGELOG.md', 'docs', 'docs/decisions', 'spec'];
/** Commands of a block that other suites run (`bench`, `crash`), or that run this one. */
const ELSEWHERE = /^((make|npm|cargo) |target\/release\/tidewire-bench )/;

interface Block {
  place: string;
  language: string;
  text: string;
  /** What the program prints, if the next block says so. */
  expected?: string;
}

function documents(): string[] {
  return DOCUMENTS.flatMap((path) => {
    const full = join(REPOSITORY, path);
    if (path.endsWith('.md')) return [full];
    return readdirSync(full).filter((file) => file.endsWith('.md')).map((file) => join(full, file));
  });
}

function blocks(): Block[] {
  return documents().flatMap((file) => {
    const content = readFileSync(file, 'utf8');
    const found = [...content.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)].map((match): Block => {
      const [, language = '', text = ''] = match;
      const line = content.slice(0, match.index).split('\n').length;
      return { place: `${relative(REPOSITORY, file)}:${line}`, language, text };
    });
    return found.map((block, i) => {
      const next = found[i + 1];
      return next?.language === 'text' ? { ...block, expected: next.text } : block;
    });
  });
}

/** A folder for programs, in which the clients are installed. */
function programFolder(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-documents-'));
  t.after(() => rmSync(folder, { recursive: true }));
  mkdirSync(join(folder, 'node_modules/@types'), { recursive: true });
  for (const name of ['@deepstream', 'ws', '@types/ws', '@types/node']) {
    symlinkSync(join(REPOSITORY, 'e2e/node_modules', name), join(folder, 'node_modules', name));
  }
  symlinkSync(join(REPOSITORY, 'packages'), join(folder, 'node_modules/@tidewire'));
  for (const name of ['react', 'react-dom', '@types/react', '@types/react-dom']) {
    symlinkSync(join(REPOSITORY, 'packages/react/node_modules', name), join(folder, 'node_modules', name));
  }
  return folder;
}

/** Writes the files that configurations of the documents name. */
function writeNamed(t: TestContext, binary: string, folder: string): void {
  const made = spawnSync(binary, ['rules', 'init'], { cwd: folder, encoding: 'utf8' });
  assert.equal(made.status, 0, made.stderr);
  const { certificate, key } = certify();
  writeFileSync(join(folder, 'server.pem'), certificate);
  writeFileSync(join(folder, 'server.key'), key, { mode: 0o600 });
  writeFileSync(join(folder, 'authorities.pem'), new Authority(t).certificate);
}

const TSX = import.meta.resolve('tsx');
const TSC = resolve(import.meta.dirname, '../node_modules/typescript/bin/tsc');

/** The last file of rules among the blocks. */
let rules = '';

for (const { place, language, text, expected } of blocks()) {
  if (language === 'js' || language === 'ts') {
    test(`${place} runs`, async (t) => {
      const server = await Server.during(t, { history: ['kept/*'] });
      const folder = programFolder(t);
      const program = join(folder, `block.m${language}`);
      writeFileSync(program, text.replaceAll('localhost:6020', server.address));
      const child = spawn(process.execPath, ['--import', TSX, program], { stdio: ['ignore', 'pipe', 'inherit'] });
      t.after(() => child.kill('SIGKILL'));
      let output = '';
      child.stdout.on('data', (bytes: Buffer) => (output += bytes.toString()));
      const code = await within(20_000, new Promise((done) => child.once('close', done)), 'the program ends');
      assert.equal(code, 0);
      if (expected !== undefined) assert.equal(output, expected);
    });
  } else if (language === 'yaml') {
    test(`${place} is a configuration`, async (t) => {
      const server = await Server.during(t);
      const folder = mkdtempSync(join(tmpdir(), 'tidewire-documents-'));
      t.after(() => rmSync(folder, { recursive: true }));
      writeNamed(t, server.binary, folder);
      writeFileSync(join(folder, 'tidewire.yml'), text);
      const checked = spawnSync(server.binary, ['config', 'check'], { cwd: folder, encoding: 'utf8' });
      assert.equal(checked.status, 0, checked.stderr);
    });
  } else if (language === 'yml') {
    test(`${place} is a file of rules, or of cases for the file of rules before it`, async (t) => {
      const server = await Server.during(t);
      const folder = mkdtempSync(join(tmpdir(), 'tidewire-documents-'));
      t.after(() => rmSync(folder, { recursive: true }));
      const isCases = /^cases:/m.test(text);
      if (!isCases) rules = text;
      writeFileSync(join(folder, 'permissions.yml'), rules);
      writeFileSync(join(folder, 'cases.yml'), text);
      const args = isCases ? ['rules', 'test', 'cases.yml'] : ['config', 'check', '--permissions', 'permissions.yml'];
      const checked = spawnSync(server.binary, args, { cwd: folder, encoding: 'utf8' });
      assert.equal(checked.status, 0, checked.stderr + checked.stdout);
    });
  } else if (language === 'sh') {
    test(`${place} runs`, async (t) => {
      const server = await Server.during(t);
      for (const line of text.split('\n').filter((line) => line !== '' && !ELSEWHERE.test(line))) {
        const command = line.replaceAll('localhost:6020', server.address);
        const path = `${dirname(server.binary)}${delimiter}${process.env['PATH']}`;
        const env = { ...process.env, PATH: path, TIDEWIRE_NETWORK__PORT: String(server.port) };
        const ran = spawnSync('bash', ['-c', command], { cwd: server.folder, env, encoding: 'utf8', timeout: 20_000 });
        assert.equal(ran.status, 0, `${command}\n${ran.stderr}`);
      }
    });
  }
}

test('the TypeScript of the documents has no errors of types', (t) => {
  const folder = programFolder(t);
  const programs = blocks().filter(({ language }) => language === 'ts' || language === 'tsx');
  assert.ok(programs.length > 0);
  writeFileSync(join(folder, 'package.json'), '{ "type": "module" }');
  const files = programs.map(({ language }, i) => `block${i}.${language}`);
  programs.forEach(({ text }, i) => writeFileSync(join(folder, files[i] as string), text));
  const types = ['--types', 'node', '--skipLibCheck', 'false'];
  const options = ['--noEmit', '--strict', '--target', 'es2022', '--module', 'nodenext', '--jsx', 'react-jsx', ...types];
  const checked = spawnSync(process.execPath, [TSC, ...options, ...files], { cwd: folder, encoding: 'utf8' });
  assert.equal(checked.status, 0, checked.stdout);
});

test('links between the documents lead somewhere', () => {
  const broken = documents().flatMap((file) =>
    [...readFileSync(file, 'utf8').matchAll(/\]\((?!https?:)([^)#]+)[^)]*\)/g)]
      .map(([, target = '']) => target)
      .filter((target) => spawnSync('test', ['-e', join(dirname(file), target)]).status !== 0)
      .map((target) => `${relative(REPOSITORY, file)}: ${target}`),
  );
  assert.deepEqual(broken, []);
});

test('make run says where it listens', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-documents-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const options = { TIDEWIRE_NETWORK__PORT: '0', TIDEWIRE_STORE__PATH: join(folder, 'data'), TIDEWIRE_SHARDS: '3' };
  const env = { ...process.env, ...options };
  const child = spawn('make', ['--no-print-directory', 'run'], { cwd: REPOSITORY, env, detached: true });
  const ended = new Promise((done) => child.once('exit', done));
  let output = '';
  const ready = new Promise<string>((done, failed) => {
    const keep = (text: Buffer): void => {
      output += text.toString();
      const address = /ready on (http:\S+)/.exec(output)?.[1];
      if (address !== undefined) done(address);
    };
    child.stdout.on('data', keep);
    child.stderr.on('data', keep);
    void ended.then(() => failed(new Error(`make run ended:\n${output}`)));
  });
  const address = await within(600_000, ready, 'make run prints its address');
  assert.equal((await fetch(`${address}/health`)).status, 200);
  process.kill(-(child.pid as number), 'SIGTERM');
  await within(25_000, ended, 'make run ends after SIGTERM');
});
