// The server under test as a child process: started on a free port with its own data folder, waited for through its
// health page, stopped with SIGTERM (which must end it with code 0) or killed, and started again in the same place.
// What the suites ask of a server is in `ServerOptions`; how Tidewire spells it is in `tidewireConfig`, and only there.

import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, get as request } from 'node:http';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type { TestContext } from 'node:test';
import { certify, type Certified } from './certificate.ts';
import { atEnd } from './cleanup.ts';
import { containedCommand, containerFolder } from './container.ts';
import { originalServerCommand } from './original-server.ts';
import { freePort } from './ports.ts';
import { run } from './program.ts';
import { ringLauncher } from './ring.ts';
import { PASSWORD_HASH, type Users } from './users.ts';
import { eventually, within } from './wait.ts';

/** What a suite may ask of its server; what is left out keeps the server's own default. */
export interface ServerOptions {
  /** The content of a deepstream `users.yml`; with it only these users may log in. */
  users?: Users;
  /** Options of the server's section `auth`, in its own names. */
  auth?: Record<string, unknown>;
  /** The key of the admin API, which is off without it, and of the admin page. */
  adminKey?: string;
  /** Further options of the server's section `admin`, in its own names. */
  admin?: Record<string, string | number | boolean>;
  /** The page that answers 200 when the server has started; `/ready` by default. */
  readyAt?: string;
  authAttemptsMax?: number;
  loginTimeoutMs?: number;
  heartbeatIntervalMs?: number;
  rpcAcceptTimeoutMs?: number;
  rpcResponseTimeoutMs?: number;
  listenResponseTimeoutMs?: number;
  /** Whether rpc providers learn who calls. */
  rpcRequestor?: boolean;
  /** Whether the rule of the permission tests is in force (see `suites/denials.test.ts`). */
  denials?: boolean;
  /** The text of a deepstream `permissions.yml`; without it everything is allowed. */
  permissions?: string;
  /** Whether there are no rules, as without any configuration: those of the demo hold for its names. */
  withoutRules?: boolean;
  /** Beginnings of names whose records are whole values without versions. */
  hotPathPrefixes?: string[];
  /** Limits under the names of the server's section `limits`. */
  limits?: Record<string, number>;
  /** The server's section `rates`. */
  rates?: Partial<Record<'connection' | 'user', Record<string, string>>>;
  /** Which events have history, as `event.history` has it. */
  history?: string[];
  /** Whether the suite needs the JSON endpoint, which Tidewire always has. */
  jsonEndpoint?: boolean;
  /** Its paths, if they are others. */
  jsonPaths?: string[];
  /** The server's section `traces`. */
  traces?: Record<string, string | number>;
  /** The server's section `http`. */
  http?: Record<string, string | number | boolean>;
  /** Whether offers of compression are taken. */
  compression?: boolean;
  /** The server's section `backoff`. Without it nobody waits, since all clients of a suite share address and user. */
  backoff?: Record<string, string | number>;
  /** TLS on a port of its own, with these files. */
  tls?: {
    certificate: string;
    key: string;
    reloadIntervalMs?: number;
    minVersion?: '1.2' | '1.3';
    http2?: boolean;
    /** The file with the authorities of client certificates. */
    clientCa?: string;
    clientCertificates?: 'required';
    hstsMaxAge?: string;
  };
  logLevel?: 'warn' | 'info' | 'debug' | 'trace';
  /** Whether all of its output is kept, however much there is. */
  keepsOutput?: boolean;
  /** How messages reach the kernel. */
  sends?: 'plain';
  /** Origins of pages, and names of the server, that are let in. */
  origins?: string[];
  hosts?: string[];
  /** Shards; three by default. */
  shards?: number;
  /** Addresses and networks of proxies that are believed. */
  trustedProxies?: string[];
  /** Whether connections begin with a head of the PROXY protocol. */
  proxyProtocol?: boolean;
  drainTimeoutMs?: number;
  /** Where the data lies; by default in the server's temporary folder. It is not removed with that. */
  dataFolder?: string;
  /** Options of the server's section `store`, in its own names. */
  store?: Record<string, unknown>;
  /** The server's section `stores`: stores beside that of `store`, by name. */
  stores?: Record<string, object>;
  /** Options of the server's section `listen`, in its own names. */
  listen?: Record<string, unknown>;
  /** Options of the server's section `record`, in its own names. */
  record?: Record<string, unknown>;
  /** Bytes of records that the server keeps in memory. */
  cacheBytesMax?: number;
  /** The program, if it is not the one that all suites test. */
  binary?: string;
  /** A program with arguments that starts the server as itself. */
  launcher?: string[];
  /** The command that serves, with arguments, if it is not `start`. */
  command?: string[];
}

