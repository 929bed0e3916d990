// The guide for schemas shows the types that the program makes of its file. `blocks.test.ts` compiles and runs the program with them.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { run } from '../harness/program.ts';
import { binary } from '../harness/server.ts';
import { blocksOf } from './block.ts';
import { temporaryFolder } from './folder.ts';

test('the program of the guide begins with the types of its file', (t) => {
  const blocks = blocksOf('docs/schema.md');
  const file = blocks.find(({ language }) => language === 'json');
  const program = blocks.find(({ language }) => language === 'ts');
  assert.ok(file && program);
  const folder = temporaryFolder(t);
  writeFileSync(join(folder, 'tidewire.schema.json'), file.text);
  const types = run(binary(), ['schema', 'types'], { cwd: folder });
  assert.equal(program.text.slice(0, types.length), types);
});
