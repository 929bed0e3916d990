// What an attack by work is, and the loops that attacks are made of. The attacks themselves are in `list`.

import type { ServerOptions } from '../../harness/server.ts';
import { ACCOUNTS } from './account.ts';
import { Connection } from './connection.ts';
import type { AttackReport } from './report.ts';

/** How an attack is spread. */
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
  /** What switches off the limit that holds it; or why there is no such option. */
  off: ServerOptions | { because: string };
  /** What grows without the limit: the times of the bystanders or the server's memory. */
  harm: 'latency' | 'memory';
  /** Writes what the attack needs, before anything is measured. */
  seed?: (address: string) => Promise<void>;
  /** Builds what a connection sends; what it returns attacks with it until the seat's time is over. */
  prepare: (seat: Seat) => () => Promise<void>;
}

/** One of the attackers' places: its login, its connections one after the other, and what it has done. */
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

  /** Begins the time. */
  start(): void {
    this.#startedAt = performance.now();
  }

  /** A connection that is logged in, and that ends when the time is over; `undefined` if the server refuses it. */
  async connect(headers: Record<string, string> = {}): Promise<Connection | undefined> {
    return this.#keep(await Connection.login(this.address, this.login, headers));
  }

  /** The same without a login. */
  async open(): Promise<Connection | undefined> {
    return this.#keep(await Connection.open(this.address));
  }

  #keep(connection: Connection | undefined): Connection | undefined {
    if (connection === undefined) return undefined;
    if (this.isOver) connection.end();
    else this.#connections.add(connection);
    return connection;
  }

  /** Lets go of a connection and keeps the count of its bytes. */
  release(connection: Connection): void {
    if (!this.#connections.delete(connection)) return;
    this.done.sentBytes += connection.sentBytes;
    this.done.receivedBytes += connection.receivedBytes;
    if (!this.isOver && !connection.isOpen) this.done.closed += 1;
    connection.end();
  }

  /** Counts completed operations, each of which made the server touch `bytes`. */
  complete(operations: number, bytes: number): void {
    if (operations <= 0) return;
    this.done.operations += operations;
    this.done.touchedBytes += operations * bytes;
    this.done.seconds = (performance.now() - this.#startedAt) / 1_000;
  }

  /** Ends the time: all connections end, and all loops with them. */
  end(): void {
    this.isOver = true;
    for (const connection of [...this.#connections]) this.release(connection);
    this.#ended.forEach((wake) => wake());
  }

  /** Resolves when the time is over. */
  async over(): Promise<void> {
    if (!this.isOver) await new Promise<void>((wake) => this.#ended.push(wake));
  }

  /** Attacks with one connection after the other: with the next one when the server has closed the last. */
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

/** Operations that are sent at once, and the answers to wait for before the next burst. */
export interface Burst {
  bytes: Buffer;
  /** The kinds of messages that answer them, as topic and action. */
  answers: Array<[topic: number, action: number]>;
  /** How many answers come. */
  count: number;
  /** Bytes that the server touches for each answer. */
  touchedBytes: number;
}

/** Sends a burst and waits until it is answered; false if the connection or the time ends before. */
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

/** An attack of bursts over one connection for each seat. `build` is called before the attack, the function it returns for each round. */
export function bursts(build: (seat: Seat) => (round: number) => Burst, headers: Record<string, string> = {}): WorkAttack['prepare'] {
  return (seat) => {
    const next = build(seat);
    let round = 0;
    return () => seat.withConnections(async (connection) => {
      while (await sendBurst(seat, connection, next(round))) round += 1;
    }, headers);
  };
}

/** An attack that sends the same burst again and again. */
export function repeated(build: (seat: Seat) => Burst, headers: Record<string, string> = {}): WorkAttack['prepare'] {
  return bursts((seat) => {
    const same = build(seat);
    return () => same;
  }, headers);
}
