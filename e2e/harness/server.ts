// The server under test as a child process. It starts on a free port with its own data folder, is ready when its health page answers,
// stops on SIGTERM (which must end it with code 0) or is killed, and restarts in the same place.
// `ServerOptions` has the options that suites need; only `tidewireConfig` translates them to Tidewire's own names.

import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, get as request } from 'node:http';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type { TestContext } from 'node:test';
import { certify, type Certified } from './certificate.ts';
import { atEnd } from './cleanup.ts';
import { containedCommand, containerFolder } from './container.ts';
import { ALL_DENIALS } from './denials.ts';
import { originalServerCommand } from './original-server.ts';
import { freePort } from './ports.ts';
import { run } from './program.ts';
import { ringLauncher } from './ring.ts';
import { clusterOptions, NODE_COUNT } from './several-nodes.ts';
import { PASSWORD_HASH, type Users } from './users.ts';
import { eventually, within } from './wait.ts';

/** The options of a suite; the server uses its own default for each option that is not set. */
export interface ServerOptions {
  /** The content of a deepstream `users.yml`; with it only these users may log in. */
  users?: Users;
  /** Options of the server's section `auth`, under the server's names. */
  auth?: Record<string, unknown>;
  /** The key of the admin API and admin page, which are off without it. */
  adminKey?: string;
  /** Further options of the server's section `admin`, under the server's names. */
  admin?: Record<string, string | number | boolean>;
  /** The page that answers 200 when the server has started; `/ready` by default. */
  readyAt?: string;
  authAttemptsMax?: number;
  loginTimeoutMs?: number;
  heartbeatIntervalMs?: number;
  heartbeatTimeoutMs?: number;
  rpcAcceptTimeoutMs?: number;
  rpcResponseTimeoutMs?: number;
  listenResponseTimeoutMs?: number;
  /** Whether rpc providers receive the caller's name. */
  rpcRequestor?: boolean;
  /** Whether the rules of the permission tests are in force (see `denials.ts`). */
  denials?: boolean;
  /** The text of a deepstream `permissions.yml`; without it everything is allowed. */
  permissions?: string;
  /** Whether the server has no rules, as without any configuration; the demo's rules then apply to its names. */
  withoutRules?: boolean;
  /** Name prefixes whose records are whole values without versions. */
  hotPathPrefixes?: string[];
  /** Limits under the names of the server's section `limits`. */
  limits?: Record<string, number>;
  /** The server's section `rates`. */
  rates?: Partial<Record<'connection' | 'user', Record<string, string>>>;
  /** The events with history, in the format of `event.history`. */
  history?: string[];
  /** Whether the suite needs the JSON endpoint, which Tidewire always has. */
  jsonEndpoint?: boolean;
  /** The paths of the JSON endpoint, if they differ from the default. */
  jsonPaths?: string[];
  /** The server's section `traces`. */
  traces?: Record<string, string | number>;
  /** The server's section `http`. */
  http?: Record<string, string | number | boolean>;
  /** Whether the server accepts offers of compression. */
  compression?: boolean;
  /** The server's section `backoff`. Without it there is no delay, because all clients of a suite share address and user. */
  backoff?: Record<string, string | number>;
  /** A separate TLS port with these files. */
  tls?: {
    certificate: string;
    key: string;
    reloadIntervalMs?: number;
    minVersion?: '1.2' | '1.3';
    http2?: boolean;
    /** The file with the authorities for client certificates. */
    clientCa?: string;
    clientCertificates?: 'required';
    hstsMaxAge?: string;
  };
  logLevel?: 'warn' | 'info' | 'debug' | 'trace';
  /** Whether to keep all of the server's output, whatever its size. */
  keepsOutput?: boolean;
  /** How messages reach the kernel. */
  sends?: 'plain';
  /** Page origins and host names that the server accepts. */
  origins?: string[];
  hosts?: string[];
  /** The namespaces that Socket.IO clients may join in addition to `/`. */
  namespaces?: string[];
  /** The server's section `backend`. */
  backend?: { key?: string; key_file?: string; namespaces?: string[]; grace?: string };
  /** Whether it is in development mode; by default the server decides. */
  dev?: boolean;
  /** Shards; three by default. */
  shards?: number;
  /** Addresses and networks of trusted proxies. */
  trustedProxies?: string[];
  /** Whether connections begin with a PROXY protocol head. */
  proxyProtocol?: boolean;
  drainTimeoutMs?: number;
  drainDelayMs?: number;
  /** The data folder; by default in the server's temporary folder. A given folder is not removed. */
  dataFolder?: string;
  /** Options of the server's section `store`, under the server's names. */
  store?: Record<string, unknown>;
  /** The server's section `stores`: stores in addition to `store`, by name. */
  stores?: Record<string, object>;
  /** The server's section `collections`. */
  collections?: Record<string, object>;
  /** Options of the server's section `cluster`, under the server's names. */
  cluster?: Record<string, unknown>;
  /** Options of the server's section `listen`, under the server's names. */
  listen?: Record<string, unknown>;
  /** Options of the server's section `record`, under the server's names. */
  record?: Record<string, unknown>;
  /** The most bytes of records that the server keeps in memory. */
  cacheBytesMax?: number;
  /** The program, if it differs from the program that all suites test. */
  binary?: string | undefined;
  /** A program with arguments that starts the server by replacing itself. */
  launcher?: string[];
  /** The command that serves, with arguments, if it is not `start`. */
  command?: string[];
}

