// The page's requests to the server: below `api/`, with the browser's cookie, and with the session's token for changes.

/** The session of a signed-in operator. */
export interface Session {
  /** A request that changes something must send this token. */
  token: string;
  /** The id of the session in the audit log. */
  session: string;
  /** Seconds since 1970. */
  ends: number;
  version: string;
}

/** An answer without a status of success. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    /** Seconds after which another attempt makes sense. */
    readonly retryAfter?: number,
  ) {
    super(message);
  }
}

export interface Asked {
  body?: unknown;
  headers?: Record<string, string>;
}

async function request(method: string, path: string, token: string, { body, headers }: Asked = {}): Promise<Response> {
  const answer = await fetch(`api${path}`, {
    method,
    headers: {
      ...(token !== '' && { 'x-admin-token': token }),
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  }).catch(() => {
    throw new Refused(0, 'UNREACHABLE', 'the server does not answer');
  });
  if (answer.ok) return answer;
  const text = await answer.text();
  const seconds = Number(answer.headers.get('retry-after') ?? undefined);
  const after = Number.isNaN(seconds) ? undefined : seconds;
  let code = '';
  let message = text.trim();
  try {
    const parsed = JSON.parse(text) as { error?: { code: string; message: string }; title?: string; detail?: string };
    code = parsed.error?.code ?? '';
    message = parsed.error?.message ?? parsed.detail ?? parsed.title ?? message;
  } catch {
    // The body is not JSON: it is the text of the error.
  }
  throw new Refused(answer.status, code, message || `the server answered ${answer.status}`, after);
}

/** Exchanges the key for the cookie. */
export async function signIn(key: string): Promise<Session> {
  return (await request('POST', '/session', '', { body: { key } })).json() as Promise<Session>;
}

/** The session of the cookie, if the cookie is still valid. */
export async function keptSession(): Promise<Session | undefined> {
  try {
    return (await (await request('GET', '/session', '')).json()) as Session;
  } catch (error) {
    if (error instanceof Refused && error.status === 401) return undefined;
    throw error;
  }
}

/** The server, as a signed-in operator uses it. */
export class Server {
  constructor(
    readonly session: Session,
    private readonly onEnd: () => void,
  ) {}

  /** The response as it is. If the session has ended, the page returns to the sign-in. */
  async answer(method: string, path: string, asked?: Asked): Promise<Response> {
    try {
      return await request(method, path, this.session.token, asked);
    } catch (error) {
      if (error instanceof Refused && error.status === 401) this.onEnd();
      throw error;
    }
  }

  /** The JSON of an answer. */
  async ask<T>(method: string, path: string, body?: unknown): Promise<T> {
    return (await this.answer(method, path, { body })).json() as Promise<T>;
  }

  /** Signs out. The server also closes the connections that were opened with this session. */
  async signOut(): Promise<void> {
    await this.answer('DELETE', '/session');
    this.onEnd();
  }
}

/** A query string of the parameters that are not empty. */
export function query(parameters: Record<string, string>): string {
  const given = Object.entries(parameters).filter(([, value]) => value !== '');
  return given.length === 0 ? '' : `?${new URLSearchParams(given)}`;
}

/** The text of an error, for the page. */
export function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
