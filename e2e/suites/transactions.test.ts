// Transactions of `@tidewire/client` and over HTTP against the real server: all changes or none, and repeated when another client was first.

import assert from 'node:assert/strict';
import { after, before, describe, test, type TestContext } from 'node:test';
import type { Client, TidewireError } from '../../packages/client/src/index.ts';
import { runTransaction } from '../../packages/client/src/transactions.ts';
import { client } from '../harness/driver/tidewire.ts';
import { url } from '../harness/http.ts';
import { fresh } from '../harness/names.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, within } from '../harness/wait.ts';

interface Account {
  balance: number;
}

interface App {
  records: { [name: `bank/${string}`]: Account };
}

type Name = `bank/${string}`;

const PERMISSIONS = `
presence: {"*": {allow: true}}
record:
  "*": {create: true, read: true, write: true, delete: true, listen: true, notify: true}
  "bank/*/vault": {create: true, read: true, write: "data.balance >= 0", delete: false}
event: {"*": {publish: true, subscribe: true, listen: true}}
rpc: {"*": {provide: true, request: true}}
`;

describe('transactions', { concurrency: 4, timeout: 120_000 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start({ collections: { bank: { slot_by: 'prefix' } }, permissions: PERMISSIONS });
  });
  after(() => server.dispose());

  const connected = async (t: TestContext): Promise<Client<App>> => {
    const made = client<App>(t, server.address);
    await within(DEADLINE_MS, made.connect(), 'login');
    return made;
  };
  /** Names of accounts at a new bank, all with one slot. */
  const accounts = (count: number): Name[] => {
    const bank = fresh('bank').replaceAll('/', '-');
    return Array.from({ length: count }, (_, index): Name => `bank/${bank}/${index}`);
  };
  const fund = (of: Client<App>, names: Name[], balance: number): Promise<void> =>
    runTransaction(of.record, (transaction) => names.forEach((name) => transaction.set(name, { balance })));
  const transfer = (of: Client<App>, from: Name, to: Name, amount: number): Promise<boolean> =>
    runTransaction(
      of.record,
      async (transaction) => {
        const source = await transaction.get(from);
        const target = await transaction.get(to);
        assert.ok(source && target);
        if (source.balance < amount) return false;
        transaction.set(from, { balance: source.balance - amount });
        transaction.set(to, { balance: target.balance + amount });
        return true;
      },
      { attemptsMax: 1_000 },
    );
  const commit = async (body: unknown): Promise<{ status: number; body: unknown }> => {
    const answer = await fetch(url(server, '/transactions'), { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
    return { status: answer.status, body: await answer.json() };
  };

  test('transfers of several clients at the same time keep the sum of all accounts', async (t) => {
    const clients = [await connected(t), await connected(t), await connected(t)];
    const names = accounts(4);
    await fund(clients[0]!, names, 100);
    let transfers = 0;
    await Promise.all(
      clients.map(async (each, index) => {
        for (let round = 0; round < 15; round += 1) {
          const from = names[(index + round) % names.length]!;
          const to = names[(index + round * 2 + 1) % names.length]!;
          if (from !== to && (await transfer(each, from, to, 7))) transfers += 1;
        }
      }),
    );
    const balances = await Promise.all(names.map((name) => clients[0]!.record.get(name)));
    assert.equal(balances.reduce((sum, account) => sum + (account?.balance ?? 0), 0), 400);
    assert.ok(transfers > 15, `${transfers} transfers`);
  });

  test('open records of all clients get the changes, also at the client that made the transaction', async (t) => {
    const [mine, theirs] = [await connected(t), await connected(t)];
    const [from, to] = accounts(2) as [Name, Name];
    await fund(mine, [from, to], 10);
    const opened = [mine, theirs].map((each) => each.record.open(to));
    await within(DEADLINE_MS, Promise.all(opened.map(({ ready }) => ready)), 'the records');
    const seen = new Inbox<number | undefined>('balances');
    opened[1]!.subscribe('balance', seen.push);
    assert.equal(await seen.next(), 10);
    assert.equal(await transfer(mine, from, to, 3), true);
    assert.equal(opened[0]!.get('balance'), 13, 'before the promise is fulfilled');
    assert.equal(await seen.next(), 13);
  });

  test('the function is called again if another client was first', async (t) => {
    const [mine, theirs] = [await connected(t), await connected(t)];
    const [name] = accounts(1) as [Name];
    await fund(mine, [name], 1);
    let calls = 0;
    await runTransaction(mine.record, async (transaction) => {
      calls += 1;
      const found = await transaction.get(name);
      if (calls < 3) await theirs.record.set(name, { balance: 10 * calls });
      transaction.set(name, { balance: found!.balance + 1 });
    });
    assert.deepEqual([calls, await theirs.record.get(name)], [3, { balance: 21 }]);
    const contended = runTransaction(
      mine.record,
      async (transaction) => {
        const found = await transaction.get(name);
        await theirs.record.set(name, { balance: found!.balance + 1 });
        transaction.set(name, { balance: 0 });
      },
      { attemptsMax: 2 },
    );
    await assert.rejects(contended, (error: TidewireError) => error.code === 'CONFLICT' && error.subject === name);
    assert.deepEqual(await mine.record.get(name), { balance: 23 });
  });

  test('reads alone are checked together, and a transaction sees its own changes', async (t) => {
    const mine = await connected(t);
    const [first, second] = accounts(2) as [Name, Name];
    const result = await runTransaction(mine.record, async (transaction) => {
      assert.equal(await transaction.get(first), undefined);
      transaction.set(first, { balance: 5 });
      assert.deepEqual(await transaction.get(first), { balance: 5 });
      transaction.delete(second);
      return transaction.get(second);
    });
    assert.equal(result, undefined);
    const sum = await runTransaction(mine.record, async (transaction) => [await transaction.get(first), await transaction.get(second)]);
    assert.deepEqual(sum, [{ balance: 5 }, undefined]);
    await runTransaction(mine.record, () => undefined);
  });

  test('a refusal of one operation leaves all records as they are', async (t) => {
    const mine = await connected(t);
    const [account] = accounts(1) as [Name];
    const vault: Name = `${account.slice(0, account.lastIndexOf('/')) as Name}/vault`;
    await fund(mine, [account, vault], 10);
    const denied = runTransaction(mine.record, (transaction) => {
      transaction.set(account, { balance: 100 });
      transaction.set(vault, { balance: -80 });
    });
    await assert.rejects(denied, (error: TidewireError) => error.code === 'MESSAGE_DENIED' && error.subject === vault);
    const deleted = runTransaction(mine.record, (transaction) => {
      transaction.set(account, { balance: 20 });
      transaction.delete(vault);
    });
    await assert.rejects(deleted, { code: 'MESSAGE_DENIED' });
    const failed = runTransaction(mine.record, (transaction) => {
      transaction.set(account, { balance: 30 });
      throw new Error('the app changed its mind');
    });
    await assert.rejects(failed, /changed its mind/);
    assert.deepEqual([await mine.record.get(account), await mine.record.get(vault)], [{ balance: 10 }, { balance: 10 }]);
  });

  test('names with several slots are refused with the name of the option', async (t) => {
    const mine = await connected(t);
    const refused = fund(mine, ['bank/a/1', 'bank/b/1'], 1);
    await assert.rejects(refused, (error: TidewireError) => {
      assert.match(error.message, /collections\.X\.slot_by/);
      return error.code === 'TRANSACTION_REFUSED';
    });
    assert.equal(await mine.record.get('bank/a/1'), undefined);
  });

  test('without a connection a transaction is rejected at once, and one whose connection is lost is not repeated', async (t) => {
    const mine = client<App>(t, server.address);
    const [name] = accounts(1) as [Name];
    await assert.rejects(fund(mine, [name], 1), { code: 'NOT_CONNECTED' });
    await within(DEADLINE_MS, mine.connect(), 'login');
    await fund(mine, [name], 1);
    const aborted = AbortSignal.abort(new Error('enough'));
    await assert.rejects(runTransaction(mine.record, (transaction) => transaction.get(name), { signal: aborted }), /enough/);
    let late: Promise<unknown> | undefined;
    await runTransaction(mine.record, (transaction) => {
      late = Promise.resolve().then(() => new Promise((done) => setTimeout(done, 50))).then(() => transaction.get(name));
    });
    await assert.rejects(late!, { code: 'CLOSED' });
    mine.close();
    await assert.rejects(fund(mine, [name], 1), { code: 'CLOSED' });
  });

  test('HTTP has the same transactions, with entity tags as states', async (t) => {
    const mine = await connected(t);
    const [first, second] = accounts(2) as [Name, Name];
    const created = await commit([
      { name: first, data: { balance: 1 }, if: 'missing' },
      { name: second, data: { balance: 2 } },
    ]);
    assert.equal(created.status, 200);
    const tags = (created.body as Array<{ name: string; etag: string }>).map(({ etag }) => etag);
    const read = await fetch(url(server, `/records/${first}`));
    assert.deepEqual([read.headers.get('etag'), await read.json()], [tags[0], { balance: 1 }]);
    const moved = await commit([
      { name: first, data: null, if: tags[0] },
      { name: second, data: { balance: 3 }, if: tags[1] },
    ]);
    assert.equal(moved.status, 200);
    assert.deepEqual((moved.body as Array<{ etag: unknown }>)[0]!.etag, null);
    assert.deepEqual([await mine.record.get(first), await mine.record.get(second)], [undefined, { balance: 3 }]);
    const outdated = await commit([
      { name: first, data: { balance: 4 } },
      { name: second, if: tags[1] },
    ]);
    assert.equal(outdated.status, 412);
    const { code, name } = outdated.body as Record<string, unknown>;
    assert.deepEqual([code, name], ['PRECONDITION_FAILED', second]);
    assert.equal(await mine.record.get(first), undefined);
    for (const [body, status, expected] of [
      [[{ name: first }], 400, 'INVALID_TRANSACTION'],
      [{ name: first, data: {} }, 400, 'INVALID_TRANSACTION'],
      [[{ name: '', data: {} }], 400, 'INVALID_NAME'],
      [[{ name: first, data: 1 }], 422, 'TRANSACTION_REFUSED'],
      [[], 422, 'TRANSACTION_REFUSED'],
      [[{ name: first, data: {} }, { name: 'bank/other/1', data: {} }], 422, 'TRANSACTION_REFUSED'],
    ] as const) {
      const answer = await commit(body);
      assert.deepEqual([answer.status, (answer.body as { code: string }).code], [status, expected], JSON.stringify(body));
    }
    assert.equal((await commit([{ name: second, data: null }])).status, 200);
    assert.equal(await mine.record.get(second), undefined);
  });
});
