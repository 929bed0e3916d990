// Real PostgreSQL, Redis, Valkey, NATS, RabbitMQ and Kafka servers, and a substitute for MongoDB, as child processes. Each has free
// loopback ports and a folder, can be killed and restarted in the same place, and ends with the test. It may be on a small disk or accept
// TLS only.

import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir, userInfo } from 'node:os';
import { basename, join, resolve } from 'node:path';
import type { TestContext } from 'node:test';
import { KAFKA, RABBITMQ } from './brokers.ts';
import type { ClientCertificate } from './certificate.ts';
import { atEnd } from './cleanup.ts';
import { mavenLibraries } from './maven.ts';
import { freePort } from './ports.ts';
import { run } from './program.ts';
import type { SmallDisk } from './small-disk.ts';
import { eventually, within } from './wait.ts';

/** RabbitMQ and Kafka need most of it on a busy machine. */
const START_DEADLINE_MS = 120_000;
const STOP_DEADLINE_MS = 20_000;
const POSTGRES_FOLDER = '/usr/lib/postgresql';
const MONGODB_FOLDER = resolve(import.meta.dirname, '../mongodb');

/** One kind of database: how to run it, and the signal that simulates a crash. */
export interface Kind {
  /** How many ports it uses in addition to the one that it serves; they are the argument `more`. */
  morePorts?: number;
  /** The command line that runs it in the foreground. */
  command(folder: string, port: number, more: number[]): string[];
  /** Additional arguments of a server that accepts TLS only, with the files of `encrypt`. */
  encrypted?(folder: string, port: number): string[];
  /** Prepares the folder before the first start. */
  prepare?(folder: string, port: number, more: number[]): void;
  /** Completes the first start. */
  started?(port: number): void;
  /** Removes whatever a crash leaves. */
  dispose?(more: number[]): void;
  /** Whether a server that accepts connections also serves requests. Without this function it always does. */
  serves?(folder: string): boolean;
  /** The signal after which the server writes nothing. */
  crash: NodeJS.Signals;
  url(port: number): string;
}

/** The options of a server, in addition to its kind. */
interface Setting {
  /** The disk for its data; by default the data is in the temporary folder. */
  disk?: SmallDisk;
  /** If set, the server accepts TLS only, with this certificate. */
  tls?: ClientCertificate;
  /** A PostgreSQL of which this one is an asynchronous standby server. */
  standbyOf?: Database;
}

const CERTIFICATE = 'certificate.pem';
const KEY = 'key.pem';
/** The file with the access rules of a PostgreSQL that accepts TLS only. */
const HBA = 'hba.conf';

/** PostgreSQL refuses to run as root. */
const AS_POSTGRES = userInfo().uid === 0 ? ['setpriv', '--reuid=postgres', '--regid=postgres', '--clear-groups'] : [];

const KINDS = {
  postgres: {
    command: (folder, port) => [
      ...AS_POSTGRES,
      postgresProgram('postgres'),
      ...['-D', join(folder, 'data'), '-p', String(port), '-k', folder],
      ...['-c', 'listen_addresses=127.0.0.1', '-c', 'max_connections=200'],
    ],
    encrypted: (folder) => [
      ...['-c', 'ssl=on', '-c', `ssl_cert_file=${join(folder, CERTIFICATE)}`, '-c', `ssl_key_file=${join(folder, KEY)}`],
      ...['-c', `hba_file=${join(folder, HBA)}`],
    ],
    prepare: (folder) => {
      postgresFolder ??= newPostgresFolder();
      run('cp', ['-a', `${postgresFolder}/.`, folder]);
    },
    // PostgreSQL accepts connections before it has recovered, and refuses them until then. The eighth line of this file is its state.
    serves: (folder) => ['ready', 'standby'].includes(readFileSync(join(folder, 'data/postmaster.pid'), 'utf8').split('\n')[7]?.trim() ?? ''),
    // The child processes end with the server and write nothing; the next start recovers from the log, as after a crash.
    crash: 'SIGQUIT',
    url: (port) => `postgresql://postgres@127.0.0.1:${port}`,
  },
  redis: redisLike('redis-server'),
  valkey: redisLike('valkey-server'),
  /** It stores nothing. */
  nats: {
    command: (_, port) => ['nats-server', '-a', '127.0.0.1', '-p', String(port)],
    crash: 'SIGKILL',
    url: (port) => `nats://127.0.0.1:${port}`,
  },
  amqp: RABBITMQ,
  kafka: KAFKA,
  mongodb: mongodbLike(),
  /** A server that does not report whether a write is durable. */
  silentMongodb: mongodbLike('silent'),
} satisfies Record<string, Kind>;

export type DatabaseKind = keyof typeof KINDS;

function redisLike(program: string): Kind {
  return {
    command: (folder, port) => [
      program,
      // Each test of the suite of stores takes a database.
      ...['--port', String(port), '--bind', '127.0.0.1', '--dir', folder, '--databases', '1024', '--save', ''],
      ...['--appendonly', 'yes', '--appendfsync', 'always'],
    ],
    encrypted: (folder, port) => [
      ...['--port', '0', '--tls-port', String(port), '--tls-auth-clients', 'no'],
      ...['--tls-cert-file', join(folder, CERTIFICATE), '--tls-key-file', join(folder, KEY)],
    ],
    crash: 'SIGKILL',
    url: (port) => `redis://127.0.0.1:${port}`,
  };
}