/** True when the suites run against deepstream's own server instead of Tidewire. */
export const againstOriginal = process.env['E2E_SERVER'] === 'deepstream';

/** Whether every server has a port of TLS, and which one belongs to which port in the clear (see `over-http2.ts`). */
export const encrypted = { isWanted: false, ports: new Map<number, number>() };

/** At least three shards, whatever the machine: one shard would hide every race between owners. */
export const SHARD_COUNT = 3;
const START_DEADLINE_MS = 30_000;
const STOP_DEADLINE_MS = 25_000;
/** Characters of the server's output that are kept for the message of a failure. */
const OUTPUT_KEPT = 8_000;
/** From where metrics are read: an address that no test uses. */
const METRICS_ADDRESS = '127.0.0.254';

const REPOSITORY = resolve(import.meta.dirname, '../..');

/** The options of `tidewire.yml`, under the names that the server gives them. JSON is YAML, too. */
function tidewireConfig(options: ServerOptions, folder: string, tlsPort: number, adminPort: number): object {
  const { hash, iterations, keyLength } = PASSWORD_HASH;
  const file = { path: join(folder, 'users.yml'), hash, iterations, key_length: keyLength };
  const sections = pruned({
    network: {
      heartbeat_interval: milliseconds(options.heartbeatIntervalMs),
      sends: options.sends,
      json_paths: options.jsonPaths,
      origins: options.origins,
      hosts: options.hosts,
      trusted_proxies: options.trustedProxies,
      proxy_protocol: options.proxyProtocol,
    },
    compression: { enabled: options.compression },
    tls: {
      certificate: options.tls?.certificate,
      key: options.tls?.key,
      port: options.tls && tlsPort,
      reload_interval: milliseconds(options.tls?.reloadIntervalMs),
      min_version: options.tls?.minVersion,
      client_ca: options.tls?.clientCa,
      client_certificates: options.tls?.clientCertificates,
      hsts_max_age: options.tls?.hstsMaxAge,
      http2: options.tls?.http2,
    },
    auth: {
      ...(options.users && { chain: ['file'], file }),
      attempts_max: options.authAttemptsMax,
      login_timeout: milliseconds(options.loginTimeoutMs),
      ...options.auth,
    },
    admin: { key: options.adminKey, port: options.adminKey && adminPort, ...options.admin },
    rpc: {
      accept_timeout: milliseconds(options.rpcAcceptTimeoutMs),
      response_timeout: milliseconds(options.rpcResponseTimeoutMs),
      requestor_name: options.rpcRequestor,
      requestor_data: options.rpcRequestor,
    },
    listen: { response_timeout: milliseconds(options.listenResponseTimeoutMs), ...options.listen },
    record: { hot_path_prefixes: options.hotPathPrefixes, ...options.record },
    event: { history: options.history },
    traces: { ...options.traces },
    http: { ...options.http },
    limits: { ...options.limits },
    rates: { ...options.rates },
    backoff: options.backoff ?? { wait_max: '0s' },
    store: { cache: options.cacheBytesMax, ...options.store },
    stores: { ...options.stores },
  });
  const chosen = options.denials ? 'test_rule' : options.withoutRules ? 'none' : 'allow_all';
  const permissions = options.permissions ? join(folder, 'permissions.yml') : chosen;
  const drain = options.drainTimeoutMs && { drain_timeout: milliseconds(options.drainTimeoutMs) };
  return { ...drain, permissions, ...sections };
}

let shown: Certified | undefined;

