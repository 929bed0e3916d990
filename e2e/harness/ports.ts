// Ports for the servers of tests. No other test process uses the same port.

import { randomInt } from 'node:crypto';
import { mkdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';

/**
 * The range of ports. It is below the kernel's range for outgoing connections, so that none of these takes a server's port while the
 * server is down for a restart.
 */
const PORTS = { first: 10_000, count: 20_000 };

/** A port in the range that `fetch` refuses (WHATWG Fetch, "bad port"). A server on it would never appear ready. */
const REFUSED_BY_FETCH = 10_080;

/**
 * Files named after the ports that test processes have claimed. Another process would find such a port free between the check and the
 * start of its server, and while the server is down for a restart.
 */
const PORT_CLAIMS = join(tmpdir(), `tidewire-ports-${userInfo().uid}`);
/** Test processes live for a shorter time than this; a process that was killed leaves its claims behind. */
const CLAIM_MS_MAX = 3_600_000;

const claimed: string[] = [];
process.on('exit', () => claimed.forEach((claim) => rmSync(claim, { force: true })));

/** A free port of the loopback address. No other test receives it while this process lives. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = PORTS.first + randomInt(PORTS.count);
    if (port !== REFUSED_BY_FETCH && claims(port) && (await canListen(port))) return port;
  }
}

/** Claims a port for this process; returns whether it succeeded. */
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
