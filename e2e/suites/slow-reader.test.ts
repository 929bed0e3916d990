// The server disconnects a slow reader when its outbox is full, and the client reconnects by itself. Until then it receives every version
// in order, so it calls no merge strategy. After the reconnect the record has the value of the other writers, with every strategy. After
// every loss of its connection, the client calls its strategy for every open record, even for an unchanged one (see the last tests). So
// the server can only make sure that no result does harm: it refuses the write of LOCAL_WINS as a version that exists. See
// docs/decisions/0008-slow-readers.md.

import assert from 'node:assert/strict';
import { after, before, describe, test, type TestContext } from 'node:test';
import { LOCAL_WINS, REMOTE_WINS, type MergeStrategy } from '@deepstream/client/dist/src/record/merge-strategy.js';
import { C, connect, inState, record, subscribed, type DeepstreamRecord, type TestClient } from '../harness/client.ts';
import { fresh } from '../harness/names.ts';
import { Proxy } from '../harness/proxy.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { eventually, happens } from '../harness/wait.ts';

const { OPEN, RECONNECTING } = C.CONNECTION_STATE;
const { READ_RESPONSE, VERSION_EXISTS } = C.RECORD_ACTION;
/** Large enough that a few texts fill an outbox and the kernels' buffers. */
const TEXT = 'x'.repeat(60_000);
/** Far more writes than the kernels' buffers and the outbox hold. */
const WRITES_MAX = 2_000;

/** Keeps the keys of both sides. For equal keys, keeps the remote value. */
const OWN: MergeStrategy = (local, _localVersion, remote, _remoteVersion, done) => {
  done(null, { ...(local as object), ...(remote as object) });
};
const STRATEGIES = Object.entries({ REMOTE_WINS, LOCAL_WINS, 'a custom strategy': OWN });

/** The versions with which the client called a strategy. */
interface Asked {
  localVersion: number;
  remoteVersion: number;
}

/** A strategy that calls `strategy` and records the versions of each call. */
function spy(strategy: MergeStrategy): { asked: Asked[]; spied: MergeStrategy } {
  const asked: Asked[] = [];
  const spied: MergeStrategy = (local, localVersion, remote, remoteVersion, done) => {
    asked.push({ localVersion, remoteVersion });
    strategy(local, localVersion, remote, remoteVersion, done);
  };
  return { asked, spied };
}

describe('a slow reader', { skip: againstOriginal && 'deepstream keeps all messages that a slow reader has not read' }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start({ limits: { outbox_bytes_max: 256 * 1024 } });
  });
  after(() => server.dispose());

  /** A client behind a proxy and a writer, which have opened the same record. */
  async function slowAndWriter(t: TestContext, mergeStrategy: MergeStrategy) {
    const proxy = await Proxy.during(t, server);
    const writer = await connect(t, server);
    const name = fresh('record');
    const theirs = await record(writer, name);
    await theirs.setWithAck({ count: 0, text: '' } as never);
    const slow = await connect(t, server, { through: proxy.address, mergeStrategy, errors: ['CONNECTION_ERROR'] });
    const mine = await record(slow, name);
    return { proxy, slow, writer, mine, theirs };
  }

  /** Writes patches until the server has disconnected the slow client. Returns the number of the last patch. */
  async function writeUntilCut(theirs: DeepstreamRecord): Promise<number> {
    const before = await server.metric('tidewire_slow_disconnects_total');
    for (let count = 1; count <= WRITES_MAX; count += 1) {
      await theirs.setWithAck('text' as never, `${count} ${TEXT}` as never);
      await theirs.setWithAck('count' as never, count as never);
      if ((await server.metric('tidewire_slow_disconnects_total')) > before) return count;
    }
    return assert.fail(`${WRITES_MAX} writes did not fill the outbox`);
  }

  /** Lets the slow client read again, detect the loss of its connection, and reconnect. */
  async function comesBack(proxy: Proxy, slow: TestClient): Promise<void> {
    const lost = happens(slow, 'connectionStateChanged', (state) => state === RECONNECTING);
    proxy.readOn();
    await lost;
    await inState(slow, OPEN);
  }

  for (const [strategy, mergeStrategy] of STRATEGIES) {
    test(`${strategy}: every version in order until the disconnect, then the value of the other writers`, async (t) => {
      const { asked, spied } = spy(mergeStrategy);
      const { proxy, slow, writer, mine, theirs } = await slowAndWriter(t, spied);
      const counts: number[] = [];
      mine.subscribe('count', (count: number) => counts.push(count));
      let atLoss: { asked: number; counts: number[]; version: number } | undefined;
      slow.on('connectionStateChanged', (state: C.CONNECTION_STATE) => {
        if (state !== RECONNECTING) return;
        atLoss ??= { asked: asked.length, counts: [...counts], version: mine.version as number };
      });
      proxy.stall();
      const last = await writeUntilCut(theirs);
      await theirs.setWithAck('count' as never, 'left' as never);
      const [left, version] = [theirs.get(), theirs.version as number];

      const answer = mergeStrategy === LOCAL_WINS ? VERSION_EXISTS : READ_RESPONSE;
      const answered = slow.wire.receives(({ name, action }) => name === theirs.name && action === answer);
      await comesBack(proxy, slow);
      await answered;
      assert.ok(atLoss);
      assert.equal(atLoss.asked, 0, 'the strategy was called while versions arrived in order');
      assert.deepEqual(atLoss.counts, atLoss.counts.map((_, index) => index + 1), 'a version is missing');
      assert.ok(atLoss.counts.length < last, 'the slow client was not behind');

      assert.deepEqual(asked[0], { localVersion: atLoss.version, remoteVersion: version });
      assert.equal(mine.version, version);
      if (mergeStrategy !== LOCAL_WINS) assert.deepEqual(mine.get(), left);
      assert.deepEqual(await writer.record.snapshot(theirs.name), left);
      assert.equal(await writer.record.head(theirs.name), version);
      assert.equal(theirs.version, version, 'no client has written since');
    });
  }

  test('the subscriptions of a slow reader are restored after its reconnect', async (t) => {
    const { proxy, slow, writer, theirs } = await slowAndWriter(t, REMOTE_WINS);
    const name = fresh('e');
    const inbox = await subscribed(slow, name);
    proxy.stall();
    await writeUntilCut(theirs);
    const again = slow.wire.acknowledged('EVENT', C.EVENT_ACTION.SUBSCRIBE, name);
    await comesBack(proxy, slow);
    await again;
    writer.event.emit(name, 'after');
    assert.equal(await inbox.next(), 'after');
  });
});

describe('the client after any loss of its connection', { concurrency: 3 }, () => {
  for (const [strategy, mergeStrategy] of STRATEGIES) {
    test(`calls ${strategy} for an open, unchanged record`, async (t) => {
      const server = await Server.during(t);
      const proxy = await Proxy.during(t, server);
      const { asked, spied } = spy(mergeStrategy);
      const errors = ['CONNECTION_ERROR'];
      const client = await connect(t, server, { through: proxy.address, mergeStrategy: spied, errors });
      const mine = await record(client, fresh('record'));
      await mine.setWithAck({ unchanged: true } as never);
      proxy.cut();
      await inState(client, RECONNECTING);
      proxy.restore();
      await eventually(() => asked.length > 0, 'the strategy is called');
      assert.deepEqual(asked, [{ localVersion: mine.version, remoteVersion: mine.version }]);
      assert.deepEqual(mine.get(), { unchanged: true });
    });
  }
});
