// The cases of the storage suite in a page, on the IndexedDB of the browser.

import { IndexedDb } from '../../packages/client/src/offline/indexed-db.ts';
import { CASES } from './cases.ts';

/** Runs a case in a database of the browser. */
async function runCase(title: string): Promise<void> {
  const run = CASES[title];
  if (!run) throw new Error(`there is no case "${title}"`);
  await run((name) => IndexedDb.open(name, { timeoutMs: 5_000, onLost: () => {} }), title);
}

Object.assign(globalThis, { runCase });
