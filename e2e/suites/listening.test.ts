// Listening: providers register patterns, and the server asks one provider at a time to provide a name with subscribers. The first cases
// run for events and records, with both clients. Then follow cases for only one of the clients, and for hasProvider, which only records
// have.

import assert from 'node:assert/strict';
import { after, before, describe, test, type TestContext } from 'node:test';
import { C, close, connect, discarded, pair, record, subscribed, type ConnectOptions, type TestClient } from '../harness/client.ts';
import { covers } from '../harness/coverage.ts';
import { WHOLE_DRIVERS, peers, type Asked, type Listened, type WholePeer } from '../harness/driver/driver.ts';
import { fresh, literally } from '../harness/names.ts';
import { RawPeer } from '../harness/raw.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, within } from '../harness/wait.ts';

/** If a listener leaves deepstream's server, all pending searches for a provider lose their candidates, also in other tests. */
const concurrency = againstOriginal ? 1 : 8;
/** The provider's timeout. Long, because a busy machine may delay the answer of the provider that must be in time. */
const RESPONSE_MS = 2_000;

/** Makes `provider` listen for `pattern`. The requests for names arrive in the returned inbox. */
async function listening(
  what: Listened,
  provider: WholePeer,
  pattern: string,
  requests = new Inbox<Asked>(`requests of ${what} ${pattern}`),
): Promise<Inbox<Asked>> {
  await provider.listen(what, pattern, requests);
  return requests;
}

/** The requested names. */
const asked = (requests: Inbox<Asked>): string[] => requests.seen.map(({ name }) => name);