/** No registry offers a MongoDB server; this program speaks its protocol (e2e/mongodb/Server.java). */
function mongodbLike(...flags: string[]): Kind {
  return {
    command: (folder, port) => [
      'java',
      // The server lives for seconds, so a fast start matters more than throughput.
      ...['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC'],
      ...['-cp', join(mavenLibraries(MONGODB_FOLDER), '*'), join(MONGODB_FOLDER, 'Server.java')],
      ...[String(port), join(folder, 'records'), ...flags],
    ],
    crash: 'SIGKILL',
    url: (port) => `mongodb://127.0.0.1:${port}`,
  };
}

/** A program of the newest PostgreSQL that is installed. */
function postgresProgram(name: string): string {
  const versions = existsSync(POSTGRES_FOLDER) ? readdirSync(POSTGRES_FOLDER) : [];
  const newest = versions.sort((one, other) => Number(other) - Number(one))[0];
  if (newest === undefined) throw new Error('PostgreSQL is missing: apt-get install -y postgresql');
  return join(POSTGRES_FOLDER, newest, 'bin', name);
}

/** A folder with an empty database. It is created once and copied for each server, because creating it takes seconds. */
let postgresFolder: string | undefined;

function newPostgresFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-initdb-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  fillPostgres(folder, 'initdb', '-A', 'trust', '-E', 'UTF8');
  return folder;
}

/** Copies a running PostgreSQL into a folder, as its standby server. */
function copyPostgres(port: number, folder: string): void {
  fillPostgres(folder, 'pg_basebackup', '-h', '127.0.0.1', '-p', String(port), '-R', '-c', 'fast');
}

/** Makes the data of a PostgreSQL in a folder, which the user of the server owns then. */
function fillPostgres(folder: string, tool: string, ...options: string[]): void {
  const [uid, gid] = userInfo().uid === 0 ? [number('-u'), number('-g')] : [userInfo().uid, userInfo().gid];
  chownSync(folder, uid, gid);
  const command = [...AS_POSTGRES, postgresProgram(tool), '-D', join(folder, 'data'), '-U', 'postgres', '--no-sync', ...options];
  const [program, ...args] = command as [string, ...string[]];
  run(program, args);
}

/** Writes the certificate, key and access rules into a server's folder, with the owner of the folder. */
function encrypt(folder: string, { cert, key }: ClientCertificate): void {
  const { uid, gid } = statSync(folder);
  for (const [name, text] of [[CERTIFICATE, cert], [KEY, key], [HBA, 'hostssl all all 127.0.0.1/32 trust\n']] as const) {
    const path = join(folder, name);
    writeFileSync(path, text, { mode: 0o600 });
    chownSync(path, uid, gid);
  }
}

function number(flag: string): number {
  return Number(run('id', [flag, 'postgres']));
}

const running = new Set<ChildProcess>();
process.once('exit', () => running.forEach((child) => child.kill('SIGKILL')));

export class Database {
  #child: ChildProcess | undefined;
  #exit: Promise<void> = Promise.resolve();
  #output = '';
  readonly #kind: Kind;
  readonly folder: string;
  /** The same folder as seen from outside the disk's namespace, if it has one. */
  readonly #outside: string;

