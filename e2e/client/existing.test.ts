// Records that `@tidewire/client` opens only if they exist (`create: false`), against the real server.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import type { Client, TidewireError } from '../../packages/client/src/index.ts';
import { openList } from '../../packages/client/src/lists.ts';
import { client, inState } from '../harness/driver/tidewire.ts';
import { fresh } from '../harness/names.ts';
import { Proxy } from '../harness/proxy.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, within } from '../harness/wait.ts';

const RULES = `
presence: { "*": { allow: true } }
event: { "*": { publish: true, subscribe: true, listen: true } }
rpc: { "*": { provide: true, request: true } }
record:
  "*": { create: true, read: true, write: true, delete: true, listen: true, notify: true }
  "secret/*": { create: true, read: "user.id === 'alice'", write: true, delete: true, listen: true, notify: true }
`;

async function connected(t: TestContext, address: string, user = 'alice'): Promise<Client> {
  const made = client(t, address, { auth: { username: user } });
  await within(DEADLINE_MS, made.connect(), 'login');
  return made;
}

describe('records that must not be created', { concurrency: 3, timeout: 60_000 }, () => {
  test('a missing record stays missing, and its value arrives when another client writes it', async (t) => {
    const server = await Server.during(t);
    const [alice, bob] = [await connected(t, server.address), await connected(t, server.address, 'bob')];
    const name = fresh('record');
    const mine = alice.record.open<string>(name, { create: false });
    const values = new Inbox<unknown>('values');
    mine.subscribe(values.push);
    await assert.rejects(within(DEADLINE_MS, mine.ready, 'an answer'), { code: 'RECORD_NOT_FOUND', subject: name });
    assert.deepEqual([mine.value, mine.version, mine.notFound?.code, mine.isSaved], [undefined, -1, 'RECORD_NOT_FOUND', true]);
    await assert.rejects(mine.setWithAck({ title: 'x' }), { code: 'RECORD_NOT_FOUND' });
    assert.equal(await bob.record.get(name), undefined, 'nothing was created');
    await bob.record.set(name, { title: 'milk' });
    assert.deepEqual(await values.next(), { title: 'milk' });
    assert.equal(mine.notFound, undefined);
    await within(DEADLINE_MS, mine.setWithAck('title', 'bread'), 'an edit');
    assert.deepEqual(await bob.record.get(name), { title: 'bread' });
  });

  test('an existing record is like any other, and a deleted one ends', async (t) => {
    const server = await Server.during(t);
    const [alice, bob] = [await connected(t, server.address), await connected(t, server.address, 'bob')];
    const name = fresh('record');
    await bob.record.set(name, { title: 'milk' });
    const ends = new Inbox<TidewireError>('ends');
    const mine = alice.record.open<string>(name, { create: false, onEnd: ends.push });
    await within(DEADLINE_MS, mine.ready, 'the record');
    assert.deepEqual(mine.value, { title: 'milk' });
    await bob.record.delete(name);
    assert.equal((await ends.next()).code, 'RECORD_DELETED');
    const again = alice.record.open<string>(name, { create: false });
    await assert.rejects(within(DEADLINE_MS, again.ready, 'an answer'), { code: 'RECORD_NOT_FOUND' });
  });

  test('a record that the user may not read is refused, whether it exists or not', async (t) => {
    const server = await Server.during(t, { permissions: RULES });
    const [alice, eve] = [await connected(t, server.address), await connected(t, server.address, 'eve')];
    const [there, missing] = [fresh('secret/'), fresh('secret/')];
    await alice.record.set(there, { title: 'secret' });
    for (const name of [there, missing]) {
      const record = eve.record.open<string>(name, { create: false });
      await assert.rejects(within(DEADLINE_MS, record.ready, 'an answer'), { code: 'MESSAGE_DENIED' });
      assert.equal(record.notFound, undefined);
    }
    assert.equal(await alice.record.get(missing), undefined);
  });

  test('a handle that creates the record creates it for handles that do not', async (t) => {
    const server = await Server.during(t);
    const alice = await connected(t, server.address);
    const name = fresh('record');
    const existing = alice.record.open<string>(name, { create: false });
    await assert.rejects(existing.ready, { code: 'RECORD_NOT_FOUND' });
    const made = alice.record.open<string>(name);
    await within(DEADLINE_MS, made.ready, 'the record');
    assert.deepEqual([made.value, existing.value, existing.notFound], [{}, {}, undefined]);
    await existing.setWithAck('title', 'x');
    assert.deepEqual(made.value, { title: 'x' });
  });

  test('after a loss the client opens it in the same way', async (t) => {
    const server = await Server.during(t);
    const proxy = await Proxy.during(t, server);
    const [alice, bob] = [await connected(t, proxy.address), await connected(t, server.address, 'bob')];
    const [missing, there] = [fresh('record'), fresh('record')];
    await bob.record.set(there, { title: 'old' });
    const [first, second] = [alice.record.open<string>(missing, { create: false }), alice.record.open<string>(there, { create: false })];
    await assert.rejects(first.ready, { code: 'RECORD_NOT_FOUND' });
    await second.ready;
    proxy.cut();
    await inState(alice, 'waiting');
    await bob.record.delete(there);
    await bob.record.set(missing, { title: 'new' });
    proxy.restore();
    await eventually(() => first.value !== undefined && second.value === undefined, 'both are as the server has them');
    assert.deepEqual([first.value, second.notFound?.code], [{ title: 'new' }, 'RECORD_NOT_FOUND']);
    await assert.rejects(second.setWithAck('title', 'x'), { code: 'RECORD_NOT_FOUND' });
    assert.equal(await bob.record.get(there), undefined);
  });

  test('a list', async (t) => {
    const server = await Server.during(t);
    const alice = await connected(t, server.address);
    const list = openList(alice.record, fresh('list'), { create: false });
    await assert.rejects(list.ready, { code: 'RECORD_NOT_FOUND' });
    await assert.rejects(list.add('x'), { code: 'RECORD_NOT_FOUND' });
    assert.deepEqual(list.entries, []);
  });
});
