// The cost of compression for the server per delivery to 1,000 recipients, compared with plain connections and TLS: processor time of
// its threads, from /proc. The peers are bare sockets that only count frames, so that they keep up.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync, readdirSync } from 'node:fs';
import { connect as dial, type Socket } from 'node:net';
import { test, type TestContext } from 'node:test';
import { connect as dialTls } from 'node:tls';
import { getMessage } from '@deepstream/protobuf/dist/src/message-builder.js';
import { CertificateFiles, certify } from '../harness/certificate.ts';
import { C } from '../harness/client.ts';
import { FrameReader } from '../harness/frames.ts';
import { Server } from '../harness/server.ts';
import { within } from '../harness/wait.ts';

const RECIPIENTS = 1_000;
const ROUNDS = Number(process.env['COST_ROUNDS'] ?? 60);
/** The number of measurements of each case, which alternate; the median counts. */
const REPEATS = Number(process.env['COST_REPEATS'] ?? 3);
const DEADLINE_MS = 120_000;
const EVENT = 'ticks';

interface Case {
  name: string;
  tls?: boolean;
  offers?: boolean;
  batches?: boolean;
}

const SINGLE: Case[] = [
  { name: 'clear' },
  { name: 'compressed', offers: true },
  { name: 'TLS', tls: true },
  { name: 'compressed, TLS', tls: true, offers: true },
];
const BATCHED: Case[] = [
  { name: 'clear' },
  { name: 'batched', batches: true },
  { name: 'batched, compressed', batches: true, offers: true },
  { name: 'TLS', tls: true },
];

/** A peer that counts received frames. */
class Peer {
  readonly reader = new FrameReader();
  private constructor(readonly socket: Socket) {
    socket.setNoDelay(true);
  }

  static async connect(server: Server, { tls, offers, batches }: Case): Promise<Peer> {
    const host = '127.0.0.1';
    const socket = tls ? dialTls({ host, port: server.tlsPort, rejectUnauthorized: false }) : dial(server.port, host);
    await once(socket, tls ? 'secureConnect' : 'connect');
    const peer = new Peer(socket);
    socket.on('data', peer.reader.push);
    const offer = offers ? 'Sec-WebSocket-Extensions: permessage-deflate\r\n' : '';
    socket.write(
      `GET /deepstream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n` +
        `Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n${offer}\r\n`,
    );
    // CHALLENGE with or without the field `batches`, which the client's codec does not know.
    const body = batches ? [0x08, 5, 0x78, 1] : [0x08, 5];
    const login = { topic: C.TOPIC.AUTH, action: C.AUTH_ACTION.REQUEST, data: '{}' };
    // Send them one by one: otherwise both answers may arrive in one frame.
    peer.send([Buffer.from([4 + body.length, 0x10, 2, 0x1a, body.length, ...body])]);
    await peer.#until(1);
    peer.send([getMessage(login, false)]);
    await peer.#until(2);
    return peer;
  }

  async subscribe(): Promise<void> {
    const message = { topic: C.TOPIC.EVENT, action: C.EVENT_ACTION.SUBSCRIBE, names: [EVENT], correlationId: '1' };
    this.send([getMessage(message, false)]);
    await this.#until(3);
  }

  /** Sends messages in one write; the mask is zero. */
  send(messages: Uint8Array[]): void {
    const frames = messages.flatMap((message) => {
      const { length } = message;
      const head = length < 126 ? [0x82, 0x80 | length] : [0x82, 0x80 | 126, length >> 8, length & 0xff];
      return [Buffer.from([...head, 0, 0, 0, 0]), message];
    });
    this.socket.write(Buffer.concat(frames));
  }

  async #until(count: number): Promise<void> {
    while (this.reader.frames.length < count) await within(DEADLINE_MS, once(this.socket, 'data'), 'an answer');
  }
}

/** Prices of instruments as JSON, 155 bytes each. */
function tick(number: number): string {
  const noise = (number * 7_919) % 899_999;
  const price = (cents: number): string => `${100 + (Math.floor(cents / 100) % 900)}.${String(cents % 100).padStart(2, '0')}`;
  return (
    `{"id":${100_000 + noise},"symbol":"SYM${String(noise % 50).padStart(3, '0')}","bid":${price(noise % 70_000)},` +
    `"ask":${price((noise % 70_000) + 3)},"last":${price((noise % 70_000) + 1)},"open":${price(noise % 50_000)},` +
    `"volume":${1_000_000 + noise},"time":${1_795_000_000_000 + number * 137},"venue":"XETR","currency":"EUR"}`
  );
}

