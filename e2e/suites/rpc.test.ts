// Remote procedure calls: each call gets exactly one answer, from its provider or with the reason of the failure.

import assert from 'node:assert/strict';
import { after, before, describe, test, type TestContext } from 'node:test';
import { C, close, connect, inState, pair, type RpcResponse, type TestClient } from '../harness/client.ts';
import { covers } from '../harness/coverage.ts';
import { DRIVERS, peers, type Peer, type PeerOptions, type Provider } from '../harness/driver/driver.ts';
import { fresh, freshUser } from '../harness/names.ts';
import { RawPeer } from '../harness/raw.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { DEADLINE_MS, Inbox, within } from '../harness/wait.ts';

/** Callers and providers share one process here, which may pause for longer than the default of a second. */
const PATIENT = { rpcAcceptTimeoutMs: DEADLINE_MS };
/** Timeouts that expire in the tests. Long, because the process of a provider that answers in time may pause, too. */
const LIMITS = { rpcAcceptTimeoutMs: 2_000, rpcResponseTimeoutMs: 4_000 };

type DeepstreamProvider = Parameters<TestClient['rpc']['provide']>[1];

const RPC = C.TOPIC.RPC;
const { REQUEST, ACCEPT, RESPONSE, REQUEST_ERROR, REJECT, PROVIDE, UNPROVIDE } = C.RPC_ACTION;

/** Registers `provider` for `name` and waits until the server confirmed it. */
async function provides(client: TestClient, name: string, provider: DeepstreamProvider): Promise<void> {
  client.rpc.provide(name, provider);
  await client.wire.acknowledged('RPC', PROVIDE, name);
}

/** The reason with which `call` fails. */
async function failure(call: Promise<unknown>): Promise<unknown> {
  const outcome = call.then(
    (value) => assert.fail(`answered with ${JSON.stringify(value)}`),
    (reason: unknown) => reason,
  );
  return within(DEADLINE_MS, outcome, 'the call fails');
}

