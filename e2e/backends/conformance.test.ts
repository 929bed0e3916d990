// The cases of the published conformance suites of Engine.IO 4 (25) and Socket.IO 5 (32), against the backend of `docs/testing.md`.
// The interval of heartbeats is 300 ms and their timeout 200 ms, and several cases are about these times.

import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { DEADLINE_MS, within } from '../harness/wait.ts';
import { SEPARATOR } from '../socketio/peer.ts';
import { Site, conformanceServer, opened, type Wire } from './conformance.ts';

const ROUNDS = 3;
/** Interval and timeout of heartbeats together. */
const SILENCE_MS = 500;
/** The time between two requests that the cases call simultaneous. */
const MOMENT_MS = 50;
const BYTES = Buffer.from([1, 2, 3, 4]);

type Case = (t: TestContext, site: Site) => Promise<void>;

/** Queries of a handshake without a parameter, or with a wrong one. */
const WITHOUT_VERSION = (transport: string): string[] => [`transport=${transport}`, `EIO=abc&transport=${transport}`];
const WITHOUT_TRANSPORT = ['EIO=4', 'EIO=4&transport=abc'];

async function isRefused(site: Site, queries: string[], init: RequestInit = {}): Promise<void> {
  for (const query of queries) assert.equal((await site.request(query, init)).status, 400, query);
}

async function isClosed(t: TestContext, site: Site, queries: string[]): Promise<void> {
  for (const query of queries) await site.wire(t, query).end();
}

/** The cases of both suites. */
const handshake: Record<string, Case> = {
  'polling: an open packet with five keys': async (_, site) => {
    const { status, body } = await site.request('EIO=4&transport=polling');
    assert.equal(status, 200);
    opened(body, ['websocket']);
  },
  'polling: refuses a missing or wrong EIO': (_, site) => isRefused(site, WITHOUT_VERSION('polling')),
  'polling: refuses a missing or wrong transport': (_, site) => isRefused(site, WITHOUT_TRANSPORT),
  'polling: refuses POST and PUT': async (_, site) => {
    for (const method of ['POST', 'PUT']) await isRefused(site, ['EIO=4&transport=polling'], { method });
  },
  'WebSocket: an open packet without upgrades': async (t, site) => {
    const wire = site.wire(t, 'EIO=4&transport=websocket');
    opened(String(await wire.next()), []);
  },
  'WebSocket: closes for a missing or wrong EIO': (t, site) => isClosed(t, site, WITHOUT_VERSION('websocket')),
  'WebSocket: closes for a missing or wrong transport': (t, site) => isClosed(t, site, WITHOUT_TRANSPORT),
};

const heartbeats: Record<string, Case> = {
  'heartbeat, polling: three pings are answered': async (_, site) => {
    const poller = await site.poller();
    for (let round = 0; round < ROUNDS; round += 1) {
      assert.deepEqual(await poller.get(), { status: 200, body: '2' });
      assert.equal((await poller.post('3')).status, 200);
    }
  },
  'heartbeat, polling: a session without a pong is gone 500 ms after its handshake': async (_, site) => {
    const poller = await site.poller();
    await pause(SILENCE_MS);
    assert.equal((await poller.get()).status, 400);
  },
  'heartbeat, WebSocket: three pings are answered': async (t, site) => {
    const wire = await site.openWire(t);
    for (let round = 0; round < ROUNDS; round += 1) {
      assert.equal(await wire.next(), '2');
      wire.send('3');
    }
  },
  'heartbeat, WebSocket: a session without a pong is closed': async (t, site) => {
    const begun = performance.now();
    const wire = await site.openWire(t);
    await wire.end();
    const took = performance.now() - begun;
    assert.ok(took >= SILENCE_MS, `closed after ${took} ms`);
    assert.deepEqual(wire.messages.seen.slice(1), ['2']);
  },
};

const closing: Record<string, Case> = {
  'close, polling: the GET that waits gets a noop, and the session is gone': async (_, site) => {
    const poller = await site.poller();
    const [waiting, closed] = await Promise.all([poller.get(), poller.post('1')]);
    assert.deepEqual([waiting, closed.status], [{ status: 200, body: '6' }, 200]);
    assert.equal((await poller.get()).status, 400);
  },
  'close, WebSocket: the server closes the connection': async (t, site) => {
    const wire = await site.openWire(t);
    wire.send('1');
    await wire.end();
  },
};

