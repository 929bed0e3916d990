// The checkers of code blocks, by language. A block of another language is an error.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { delimiter, dirname, join } from 'node:path';
import type { TestContext } from 'node:test';
import { browserDuring, serveHtml } from '../browser/page.ts';
import { Database } from '../harness/database.ts';
import { freePort } from '../harness/ports.ts';
import { Server, binary, environment } from '../harness/server.ts';
import { within } from '../harness/wait.ts';
import { interpreter, newest } from '../python/pythons.ts';
import { REPOSITORY, isRules, type Block } from './block.ts';
import { configurationFolder, programFolder, temporaryFolder, withCertificates } from './folder.ts';
import { JSON_CHECKS, checkExport } from './json.ts';
import { checkTerminal } from './terminal.ts';

/** The property that a checker tests, and the function that tests it. */
export interface Checker {
  shows: string;
  check(t: TestContext, block: Block): void | Promise<void>;
}

/** Commands of a block that other suites run (`bench`, `crash`, `torture`), or that would run this suite. */
const ELSEWHERE = /^(([A-Z_]+=\S+ )?(make|npm|npx|cargo) |target\/release\/tidewire-bench |tidewire torture )/;
const TSX = import.meta.resolve('tsx');
/** The context that nginx needs around a part of its configuration; certificates are replaced by test certificates. */
const NGINX_CONTEXTS: [inside: RegExp, around: (text: string, folder: string) => string][] = [
  [/^http \{/m, (text) => text],
  [/^(server|map|upstream) /m, (text) => `http {\n${text}\n}`],
  [/^location /m, (text) => `http { server {\n${text}\n} }`],
];

interface VueCompiler {
  parse(text: string): { descriptor: object; errors: unknown[] };
  compileScript(descriptor: object, options: object): { content: string };
}

export const CHECKERS: Record<string, Checker> = {
  js: { shows: 'runs', check: runProgram },
  ts: { shows: 'runs', check: runProgram },
  // Components need a page; the compiler checks their types together with the programs.
  tsx: { shows: 'has types', check: () => undefined },
  py: { shows: 'runs', check: runPython },
  vue: { shows: 'compiles', check: checkVue },
  svelte: { shows: 'compiles', check: checkSvelte },
  html: { shows: 'connects in a browser', check: runPage },
  sh: { shows: 'runs', check: runShell },
  console: { shows: 'matches the real output', check: checkTerminal },
  yaml: {
    shows: 'is a configuration',
    check: (t, { text, rules }) => tidewire(configurationFolder(t, text, rules), 'config', 'check'),
  },
  yml: { shows: 'is a file of rules, of cases for them, of users or of keys', check: checkYaml },
  json: {
    shows: 'matches the server',
    check: (t, { text, word }) => {
      const check = JSON_CHECKS[word];
      assert.ok(check, `add after the word json what it is: ${Object.keys(JSON_CHECKS).join(', ')}`);
      return check(t, JSON.parse(text));
    },
  },
  jsonl: { shows: 'can be imported', check: (t, { text }) => checkExport(t, text) },
  nginx: { shows: 'is accepted by nginx', check: checkNginx },
  haproxy: {
    shows: 'is accepted by haproxy',
    check: (t, { text }) => {
      const folder = configurationFolder(t, '', '');
      writeFileSync(join(folder, 'haproxy.cfg'), withCertificates(text, folder));
      // Fail on warnings, too: exit code 0 alone allows them.
      program(folder, 'haproxy', '-c', '-dW', '-f', 'haproxy.cfg');
    },
  },
  systemd: {
    shows: 'is accepted by systemd',
    check: (t, { text }) => {
      const folder = temporaryFolder(t);
      const unit = text.replace(/^(Exec\w+=)\/\S*\/tidewire\b/gm, `$1${binary()}`);
      assert.notEqual(unit, text, 'the unit starts /.../tidewire');
      writeFileSync(join(folder, 'tidewire.service'), unit);
      // systemd-analyze only warns about settings that it ignores, and also warns about other units of this machine.
      const warnings = program(folder, 'systemd-analyze', 'verify', './tidewire.service');
      assert.ok(!warnings.includes('tidewire.service'), warnings);
    },
  },
  redis: { shows: 'is accepted by Redis', check: checkRedis },
  prometheus: {
    shows: 'is accepted by Prometheus',
    check: (t, { text }) => {
      const folder = temporaryFolder(t);
      writeFileSync(join(folder, 'prometheus.yml'), text);
      program(folder, 'promtool', 'check', 'config', 'prometheus.yml');
    },
  },
  sql: { shows: 'matches the schema of the store, or is a valid query', check: checkSql },
  picture: { shows: 'shows crates that depend on each other', check: checkPicture },
};

/** The key of backends that the documents take from the environment. */
const BACKEND_KEY = '0123456789abcdef0123456789abcdef';

async function runProgram(t: TestContext, block: Block): Promise<void> {
  const file = join(programFolder(t), `block.m${block.language}`);
  await runWith(t, block, file, process.execPath, ['--import', TSX, file]);
}

async function runPython(t: TestContext, block: Block): Promise<void> {
  const file = join(temporaryFolder(t), 'block.py');
  const { command, env } = await interpreter(newest());
  await runWith(t, block, file, command, [file], env);
}

/**
 * Writes the block to `file` with the address of a server, runs the command, and compares its output. A program that `serves` is stopped when it
 * has printed something.
 */
async function runWith(t: TestContext, { text, word, expected }: Block, file: string, command: string, args: string[], env: NodeJS.ProcessEnv = {}): Promise<void> {
  // The events with history, the namespaces and the collections of the documents.
  const isBackend = /@tidewire\/(server|socket\.io)'/.test(text);
  const backend = { key: BACKEND_KEY, namespaces: ['/*'] };
  const collections = { bank: { slot_by: 'prefix' } };
  const server = await Server.during(t, { history: ['kept/*'], collections, ...(isBackend ? { backend } : { namespaces: ['/chat', '/room/*'] }) });
  writeFileSync(file, text.replaceAll('localhost:6020', server.address));
  const path = `${dirname(server.binary)}${delimiter}${process.env['PATH']}`;
  const programs = { PATH: path, TIDEWIRE_BIN: server.binary };
  const options = { cwd: dirname(file), env: { ...environment(), ...env, ...programs, TIDEWIRE_BACKEND_KEY: BACKEND_KEY } };
  const child = spawn(command, args, { ...options, stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => child.kill('SIGKILL'));
  let output = '';
  child.stdout.on('data', (bytes: Buffer) => (output += bytes.toString()));
  const closed = new Promise((done) => child.once('close', done));
  if (word === 'serves') {
    await within(20_000, new Promise((done) => child.stdout.once('data', done)), 'the program serves');
    child.kill('SIGTERM');
  }
  const code = await within(20_000, closed, 'the program ends');
  assert.equal(code, 0);
  if (expected !== undefined) assert.equal(output, expected);
}

/** The compiler of a binding's framework. */
function compiler<Module>(binding: string, name: string): Module {
  return createRequire(join(REPOSITORY, 'packages', binding, 'package.json'))(name) as Module;
}

function checkVue(_: TestContext, { text }: Block): void {
  const { parse, compileScript } = compiler<VueCompiler>('vue', 'vue/compiler-sfc');
  const { descriptor, errors } = parse(text);
  assert.deepEqual(errors, []);
  // The template is compiled into the script, so a name that the script does not have shows as a property of the context.
  const { content } = compileScript(descriptor, { id: 'block', inlineTemplate: true });
  assert.doesNotMatch(content, /_ctx\.(?!\$)/, 'the script has all names of the template');
}

function checkSvelte(_: TestContext, { text }: Block): void {
  const { compile } = compiler<{ compile(text: string, options: object): { warnings: Array<{ code: string; message: string }> } }>('svelte', 'svelte/compiler');
  for (const generate of ['client', 'server']) {
    const { warnings } = compile(text, { generate, filename: 'Block.svelte' });
    // Svelte 5 warns about the syntax of Svelte 4, which some blocks use so that they run in both.
    assert.deepEqual(warnings.filter(({ code }) => code !== 'event_directive_deprecated'), []);
  }
}

/** A page must show the state of its connection in an element with the role `status`. */
async function runPage(t: TestContext, { text }: Block): Promise<void> {
  const server = await Server.during(t);
  const port = await serveHtml(t, text.replaceAll('localhost:6020', server.address));
  const page = await (await browserDuring(t)).newPage();
  const complaints: string[] = [];
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
  await page.goto(`http://localhost:${port}/`);
  await page.getByRole('status').filter({ hasText: /^open$/ }).waitFor();
  assert.deepEqual(complaints, []);
}

async function runShell(t: TestContext, { text, configuration, rules, expected }: Block): Promise<void> {
  const commands = text.split('\n').filter((line) => line !== '' && !line.startsWith('#') && !ELSEWHERE.test(line));
  if (commands.length === 0) return;
  const server = await Server.during(t);
  const folder = configurationFolder(t, configuration, rules);
  const path = `${dirname(server.binary)}${delimiter}${process.env['PATH']}`;
  // If the document has a configuration, the commands address that server.
  const address = configuration === '' ? { TIDEWIRE_NETWORK__PORT: String(server.port) } : {};
  const env = { ...process.env, PATH: path, ...address };
  let output = '';
  for (const line of commands) {
    const command = line.replaceAll('localhost:6020', server.address);
    const ran = spawnSync('bash', ['-c', command], { cwd: folder, env, encoding: 'utf8', timeout: 20_000 });
    assert.equal(ran.status, 0, `${command}\n${ran.stderr}`);
    output += ran.stdout;
  }
  if (expected !== undefined) assert.equal(output, expected);
}

function checkYaml(t: TestContext, { text, rules }: Block): void {
  const permissions = ['--permissions', 'permissions.yml'];
  if (isRules(text)) return tidewire(configurationFolder(t, '', text), 'config', 'check', ...permissions);
  const folder = configurationFolder(t, '', rules);
  if (/^cases:/m.test(text)) {
    writeFileSync(join(folder, 'cases.yml'), text);
    tidewire(folder, 'rules', 'test', 'cases.yml');
  } else if (/^ +password:/m.test(text)) {
    const { stdout } = spawnSync(binary(), ['hash'], { input: 'a password', encoding: 'utf8' });
    writeFileSync(join(folder, 'users.yml'), text.replaceAll(/\$argon2id\$\S*\.\.\.$/gm, stdout.trim()));
    tidewire(folder, 'config', 'check', ...permissions, '--auth-chain', 'file', '--auth-file-path', 'users.yml');
  } else if (/^ +hash:/m.test(text)) {
    const made = spawnSync(binary(), ['key', '--id', 'one'], { encoding: 'utf8' });
    const hash = /sha256:\S+/.exec(made.stdout)?.[0] as string;
    writeFileSync(join(folder, 'keys.yml'), text.replaceAll('sha256:...', hash));
    tidewire(folder, 'config', 'check', ...permissions, '--auth-chain', 'keys', '--auth-keys-path', 'keys.yml');
  } else {
    assert.fail('these are neither rules nor cases, users or keys; a configuration is a block of yaml');
  }
}

function checkNginx(t: TestContext, { text }: Block): void {
  const folder = configurationFolder(t, '', '');
  const around = NGINX_CONTEXTS.find(([inside]) => inside.test(text))?.[1];
  assert.ok(around, 'the block has http, server or location');
  const own = `pid ${folder}/nginx.pid;\nerror_log stderr;\n${/^events /m.test(text) ? '' : 'events {}\n'}`;
  const whole = own + around(withCertificates(text, folder), folder);
  writeFileSync(join(folder, 'nginx.conf'), whole);
  program(folder, 'nginx', '-t', '-q', '-e', 'stderr', '-p', folder, '-c', join(folder, 'nginx.conf'));
}

/** Redis can check a configuration only by starting with it. */
async function checkRedis(t: TestContext, { text }: Block): Promise<void> {
  const folder = temporaryFolder(t);
  writeFileSync(join(folder, 'redis.conf'), `${text}\nport ${await freePort()}\nbind 127.0.0.1\n`);
  const child = spawn('redis-server', ['redis.conf'], { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] });
  t.after(() => child.kill('SIGKILL'));
  const said = new Promise<string>((done) => {
    let output = '';
    const keep = (bytes: Buffer): void => {
      output += bytes.toString();
      if (output.includes('Ready to accept connections')) done('ready');
    };
    child.stdout.on('data', keep);
    child.stderr.on('data', keep);
    child.once('close', () => done(output));
  });
  assert.equal(await within(20_000, said, 'Redis starts or ends'), 'ready');
}

/** A table or index must be in the source of the store; every other statement runs on these tables. */
async function checkSql(t: TestContext, { text, word, document }: Block): Promise<void> {
  const sources = { sqlite: ['sqlite/format.rs'], postgres: ['postgres.rs', 'postgres/registry.rs', 'postgres/indexes.rs'] }[word];
  assert.ok(sources, 'add after the word sql which one: sqlite, postgres');
  const content = sources.map((source) => readFileSync(join(REPOSITORY, 'crates/tidewire-store/src', source), 'utf8')).join('\n');
  const plain = (sql: string): string => sql.replace(/\s+/g, ' ').replaceAll('IF NOT EXISTS ', '').trim();
  const tables = [...plain(content).matchAll(/CREATE TABLE tidewire_\w+ \([^;"]*\)(?=;)/g)].map(([table]) => `${table};`);
  const queries: string[] = [];
  for (const statement of plain(text).split(/(?<=;) ?/).filter((part) => part !== '')) {
    if (/^CREATE (TABLE|INDEX)/.test(statement)) assert.ok(plain(content).includes(statement), `${statement} is in ${sources.join(' or ')}`);
    else queries.push(statement);
  }
  if (queries.length === 0) return;
  assert.equal(word, 'postgres', `${document} has a statement for a database other than PostgreSQL`);
  const database = await Database.during(t, 'postgres');
  database.sql([...tables, ...queries].join('\n'));
}

/** Arrows lead from a crate to its dependency; a line that begins with an arrow continues with the crate above. */
function checkPicture(_: TestContext, { text }: Block): void {
  assert.match(text, /[─►]/, 'a picture has lines or arrows; code has its language');
  let first = '';
  for (const line of text.split('\n')) {
    const crates = [...line.matchAll(/tidewire-[a-z]+/g)].map(([name]) => name);
    if (/^tidewire-/.test(line)) first = crates[0] as string;
    else if (/^ *[├└]/.test(line)) crates.unshift(first);
    crates.slice(1).forEach((name, i) => {
      const manifest = readFileSync(join(REPOSITORY, 'crates', crates[i] as string, 'Cargo.toml'), 'utf8');
      assert.match(manifest, new RegExp(`^${name}\\b`, 'm'), `${crates[i]} depends on ${name}`);
    });
  }
}

function tidewire(folder: string, ...args: string[]): void {
  program(folder, binary(), ...args);
}

/** Runs a program that must end well, and returns its warnings. */
function program(cwd: string, name: string, ...args: string[]): string {
  const { status, stdout, stderr, error } = spawnSync(name, args, { cwd, encoding: 'utf8', timeout: 30_000 });
  assert.equal(status, 0, `${name} ${args.join(' ')}: ${error?.message ?? ''}${stderr}${stdout}`);
  return stderr;
}