/** True when the suites run against deepstream's own server instead of Tidewire. */
export const againstOriginal = process.env['E2E_SERVER'] === 'deepstream';

/** Whether every server has a TLS port, and which TLS port belongs to which plain port (see `over-http2.ts`). */
export const encrypted = { isWanted: false, ports: new Map<number, number>() };

/** At least three shards on any machine: one shard would hide every race between owners. */
export const SHARD_COUNT = 3;
const START_DEADLINE_MS = 30_000;
const STOP_DEADLINE_MS = 25_000;
/** Characters of the server's output that are kept for error messages. */
const OUTPUT_KEPT = 8_000;
/** The source address of requests for metrics; no test uses it. */
const METRICS_ADDRESS = '127.0.0.254';

const REPOSITORY = resolve(import.meta.dirname, '../..');

/** The options in the format of `tidewire.yml`. JSON is valid YAML. */
function tidewireConfig(options: ServerOptions, folder: string, tlsPort: number, adminPort: number): object {
  const { hash, iterations, keyLength } = PASSWORD_HASH;
  const file = { path: join(folder, 'users.yml'), hash, iterations, key_length: keyLength };
  const sections = pruned({
    network: {
      heartbeat_interval: milliseconds(options.heartbeatIntervalMs),
      heartbeat_timeout: milliseconds(options.heartbeatTimeoutMs),
      sends: options.sends,
      json_paths: options.jsonPaths,
      origins: options.origins,
      hosts: options.hosts,
      namespaces: options.namespaces,
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
    backend: { ...options.backend },
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
    collections: { ...options.collections },
    cluster: { ...options.cluster },
  });
  const chosen = options.withoutRules ? 'none' : 'allow_all';
  const permissions = options.permissions || options.denials ? join(folder, 'permissions.yml') : chosen;
  const drain = {
    ...(options.drainTimeoutMs !== undefined && { drain_timeout: milliseconds(options.drainTimeoutMs) }),
    ...(options.drainDelayMs !== undefined && { drain_delay: milliseconds(options.drainDelayMs) }),
  };
  return { ...drain, ...(options.dev !== undefined && { dev: options.dev }), permissions, ...sections };
}

let shown: Certified | undefined;

/** Files with a certificate, the same for all servers of this process. */
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
  /** Whether the test has stopped or killed the server. */
  #isEnding = false;
  /** The other nodes of the cluster, in a run on several nodes. They start, stop and are configured with this one. */
  readonly #others: Server[] = [];
  #addressCount = 0;
  /**
   * The agent for metrics. The test closes its connection at once instead of seconds later. It uses a separate source address, because
   * tests exhaust the limit of one address.
   */
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1, localAddress: METRICS_ADDRESS });
  private readonly options: ServerOptions;

  private constructor(
    readonly port: number,
    /** The TLS port, if the server has one. */
    readonly tlsPort: number,
    /** The port of the admin API, if the API is on. */
    readonly adminPort: number,
    readonly folder: string,
    options: ServerOptions,
  ) {
    this.options = { ...options };
  }

  /** Starts a server on a free port and waits until it is ready. In a run on several nodes, it is a cluster. */
  static async start(options: ServerOptions = {}): Promise<Server> {
    const server = await Server.#place(options);
    const shared = await clusterOptions(options);
    if (shared !== undefined) {
      server.options.cluster = shared.cluster;
      server.options.store = shared.store;
      while (server.#others.length + 1 < NODE_COUNT) server.#others.push(await Server.#place({ ...options, ...shared }));
    }
    await server.start();
    return server;
  }

  /** A server that has its place, but does not run. */
  static async #place(options: ServerOptions): Promise<Server> {
    const folder = mkdtempSync(join(tmpdir(), 'tidewire-e2e-'));
    const own = encrypted.isWanted ? { tls: certified(folder), ...options } : options;
    const server = new Server(await freePort(), await freePort(), await freePort(), folder, own);
    if (encrypted.isWanted) encrypted.ports.set(server.port, server.tlsPort);
    return server;
  }

  /** Starts a server that ends with `test`. */
  static async during(test: TestContext, options: ServerOptions = {}): Promise<Server> {
    const server = await Server.start(options);
    atEnd(test, () => server.dispose());
    return server;
  }

  /** `host:port`, as given to a client; of each node in turn, if there are several. */
  get address(): string {
    this.#addressCount += 1;
    return (this.nodes[this.#addressCount % this.nodes.length] as Server).ownAddress;
  }

  /** `host:port` of this node, if there are several. */
  get ownAddress(): string {
    return `127.0.0.1:${this.port}`;
  }

  /** This server and the other nodes of its cluster. */
  get nodes(): Server[] {
    return [this, ...this.#others];
  }

  /** `host:port` of the TLS port. */
  get tlsAddress(): string {
    return `127.0.0.1:${this.tlsPort}`;
  }

  /** The program. */
  get binary(): string {
    return this.options.binary ?? binary();
  }

  /** The path of the configuration file. */
  get configFile(): string {
    return join(this.folder, 'tidewire.yml');
  }

  /** The end of the server's output. */
  get output(): string {
    return this.nodes.map((node) => node.#output).join('');
  }

  /** The data folder; it exists even when the server does not run. */
  get dataFolder(): string {
    return this.options.dataFolder ?? join(this.folder, 'data');
  }

  /**
   * Waits until the output matches `pattern`. The pages answer before the server prints its first screen, and output passes through a pipe,
   * so it may arrive later than a response.
   */
  async prints(pattern: RegExp): Promise<void> {
    try {
      await eventually(() => pattern.test(this.output), `the server prints ${pattern}`);
    } catch (error) {
      throw new Error(`${(error as Error).message}; it printed:\n${this.output}`);
    }
  }

  /** The number of lines that the server has printed. */
  get lineCount(): number {
    return this.#lineCount;
  }

  /** The path of the rules file. */
  get permissionsFile(): string {
    return join(this.folder, 'permissions.yml');
  }

  /** Replaces the rules file atomically while the server runs. */
  setPermissions(text: string): void {
    for (const node of this.nodes) {
      const file = node.permissionsFile;
      writeFileSync(`${file}.new`, text);
      renameSync(`${file}.new`, file);
      node.options.permissions = text;
    }
  }

  /** Replaces the additional stores; the next start uses them. */
  setStores(stores: Record<string, object>): void {
    this.options.stores = stores;
  }

  /** Replaces the section `collections`; the next start uses it. */
  setCollections(collections: Record<string, object>): void {
    this.options.collections = collections;
  }

  /** Sends SIGHUP: the server reads its files again. */
  hangUp(): void {
    for (const node of this.nodes) process.kill(node.pid, 'SIGHUP');
  }

  /** Replaces the file of users; the next start uses it. */
  setUsers(users: Users): void {
    for (const node of this.nodes) node.options.users = users;
  }

  /** Sets the program of the next start; without one it is the program that all suites test. */
  setProgram(binary: string | undefined): void {
    for (const node of this.nodes) node.options.binary = binary;
  }

  /** Starts the process; a restart uses the same port and data folder. */
  async start(): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.#startProcess()));
  }

  async #startProcess(): Promise<void> {
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
    // The other promise reports an early end.
    const answers = async (): Promise<boolean> => !this.isRunning || (await this.#answers());
    const ready = eventually(answers, `the server on port ${this.port} is ready`, START_DEADLINE_MS);
    await Promise.race([ready, ended]);
  }

  /** Stops the server as an operator does and checks that it reports a clean stop. */
  async stop(): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.#stopProcess()));
  }

  async #stopProcess(): Promise<void> {
    this.#signal('SIGTERM');
    const code = await within(STOP_DEADLINE_MS, this.#ended(), 'the server stops after SIGTERM');
    if (code !== 0 && !againstOriginal) throw new Error(`the server stopped with ${code}:\n${this.#output}`);
  }

  /** Kills the process, as a crash would. */
  async kill(): Promise<void> {
    for (const node of this.nodes) node.#signal('SIGKILL');
    await within(STOP_DEADLINE_MS, Promise.all(this.nodes.map((node) => node.#ended())), 'the server ends after SIGKILL');
  }

  /** Stops the server and removes its data. */
  async dispose(): Promise<void> {
    this.closeMetrics();
    if (this.isRunning) await this.stop();
    for (const { folder } of this.nodes) rmSync(folder, { recursive: true, force: true });
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

  /** A token that the server signs, with further arguments of `tidewire token`. */
  token(...args: string[]): string {
    return run(this.binary, ['token', '--config', this.configFile, ...args]).trim();
  }

  /** The response to a GET request. */
  async get(path: string): Promise<Response> {
    return fetch(`http://${this.address}${path}`);
  }

  /** The value of the metric `name`, labels included; without labels, the sum over all label values. Of several nodes, the sum. */
  async metric(name: string): Promise<number> {
    const values = await Promise.all(this.nodes.map((node) => node.#metric(name)));
    return values.reduce((sum, value) => sum + value, 0);
  }

  async #metric(name: string): Promise<number> {
    // The server may close a keep-alive connection just before it is used, because a test has set a short timeout. Try again once.
    const text = await this.#metrics().catch(() => this.#metrics());
    const series = (line: string): string => line.slice(0, line.lastIndexOf(' '));
    const lines = text.split('\n').filter((line) => series(line) === name || series(line).split('{', 1)[0] === name);
    if (lines.length === 0) throw new Error(`the server has no metric ${name}`);
    return lines.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
  }

  /** Closes the connection for metrics, so that it does not count as a descriptor of the server. */
  closeMetrics(): void {
    for (const node of this.nodes) node.#agent.destroy();
  }

  #metrics(): Promise<string> {
    return new Promise((done, fail) => {
      const asked = request(`http://${this.ownAddress}/metrics`, { agent: this.#agent }, (answer) => {
        let text = '';
        answer.setEncoding('utf8').on('data', (part: string) => (text += part));
        answer.on('end', () => done(text)).on('error', fail);
      });
      asked.on('error', fail);
    });
  }

  #command(): string[] {
    const rules = this.options.denials ? JSON.stringify(ALL_DENIALS) : this.options.permissions;
    if (rules) writeFileSync(join(this.folder, 'permissions.yml'), rules);
    if (this.options.users) writeFileSync(join(this.folder, 'users.yml'), JSON.stringify(this.options.users));
    if (againstOriginal) return originalServerCommand(this.options, this.port, this.folder);
    const config = this.configFile;
    writeFileSync(config, JSON.stringify(tidewireConfig(this.options, this.folder, this.tlsPort, this.adminPort)));
    const level = this.options.logLevel ?? 'warn';
    const place = ['--host', '127.0.0.1', '--port', String(this.port), '--data', this.dataFolder];
    return [this.binary, ...(this.options.command ?? ['start']), '--config', config, ...place, '--shards', String(this.options.shards ?? SHARD_COUNT), '--log-level', level];
  }

  /** Signals the server itself, whatever launched it: the program that runs a container signals the process inside. */
  #signal(signal: NodeJS.Signals): void {
    this.#isEnding = true;
    process.kill(this.pid, signal);
  }

  /** The command line that starts the server in a container, if servers of this run are in one. */
  #contained(command: string[]): string[] {
    const container = containerFolder();
    if (container === undefined) return command;
    return containedCommand(container, command, this.folder, this.dataFolder);
  }

  async #answers(): Promise<boolean> {
    if (this.options.proxyProtocol) return this.#saysItIsWell();
    try {
      const page = againstOriginal ? '/health-check' : (this.options.readyAt ?? '/ready');
      return (await fetch(`http://${this.ownAddress}${page}`)).ok;
    } catch {
      return false;
    }
  }

  /** Runs `tidewire health`, which sends the PROXY protocol head that the server requires before each request. */
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

/** The server below the processes of a launcher: each process has the next one as its only child, and the server has no children. */
export function innermost(pid: number): number {
  const tasks = `/proc/${pid}/task`;
  // A thread that has ended in the meantime has no children.
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

/** The environment without variables that the server reads as options, such as the name of the binary. */
export function environment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('TIDEWIRE_')));
}

/** The program that all suites test. */
export function binary(): string {
  const named = process.env['TIDEWIRE_BIN'];
  const candidates = named ? [resolve(named)] : ['release', 'debug'].map((profile) => join(REPOSITORY, 'target', profile, 'tidewire'));
  const found = candidates.find((path) => existsSync(path));
  if (!found) throw new Error(`no binary at ${candidates.join(' or ')}; build it or set TIDEWIRE_BIN`);
  return found;
}
