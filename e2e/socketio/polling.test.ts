// Long polling: each case of Engine.IO and Socket.IO about it that other servers are tested with, the limits, the ends of sessions, and the
// change to a WebSocket, step by step and with messages in flight in both directions.

import assert from 'node:assert/strict';
import { Agent, request as httpRequest } from 'node:http';
import { after, before, describe, test, type TestContext } from 'node:test';
import type { Socket } from 'socket.io-client';
import { connect } from '../harness/client.ts';
import { url } from '../harness/http.ts';
import { fresh } from '../harness/names.ts';
import { Server } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { DEADLINE_MS, eventually, happens, within } from '../harness/wait.ts';
import { PollingPeer, SEPARATOR, another, ask, connected, joined, open, received, request } from './peer.ts';

const POLLING = { transports: ['polling'] };
const BYTES = 'bAQIDBA==';
const JSON_TYPE = 'application/json';
/** Upgrades with messages in flight; the proof makes more of them. */
const UPGRADES = Number(process.env.UPGRADES ?? 60);
/** The polls and posts that a peer makes before, between and after the steps of an upgrade. */
const STEPS_MAX = 4;
const OUT_OF_TURN = { status: 400, type: 'application/json', body: '{"code":3,"message":"Bad request"}' };

describe('socket.io-client that only polls', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start({ namespaces: ['/chat'], origins: ['https://app.example'] });
  });
  after(() => server.dispose());

  test('joins rooms, gets acknowledgements and events, and calls rpcs', async (t) => {
    const provider = await connect(t, server);
    const add = fresh('add');
    provider.rpc.provide(add, ([a, b]: [number, number], response) => response.send(a + b));
    const [ann, bob] = [await connected(t, server, POLLING), await connected(t, server, POLLING)];
    const other = await connected(t, server);
    assert.equal(ann.io.engine.transport.name, 'polling');
    assert.notEqual(ann.id, ann.io.engine.id);
    const room = fresh('room');
    const inbox = received(bob, 'said');
    assert.deepEqual(await ask(bob, '$join', room), { ok: true });
    for (const [index, sender] of [ann, other, ann].entries()) {
      assert.deepEqual(await ask(sender, '$to', room, 'said', 'été', index), { ok: true });
      assert.deepEqual(await inbox.next(), ['été', index]);
    }
    assert.deepEqual(await ask(ann, '$call', add, 1, 2), { ok: true, value: 3 });
    assert.equal((await ask(ann, 'unknown')).code, 'NO_HANDLER');
  });

  test('sends and receives many events in order', async (t) => {
    const [ann, bob] = [await connected(t, server, POLLING), await connected(t, server, POLLING)];
    const room = fresh('room');
    const inbox = received(bob, 'number');
    await ask(bob, '$join', room);
    const numbers = Array.from({ length: 2_000 }, (_, index) => [index]);
    numbers.forEach(([index]) => ann.emit('$to', room, 'number', index));
    assert.deepEqual(await inbox.count(numbers.length), numbers);
  });

  test('sends and receives binary values', async (t) => {
    const [ann, bob] = [await connected(t, server, POLLING), await connected(t, server, POLLING)];
    const room = fresh('room');
    const inbox = received(bob, 'picture');
    await ask(bob, '$join', room);
    const args = [{ thumbnail: Buffer.from([0, 255]), tiles: [Buffer.alloc(0), Buffer.from('4b')] }, 7, Buffer.alloc(70_000, 1)];
    assert.deepEqual(await ask(ann, '$to', room, 'picture', ...args), { ok: true });
    assert.deepEqual(await inbox.next(), args);
  });

  test('has sessions in several namespaces', async (t) => {
    const main = await connected(t, server, POLLING);
    const chat = await joined(main, '/chat');
    const room = fresh('room');
    const inbox = received(chat, 'said');
    await ask(chat, '$join', room);
    await ask(main, '$to', room, 'said', 'main');
    const other = await joined(await connected(t, server, POLLING), '/chat');
    await ask(other, '$to', room, 'said', 'chat');
    assert.deepEqual(await inbox.next(), ['chat']);
    const refused = happens(another(main, '/unknown'), 'connect_error');
    assert.equal((await refused)[0].message, 'Invalid namespace');
  });

  test('ends its session when it closes, and may join again before that', async (t) => {
    const socket = await connected(t, server, { ...POLLING, auth: { username: 'bob' } });
    const chat = await joined(socket, '/chat');
    const client = await connect(t, server);
    assert.ok((await client.presence.getAll()).includes('bob'));
    socket.disconnect();
    socket.connect();
    await happens(socket, 'connect');
    assert.deepEqual(await ask(socket, '$join', fresh('room')), { ok: true });
    chat.disconnect();
    socket.disconnect();
    await eventually(async () => !(await client.presence.getAll()).includes('bob'), 'the user is offline');
  });

  test('pages of configured origins may use it, other pages may not', async () => {
    const query = 'EIO=4&transport=polling';
    const from = (origin: string, init: RequestInit = {}): Promise<Response> =>
      fetch(url(server, `/socket.io/?${query}`), { ...init, headers: { origin, ...init.headers } });
    const allowed = await from('https://app.example');
    assert.deepEqual([allowed.status, allowed.headers.get('access-control-allow-origin')], [200, 'https://app.example']);
    const wrong = await fetch(url(server, '/socket.io/?EIO=3&transport=polling'), { headers: { origin: 'https://app.example' } });
    assert.deepEqual([wrong.status, wrong.headers.get('access-control-allow-origin')], [400, 'https://app.example']);
    const refused = await from('https://other.example');
    assert.deepEqual([refused.status, refused.headers.get('access-control-allow-origin')], [403, null]);
    assert.deepEqual(await refused.json(), { code: 4, message: 'Forbidden' });
    const preflight = await from('https://app.example', { method: 'OPTIONS', headers: { 'access-control-request-method': 'POST' } });
    assert.equal(preflight.status, 204);
    assert.match(preflight.headers.get('access-control-allow-methods') ?? '', /\bPOST\b/);
  });
});

