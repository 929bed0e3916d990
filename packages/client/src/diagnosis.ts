// Finds out why no WebSocket opens, by an HTTP request to the address of the WebSocket. The client loads this module after two failures
// and not before.

import type { Connection } from './connection.js';
import { socketUrl } from './environment.js';
import type { TidewireError } from './error.js';
import { httpServer, request } from './http.js';

/** The cause: a code and a text for the developer. */
type Cause = [code: string, text: string];

/** The globals of a page that other runtimes lack. */
interface Page {
  location?: { origin: string };
  document?: { addEventListener(event: string, listener: () => void): void; removeEventListener(event: string, listener: () => void): void };
}

/** The longest wait for an answer in milliseconds. */
const TIMEOUT_MS = 3_000;
/** The longest text of a server that is repeated. */
const TEXT_MAX = 300;
/** Answers that show the cause at once. Others may belong to a server that is just starting. */
const CODES: Record<number, string> = { 403: 'FORBIDDEN', 404: 'PATH_NOT_FOUND' };

/**
 * Finds out why `connection` does not open, and reports a new cause if `isWanted` still returns true then.
 *
 * @param Failure the class of errors: next to a script for pages, this module is loaded without the code of the client
 * @param failures the number of failed attempts
 */
export async function diagnose(connection: Connection, Failure: typeof TidewireError, failures: number, isWanted: () => boolean): Promise<void> {
  const [code, text] = (await cause(socketUrl(connection.address), failures)) ?? [];
  if (code === undefined || text === undefined || !isWanted() || code === connection.problem?.code) return;
  const problem = new Failure(code, text);
  connection.problem = problem;
  connection.callAll(connection.onState, connection.state, problem);
  // Without a callback, `onError` writes to the console.
  if (connection.onErrors.size > 0) console.error(text);
  connection.onError(problem);
}

/** The cause, or undefined if there is none yet: the server may have started in the meantime. */
async function cause(url: string, failures: number): Promise<Cause | undefined> {
  const address = new URL(url);
  const { protocol, host, pathname } = address;
  const server = httpServer(address);
  const policy = policyWatch();
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(), TIMEOUT_MS);
  const ask = (more: object): Promise<Response> => request(server + pathname, { signal: limit.signal, ...more });
  try {
    return await answered(await ask({ redirect: 'manual' }), server, pathname, failures);
  } catch (error) {
    const origin = (globalThis as unknown as Page).location?.origin;
    // A page may not read an answer that does not allow its origin. It learns at most whether there is an answer, and not even that if the
    // answer forbids other origins to load it, as the server's answers do.
    const isAnswered = origin !== undefined && (await ask({ mode: 'no-cors' }).then(() => true, () => false));
    if (isAnswered) return ['FORBIDDEN', `the server ${server} does not allow pages of ${origin}: add "${origin}" to its option network.origins`];
    const { code } = ((error as Error).cause ?? {}) as { code?: string };
    const blocked = await policy.blocked();
    const hint = blocked ? `, or the page's Content-Security-Policy blocks it: connect-src must allow ${protocol}//${host} and ${server}` : '';
    const foreign = origin === undefined || origin === server ? '' : `, or add "${origin}" to its option network.origins`;
    return ['UNREACHABLE', `no server answers at ${server}${code ? ` (${code})` : ''}: start it, or correct host and port${foreign}${hint}`];
  } finally {
    // Ends the transfer of an answer that was not read.
    limit.abort();
    clearTimeout(timer);
    policy.stop();
  }
}

async function answered(response: Response, server: string, path: string, failures: number): Promise<Cause | undefined> {
  const { status, headers } = response;
  const isShort = Number(headers.get('content-length') ?? Infinity) <= TEXT_MAX && /^text\/plain/.test(headers.get('content-type') ?? '');
  const text = isShort ? `: ${(await response.text()).trim()}` : '';
  const code = CODES[status];
  if (code) return [code, `the server ${server} answers ${status} for the path ${path}${text}`];
  // A server that is just starting answers the next attempt.
  if (failures < 4) return undefined;
  return ['UPGRADE_FAILED', `the server ${server} answers HTTP requests (status ${status}) but opens no WebSocket at ${path}: does a proxy pass on upgrades?${text}`];
}

/** Notices whether the policy of the page blocks a request: the error of the request does not say so. */
function policyWatch(): { blocked(): Promise<boolean>; stop(): void } {
  let isBlocked = false;
  const page = (globalThis as unknown as Page).document;
  const note = (): void => void (isBlocked = true);
  page?.addEventListener('securitypolicyviolation', note);
  return {
    async blocked() {
      // The event follows the error of the request.
      if (page) await new Promise((done) => setTimeout(done));
      return isBlocked;
    },
    stop: () => page?.removeEventListener('securitypolicyviolation', note),
  };
}
