// A checker for each language (`checkers.ts`) tests the code blocks of all documents; the compiler also checks the types of TypeScript.
// Links between the documents must lead to a target.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { test, type TestContext } from 'node:test';
import { PACKAGE, tools } from '../python/pythons.ts';
import { NEXT_GUIDE, REPOSITORY, TUTORIAL, blocksOf, documents, type Block } from './block.ts';
import { CHECKERS } from './checkers.ts';
import { programFolder, temporaryFolder } from './folder.ts';
import { JSON_CHECKS } from './json.ts';

const TSC = resolve(import.meta.dirname, '../node_modules/typescript/bin/tsc');
/** `tutorial.test.ts` runs the blocks of the tutorial, in order and in one folder, and `packages/next.test.ts` the app for Next.js. */
const BLOCKS = documents()
  .filter((document) => document !== TUTORIAL)
  .flatMap((document) => blocksOf(document))
  .filter(({ document, word }) => document !== NEXT_GUIDE || word === '');

/** The reason why no checker tests the block; empty if one does. */
function unproved({ place, language, word }: Block): string {
  if (language === 'json' && !Object.hasOwn(JSON_CHECKS, word)) {
    return `${place}: a kind of JSON is missing; add after the word json what it is: ${Object.keys(JSON_CHECKS).join(', ')}`;
  }
  if (Object.hasOwn(CHECKERS, language)) return '';
  if (language === 'indented') return `${place}: an indented block has no language; put it between fences`;
  if (language === 'text') return `${place}: a block of text must follow a program and contain its output; no program precedes this one`;
  return `${place}: no checker tests ${language === '' ? 'a block without a language' : language}; checkers.ts has the languages`;
}

test('each block has a checker', () => {
  assert.ok(BLOCKS.length > 0);
  assert.deepEqual(BLOCKS.map(unproved).filter((reason) => reason !== ''), []);
});

test('the test detects a block without a checker in any form', () => {
  const planted = ['```cobol\nSTOP RUN.\n```', '```\nls\n```', '~~~\nls\n~~~', 'As in\n\n    ls', '- so:\n\n  ```lua\n  x = 1\n  ```', '```text\nhello\n```', '```sql\nSELECT 1;\n```\n\n```text\n1\n```', '```json\n{}\n```', '```json thing\n{}\n```'];
  for (const content of planted) {
    const reasons = blocksOf('planted.md', `# Planted\n\n${content}\n`).map(unproved).filter((reason) => reason !== '');
    assert.equal(reasons.length, 1, content);
  }
});

for (const [language, text, wrong] of [
  ['nginx', 'location / {\n  proxy_pass http://127.0.0.1:6020;\n}', 'proxy_past'],
  ['nginx', 'server {\n  listen 443 ssl;\n  ssl_certificate server.pem;\n  ssl_certificate_key server.key;\n}', 'listed'],
  ['haproxy', 'defaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\nbackend servers\n  server one 127.0.0.1:6020\nfrontend clients\n  bind 127.0.0.1:6080\n  default_backend servers\n', 'sever'],
  ['systemd', '[Service]\nType=notify\nExecStart=/usr/bin/tidewire\n', 'nonotify'],
  ['redis', 'appendonly yes\n', 'maybe'],
  ['prometheus', 'scrape_configs:\n  - job_name: tidewire\n', 'jobname'],
] as const) {
  const right = { place: 'planted', document: 'planted.md', language, word: '', configuration: '', rules: '' };
  const check = async (t: TestContext, content: string): Promise<void> => CHECKERS[language]?.check(t, { ...right, text: content });
  test(`a planted block of ${language} is accepted, and refused with ${wrong} in it`, async (t) => {
    await check(t, text);
    const broken = text.replace(/proxy_pass|listen|server one|notify|yes|job_name/, (found) => (found === 'server one' ? `${wrong} one` : wrong));
    assert.notEqual(broken, text);
    await assert.rejects(check(t, broken));
  });
}

for (const word of Object.keys(JSON_CHECKS)) {
  test(`a block of json ${word} is refused if any of its names is misspelt`, async (t) => {
    const [block] = BLOCKS.filter((one) => one.language === 'json' && one.word === word);
    assert.ok(block, 'a document has one');
    const names = Object.keys(JSON.parse(block.text) as object);
    for (const name of names) {
      const text = block.text.replace(`"${name}"`, `"${name}x"`);
      await assert.rejects(async () => CHECKERS['json']?.check(t, { ...block, text }), `${name} is misspelt`);
    }
  });
}

for (const block of BLOCKS) {
  const checker = CHECKERS[block.language];
  if (checker !== undefined) test(`${block.place} ${checker.shows}`, (t) => checker.check(t, block));
}

test('the TypeScript of the documents has no type errors', (t) => {
  const folder = programFolder(t);
  const programs = BLOCKS.filter(({ language }) => language === 'ts' || language === 'tsx');
  assert.ok(programs.length > 0);
  writeFileSync(join(folder, 'package.json'), '{ "type": "module" }');
  const files = programs.map(({ language }, i) => `block${i}.${language}`);
  programs.forEach(({ text }, i) => writeFileSync(join(folder, files[i] as string), text));
  const types = ['--types', 'node', '--skipLibCheck', 'false'];
  const options = ['--noEmit', '--strict', '--target', 'es2022', '--module', 'nodenext', '--jsx', 'react-jsx', ...types];
  const checked = spawnSync(process.execPath, [TSC, ...options, ...files], { cwd: folder, encoding: 'utf8' });
  assert.equal(checked.status, 0, checked.stdout);
});

test('the Python of the documents has no type errors', async (t) => {
  const folder = temporaryFolder(t);
  const programs = BLOCKS.filter(({ language }) => language === 'py');
  assert.ok(programs.length > 0);
  const files = programs.map((_, i) => `block${i}.py`);
  programs.forEach(({ text }, i) => writeFileSync(join(folder, files[i] as string), text));
  const program = join(await tools(), 'mypy');
  const checked = spawnSync(program, ['--strict', '--cache-dir', join(folder, 'cache'), ...files], {
    cwd: folder,
    env: { ...process.env, MYPYPATH: join(PACKAGE, 'src') },
    encoding: 'utf8',
  });
  assert.equal(checked.status, 0, `${checked.stdout}${checked.stderr}`);
});

test('links between the documents have targets', () => {
  const broken = documents().flatMap((document) =>
    [...readFileSync(join(REPOSITORY, document), 'utf8').matchAll(/\]\((?!https?:)([^)#]+)[^)]*\)/g)]
      .map(([, target = '']) => target)
      .filter((target) => spawnSync('test', ['-e', join(REPOSITORY, dirname(document), target)]).status !== 0)
      .map((target) => `${document}: ${target}`),
  );
  assert.deepEqual(broken, []);
});

test('the tests that the guarantees name exist', () => {
  const page = readFileSync(join(REPOSITORY, 'docs/guarantees.md'), 'utf8');
  const named = [...page.matchAll(/`([^`]+) · ([^`]+)`/g)].filter(([, file]) => file !== 'FILE');
  const isThere = (file: string, name: string): boolean => readFileSync(join(REPOSITORY, file), 'utf8').includes(name);
  assert.deepEqual(named.filter(([, file = '', name = '']) => !isThere(file, name)).map(([span]) => span), []);
  assert.ok(named.length >= 30, `the page names ${named.length} tests`);
  // A promise is a row of two columns: the promise and its test.
  const bare = page.split('\n').filter((line) => line.split(' | ').length === 2 && !/ · |SIM|Guaranteed|^\|-/.test(line));
  assert.deepEqual(bare, []);
});
