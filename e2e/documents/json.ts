// The checks of JSON blocks: each is compared with a server's output or state, or sent to a server that must accept it.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import type { TestContext } from 'node:test';
import { ADMIN_KEY, admin, startWithAdmin } from '../harness/admin.ts';
import { atEnd } from '../harness/cleanup.ts';
import { connect, open, subscribed } from '../harness/client.ts';
import { Database } from '../harness/database.ts';
import { openStream } from '../harness/event-stream.ts';
import { post, url } from '../harness/http.ts';
import { JsonPeer } from '../harness/json-peer.ts';
import { Operator } from '../harness/admin-page.ts';
import { run } from '../harness/program.ts';
import { Server, binary, type ServerOptions } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';
import { temporaryFolder } from './folder.ts';

/** By the word after `json`: fails if the value does not have this meaning. */
export const JSON_CHECKS: Record<string, (t: TestContext, value: unknown) => Promise<void>> = {
  /** A message that a client may send on the JSON endpoint. */
  message: async (t, value) => {
    // The server ignores unknown names, so check them here.
    assert.deepEqual(Object.keys(value as object).sort(), ['action', 'name', 'parsedData', 'topic']);
    const server = await Server.during(t);
    const peer = await JsonPeer.login(server);
    const reader = await connect(t, server);
    const { name, parsedData } = value as { name: string; parsedData: unknown };
    const seen = await subscribed(reader, name);
    peer.send(value as Parameters<JsonPeer['send']>[0]);
    assert.deepEqual(await seen.next(), parsedData);
  },
  revocation: async (t, value) => {
    const server = await startWithAdmin(t);
    const { kind, name } = value as Record<string, string>;
    const [status, answer] = await admin(server, 'POST', '/revocations', { [kind as string]: name });
    assert.equal(status, 201, JSON.stringify(answer));
    sameShape(value, answer);
  },
  /** The request body that creates a user. */
  user: async (t, value) => {
    const server = await Server.during(t, { adminKey: ADMIN_KEY, auth: { chain: ['store'] } });
    const [status, answer] = await admin(server, 'PUT', '/users/alice', value);
    assert.equal(status, 201, JSON.stringify(answer));
  },
  'stored-user': async (t, value) => {
    const folder = temporaryFolder(t);
    const options = ['--data', join(folder, 'data'), '--auth-chain', 'store', '--permissions', 'allow_all'];
    const args = ['user', 'add', 'alice', '--server-data', '{"role":"admin"}', ...options];
    run(binary(), args, { cwd: folder, input: 'correct horse battery' });
    const query = ['data/records.sqlite', "SELECT data FROM records WHERE name LIKE '%user/alice'"];
    sameShape(value, JSON.parse(run('sqlite3', query, { cwd: folder })));
  },
  /** A row of the changes of rights of a cluster. */
  'rights-log': async (t, value) => {
    const { rules } = value as { rules?: { text: string } };
    const server = await startWithAdmin(t, { ...(await clusterOfOne(t)), ...(rules && { permissions: rules.text }) });
    if (!rules) assert.equal((await admin(server, 'POST', '/revocations', { user: 'mallory' }))[0], 201);
    if (Object.hasOwn(value as object, 'restore')) assert.equal((await admin(server, 'DELETE', '/revocations/user/mallory'))[0], 204);
    sameShape(value, lastExported(server, 'rights/'));
  },
  /** A ticket of a cluster. */
  ticket: async (t, value) => {
    const server = await Server.during(t, await clusterOfOne(t));
    const { ticket } = (await (await post(server, '/api/auth', {})).json()) as { ticket: string };
    if (Object.hasOwn(value as object, 'redeemed')) assert.equal((await openStream(t, url(server, `/sse?event=e&ticket=${ticket}`))).answer.status, 200);
    sameShape(value, lastExported(server, 'ticket/'));
  },
  /** A file of schemas. */
  schema: async (t, value) => {
    const folder = temporaryFolder(t);
    writeFileSync(join(folder, 'tidewire.schema.json'), JSON.stringify(value));
    run(binary(), ['schema', 'types'], { cwd: folder });
  },
  backup: async (t, value) => {
    const server = await Server.during(t);
    run(binary(), ['store', 'backup', 'copy', '--data', server.dataFolder], { cwd: server.folder });
    sameShape(value, JSON.parse(readFileSync(join(server.folder, 'copy/backup.json'), 'utf8')));
  },
  /** A line of the audit log. */
  audit: async (t, value) => {
    assert.ok(['action', 'name'].every((name) => Object.hasOwn(value as object, name)), 'it has an action and a name');
    const server = await Server.during(t, { adminKey: ADMIN_KEY });
    const operator = await Operator.of(server, ADMIN_KEY);
    const { action, name } = value as { action: string; name: string };
    await operator.ask('PUT', `/records/${encodeURIComponent(name)}`, {});
    const isLine = (line: string): boolean => line.includes(`"action":"${action}"`);
    await eventually(() => server.output.split('\n').some(isLine), 'the audit log has a line');
    const line = JSON.parse(server.output.split('\n').find(isLine) as string);
    sameShape(value, line);
    assert.equal(line.name, name);
  },
  /** The body of a request to the webhook. */
  webhook: async (t, value) => {
    const bodies: unknown[] = [];
    const hook = createServer((request, response) => {
      void text(request).then((body) => {
        bodies.push(JSON.parse(body));
        response.end();
      });
    });
    hook.listen(0, '127.0.0.1');
    await once(hook, 'listening');
    atEnd(t, () => void hook.close());
    const webhook = { url: `http://127.0.0.1:${(hook.address() as AddressInfo).port}/` };
    const server = await Server.during(t, { auth: { chain: ['webhook'], webhook } });
    const client = open(server.address);
    atEnd(t, () => client.close());
    await client.login({});
    sameShape(value, bodies[0]);
  },
};

