// The server is killed or stopped while clients are connected, and started again. The clients reconnect and resubscribe by themselves,
// receive later changes, and find all acknowledged writes.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { C, connect, inState, list, record, subscribed, type ConnectOptions, type TestClient } from '../harness/client.ts';
import { fresh, freshUser, literally } from '../harness/names.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { DEADLINE_MS, Inbox, eventually, happens, within } from '../harness/wait.ts';

const { OPEN, RECONNECTING } = C.CONNECTION_STATE;
const forgets = againstOriginal && 'deepstream runs without storage here';

/** The ways to end the server. */
const ENDS: Array<[how: string, end: (server: Server) => Promise<void>]> = [
  ['killed', (server) => server.kill()],
  ['stopped', (server) => server.stop()],
];

function comingBack(test: TestContext, server: Server, options: ConnectOptions = {}): Promise<TestClient> {
  return connect(test, server, { subscriptionInterval: 0, ...options, errors: ['CONNECTION_ERROR'] });
}

async function restarted(server: Server, end: (server: Server) => Promise<void>, clients: TestClient[]): Promise<void> {
  const lost = clients.map((client) => inState(client, RECONNECTING));
  await end(server);
  await Promise.all(lost);
  await server.start();
  await Promise.all(clients.map((client) => inState(client, OPEN)));
}

for (const [how, end] of ENDS) {
  describe(`a server that is ${how} and started again`, { concurrency: 4 }, () => {
    test('clients reconnect, and events, rpcs, presence and patterns work as before', async (t) => {
      const server = await Server.during(t);
      const user = freshUser();
      const [alice, bob] = [await comingBack(t, server), await comingBack(t, server, { login: { username: user } })];
      const [event, rpc, pattern] = [fresh('event'), fresh('rpc'), fresh('listen')];
      const inbox = await subscribed(bob, event);
      bob.rpc.provide(rpc, (data, response) => response.send([data]));
      const requests = new Inbox<string>('requests');
      bob.event.listen(literally(pattern), (name, response) => {
        response.accept();
        requests.push(name);
      });
      const changes = new Inbox<boolean>('presence');
      alice.presence.subscribe(user, (_user, isOnline) => changes.push(isOnline));
      await alice.wire.acknowledged('PRESENCE', C.PRESENCE_ACTION.SUBSCRIBE, user);
      await bob.wire.acknowledged('EVENT', C.EVENT_ACTION.LISTEN, literally(pattern));
      await restarted(server, end, [alice, bob]);
      await bob.wire.acknowledged('EVENT', C.EVENT_ACTION.SUBSCRIBE, event);
      await bob.wire.acknowledged('RPC', C.RPC_ACTION.PROVIDE, rpc);
      await bob.wire.acknowledged('EVENT', C.EVENT_ACTION.LISTEN, literally(pattern));
      alice.event.emit(event, 'after');
      assert.equal(await inbox.next(), 'after');
      assert.deepEqual(await alice.rpc.make(rpc, 1), [1]);
      await subscribed(alice, pattern);
      assert.equal(await requests.next(), pattern);
      assert.deepEqual(await alice.presence.getAll([user]), { [user]: true });
    });

    test('acknowledged writes, deletions and lists survive, and later changes arrive', { skip: forgets }, async (t) => {
      const server = await Server.during(t);
      const [alice, bob] = [await comingBack(t, server), await comingBack(t, server)];
      const [kept, deleted, listed] = [fresh('kept'), fresh('deleted'), fresh('list')];
      const [mine, theirs] = [await record(alice, kept), await record(bob, kept)];
      const [entries, there] = [await list(alice, listed), await list(bob, listed)];
      for (let i = 1; i <= 20; i += 1) await mine.setWithAck('count', i);
      await mine.setWithAck('gone', true);
      await mine.eraseWithAck('gone');
      await entries.setEntriesWithAck(['a', 'b']);
      await alice.record.setDataWithAck(deleted, { doomed: true });
      await within(DEADLINE_MS, (await record(alice, deleted)).delete() as Promise<void>, 'the record is deleted');
      await eventually(() => theirs.get('count') === 20 && there.getEntries().length === 2, 'both clients are equal');
      await restarted(server, end, [alice, bob]);
      assert.equal(await bob.record.has(deleted), false);
      const judge = await connect(t, server);
      assert.deepEqual(await judge.record.snapshot(kept), { count: 20 });
      assert.deepEqual(await judge.record.snapshot(listed), ['a', 'b']);
      const [seen, seenEntries] = [new Inbox<unknown>('values'), new Inbox<string[]>('entries')];
      theirs.subscribe('count', seen.push);
      there.subscribe(seenEntries.push);
      await judge.record.setDataWithAck(kept, 'count', 21 as never);
      await judge.record.setDataWithAck(listed, ['b', 'a'] as never);
      assert.equal(await seen.find((value) => value === 21), 21);
      await seenEntries.find((list) => list.join() === 'b,a');
    });

    test('writes in flight are either acknowledged and stored, or reported as lost', { skip: forgets }, async (t) => {
      const server = await Server.during(t);
      const client = await comingBack(t, server);
      const names = Array.from({ length: 300 }, () => fresh('record'));
      const outcomes = Promise.all(
        names.map((name) => Promise.resolve(client.record.setDataWithAck(name, { name })).then(() => true, () => false)),
      );
      const { WRITE_ACKNOWLEDGEMENT } = C.RECORD_ACTION;
      await client.wire.receives(({ action, topic }) => topic === C.TOPIC.RECORD && action === WRITE_ACKNOWLEDGEMENT);
      await restarted(server, end, [client]);
      const acknowledged = await within(DEADLINE_MS, outcomes, 'every write has an outcome');
      const there = await Promise.all(names.map((name) => client.record.has(name)));
      assert.ok(acknowledged.includes(true));
      assert.deepEqual(acknowledged.filter((was, i) => was && !there[i]), [], 'an acknowledged write is missing');
    });

    test('fifty clients with twenty records each reconnect and receive later changes', { skip: forgets }, async (t) => {
      const server = await Server.during(t);
      const clients = await Promise.all(Array.from({ length: 50 }, () => comingBack(t, server, { subscriptionInterval: 20 })));
      const names = Array.from({ length: 20 }, () => fresh('record'));
      const opened = await Promise.all(clients.map((client) => Promise.all(names.map((name) => record(client, name)))));
      await restarted(server, end, clients);
      const writer = await connect(t, server);
      for (const name of names) await writer.record.setDataWithAck(name, { after: true });
      const all = opened.flat();
      await eventually(() => all.every((one) => one.get('after') === true), 'every client sees every change');
    });
  });
}

describe('reconnecting to a changed server', { concurrency: 4 }, () => {
  test('the login of a removed user fails with a reason', async (t) => {
    const users = {
      alice: { password: hashPassword('secret') },
      bob: { password: hashPassword('secret') },
    };
    const server = await Server.during(t, { users });
    const client = await connect(t, server, {
      login: { username: 'alice', password: 'secret' },
      errors: ['CONNECTION_ERROR'],
    });
    await server.stop();
    server.setUsers({ bob: users.bob });
    const failed = happens(client, 'reauthenticationFailure');
    await server.start();
    assert.deepEqual(await failed, [{ reason: 'INVALID_AUTHENTICATION_DETAILS' }]);
  });
});
