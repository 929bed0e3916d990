// Presence: the users that are online. A user comes online with the first session and goes offline with the last.

import assert from 'node:assert/strict';
import { after, before, describe, test, type TestContext } from 'node:test';
import { getMessage } from '@deepstream/protobuf/dist/src/message-builder.js';
import { C, connect, type TestClient } from '../harness/client.ts';
import { covers } from '../harness/coverage.ts';
import { DRIVERS, type Peer } from '../harness/driver/driver.ts';
import { freshUser } from '../harness/names.ts';
import { RawPeer } from '../harness/raw.ts';
import { Server } from '../harness/server.ts';
import { Inbox, eventually } from '../harness/wait.ts';

const { PRESENCE } = C.TOPIC;
const { SUBSCRIBE, SUBSCRIBE_ALL, UNSUBSCRIBE_ALL } = C.PRESENCE_ACTION;
type Change = [user: string, online: boolean];

for (const driver of DRIVERS) {
  describe(`presence with ${driver.name}`, { concurrency: 8 }, () => {
    let server: Server;
    before(async () => {
      server = await Server.start();
    });
    after(() => server.dispose());
    const online = (t: TestContext, username: string): Promise<Peer> => driver.connect(t, server, { login: { username } });

    test('a query lists all other online users', async (t) => {
      const [me, bob, carol] = [freshUser(), freshUser(), freshUser()];
      const client = await online(t, me);
      await online(t, bob);
      await online(t, bob);
      await online(t, carol);
      const all = await client.all();
      assert.deepEqual([bob, carol].map((user) => all.filter((one) => one === user).length), [1, 1]);
      assert.equal(all.includes(me), false);
      covers('PresenceHandler.getAll', 'success');
    });

    test('a query for some users answers for each of them', async (t) => {
      const [me, bob, ghost] = [freshUser(), freshUser(), freshUser()];
      const client = await online(t, me);
      await online(t, bob);
      assert.deepEqual(await client.query([me, bob, ghost]), { [me]: true, [bob]: true, [ghost]: false });
    });

    for (const single of [false, true]) {
      test(`a subscriber to ${single ? 'a user' : 'everybody'} sees the join of the first session and the leave of the last`, async (t) => {
        const bob = freshUser();
        const watcher = await online(t, freshUser());
        const { inbox: changes } = await watcher.watch([bob], single ? bob : undefined);
        const first = await online(t, bob);
        assert.deepEqual(await changes.next(), [bob, true]);
        const second = await online(t, bob);
        first.close();
        const third = await online(t, bob);
        second.close();
        await eventually(async () => (await watcher.query([bob]))[bob] === true, 'the user is still online');
        third.close();
        assert.deepEqual(await changes.next(), [bob, false]);
        await online(t, bob);
        assert.deepEqual(await changes.next(), [bob, true]);
        assert.deepEqual(changes.seen, [[bob, true], [bob, false], [bob, true]]);
        covers('PresenceHandler.subscribe', 'success');
      });
    }

    test('a subscriber to one user receives no changes of other users', async (t) => {
      const [bob, carol] = [freshUser(), freshUser()];
      const watcher = await online(t, freshUser());
      const { inbox: changes } = await watcher.watch([bob, carol], bob);
      await online(t, carol);
      await online(t, bob);
      assert.deepEqual(await changes.next(), [bob, true]);
    });

    test('a subscriber to one user and to all users receives both', async (t) => {
      const bob = freshUser();
      const watcher = await online(t, freshUser());
      const [one, all] = [await watcher.watch([bob], bob), await watcher.watch([bob])];
      await online(t, bob);
      assert.deepEqual([await one.inbox.next(), await all.inbox.next()], [[bob, true], [bob, true]]);
    });

    test('user ids may be any text', async (t) => {
      const users = ['ünï 日本 🎉', '"quotes"\\', '.*', '%_EVERYONE_%x'].map((text) => freshUser(text));
      const watcher = await online(t, freshUser());
      for (const user of users) {
        const { inbox: changes } = await watcher.watch([user], user);
        await online(t, user);
        assert.deepEqual(await changes.next(), [user, true]);
      }
      assert.deepEqual(Object.values(await watcher.query(users)), [true, true, true, true]);
    });

    test('a session that is cut off goes offline like one that is closed', async (t) => {
      const bob = freshUser();
      const watcher = await online(t, freshUser());
      const { inbox: changes } = await watcher.watch([bob], bob);
      const peer = await RawPeer.login(server, { username: bob });
      assert.deepEqual(await changes.next(), [bob, true]);
      peer.abort();
      assert.deepEqual(await changes.next(), [bob, false]);
    });

    test('a client that unsubscribes receives no changes', async (t) => {
      const [bob, carol] = [freshUser(), freshUser()];
      const watcher = await online(t, freshUser());
      const [one, all] = [await watcher.watch([bob], bob), await watcher.watch([bob])];
      await one.stop();
      await all.stop();
      const { inbox: changes } = await watcher.watch([carol], carol);
      const stray = watcher.receives(({ topic, name }) => topic === PRESENCE && (name === bob || name === carol));
      await online(t, bob);
      await online(t, carol);
      await changes.next();
      assert.equal((await stray).name, carol);
      assert.deepEqual([one.inbox.seen, all.inbox.seen], [[], []]);
      covers('PresenceHandler.unsubscribe', 'success');
    });
  });
}

