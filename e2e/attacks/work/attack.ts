// The type of an attack by work, and the loops that attacks use. The attacks themselves are in `list`.

import type { ServerOptions } from '../../harness/server.ts';
import { ACCOUNTS } from './account.ts';
import { Connection } from './connection.ts';
import type { AttackReport } from './report.ts';

/** The numbers of connections and users that attack. */
export interface Shape {
  name: string;
  connections: number;
  users: number;
}

export const SHAPES: Shape[] = [
  { name: 'one connection', connections: 1, users: 1 },
  { name: 'ten connections of one user', connections: 10, users: 1 },
  { name: 'ten connections of ten users', connections: 10, users: 10 },
];

/** One attack that costs the server more than the bytes that it sends. */
export interface WorkAttack {
  name: string;
  options?: ServerOptions;
  /** The options that switch the limit off, or the reason why no option does. */
  off: ServerOptions | { because: string };
  /** The value that grows without the limit: the latency of the bystanders, the server's memory, or one of the two. */
  harm: 'latency' | 'memory' | 'either';
  /** Writes the records that the attack needs, before any measurement. */
  seed?: (address: string) => Promise<void>;
  /** Prepares the messages of a connection; the returned function attacks with them until the seat's time has ended. */
  prepare: (seat: Seat) => () => Promise<void>;
}

/** One attacker: its login, its connections, of which one is open at a time, and its counters. */
export class Seat {
  readonly done: AttackReport = { touchedBytes: 0, operations: 0, sentBytes: 0, receivedBytes: 0, closed: 0, seconds: 0 };
  isOver = false;
  #startedAt = 0;
  #ended: Array<() => void> = [];
  readonly #connections = new Set<Connection>();

  constructor(
    readonly address: string,
    readonly index: number,
    readonly shape: Shape,
  ) {}

  get login(): { username: string; password: string } {
    return { username: `attacker${this.index % this.shape.users}`, password: ACCOUNTS.password };
  }

  /** Starts the time. */
  start(): void {
    this.#startedAt = performance.now();
  }

  /** Opens a connection and logs in. The connection ends with the seat's time. `undefined` if the server refuses it. */
  async connect(headers: Record<string, string> = {}): Promise<Connection | undefined> {
    return this.#keep(await Connection.login(this.address, this.login, headers));
  }

  /** Opens a connection without a login. */
  async open(): Promise<Connection | undefined> {
    return this.#keep(await Connection.open(this.address));
  }

  #keep(connection: Connection | undefined): Connection | undefined {
    if (connection === undefined) return undefined;
    if (this.isOver) connection.end();
    else this.#connections.add(connection);
    return connection;
  }

  /** Forgets a connection but keeps its byte counts. */
  release(connection: Connection): void {
    if (!this.#connections.delete(connection)) return;
    this.done.sentBytes += connection.sentBytes;
    this.done.receivedBytes += connection.receivedBytes;
    if (!this.isOver && !connection.isOpen) this.done.closed += 1;
    connection.end();
  }

  /** Counts completed operations; the server touched `bytes` for each. */
  complete(operations: number, bytes: number): void {
    if (operations <= 0) return;
    this.done.operations += operations;
    this.done.touchedBytes += operations * bytes;
    this.done.seconds = (performance.now() - this.#startedAt) / 1_000;
  }

  /** Ends the time: closes all connections and ends all loops. */
  end(): void {
    this.isOver = true;
    for (const connection of [...this.#connections]) this.release(connection);
    this.#ended.forEach((wake) => wake());
  }

  /** Resolves when the time has ended. */
  async over(): Promise<void> {
    if (!this.isOver) await new Promise<void>((wake) => this.#ended.push(wake));
  }

  /** Attacks with one connection at a time; opens the next one when the server has closed it. */
  async withConnections(attack: (connection: Connection) => Promise<void>, headers: Record<string, string> = {}): Promise<void> {
    while (!this.isOver) {
      const connection = await Promise.race([this.connect(headers), this.over()]);
      if (!connection) {
        await new Promise((wake) => setTimeout(wake, 50));
        continue;
      }
      await attack(connection);
      this.release(connection);
    }
  }
}

/** Operations that are sent at once, and the answers that must arrive before the next burst. */
export interface Burst {
  bytes: Buffer;
  /** The kinds of messages that answer the operations, as topic and action. */
  answers: Array<[topic: number, action: number]>;
  /** The number of expected answers. */
  count: number;
  /** Bytes that the server touches for each answer. */
  touchedBytes: number;
}

/** Sends a burst and waits until it is answered; false if the connection or the time ends first. */
export async function sendBurst(seat: Seat, connection: Connection, burst: Burst): Promise<boolean> {
  const counted = (): number => burst.answers.reduce((sum, [topic, action]) => sum + connection.count(topic, action), 0);
  const base = counted();
  let seen = 0;
  connection.send(burst.bytes);
  const isAnswered = await connection.until(() => {
    const now = counted() - base;
    seat.complete(now - seen, burst.touchedBytes);
    seen = now;
    return seen >= burst.count || seat.isOver;
  });
  return isAnswered && !seat.isOver;
}

/** An attack of bursts over one connection for each seat. `build` runs before the attack; the function that it returns runs each round. */
export function bursts(build: (seat: Seat) => (round: number) => Burst, headers: Record<string, string> = {}): WorkAttack['prepare'] {
  return (seat) => {
    const next = build(seat);
    let round = 0;
    return () => seat.withConnections(async (connection) => {
      while (await sendBurst(seat, connection, next(round))) round += 1;
    }, headers);
  };
}

/** An attack that repeats the same burst. */
export function repeated(build: (seat: Seat) => Burst, headers: Record<string, string> = {}): WorkAttack['prepare'] {
  return bursts((seat) => {
    const same = build(seat);
    return () => same;
  }, headers);
}
