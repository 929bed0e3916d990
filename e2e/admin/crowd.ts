// Thousands of connections from one process: bare sockets that speak the JSON endpoint, because a client object for each would need more
// memory than the server under test.

import { connect as dial, type Socket } from 'node:net';
import type { TestContext } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import { C } from '../harness/client.ts';
import { JSON_PATH, payload } from '../harness/json-peer.ts';
import type { Server } from '../harness/server.ts';
import { within } from '../harness/wait.ts';

/** Sockets that open at the same time; more would exceed the backlog of the listener. */
const OPENING_MAX = 100;
const DEADLINE_MS = 240_000;

/** Options with which a server accepts 10,000 connections of one machine that send nothing. */
export const CROWD_SERVER = { heartbeatIntervalMs: 600_000, limits: { connections_max: 15_000, connections_per_address_max: 15_000 } };

/** The name of the user with this number. They sort like their numbers. */
export function member(number: number): string {
  return `member-${String(number).padStart(5, '0')}`;
}

/** A masked text frame of at most 65,535 bytes. The key is 0, so that the text is unchanged. */
function frame(message: object): Buffer {
  const text = Buffer.from(JSON.stringify(message));
  const head = Buffer.from([0x81, 0xfe, text.length >> 8, text.length & 0xff, 0, 0, 0, 0]);
  return Buffer.concat([head, text]);
}

/** A socket that has logged in as this user and subscribed to an event. */
function join(server: Server, username: string, eventName: string): Promise<Socket> {
  const { TOPIC, CONNECTION_ACTION, AUTH_ACTION, EVENT_ACTION } = C;
  return new Promise((done, fail) => {
    const socket = dial(server.port, '127.0.0.1');
    let text = '';
    socket.on('error', fail);
    socket.on('data', (bytes) => {
      const wasUpgraded = text.includes('\r\n\r\n');
      text += bytes.toString('latin1');
      if (!wasUpgraded && text.includes('\r\n\r\n')) {
        if (!text.startsWith('HTTP/1.1 101')) return fail(new Error(text.slice(0, 200)));
        socket.write(Buffer.concat([
          frame({ topic: TOPIC.CONNECTION, action: CONNECTION_ACTION.CHALLENGE, url: server.address, protocolVersion: '0.1a' }),
          frame({ topic: TOPIC.AUTH, action: AUTH_ACTION.REQUEST, ...payload({ username }) }),
          frame({ topic: TOPIC.EVENT, action: EVENT_ACTION.SUBSCRIBE, names: [eventName], correlationId: '1' }),
        ]));
      }
      // The acknowledgement of the subscription is the last answer.
      if (text.includes('"correlationId":"1"')) {
        socket.removeAllListeners('data').resume();
        done(socket);
      }
    });
    const key = Buffer.from('the sample nonce').toString('base64');
    const head = [`GET ${JSON_PATH} HTTP/1.1`, `Host: ${server.address}`, 'Upgrade: websocket', 'Connection: Upgrade', 'Sec-WebSocket-Version: 13', `Sec-WebSocket-Key: ${key}`];
    socket.write(`${head.join('\r\n')}\r\n\r\n`);
  });
}

/** `size` connections until the end of `test`, each of another user and subscribed to `event/NUMBER`; the last part is its number modulo `events`. */
export async function crowdDuring(test: TestContext, server: Server, size: number, events: number): Promise<Socket[]> {
  const sockets: Socket[] = [];
  atEnd(test, () => sockets.forEach((socket) => socket.removeAllListeners('error').on('error', () => {}).destroy()));
  let next = 0;
  const openMore = async (): Promise<void> => {
    while (next < size) {
      const number = next++;
      sockets[number] = await join(server, member(number), `event/${number % events}`);
    }
  };
  await within(DEADLINE_MS, Promise.all(Array.from({ length: OPENING_MAX }, openMore)), `${size} connections are open`);
  return sockets;
}
