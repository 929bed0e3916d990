// The process of the bystanders: connections that have nothing to do with an attack. Each publishes an event every 50 ms to the
// next one and writes a record with acknowledgement every 100 ms. The process measures the latencies, and checks that every event and
// write arrived exactly once. It is a separate process, so that work of the attacker's process does not distort the latencies.

import { setTimeout as pause } from 'node:timers/promises';
import { parse } from '@deepstream/protobuf/dist/src/message-parser.js';
import { C, type Message } from '../../harness/client.ts';
import type { Accounts } from './account.ts';
import { Connection, framed, type Login } from './connection.ts';
import { Latencies, type BystanderReport, type Phase } from './report.ts';

const { TOPIC, EVENT_ACTION, RECORD_ACTION } = C;

const EVENT_INTERVAL_MS = 50;
const WRITE_INTERVAL_MS = 100;
/** Time for messages in flight when the bystanders stop sending. */
const REST_MS = 20_000;

let phase: Phase = 'calm';
const latencies = { calm: new Latencies(), attack: new Latencies(), after: new Latencies() };
const report: BystanderReport = { calm: undefined, attack: undefined, after: undefined, lost: 0, doubled: 0, disconnected: 0, refused: 0 };

/** The time and the phase in which a message was sent. */
interface Sent {
  at: number;
  phase: Phase;
}

/** The messages that must arrive, by number. */
class Pending {
  readonly #sent: Array<Sent | undefined> = [];
  #received = 0;

  constructor(private readonly kind: 'event' | 'write') {}

  next(): number {
    return this.#sent.push({ at: performance.now(), phase }) - 1;
  }

  get sentCount(): number {
    return this.#sent.length;
  }

  get isComplete(): boolean {
    return this.#received >= this.#sent.length;
  }

  receive(number: number): void {
    const sent = this.#sent[number];
    this.#received += 1;
    if (sent === undefined) {
      report.doubled += 1;
      return;
    }
    this.#sent[number] = undefined;
    latencies[sent.phase].add(this.kind, performance.now() - sent.at);
  }

  /** Counts messages that did not arrive as lost, with their age as latency. */
  end(): void {
    for (const sent of this.#sent) {
      if (sent === undefined) continue;
      report.lost += 1;
      latencies[sent.phase].add(this.kind, performance.now() - sent.at);
    }
  }
}

class Bystander {
  readonly name: string;
  readonly writes = new Pending('write');
  readonly events = new Pending('event');
  next: Bystander = this;
  readonly #connection: Connection;
  #stored: Message | undefined;

  constructor(index: number, connection: Connection) {
    this.name = `b${index}`;
    this.#connection = connection;
    connection.onFrame = (topic, action, beginning) => this.#take(topic, action, beginning);
  }

  /** Subscribes to this bystander's own event, which the previous bystander publishes. */
  async subscribe(): Promise<void> {
    const subscribe = { topic: TOPIC.EVENT, action: EVENT_ACTION.SUBSCRIBE, names: [this.name], correlationId: '1' };
    this.#connection.send(framed(subscribe));
    if (!(await this.#connection.until(() => this.#connection.count(TOPIC.EVENT, EVENT_ACTION.SUBSCRIBE) > 0))) {
      throw new Error('a bystander could not subscribe');
    }
  }

  get isOpen(): boolean {
    return this.#connection.isOpen;
  }

  publish(): void {
    if (!this.isOpen) return;
    const data = String(this.next.events.next());
    this.#connection.send(framed({ topic: TOPIC.EVENT, action: EVENT_ACTION.EMIT, name: this.next.name, data }));
  }

  write(): void {
    if (!this.isOpen) return;
    const number = this.writes.next();
    this.#connection.send(
      framed({
        topic: TOPIC.RECORD, action: RECORD_ACTION.CREATEANDUPDATE, name: this.name, version: -1, data: `{"n":${number}}`,
        isWriteAck: true, correlationId: String(number),
      }),
    );
  }

  /** Whether the record contains each write once: its version equals the number of writes, and its value is the last one. */
  async hasEachWriteOnce(): Promise<boolean> {
    this.#connection.send(framed({ topic: TOPIC.RECORD, action: RECORD_ACTION.READ, name: this.name }));
    if (!(await this.#connection.until(() => this.#stored !== undefined))) return false;
    return this.#stored?.version === this.writes.sentCount && this.#stored?.data === `{"n":${this.writes.sentCount - 1}}`;
  }

  #take(topic: number, action: number, beginning: Buffer): void {
    // All messages to a bystander are short, so the beginning is the whole message.
    const [message] = parse(beginning) as Message[];
    if (topic === TOPIC.EVENT && action === EVENT_ACTION.EMIT) this.events.receive(Number(message?.data));
    else if (topic === TOPIC.RECORD && action === RECORD_ACTION.WRITE_ACKNOWLEDGEMENT) this.writes.receive(Number(message?.correlationId));
    else if (topic === TOPIC.RECORD && action === RECORD_ACTION.READ_RESPONSE) this.#stored = message;
    else if (message?.isError) report.refused += 1;
  }
}

const [address, accountsText, storesText] = process.argv.slice(2) as [string, string, string];
const accounts = JSON.parse(accountsText) as Accounts;
/** The null server stores nothing. */
const stores = storesText === 'stores';

const bystanders: Bystander[] = [];
for (let index = 0; index < accounts.bystanders; index += 1) {
  const connection = await Connection.login(address, login(index));
  if (connection === undefined) throw new Error('a bystander could not log in');
  bystanders.push(new Bystander(index, connection));
}
bystanders.forEach((bystander, index) => (bystander.next = bystanders[(index + 1) % bystanders.length] as Bystander));
for (const bystander of bystanders) await bystander.subscribe();

const start = performance.now();
const clock = { events: 0, writes: 0 };
// The bystanders spread their writes over an interval, so that they do not all wait for the same commit.
const timer = setInterval(() => {
  const elapsed = performance.now() - start;
  for (; (clock.events * EVENT_INTERVAL_MS) / bystanders.length < elapsed; clock.events += 1) bystanders[clock.events % bystanders.length]?.publish();
  for (; (clock.writes * WRITE_INTERVAL_MS) / bystanders.length < elapsed; clock.writes += 1) bystanders[clock.writes % bystanders.length]?.write();
}, EVENT_INTERVAL_MS / bystanders.length);

process.on('message', (next: Phase | 'finish') => {
  if (next === 'finish') void finish();
  else phase = next;
});
process.send?.('begun');

async function finish(): Promise<void> {
  clearInterval(timer);
  const deadline = performance.now() + REST_MS;
  const isComplete = (): boolean => bystanders.every(({ isOpen, events, writes }) => !isOpen || (events.isComplete && writes.isComplete));
  while (!isComplete() && performance.now() < deadline) await pause(5);
  for (const bystander of bystanders) {
    bystander.events.end();
    bystander.writes.end();
    if (!bystander.isOpen) report.disconnected += 1;
    else if (stores && bystander.writes.isComplete) {
      const isOnce = await Promise.race([bystander.hasEachWriteOnce(), pause(REST_MS).then(() => false)]);
      if (!isOnce) report.doubled += 1;
    }
  }
  for (const each of ['calm', 'attack', 'after'] as const) report[each] = latencies[each].summary();
  process.send?.(report, () => process.exit());
}

function login(index: number): Login {
  return { username: `bystander${index}`, password: accounts.password };
}