test('a session ends when its client leaves the GET that waits', async (t) => {
  const server = await Server.during(t);
  const peer = await PollingPeer.join(server);
  const leaving = new AbortController();
  const left = peer.get({ signal: leaving.signal });
  // The server has the GET when it has answered a later request.
  await peer.sends('3');
  assert.equal(await server.metric('tidewire_polling_sessions'), 1);
  leaving.abort();
  await assert.rejects(left);
  await eventually(async () => (await server.metric('tidewire_polling_sessions')) === 0, 'the session ends');
  await peer.isGone();
});

test('a refused login over polling is a connect_error', async (t) => {
  const server = await Server.during(t, { users: { ann: { password: hashPassword('right') } } });
  const socket = open(t, server, { ...POLLING, auth: { username: 'ann', password: 'wrong' } });
  assert.equal((await happens(socket, 'connect_error'))[0].message, 'Not authorized');
  assert.equal((await connected(t, server, { ...POLLING, auth: { username: 'ann', password: 'right' } })).connected, true);
});

describe('a bare client of long polling', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start();
  });
  after(() => server.dispose());

  test('gets an open packet with five keys', async () => {
    const { opened } = await PollingPeer.open(server);
    assert.deepEqual(Object.keys(opened).sort(), ['maxPayload', 'pingInterval', 'pingTimeout', 'sid', 'upgrades']);
    assert.deepEqual(opened.upgrades, ['websocket']);
    const slashless = await fetch(url(server, '/socket.io?EIO=4&transport=polling'));
    assert.equal(slashless.status, 200);
    assert.equal(slashless.headers.get('cache-control'), 'no-store');
    await slashless.body?.cancel();
  });

  test('is refused without the right query or method', async () => {
    const check = async (query: string, method: string, code: number, message: string): Promise<void> => {
      const answer = await request(server, query, { method });
      assert.deepEqual(answer, { status: 400, type: JSON_TYPE, body: JSON.stringify({ code, message }) }, `${method} ${query}`);
    };
    for (const query of ['transport=polling', 'EIO=abc&transport=polling', 'EIO=3&transport=polling']) {
      await check(query, 'GET', 5, 'Unsupported protocol version');
    }
    for (const query of ['EIO=4', 'EIO=4&transport=abc', 'EIO=4&transport=webtransport', 'EIO=4&transport=__proto__&sid=constructor']) {
      await check(query, 'GET', 0, 'Transport unknown');
    }
    for (const method of ['POST', 'PUT']) await check('EIO=4&transport=polling', method, 2, 'Bad handshake method');
    const { sid } = (await PollingPeer.open(server)).opened;
    const changed = sid.slice(0, -1) + (sid.endsWith('0') ? '1' : '0');
    for (const wrong of ['nope', '__proto__', '', sid.slice(1), changed, `ffff${sid.slice(4)}`]) {
      await check(`EIO=4&transport=polling&sid=${wrong}`, 'GET', 1, 'Session ID unknown');
      await check(`EIO=4&transport=polling&sid=${wrong}`, 'POST', 1, 'Session ID unknown');
    }
    await check(`EIO=4&transport=polling&sid=${sid}`, 'PUT', 3, 'Bad request');
    await check(`EIO=4&transport=websocket&sid=${sid}`, 'GET', 3, 'Bad request');
    await check('EIO=4&transport=websocket&sid=x', 'GET', 1, 'Session ID unknown');
  });

  test('gets the answers to the packets of a POST in order', async () => {
    const peer = await PollingPeer.open(server);
    await peer.sends('40', '420["$join","a"]', '421["$join","b"]');
    const [joined, ...answers] = await peer.messages(3);
    assert.match(joined ?? '', /^40\{"sid":"[\w-]{20}"\}$/);
    assert.deepEqual(answers, ['430[{"ok":true}]', '431[{"ok":true}]']);
    const waiting = peer.get();
    await peer.sends('422["none"]');
    assert.match((await waiting).body, /^432\[\{"ok":false,"code":"NO_HANDLER"/);
  });

  test('gets text and binary packets in one answer', async () => {
    const [ann, bob] = [await PollingPeer.join(server), await PollingPeer.join(server)];
    const room = fresh('room');
    await bob.sends(`420["$join","${room}"]`);
    assert.deepEqual(await bob.messages(1), ['430[{"ok":true}]']);
    const placeholder = '{"_placeholder":true,"num":0}';
    await ann.sends(`451-["$to","${room}","up",${placeholder}]`, BYTES, `420["$to","${room}","down"]`);
    assert.deepEqual(await ann.messages(1), ['430[{"ok":true}]']);
    assert.deepEqual(await bob.due(), [`451-["up",${placeholder}]`, BYTES, '42["down"]']);
    // A POST may end between a packet and its attachment.
    await ann.sends(`451-["$to","${room}","up",${placeholder}]`);
    await ann.sends('3', BYTES);
    assert.deepEqual(await bob.messages(2), [`451-["up",${placeholder}]`, BYTES]);
  });

  test('may send a body in chunks', async () => {
    const peer = await PollingPeer.open(server);
    const [host, port] = ['127.0.0.1', Number(server.address.split(':')[1])];
    const status = new Promise<number>((done, failed) => {
      const posted = httpRequest({ host, port, path: `/socket.io/?${peer.query}`, method: 'POST' }, (response) => {
        response.resume();
        done(response.statusCode ?? 0);
      });
      posted.on('error', failed);
      posted.write('4');
      posted.end('0');
    });
    assert.equal(await within(DEADLINE_MS, status, 'an answer'), 200);
    assert.match((await peer.due())[0] ?? '', /^40/);
  });

  for (const [what, body] of Object.entries({
    'an unknown packet': 'abc',
    'an empty body': '',
    'an empty packet': `3${SEPARATOR}${SEPARATOR}3`,
    'base64 that is none': 'b!',
    'a ping': '2',
    'a probe': '2probe',
    'an event before the join': '42["x"]',
    'an unknown packet of Socket.IO': '4abc',
    'an attachment that was not announced': BYTES,
    'bytes that are no text': Buffer.from([0x34, 0xff]),
  })) {
    test(`ends with ${what}`, async () => {
      const peer = await PollingPeer.open(server);
      assert.equal((await peer.post(body)).status, 400);
      await peer.isGone();
    });
  }

  test('ends with a body of bytes', async () => {
    const peer = await PollingPeer.open(server);
    assert.equal((await peer.post('40', { 'content-type': 'application/octet-stream' })).status, 400);
    await peer.isGone();
  });

  test('gets what was due before the end after a fault', async () => {
    const peer = await PollingPeer.join(server);
    assert.equal((await peer.post(['420["$join","a"]', '42["disconnect"]', '421["$join","b"]'].join(SEPARATOR))).status, 400);
    assert.deepEqual(await peer.due(), ['430[{"ok":true}]', '6', '1']);
    await peer.isGone();
  });

  test('gets the end with the answer that waits after a fault', async () => {
    const peer = await PollingPeer.join(server);
    const waiting = peer.get();
    // The server has the GET when it has answered a later request.
    await peer.sends('3');
    await peer.post('4abc');
    assert.deepEqual((await waiting).body, '1');
    await peer.isGone();
  });

  test('ends both requests if two GETs wait', async () => {
    const peer = await PollingPeer.open(server);
    const answers = await Promise.all([peer.get(), peer.get()]);
    assert.deepEqual(answers.map(({ status }) => status).sort(), [200, 400]);
    assert.equal(answers.find(({ status }) => status === 200)?.body, '1');
    await peer.isGone();
  });

  test('ends if two POSTs are open', async () => {
    const peer = await PollingPeer.open(server);
    const agent = new Agent({ keepAlive: false });
    const [host, port] = ['127.0.0.1', Number(server.address.split(':')[1])];
    const first = new Promise<number>((done) => {
      const posted = httpRequest({ agent, host, port, path: `/socket.io/?${peer.query}`, method: 'POST', headers: { 'content-length': 100 } });
      posted.on('response', (response) => done(response.statusCode ?? 0)).on('error', () => done(0));
      posted.write('4');
    });
    await eventually(async () => (await peer.post('3')).status === 400, 'the second POST meets the first');
    assert.ok([0, 400].includes(await within(DEADLINE_MS, first, 'the first POST ends')));
    await peer.isGone();
  });

  test('ends with a close packet, and packets after it are dropped', async () => {
    const peer = await PollingPeer.join(server);
    const waiting = peer.get();
    const room = fresh('room');
    const [listener] = [await PollingPeer.join(server)];
    await listener.sends(`420["$join","${room}"]`);
    await listener.messages(1);
    await peer.sends(`42["$to","${room}","first"]`, '1', `42["$to","${room}","second"]`);
    assert.deepEqual((await waiting).body, '6');
    await peer.isGone();
    await listener.sends('421["none"]');
    const seen = await listener.messages(2);
    assert.equal(seen[0], '42["first"]');
    assert.match(seen[1] ?? '', /^431/);
  });
});

