// Ports for servers of tests, which no other process of tests gets.

import { randomInt } from 'node:crypto';
import { mkdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';

/**
 * The ports that are tried: below those that the kernel gives to outgoing connections, so that none of these takes a
 * server's port while it is down for a restart.
 */
const PORTS = { first: 10_000, count: 20_000 };

/** Of these, what `fetch` refuses to connect to (WHATWG Fetch, "bad port"). A server on it would never be seen ready. */
const REFUSED_BY_FETCH = 10_080;

/**
 * Files named after the ports that processes of tests have been given. Between the look at a port and the start of its server, and while
 * that is down for a restart, another process would find it free.
 */
const PORT_CLAIMS = join(tmpdir(), `tidewire-ports-${userInfo().uid}`);
/** No process of tests lives so long; one that was killed has left its claims behind. */
const CLAIM_MS_MAX = 3_600_000;

const claimed: string[] = [];
process.on('exit', () => claimed.forEach((claim) => rmSync(claim, { force: true })));

/** A port of the loopback address that nobody listens on, and that no other test gets while this process lives. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = PORTS.first + randomInt(PORTS.count);
    if (port !== REFUSED_BY_FETCH && claims(port) && (await canListen(port))) return port;
  }
}

/** Claims a port for this process, and says whether it is its own. */
function claims(port: number): boolean {
  const claim = join(PORT_CLAIMS, String(port));
  mkdirSync(PORT_CLAIMS, { recursive: true });
  const age = Date.now() - (statSync(claim, { throwIfNoEntry: false })?.mtimeMs ?? Date.now());
  if (age > CLAIM_MS_MAX) rmSync(claim, { force: true });
  try {
    writeFileSync(claim, '', { flag: 'wx' });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    return false;
  }
  claimed.push(claim);
  return true;
}

async function canListen(port: number): Promise<boolean> {
  const listener = createServer();
  const outcome = new Promise<boolean>((done) => {
    listener.once('error', () => done(false));
    listener.listen(port, '127.0.0.1', () => done(true));
  });
  const isFree = await outcome;
  if (isFree) await new Promise((done) => listener.close(done));
  return isFree;
}