/** Nanoseconds of processor time of the process's threads. */
function processorNanos(pid: number): number {
  const threads = readdirSync(`/proc/${pid}/task`);
  const nanos = threads.map((thread) => Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]));
  return nanos.reduce((sum, one) => sum + one, 0);
}

/** Processor time in nanoseconds and bytes on the wire for each message to each recipient. */
async function measured(test: TestContext, one: Case, batch: number, text: (number: number) => string): Promise<{ nanos: number; bytes: number }> {
  const files = new CertificateFiles(test, certify());
  const server = await Server.during(test, { compression: true, tls: { certificate: files.certificate, key: files.key } });
  const publisher = await Peer.connect(server, { name: 'publisher' });
  const peers: Peer[] = [];
  while (peers.length < RECIPIENTS) {
    const more = await Promise.all(Array.from({ length: 50 }, () => Peer.connect(server, one)));
    await Promise.all(more.map((peer) => peer.subscribe()));
    peers.push(...more);
  }
  let [frames, bytes] = [0, 0];
  let arrived = (): void => {};
  for (const { socket, reader } of peers) {
    let seen = reader.frames.length;
    socket.on('data', () => {
      frames += reader.frames.length - seen;
      for (; seen < reader.frames.length; seen += 1) bytes += reader.frames[seen]?.payloadBytes ?? 0;
      arrived();
    });
  }
  const nanosBefore = processorNanos(server.pid);
  for (let round = 0; round < ROUNDS; round += 1) {
    const messages = Array.from({ length: batch }, (_, index) => {
      const data = text(round * batch + index);
      return getMessage({ topic: C.TOPIC.EVENT, action: C.EVENT_ACTION.EMIT, name: EVENT, data }, false);
    });
    const wanted = (round + 1) * RECIPIENTS * (one.batches ? 1 : batch);
    publisher.send(messages);
    const all = new Promise<void>((done) => {
      arrived = () => frames >= wanted && done();
    });
    await within(DEADLINE_MS, all, `round ${round} of ${one.name}`);
  }
  const deliveries = ROUNDS * RECIPIENTS * batch;
  const nanos = (processorNanos(server.pid) - nanosBefore) / deliveries;
  [publisher, ...peers].forEach(({ socket }) => socket.destroy());
  await server.dispose();
  return { nanos, bytes: bytes / deliveries };
}

/** The median of each case, by its name. */
async function costs(test: TestContext, what: string, cases: Case[], batch: number, text: (number: number) => string): Promise<Record<string, number>> {
  const all = new Map<string, number[]>(cases.map(({ name }) => [name, []]));
  const sizes = new Map<string, number>();
  for (let repeat = 0; repeat < REPEATS; repeat += 1) {
    for (const one of cases) {
      const { nanos, bytes } = await measured(test, one, batch, text);
      all.get(one.name)?.push(nanos);
      sizes.set(one.name, bytes);
    }
  }
  const medians = [...all].map(([name, values]) => [name, values.sort((a, b) => a - b)[values.length >> 1] ?? NaN] as const);
  const figures = medians.map(([name, nanos]) => `${name} ${nanos.toFixed(0)} ns, ${sizes.get(name)?.toFixed(0)} bytes`);
  console.log(`${what} to ${RECIPIENTS}: ${figures.join('; ')}`);
  return Object.fromEntries(medians);
}

test('a delivery of 2.5 KB costs less compressed than in TLS', async (t) => {
  const large = (number: number): string => `[${Array.from({ length: 16 }, (_, index) => tick(number * 31 + index)).join()}]`;
  const { compressed, TLS } = await costs(t, 'one message of 2.5 KB', SINGLE, 1, large);
  assert.ok((compressed ?? NaN) < (TLS ?? NaN), `${compressed} ns compressed, ${TLS} ns in TLS`);
});

test('a delivery of 155 bytes in compressed batches of 20 costs less than in TLS', async (t) => {
  const { 'batched, compressed': batched, TLS } = await costs(t, '20 messages of 155 bytes', BATCHED, 20, tick);
  assert.ok((batched ?? NaN) < (TLS ?? NaN), `${batched} ns in batches, ${TLS} ns in TLS`);
});
