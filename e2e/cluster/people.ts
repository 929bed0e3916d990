// One user on each node, who reads, writes, publishes, calls, and watches the others: what clients of a cluster see at one moment.

import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { C, connect, inState, record, subscribed, type DeepstreamRecord, type RpcResponse, type TestClient } from '../harness/client.ts';
import { fresh } from '../harness/names.ts';
import type { Server } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';
import { TROUBLES } from './cluster.ts';

/** Names of all nodes with near certainty. */
const NAME_COUNT = 12;
/** Names of a node that was lost are served again within this time. */
const SERVED_MS_MAX = 15_000;

interface Person {
  user: string;
  client: TestClient;
  /** Subscriptions that exist from the beginning. */
  copies: DeepstreamRecord[];
}

export class People {
  #turn = 0;

  private constructor(
    private readonly all: Person[],
    private readonly present: Person[],
    private readonly names: string[],
  ) {}

  static async on(test: TestContext, nodes: Server[]): Promise<People> {
    const names = Array.from({ length: NAME_COUNT }, (_, index) => fresh(`people${index}`));
    const people: Person[] = [];
    for (const [index, node] of nodes.entries()) {
      const user = fresh(['anna', 'ben', 'cleo'][index] as string);
      const client = await connect(test, node, { login: { username: user }, errors: TROUBLES });
      people.push({ user, client, copies: [] });
    }
    const [first] = people as [Person];
    for (const name of names) await first.client.record.setDataWithAck(name, { n: 0 });
    for (const person of people) person.copies = await Promise.all(names.map((name) => record(person.client, name)));
    return new People(people, people, names);
  }

  /** The same people without one, whose node was lost. */
  without(index: number): People {
    return new People(this.all, this.present.filter((person) => person !== this.all[index]), this.names);
  }

  /** Each one reads every record. */
  async read(): Promise<void> {
    for (const { client } of this.present) {
      for (const name of this.names) {
        const read = async (): Promise<unknown> => client.record.snapshot(name).catch(() => undefined);
        await eventually(async () => (await read()) !== undefined, `${name} is read`, SERVED_MS_MAX);
      }
    }
  }

  /** Each one changes every record without an acknowledgement, and all others see it. */
  async write(): Promise<void> {
    for (const [by, person] of this.present.entries()) {
      this.#turn += 1;
      const path = `by${by}${fresh('turn').replace(/\W/g, '')}`;
      for (const copy of person.copies) copy.set(path, this.#turn);
      for (const other of this.present) {
        for (const [index, copy] of other.copies.entries()) {
          await eventually(() => copy.get(path) === this.#turn, `${this.names[index]} has the change of ${person.user}`, SERVED_MS_MAX);
        }
      }
    }
  }

  /** Events and calls pass between all, and each sees the others online. */
  async talk(): Promise<void> {
    await this.publish();
    await this.#call();
    for (const { client, user } of this.present) {
      const expected = this.present.map((other) => other.user).filter((other) => other !== user);
      await eventually(async () => {
        const found = (await client.presence.getAll().catch(() => [])) as string[];
        return expected.every((other) => found.includes(other));
      }, `${user} sees ${expected.join(' and ')} online`, SERVED_MS_MAX);
    }
  }

  /** Each one gets the events of all. */
  async publish(): Promise<void> {
    const name = fresh('talk');
    const inboxes = await Promise.all(this.present.map(({ client }) => subscribed(client, name)));
    for (const [by, { client }] of this.present.entries()) for (let n = 0; n < 10; n += 1) client.event.emit(name, [by, n]);
    for (const inbox of inboxes) {
      await inbox.count(10 * this.present.length);
      for (const by of this.present.keys()) {
        const numbers = inbox.seen.filter(([from]) => from === by).map(([, n]) => n);
        assert.deepEqual(numbers, Array.from({ length: 10 }, (_, n) => n), 'each event once and in order');
      }
    }
  }

  async #call(): Promise<void> {
    for (const [index, { client: provider, user }] of this.present.entries()) {
      const name = fresh(`call${index}`);
      provider.rpc.provide(name, (_: unknown, response: RpcResponse) => response.send(user));
      for (const { client } of this.present) {
        const call = async (): Promise<unknown> => client.rpc.make(name, null).catch(() => undefined);
        await eventually(async () => (await call()) === user, `${user} answers a call`, SERVED_MS_MAX);
      }
      provider.rpc.unprovide(name);
    }
  }

  /** The user of a lost node goes offline for the others. */
  async miss(index: number): Promise<void> {
    const { user } = this.all[index] as Person;
    for (const { client } of this.present) {
      await eventually(async () => !((await client.presence.getAll()) as string[]).includes(user), `${user} goes offline`, SERVED_MS_MAX);
    }
  }

  /** The node of one person has closed the connection. */
  async isClosed(index: number): Promise<void> {
    await inState((this.all[index] as Person).client, C.CONNECTION_STATE.RECONNECTING, SERVED_MS_MAX);
  }
}
