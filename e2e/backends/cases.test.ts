// `spec/socketio-cases.md` names existing tests for all cases.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

const REPOSITORY = join(import.meta.dirname, '..', '..');
const read = (path: string): string => readFileSync(join(REPOSITORY, path), 'utf8');

/** The rows of each table of the page, by its heading. */
const tables = read('spec/socketio-cases.md')
  .split('\n## ')
  .slice(1)
  .map((section) => ({
    heading: section.slice(0, section.indexOf('\n')),
    rows: [...section.matchAll(/^\| (.+) \| `(.+)` \| `([^|`]+)` \|$/gm)].map(([, name = '', title = '', file = '']) => ({ name, title, file })),
  }));

/** Whether a file has a test with this title, or a case of one. */
function has(file: string, title: string): boolean {
  const source = read(file);
  if (file.endsWith('.rs')) return new RegExp(`#\\[test\\]\\s+fn ${title}\\(`).test(source);
  return [`  '${title}': `, `test('${title}', `, `test(\`${title}\`, `].some((text) => source.includes(text));
}

test('each case has an existing test', () => {
  const missing = tables.flatMap(({ rows }) => rows).filter(({ title, file }) => !has(file, title));
  assert.deepEqual(missing, []);
  assert.equal(has('e2e/backends/conformance.test.ts', 'no such case'), false);
});

test('each suite has its number of cases', () => {
  const counts = tables.map(({ heading, rows }) => [heading, rows.length]);
  assert.deepEqual(counts.slice(0, 2), [['Conformance suite of Engine.IO 4', 25], ['Conformance suite of Socket.IO 5', 32]]);
  for (const { rows } of tables.slice(0, 2)) assert.deepEqual(rows.map(({ name }) => Number(name)), rows.map((_, index) => index + 1));
  assert.ok((tables[2]?.rows.length ?? 0) > 20);
});
