// Transactions on the real server with each store: a `kill -9` leaves all records of a transaction or none, and an acknowledged one stays.
// A store that commits each record by itself refuses them.

import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { Database } from '../harness/database.ts';
import { url } from '../harness/http.ts';
import { Server, type ServerOptions } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';

/** The stores with transactions. */
const STORES = ['sqlite', 'postgres', 'redis'] as const;
const BANKS = 4;
const RECORDS = 5;
const ROUNDS = 3;

const nameOf = (bank: number, record: number): string => `bank/${bank}/${record}`;

async function started(t: TestContext, kind: (typeof STORES)[number] | 'mongodb'): Promise<Server> {
  const options: ServerOptions = { collections: { bank: { slot_by: 'prefix' } } };
  if (kind !== 'sqlite') {
    const { url } = await Database.during(t, kind);
    const path = { postgres: '/postgres', redis: '/0', mongodb: '/tidewire' }[kind];
    options.store = { kind, [kind]: { url: `${url}${path}` } };
  }
  // It ends before its database.
  return Server.during(t, options);
}

/** Sets all records of a bank to one number. */
async function setAll(server: Server, bank: number, number: number): Promise<Response> {
  // With values of some KB, a kill also meets a commit that is being written.
  const operations = Array.from({ length: RECORDS }, (_, record) => ({ name: nameOf(bank, record), data: { number, padding: 'x'.repeat(2_000) } }));
  return fetch(url(server, '/transactions'), { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(operations) });
}

/** The numbers of a bank's records. */
async function numbers(server: Server, bank: number): Promise<Array<number | undefined>> {
  const read = async (record: number): Promise<number | undefined> => {
    const answer = await fetch(url(server, `/records/${nameOf(bank, record)}`));
    return answer.status === 404 ? undefined : ((await answer.json()) as { number: number }).number;
  };
  return Promise.all(Array.from({ length: RECORDS }, (_, record) => read(record)));
}

async function survivesKills(t: TestContext, kind: (typeof STORES)[number]): Promise<void> {
  const server = await started(t, kind);
  const acknowledged = Array.from({ length: BANKS }, () => 0);
  let next = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    const before = [...acknowledged];
    let isKilled = false;
    const writers = acknowledged.map(async (_, bank) => {
      while (!isKilled) {
        const number = (next += 1);
        const answer = await setAll(server, bank, number).catch(() => undefined);
        if (answer?.status === 200) acknowledged[bank] = number;
        else if (answer && !isKilled) throw new Error(await answer.text());
      }
    });
    await eventually(() => acknowledged.every((number, bank) => number > before[bank]! + 20), 'each bank has several transactions');
    isKilled = true;
    await server.kill();
    await Promise.all(writers);
    await server.start();
    for (let bank = 0; bank < BANKS; bank += 1) {
      const found = await numbers(server, bank);
      assert.ok(new Set(found).size === 1, `${kind}, round ${round}: a part of a transaction is stored: ${found.join()}`);
      assert.ok(found[0]! >= acknowledged[bank]!, `${kind}, round ${round}: ${acknowledged[bank]} was acknowledged, ${found[0]} is stored`);
    }
  }
}

for (const kind of STORES) {
  test(`${kind} has all records of a transaction or none after kill -9`, { timeout: 120_000 }, (t) => survivesKills(t, kind));
}

test('mongodb refuses transactions with the name of the option', { timeout: 60_000 }, async (t) => {
  const server = await started(t, 'mongodb');
  const answer = await setAll(server, 1, 1);
  assert.equal(answer.status, 422);
  const { code, detail } = (await answer.json()) as Record<string, string>;
  assert.equal(code, 'TRANSACTION_REFUSED');
  assert.match(detail ?? '', /store\.kind/);
  assert.deepEqual(await numbers(server, 1), Array.from({ length: RECORDS }, () => undefined));
});