  private constructor(
    kind: DatabaseKind,
    readonly port: number,
    private readonly more: number[],
    readonly setting: Setting,
  ) {
    this.#kind = KINDS[kind];
    this.#outside = mkdtempSync(join(setting.disk?.outside ?? tmpdir(), `tidewire-${kind}-`));
    this.folder = setting.disk === undefined ? this.#outside : join(setting.disk.path, basename(this.#outside));
    if (setting.standbyOf === undefined) this.#kind.prepare?.(this.#outside, port, more);
    else copyPostgres(setting.standbyOf.port, this.#outside);
    if (setting.tls !== undefined) encrypt(this.#outside, setting.tls);
  }

  /** Starts a server that ends with `test`. */
  static async during(test: TestContext, kind: DatabaseKind, setting: Setting = {}): Promise<Database> {
    const database = await Database.#create(kind, setting);
    atEnd(test, () => database.#dispose());
    await database.#startFirst();
    return database;
  }

  /** Starts a server that ends with this process. */
  static async duringProcess(kind: DatabaseKind): Promise<Database> {
    const database = await Database.#create(kind, {});
    process.once('exit', () => {
      database.#kind.dispose?.(database.more);
      rmSync(database.folder, { recursive: true, force: true });
    });
    await database.#startFirst();
    // A process waits for its child processes and for what they print.
    const child = database.#child;
    child?.unref();
    for (const stream of [child?.stdout, child?.stderr]) (stream as Socket | undefined)?.unref();
    return database;
  }

  static async #create(kind: DatabaseKind, setting: Setting): Promise<Database> {
    const port = await freePort();
    const more = await Promise.all(Array.from({ length: (KINDS[kind] as Kind).morePorts ?? 0 }, () => freePort()));
    return new Database(kind, port, more, setting);
  }

  /** The address, without the name of a database. */
  get url(): string {
    const url = this.#kind.url(this.port);
    return this.setting.tls === undefined ? url : url.replace(/^redis:/, 'rediss:');
  }

  /** Creates a database of this PostgreSQL, and returns its name. */
  newDatabase(name: string): string {
    run(postgresProgram('createdb'), ['--host', '127.0.0.1', '--port', String(this.port), '--username', 'postgres', name]);
    return name;
  }

  /** Runs statements in a database of this PostgreSQL, and returns the values that they print. Fails at the first error. */
  sql(statements: string, name = 'postgres'): string {
    const options = ['--no-psqlrc', '--quiet', '--no-align', '--tuples-only', '--set', 'ON_ERROR_STOP=1', '--file', '-'];
    return run(postgresProgram('psql'), [`${this.url}/${name}`, ...options], { input: statements }).trim();
  }

  /** Lets a standby server of PostgreSQL receive nothing more. */
  async detach(): Promise<void> {
    this.sql("ALTER SYSTEM SET primary_conninfo = ''; SELECT pg_reload_conf()");
    const isDetached = (): boolean => this.sql('SELECT count(*) FROM pg_stat_wal_receiver') === '0';
    await eventually(isDetached, 'the standby server receives nothing', STOP_DEADLINE_MS);
  }

  /** Makes a standby server of PostgreSQL the primary one. */
  promote(): void {
    assert.equal(this.sql('SELECT pg_promote()'), 't');
  }

  async #startFirst(): Promise<void> {
    await this.start();
    this.#kind.started?.(this.port);
  }

  async start(): Promise<void> {
    const { disk, tls } = this.setting;
    const more = tls === undefined ? [] : (this.#kind.encrypted?.(this.folder, this.port) ?? []);
    const command = [...(disk?.launcher ?? []), ...this.#kind.command(this.folder, this.port, this.more), ...more];
    const [program, ...args] = command as [string, ...string[]];
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    this.#child = child;
    running.add(child);
    this.#exit = new Promise((done) => {
      child.once('error', (error) => {
        this.#output += `${program} is missing: ${error.message}`;
        done();
      });
      child.once('exit', () => {
        running.delete(child);
        done();
      });
    });
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (text: Buffer) => (this.#output = (this.#output + text.toString()).slice(-8_000)));
    }
    const ended = this.#exit.then(() => {
      throw new Error(`${program} ended while starting:\n${this.#output}`);
    });
    ended.catch(() => undefined);
    const serves = async (): Promise<boolean> => (await accepts(this.port)) && (this.#kind.serves?.(this.#outside) ?? true);
    const ready = eventually(serves, `${program} serves on ${this.port}`, START_DEADLINE_MS);
    await Promise.race([ready, ended]);
  }

  /** Kills the server, as a crash would. */
  async crash(): Promise<void> {
    this.#child?.kill(this.#kind.crash);
    await this.ended();
  }

  /** Waits until the server has ended. */
  async ended(): Promise<void> {
    await within(STOP_DEADLINE_MS, this.#exit, 'the database ends');
  }

  /** Runs a command of Redis or Valkey; fails if the server reports an error. */
  async command(...words: string[]): Promise<void> {
    const parts = words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`);
    const socket = connect(this.port, '127.0.0.1');
    try {
      socket.write(`*${words.length}\r\n${parts.join('')}`);
      const answered = once(socket, 'data') as Promise<[Buffer]>;
      const [answer] = await within(STOP_DEADLINE_MS, answered, `${words[0]} is answered`);
      if (!answer.toString().startsWith('+')) throw new Error(`${words.join(' ')}: ${answer.toString()}`);
    } finally {
      socket.destroy();
    }
  }

  /** Stops the server's processes: connections stay open, but the server answers nothing until `thaw`. */
  freeze(): void {
    this.#signal('SIGSTOP');
  }

  thaw(): void {
    this.#signal('SIGCONT');
  }

  /** PostgreSQL has a process for each connection. */
  #signal(signal: NodeJS.Signals): void {
    const pid = this.#child?.pid;
    if (pid === undefined || this.#child?.exitCode !== null || this.#child.signalCode !== null) return;
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean);
    for (const id of [pid, ...children.map(Number)]) signalIfRunning(id, signal);
  }

  async #dispose(): Promise<void> {
    this.thaw();
    await this.crash();
    this.#kind.dispose?.(this.more);
    // Data on a small disk is removed with the disk.
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** A process of a connection can end at any moment, as its client leaves. */
function signalIfRunning(id: number, signal: NodeJS.Signals): void {
  try {
    process.kill(id, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

function accepts(port: number): Promise<boolean> {
  return new Promise((done) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('connect', () => {
      socket.destroy();
      done(true);
    });
    socket.once('error', () => done(false));
  });
}
