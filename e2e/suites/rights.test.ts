// Rights that change while clients are connected: logins that expire or are renewed, and rules that change under load.

import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { describe, test, type TestContext } from 'node:test';
import { C, connect, inState, record, subscribed, type TestClient } from '../harness/client.ts';
import { openStream, type EventStream } from '../harness/event-stream.ts';
import { command, url } from '../harness/http.ts';
import { fresh, freshUser } from '../harness/names.ts';
import { RawPeer } from '../harness/raw.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { Inbox, eventually } from '../harness/wait.ts';

const SECRET_KEY = 'a secret of the e2e suite, long enough for HMAC';
const JWT = { auth: { chain: ['jwt'], jwt: { secret: SECRET_KEY } } };
/** The server allows clocks to differ by this many seconds, so it accepts a token for that long after its expiry. */
const LEEWAY_S = 30;
/** Lifetime of a short login in seconds. It is mostly longer than a test needs for its steps before the expiry; see `inTime`. */
const SHORT = 5;
const LONG = 3_600;

/** A token that the server accepts for this many seconds. */
function token(user: string, seconds: number): string {
  const encode = (part: object): string => Buffer.from(JSON.stringify(part)).toString('base64url');
  const exp = Math.floor(Date.now() / 1_000) + seconds - LEEWAY_S;
  const signed = `${encode({ alg: 'HS256', typ: 'JWT' })}.${encode({ sub: user, exp })}`;
  return `${signed}.${createHmac('sha256', SECRET_KEY).update(signed).digest('base64url')}`;
}

/**
 * Runs the steps that must end before a login of `seconds` expires. If the machine was too busy for that, runs them again with a new
 * server, new clients and twice the time.
 */
async function inTime<T>(test: TestContext, prepare: (server: Server, seconds: number) => Promise<T>): Promise<[Server, T]> {
  for (let seconds = SHORT; ; seconds *= 2) {
    const [server, begin] = [await Server.during(test, JWT), Date.now()];
    const prepared = await prepare(server, seconds).then((value) => ({ value }), (error: unknown) => ({ error }));
    const isInTime = Date.now() - begin < (seconds - 1) * 1_000;
    if ('value' in prepared && isInTime) return [server, prepared.value];
    if (isInTime) throw (prepared as { error: unknown }).error;
  }
}

interface Failure {
  reason: { code?: string; error?: string };
}

function failures(client: TestClient): Inbox<Failure> {
  const failures = new Inbox<Failure>('failed renewals of the login');
  client.on('reauthenticationFailure', (failure: unknown) => failures.push(failure as Failure));
  return failures;
}

/** A shard publishes its counts after it has sent, so on a busy machine the client may reconnect before the count changes. */
async function expiryIsCounted(server: Server): Promise<void> {
  await eventually(async () => (await server.metric('tidewire_expired_sessions_total')) === 1, 'the expiry is counted');
}

describe('a login that expires', { concurrency: 4, skip: againstOriginal }, () => {
  test('ends, and the client waits for its application instead of reconnecting repeatedly', async (t) => {
    const [name, heard] = [fresh('event'), new Inbox<unknown>('events')];
    const [server, [client, failed]] = await inTime(t, async (server, seconds) => {
      const client = await connect(t, server, { login: { token: token('alice', seconds) } });
      client.event.subscribe(name, heard.push);
      return [client, failures(client)] as const;
    });
    // The client has reconnected with the same token.
    const { code, error } = (await failed.next()).reason;
    assert.match(`${code} ${error}`, /LOGIN_EXPIRED|TOKEN_EXPIRED/);
    await inState(client, C.CONNECTION_STATE.AWAITING_AUTHENTICATION);
    await expiryIsCounted(server);
    await client.login({ token: token('alice', LONG) });
    await client.wire.acknowledged('EVENT', C.EVENT_ACTION.SUBSCRIBE, name);
    const writer = await connect(t, server, { login: { token: token('bob', LONG) } });
    writer.event.emit(name, 1);
    assert.equal(await heard.next(), 1);
    assert.equal(failed.seen.length, 1);
  });

  test('continues without an error if the application has set another token before', async (t) => {
    const [server, [client, failed, login]] = await inTime(t, async (server, seconds) => {
      const client = await connect(t, server, { login: { token: token('alice', seconds) } });
      const failed = failures(client);
      // The client keeps this token for its next connection, which begins when the old one ends.
      return [client, failed, client.login({ token: token('alice', LONG) })] as const;
    });
    await login;
    await expiryIsCounted(server);
    await inState(client, C.CONNECTION_STATE.OPEN);
    assert.deepEqual(failed.seen, []);
  });

  test('ends its own stream of server-sent events, and no other stream', async (t) => {
    const stream = async (server: Server, seconds: number): Promise<EventStream> => {
      const opened = await openStream(t, url(server, '/sse?record=r'), { authorization: `Bearer ${token('alice', seconds)}` });
      assert.equal(opened.answer.status, 200);
      assert.equal((await opened.pieces.next()).event, 'deleted');
      return opened;
    };
    const [server, short] = await inTime(t, stream);
    const long = await stream(server, LONG);
    assert.equal((await short.pieces.next(120_000)).event, 'end');
    await command(server, { topic: 'record', action: 'write', recordName: 'r', data: { n: 1 } }, { token: token('bob', LONG) });
    assert.equal((await long.pieces.next()).data.version, 1);
    assert.equal(short.pieces.seen.length, 2);
  });

  test('can be renewed in place', async (t) => {
    const { REQUEST, AUTH_SUCCESSFUL } = C.AUTH_ACTION;
    const [, [peer, late]] = await inTime(t, async (server, seconds) => {
      const peer = await RawPeer.login(server, { token: token('alice', seconds) });
      const login = { token: token('alice', LONG) };
      peer.received.take();
      peer.send({ topic: C.TOPIC.AUTH, action: REQUEST, data: JSON.stringify(login) });
      await peer.expect(C.TOPIC.AUTH, AUTH_SUCCESSFUL);
      return [peer, await RawPeer.login(server, { token: token('bob', seconds) })] as const;
    });
    // A session that logged in later with an equally short token ends, and the renewed session is still open.
    await late.closed;
    peer.send({ topic: C.TOPIC.CONNECTION, action: C.CONNECTION_ACTION.PING });
    await peer.expect(C.TOPIC.CONNECTION, C.CONNECTION_ACTION.PONG);
  });
});

