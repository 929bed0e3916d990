// The server for the table of permission cases. A server without rules writes the records first; then a server with the rules starts
// on the same data. All users have the same password, and a guest has none.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { close, open, type C } from '../harness/client.ts';
import { Server } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { DEADLINE_MS, within } from '../harness/wait.ts';
import { PERMISSIONS, RECORDS, SERVER_DATA, type Asker } from './table.ts';

/** The password of all users. */
export const PASSWORD = 'one for all';

/** The name of a missing record that all users may read. */
export const MARK = 'mark';

/** The login data of a user in the table. */
export function loginOf(asker: Asker): C.JSONObject {
  return asker === 'guest' ? {} : { username: asker, password: PASSWORD };
}

/** Starts a server with the rules and records of the table; returns it with a function that stops it. */
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