for (const driver of DRIVERS) {
  describe(`rpc with ${driver.name}`, { concurrency: 8 }, () => {
    let server: Server;
    before(async () => {
      server = await Server.start(PATIENT);
    });
    after(() => server.dispose());
    const connect = (t: TestContext, options?: PeerOptions): Promise<Peer> => driver.connect(t, server, options);
    const pair = (t: TestContext, options?: PeerOptions): Promise<[Peer, Peer]> => peers(driver, t, server, options);

    /** A caller, and two providers of one name, on the same node, that answer with the functions `providers`. */
    async function balanced(t: TestContext, ...providers: [Provider, Provider]) {
      const name = fresh('rpc');
      const caller = await connect(t);
      const clients = await pair(t, { through: server.ownAddress });
      await clients[0].provide(name, providers[0]);
      await clients[1].provide(name, providers[1]);
      return { name, caller };
    }

    test('a call is answered by its provider', async (t) => {
      const [caller, provider] = await pair(t);
      const name = fresh('rpc');
      await provider.provide(name, ({ a, b }: { a: number; b: number }, response) => response.send(a + b));
      assert.equal(await caller.call(name, { a: 2, b: 3 }), 5);
      covers(['RPCHandler.provide', 'RPCHandler.make', 'RPCResponse.send'], 'success');
    });

    const values = [{ a: [1, null] }, [1, 'b'], 'ünï 🎉', '', 0, -1.5, true, false, null, undefined, 'x'.repeat(100_000)];
    test('every JSON value arrives unchanged in both directions', async (t) => {
      const [caller, provider] = await pair(t);
      const name = fresh('rpc');
      await provider.provide(name, (data, response) => response.send(data));
      for (const value of values) assert.deepEqual(await caller.call(name, value), value);
    });

    test('a call without a provider fails at once', async (t) => {
      const client = await connect(t);
      assert.equal(await failure(client.call(fresh('rpc'), 1)), 'NO_RPC_PROVIDER');
      covers('RPCHandler.make', 'refusal');
    });

    test('a provider may fail a call with any value', async (t) => {
      const [caller, provider] = await pair(t);
      const name = fresh('rpc');
      await provider.provide(name, (data, response) => response.error(data));
      for (const value of ['out of stock', { code: 7 }, ['a'], 42]) {
        assert.deepEqual(await failure(caller.call(name, value)), value);
      }
      covers('RPCResponse.error', 'success');
    });

    test('calls are distributed over the providers', async (t) => {
      const send = (who: string): Provider => (_data, response) => response.send(who);
      const { name, caller } = await balanced(t, send('first'), send('second'));
      const answers = await Promise.all(Array.from({ length: 60 }, () => caller.call(name, null)));
      assert.deepEqual(new Set(answers), new Set(['first', 'second']));
    });

    test('a rejected call goes to the other provider', async (t) => {
      const rejections = new Inbox<string>('rejections');
      const reject: Provider = (data, response) => {
        rejections.push(data);
        response.reject();
      };
      const { name, caller } = await balanced(t, reject, (data, response) => response.send(`done ${data}`));
      const calls = Array.from({ length: 30 }, (_, i) => caller.call(name, `call ${i}`));
      assert.deepEqual(await Promise.all(calls), calls.map((_, i) => `done call ${i}`));
      assert.ok(rejections.seen.length > 0);
      covers('RPCResponse.reject', 'success');
    });

    test('a call that all providers reject fails', async (t) => {
      const asked = new Inbox<string>('providers asked');
      const reject = (who: string): Provider => (_data, response) => {
        asked.push(who);
        response.reject();
      };
      const { name, caller } = await balanced(t, reject('first'), reject('second'));
      assert.equal(await failure(caller.call(name, null)), 'NO_RPC_PROVIDER');
      assert.deepEqual([...asked.seen].sort(), ['first', 'second']);
    });

    test('a thousand calls in flight each get their own answer', async (t) => {
      const double: Provider = (data, response) => response.send(data * 2);
      const { name, caller } = await balanced(t, double, double);
      const calls = Array.from({ length: 1_000 }, (_, i) => caller.call(name, i));
      const answers = await within(DEADLINE_MS, Promise.all(calls), 'a thousand answers');
      assert.deepEqual(answers, answers.map((_, i) => i * 2));
    });

    test('a client may call an rpc that it provides', async (t) => {
      const client = await connect(t);
      const name = fresh('rpc');
      await client.provide(name, (data, response) => response.send([data]));
      assert.deepEqual(await client.call(name, 'own'), ['own']);
    });

    test('the server no longer asks a client that stopped providing', async (t) => {
      const [caller, provider] = await pair(t);
      const name = fresh('rpc');
      const stop = await provider.provide(name, (_data, response) => response.send('once'));
      assert.equal(await caller.call(name, null), 'once');
      await stop();
      assert.equal(await failure(caller.call(name, null)), 'NO_RPC_PROVIDER');
      await provider.provide(name, (_data, response) => response.send('again'));
      assert.equal(await caller.call(name, null), 'again');
      covers('RPCHandler.unprovide', 'success');
    });

    test('when the only provider disconnects, the call fails at once', { skip: againstOriginal && 'deepstream waits for the timeout' }, async (t) => {
      const [caller, provider] = await pair(t, { errors: ['IS_CLOSED'] });
      const name = fresh('rpc');
      const asked = new Inbox<unknown>('requests');
      await provider.provide(name, asked.push);
      const started = Date.now();
      const call = failure(caller.call(name, null));
      await asked.count(1);
      provider.close();
      assert.equal(await call, 'NO_RPC_PROVIDER');
      assert.ok(Date.now() - started < 9_000, 'before the response timeout');
    });
  });
}