for (const [driver, what] of WHOLE_DRIVERS.flatMap((one) => [[one, 'EVENT'], [one, 'RECORD']] as const)) {
  const handlerName = what === 'EVENT' ? 'EventHandler' : 'RecordHandler';

  describe(`listening for ${what.toLowerCase()}s with ${driver.name}`, { concurrency }, () => {
    let server: Server;
    before(async () => {
      server = await Server.start({ listenResponseTimeoutMs: DEADLINE_MS });
    });
    after(() => server.dispose());

    /** Two providers for the names below one prefix, and the requests that they receive. */
    async function offering(t: TestContext) {
      const base = fresh('listen');
      const pattern = `^${literally(base)}/.*`;
      const requests = new Inbox<Asked>(`requests of ${what} ${pattern}`);
      const stops = new Map<WholePeer, () => Promise<void>>();
      // On several nodes both are on the same one: the server prefers the node of the subscriber.
      for (const peer of await peers(driver, t, server, { through: server.ownAddress })) stops.set(peer, await peer.listen(what, pattern, requests));
      return { name: `${base}/x`, base, pattern, requests, stops };
    }

    test('the server asks a provider for a name with a subscriber', async (t) => {
      const [provider, subscriber] = await peers(driver, t, server);
      const name = fresh('listen');
      const requests = await listening(what, provider, literally(name));
      await subscriber.hold(what, name);
      const request = await requests.next();
      await request.accept();
      assert.equal(request.name, name);
      covers([`${handlerName}.listen`, 'ListenResponse.accept'], 'success');
    });

    test('a name that is already subscribed is offered to a new listener', async (t) => {
      const [provider, subscriber] = await peers(driver, t, server);
      const name = fresh('listen');
      await subscriber.hold(what, name);
      const requests = await listening(what, provider, literally(name));
      const request = await requests.next();
      await request.accept();
      assert.equal(request.name, name);
    });

    test('patterns are regular expressions that match anywhere in the name', async (t) => {
      const [provider, subscriber] = await peers(driver, t, server);
      const base = fresh('listen');
      const requests = await listening(what, provider, `${literally(base)}/(a|b)\\d+$`);
      for (const end of ['a1', 'c1', 'a', 'b22', 'a1x', 'b0']) {
        await subscriber.hold(what, `prefix/${base}/${end}`);
      }
      for (let i = 0; i < 3; i += 1) await (await requests.next()).accept();
      assert.deepEqual(new Set(asked(requests)), new Set(['a1', 'b22', 'b0'].map((end) => `prefix/${base}/${end}`)));
    });

    test('the provider stops when the last subscriber leaves, and not before', async (t) => {
      const [provider, first] = await peers(driver, t, server);
      const second = await driver.connect(t, server);
      const name = fresh('listen');
      const requests = await listening(what, provider, literally(name));
      const leaves = [await first.hold(what, name), await second.hold(what, name)];
      const request = await requests.next();
      await request.accept();
      await leaves[0]?.();
      assert.deepEqual(request.stopped.seen, []);
      await leaves[1]?.();
      assert.equal(await request.stopped.next(), name);
      await first.hold(what, name);
      await (await requests.next()).accept();
      assert.deepEqual(asked(requests), [name, name]);
      covers('ListenResponse.onStop', 'success');
    });

    test('the provider stops when the last subscriber disconnects', async (t) => {
      const [provider, subscriber] = await peers(driver, t, server);
      const name = fresh('listen');
      const requests = await listening(what, provider, literally(name));
      await subscriber.hold(what, name);
      const request = await requests.next();
      await request.accept();
      subscriber.close();
      assert.equal(await request.stopped.next(), name);
    });

    test('if a provider rejects, the server asks the next one', async (t) => {
      const { name, requests } = await offering(t);
      await (await driver.connect(t, server)).hold(what, name);
      const first = await requests.next();
      await first.reject();
      const second = await requests.next();
      await second.accept();
      assert.equal(second.name, name);
      assert.notEqual(second.provider, first.provider);
      covers('ListenResponse.reject', 'success');
    });

    test('the server asks only one provider for each name', async (t) => {
      const { base, requests } = await offering(t);
      const subscriber = await driver.connect(t, server);
      // If the server chooses evenly, one of the two providers gets all 20 names once in 500,000 runs.
      const names = Array.from({ length: 20 }, (_, i) => `${base}/${i}`);
      for (const name of names) {
        await subscriber.hold(what, name);
        await (await requests.next()).accept();
      }
      assert.deepEqual(asked(requests), names);
      assert.equal(new Set(requests.seen.map(({ provider }) => provider)).size, 2, 'the names are distributed over the providers');
    });

    test('if all providers reject, the server asks a new listener', async (t) => {
      const { name, pattern, requests } = await offering(t);
      await (await driver.connect(t, server)).hold(what, name);
      await (await requests.next()).reject();
      await (await requests.next()).reject();
      const late = await driver.connect(t, server);
      await listening(what, late, pattern, requests);
      let offered = await requests.next();
      for (; offered.provider !== late; offered = await requests.next()) await offered.reject();
      await offered.accept();
      assert.equal(offered.name, name);
    });

    test('when the provider disconnects, the next one takes over', async (t) => {
      const { name, requests } = await offering(t);
      await (await driver.connect(t, server)).hold(what, name);
      const first = await requests.next();
      await first.accept();
      first.provider.close();
      const second = await requests.next();
      await second.accept();
      assert.equal(second.name, name);
      assert.notEqual(second.provider, first.provider);
    });

    const forgets = againstOriginal && 'deepstream forgets the other candidates';
    test('if the provider disconnects before it answers, the server asks the next one', { skip: forgets }, async (t) => {
      const { name, requests } = await offering(t);
      await (await driver.connect(t, server)).hold(what, name);
      const first = await requests.next();
      first.provider.close();
      const second = await requests.next();
      await second.accept();
      assert.equal(second.name, name);
      assert.notEqual(second.provider, first.provider);
    });

    test('when the provider unlistens, the next one takes over', async (t) => {
      const { base, name, requests, stops } = await offering(t);
      const subscriber = await driver.connect(t, server);
      await subscriber.hold(what, name);
      const first = await requests.next();
      await first.accept();
      await stops.get(first.provider)?.();
      const second = await requests.next();
      await second.accept();
      assert.equal(second.name, name);
      await subscriber.hold(what, `${base}/y`);
      const third = await requests.next();
      assert.notEqual(third.provider, first.provider);
      covers(`${handlerName}.unlisten`, 'success');
    });

    test('a provider may subscribe to a name that it provides', async (t) => {
      const provider = await driver.connect(t, server);
      const name = fresh('listen');
      const requests = await listening(what, provider, literally(name));
      await provider.hold(what, name);
      const request = await requests.next();
      await request.accept();
      assert.equal(request.name, name);
    });

    test('three hundred subscribed names are each offered once', async (t) => {
      const [provider, subscriber] = await peers(driver, t, server);
      const base = fresh('listen');
      const names = Array.from({ length: 300 }, (_, i) => `${base}/${i}`);
      await Promise.all(names.map((name) => subscriber.hold(what, name)));
      const requests = await listening(what, provider, literally(base));
      await Promise.all((await requests.count(300)).map((request) => request.accept()));
      assert.deepEqual(asked(requests).sort(), names.sort());
    });
  });
}

type ListenCallback = Parameters<TestClient['event']['listen']>[1];
type ListenResponse = Parameters<ListenCallback>[1];
/** The server asks `provider` for `name`; the provider answers through `response`. */
interface Request {
  name: string;
  response: ListenResponse;
  provider: TestClient;
}