describe('presence of deepstream clients', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start();
  });
  after(() => server.dispose());

  const online = (t: TestContext, username: string): Promise<TestClient> => connect(t, server, { login: { username } });

  /** The changes that `client` receives for `users`. Subscribes to the user `one` if given, otherwise to all users. */
  async function watches(client: TestClient, users: string[], one?: string): Promise<Inbox<Change>> {
    const changes = new Inbox<Change>(`presence of ${users.join(', ')}`);
    const note = (user: string, isOnline: boolean): void => {
      if (users.includes(user)) changes.push([user, isOnline]);
    };
    if (one) client.presence.subscribe(one, note);
    else client.presence.subscribe(note);
    if (one) await client.wire.acknowledged('PRESENCE', SUBSCRIBE, one);
    else await client.wire.acknowledged('PRESENCE', SUBSCRIBE_ALL);
    return changes;
  }

  test('several concurrent queries each call their own callback', async (t) => {
    const [me, bob] = [freshUser(), freshUser()];
    const client = await online(t, me);
    await online(t, bob);
    // On several nodes a login is answered before the owner of the user on another node has heard of it.
    for (const user of [me, bob]) await eventually(async () => (await client.presence.getAll([user]))[user] === true, `${user} is online`);
    const answers = new Inbox<unknown[]>('answers');
    client.presence.getAll([bob], (...answer) => answers.push(answer));
    client.presence.getAll([me], (...answer) => answers.push(answer));
    await answers.count(2);
    // Different users have different owners, so the answers may arrive in any order. Each must call its own callback.
    const user = (answer: unknown[]): string => Object.keys(answer[1] as object)[0] ?? '';
    const expected = [[null, { [bob]: true }], [null, { [me]: true }]];
    const byUser = (one: unknown[], other: unknown[]): number => user(one).localeCompare(user(other));
    assert.deepEqual([...answers.seen].sort(byUser), expected.sort(byUser));
    const all = new Inbox<unknown>('all');
    client.presence.getAll((error, users) => all.push([error, users?.includes(bob)]));
    assert.deepEqual(await all.next(), [null, true]);
  });

  test('a client that subscribes right after its login does not receive the join of its own user', async (t) => {
    // All shards have presence subscribers, so nothing delays a join. One shard is busy with other messages.
    for (let i = 0; i < 4; i += 1) await watches(await online(t, freshUser()), []);
    const busy = await RawPeer.login(server);
    const emit = getMessage({ topic: C.TOPIC.EVENT, action: C.EVENT_ACTION.EMIT, name: 'unheard', data: '1' } as never, false);
    const emits = Buffer.concat(Array.from({ length: 20_000 }, () => Buffer.from(emit)));
    const users = Array.from({ length: 20 }, () => freshUser());
    const own: Change[] = [];
    for (const user of users) {
      const client = await connect(t, server, { login: false });
      const note = (name: string, isOnline: boolean): void => void (name === user && own.push([name, isOnline]));
      client.presence.subscribe(note);
      client.presence.subscribe(user, note);
      busy.sendBytes(emits);
      await client.login({ username: user });
      // The owner of the user sends its answer after all changes of that user.
      assert.deepEqual(await client.presence.getAll([user]), { [user]: true });
    }
    busy.close();
    assert.deepEqual(own, []);
  });

  test('a client may unsubscribe from all users at once', async (t) => {
    const watcher = await online(t, freshUser());
    await watches(watcher, []);
    watcher.presence.unsubscribe();
    await watcher.wire.acknowledged('PRESENCE', UNSUBSCRIBE_ALL);
  });

  test('one message subscribes to a hundred users', async (t) => {
    const users = Array.from({ length: 100 }, () => freshUser());
    const watcher = await connect(t, server, { subscriptionInterval: 20 });
    const changes = new Inbox<string>('changes');
    for (const user of users) watcher.presence.subscribe(user, (name, isOnline) => isOnline && changes.push(name));
    await watcher.wire.acknowledged('PRESENCE', SUBSCRIBE, users[99]);
    const sessions = await Promise.all(users.slice(0, 30).map((user) => online(t, user)));
    await changes.count(30);
    assert.deepEqual([...changes.seen].sort(), users.slice(0, 30).sort());
    assert.equal(sessions.length, 30);
  });

  test('a second subscription is acknowledged, with a notice', async () => {
    const peer = await RawPeer.login(server);
    for (let i = 0; i < 2; i += 1) peer.send({ topic: PRESENCE, action: SUBSCRIBE_ALL });
    await peer.expectCount(PRESENCE, SUBSCRIBE_ALL, 2);
    const note = await peer.expect(PRESENCE, C.PRESENCE_ACTION.MULTIPLE_SUBSCRIPTIONS);
    assert.deepEqual([note.name, note.originalAction], ['%_EVERYONE_%', SUBSCRIBE_ALL]);
    peer.close();
  });

  test('the client refuses arguments that are not users or callbacks', async (t) => {
    const client = await online(t, freshUser());
    assert.throws(() => client.presence.subscribe('' as never), /invalid arguments/);
    assert.throws(() => client.presence.subscribe('user', 1 as never), /invalid arguments/);
    assert.throws(() => client.presence.unsubscribe(1 as never), /invalid argument/);
    assert.throws(() => client.presence.getAll(1 as never), /invalid argument/);
  });
});