describe('heartbeats of long polling', { concurrency: 8 }, () => {
  const heartbeatIntervalMs = 1_000;

  test('are packets of the server, and keep a session that answers them', async (t) => {
    const server = await Server.during(t, { heartbeatIntervalMs });
    const peer = await PollingPeer.open(server);
    for (let round = 0; round < 3; round += 1) {
      // A process that was stopped for a while may get two of them.
      const packets = await peer.packets();
      assert.ok(packets.every((packet) => packet === '2'), packets.join());
      await peer.sends('3');
    }
  });

  test('end a session that does not answer them', async (t) => {
    const server = await Server.during(t, { heartbeatIntervalMs });
    const peer = await PollingPeer.join(server);
    const bodies: string[] = [];
    await eventually(async () => {
      const { status, body } = await peer.get();
      bodies.push(body);
      return status === 400 || body === '1';
    }, 'the session ends');
    assert.ok(bodies.includes('2'));
    await peer.isGone();
  });

  test('end a session whose client is gone after the handshake', async (t) => {
    const server = await Server.during(t, { heartbeatIntervalMs, heartbeatTimeoutMs: 500 });
    const begun = performance.now();
    const peer = await PollingPeer.open(server);
    await eventually(async () => (await server.metric('tidewire_polling_sessions')) === 0, 'the session ends');
    const took = performance.now() - begun;
    assert.ok(took >= heartbeatIntervalMs + 500, `ended after ${took} ms`);
    await peer.isGone();
  });

  test('end a session that does not poll, although it sends', async (t) => {
    const server = await Server.during(t, { heartbeatIntervalMs });
    const begun = performance.now();
    const peer = await PollingPeer.join(server);
    await eventually(async () => (await peer.post('3')).status === 400, 'the session ends');
    assert.ok(performance.now() - begun >= 2 * heartbeatIntervalMs);
    await peer.isGone();
    assert.equal(await server.metric('tidewire_polling_sessions'), 0);
  });

  test('do not keep a session without a login', async (t) => {
    const server = await Server.during(t, { heartbeatIntervalMs, loginTimeoutMs: 3_000 });
    const peer = await PollingPeer.open(server);
    const ended = async (): Promise<void> => {
      for (;;) {
        const packets = await peer.packets();
        if (packets.includes('1')) return;
        await peer.post('3');
      }
    };
    await within(DEADLINE_MS, ended(), 'the session ends');
    await peer.isGone();
  });

  test('of socket.io-client keep it connected', async (t) => {
    const server = await Server.during(t, { heartbeatIntervalMs });
    const socket = await connected(t, server, POLLING);
    let reason: string | undefined;
    socket.on('disconnect', (why) => (reason = why));
    let pings = 0;
    socket.io.on('ping', () => (pings += 1));
    await eventually(() => pings >= 5, 'five pings');
    assert.equal(reason, undefined);
    assert.deepEqual(await ask(socket, '$join', 'room'), { ok: true });
  });
});