describe('rpc of deepstream clients', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start(PATIENT);
  });
  after(() => server.dispose());

  /** A caller, and two providers of one name that answer with `providers`. */
  async function balanced(t: TestContext, ...providers: [DeepstreamProvider, DeepstreamProvider]) {
    const name = fresh('rpc');
    const caller = await connect(t, server);
    // A provider that closes in the middle of a call may still try to accept it.
    const clients = await pair(t, server, { errors: ['IS_CLOSED'] });
    await provides(clients[0], name, providers[0]);
    await provides(clients[1], name, providers[1]);
    return { name, caller, clients };
  }

  test('the callback form receives the answer, too', async (t) => {
    const [caller, provider] = await pair(t, server);
    const name = fresh('rpc');
    await provides(provider, name, (data, response) => response.send(data));
    const answers = new Inbox<unknown[]>('answers');
    caller.rpc.make(name, 'text', (...answer) => answers.push(answer));
    assert.deepEqual(await answers.next(), [null, 'text']);
  });

  const counted = againstOriginal && 'deepstream counts the call as accepted and times out';
  test('if a provider accepts and then rejects a call, the other provider answers it', { skip: counted }, async (t) => {
    const acceptAndReject: DeepstreamProvider = (_data, response) => {
      response.accept();
      response.reject();
    };
    const { name, caller } = await balanced(t, acceptAndReject, (_data, response) => response.send('done'));
    const answers = await Promise.all(Array.from({ length: 20 }, () => caller.rpc.make(name, null)));
    assert.deepEqual(new Set(answers), new Set(['done']));
    covers('RPCResponse.accept', 'success');
  });

  test('a provider may answer after its function has returned', async (t) => {
    const [caller, provider] = await pair(t, server);
    const name = fresh('rpc');
    const waiting = new Inbox<RpcResponse>('responses');
    await provides(provider, name, (_data, response) => waiting.push(response));
    const calls = [caller.rpc.make(name, 1), caller.rpc.make(name, 2), caller.rpc.make(name, 3)];
    const responses = await waiting.count(3);
    for (const [i, response] of [...responses].reverse().entries()) response.send(i);
    assert.deepEqual(await Promise.all(calls), [2, 1, 0]);
    assert.throws(() => responses[0]?.send('again'), /already completed/);
    assert.throws(() => responses[0]?.error('again'), /already completed/);
    assert.throws(() => responses[0]?.reject(), /already completed/);
  });

  test('a running call is answered even if its provider stops providing', async (t) => {
    const [caller, provider] = await pair(t, server);
    const name = fresh('rpc');
    const waiting = new Inbox<RpcResponse>('responses');
    await provides(provider, name, (_data, response) => waiting.push(response));
    const call = caller.rpc.make(name, null);
    const response = await waiting.next();
    assert.deepEqual(provider.rpc.providerNames(), [name]);
    provider.rpc.unprovide(name);
    await provider.wire.acknowledged('RPC', UNPROVIDE, name);
    response.send('late but valid');
    assert.equal(await call, 'late but valid');
    covers('RPCHandler.providerNames', 'success');
  });

  test('a client without the provider rejects a request, and the server reroutes it', async (t) => {
    const { name, caller, clients } = await balanced(
      t,
      (_data, response) => response.send('first'),
      (_data, response) => response.send('second'),
    );
    clients[0].rpc.unprovide(name);
    const answers = await Promise.all(Array.from({ length: 20 }, () => caller.rpc.make(name, null)));
    assert.ok(answers.includes('second'));
  });

  const waits = againstOriginal && 'deepstream waits for the timeout';
  test('when the provider disconnects, the call goes to another one', { skip: waits }, async (t) => {
    const asked = new Inbox<0 | 1>('providers asked');
    const hold: DeepstreamProvider[] = [0, 1].map((who) => (_data, response) => {
      asked.push(who as 0 | 1);
      if (asked.seen.length > 1) response.send('rescued');
    });
    const { name, caller, clients } = await balanced(t, hold[0] as DeepstreamProvider, hold[1] as DeepstreamProvider);
    const call = caller.rpc.make(name, null);
    close(clients[await asked.next()]);
    assert.equal(await within(DEADLINE_MS, call, 'the answer'), 'rescued');
  });

  test('an answer to a caller that has disconnected does no harm', async (t) => {
    const caller = await connect(t, server);
    const provider = await connect(t, server, { errors: ['UNKNOWN_CORRELATION_ID'] });
    const name = fresh('rpc');
    const waiting = new Inbox<RpcResponse>('responses');
    await provides(provider, name, (data, response) => (data === 'wait' ? waiting.push(response) : response.send(data)));
    caller.rpc.make(name, 'wait', () => assert.fail('a closed client was answered'));
    const response = await waiting.next();
    close(caller);
    // The close frame and the answer arrive on two sockets, so the answer may be first until the server has answered the close frame.
    await inState(caller, C.CONNECTION_STATE.CLOSED);
    response.send('nobody hears this');
    const other = await connect(t, server);
    assert.equal(await other.rpc.make(name, 'still there'), 'still there');
  });

  test('the client refuses arguments that are not names or callbacks', async (t) => {
    const client = await connect(t, server);
    const name = fresh('rpc');
    client.rpc.provide(name, () => undefined);
    assert.throws(() => client.rpc.provide(name, () => undefined), /already registered/);
    assert.throws(() => client.rpc.provide('', () => undefined), /invalid argument name/);
    assert.throws(() => client.rpc.provide('other', 1 as never), /invalid argument callback/);
    assert.throws(() => client.rpc.make('', 1), /invalid argument name/);
    assert.throws(() => client.rpc.unprovide(''), /invalid argument name/);
  });

  const keyed = againstOriginal && 'deepstream identifies calls only by their correlation id';
  test('equal correlation ids of two callers are two calls', { skip: keyed }, async () => {
    const provider = await RawPeer.login(server);
    const callers = [await RawPeer.login(server), await RawPeer.login(server)];
    const name = fresh('rpc');
    provider.send({ topic: RPC, action: PROVIDE, names: [name], correlationId: '0' });
    await provider.expect(RPC, PROVIDE);
    for (const [i, caller] of callers.entries()) {
      caller.send({ topic: RPC, action: REQUEST, name, correlationId: 'same', data: `${i}` });
    }
    await provider.expectCount(RPC, REQUEST, 2);
    const requests = provider.received.seen.filter(({ topic, action }) => topic === RPC && action === REQUEST);
    for (const { correlationId, data } of requests) {
      provider.send({ topic: RPC, action: ACCEPT, name, correlationId });
      provider.send({ topic: RPC, action: RESPONSE, name, correlationId, data });
    }
    const answers = await Promise.all(callers.map((caller) => caller.expect(RPC, RESPONSE)));
    assert.deepEqual(answers.map(({ data, correlationId }) => [data, correlationId]), [['0', 'same'], ['1', 'same']]);
    [provider, ...callers].forEach((peer) => peer.close());
  });

  const foreign = againstOriginal && 'deepstream accepts answers from any client';
  for (const action of [ACCEPT, RESPONSE, REQUEST_ERROR, REJECT]) {
    test(`${C.RPC_ACTION[action]} from a client that was not asked is refused`, { skip: foreign }, async (t) => {
      const [caller, provider] = await pair(t, server);
      const stranger = await RawPeer.login(server);
      const name = fresh('rpc');
      const waiting = new Inbox<RpcResponse>('responses');
      const requested = provider.wire.receives((message) => message.topic === RPC && message.action === REQUEST);
      await provides(provider, name, (_data, response) => waiting.push(response));
      const call = caller.rpc.make(name, null);
      const { correlationId } = await requested;
      stranger.send({ topic: RPC, action, name, correlationId, data: '"stolen"' });
      const refusal = await stranger.expect(RPC, C.RPC_ACTION.INVALID_RPC_CORRELATION_ID);
      assert.deepEqual([refusal.originalAction, refusal.isError], [action, true]);
      (await waiting.next()).send('honest');
      assert.equal(await call, 'honest');
      stranger.close();
    });
  }

  test('an answer without a call is refused', async () => {
    const peer = await RawPeer.login(server);
    const name = fresh('rpc');
    peer.send({ topic: RPC, action: RESPONSE, name, correlationId: 'none', data: '1' });
    const refusal = await peer.expect(RPC, C.RPC_ACTION.INVALID_RPC_CORRELATION_ID);
    assert.deepEqual([refusal.correlationId, refusal.originalAction], ['none', RESPONSE]);
    peer.close();
  });

  test('providing twice gets a notice, and counts once', async (t) => {
    const peer = await RawPeer.login(server);
    const caller = await connect(t, server);
    const name = fresh('rpc');
    for (const correlationId of ['0', '1']) peer.send({ topic: RPC, action: PROVIDE, names: [name], correlationId });
    await peer.expectCount(RPC, PROVIDE, 2);
    const note = await peer.expect(RPC, C.RPC_ACTION.MULTIPLE_PROVIDERS);
    assert.equal(note.name, name);
    const call = failure(caller.rpc.make(name, null));
    const { correlationId } = await peer.expect(RPC, REQUEST);
    peer.send({ topic: RPC, action: REJECT, name, correlationId });
    assert.equal(await call, 'NO_RPC_PROVIDER');
    peer.close();
  });
});

