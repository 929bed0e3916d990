// The attackers' connection counts messages by the first bytes of their frames. The test checks that it counts the same for any split
// of the bytes into reads.

import assert from 'node:assert/strict';
import { createServer, type Socket } from 'node:net';
import { once } from 'node:events';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { C } from '../../harness/client.ts';
import { Connection, framed } from './connection.ts';

const { TOPIC, EVENT_ACTION, RECORD_ACTION, RPC_ACTION } = C;

/** Turns a frame of a client into a frame of a server: removes the four zeros of the mask. */
function unmasked(masked: Buffer): Buffer {
  const short = (masked[1] as number) & 0x7f;
  const headBytes = short < 126 ? 2 : short === 126 ? 4 : 10;
  const head = Buffer.from(masked.subarray(0, headBytes));
  head[1] = short;
  return Buffer.concat([head, masked.subarray(headBytes + 4)]);
}

/** A server that sends `bytes` repeatedly, in pieces of these sizes, to each connection that it has upgraded. */
async function serving(bytes: Buffer, sizes: number[]): Promise<{ address: string; close: () => void }> {
  const server = createServer((socket: Socket) => {
    socket.setNoDelay(true);
    socket.on('error', () => {});
    socket.once('data', async () => {
      socket.write('HTTP/1.1 101 Switching Protocols\r\n\r\n');
      for (let place = 0, piece = 0; place < bytes.length; piece += 1) {
        const size = sizes[piece % sizes.length] as number;
        socket.write(bytes.subarray(place, place + size));
        place += size;
        await nextTurn();
      }
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  return { address: `127.0.0.1:${port}`, close: () => server.close() };
}

const texts = [0, 10, 100, 200, 20_000, 70_000, 400_000].map((bytes) => JSON.stringify('x'.repeat(bytes)));
const frames = texts.flatMap((data) => [
  framed({ topic: TOPIC.EVENT, action: EVENT_ACTION.EMIT, name: 'a', data }),
  framed({ topic: TOPIC.RECORD, action: RECORD_ACTION.MESSAGE_DENIED, name: data.slice(0, 300), isError: true }),
  framed({ topic: TOPIC.RPC, action: RPC_ACTION.REQUEST, name: 'b', correlationId: '1', data }),
]);
const bytes = Buffer.concat(frames.map(unmasked));

for (const sizes of [[1_000_000], [65_536], [1, 2, 3, 5, 7_001], [37, 40, 41, 20_011]]) {
  test(`messages are counted when they come in pieces of ${sizes.join(', ')} bytes`, async (t) => {
    const { address, close } = await serving(bytes, sizes);
    const connection = await Connection.open(address);
    t.after(() => {
      connection?.end();
      close();
    });
    assert.ok(connection);
    await connection.until(() => connection.receivedBytes >= bytes.length);
    assert.equal(connection.count(TOPIC.EVENT, EVENT_ACTION.EMIT), texts.length);
    assert.equal(connection.count(TOPIC.RECORD, RECORD_ACTION.MESSAGE_DENIED), texts.length);
    assert.equal(connection.count(TOPIC.RPC, RPC_ACTION.REQUEST), texts.length);
  });
}
