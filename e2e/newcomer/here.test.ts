// The first minute in this folder instead of a clean clone. The test uses its own data and port, because another server may run here.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import { REPOSITORY, firstMinute } from './first-minute.ts';

test('here: from make run to two tabs that see each other within a minute', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-newcomer-'));
  atEnd(t, () => rmSync(folder, { recursive: true }));
  await firstMinute(t, REPOSITORY, { TIDEWIRE_NETWORK__PORT: '0', TIDEWIRE_STORE__PATH: join(folder, 'data') });
});