/** Files with a certificate, the same for all servers of the process. */
function certified(folder: string): { certificate: string; key: string } {
  shown ??= certify();
  const files = { certificate: join(folder, 'certificate.pem'), key: join(folder, 'key.pem') };
  writeFileSync(files.certificate, shown.certificate);
  writeFileSync(files.key, shown.key, { mode: 0o600 });
  return files;
}

function milliseconds(count: number | undefined): string | undefined {
  return count === undefined ? undefined : `${count}ms`;
}

/** `sections` without options that are not set and sections that are empty. */
function pruned(sections: Record<string, Record<string, unknown>>): object {
  const set = Object.entries(sections).map(([name, section]) => {
    return [name, Object.fromEntries(Object.entries(section).filter(([, value]) => value !== undefined))] as const;
  });
  return Object.fromEntries(set.filter(([, section]) => Object.keys(section).length > 0));
}

export class Server {
  #child: ChildProcess | undefined;
  #exit: Promise<number | string> | undefined;
  #output = '';
  #lineCount = 0;
  /** Whether it was told to end. */
  #isEnding = false;
  /**
   * For metrics: a connection that ends when nobody wants it any more, and not seconds later. It comes from an address of its
   * own, because tests use up what one address may have.
   */
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1, localAddress: METRICS_ADDRESS });
  private readonly options: ServerOptions;

  private constructor(
    readonly port: number,
    /** The port of TLS, if the server has one. */
    readonly tlsPort: number,
    /** The port of the admin API, if it is on. */
    readonly adminPort: number,
    readonly folder: string,
    options: ServerOptions,
  ) {
    this.options = { ...options };
  }

  /** Starts a server on a free port and waits until it is ready. */
  static async start(options: ServerOptions = {}): Promise<Server> {
    const folder = mkdtempSync(join(tmpdir(), 'tidewire-e2e-'));
    const own = encrypted.isWanted ? { tls: certified(folder), ...options } : options;
    const server = new Server(await freePort(), await freePort(), await freePort(), folder, own);
    if (encrypted.isWanted) encrypted.ports.set(server.port, server.tlsPort);
    await server.start();
    return server;
  }

  /** Starts a server that ends with `test`. */
  static async during(test: TestContext, options: ServerOptions = {}): Promise<Server> {
    const server = await Server.start(options);
    atEnd(test, () => server.dispose());
    return server;
  }

  /** `host:port`, as given to a client. */
  get address(): string {
    return `127.0.0.1:${this.port}`;
  }

  /** `host:port` of TLS. */
  get tlsAddress(): string {
    return `127.0.0.1:${this.tlsPort}`;
  }

  /** The program. */
  get binary(): string {
    return this.options.binary ?? (this.options.denials ? binaryWithRules() : binary());
  }

  /** Where its configuration lies. */
  get configFile(): string {
    return join(this.folder, 'tidewire.yml');
  }

  /** What it has printed, from its end. */
  get output(): string {
    return this.#output;
  }

  /** The data folder, whether the server runs or not. */
  get dataFolder(): string {
    return this.options.dataFolder ?? join(this.folder, 'data');
  }

  /**
   * Waits until the output has what `pattern` says. The pages answer before the first screen is printed, and what is printed
   * comes through a pipe, so neither has to be here yet when an answer is.
   */
  async prints(pattern: RegExp): Promise<void> {
    try {
      await eventually(() => pattern.test(this.#output), `the server prints ${pattern}`);
    } catch (error) {
      throw new Error(`${(error as Error).message}; it printed:\n${this.#output}`);
    }
  }

  /** Lines that it has printed. */
  get lineCount(): number {
    return this.#lineCount;
  }

  /** Replaces the file of rules while the server runs, at once for whoever reads it. */
  setPermissions(text: string): void {
    const file = join(this.folder, 'permissions.yml');
    writeFileSync(`${file}.new`, text);
    renameSync(`${file}.new`, file);
    this.options.permissions = text;
  }

  /** Replaces the stores beside the default one for the next start. */
  setStores(stores: Record<string, object>): void {
    this.options.stores = stores;
  }

  /** Has the server read its files again. */
  hangUp(): void {
    process.kill(this.pid, 'SIGHUP');
  }

  /** Replaces the file of users for the next start. */
  setUsers(users: Users): void {
    this.options.users = users;
  }

  /** Starts the process again on the same port and data folder. */
  async start(): Promise<void> {
    const [program, ...args] = [...ringLauncher(), ...(this.options.launcher ?? []), ...this.#contained(this.#command())];
    const child = spawn(program as string, args, { stdio: ['ignore', 'pipe', 'pipe'], env: environment() });
    this.#child = child;
    this.#isEnding = false;
    children.add(child);
    this.#exit = new Promise((done) => {
      child.once('error', (error) => done(error.message));
      child.once('exit', (code, signal) => {
        children.delete(child);
        if (!this.#isEnding) console.error(`the server ended by itself (${code ?? signal}):\n${this.#output}`);
        done(code ?? signal ?? 'unknown');
      });
    });
    const keep = (text: Buffer): void => {
      const kept = this.options.keepsOutput ? Infinity : OUTPUT_KEPT;
      this.#output = (this.#output + text.toString()).slice(-kept);
      this.#lineCount += text.toString().split('\n').length - 1;
    };
    child.stdout.on('data', keep);
    child.stderr.on('data', keep);
    const ended = this.#exit.then((code) => {
      throw new Error(`the server ended with ${code} while starting:\n${this.#output}`);
    });
    // Whether it has ended is told by the other promise.
    const answers = async (): Promise<boolean> => !this.isRunning || (await this.#answers());
    const ready = eventually(answers, `the server on port ${this.port} is ready`, START_DEADLINE_MS);
    await Promise.race([ready, ended]);
  }

  /** Stops the server as an operator does and checks that it says that it stopped well. */
  async stop(): Promise<void> {
    this.#signal('SIGTERM');
    const code = await within(STOP_DEADLINE_MS, this.#ended(), 'the server stops after SIGTERM');
    if (code !== 0 && !againstOriginal) throw new Error(`the server stopped with ${code}:\n${this.#output}`);
  }

  /** Ends the process without a warning, as a crash does. */
  async kill(): Promise<void> {
    this.#signal('SIGKILL');
    await within(STOP_DEADLINE_MS, this.#ended(), 'the server ends after SIGKILL');
  }

  /** Stops the server and removes its data. */
  async dispose(): Promise<void> {
    this.closeMetrics();
    if (this.isRunning) await this.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  get isRunning(): boolean {
    return this.#child?.exitCode === null && this.#child.signalCode === null;
  }

  /** The id of the running process. */
  get pid(): number {
    return innermost(this.#process().pid as number);
  }

  /** Bytes of memory that the process holds (VmRSS). */
  get memoryBytes(): number {
    const status = readFileSync(`/proc/${this.pid}/status`, 'utf8');
    const kilobytes = /^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1];
    if (kilobytes === undefined) throw new Error('/proc has no VmRSS for the server');
    return Number(kilobytes) * 1024;
  }

  /** A token of the server's own, with further arguments of `tidewire token`. */
  token(...args: string[]): string {
    return run(this.binary, ['token', '--config', this.configFile, ...args]).trim();
  }

  /** The server's answer to a GET request. */
  async get(path: string): Promise<Response> {
    return fetch(`http://${this.address}${path}`);
  }

  /** The value of a metric as it is called, labels included; without labels also the sum over them. */
  async metric(name: string): Promise<number> {
    // A connection that is kept may be closed for a time that a test has set, just when it is used again.
    const text = await this.#metrics().catch(() => this.#metrics());
    const series = (line: string): string => line.slice(0, line.lastIndexOf(' '));
    const lines = text.split('\n').filter((line) => series(line) === name || series(line).split('{', 1)[0] === name);
    if (lines.length === 0) throw new Error(`the server has no metric ${name}`);
    return lines.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
  }

  /** Ends the connection over which metrics were read, so that it is no descriptor of the server's. */
  closeMetrics(): void {
    this.#agent.destroy();
  }

  #metrics(): Promise<string> {
    return new Promise((done, fail) => {
      const asked = request(`http://${this.address}/metrics`, { agent: this.#agent }, (answer) => {
        let text = '';
        answer.setEncoding('utf8').on('data', (part: string) => (text += part));
        answer.on('end', () => done(text)).on('error', fail);
      });
      asked.on('error', fail);
    });
  }

  #command(): string[] {
    if (this.options.permissions) writeFileSync(join(this.folder, 'permissions.yml'), this.options.permissions);
    if (this.options.users) writeFileSync(join(this.folder, 'users.yml'), JSON.stringify(this.options.users));
    if (againstOriginal) return originalServerCommand(this.options, this.port, this.folder);
    const config = this.configFile;
    writeFileSync(config, JSON.stringify(tidewireConfig(this.options, this.folder, this.tlsPort, this.adminPort)));
    const level = this.options.logLevel ?? 'warn';
    const place = ['--host', '127.0.0.1', '--port', String(this.port), '--data', this.dataFolder];
    return [this.binary, ...(this.options.command ?? ['start']), '--config', config, ...place, '--shards', String(this.options.shards ?? SHARD_COUNT), '--log-level', level];
  }

  /** Tells the server itself, whatever launched it: what runs a container signals the process inside. */
  #signal(signal: NodeJS.Signals): void {
    this.#isEnding = true;
    process.kill(this.pid, signal);
  }

  /** The command as it starts the server in a container, if that is where servers run. */
  #contained(command: string[]): string[] {
    const container = containerFolder();
    if (container === undefined) return command;
    return containedCommand(container, command, this.folder, this.dataFolder);
  }

  async #answers(): Promise<boolean> {
    if (this.options.proxyProtocol) return this.#saysItIsWell();
    try {
      return (await this.get(againstOriginal ? '/health-check' : (this.options.readyAt ?? '/ready'))).ok;
    } catch {
      return false;
    }
  }

  /** Asks as an operator does whose server wants a head before each request. */
  #saysItIsWell(): boolean {
    const place = ['--config', join(this.folder, 'tidewire.yml'), '--host', '127.0.0.1', '--port', String(this.port)];
    const { status } = spawnSync(this.binary, ['health', ...place], { env: environment(), stdio: 'ignore' });
    return status === 0;
  }

  #process(): ChildProcess {
    if (!this.#child) throw new Error('the server was never started');
    return this.#child;
  }

  #ended(): Promise<number | string> {
    if (!this.#exit) throw new Error('the server was never started');
    return this.#exit;
  }
}

