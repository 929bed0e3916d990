// The admin page as the suites use it: its key from the first screen, and requests of an operator who has signed in.

import assert from 'node:assert/strict';
import { url } from './http.ts';
import type { Server } from './server.ts';

/** The key that a server in development mode generates and prints on its first screen. */
export async function shownKey(server: Server): Promise<string> {
  const row = /admin page +http\S+\/admin\/#key=([\w-]+)/;
  await server.prints(row);
  return row.exec(server.output)?.[1] as string;
}

/** A request to sign in. */
export function signIn(server: Server, key: string, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(url(server, '/admin/api/session'), {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ key }),
  });
}

/** An operator who has signed in. */
export class Operator {
  private constructor(
    private readonly server: Server,
    /** The cookie as it is sent. */
    readonly cookie: string,
    /** The token that requests with changes must have. */
    readonly token: string,
    /** The name of this sign-in in the audit log. */
    readonly session: string,
  ) {}

  /** Signs in with the key; the default is the key on the first screen. */
  static async of(server: Server, key?: string): Promise<Operator> {
    const answer = await signIn(server, key ?? (await shownKey(server)));
    const { token, session } = (await answer.json()) as { token: string; session: string };
    assert.equal(answer.status, 201);
    const cookie = (answer.headers.get('set-cookie') ?? '').split(';')[0] as string;
    return new Operator(server, cookie, token, session);
  }

  /** Sends a request with the cookie and the token, unless `headers` has its own. */
  fetch(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<Response> {
    return fetch(url(this.server, `/admin/api${path}`), {
      method,
      headers: { cookie: this.cookie, 'x-admin-token': this.token, 'content-type': 'application/json', ...headers },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
  }

  /** The body of a response, which must have the status 200 or 201. */
  async ask(method: string, path: string, body?: unknown): Promise<any> {
    const answer = await this.fetch(method, path, body);
    const text = await answer.text();
    assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${text}`);
    return text === '' ? undefined : JSON.parse(text);
  }

  /** Runs one command, as an operator or as a user. */
  async command(one: object, query = ''): Promise<Record<string, unknown>> {
    const { body } = await this.ask('POST', `/commands${query}`, { body: [one] });
    return body[0];
  }
}