/** Rules that allow everything, except that the condition `refused` denies subscriptions to events and reads of records. */
function rules(refused: string): string {
  const all = (...actions: string[]): Record<string, string | boolean> => Object.fromEntries(actions.map((action) => [action, true]));
  return JSON.stringify({
    presence: { '*': all('allow') },
    record: { '*': { ...all('create', 'write', 'delete', 'listen', 'notify'), read: `!(${refused})` } },
    event: { '*': { ...all('publish', 'listen'), subscribe: `!(${refused})` } },
    rpc: { '*': all('provide', 'request') },
  });
}

const SECRET = "name.startsWith('secret/')";

describe('rules that change', { concurrency: 4, skip: againstOriginal }, () => {
  /** Waits until the server has applied this many changes of the rules. */
  async function hold(server: Server, count: number): Promise<void> {
    await eventually(async () => (await server.metric('tidewire_rules_reloads_total')) >= count, 'the new rules are in force');
  }

  test('end exactly the denied subscriptions, under load', async (t) => {
    const server = await Server.during(t, { permissions: rules('false') });
    const kinds = ['open', 'secret'].map((kind) => fresh(`${kind}/name`));
    const [open, secret] = kinds as [string, string];
    const readers = await Promise.all(
      Array.from({ length: 12 }, () => connect(t, server, { errors: ['MESSAGE_DENIED'] })),
    );
    const heard = await Promise.all(readers.map((reader) => Promise.all(kinds.map((name) => subscribed(reader, name)))));
    const opened = await Promise.all(readers.map((reader) => Promise.all(kinds.map((name) => record(reader, name)))));
    const lost = readers.map((_, index) => {
      const lost = new Inbox<string>('lost records');
      opened[index]?.forEach((held) => held.on('error', (error: string) => lost.push(`${error} ${held.name}`)));
      return lost;
    });
    const writer = await connect(t, server);
    let number = 0;
    let isLoading = true;
    const load = (async () => {
      while (isLoading) {
        number += 1;
        for (const name of kinds) {
          writer.event.emit(name, number);
          await writer.record.setDataWithAck(name, { number });
        }
      }
    })();
    await Promise.all(heard.flat().map((inbox) => inbox.count(20)));
    server.setPermissions(rules(SECRET));
    server.hangUp();
    await hold(server, 1);
    // No reader may receive a secret event that was emitted after this point.
    const acknowledged = number + 1;
    await Promise.all(heard.map(([inbox]) => inbox?.find((value: number) => value >= acknowledged + 20)));
    isLoading = false;
    await load;
    await Promise.all(heard.map(([inbox]) => inbox?.find((value: number) => value === number)));
    for (const [index, [, inbox]] of heard.entries()) {
      const late = inbox?.seen.filter((value: number) => value > acknowledged);
      assert.deepEqual(late, []);
      assert.deepEqual(lost[index]?.seen, [`MESSAGE_DENIED ${secret}`]);
      await eventually(() => opened[index]?.[0]?.get('number') === number, 'the open record has its newest value');
      assert.ok((opened[index]?.[1]?.get('number') as number) <= acknowledged);
    }
    // The engine publishes its counts periodically.
    const areCounted = async (): Promise<boolean> => (await server.metric('tidewire_rights_lost_total')) === 2 * readers.length;
    await eventually(areCounted, 'the lost rights are counted');
    assert.equal(open.startsWith('open/'), true);
  });

  test('are loaded from a changed file, but not if they are wrong', async (t) => {
    const server = await Server.during(t, { permissions: rules('false') });
    const reader = await connect(t, server, { errors: ['MESSAGE_DENIED'] });
    const name = fresh('secret/event');
    await subscribed(reader, name);
    server.setPermissions('event:\n  "*":\n    subscribe: "user.id ==="\n');
    await server.prints(/could not reload the rules; the previous rules stay in force/);
    await server.prints(/permissions\.yml:\d+:\d+/);
    const ready = (await (await server.get('/ready')).json()) as { ready: boolean; warnings: Array<{ code: string }> };
    assert.deepEqual([ready.ready, ready.warnings.map(({ code }) => code)], [true, ['rules_stale']]);
    assert.equal(await server.metric('tidewire_rules_stale'), 1);
    assert.equal(await server.metric('tidewire_rights_lost_total'), 0);
    server.setPermissions(rules(SECRET));
    await hold(server, 1);
    assert.equal((await reader.errors.next()).event, 'MESSAGE_DENIED');
    assert.equal(await server.metric('tidewire_rules_stale'), 0);
    await eventually(async () => (await server.metric('tidewire_rights_lost_total')) === 1, 'the lost right is counted');
  });
});

