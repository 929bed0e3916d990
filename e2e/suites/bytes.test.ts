// No bytes from one peer disturb another: fuzzing peers target everything that ten real clients use, while these clients exchange
// checked traffic. None of the clients may throw, report an error or lose its connection.

import assert from 'node:assert/strict';
import { fork, type ChildProcess } from 'node:child_process';
import { resolve } from 'node:path';
import { describe, test } from 'node:test';
import type { Account } from '../harness/bystander.ts';
import { atEnd } from '../harness/cleanup.ts';
import { connect } from '../harness/client.ts';
import { Fuzzer } from '../harness/fuzzer.ts';
import { fresh } from '../harness/names.ts';
import { Random } from '../harness/random.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually } from '../harness/wait.ts';

const BYSTANDER_COUNT = 10;
const FUZZER_COUNT = 2;
/** Ten seconds on every commit; a minute for the proof. */
const SECONDS = Number(process.env['BYTES_SECONDS'] ?? 10);
/** The seed of a failing run reproduces its messages, but not their timing. */
const SEED = Number(process.env['BYTES_SEED'] ?? Date.now() % 2 ** 32);
const START_DEADLINE_MS = 60_000;

interface Process {
  child: ChildProcess;
  accounts: Inbox<Account>;
}

describe('bytes from a fuzzing peer', { skip: againstOriginal && "they end deepstream's process" }, () => {
  test(`do not disturb ${BYSTANDER_COUNT} others within ${SECONDS} seconds`, async (t) => {
    t.diagnostic(`BYTES_SEED=${SEED}`);
    const server = await Server.during(t, { rpcRequestor: true, listenResponseTimeoutMs: DEADLINE_MS });
    const bystanders = Array.from({ length: BYSTANDER_COUNT }, (_, index) => started(server, index));
    atEnd(t, () => bystanders.forEach(({ child }) => child.kill('SIGKILL')));
    await Promise.all(bystanders.map(({ accounts }) => accounts.count(1, START_DEADLINE_MS)));
    bystanders.forEach(({ child }) => child.send('run'));
    const fuzzers = Array.from({ length: FUZZER_COUNT }, (_, i) => new Fuzzer(server, new Random(SEED + i)));
    const deadline = Date.now() + SECONDS * 1_000;
    await Promise.all(fuzzers.map((fuzzer) => fuzzer.run(deadline)));
    const accounts = await Promise.all(bystanders.map(account));
    const sum = (pick: (one: Account) => number): number => accounts.reduce((total, one) => total + pick(one), 0);
    const sent = fuzzers.reduce((total, fuzzer) => total + fuzzer.sent, 0);
    const connections = fuzzers.reduce((total, fuzzer) => total + fuzzer.connections, 0);
    t.diagnostic(`${sent} messages over ${connections} connections, ${sum((one) => one.touched)} reached a client`);
    t.diagnostic(`${sum((one) => one.checked)} checks of the clients' own traffic`);
    assert.deepEqual([...new Set(accounts.flatMap((one) => one.failures))], []);
    assert.ok(accounts.every((one) => one.checked > 0 && one.touched > 0), 'every client received fuzzed messages and continued');
    assert.equal(server.isRunning, true);
    const holds = async (count: number): Promise<boolean> => (await server.metric('tidewire_connections')) === count;
    await eventually(() => holds(BYSTANDER_COUNT), 'the connections of the fuzzing peers have ended');
    bystanders.forEach(({ child }) => child.kill('SIGKILL'));
    await eventually(() => holds(0), 'the connections of the clients have ended');
    const witness = await connect(t, server);
    assert.equal(await witness.record.has(fresh('record')), false);
  });
});

function started(server: Server, index: number): Process {
  const script = resolve(import.meta.dirname, '../harness/bystander.ts');
  const args = [server.address, `${index}`, `${BYSTANDER_COUNT}`];
  // The client prints warnings about many of these messages, which are intended here.
  const child = fork(script, args, { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
  const accounts = new Inbox<Account>(`accounts of bystander ${index}`);
  child.on('message', (message) => accounts.push(message as Account));
  return { child, accounts };
}

async function account({ child, accounts }: Process): Promise<Account> {
  const before = accounts.seen.length;
  child.send('account');
  await accounts.count(before + 1, START_DEADLINE_MS);
  return accounts.seen[before] as Account;
}
