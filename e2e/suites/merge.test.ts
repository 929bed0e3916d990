// Conflicts: two clients write the same version of a record. With every merge strategy, both clients end with the value of the server.
// Both writes leave before either client reads its socket, so the conflict is real every time.

import assert from 'node:assert/strict';
import { after, before, describe, test, type TestContext } from 'node:test';
import { LOCAL_WINS, REMOTE_WINS, type MergeStrategy } from '@deepstream/client/dist/src/record/merge-strategy.js';
import { C, connect, pair, record, type DeepstreamRecord, type TestClient } from '../harness/client.ts';
import { covers } from '../harness/coverage.ts';
import { fresh } from '../harness/names.ts';
import { Server } from '../harness/server.ts';
import { Inbox, eventually } from '../harness/wait.ts';

/** Keeps the keys of both sides. For equal keys, keeps the remote value. */
const BOTH: MergeStrategy = (local, _localVersion, remote, _remoteVersion, done) => {
  done(null, { ...(local as object), ...(remote as object) });
};

describe('conflicts', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start();
  });
  after(() => server.dispose());

  /** Two clients with one open record, and a third client that reads the value of the server. */
  async function rivals(t: TestContext, mergeStrategy: MergeStrategy = REMOTE_WINS, start: object = { start: true }) {
    const [alice, bob] = await pair(t, server, { mergeStrategy });
    const judge = await connect(t, server);
    const name = fresh('record');
    const [mine, theirs] = [await record(alice, name), await record(bob, name)];
    await mine.setWithAck(start as C.JSONObject);
    await eventually(() => theirs.version === 1, 'both clients are at version 1');
    return { name, alice, bob, judge, mine, theirs };
  }

  /** Waits until both clients and the server have the same value and `settled` accepts it. Returns the value. */
  async function agreed(judge: TestClient, records: DeepstreamRecord[], settled: (value: any) => boolean): Promise<any> {
    const name = records[0]?.name as string;
    return eventually(async () => {
      const value = JSON.stringify(await judge.record.snapshot(name));
      const same = records.every((one) => JSON.stringify(one.get()) === value);
      return same && settled(JSON.parse(value)) ? JSON.parse(value) : undefined;
    }, `clients and server agree on ${name}`);
  }

  test('REMOTE_WINS: the later writer takes the value of the earlier one', async (t) => {
    const { judge, mine, theirs } = await rivals(t);
    mine.set({ winner: 'alice' });
    theirs.set({ winner: 'bob' });
    const value = await agreed(judge, [mine, theirs], ({ winner }) => winner !== undefined);
    assert.ok(['alice', 'bob'].includes(value.winner));
    assert.deepEqual([mine.version, theirs.version], [2, 2]);
  });

  test('REMOTE_WINS: of two patches the later one is lost, also at another path', async (t) => {
    const { judge, mine, theirs } = await rivals(t);
    mine.set('a', 'alice');
    theirs.set('b', 'bob');
    const value = await agreed(judge, [mine, theirs], ({ a, b }) => a !== undefined || b !== undefined);
    assert.equal(Object.keys(value).length, 2);
    assert.equal(value.start, true);
  });

  test('LOCAL_WINS: the later writer overwrites the earlier one', async (t) => {
    const { judge, mine, theirs } = await rivals(t, LOCAL_WINS);
    const order = new Inbox<string>('values at the server');
    const witness = await record(judge, mine.name);
    witness.subscribe('winner', order.push);
    mine.set({ winner: 'alice' });
    theirs.set({ winner: 'bob' });
    const [first, last] = await order.count(2);
    assert.deepEqual(new Set([first, last]), new Set(['alice', 'bob']));
    const value = await agreed(judge, [mine, theirs], ({ winner }) => winner === last);
    assert.deepEqual(value, { winner: last });
  });

  test('a custom function merges both values', async (t) => {
    const { judge, mine, theirs } = await rivals(t);
    mine.setMergeStrategy(BOTH);
    theirs.setMergeStrategy(BOTH);
    mine.set({ alice: 1 });
    theirs.set({ bob: 1 });
    const value = await agreed(judge, [mine, theirs], ({ alice, bob }) => alice && bob);
    assert.deepEqual(value, { alice: 1, bob: 1 });
    covers('Record.setMergeStrategy', 'success');
  });

  test('a strategy receives both values and versions', async (t) => {
    const { judge, mine, theirs } = await rivals(t);
    const calls = new Inbox<unknown[]>('calls of the strategy');
    for (const one of [mine, theirs]) {
      one.setMergeStrategy((local, localVersion, remote, remoteVersion, done) => {
        calls.push([local, localVersion, remote, remoteVersion]);
        done(null, remote);
      });
    }
    mine.set({ from: 'alice' });
    theirs.set({ from: 'bob' });
    const { from } = await agreed(judge, [mine, theirs], (value) => value.from !== undefined);
    const loser = from === 'alice' ? 'bob' : 'alice';
    assert.deepEqual(await calls.next(), [{ from: loser }, 2, { from }, 2]);
  });

  test('strategies apply by name, by pattern, and as the default', async (t) => {
    const { judge, alice, bob, mine, theirs, name } = await rivals(t);
    for (const client of [alice, bob]) client.record.setMergeStrategyRegExp(/^record\//, BOTH);
    mine.set({ alice: 1 });
    theirs.set({ bob: 1 });
    await agreed(judge, [mine, theirs], (value) => value.alice && value.bob);
    for (const client of [alice, bob]) client.record.setMergeStrategy(name, REMOTE_WINS);
    mine.set({ winner: 'alice' });
    theirs.set({ winner: 'bob' });
    const value = await agreed(judge, [mine, theirs], ({ winner }) => winner !== undefined);
    assert.deepEqual(Object.keys(value), ['winner']);
    covers(['RecordHandler.setMergeStrategy', 'RecordHandler.setMergeStrategyRegExp'], 'success');
  });

  test('a strategy that fails reports the conflict', async (t) => {
    const name = fresh('record');
    const [alice, bob] = await pair(t, server, { errors: ['undefined'] });
    const [mine, theirs] = [await record(alice, name), await record(bob, name)];
    for (const one of [mine, theirs]) one.setMergeStrategy((_a, _b, _c, _d, done) => done('cannot merge', {}));
    mine.set({ winner: 'alice' });
    theirs.set({ winner: 'bob' });
    const failed = await eventually(
      () => [alice, bob].find((client) => client.errors.seen.length > 0) ?? null,
      'one client reports the conflict',
    );
    // The client has no name for this error, so only its topic identifies it.
    assert.equal(failed?.errors.seen[0]?.topic, 'RECORD');
  });

  test('a conflict of a whole value and a patch ends with one value', async (t) => {
    const { judge, mine, theirs } = await rivals(t);
    mine.set({ whole: true });
    theirs.set('patch', true);
    const value = await agreed(judge, [mine, theirs], ({ whole, patch }) => whole || patch);
    assert.ok(value.whole ? !value.patch : value.start && value.patch);
  });

  test('a conflict of an erased path and a new value ends with one value', async (t) => {
    const { judge, mine, theirs } = await rivals(t, REMOTE_WINS, { a: 1, b: 2 });
    mine.erase('a');
    theirs.set('a', 3);
    const value = await agreed(judge, [mine, theirs], ({ a }) => a !== 1);
    assert.ok(value.a === undefined || value.a === 3);
    assert.equal(value.b, 2);
  });

  test('a conflict of a deletion and a write leaves no partial record', async (t) => {
    const { name, judge, alice, mine, theirs } = await rivals(t);
    const deleted = mine.delete();
    theirs.set({ late: true });
    await deleted;
    const again = await record(alice, name);
    const value = await judge.record.snapshot(name);
    assert.deepEqual(value, { ...(again.get() as object) });
  });

  test('five clients that conflict in each round end with one value', async (t) => {
    const name = fresh('record');
    const clients = await Promise.all(Array.from({ length: 5 }, () => connect(t, server, { mergeStrategy: BOTH })));
    const judge = await connect(t, server);
    const records = await Promise.all(clients.map((client) => record(client, name)));
    for (let round = 0; round < 10; round += 1) {
      records.forEach((one, i) => one.set({ ...(one.get() as object), [`client${i}`]: round }));
      await agreed(judge, records, (value) => Object.keys(value).length > 0);
    }
    const value = await agreed(judge, records, (settled) => Object.keys(settled).length === 5);
    assert.deepEqual(Object.keys(value).sort(), ['client0', 'client1', 'client2', 'client3', 'client4']);
  });

  test('a write with an old version gets the current value', async (t) => {
    const { alice, bob, mine, theirs } = await rivals(t);
    const answers = new Inbox<C.Message>('conflict answers');
    for (const client of [alice, bob]) {
      client.wire.onReceived((message) => message.action === C.RECORD_ACTION.VERSION_EXISTS && answers.push(message));
    }
    mine.set({ winner: 'alice' });
    theirs.set({ winner: 'bob' });
    const answer = await answers.next();
    assert.equal(answer.version, 2);
    assert.ok(['alice', 'bob'].includes((answer.parsedData as { winner: string }).winner));
  });
});