/** The options of a node that is the only member of a cluster. */
async function clusterOfOne(t: TestContext): Promise<ServerOptions> {
  const database = await Database.during(t, 'redis');
  return {
    cluster: { enabled: true, host: '127.0.0.1', port: 0 },
    store: { kind: 'redis', redis: { url: `${database.url}/0` } },
  };
}

/** The data of the last record of this kind that the server itself keeps in its store. */
function lastExported(server: Server, kind: string): unknown {
  const lines = run(binary(), ['store', 'export', '-', '--config', server.configFile], { cwd: server.folder }).trim().split('\n');
  return lines.map((line) => JSON.parse(line)).filter(({ name }) => name?.startsWith(`\u0001${kind}`)).at(-1)?.data;
}

/** Imports lines of JSON in the format of an export. */
export function checkExport(t: TestContext, lines: string): void {
  const folder = temporaryFolder(t);
  writeFileSync(join(folder, 'export.jsonl'), lines);
  const [, record = '{}'] = lines.split('\n');
  run(binary(), ['store', 'import', 'export.jsonl', '--data', 'data'], { cwd: folder });
  run(binary(), ['store', 'export', 'again.jsonl', '--data', 'data'], { cwd: folder });
  const { name, data } = JSON.parse(record) as Record<string, unknown>;
  const again = JSON.parse(readFileSync(join(folder, 'again.jsonl'), 'utf8').split('\n')[1] as string);
  assert.deepEqual([again.name, again.data], [name, data]);
}

/** Fails unless both values have the same members with the same types. `null` and empty objects in the example match anything. */
function sameShape(example: unknown, real: unknown, place = 'the value'): void {
  if (example === null) return;
  assert.equal(Array.isArray(real), Array.isArray(example), place);
  assert.equal(typeof real, typeof example, place);
  if (typeof example !== 'object') return;
  const wanted = Object.entries(example);
  if (wanted.length === 0) return;
  if (!Array.isArray(example)) assert.deepEqual(Object.keys(real as object).sort(), wanted.map(([key]) => key).sort(), place);
  for (const [key, value] of wanted) sameShape(value, (real as Record<string, unknown>)[key], `${place}.${key}`);
}