/** The upgrade up to the packet that ends it, with an echo if the server has one. */
function upgrades(echo: (wire: Wire) => Promise<void>): Record<string, Case> {
  return {
    'upgrade: the probe is answered, and a later GET gets a noop': async (t, site) => {
      const poller = await site.poller();
      const wire = poller.wire(t);
      await wire.open;
      wire.send('2probe');
      assert.equal(await wire.next(), '3probe');
      assert.deepEqual(await poller.get(), { status: 200, body: '6' });
      wire.send('5');
      await echo(wire);
    },
    'upgrade: polls of the session are refused afterwards': async (t, site) => {
      const [poller, wire] = await site.upgraded(t);
      assert.equal((await poller.get()).status, 400);
      await echo(wire);
    },
    'upgrade: a second WebSocket of the session is closed': async (t, site) => {
      const [poller, wire] = await site.upgraded(t);
      await poller.wire(t).end();
      await echo(wire);
    },
  };
}

const messages: Record<string, Case> = {
  'message, polling: a text is echoed': async (_, site) => {
    const poller = await site.poller();
    await poller.sends('4hello');
    assert.equal(await poller.due(), '4hello');
  },
  'message, polling: three packets of a body are echoed in one body': async (_, site) => {
    const poller = await site.poller();
    const packets = ['4test1', '4test2', '4test3'];
    await poller.sends(...packets);
    assert.equal(await poller.due(), packets.join(SEPARATOR));
  },
  'message, polling: a text and bytes are echoed': async (_, site) => {
    const poller = await site.poller();
    await poller.sends('4hello', 'bAQIDBA==');
    assert.equal(await poller.due(), `4hello${SEPARATOR}bAQIDBA==`);
  },
  'message, polling: the session is gone after an invalid packet': async (_, site) => {
    const poller = await site.poller();
    await poller.post('abc').catch(() => undefined);
    assert.equal((await poller.get()).status, 400);
  },
  'message, polling: two GETs at once end the session': async (_, site) => {
    const poller = await site.poller();
    const first = poller.get();
    await pause(MOMENT_MS);
    const second = await poller.get();
    assert.deepEqual(await first, { status: 200, body: '1' });
    assert.ok(second.status === 400 || second.status === 500, `${second.status}`);
    assert.equal((await poller.get()).status, 400);
  },
  'message, polling: a GET that the client leaves ends the session': async (_, site) => {
    const poller = await site.poller();
    const leaving = new AbortController();
    const left = assert.rejects(poller.get({ signal: leaving.signal }));
    await pause(MOMENT_MS);
    leaving.abort();
    await left;
    assert.equal((await poller.get()).status, 400);
  },
  'message, WebSocket: a text is echoed': async (t, site) => {
    const wire = await site.openWire(t);
    wire.send('4hello');
    assert.equal(await wire.due(), '4hello');
  },
  'message, WebSocket: bytes are echoed': async (t, site) => {
    const wire = await site.openWire(t);
    wire.send(BYTES);
    assert.deepEqual(await wire.due(), BYTES);
  },
  'message, WebSocket: an invalid packet closes the connection': async (t, site) => {
    const wire = await site.openWire(t);
    wire.send('abc');
    await wire.end();
  },
};

async function echoes(wire: Wire): Promise<void> {
  wire.send('4hello');
  assert.equal(await wire.due(), '4hello');
}

/** Joins a namespace and checks the answer and the event that the backend sends then. */
async function join(wire: Wire, packet: string, namespace: string, auth: object): Promise<void> {
  wire.send(packet);
  const prefix = namespace === '/' ? '' : `${namespace},`;
  const answer = String(await wire.due());
  assert.ok(answer.startsWith(`40${prefix}{`), answer);
  const content = JSON.parse(answer.slice(2 + prefix.length)) as { sid: string };
  assert.deepEqual([Object.keys(content), typeof content.sid], [['sid'], 'string']);
  assert.equal(await wire.due(), `42${prefix}["auth",${JSON.stringify(auth)}]`);
}

/** A WebSocket that has joined `/`. */
async function joined(t: TestContext, site: Site): Promise<Wire> {
  const wire = await site.openWire(t);
  await join(wire, '40', '/', {});
  return wire;
}

/** The connection ends after these packets of a client that has joined. */
function endsAfter(...packets: string[]): Case {
  return async (t, site) => {
    const wire = await joined(t, site);
    wire.send(...packets);
    await wire.end();
  };
}

