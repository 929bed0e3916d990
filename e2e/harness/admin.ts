// The admin API as the suites use it: a server that has one, requests to it, and clients whose tokens can be revoked.

import type { TestContext } from 'node:test';
import { connect, type TestClient } from './client.ts';
import { fresh } from './names.ts';
import { Server, type ServerOptions } from './server.ts';
import { Inbox, eventually } from './wait.ts';

const SECRET = 'a secret of the e2e suite, long enough for HMAC';
export const ADMIN_KEY = 'the admin key of the e2e suite, 32+ characters';

/** Starts a server with the admin API, whose users log in with tokens. */
export function startWithAdmin(test: TestContext, options: ServerOptions = {}): Promise<Server> {
  const auth = { chain: ['jwt'], jwt: { secret: SECRET } };
  return Server.during(test, { auth, adminKey: ADMIN_KEY, logLevel: 'debug', ...options });
}

/** A request with the right key. */
export async function admin(server: Server, method: string, path: string, body?: unknown, key = ADMIN_KEY): Promise<[number, any]> {
  const response = await fetch(`http://127.0.0.1:${server.adminPort}/admin/v1${path}`, {
    method,
    headers: { authorization: `Bearer ${key}` },
    ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  const text = await response.text();
  return [response.status, text === '' ? undefined : JSON.parse(text)];
}

/** A token that the server has signed. */
export function tokenOf(server: Server, user: string, id?: string): string {
  const claims = id === undefined ? [] : ['--claim', `jti="${id}"`];
  return server.token('--user', user, ...claims);
}

/** A client that is subscribed to `count` events; returns it with the name of the first event and an inbox of its values. */
export async function listening(test: TestContext, server: Server, token: string, count = 1): Promise<[TestClient, string, Inbox<unknown>]> {
  const client = await connect(test, server, { login: { token }, errors: ['TOO_MANY_AUTH_ATTEMPTS', 'IS_CLOSED', 'CONNECTION_ERROR'] });
  const names = Array.from({ length: count }, () => fresh('event'));
  const seen = new Inbox<unknown>('events');
  const name = names[0] as string;
  for (const other of names.slice(1)) client.event.subscribe(other, () => {});
  client.event.subscribe(name, seen.push);
  await eventually(async () => {
    const probe = await connect(test, server, { login: { token: tokenOf(server, 'probe') } });
    probe.event.emit(name, 'probe');
    await probe.presence.getAll();
    probe.close();
    return seen.seen.includes('probe');
  }, 'the client is subscribed');
  return [client, name, seen];
}