/** Rules that allow everything, except that `rule` decides about reads of the names `doc/$id`. */
function readBy(rule: string): string {
  const permissions = JSON.parse(rules('false')) as { record: Record<string, Record<string, string | boolean>> };
  permissions.record['doc/$id'] = { ...permissions.record['*'], read: rule };
  return JSON.stringify(permissions);
}

describe('a right to read that depends on data', { concurrency: 4, skip: againstOriginal }, () => {
  const cases = [
    ['another record', "_('acl/' + $id).open === true", (id: string) => [`acl/${id}`, { open: false }] as const],
    ['the record itself', 'oldData.open !== false', (id: string) => [`doc/${id}`, { number: -1, open: false }] as const],
  ] as const;
  for (const [what, rule, taken] of cases) {
    test(`ends with a change of ${what}, before the next change is sent`, async (t) => {
      const server = await Server.during(t, { permissions: readBy(rule) });
      const writer = await connect(t, server);
      const ids = [freshUser('stays'), freshUser('goes')] as const;
      const names = ids.map((id) => `doc/${id}`);
      for (const id of ids) {
        await writer.record.setDataWithAck(`acl/${id}`, { open: true });
        await writer.record.setDataWithAck(`doc/${id}`, { number: 0 });
      }
      // More readers than shards, so that some are on other shards than the owners.
      const readers = await Promise.all(Array.from({ length: 6 }, () => connect(t, server, { errors: ['MESSAGE_DENIED'] })));
      const opened = await Promise.all(readers.map((reader) => Promise.all(names.map((name) => record(reader, name)))));
      const lost = opened.map(([, goes]) => {
        const lost = new Inbox<string>('lost records');
        goes?.on('error', (error: string) => lost.push(`${error} ${goes.name}`));
        return lost;
      });
      const stream = await openStream(t, url(server, `/sse?${names.map((name) => `record=${encodeURIComponent(name)}`).join('&')}`));
      await stream.pieces.count(2);
      const write = async (number: number): Promise<void> => {
        for (const name of names) await writer.record.setDataWithAck(name, { number });
      };
      await write(1);
      await eventually(() => opened.flat().every((held) => held.get('number') === 1), 'all have the first change');
      for (const name of names) await stream.pieces.find(({ data }) => data.name === name && data.version === 2);
      const [taker, data] = taken(ids[1]);
      await writer.record.setDataWithAck(taker, data);
      await write(2);
      await write(3);
      await eventually(() => opened.every(([stays]) => stays?.get('number') === 3), 'the permitted records have the last change');
      for (const inbox of lost) assert.equal(await inbox.next(), `MESSAGE_DENIED ${names[1]}`);
      assert.deepEqual(opened.map(([, goes]) => goes?.get('number')), readers.map(() => 1));
      await stream.pieces.find(({ data }) => data.name === names[0] && data.version === 4);
      const told = stream.pieces.seen.filter(({ data }) => data.name === names[1]).map(({ event, data }) => [event, data.code ?? data.version]);
      assert.deepEqual(told.slice(-2), [['record', 2], ['refused', 'MESSAGE_DENIED']]);
      const areCounted = async (): Promise<boolean> => (await server.metric('tidewire_rights_lost_total')) === readers.length + 1;
      await eventually(areCounted, 'the lost rights are counted');
      // Each reader has lost only that subscription.
      assert.deepEqual(lost.map(({ seen }) => seen.length), readers.map(() => 1));
    });
  }
});