interface Kind {
  topic: 'EVENT' | 'RECORD';
  handler: (client: TestClient) => { listen: TestClient['event']['listen']; unlisten: TestClient['event']['unlisten'] };
  /** Subscribes and returns a function that unsubscribes. */
  subscribe: (client: TestClient, name: string) => Promise<() => Promise<void>>;
  actions: { LISTEN: number; UNLISTEN: number; LISTEN_ACCEPT: number; LISTEN_RESPONSE_TIMEOUT: number };
}

const EVENTS: Kind = {
  topic: 'EVENT',
  handler: (client) => client.event,
  actions: C.EVENT_ACTION,
  subscribe: async (client, name) => {
    const inbox = await subscribed(client, name);
    return async () => {
      client.event.unsubscribe(name, inbox.push);
      await client.wire.acknowledged('EVENT', C.EVENT_ACTION.UNSUBSCRIBE, name);
    };
  },
};

const RECORDS: Kind = {
  topic: 'RECORD',
  handler: (client) => client.record,
  actions: C.RECORD_ACTION,
  subscribe: async (client, name) => {
    const opened = await record(client, name);
    return async () => {
      opened.discard();
      await discarded(client, name);
    };
  },
};

/** Registers `provider` for `pattern`. The requests for names arrive in `requests`. */
async function listens(
  kind: Kind,
  provider: TestClient,
  pattern: string,
  requests = new Inbox<Request>(`requests of ${kind.topic} ${pattern}`),
): Promise<Inbox<Request>> {
  kind.handler(provider).listen(pattern, (name, response) => requests.push({ name, response, provider }));
  await provider.wire.acknowledged(kind.topic, kind.actions.LISTEN, pattern);
  return requests;
}

/** Accepts `request` and waits until the server has received the answer. */
async function accept(request: Request): Promise<void> {
  request.response.accept();
  await known(request);
}

/** Waits until the server has received the provider's answer: it answers a later request of the same connection after that. */
async function known({ provider }: Request): Promise<void> {
  await provider.record.has(fresh('record'));
}

/** Two providers for the names below one prefix, and the requests that they receive. */
async function providers(t: TestContext, kind: Kind, server: Server, options: ConnectOptions = {}) {
  const base = fresh('listen');
  const pattern = `^${literally(base)}/.*`;
  const requests = new Inbox<Request>(`requests of ${kind.topic} ${pattern}`);
  for (const client of await pair(t, server, options)) await listens(kind, client, pattern, requests);
  return { name: `${base}/x`, base, pattern, requests };
}

for (const kind of [EVENTS, RECORDS]) {
  const handlerName = kind === EVENTS ? 'EventHandler' : 'RecordHandler';

  describe(`answers to requests for ${kind.topic.toLowerCase()}s`, { concurrency }, () => {
    let server: Server;
    before(async () => {
      server = await Server.start({ listenResponseTimeoutMs: DEADLINE_MS });
    });
    after(() => server.dispose());

    test('a provider that does not answer in time gets an error, and the server asks the next one', async (t) => {
      const impatient = await Server.during(t, { listenResponseTimeoutMs: RESPONSE_MS });
      const { name, requests } = await providers(t, kind, impatient, { errors: ['UNSOLICITED_MESSAGE'] });
      await kind.subscribe(await connect(t, impatient), name);
      const silent = await requests.next();
      const second = await requests.next();
      await accept(second);
      assert.equal(second.name, name);
      assert.notEqual(second.provider, silent.provider);
      // The client reports LISTEN_RESPONSE_TIMEOUT as this event.
      assert.equal((await silent.provider.errors.next()).event, 'UNSOLICITED_MESSAGE');
    });

    for (const answer of ['accept', 'reject'] as const) {
      test(`a late ${answer} is ignored`, async (t) => {
        const impatient = await Server.during(t, { listenResponseTimeoutMs: RESPONSE_MS });
        const { name, requests } = await providers(t, kind, impatient, { errors: ['UNSOLICITED_MESSAGE'] });
        const subscriber = await connect(t, impatient);
        const leave = await kind.subscribe(subscriber, name);
        const late = await requests.next();
        const second = await requests.next();
        const stopped = new Inbox<string>('onStop of the provider');
        second.response.onStop(stopped.push);
        late.response.onStop(() => assert.fail('stopped without having been the provider'));
        await accept(second);
        late.response[answer]();
        await known(late);
        await leave();
        assert.equal(await stopped.next(), name);
        assert.equal(requests.seen.length, 2);
        covers(`ListenResponse.${answer}`, 'refusal');
      });
    }

    test('an invalid expression is refused', async (t) => {
      const client = await connect(t, server, { errors: ['INVALID_LISTEN_REGEX', 'UNSOLICITED_MESSAGE'] });
      kind.handler(client).listen('(unclosed', () => undefined);
      const error = await client.errors.next();
      assert.equal(error.topic, kind.topic);
      covers(`${handlerName}.listen`, 'refusal');
    });

    const notVerified = againstOriginal && 'deepstream does not check who answers';
    test('an answer from a client that was not asked is ignored', { skip: notVerified }, async (t) => {
      const [provider, subscriber] = await pair(t, server);
      const name = fresh('listen');
      const pattern = literally(name);
      const stranger = await RawPeer.login(server);
      const requests = await listens(kind, provider, pattern);
      await kind.subscribe(subscriber, name);
      const request = await requests.next();
      stranger.send({ topic: C.TOPIC[kind.topic], action: kind.actions.LISTEN_ACCEPT, name: pattern, subscription: name });
      await stranger.settle();
      const stopped = new Inbox<string>('onStop');
      request.response.onStop(stopped.push);
      await accept(request);
      close(subscriber);
      assert.equal(await stopped.next(), name);
      stranger.close();
    });

    const crashes = againstOriginal && 'it ends the process of deepstream';
    test('listening twice with one pattern is harmless', { skip: crashes }, async (t) => {
      const witness = await connect(t, server);
      const peer = await RawPeer.login(server);
      const pattern = literally(fresh('listen'));
      const listen = { topic: C.TOPIC[kind.topic], action: kind.actions.LISTEN, name: pattern };
      peer.send(listen);
      peer.send(listen);
      await peer.expectCount(listen.topic, listen.action, 1);
      await peer.settle();
      assert.equal(await witness.record.has(fresh('record')), false);
      peer.close();
    });
  });
}

