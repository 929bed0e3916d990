// A toy protocol is added to a copy of the tree by one folder and one line. The server of the copy speaks it at once, with a login, events
// that cross to another protocol, pings of the server, a subprotocol, a state of each connection, and close frames in its own words.

import assert from 'node:assert/strict';
import { copyFileSync, cpSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import WebSocket from 'ws';
import { makeTree, REPOSITORY } from '../faults/tree.ts';
import { connect, subscribed } from '../harness/client.ts';
import { run } from '../harness/program.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, eventually, Inbox, within } from '../harness/wait.ts';

const TOY = join(import.meta.dirname, 'lines');
const LINES_MAX = 150;
const PROTOCOLS = 'crates/tidewire-wire/src/protocol';
/** The line. */
const MEMBER = '    Lines: lines::Lines, in folder lines;\n';
const TABLE_END = /^protocols! \{\n[^]*?(?=^\}$)/m;

const HEARTBEAT_MS = 1_000;

let binary = '';

/** Adds the toy to a copy of the tree, which changes nothing else in it. Returns the copy's folder. */
function addToy(): string {
  const folder = makeTree('toy-protocol', []);
  const table = join(folder, PROTOCOLS, 'mod.rs');
  const text = readFileSync(table, 'utf8');
  const added = text.replace(TABLE_END, (members) => members + MEMBER);
  assert.equal(added.replace(MEMBER, ''), text);
  assert.equal(added.split('\n').length, text.split('\n').length + 1);
  writeFileSync(table, added);
  cpSync(TOY, join(folder, PROTOCOLS, 'lines'), { recursive: true });
  return folder;
}

/** Builds the server of a copy, and returns the path of the program in the copy's folder. */
function build(folder: string): string {
  const target = process.env['CARGO_TARGET_DIR'] ?? join(REPOSITORY, 'target');
  run('cargo', ['build', '--quiet', '--locked', '--package', 'tidewire'], { cwd: folder, env: { ...process.env, CARGO_TARGET_DIR: target } });
  const built = join(target, 'debug', 'tidewire');
  const copied = join(folder, 'tidewire');
  copyFileSync(built, copied);
  // Otherwise another test could take it for the product, which the next build puts there again.
  rmSync(built);
  return copied;
}

class LinePeer {
  readonly lines = new Inbox<string>('lines of the server');
  readonly closed: Promise<string>;

  private constructor(readonly socket: WebSocket, answersPings: boolean) {
    socket.on('message', (bytes: Buffer) => {
      const line = bytes.toString();
      if (answersPings && line === 'PING') socket.send('PONG');
      this.lines.push(line);
    });
    this.closed = new Promise((done) => socket.once('close', (code, reason) => done(`${code} ${reason.toString()}`)));
  }

  static async open(server: Server, answersPings = true): Promise<LinePeer> {
    const socket = new WebSocket(`ws://${server.address}/lines`, ['other', 'lines']);
    const peer = new LinePeer(socket, answersPings);
    await within(DEADLINE_MS, new Promise((done) => socket.once('open', done)), 'the socket opens');
    assert.equal(socket.protocol, 'lines');
    return peer;
  }

  static async login(server: Server, answersPings = true): Promise<LinePeer> {
    const peer = await LinePeer.open(server, answersPings);
    await peer.ask('LOGIN {}', 'WELCOME');
    return peer;
  }

  /** The token in the answer to `KEEP`. */
  async keptToken(): Promise<string> {
    const [word, token] = (await this.lines.next()).split(' ');
    assert.equal(word, 'KEPT');
    assert.ok(token);
    return token;
  }

  async ask(command: string, answer: string): Promise<void> {
    this.socket.send(command);
    await this.expect(answer);
  }

  /** Waits for a line; the lines before it may only be pings. */
  async expect(expected: string): Promise<void> {
    let line = await this.lines.next();
    while (line === 'PING' && expected !== 'PING') line = await this.lines.next();
    assert.equal(line, expected);
  }
}

describe('a toy protocol', () => {
  before(() => {
    const folder = addToy();
    binary = build(folder);
  });

  test('has at most 150 lines', () => {
    const files = readdirSync(TOY);
    const count = files.map((file) => readFileSync(join(TOY, file), 'utf8').split('\n').length - 1).reduce((sum, lines) => sum + lines, 0);
    assert.ok(count > 0 && count <= LINES_MAX, `${count} lines`);
  });

  test('delivers events to its clients and to those of another protocol', async (t) => {
    const server = await Server.during(t, { binary });
    const [publisher, subscriber] = [await LinePeer.login(server), await LinePeer.login(server)];
    await subscriber.ask('SUBSCRIBE news', 'SUBSCRIBED');
    const client = await connect(t, server);
    const received = await subscribed(client, 'news');
    publisher.socket.send('PUBLISH news {"a":1}');
    publisher.socket.send('AGAIN 2');
    await subscriber.expect('EVENT news {"a":1}');
    await subscriber.expect('EVENT news 2');
    assert.deepEqual([await received.next(), await received.next()], [{ a: 1 }, 2]);
    client.event.emit('news', 'from elsewhere');
    await subscriber.expect('EVENT news "from elsewhere"');
  });

  test('changes the user of a session: subscriptions are judged again, and presence follows', async (t) => {
    const permissions = 'rpc: {"*": {provide: true, request: true}}\nrecord: {"*": {create: true, read: true, write: true, delete: true, listen: true}}\n' +
      'presence: {"*": {allow: true}}\nevent: {"private": {publish: true, subscribe: "user.id === \'ann\'", listen: true}, "*": {publish: true, subscribe: true, listen: true}}';
    const server = await Server.during(t, { binary, permissions });
    const client = await connect(t, server);
    const peer = await LinePeer.login(server);
    await peer.ask('SUBSCRIBE private', 'REFUSED');
    // The second line is the new user's, also if it arrives while the login is being decided.
    peer.socket.send('LOGIN {"username":"ann"}');
    peer.socket.send('SUBSCRIBE private');
    await peer.expect('WELCOME');
    await peer.expect('SUBSCRIBED');
    assert.deepEqual(await client.presence.getAll(), ['ann']);
    client.event.emit('private', 1);
    await peer.expect('EVENT private 1');
    await peer.ask('LOGOUT', 'WELCOME');
    await peer.expect('REFUSED');
    assert.deepEqual(await client.presence.getAll(), []);
    client.event.emit('private', 2);
    await peer.ask('SUBSCRIBE news', 'SUBSCRIBED');
    client.event.emit('news', 3);
    await peer.expect('EVENT news 3');
  });

  test('is pinged by the server, and a client that does not answer is closed with the words of the protocol', async (t) => {
    const server = await Server.during(t, { binary, heartbeatIntervalMs: HEARTBEAT_MS });
    const [alive, silent] = [await LinePeer.login(server), await LinePeer.login(server, false)];
    assert.equal(await within(DEADLINE_MS, silent.closed, 'the silent client is closed'), '1008 BYE, no heartbeat within the time allowed');
    assert.ok(silent.lines.seen.includes('PING'));
    await alive.ask('SUBSCRIBE news', 'SUBSCRIBED');
  });

  test('resumes a session on another connection, with the lines that were published in between', async (t) => {
    const server = await Server.during(t, { binary });
    const [publisher, first] = [await LinePeer.login(server), await LinePeer.login(server)];
    await first.ask('SUBSCRIBE news', 'SUBSCRIBED');
    first.socket.send('KEEP');
    const token = await first.keptToken();
    publisher.socket.send('PUBLISH news 1');
    await first.expect('EVENT news 1');
    first.socket.terminate();
    await eventually(async () => (await server.metric('tidewire_detached_sessions')) === 1, 'the session has no connection');
    publisher.socket.send('PUBLISH news 2');
    publisher.socket.send('AGAIN 3');
    const second = await LinePeer.open(server);
    await second.ask(`RESUME ${token} 1`, 'RESUMED 0');
    await second.expect('EVENT news 2');
    await second.expect('EVENT news 3');
    await second.ask('SUBSCRIBE other', 'SUBSCRIBED');
    publisher.socket.send('AGAIN 4');
    await second.expect('EVENT news 4');
    // A peer that has missed a line does not lose it, and a wrong token resumes no session.
    const third = await LinePeer.open(server);
    await third.ask(`RESUME ${token.slice(1)}0 0`, 'REFUSED no such session');
    await third.ask(`RESUME ${token} 4`, 'RESUMED 1');
    await third.expect('EVENT news 4');
  });

  test('refuses a handshake without its subprotocol, and a binary message', async (t) => {
    const server = await Server.during(t, { binary });
    const refused = new WebSocket(`ws://${server.address}/lines`);
    const error = await within(DEADLINE_MS, new Promise<Error>((done) => refused.once('error', done)), 'the handshake is refused');
    assert.match(error.message, /400/);
    const peer = await LinePeer.login(server);
    peer.socket.send(Buffer.from([1]));
    assert.equal(await within(DEADLINE_MS, peer.closed, 'the connection is closed'), '1003 BYE, this path takes text messages');
  });
});