describe('rpc timeouts', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start(LIMITS);
  });
  after(() => server.dispose());

  test('a provider that does not accept in time fails the call', async (t) => {
    const [caller, provider] = await pair(t, server);
    const name = fresh('rpc');
    await provides(provider, name, (_data, response) => {
      response.autoAccept = false;
    });
    assert.equal(await failure(caller.rpc.make(name, null)), 'ACCEPT_TIMEOUT');
  });

  test('a provider that accepts and does not answer in time fails the call', async (t) => {
    const [caller, provider] = await pair(t, server);
    const name = fresh('rpc');
    await provides(provider, name, (_data, response) => response.accept());
    assert.equal(await failure(caller.rpc.make(name, null)), 'RESPONSE_TIMEOUT');
  });

  for (const answer of ['accept', 'send', 'error', 'reject'] as const) {
    test(`${answer} after the timeout is refused, and the next call succeeds`, async (t) => {
      const caller = await connect(t, server);
      const provider = await connect(t, server, { errors: ['UNKNOWN_CORRELATION_ID'] });
      const name = fresh('rpc');
      const waiting = new Inbox<RpcResponse>('responses');
      await provides(provider, name, (data, response) => {
        if (data !== 'late') return response.send(data);
        response.autoAccept = false;
        waiting.push(response);
      });
      const { INVALID_RPC_CORRELATION_ID } = C.RPC_ACTION;
      const refused = provider.wire.receives(({ topic, action }) => topic === RPC && action === INVALID_RPC_CORRELATION_ID);
      assert.equal(await failure(caller.rpc.make(name, 'late')), 'ACCEPT_TIMEOUT');
      (await waiting.next())[answer]('too late');
      await refused;
      assert.equal(await caller.rpc.make(name, 'in time'), 'in time');
      covers(`RPCResponse.${answer}`, 'refusal');
    });
  }
});

describe('rpc requestors', { concurrency: 8 }, () => {
  test('providers receive the name and data of the caller if the option is on', async (t) => {
    const user = freshUser();
    const users = { [user]: { password: hashPassword('secret'), clientData: { team: 'blue' } } };
    const server = await Server.during(t, { users, rpcRequestor: true });
    const login = { username: user, password: 'secret' };
    const [caller, provider] = await pair(t, server, { login });
    const name = fresh('rpc');
    await provides(provider, name, (_data, response, requestor) => response.send(requestor));
    assert.deepEqual(await caller.rpc.make(name, null), { requestorName: user, requestorData: { team: 'blue' } });
  });

  test('by default they receive neither', async (t) => {
    const server = await Server.during(t);
    const [caller, provider] = await pair(t, server, { login: { username: freshUser() } });
    const name = fresh('rpc');
    await provides(provider, name, (_data, response, requestor) => response.send(requestor === undefined));
    assert.equal(await caller.rpc.make(name, null), true);
  });
});
