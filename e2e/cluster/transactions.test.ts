// Transactions in a cluster: clients at all nodes transfer between accounts while their owner is killed, a node leaves and another one joins. The
// sum of each bank stays the same, and acknowledged transfers are not lost.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { url } from '../harness/http.ts';
import type { Server } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';
import { Cluster, SETUPS } from './cluster.ts';

const BANKS = 6;
const ACCOUNTS = 3;
const FUNDS = 100;
const COLLECTIONS = { bank: { slot_by: 'prefix' } };

const nameOf = (bank: number, account: number): string => `bank/${bank}/${account}`;

interface Account {
  balance: number;
  /** How often it took part in a transfer. */
  transfers: number;
}

async function read(node: Server, name: string): Promise<{ account: Account; etag: string } | undefined> {
  const answer = await fetch(url(node, `/records/${name}`));
  if (answer.status !== 200) return undefined;
  return { account: (await answer.json()) as Account, etag: answer.headers.get('etag')! };
}

async function commit(node: Server, operations: unknown): Promise<number> {
  const answer = await fetch(url(node, '/transactions'), {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(operations),
  });
  await answer.text();
  return answer.status;
}

/** Transfers between two accounts of a bank. True if it was acknowledged. */
async function transfer(node: Server, bank: number, from: number, amount: number): Promise<boolean> {
  const names = [nameOf(bank, from), nameOf(bank, (from + 1) % ACCOUNTS)];
  const found = await Promise.all(names.map((name) => read(node, name)));
  const [source, target] = found;
  if (!source || !target) return false;
  const changed = [source, target].map(({ account, etag }, index) => ({
    name: names[index],
    if: etag,
    data: { balance: account.balance + (index === 0 ? -amount : amount), transfers: account.transfers + 1 },
  }));
  return (await commit(node, changed)) === 200;
}

for (const setup of SETUPS.filter(({ broker }) => broker === undefined)) {
  describe(`three nodes with ${setup.name}`, () => {
    test('keep the sum of all accounts through the loss, the leaving and the joining of an owner', { timeout: 120_000 }, async (t) => {
      const cluster = await Cluster.during(t, setup);
      const nodes = await cluster.nodes(3, { collections: COLLECTIONS });
      const [first, second, third] = nodes as [Server, Server, Server];
      for (let bank = 0; bank < BANKS; bank += 1) {
        const accounts = Array.from({ length: ACCOUNTS }, (_, account) => ({ name: nameOf(bank, account), data: { balance: FUNDS, transfers: 0 } }));
        assert.equal(await commit(nodes[bank % 3] as Server, accounts), 200);
      }
      const live = new Set(nodes);
      const acknowledged = Array.from({ length: BANKS }, () => 0);
      let isOver = false;
      const clients = acknowledged.map(async (_, bank) => {
        for (let round = 0; !isOver; round += 1) {
          const node = [...live][(bank + round) % live.size] as Server;
          // A transfer may fail while the view changes, and its outcome is unknown then.
          if (await transfer(node, bank, round % ACCOUNTS, 1 + (round % 5)).catch(() => false)) acknowledged[bank]! += 1;
        }
      });
      const more = async (): Promise<void> => {
        const before = [...acknowledged];
        await eventually(() => acknowledged.every((count, bank) => count > before[bank]! + 5), 'each bank has further transfers', 30_000);
      };
      await more();
      live.delete(second);
      await second.kill();
      await more();
      await second.start();
      live.add(second);
      await more();
      live.delete(third);
      await third.stop();
      await more();
      isOver = true;
      await Promise.all(clients);
      for (let bank = 0; bank < BANKS; bank += 1) {
        const found = await Promise.all(Array.from({ length: ACCOUNTS }, (_, account) => read(first, nameOf(bank, account))));
        const sum = found.reduce((all, each) => all + (each?.account.balance ?? 0), 0);
        assert.equal(sum, ACCOUNTS * FUNDS, `bank ${bank}`);
        const transfers = found.reduce((all, each) => all + (each?.account.transfers ?? 0), 0) / 2;
        assert.ok(transfers >= acknowledged[bank]!, `bank ${bank}: ${acknowledged[bank]} transfers were acknowledged, ${transfers} are stored`);
      }
    });
  });
}
