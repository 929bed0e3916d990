// The first minute in a clean clone, without any configuration; the test takes as long as a build.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import { run } from '../harness/program.ts';
import { REPOSITORY, firstMinute } from './first-minute.ts';

test('in a clean clone: from make run to two tabs that see each other within a minute', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-newcomer-'));
  atEnd(t, () => rmSync(folder, { recursive: true }));
  run('git', ['clone', '--quiet', REPOSITORY, folder]);
  await firstMinute(t, folder);
});
