// Every row of the table of permission cases through the unmodified client: the server executes the operation that the rule allows, and
// denies its opposite with the reason in the table.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { C, close, connect, inState, list, open, record, subscribed, type Message, type TestClient } from '../harness/client.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { DEADLINE_MS, within, type Inbox } from '../harness/wait.ts';
import { MARK, loginOf, startRuled } from '../permissions/start.ts';
import { PERMISSIONS, ROWS, SERVER_DATA, type Ask, type Asker } from '../permissions/table.ts';

const { EVENT, RECORD, RPC, PRESENCE } = C.TOPIC;

/** The listening methods of the unmodified client, which events and records share. */
interface Listened {
  listen: (pattern: string, found: (match: string, response: { reject: () => void }) => void) => void;
  unlisten: (pattern: string) => void;
}

const ignore = (): void => undefined;

/** The actions that report a denial, by topic. */
const REFUSALS: Record<number, Record<number, string>> = {
  [EVENT]: { 104: 'MESSAGE_DENIED', 103: 'MESSAGE_PERMISSION_ERROR' },
  [RECORD]: { 115: 'MESSAGE_DENIED', 114: 'MESSAGE_PERMISSION_ERROR' },
  [RPC]: { 107: 'MESSAGE_DENIED', 106: 'MESSAGE_PERMISSION_ERROR' },
  [PRESENCE]: { 102: 'MESSAGE_DENIED', 101: 'MESSAGE_PERMISSION_ERROR' },
};

const refusalOf = ({ topic, action, name }: Message, of: string): string | undefined =>
  name === of ? REFUSALS[topic]?.[action] : undefined;

test("the file of rules is valid for deepstream's server", async (t) => {
  // The suite also runs against deepstream's own server, with the same file.
  const server = await Server.during(t, { permissions: PERMISSIONS });
  const client = await connect(t, server);
  assert.equal(await client.record.has('x'), false);
});