const children = new Set<ChildProcess>();
process.on('exit', () => {
  for (const { pid } of children) if (pid !== undefined) process.kill(innermost(pid), 'SIGKILL');
});

/** The server behind the processes of a launcher: each has the next one as its only child, and the server has none. */
export function innermost(pid: number): number {
  const tasks = `/proc/${pid}/task`;
  // A thread that has ended meanwhile has no children any more.
  const childrenOf = (task: string): string => {
    try {
      return readFileSync(join(tasks, task, 'children'), 'utf8').trim();
    } catch {
      return '';
    }
  };
  const child = existsSync(tasks) ? readdirSync(tasks).map(childrenOf).find((text) => text !== '') : undefined;
  return child === undefined ? pid : innermost(Number(child.split(' ')[0]));
}

/** The environment without variables that the server would take for options, such as the one that names the binary. */
export function environment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('TIDEWIRE_')));
}

/** The program that all suites test. */
export function binary(): string {
  return existing('TIDEWIRE_BIN', ['release', 'debug']);
}

/** The program with the rule of the permission tests, which releases do not have: `cargo build --all-features`. */
function binaryWithRules(): string {
  return existing('TIDEWIRE_RULES_BIN', ['debug']);
}

function existing(variable: string, profiles: string[]): string {
  const named = process.env[variable];
  const candidates = named
    ? [resolve(named)]
    : profiles.map((profile) => join(REPOSITORY, 'target', profile, 'tidewire'));
  const found = candidates.find((path) => existsSync(path));
  if (!found) throw new Error(`no binary at ${candidates.join(' or ')}; build it or set ${variable}`);
  return found;
}
