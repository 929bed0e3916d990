// Rules, credentials and requests of the suites of queries over HTTP.

import assert from 'node:assert/strict';
import { url } from './http.ts';
import type { Server } from './server.ts';

/** A record in the result of a query. */
export interface Row {
  id: string;
  version: number;
  data: any;
}

/** The parameters of a query; those that are not texts are sent as JSON. */
export type Parameters = Record<string, unknown>;

/** All users write; only the owner of a note, or the user `root`, reads it. */
export const PERMISSIONS = `
presence:
  "*": { allow: true }
record:
  "*": { create: true, write: true, read: true, delete: true, listen: true, notify: true }
  "notes/$id":
    read: "oldData !== null && (oldData.owner === user.id || user.id === 'root')"
  "gated/$id":
    read: "_('gate/' + $id) !== null"
event:
  "*": { publish: true, subscribe: true, listen: true }
rpc:
  "*": { provide: true, request: true }
`;

/** The credentials of a user with the password `pw`. */
export const basic = (user: string): Record<string, string> => ({ authorization: `Basic ${Buffer.from(`${user}:pw`).toString('base64')}` });

/** The path of a query. */
export function queryPath(parameters: Parameters): string {
  const text = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value));
  return `/records?${new URLSearchParams(Object.entries(parameters).map(([key, value]) => [key, text(value)] as [string, string]))}`;
}

/** Writes a record. */
export async function put(server: Server, name: string, data: unknown, user = 'root'): Promise<void> {
  const headers = { 'content-type': 'application/json', ...basic(user) };
  const answer = await fetch(url(server, `/records/${name}`), { method: 'PUT', headers, body: JSON.stringify(data) });
  assert.ok(answer.ok, `${answer.status} ${await answer.text()}`);
}

/** Deletes a record that exists. */
export async function remove(server: Server, name: string): Promise<void> {
  const answer = await fetch(url(server, `/records/${name}`), { method: 'DELETE', headers: basic('root') });
  assert.equal(answer.status, 204);
}