describe('limits of long polling', { concurrency: 8 }, () => {
  test('a body may be as long as a message, and a longer one ends the session', async (t) => {
    const server = await Server.during(t, { limits: { message_bytes_max: 65_536, record_bytes_max: 65_536 } });
    const [peer, other] = [await PollingPeer.join(server), await PollingPeer.join(server)];
    assert.equal(peer.opened.maxPayload, 65_536);
    await other.sends('420["$join","room"]');
    await other.messages(1);
    const event = (bytes: number): string => {
      const [start, end] = ['42["$to","room","long","', '"]'];
      return `${start}${'é'.repeat((bytes - start.length - end.length) / 2)}${end}`;
    };
    const longest = event(65_536);
    assert.equal(Buffer.byteLength(longest), 65_536);
    await peer.sends(longest);
    assert.equal((await other.messages(1))[0]?.length, longest.length - '"$to","room",'.length);
    assert.deepEqual(await peer.post(event(65_538)), { status: 413, type: 'text/plain; charset=utf-8', body: '' });
    await peer.isGone();
  });

  test('messages that are not polled have the limit of an outbox, and end the session', async (t) => {
    const server = await Server.during(t, { limits: { outbox_bytes_max: 65_536 } });
    const [peer, sender] = [await PollingPeer.join(server), await connected(t, server)];
    await peer.sends('420["$join","room"]');
    await peer.messages(1);
    const before = await server.metric('tidewire_slow_disconnects_total');
    for (let index = 0; index < 20; index += 1) await ask(sender, '$to', 'room', 'long', 'x'.repeat(8_192));
    await eventually(async () => (await peer.get()).status === 400, 'the session ends');
    assert.equal(await server.metric('tidewire_slow_disconnects_total'), before + 1);
    assert.equal(await server.metric('tidewire_polling_sessions'), 0);
  });

  test('sessions have places among the connections, and free them', async (t) => {
    const server = await Server.during(t, { limits: { connections_max: 3 } });
    const peers = [await PollingPeer.open(server), await PollingPeer.open(server), await PollingPeer.open(server)];
    assert.equal((await request(server, 'EIO=4&transport=polling')).status, 503);
    await peers[0]?.sends('1');
    await PollingPeer.open(server);
  });

  test('a stopping server ends sessions with a close packet', async (t) => {
    const server = await Server.during(t);
    const peer = await PollingPeer.join(server);
    const waiting = peer.get();
    // The server has the GET when it has answered a later request.
    await peer.sends('3');
    const stopped = server.stop();
    assert.match((await waiting).body, /^(2\x1e)?1$/);
    await stopped;
  });
});

