// The behaviour that all bindings share, against the real server: the cases of one folder, run with the driver of a binding.

import { test, type TestContext } from 'node:test';
import { Server } from '../harness/server.ts';
import type { Binding, ServerBinding } from './binding.ts';
import { CALLS } from './cases/calls.ts';
import { LISTS } from './cases/lists.ts';
import { OFFLINE } from './cases/offline.ts';
import { QUERIES } from './cases/queries.ts';
import { RECORDS } from './cases/records.ts';
import { SCOPES } from './cases/scopes.ts';
import { SERVER } from './cases/server.ts';

/** The rules of the server that all cases share: eve may read and subscribe to nothing, some records can't be written or read, and
 * the members of some scopes need a key. */
const PERMISSIONS = `
presence:
  '*': { allow: true }
  'room/*': { join: true, subscribe: "user.id !== 'eve'" }
  'closed/*': { join: "data.key === 'open'", subscribe: true }
rpc: { '*': { provide: true, request: true } }
event: { '*': { publish: true, subscribe: "user.id !== 'eve'", listen: true } }
record:
  '*': { create: true, read: "user.id !== 'eve'", write: true, delete: true, listen: true, notify: true }
  'kept/*': { create: true, read: true, write: "false", delete: true, listen: true, notify: true }
  'secret/*': { create: true, read: "false", write: true, delete: true, listen: true, notify: true }
`;

export type Case = (t: TestContext, on: Binding, server: Server) => Promise<void>;
export type ServerCase = (t: TestContext, on: ServerBinding) => Promise<void>;

/** Tests a binding. The cases run at the same time and use different names. */
export function suite(name: string, load: () => Promise<{ binding: Binding; server: ServerBinding }>): void {
  test(name, { concurrency: true, timeout: 120_000 }, async (t) => {
    const { binding, server: onServer } = await load();
    const server = await Server.during(t, { permissions: PERMISSIONS });
    await Promise.all([
      ...Object.entries({ ...RECORDS, ...LISTS, ...QUERIES, ...SCOPES, ...CALLS, ...OFFLINE }).map(([title, run]) => t.test(title, (inner) => run(inner, binding, server))),
      ...Object.entries(SERVER).map(([title, run]) => t.test(title, (inner) => run(inner, onServer))),
    ]);
  });
}
