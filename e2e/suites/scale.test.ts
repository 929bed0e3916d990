// Scale: many records and events through three clients. Nothing is missing or delivered twice while the clients read, and the server
// disconnects a client that does not read.

import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { resolve } from 'node:path';
import { describe, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { atEnd } from '../harness/cleanup.ts';
import { C, connect, record, type TestClient } from '../harness/client.ts';
import { fresh } from '../harness/names.ts';
import type { Report } from '../harness/receiver.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { Inbox, eventually, within } from '../harness/wait.ts';

/** Events of the whole run; `make proof-scale` sends a million. */
const EVENT_COUNT = Number(process.env['SCALE_EVENTS'] ?? 200_000);
const RECORD_COUNT = 1_000;
/** Patches that each record receives from its writer. */
const PATCH_COUNT = 3;
/** The most events that may be published before the slowest client has read them. */
const UNREAD_MAX = 10_000;
/** Events that a client publishes before it lets the others read. */
const BATCH = 250;
const EVENT_NAMES = 20;
const RUN_DEADLINE_MS = 240_000;

interface Numbered {
  from: number;
  number: number;
}

describe('scale', () => {
  test(`${RECORD_COUNT} records and ${EVENT_COUNT} events: nothing is missing or delivered twice`, async (t) => {
    const server = await Server.during(t);
    const clients = await Promise.all([0, 1, 2].map(() => connect(t, server)));
    const started = Date.now();
    const [events, records] = await within(
      RUN_DEADLINE_MS,
      Promise.all([exchangeEvents(clients), exchangeRecords(clients)]),
      'all events and records have arrived',
    );
    const seconds = (Date.now() - started) / 1_000;
    t.diagnostic(`${events} deliveries and ${records} acknowledged patches in ${seconds.toFixed(1)} s`);
    t.diagnostic(`server: ${(server.memoryBytes / 1e6).toFixed(0)} MB`);
  });

  const unbounded = againstOriginal && 'deepstream has no such limit';
  test('a client that does not read is disconnected with a reason, and the server stays small', { skip: unbounded }, async (t) => {
    const server = await Server.during(t, { logLevel: 'info' });
    const name = fresh('flood');
    const publisher = await connect(t, server);
    const receivers = [await Receiver.start(server, name), await Receiver.start(server, name)] as const;
    atEnd(t, () => receivers.forEach((receiver) => receiver.end()));
    const [reader, sleeper] = receivers;
    const before = server.memoryBytes;
    let largest = before;
    sleeper.signal('SIGSTOP');
    const text = 'x'.repeat(1_000);
    let number = 0;
    const cut = async (): Promise<boolean> => (await server.metric('tidewire_slow_disconnects_total')) > 0;
    // The publisher does not wait for readers: it sends 64 MB as fast as it can, more than all buffers on the path hold.
    while (number < 64_000) {
      for (let i = 0; i < 500; i += 1) publisher.event.emit(name, { number: (number += 1), text });
      largest = Math.max(largest, server.memoryBytes);
      await nextTurn();
    }
    await eventually(cut, 'the sleeping client is disconnected');
    await server.prints(/disconnected: .*outbox_bytes_max/);
    assert.ok(largest - before < 100e6, `the server grew by ${((largest - before) / 1e6).toFixed(0)} MB`);
    sleeper.signal('SIGCONT');
    await sleeper.until(({ connections, state }) => connections === 2 && state === C.CONNECTION_STATE.OPEN);
    await eventually(async () => {
      publisher.event.emit(name, { number: (number += 1), text: 'later' });
      return (await sleeper.report()).last >= 64_000;
    }, 'the client that slept receives later events');
    const told = await reader.report();
    assert.equal(told.jumps, 0, 'the events arrived in order, without a gap on one connection');
    t.diagnostic(`the server grew by ${((largest - before) / 1e6).toFixed(1)} MB at most`);
  });
});

/** Each client publishes its share of the events and reads the shares of the others. Returns the number of deliveries. */
async function exchangeEvents(clients: TestClient[]): Promise<number> {
  const names = Array.from({ length: EVENT_NAMES }, () => fresh('scale'));
  const share = Math.floor(EVENT_COUNT / clients.length);
  const published = clients.map(() => 0);
  const read = clients.map(() => clients.map(() => 0));
  const wrong: string[] = [];
  const waiting: Array<() => void> = [];
  for (const [me, client] of clients.entries()) {
    for (const name of names) {
      client.event.subscribe(name, (data) => {
        const { from, number } = data as unknown as Numbered;
        // A client receives its own events from itself.
        if (from === me) return;
        const mine = read[me] as number[];
        if (number !== mine[from]) wrong.push(`client ${me} got ${number} of ${from} instead of ${mine[from]}`);
        mine[from] = number + 1;
        if (waiting.length > 0 && mayPublish()) waiting.splice(0).forEach((resume) => resume());
      });
    }
    for (const name of names) await client.wire.acknowledged('EVENT', C.EVENT_ACTION.SUBSCRIBE, name);
  }
  const sum = (numbers: number[]): number => numbers.reduce((total, number) => total + number, 0);
  const unread = (me: number): number => sum(published) - (published[me] as number) - sum(read[me] as number[]);
  const mayPublish = (): boolean => clients.every((_, me) => unread(me) <= UNREAD_MAX - BATCH);
  const publish = async (me: number): Promise<void> => {
    for (let number = 0; number < share; number += 1) {
      if (number % BATCH === 0) {
        await nextTurn();
        while (!mayPublish()) await new Promise<void>((resume) => waiting.push(resume));
      }
      clients[me]?.event.emit(names[number % EVENT_NAMES] as string, { from: me, number });
      published[me] = number + 1;
    }
  };
  await Promise.all(clients.map((_, me) => publish(me)));
  await eventually(() => clients.every((_, me) => unread(me) === 0), 'all events are read', RUN_DEADLINE_MS);
  assert.deepEqual(wrong.slice(0, 5), []);
  return sum(read.map(sum));
}

/** All clients open every record, and one of them patches it. Returns the number of patches. */
async function exchangeRecords(clients: TestClient[]): Promise<number> {
  const names = Array.from({ length: RECORD_COUNT }, () => fresh('scale'));
  const opened = await Promise.all(clients.map((client) => Promise.all(names.map((name) => record(client, name)))));
  for (let patch = 1; patch <= PATCH_COUNT; patch += 1) {
    await Promise.all(names.map((_, i) => opened[i % clients.length]?.[i]?.setWithAck('count', patch)));
  }
  const all = opened.flat();
  await eventually(() => all.every((one) => one.version === PATCH_COUNT && one.get('count') === PATCH_COUNT), 'all are equal');
  return RECORD_COUNT * PATCH_COUNT;
}

/** A client in a separate process. */
class Receiver {
  readonly #reports = new Inbox<Report>('reports of a receiver');

  private constructor(private readonly child: ReturnType<typeof fork>) {
    child.on('message', (message) => this.#reports.push(message as Report));
  }

  static async start(server: Server, name: string): Promise<Receiver> {
    const script = resolve(import.meta.dirname, '../harness/receiver.ts');
    const receiver = new Receiver(fork(script, [server.address, name], { stdio: 'inherit' }));
    await receiver.#reports.count(1);
    return receiver;
  }

  /** The events and states that the client has seen so far. */
  async report(): Promise<Report> {
    const before = this.#reports.seen.length;
    this.child.send('report');
    await this.#reports.count(before + 1);
    return this.#reports.seen[before] as Report;
  }

  async until(holds: (report: Report) => boolean): Promise<void> {
    await eventually(async () => holds(await this.report()), 'the receiver reports the expected state');
  }

  signal(signal: 'SIGSTOP' | 'SIGCONT'): void {
    this.child.kill(signal);
  }

  end(): void {
    this.child.kill('SIGKILL');
  }
}