describe('records with providers', { concurrency }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start({ listenResponseTimeoutMs: DEADLINE_MS });
  });
  after(() => server.dispose());

  test('subscribers know whether their record has a provider', async (t) => {
    const [provider, subscriber] = await pair(t, server);
    const name = fresh('listen');
    const requests = await listens(RECORDS, provider, literally(name));
    const opened = await record(subscriber, name);
    assert.equal(opened.hasProvider, false);
    await accept(await requests.next());
    await eventually(() => opened.hasProvider, 'the record has a provider');
    const late = await record(await connect(t, server), name);
    await eventually(() => late.hasProvider, 'a later subscriber knows it, too');
    close(provider);
    await eventually(() => !opened.hasProvider && !late.hasProvider, 'both know that it has no provider');
  });

  test('the next provider replaces the first one', async (t) => {
    const { name, requests } = await providers(t, RECORDS, server);
    const subscriber = await connect(t, server);
    const opened = await record(subscriber, name);
    const changes = new Inbox<number>('provider messages');
    const { SUBSCRIPTION_HAS_PROVIDER, SUBSCRIPTION_HAS_NO_PROVIDER } = C.RECORD_ACTION;
    subscriber.wire.onReceived(({ action }) => {
      if (action === SUBSCRIPTION_HAS_PROVIDER || action === SUBSCRIPTION_HAS_NO_PROVIDER) changes.push(action);
    });
    const first = await requests.next();
    await accept(first);
    assert.equal(await changes.next(), SUBSCRIPTION_HAS_PROVIDER);
    close(first.provider);
    assert.equal(await changes.next(), SUBSCRIPTION_HAS_NO_PROVIDER);
    await accept(await requests.next());
    assert.equal(await changes.next(), SUBSCRIPTION_HAS_PROVIDER);
    assert.equal(opened.hasProvider, true);
  });

  test('deleting a provided record stops the provider', async (t) => {
    const [provider, subscriber] = await pair(t, server);
    const name = fresh('listen');
    const requests = await listens(RECORDS, provider, literally(name));
    const opened = await record(subscriber, name);
    const stopped = new Inbox<string>('onStop');
    const request = await requests.next();
    request.response.onStop(stopped.push);
    await accept(request);
    await within(DEADLINE_MS, opened.delete() as Promise<void>, 'the record is deleted');
    assert.equal(await stopped.next(), name);
  });

  test('a provider fills a requested record', async (t) => {
    const [provider, subscriber] = await pair(t, server);
    const base = fresh('listen');
    provider.record.listen(`^${literally(base)}/`, (name, response) => {
      response.accept();
      provider.record.setData(name, { provided: name });
    });
    const opened = await record(subscriber, `${base}/price`);
    const seen = new Inbox<unknown>('values');
    opened.subscribe('provided', seen.push, true);
    assert.equal(await seen.find((value) => value !== undefined), `${base}/price`);
  });
});