/** A client that connects as it does by default. */
function byDefault(t: TestContext, server: Server): Promise<Socket> {
  return connected(t, server, { transports: ['polling', 'websocket'] });
}

function upgraded(socket: Socket): Promise<unknown> {
  const { engine } = socket.io;
  if (engine.transport.name === 'websocket') return Promise.resolve();
  return within(DEADLINE_MS, new Promise((done) => engine.once('upgrade', done)), 'the upgrade');
}

describe('the upgrade', { concurrency: 4 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start({ namespaces: ['/chat'] });
  });
  after(() => server.dispose());

  test('happens to a client with default options, which keeps its session', async (t) => {
    const socket = await byDefault(t, server);
    const id = socket.id;
    const room = fresh('room');
    assert.deepEqual(await ask(socket, '$join', room), { ok: true });
    const chat = await joined(socket, '/chat');
    await upgraded(socket);
    assert.equal(socket.io.engine.transport.name, 'websocket');
    const inbox = received(socket, 'said');
    const other = await connected(t, server);
    await ask(other, '$to', room, 'said', 1, Buffer.from([2]));
    assert.deepEqual(await inbox.next(), [1, Buffer.from([2])]);
    assert.deepEqual(await ask(chat, '$join', room), { ok: true });
    assert.equal(socket.id, id);
  });

  test('loses no event of a client that never stops to send', async (t) => {
    const [sender, member] = [await byDefault(t, server), await byDefault(t, server)];
    const room = fresh('room');
    const inbox = received(member, 'number');
    await ask(member, '$join', room);
    let count = 0;
    const both = Promise.all([upgraded(sender), upgraded(member)]).then(() => true);
    while (!(await Promise.race([both, new Promise<false>((done) => setImmediate(() => done(false)))]))) {
      sender.emit('$to', room, 'number', (count += 1));
    }
    await ask(sender, '$to', room, 'number', (count += 1));
    assert.deepEqual(await inbox.count(count), Array.from({ length: count }, (_, index) => [index + 1]));
  });

  test('releases each poll after the probe, until the session is on the WebSocket', async (t) => {
    const peer = await PollingPeer.join(server);
    const socket = peer.socket(t);
    const waiting = peer.get();
    await socket.probe();
    assert.match((await waiting).body, /^[26]$/);
    for (let round = 0; round < 3; round += 1) assert.match((await peer.get()).body, /^[26]$/);
    await peer.sends('420["$join","a"]');
    assert.deepEqual(await peer.real(), ['430[{"ok":true}]']);
    await peer.sends('421["$join","b"]');
    await socket.send('5', '422["$join","c"]');
    assert.deepEqual([await socket.next(), await socket.next()], ['431[{"ok":true}]', '432[{"ok":true}]']);
    assert.deepEqual(await peer.get(), OUT_OF_TURN);
    assert.deepEqual(await peer.post('3'), OUT_OF_TURN);
    const second = peer.socket(t);
    assert.equal(await second.opened, false);
    await socket.send('423["none"]');
    assert.match(await socket.next(), /^433/);
    assert.ok(!socket.messages.seen.includes('6'));
    const switched = await server.metric('tidewire_polling_upgrades_total');
    assert.ok(switched >= 1, `${switched} upgrades`);
  });

  test('may come without a probe, and answers the poll that waits', async (t) => {
    const peer = await PollingPeer.join(server);
    const waiting = peer.get();
    const socket = peer.socket(t);
    await peer.sends('3');
    await socket.send('5', '420["$join","a"]');
    assert.match((await waiting).body, /^[26]$/);
    assert.equal(await socket.next(), '430[{"ok":true}]');
  });

  test('is not disturbed by a lost or wrong WebSocket', async (t) => {
    const peer = await PollingPeer.join(server);
    const lost = peer.socket(t);
    await lost.probe();
    const second = peer.socket(t);
    assert.equal(await second.opened, false, 'one WebSocket at a time');
    lost.terminate();
    await eventually(async () => {
      const socket = peer.socket(t);
      if (!(await socket.opened)) return false;
      await socket.send('40');
      await within(DEADLINE_MS, socket.closed, 'the WebSocket ends');
      return true;
    }, 'another WebSocket opens');
    const polling = peer.get();
    await eventually(async () => {
      const socket = peer.socket(t);
      if (!(await socket.opened)) return false;
      await socket.probe();
      await socket.send('5', '420["$join","a"]');
      assert.equal(await socket.next(), '430[{"ok":true}]');
      return true;
    }, 'the last WebSocket gets the session');
    assert.match((await polling).body, /^[26]$/);
  });

  test('ends with its session', async (t) => {
    const peer = await PollingPeer.join(server);
    const socket = peer.socket(t);
    await socket.probe();
    await peer.sends('1');
    await within(DEADLINE_MS, socket.closed, 'the WebSocket ends');
    const unknown = peer.socket(t);
    assert.equal(await unknown.opened, false);
  });

  test('keeps heartbeats', async (t) => {
    const short = await Server.during(t, { heartbeatIntervalMs: 1_000 });
    const peer = await PollingPeer.join(short);
    const socket = peer.socket(t);
    await socket.probe();
    await socket.send('5');
    for (let round = 0; round < 3; round += 1) {
      assert.equal(await socket.messages.next(), '2');
      await socket.send('3');
    }
    await within(DEADLINE_MS, socket.closed, 'a silent peer is closed');
  });

  test('that never ends is given up, and the session stays', async (t) => {
    const short = await Server.during(t, { loginTimeoutMs: 1_000 });
    const peer = await PollingPeer.join(short);
    const socket = peer.socket(t);
    await socket.probe();
    await within(DEADLINE_MS, socket.closed, 'the WebSocket ends');
    await peer.sends('420["$join","a"]');
    assert.deepEqual(await peer.real(), ['430[{"ok":true}]']);
  });

  test(`with messages in flight loses, doubles and reorders none, ${UPGRADES} times`, async (t) => {
    const sender = await connected(t, server);
    const receiver = await connected(t, server);
    let seed = Number(process.env.SEED ?? Date.now() % 1_000_000);
    t.diagnostic(`SEED=${seed}`);
    const random = (below: number): number => {
      seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
      return Math.floor((seed / 2 ** 31) * below);
    };
    for (let round = 0; round < UPGRADES; round += 1) {
      await upgradeOnce(t, { sender, receiver, random });
    }
  });

  /** One upgrade of a bare peer that gets and sends numbers all the time. */
  async function upgradeOnce(t: TestContext, { sender, receiver, random }: { sender: Socket; receiver: Socket; random: (below: number) => number }): Promise<void> {
    const [inward, outward] = [fresh('in'), fresh('out')];
    const peer = await PollingPeer.join(server);
    await peer.sends(`420["$join","${inward}"]`);
    assert.deepEqual(await peer.messages(1), ['430[{"ok":true}]']);
    const inbox = received(receiver, outward);
    await ask(receiver, '$join', outward);
    const numbers: number[] = [];
    let [sent, posted] = [0, 0];
    const burst = (): void => {
      for (let count = random(6); count > 0; count -= 1) sender.emit('$to', inward, 'n', (sent += 1), 'x'.repeat(random(3_000)));
    };
    const events = (): string[] => Array.from({ length: 1 + random(5) }, () => `42["$to","${outward}","${outward}",${(posted += 1)}]`);
    const take = (packets: string[]): void => {
      for (const packet of packets) {
        const event = /^42\["n",(\d+),/.exec(packet);
        if (event) numbers.push(Number(event[1]));
        else assert.match(packet, /^[26]$/);
      }
    };
    const poll = async (): Promise<void> => take(await peer.packets());
    const socket = peer.socket(t);
    const steps = random(STEPS_MAX);
    for (let step = 0; step < steps; step += 1) {
      burst();
      sender.emit('$to', inward, 'n', (sent += 1), '');
      await Promise.all([poll(), peer.sends(...events())]);
    }
    burst();
    // The poll that waits ends with the probe, as the client waits for it before it upgrades.
    const waiting = poll();
    burst();
    const posting = random(2) === 0 ? peer.sends(...events()) : undefined;
    await socket.probe();
    burst();
    await Promise.all([waiting, posting]);
    for (let step = random(STEPS_MAX); step > 0; step -= 1) {
      burst();
      await Promise.all([poll(), random(2) === 0 ? peer.sends(...events()) : undefined]);
    }
    burst();
    await socket.send('5', ...events());
    burst();
    await socket.send(...events());
    await ask(sender, '$to', inward, 'n', (sent += 1), '');
    await socket.messages.find((message) => message.startsWith(`42["n",${sent},`));
    take(socket.messages.seen.filter((message) => message !== '3probe'));
    assert.ok(!socket.messages.seen.includes('6'));
    assert.deepEqual(numbers, Array.from({ length: sent }, (_, index) => index + 1));
    const expected = Array.from({ length: posted }, (_, index) => [index + 1]);
    assert.deepEqual(await inbox.count(posted), expected);
    await ask(receiver, '$leave', outward);
    receiver.off(outward);
    socket.terminate();
  }
});
