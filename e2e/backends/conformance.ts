// The server of the conformance cases with the backend of `docs/testing.md` on each node, and its bare clients.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import WebSocket from 'ws';
import { blocksOf } from '../documents/block.ts';
import { programFolder } from '../documents/folder.ts';
import { atEnd } from '../harness/cleanup.ts';
import { Server, environment } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, within } from '../harness/wait.ts';
import { SEPARATOR } from '../socketio/peer.ts';

const BLOCKS = blocksOf('docs/testing.md');
const TSX = import.meta.resolve('tsx');

/** The text of an option in the configuration of `docs/testing.md`. */
function option(name: string): string {
  const blocks = BLOCKS.filter(({ language }) => language === 'yaml');
  const found = blocks.map(({ text }) => new RegExp(`^ +${name}: (.+)$`, 'm').exec(text)?.[1]);
  return found.find((text) => text !== undefined) ?? assert.fail(`docs/testing.md has the option ${name}`);
}

function milliseconds(name: string): number {
  const text = option(name);
  const [, count, unit] = /^(\d+)(ms|s)$/.exec(text) ?? assert.fail(text);
  return Number(count) * (unit === 's' ? 1_000 : 1);
}

const HEARTBEAT = { pingInterval: milliseconds('heartbeat_interval'), pingTimeout: milliseconds('heartbeat_timeout') };

/** A server of that configuration, and the program of the page on each of its nodes. */
export async function conformanceServer(t: TestContext): Promise<Server> {
  const namespaces = JSON.parse(option('namespaces').replaceAll("'", '"')) as string[];
  const key = option('key');
  const server = await Server.during(t, {
    heartbeatIntervalMs: HEARTBEAT.pingInterval,
    heartbeatTimeoutMs: HEARTBEAT.pingTimeout,
    loginTimeoutMs: milliseconds('login_timeout'),
    backend: { key, namespaces },
  });
  const program = BLOCKS.find(({ language, word }) => language === 'js' && word === 'serves') ?? assert.fail('docs/testing.md has the program');
  for (const node of server.nodes) {
    const file = join(programFolder(t), 'backend.mjs');
    writeFileSync(file, program.text.replaceAll('localhost:6020', node.ownAddress));
    const env = { ...environment(), TIDEWIRE_BACKEND_KEY: key };
    const child = spawn(process.execPath, ['--import', TSX, file], { env, stdio: ['ignore', 'pipe', 'inherit'] });
    const ended = new Promise((done) => child.once('close', done));
    atEnd(t, async () => {
      child.kill('SIGTERM');
      await within(DEADLINE_MS, ended, 'the backend ends');
    });
    await within(DEADLINE_MS, new Promise((done) => child.stdout.once('data', done)), 'the backend serves');
  }
  return server;
}

export interface Reply {
  status: number;
  body: string;
}

/** The content of an open packet. */
export interface Opened {
  sid: string;
  upgrades: string[];
  pingInterval: number;
  pingTimeout: number;
  maxPayload: number;
}

/** Checks an open packet and returns its content. */
export function opened(packet: string, upgrades: string[]): Opened {
  assert.equal(packet[0], '0');
  const content = JSON.parse(packet.slice(1)) as Opened;
  assert.match(content.sid, /^[\w-]{20,}$/);
  assert.deepEqual(content, { sid: content.sid, upgrades, ...HEARTBEAT, maxPayload: content.maxPayload });
  assert.ok(content.maxPayload > 0);
  return content;
}

/** A path of a node. All requests of a session go to the same node. */
export class Site {
  constructor(readonly host: string, readonly path: string) {}

  async request(query: string, init: RequestInit = {}): Promise<Reply> {
    const response = await within(DEADLINE_MS, fetch(`http://${this.host}${this.path}?${query}`, init), `an answer to ${query}`);
    return { status: response.status, body: await response.text() };
  }

  /** A session that polls. */
  async poller(): Promise<Poller> {
    const { status, body } = await this.request('EIO=4&transport=polling');
    assert.equal(status, 200);
    return new Poller(this, opened(body, ['websocket']).sid);
  }

  /** A WebSocket, which the server may refuse. */
  wire(t: TestContext, query: string): Wire {
    return new Wire(t, `ws://${this.host}${this.path}?${query}`);
  }

  /** A WebSocket that has received the open packet. */
  async openWire(t: TestContext): Promise<Wire> {
    const wire = this.wire(t, 'EIO=4&transport=websocket');
    opened(String(await wire.next()), []);
    return wire;
  }

  /** A WebSocket to which a session that polls has changed. */
  async upgraded(t: TestContext): Promise<[Poller, Wire]> {
    const poller = await this.poller();
    const wire = poller.wire(t);
    await wire.open;
    wire.send('2probe');
    assert.equal(await wire.next(), '3probe');
    wire.send('5');
    return [poller, wire];
  }
}

/** A session that polls. */
export class Poller {
  constructor(private readonly site: Site, readonly sid: string) {}

  get query(): string {
    return `EIO=4&transport=polling&sid=${this.sid}`;
  }

  get(init: RequestInit = {}): Promise<Reply> {
    return this.site.request(this.query, init);
  }

  post(...packets: string[]): Promise<Reply> {
    return this.site.request(this.query, { method: 'POST', body: packets.join(SEPARATOR) });
  }

  /** A POST that the server accepts. */
  async sends(...packets: string[]): Promise<void> {
    assert.deepEqual(await this.post(...packets), { status: 200, body: 'ok' });
  }

  /** The next messages apart from pings, as one body. */
  async due(): Promise<string> {
    for (;;) {
      const { status, body } = await this.get();
      assert.equal(status, 200, body);
      if (body !== '2') return body;
      await this.sends('3');
    }
  }

  /** A WebSocket for the session. */
  wire(t: TestContext): Wire {
    return this.site.wire(t, `EIO=4&transport=websocket&sid=${this.sid}`);
  }
}

/** A WebSocket. */
export class Wire {
  /** Texts, and bytes as buffers. */
  readonly messages = new Inbox<string | Buffer>('messages of the server');
  readonly open: Promise<unknown>;
  readonly closed: Promise<unknown>;
  readonly #socket: WebSocket;

  constructor(t: TestContext, address: string) {
    this.#socket = new WebSocket(address);
    // A refusal is an error and then a close.
    this.#socket.on('error', () => {});
    this.#socket.on('message', (bytes: Buffer, isBinary: boolean) => this.messages.push(isBinary ? bytes : bytes.toString()));
    this.open = within(DEADLINE_MS, new Promise((done) => this.#socket.once('open', done)), 'the socket opens');
    // Not every test waits for it.
    this.open.catch(() => undefined);
    this.closed = new Promise((done) => this.#socket.once('close', done));
    atEnd(t, () => this.#socket.terminate());
  }

  send(...messages: Array<string | Buffer>): void {
    for (const message of messages) this.#socket.send(message);
  }

  next(): Promise<string | Buffer> {
    return this.messages.next();
  }

  /** The next message apart from pings, which it answers. */
  async due(): Promise<string | Buffer> {
    for (;;) {
      const message = await this.messages.next();
      if (message !== '2') return message;
      this.send('3');
    }
  }

  /** Waits until the server closes it. */
  async end(): Promise<void> {
    await within(2_000, this.closed, 'the server closes the connection');
  }
}
