// A program that holds records offline in an SQLite file. Its arguments are the server, the file, a record, and how many edits it makes at
// first. It writes a line for each step, and runs until it is killed.

import { rmSync } from 'node:fs';
import sqlite from 'node-sqlite3-wasm';
import { WebSocket } from 'ws';
import { Client } from '../../packages/client/src/index.ts';
import { Offline } from '../../packages/client/src/offline.ts';
import { sqliteStorage } from '../../packages/client/src/storage.ts';

const [address, file = '', name = '', edits] = process.argv.slice(2);
const storage = sqliteStorage(() => {
  // The lock of this driver is a folder, which stays when a program is killed. The locks of `node:sqlite` end with their process.
  rmSync(`${file}.lock`, { recursive: true, force: true });
  const database = new sqlite.Database(file);
  return { query: (sql, values) => database.all(sql, values) as Array<Record<string, unknown>>, close: () => database.close() };
});
const client = new Client(address, { webSocket: WebSocket, reconnectMinMs: 20, reconnectMaxMs: 200 });
const offline = new Offline(client, { storage });
const record = offline.open(name);
for (let number = 0; number < Number(edits); number += 1) record.set(`edit${number}`, number);
await offline.kept();
const { mode, pendingCount } = offline.state;
console.log(`${mode} ${pendingCount} kept`);
let last = pendingCount;
offline.onState((state) => {
  if (state.pendingCount < last && state.pendingCount > 0) console.log(`${state.mode} some made`);
  last = state.pendingCount;
  if (last === 0 && state.connection === 'open') console.log(`${state.mode} 0 left`);
});
setInterval(() => {}, 1_000);
