// Clients that poll through a load balancer without sticky sessions: each request may arrive at any node.

import assert from 'node:assert/strict';
import { createServer, connect as dial, type Socket as TcpSocket } from 'node:net';
import { describe, test, type TestContext } from 'node:test';
import { io, type Socket } from 'socket.io-client';
import { atEnd } from '../harness/cleanup.ts';
import { fresh } from '../harness/names.ts';
import type { Server } from '../harness/server.ts';
import { eventually, happens } from '../harness/wait.ts';
import { ask, PollingPeer, request, received, SEPARATOR, type PollingAnswer } from '../socketio/peer.ts';
import { Cluster, FEW_SETUPS } from './cluster.ts';

const BYTES_MAX = 65_536;
const UNKNOWN = { status: 400, type: 'application/json', body: '{"code":1,"message":"Session ID unknown"}' };
const OUT_OF_TURN = { status: 400, type: 'application/json', body: '{"code":3,"message":"Bad request"}' };
const EVENTS = 300;

type Nodes = [Server, Server, Server];

/** A request for a session at one node. */
const at = (node: Server, sid: string, init: RequestInit = {}): Promise<PollingAnswer> => request(node, `EIO=4&transport=polling&sid=${sid}`, init);
const post = (node: Server, sid: string, ...packets: string[]): Promise<PollingAnswer> =>
  at(node, sid, { method: 'POST', body: packets.join(SEPARATOR), headers: { 'content-type': 'text/plain;charset=UTF-8' } });

/** The packets of a session that are not pings, from polls at this node. */
async function due(node: Server, sid: string): Promise<string[]> {
  for (;;) {
    const { status, body } = await at(node, sid);
    assert.equal(status, 200, body);
    const packets = body.split(SEPARATOR);
    if (packets.includes('2')) assert.equal((await post(node, sid, '3')).status, 200);
    const others = packets.filter((packet) => packet !== '2');
    if (others.length > 0) return others;
  }
}

/** A session of a node that has joined `/`. */
async function join(node: Server): Promise<string> {
  const { sid } = (await PollingPeer.join(node)).opened;
  return sid;
}

/** Passes each new connection to the next node that accepts it. */
async function balanced(t: TestContext, nodes: Server[]): Promise<string> {
  let count = 0;
  const sockets = new Set<TcpSocket>();
  const listener = createServer((near) => {
    const tryNext = (left: number): void => {
      const far = dial(nodes[(count += 1) % nodes.length]!.port, '127.0.0.1');
      const refused = (): void => (left > 1 ? tryNext(left - 1) : void near.destroy());
      far.once('error', refused);
      far.once('connect', () => {
        far.off('error', refused);
        near.pipe(far).pipe(near);
        for (const socket of [near, far]) {
          sockets.add(socket);
          socket.on('error', () => {});
          socket.on('close', () => [near, far].forEach((each) => each.destroy()));
        }
      });
    };
    near.on('error', () => {});
    tryNext(nodes.length);
  });
  await new Promise<void>((done) => listener.listen(0, '127.0.0.1', done));
  atEnd(t, () => {
    for (const socket of sockets) socket.destroy();
    listener.close();
  });
  const place = listener.address();
  assert.ok(place !== null && typeof place === 'object');
  return `http://127.0.0.1:${place.port}`;
}

/** An unmodified client behind the load balancer. */
function client(t: TestContext, address: string, transports: Array<'polling' | 'websocket'>): Socket {
  const socket = io(address, { transports, forceNew: true, reconnectionDelay: 50, reconnectionDelayMax: 100 });
  atEnd(t, () => {
    socket.io.reconnection(false);
    socket.disconnect();
    socket.io.engine?.close();
  });
  return socket;
}

