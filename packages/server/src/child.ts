// Starts the server's program as a child process, for apps that have no running server.

import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const PACKAGE = '@tidewire/bin-linux-x64';
const START_DEADLINE_MS = 30_000;
/** The server's own limit of a stop is 20 s. */
const STOP_DEADLINE_MS = 25_000;
const OUTPUT_KEPT = 4_000;

export interface StartOptions {
  /** The port for clients. Default a free one. */
  port?: number | undefined;
  /** The address or host name that it listens on. Default `127.0.0.1`. */
  host?: string | undefined;
  /** The key for backends. Default a random one. */
  key?: string | undefined;
  /** The namespaces that backends serve. Default all. */
  namespaces?: readonly string[] | undefined;
  /** The path of the program. Default the one of the package `@tidewire/bin-linux-x64`, or `TIDEWIRE_BIN`. */
  program?: string | undefined;
  /** The folder of its data. Default `tidewire-data` in the working directory. */
  dataFolder?: string | undefined;
  /** Further options of the server, by their names in the environment: `TIDEWIRE_LOG__LEVEL`. */
  env?: Record<string, string> | undefined;
}

/** A server that runs as a child process. */
export interface ServerProcess {
  /** The address for clients and backends. */
  url: string;
  /** The key for backends. */
  key: string;
  port: number;
  pid: number;
  /** Resolves with a sentence when the program has ended without {@link ServerProcess.stop}. */
  failed: Promise<Error>;
  /** Stops the program. It resolves when it has ended. */
  stop(): Promise<void>;
}

/** The path of the program. */
function programOf(given: string | undefined): string {
  const path = given ?? process.env['TIDEWIRE_BIN'];
  if (path) return path;
  const { platform, arch } = process;
  const ways = 'start the server elsewhere, for example in a container or in WSL, and pass its `url` and `key`';
  if (platform !== 'linux' || arch !== 'x64') throw new Error(`the program of Tidewire is for Linux x64, and this is ${platform} ${arch}; ${ways}`);
  try {
    return createRequire(join(process.cwd(), 'package.json')).resolve(`${PACKAGE}/bin/tidewire`);
  } catch {
    throw new Error(`the optional dependency ${PACKAGE} is missing; install it, set TIDEWIRE_BIN to the path of the program, or ${ways}`);
  }
}

async function freePort(host: string): Promise<number> {
  const probe = createServer();
  await new Promise<void>((resolve, reject) => probe.once('error', reject).listen(0, host, resolve));
  const { port } = probe.address() as { port: number };
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

/** Starts a server. It resolves when the server is ready. The program ends with this process. */
export async function startServer(options: StartOptions = {}): Promise<ServerProcess> {
  const program = programOf(options.program);
  const host = options.host ?? '127.0.0.1';
  const port = options.port || (await freePort(host));
  const key = options.key ?? randomBytes(24).toString('hex');
  // Only backends log in: without keys for other clients, the rooms are not open to their protocols.
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-'));
  const keys = join(folder, 'keys.yml');
  writeFileSync(keys, '{}\n');
  const child = spawn(program, ['start'], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      ...process.env,
      TIDEWIRE_NETWORK__HOST: host,
      TIDEWIRE_NETWORK__PORT: `${port}`,
      TIDEWIRE_BACKEND__KEY: key,
      TIDEWIRE_BACKEND__NAMESPACES: (options.namespaces ?? ['/*']).join(','),
      TIDEWIRE_AUTH__CHAIN: 'keys',
      TIDEWIRE_AUTH__KEYS__PATH: keys,
      TIDEWIRE_PERMISSIONS: 'allow_all',
      TIDEWIRE_STORE__PATH: options.dataFolder ?? 'tidewire-data',
      ...options.env,
    },
  });
  let output = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (output = (output + text).slice(-OUTPUT_KEPT)));
  let isStopping = false;
  const ended = new Promise<Error>((resolve) => {
    child.once('error', (error) => resolve(new Error(`${program} can't be started: ${error.message}`)));
    child.once('close', (code, signal) => resolve(new Error(`the server has ended with ${code ?? signal}: ${output.trim()}`)));
  });
  const kill = (): void => void child.kill('SIGKILL');
  process.once('exit', kill);
  void ended.then(() => {
    process.removeListener('exit', kill);
    rmSync(folder, { recursive: true, force: true });
  });
  const url = `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
  const stop = async (): Promise<void> => {
    isStopping = true;
    child.kill('SIGTERM');
    const timer = setTimeout(kill, STOP_DEADLINE_MS);
    await ended;
    clearTimeout(timer);
  };
  const ready = new Promise<true>((resolve) => {
    let screen = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      screen = (screen + text).slice(-OUTPUT_KEPT);
      // The last line that the program prints.
      if (/^ready on /m.test(screen)) resolve(true);
    });
  });
  const late = new Promise<Error>((resolve) => setTimeout(() => resolve(new Error(`the server is not ready after 30 s: ${output.trim()}`)), START_DEADLINE_MS).unref());
  const outcome = await Promise.race([ready, ended, late]);
  if (outcome !== true) {
    kill();
    throw outcome;
  }
  const failed = new Promise<Error>((resolve) => void ended.then((error) => (isStopping ? undefined : resolve(error))));
  return { url, key, port, pid: child.pid!, failed, stop };
}
