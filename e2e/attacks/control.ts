// The control pairs: clients that have nothing to do with an attack, one pair on each shard. They measure how the attack affects others.

import type { TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { connect, subscribed, type TestClient } from '../harness/client.ts';
import type { Server } from '../harness/server.ts';
import { Inbox } from '../harness/wait.ts';
import { CONTROL_FLOOD } from './attack.ts';

/** Milliseconds between two events of a pair. */
const INTERVAL_MS = 10;

/** A sender and a receiver of events on one shard. */
export class ControlPair {
  readonly #sentAt: number[] = [];
  #latencies: number[] = [];
  #isOver = false;

  private constructor(
    private readonly sender: TestClient,
    private readonly event: string,
    private readonly inbox: Inbox<unknown>,
  ) {}

  /** A pair on each of `shards` shards: a new connection goes to the shard that has the fewest. */
  static async onEach(test: TestContext, server: Server, shards: number): Promise<ControlPair[]> {
    const clients: TestClient[] = [];
    for (let index = 0; index < 2 * shards; index += 1) {
      clients.push(await connect(test, server, { login: { username: `control${index}`, password: 'control' } }));
    }
    return Promise.all(
      Array.from({ length: shards }, async (_, shard) => {
        const [sender, receiver] = [clients[shard] as TestClient, clients[shard + shards] as TestClient];
        const pair = new ControlPair(sender, `control/${shard}`, await subscribed(receiver, CONTROL_FLOOD));
        receiver.event.subscribe(pair.event, (number) => pair.#arrived(number as unknown as number));
        test.after(() => (pair.#isOver = true));
        void pair.#send();
        return pair;
      }),
    );
  }

  /** Writes a record. */
  async write(): Promise<void> {
    await this.sender.record.setDataWithAck(this.event, { written: true });
  }

  /** The p99 of the pair's events since the last call, in milliseconds. */
  takeP99(): number {
    const latencies = this.#latencies.sort((a, b) => a - b);
    this.#latencies = [];
    return latencies[Math.floor(latencies.length * 0.99)] ?? Infinity;
  }

  /** The number of the attack's messages that this pair has received. */
  get floods(): number {
    return this.inbox.seen.length;
  }

  async #send(): Promise<void> {
    while (!this.#isOver) {
      const number = this.#sentAt.push(performance.now()) - 1;
      this.sender.event.emit(this.event, number as never);
      await pause(INTERVAL_MS);
    }
  }

  #arrived(number: number): void {
    this.#latencies.push(performance.now() - (this.#sentAt[number] ?? NaN));
  }
}