describe('permission rules', { skip: againstOriginal && 'deepstream accepts falsy rules and has no merged patches' }, () => {
  const clients = new Map<Asker, TestClient>();
  /** The events that the observer receives, by name. */
  const events = new Map<string, Inbox<unknown>>();
  let server: Server;
  let stop: () => Promise<void>;
  let observer: TestClient;

  /** Logs in a client that all rows share. */
  async function login(asker: Asker): Promise<TestClient> {
    const client = open(server.address, { subscriptionInterval: 0 });
    await inState(client, C.CONNECTION_STATE.AWAITING_AUTHENTICATION);
    await within(DEADLINE_MS, client.login(loginOf(asker)), 'login');
    return client;
  }

  before(async () => {
    ({ server, stop } = await startRuled());
    for (const asker of [...Object.keys(SERVER_DATA), 'guest'] as Asker[]) clients.set(asker, await login(asker));
    observer = await login('guest');
  });

  after(async () => {
    [...clients.values(), observer].forEach((client) => client && close(client));
    await stop();
  });

  const reason = (promise: Promise<unknown>): Promise<string> =>
    within(DEADLINE_MS, promise.then(() => 'allowed', (error: unknown) => String(error)), 'an outcome');

  /** Runs `act`, which the shard of the connection authorizes. A later answer about the marker record arrives after the denial. */
  async function judgedAtOnce(client: TestClient, name: string, act: () => void): Promise<string> {
    let outcome = 'allowed';
    let isOver = false;
    client.wire.onReceived((message) => {
      if (!isOver) outcome = refusalOf(message, name) ?? outcome;
    });
    act();
    await within(DEADLINE_MS, client.record.head(MARK), 'the mark');
    isOver = true;
    return outcome;
  }

  /**
   * Listens with a pattern that matches `name` and a name that the rules allow. The server accepts the pattern, because it allows one of
   * the names. It does not offer a denied name, but it offers the allowed name, which gets its subscriber later.
   */
  async function offered(topic: Listened, name: string, wish: { begin: (name: string) => void; end: (name: string) => void }): Promise<string> {
    const pattern = `${name.replace(/^k\/(yes|no)\//, '^k/(yes|no)/')}$`;
    const allowed = name.replace('/no/', '/yes/');
    const offers = new Set<string>();
    const isOffered = new Promise<void>((done) => {
      topic.listen(pattern, (match, response) => {
        offers.add(match);
        response.reject();
        if (match === allowed) done();
      });
    });
    const names = new Set([name, allowed]);
    names.forEach(wish.begin);
    await within(DEADLINE_MS, isOffered, 'the allowed name is offered');
    await within(DEADLINE_MS, observer.record.head(MARK), 'the mark');
    topic.unlisten(pattern);
    names.forEach(wish.end);
    return offers.has(name) ? 'allowed' : 'MESSAGE_DENIED';
  }

  /** Runs `act` and waits for a denial of `name` or for a message that `isDone` accepts. */
  async function answered(client: TestClient, name: string, isDone: (message: Message) => boolean, act: () => void): Promise<string> {
    const answer = client.wire.receives((message) => refusalOf(message, name) !== undefined || isDone(message));
    act();
    return refusalOf(await answer, name) ?? 'allowed';
  }

  async function outcomeOf({ by, operation, name, data, path = '' }: Ask): Promise<string> {
    const client = clients.get(by) as TestClient;
    const value = data as C.JSONObject;
    switch (operation) {
      case 'publish': {
        const heard = events.get(name) ?? (await subscribed(observer, name));
        events.set(name, heard);
        const outcome = await judgedAtOnce(client, name, () => client.event.emit(name, data as never));
        if (outcome === 'allowed') {
          assert.deepEqual(await heard.next(), data);
        } else {
          const before = heard.seen.length;
          await within(DEADLINE_MS, observer.record.head(MARK), 'the mark');
          assert.equal(heard.seen.length, before);
        }
        return outcome;
      }
      case 'subscribe': {
        const outcome = await judgedAtOnce(client, name, () => client.event.subscribe(name, () => undefined));
        assert.equal(client.event.eventNames().includes(name), outcome === 'allowed');
        return outcome;
      }
      case 'listenEvents':
        return offered(client.event, name, {
          begin: (wanted) => observer.event.subscribe(wanted, ignore),
          end: (wanted) => observer.event.unsubscribe(wanted, ignore),
        });
      case 'listenRecords':
        return offered(client.record, name, {
          begin: (wanted) => void observer.record.getRecord(wanted),
          end: (wanted) => observer.record.getRecord(wanted).discard(),
        });
      case 'provide':
        return judgedAtOnce(client, name, () => client.rpc.provide(name, (_data, response) => response.send(1)));
      case 'request': {
        const outcome = await reason(client.rpc.make(name, data as never) as Promise<unknown>);
        return outcome === 'NO_RPC_PROVIDER' ? 'allowed' : outcome;
      }
      case 'read': {
        const outcome = await reason(client.record.snapshot(name) as Promise<unknown>);
        return outcome === 'RECORD_NOT_FOUND' ? 'allowed' : outcome;
      }
      case 'head':
        return reason(client.record.head(name) as Promise<unknown>);
      case 'open':
        return answered(client, name, ({ action, name: of }) => action === C.RECORD_ACTION.READ_RESPONSE && of === name, () => {
          client.record.getRecord(name).on('error', () => undefined);
        });
      case 'write':
        return reason(client.record.setDataWithAck(name, value) as Promise<unknown>);
      case 'patch':
        return reason(client.record.setDataWithAck(name, path, value) as Promise<unknown>);
      case 'erase':
        return reason(client.record.setDataWithAck(name, path, undefined as never) as Promise<unknown>);
      case 'delete': {
        const opened = await record(client, name);
        return reason(opened.delete() as Promise<unknown>);
      }
      case 'readList':
        return answered(client, name, ({ action, name: of }) => action === C.RECORD_ACTION.READ_RESPONSE && of === name, () => {
          client.record.getList(name).on('error', () => undefined);
        });
      case 'writeList':
        return reason((await list(client, name)).setEntriesWithAck(data as string[]));
      case 'deleteList':
        return reason((await list(client, name)).delete() as Promise<unknown>);
      case 'notify':
        return answered(client, name, ({ action, isAck }) => action === C.RECORD_ACTION.NOTIFY && isAck === true, () => {
          void client.record.notify([name]);
        });
      case 'queryUser':
        return reason(client.presence.getAll([name]) as Promise<unknown>);
      case 'queryAll':
        return reason(client.presence.getAll() as Promise<unknown>);
      case 'watchUser':
        return judgedAtOnce(client, name, () => client.presence.subscribe(name, () => undefined));
    }
  }

  test(`the table has enough rows: ${ROWS.length} different rules with ${2 * ROWS.length} cases`, () => {
    assert.ok(ROWS.length >= 150);
    assert.equal(new Set(ROWS.map(({ what }) => what)).size, ROWS.length);
  });

  for (const { what, allowed, refused, refusal } of ROWS) {
    test(what, async () => {
      assert.equal(await outcomeOf(allowed), 'allowed');
      assert.equal(await outcomeOf(refused), refusal);
    });
  }

  test('a denial is logged with its rule in development mode', async (t) => {
    const developing = await Server.during(t, { permissions: PERMISSIONS, logLevel: 'info' });
    const client = open(developing.address, { subscriptionInterval: 0 });
    t.after(() => close(client));
    await within(DEADLINE_MS, client.login({}), 'login');
    client.event.emit('k/no/publish', 1 as never);
    await developing.prints(/denied.*k\/no\/publish.*permissions\.yml:\d+:\d+.*publish: false.*permissions\.yml:\d+:\d+.*publish: true/s);
  });
});