const placeholder = (index: number): object => ({ _placeholder: true, num: index });
const PLACEHOLDERS = JSON.stringify([placeholder(0), placeholder(1)]).slice(1, -1);
const ATTACHMENTS = [Buffer.from([1, 2, 3]), Buffer.from([4, 5, 6])];

const namespaces: Record<string, Case> = {
  'connect: the default namespace': async (t, site) => join(await site.openWire(t), '40', '/', {}),
  'connect: the default namespace, with a payload': async (t, site) => join(await site.openWire(t), '40{"token":"123"}', '/', { token: '123' }),
  'connect: another namespace': async (t, site) => join(await site.openWire(t), '40/custom,', '/custom', {}),
  'connect: another namespace, with a payload': async (t, site) => join(await site.openWire(t), '40/custom,{"token":"abc"}', '/custom', { token: 'abc' }),
  'connect: an unknown namespace is refused': async (t, site) => {
    const wire = await site.openWire(t);
    wire.send('40/random');
    assert.equal(await wire.due(), '44/random,{"message":"Invalid namespace"}');
  },
  'connect: an invalid packet in place of it closes the connection': async (t, site) => {
    const wire = await site.openWire(t);
    wire.send('4abc');
    await wire.end();
  },
  'connect: a connection without it is closed': async (t, site) => (await site.openWire(t)).end(),
  'disconnect: the default namespace, and the connection stays': async (t, site) => {
    const wire = await joined(t, site);
    wire.send('41');
    assert.equal(await wire.next(), '2');
  },
  'disconnect: another namespace, and the others stay': async (t, site) => {
    const wire = await joined(t, site);
    await join(wire, '40/custom', '/custom', {});
    wire.send('41/custom', '42["message","hello"]');
    assert.equal(await wire.due(), '42["message-back","hello"]');
  },
};

const events: Record<string, Case> = {
  'event: text': async (t, site) => {
    const wire = await joined(t, site);
    wire.send('42["message",1,"2",{"3":[true]}]');
    assert.equal(await wire.due(), '42["message-back",1,"2",{"3":[true]}]');
  },
  'event: binary values': async (t, site) => {
    const wire = await joined(t, site);
    wire.send(`452-["message",${PLACEHOLDERS}]`, ...ATTACHMENTS);
    assert.equal(await wire.due(), `452-["message-back",${PLACEHOLDERS}]`);
    assert.deepEqual([await wire.due(), await wire.due()], ATTACHMENTS);
  },
  'event: text, with an acknowledgement': async (t, site) => {
    const wire = await joined(t, site);
    wire.send('42456["message-with-ack",1,"2",{"3":[false]}]');
    assert.equal(await wire.due(), '43456[1,"2",{"3":[false]}]');
  },
  'event: binary values, with an acknowledgement': async (t, site) => {
    const wire = await joined(t, site);
    wire.send(`452-789["message-with-ack",${PLACEHOLDERS}]`, ...ATTACHMENTS);
    assert.equal(await wire.due(), `462-789[${PLACEHOLDERS}]`);
    assert.deepEqual([await wire.due(), await wire.due()], ATTACHMENTS);
  },
  'event: an invalid packet closes the connection': endsAfter('4abc'),
  'event: an invalid payload closes the connection': endsAfter('42{}'),
  'event: an invalid acknowledgement closes the connection': endsAfter('42abc["message-with-ack",1,"2",{"3":[false]}]'),
};

/** The cases of a suite, by their numbers. */
const SUITES: Record<string, [count: number, path: string, cases: Record<string, Case>]> = {
  'Engine.IO 4': [25, '/engine.io/', { ...handshake, ...messages, ...heartbeats, ...closing, ...upgrades(echoes) }],
  'Socket.IO 5': [
    32,
    '/socket.io/',
    { ...handshake, ...heartbeats, ...closing, ...upgrades((wire) => join(wire, '40', '/', {})), ...namespaces, ...events },
  ],
};

for (const [suite, [count, path, cases]] of Object.entries(SUITES)) {
  test(`the suite of ${suite} has ${count} cases`, () => assert.equal(Object.keys(cases).length, count));

  test(suite, { concurrency: 4 }, async (t) => {
    const server = await conformanceServer(t);
    const run = ([number, [name, check]]: [number, [string, Case]]): Promise<void> =>
      t.test(`${number + 1}. ${name}`, (t) => within(DEADLINE_MS, check(t, new Site(server.address, path)), 'the case'));
    await Promise.all([...Object.entries(cases).entries()].map(run));
  });
}
