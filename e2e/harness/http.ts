// Plain HTTP requests to the server under test, with `fetch`, or without it for tests that need headers that `fetch` forbids.

import { strict as assert } from 'node:assert';
import type { Server } from './server.ts';

/** The response to a batch. */
export interface BatchAnswer {
  result: 'SUCCESS' | 'PARTIAL_SUCCESS' | 'FAILURE';
  body: Array<Record<string, unknown>>;
}

/** The URL of a path of the server. */
export function url(server: Server, path: string): string {
  return `http://${server.address}${path}`;
}

/** A POST of `body` as JSON; a string is sent unchanged. */
export function post(server: Server, path: string, body: unknown, headers: Record<string, string> = {}): Promise<Response> {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return fetch(url(server, path), {
    method: 'POST',
    body: text,
    headers: { 'content-type': 'application/json', ...headers },
  });
}

/** Runs commands, all of which the server must accept. */
export async function batch(server: Server, commands: unknown[], login: object = {}): Promise<BatchAnswer> {
  const answer = await post(server, '/api', { ...login, body: commands });
  const text = await answer.text();
  assert.equal(answer.status, 200, text);
  assert.equal(answer.headers.get('content-type'), 'application/json; charset=utf-8');
  assert.ok(text.endsWith('\r\n\r\n'), 'deepstream ends its bodies so');
  return JSON.parse(text) as BatchAnswer;
}

/** Runs one command and returns its result. */
export async function command(server: Server, one: object, login: object = {}): Promise<Record<string, unknown>> {
  const { body } = await batch(server, [one], login);
  assert.equal(body.length, 1);
  return body[0] as Record<string, unknown>;
}
