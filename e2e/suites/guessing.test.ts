// Password guessing: the server delays and logs logins after refusals, by address and by user, over every interface. Rightful users can
// log in during an attack, also the attacked user.

import assert from 'node:assert/strict';
import { Agent, request } from 'node:http';
import { describe, test, type TestContext } from 'node:test';
import { C, connect, open, close } from '../harness/client.ts';
import { run } from '../harness/program.ts';
import { RawPeer } from '../harness/raw.ts';
import { Server, againstOriginal, binary } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';

const { AUTH } = C.TOPIC;
const PASSWORD = 'correct horse';
/** The address of the attackers. */
const ATTACKER = '127.0.0.2';
/** Duration of an attack. */
const ATTACK_MS = 3_000;
/** The most guesses that the server verifies during an attack: the first without delay, and the delayed ones that fit into its time. */
const JUDGED_MAX = 20;
/** The longest time for a rightful login, on a busy machine. */
const RIGHTFUL_MS = 2_000;

/** A hash from `tidewire hash`: argon2id, whose verification takes tens of milliseconds. */
const hash = (password: string): string => run(binary(), ['hash'], { input: `${password}\n` }).trim();

/** A server with the default back-off, whose users have passwords that are cheap to verify unless `isCostly`. */
async function guarded(test: TestContext, isCostly = false): Promise<Server> {
  const made = isCostly ? hash : hashPassword;
  const names = ['anna', 'bob', 'carol'];
  const users = Object.fromEntries(names.map((name) => [name, { password: made(PASSWORD) }]));
  return Server.during(test, { users, backoff: {}, logLevel: 'info', keepsOutput: true });
}

/** Makes two guesses on one WebSocket connection. */
async function guessTwice(server: Server, username: string, number: number): Promise<void> {
  const peer = await RawPeer.challenge(server, { url: `ws://${server.address}`, options: { localAddress: ATTACKER } });
  for (const guess of [1, 2]) {
    const data = JSON.stringify({ username, password: `guess ${number}.${guess}` });
    peer.send({ topic: AUTH, action: C.AUTH_ACTION.REQUEST, data });
    await Promise.race([peer.expectCount(AUTH, C.AUTH_ACTION.AUTH_UNSUCCESSFUL, guess), peer.closed]).catch(() => undefined);
    if (!peer.isOpen) break;
  }
  peer.abort();
}

/** Makes one guess over HTTP. Returns the status of the answer. */
function guessOnce(agent: Agent, server: Server, path: string, username: string, number: number): Promise<number> {
  const [host, port] = server.address.split(':') as [string, string];
  const login = { username, password: `guess ${number}` };
  const basic = `Basic ${Buffer.from(`${username}:${login.password}`).toString('base64')}`;
  const isLogin = path === '/api/auth';
  const headers = isLogin ? { 'content-type': 'application/json' } : { authorization: basic };
  return new Promise((done) => {
    const sent = request({ host, port, path, agent, headers, method: isLogin ? 'POST' : 'GET', localAddress: ATTACKER }, (answer) => {
      answer.resume().on('end', () => done(answer.statusCode ?? 0));
    });
    sent.on('error', () => done(0));
    sent.end(isLogin ? JSON.stringify(login) : undefined);
  });
}

/** Runs concurrent workers for `ATTACK_MS`, each of which guesses in sequence. Returns the number of guesses. */
async function attack(workers: number, guess: (number: number) => Promise<unknown>): Promise<number> {
  const end = performance.now() + ATTACK_MS;
  let count = 0;
  const work = async (): Promise<void> => {
    while (performance.now() < end) await Promise.race([guess((count += 1)), past(end)]);
  };
  await Promise.all(Array.from({ length: workers }, work));
  return count;
}

function past(end: number): Promise<void> {
  return new Promise((done) => setTimeout(done, Math.max(0, end - performance.now()) + 10));
}

function linesOf(server: Server, text: string): string[] {
  return server.output.split('\n').filter((line) => line.includes(text));
}

describe('guessing passwords', { concurrency: 2, skip: againstOriginal && 'deepstream does not delay guesses' }, () => {
  test('over WebSocket is soon delayed and logged once a minute, and the user can log in from elsewhere', async (t) => {
    const server = await guarded(t);
    await attack(40, (number) => guessTwice(server, 'anna', number));
    const judged = await server.metric('tidewire_logins_refused_total');
    assert.ok(judged >= 10 && judged <= JUDGED_MAX, `${judged} guesses were verified`);
    assert.ok((await server.metric('tidewire_logins_held_off_total')) > 0);
    assert.equal(linesOf(server, 'logins from an address are refused').length, 1);
    const ofUser = linesOf(server, 'logins of a user are refused');
    assert.equal(ofUser.length, 1);
    assert.ok(ofUser[0]?.includes('anna') && !server.output.includes('guess 1'), 'the log has the name, but no passwords');
    const began = performance.now();
    await connect(t, server, { login: { username: 'anna', password: PASSWORD } });
    assert.ok(performance.now() - began < RIGHTFUL_MS);
  });

  for (const [path, way] of [['/records/any', 'HTTP Basic'], ['/api/auth', 'POST /api/auth']] as const) {
    test(`over ${way} is soon delayed, also with changing user names`, async (t) => {
      const server = await guarded(t);
      const agent = new Agent({ keepAlive: true });
      t.after(() => agent.destroy());
      const statuses = new Map<number, number>();
      const guesses = await attack(40, async (number) => {
        const status = await guessOnce(agent, server, path, `user-${number % 3}`, number);
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
      });
      const judged = await server.metric('tidewire_logins_refused_total');
      console.log(`${guesses} guesses, ${judged} verified`, statuses);
      assert.ok(judged >= 5 && judged <= 3 * JUDGED_MAX, `${judged} guesses were verified`);
      for (const status of statuses.keys()) assert.ok([0, 401, 429, 503].includes(status), `${status}`);
      const began = performance.now();
      await connect(t, server, { login: { username: 'anna', password: PASSWORD } });
      assert.ok(performance.now() - began < RIGHTFUL_MS);
    });
  }

  test('sixty times a second keeps no rightful user out, also if every hash is costly', async (t) => {
    const server = await guarded(t, true);
    const peers = new Set<Promise<void>>();
    let number = 0;
    const timer = setInterval(() => {
      number += 1;
      // Guesses for two existing users and for many users that do not exist.
      const username = ['anna', 'bob', `user-${number}`][number % 3] as string;
      const peer = guessTwice(server, username, number).catch(() => undefined);
      peers.add(peer);
      void peer.then(() => peers.delete(peer));
    }, 1_000 / 60);
    t.after(() => clearInterval(timer));
    await eventually(async () => (await server.metric('tidewire_logins_refused_total')) >= 10, 'the attack has begun');
    for (const username of ['anna', 'bob', 'carol', 'anna']) {
      const client = open(server.address);
      t.after(() => close(client));
      const began = performance.now();
      await within(DEADLINE_MS, Promise.resolve(client.login({ username, password: PASSWORD })), 'a rightful login');
      const took = performance.now() - began;
      assert.ok(took < RIGHTFUL_MS, `${username} waited for ${took} ms`);
    }
    clearInterval(timer);
  });
});
