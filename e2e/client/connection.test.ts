// `@tidewire/client` on Node against the real server: logins, tokens, restarts, silence, and missed events.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { describe, test, type TestContext } from 'node:test';
import type { Client } from '../../packages/client/src/index.ts';
import { client, inState } from '../harness/driver/tidewire.ts';
import { fresh, freshUser } from '../harness/names.ts';
import { Proxy } from '../harness/proxy.ts';
import { Server } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { DEADLINE_MS, Inbox, within } from '../harness/wait.ts';

const SECRET = 'a secret of the e2e suite, long enough for HMAC';
/** The number of events that servers with history keep per name in this file. */
const KEPT = 20;

/** A connected client. */
async function connected(t: TestContext, address: string, options: Parameters<typeof client>[2] = {}): Promise<Client> {
  const made = client(t, address, options);
  await within(DEADLINE_MS, made.connect(), 'login');
  return made;
}

/** All later states of `made`. */
function statesOf(made: Client): Inbox<string> {
  const states = new Inbox<string>('states');
  made.onState((state) => states.push(state));
  return states;
}

describe('login', { concurrency: 4 }, () => {
  test('with a wrong password the client stays disconnected, and may try again with the right one', async (t) => {
    const user = freshUser();
    const users = { [user]: { password: hashPassword('secret'), clientData: { team: 'blue' } } };
    const server = await Server.during(t, { users });
    const made = client(t, server.address, { auth: { username: user, password: 'wrong' } });
    await assert.rejects(within(DEADLINE_MS, made.connect(), 'an answer'), { code: 'AUTH_REFUSED' });
    assert.deepEqual([made.state, made.closeReason?.code], ['closed', 'AUTH_REFUSED']);
    await within(DEADLINE_MS, made.connect({ auth: { username: user, password: 'secret' } }), 'login');
    assert.deepEqual(made.loginData, { team: 'blue' });
  });

  test('a function is called again when its token expires, and renews the login of the running session', async (t) => {
    const server = await Server.during(t, { auth: { chain: ['jwt'], jwt: { secret: SECRET } } });
    const asked = new Inbox<unknown>('questions for tokens');
    const auth = ({ refusal, renewIn }: { refusal: unknown; renewIn(ms: number): void }): object => {
      asked.push(refusal);
      if (asked.seen.length === 2) renewIn(50);
      return { token: asked.seen.length === 1 ? 'not a token' : server.token('--user', 'alice', '--expires-in', '1h') };
    };
    const made = await connected(t, server.address, { auth });
    const states = statesOf(made);
    await asked.count(3);
    assert.deepEqual(asked.seen, [undefined, { error: 'INVALID_TOKEN' }, undefined]);
    await within(DEADLINE_MS, made.renew({ token: server.token('--user', 'alice') }), 'the renewal');
    await assert.rejects(made.renew({ token: server.token('--user', 'bob') }), { code: 'OTHER_USER' });
    await assert.rejects(made.renew({ token: 'not a token' }), { code: 'AUTH_REFUSED' });
    assert.deepEqual([made.state, states.seen], ['open', []]);
  });

  test('a session whose login has expired continues with a new token', async (t) => {
    const server = await Server.during(t, { auth: { chain: ['jwt'], session_lifetime: '1s', jwt: { secret: SECRET } } });
    const auth = (): object => ({ token: server.token('--user', 'alice') });
    const made = await connected(t, server.address, { auth });
    const states = statesOf(made);
    await states.find((state) => state === 'open');
    assert.deepEqual(states.seen.slice(0, 4), ['waiting', 'connecting', 'authenticating', 'open']);
  });
});

describe('loss', { concurrency: 4 }, () => {
  test('after a server is killed and restarted, the client restores everything', async (t) => {
    const server = await Server.during(t);
    const [made, other] = [await connected(t, server.address), await connected(t, server.address)];
    const name = fresh('event');
    const inbox = new Inbox<unknown>('events');
    const gaps = new Inbox<unknown>('gaps');
    await made.event.subscribe(name, inbox.push, { onGap: gaps.push }).ready;
    await server.kill();
    await inState(made, 'waiting');
    other.event.emit(name, 'meanwhile');
    await server.start();
    await Promise.all([inState(made, 'open'), inState(other, 'open')]);
    assert.deepEqual(await gaps.next(), { name });
    // The other client may reconnect first and publish before this subscription exists, so publish after this confirmation.
    await made.event.subscribe(fresh('event'), () => {}).ready;
    other.event.emit(name, 'afterwards');
    assert.equal(await inbox.find((value) => value === 'afterwards'), 'afterwards');
  });

  test('silence makes the connection stale, and a silent connection is replaced', async (t) => {
    const server = await Server.during(t);
    const proxy = await Proxy.during(t, server);
    const made = await connected(t, proxy.address, { heartbeatIntervalMs: 50, staleAfterMs: 300 });
    const states = statesOf(made);
    proxy.silence('answers');
    // On a busy machine an earlier answer may have been late, so compare only the last states.
    await states.until((seen) => seen.slice(-2).join() === 'stale,waiting');
    proxy.restore();
    await inState(made, 'open');
  });

  test('after a pause a live connection is checked, and a dead one replaced', async (t) => {
    const server = await Server.during(t);
    const proxy = await Proxy.during(t, server);
    const living = await connected(t, server.address, { checkTimeoutMs: DEADLINE_MS });
    const proved = statesOf(living);
    living.check();
    assert.deepEqual(await proved.count(2), ['checking', 'open']);
    const made = await connected(t, proxy.address, { checkTimeoutMs: 200 });
    const states = statesOf(made);
    proxy.silence();
    made.check();
    assert.deepEqual(await states.count(2), ['checking', 'waiting']);
    proxy.restore();
    await states.find((state) => state === 'authenticating');
    await inState(made, 'open');
  });
});