for (const setup of FEW_SETUPS) {
  describe(`polling at any node of a cluster with ${setup.name}`, () => {
    const nodesOf = async (t: TestContext): Promise<Nodes> => {
      const cluster = await Cluster.during(t, setup);
      const limits = { message_bytes_max: BYTES_MAX, record_bytes_max: BYTES_MAX };
      return (await cluster.nodes(3, { limits })) as Nodes;
    };

    test('requests at other nodes have the effect of requests at the node of the session', async (t) => {
      const nodes = await nodesOf(t);
      const [first, second, third] = nodes;

      await t.test('events arrive once and in order, whatever node a request arrives at', async () => {
        const [sid, sender] = [await join(first), await join(second)];
        const room = fresh('room');
        assert.equal((await post(third, sid, `420["$join","${room}"]`)).status, 200);
        assert.deepEqual(await due(second, sid), ['430[{"ok":true}]']);
        const expected: string[] = [];
        const got: string[] = [];
        const reading = (async () => {
          for (let turn = 0; got.length < EVENTS; turn += 1) got.push(...(await due(nodes[turn % 3] as Server, sid)));
        })();
        for (let number = 0; number < EVENTS; number += 1) {
          expected.push(`42["number",${number}]`);
          const answer = await post(nodes[number % 3] as Server, sender, `42["$to","${room}","number",${number}]`);
          assert.deepEqual(answer, { status: 200, type: 'text/html', body: 'ok' });
        }
        await reading;
        assert.deepEqual(got, expected);
      });

      await t.test('a body may be as long as at the node of the session, and a longer one ends it', async () => {
        const [sid, other] = [await join(first), await join(first)];
        const room = fresh('room');
        assert.equal((await post(second, other, `420["$join","${room}"]`)).status, 200);
        assert.deepEqual(await due(second, other), ['430[{"ok":true}]']);
        const event = (bytes: number): string => {
          const start = `42["$to","${room}","long","`;
          return `${start}${'x'.repeat(bytes - start.length - 2)}"]`;
        };
        assert.equal((await post(second, sid, event(BYTES_MAX))).status, 200);
        assert.deepEqual((await due(third, other))[0]?.length, BYTES_MAX - `"$to","${room}",`.length);
        assert.equal((await post(third, sid, event(BYTES_MAX + 1))).status, 413);
        assert.deepEqual(await at(second, sid), UNKNOWN);
      });

      await t.test('two polls at once on two nodes end the session', async () => {
        const sid = await join(first);
        const waiting = at(second, sid);
        // The session has the first one when it has taken a later body from the same node.
        assert.equal((await post(second, sid, '3')).status, 200);
        assert.deepEqual(await at(third, sid), OUT_OF_TURN);
        assert.deepEqual([(await waiting).status, (await waiting).body], [200, '1']);
        assert.deepEqual(await at(first, sid), UNKNOWN);
      });

      await t.test('a client that leaves a poll at another node ends its session', async () => {
        const sid = await join(first);
        const leaving = new AbortController();
        const left = at(second, sid, { signal: leaving.signal });
        assert.equal((await post(second, sid, '3')).status, 200);
        leaving.abort();
        await assert.rejects(left);
        await eventually(async () => (await at(first, sid, { method: 'POST', body: '3' })).status === 400, 'the session ends');
        assert.deepEqual(await at(third, sid), UNKNOWN);
      });

      await t.test('a changed session id is unknown at every node', async () => {
        const sid = await join(first);
        const changed = sid.slice(0, -1) + (sid.endsWith('0') ? '1' : '0');
        for (const node of nodes) {
          for (const wrong of [changed, `ffff${sid.slice(4)}`]) {
            assert.deepEqual(await at(node, wrong), UNKNOWN);
            assert.deepEqual(await post(node, wrong, '3'), UNKNOWN);
          }
        }
        assert.equal((await post(second, sid, '3')).status, 200);
      });

      await t.test('an unmodified client behind a load balancer polls, and its refused WebSocket changes nothing', async (t) => {
        const address = await balanced(t, nodes);
        for (const transports of [['polling'], ['polling', 'websocket']] as const) {
          const sockets = [client(t, address, [...transports]), client(t, address, [...transports])];
          await Promise.all(sockets.map((socket) => happens(socket, 'connect')));
          const [ann, bob] = sockets as [Socket, Socket];
          const room = fresh('room');
          const inbox = received(bob, 'number');
          assert.deepEqual(await ask(bob, '$join', room), { ok: true });
          for (let number = 0; number < EVENTS; number += 1) ann.emit('$to', room, 'number', number);
          assert.deepEqual(await inbox.count(EVENTS), Array.from({ length: EVENTS }, (_, number) => [number]));
        }
      });
    });

    test('a poll at another node ends at once when the node of its session is killed', async (t) => {
      const [first, second, third] = await nodesOf(t);
      const sid = await join(first);
      const waiting = at(second, sid);
      assert.equal((await post(second, sid, '3')).status, 200);
      await first.kill();
      assert.deepEqual(await waiting, UNKNOWN);
      assert.deepEqual(await at(third, sid), UNKNOWN);
    });

    test('a session ends when the node is killed at which its poll waits, and its client opens another one', async (t) => {
      const [first, second, third] = await nodesOf(t);
      const sid = await join(first);
      const waiting = at(second, sid);
      assert.equal((await post(second, sid, '3')).status, 200);
      const address = await balanced(t, [first, second, third]);
      const socket = client(t, address, ['polling']);
      await happens(socket, 'connect');
      const rejected = assert.rejects(waiting);
      await second.kill();
      await rejected;
      await eventually(async () => (await at(third, sid, { method: 'POST', body: '3' })).status === 400, 'the session ends');
      await eventually(async () => socket.connected, 'the client is connected again');
      assert.deepEqual(await ask(socket, '$join', fresh('room')), { ok: true });
    });
  });
}
