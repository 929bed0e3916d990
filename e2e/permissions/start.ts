// The server of the table of permission cases: its records are written by a server without rules on the same data, then
// the rules are in force. Users log in with one password, a guest without any.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { close, open, type C } from '../harness/client.ts';
import { Server } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { DEADLINE_MS, within } from '../harness/wait.ts';
import { PERMISSIONS, RECORDS, SERVER_DATA, type Asker } from './table.ts';

/** Everybody's. */
export const PASSWORD = 'one for all';

/** A record that everybody may ask about, and that there is not. */
export const MARK = 'mark';

/** What somebody of the table gives to a login. */
export function loginOf(asker: Asker): C.JSONObject {
  return asker === 'guest' ? {} : { username: asker, password: PASSWORD };
}

/** A server with the rules and records of the table, and what ends it. */
export async function startRuled(): Promise<{ server: Server; stop: () => Promise<void> }> {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-permissions-'));
  const seeding = await Server.start({ dataFolder: folder });
  const seeder = open(seeding.address);
  await within(DEADLINE_MS, seeder.login({}), 'login');
  for (const [name, value] of Object.entries(RECORDS)) await seeder.record.setDataWithAck(name, value as C.JSONObject);
  close(seeder);
  await seeding.dispose();
  const users = Object.fromEntries(
    Object.entries(SERVER_DATA).map(([name, serverData]) => [name, { password: hashPassword(PASSWORD), serverData }]),
  );
  const server = await Server.start({ dataFolder: folder, users, permissions: PERMISSIONS, auth: { chain: ['file', 'open'] } });
  const stop = async (): Promise<void> => {
    await server.dispose();
    rmSync(folder, { recursive: true });
  };
  return { server, stop };
}