describe('own events', { concurrency: 4 }, () => {
  test('reach others once and in order, whatever state the connection is in when they are emitted', async (t) => {
    const server = await Server.during(t, { auth: { chain: ['jwt'], jwt: { secret: SECRET } } });
    const auth = { token: server.token('--user', 'alice') };
    const proxy = await Proxy.during(t, server);
    const made = await connected(t, proxy.address, { auth, heartbeatIntervalMs: 300, staleAfterMs: 1_000 });
    const other = await connected(t, server.address, { auth });
    const [name, heard] = [fresh('event'), new Inbox<unknown>('events')];
    await other.event.subscribe(name, heard.push).ready;
    const emits = (what: string): void => made.event.emit(name, what);
    proxy.cut();
    await inState(made, 'waiting');
    emits('waiting');
    proxy.restore();
    await inState(made, 'open');
    emits('open');
    const renewed = made.renew({ token: server.token('--user', 'alice') });
    emits('renewal');
    await within(DEADLINE_MS, renewed, 'the renewal');
    made.check();
    emits('checking');
    await inState(made, 'open');
    proxy.silence('answers');
    await inState(made, 'stale');
    emits('stale');
    await inState(made, 'waiting');
    proxy.restore();
    await inState(made, 'open');
    emits('open again');
    const expected = ['waiting', 'open', 'renewal', 'checking', 'stale', 'open again'];
    await heard.find((what) => what === 'open again');
    assert.deepEqual(heard.seen, expected);
  });
});

describe('events with history', { concurrency: 4 }, () => {
  test('missed events arrive after a loss, in order and once, or as a gap', async (t) => {
    const server = await Server.during(t, { history: [`kept/* count=${KEPT}`] });
    const proxy = await Proxy.during(t, server);
    const [made, other] = [await connected(t, proxy.address), await connected(t, server.address)];
    const name = `kept/${fresh('event')}`;
    const inbox = new Inbox<unknown>('events and gaps');
    await made.event.subscribe(name, inbox.push, { onGap: ({ missed }) => inbox.push({ missed }) }).ready;
    let number = 0;
    const publish = async (count: number): Promise<void> => {
      for (const last = number + count; number < last; ) other.event.emit(name, (number += 1));
      // The answer to a call of this connection arrives after its earlier events have taken effect.
      await assert.rejects(other.rpc.call(fresh('rpc')), { code: 'NO_RPC_PROVIDER' });
    };
    for (const count of [3, 5]) {
      await publish(count);
      await inbox.find((value) => value === number);
      proxy.cut();
      await publish(2);
      proxy.restore();
      await inbox.find((value) => value === number);
    }
    assert.deepEqual(inbox.seen, Array.from({ length: 12 }, (_, i) => i + 1));
    proxy.cut();
    await inState(made, 'waiting');
    await publish(KEPT + 4);
    proxy.restore();
    await inbox.find((value) => value === number);
    assert.deepEqual(inbox.seen.slice(12, 14), [{ missed: 4 }, 17]);
    assert.equal(inbox.seen.length, 12 + 1 + KEPT);
  });

  test('another client continues from a stored offset', async (t) => {
    const server = await Server.during(t, { history: ['kept/*'] });
    const [made, other] = [await connected(t, server.address), await connected(t, server.address)];
    const name = `kept/${fresh('event')}`;
    const places = new Inbox<{ epoch: number; offset: number } | undefined>('places');
    const stop = made.event.subscribe(name, (_payload, { position }) => places.push(position));
    await stop.ready;
    other.event.emit(name, 'first');
    const from = await places.next();
    stop();
    other.event.emit(name, 'second');
    const missed = new Inbox<unknown>('missed');
    const late = await connected(t, server.address);
    late.event.subscribe(name, missed.push, { from: from ?? assert.fail('an event with history has a place') });
    assert.equal(await missed.next(), 'second');
  });
});

test('an idle client does not keep its process alive', async (t) => {
  const server = await Server.during(t);
  const source = new URL('../../packages/client/src/index.ts', import.meta.url);
  const program = `
    import { WebSocket } from 'ws';
    import { Client } from '${source}';
    const client = new Client('${server.address}', { webSocket: WebSocket });
    await client.connect();
    client.event.emit('news', 1);
    client.close();
  `;
  execFileSync(process.execPath, ['--import', 'tsx', '--input-type=module', '--eval', program], { timeout: 10_000, cwd: import.meta.dirname });
});
