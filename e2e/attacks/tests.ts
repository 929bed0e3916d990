// Runs each attack for some seconds, together with control pairs that have nothing to do with it. One run has the limit, which must
// prevent the harm. One run has the limit switched off and must show that the test can see the harm.

import assert from 'node:assert/strict';
import { fork, spawnSync, type ChildProcess } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { resolve } from 'node:path';
import { after, test, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { certify, CertificateFiles } from '../harness/certificate.ts';
import { atEnd } from '../harness/cleanup.ts';
import { Server, type ServerOptions } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';
import { ControlPair } from './control.ts';
import { SECONDS, type Attack } from './attack.ts';
import { felt, shown, summary, type Felt } from './outcome.ts';

/** The p99 of the pairs may exceed twice its value without an attack by this. On a commit the machine is shared and the time is short. */
const SLACK_MS = Number(process.env['ATTACK_SLACK_MS'] ?? 200);
const SHARDS = 2;
const GROWTH_MAX = 64 * (1 << 20);
const LOG_LINES_MAX = 100;
/** The time within which memory and descriptors are released, except for memory that the allocator keeps for reuse. */
const RECOVERY_MS = 10_000;
const KEPT_MAX = 32 * (1 << 20);
const LOOK_INTERVAL_MS = 50;
/** An attack may run this much longer until its effect is visible: its process has the lowest priority, and other suites may run. */
const PATIENCE_MS = 45_000;

/** A pattern such as `tokens|tickets` that selects attacks by name; all by default. */
const CHOSEN = new RegExp(process.env['ATTACKS'] ?? '');

/** Registers the tests of these attacks, and prints a summary of all of them at the end. */
export function testAttacks(attacks: Attack[]): void {
  for (const attack of attacks.filter(({ name }) => CHOSEN.test(name))) testAttack(attack);
  after(() => console.log(summary()));
}

function testAttack(attack: Attack): void {
  test(`${attack.name}: ${attack.limit} holds`, async (t) => {
    await felt(attack, true, async () => {
      const outcome = await suffer(t, attack, attack.options ?? {}, true);
      t.diagnostic(shown(outcome));
      const { calm, attacked, harm, counted, growth, logLines } = outcome;
      const bound = boundAfter(outcome.seconds, attack);
      assert.ok(harm <= bound, `the harm is ${harm}, more than ${bound}`);
      assert.ok(counted > 0, `${attack.metric} does not name the attack`);
      assert.ok(growth <= GROWTH_MAX, `the server grew by ${growth} bytes`);
      assert.ok(logLines <= LOG_LINES_MAX, `the log grew by ${logLines} lines`);
      const most = 2 * calm + SLACK_MS;
      assert.ok(attacked <= most, `p99 ${attacked.toFixed(1)} ms, alone ${calm.toFixed(1)} ms`);
      return outcome;
    });
  });

  const { off } = attack;
  if ('because' in off) return;
  test(`${attack.name}: without its limit the harm is seen`, async (t) => {
    await felt(attack, false, async () => {
      const outcome = await suffer(t, attack, off, false);
      t.diagnostic(shown(outcome));
      const bound = boundAfter(SECONDS, attack);
      assert.ok(outcome.harm > bound, `the harm is ${outcome.harm}, at most ${bound}`);
      return outcome;
    });
  });
}

/**
 * Runs the attack against a separate server for `SECONDS`. It runs longer until the metric reports the attack or, without a limit, until
 * the harm is visible.
 */
async function suffer(t: TestContext, attack: Attack, options: ServerOptions, isHeld: boolean): Promise<Felt> {
  const server = await Server.during(t, serverOptions(t, attack, options));
  const pairs = await ControlPair.onEach(t, server, SHARDS);
  // The first write opens the store's files, and the first events pay for lazy initialization. Measure after both.
  await pairs[0]?.write();
  // Without the limit, only the harm is compared.
  if (isHeld) {
    await pause(200);
    worst(pairs);
    await pause(SECONDS * 1_000);
  }
  const calm = worst(pairs);
  const before = { memory: server.memoryBytes, lines: server.lineCount, metric: await server.metric(attack.metric) };
  const descriptors = descriptorCount(server);

  const child = attacker(t, attack, server);
  await within(DEADLINE_MS, new Promise((begun) => child.once('message', begun)), 'the attacker begins');
  // Only now, because a busy machine may not start a process of the lowest priority within the deadline. Without the limit, latencies do not
  // count, and an attacker of the lowest priority may do too little.
  if (isHeld) spawnSync('renice', ['-n', '19', '-p', String(child.pid)]);
  const started = performance.now();
  const most = { memory: before.memory, gauge: 0 };
  const measured = (): number => {
    if (attack.harm === 'memory') return most.memory - before.memory;
    return attack.harm === 'floods' ? pairs.reduce((sum, pair) => sum + pair.floods, 0) : most.gauge;
  };
  const isSeen = async (): Promise<boolean> => {
    most.memory = Math.max(most.memory, server.memoryBytes);
    if (attack.harm.startsWith('tidewire_')) most.gauge = Math.max(most.gauge, await server.metric(attack.harm));
    const seconds = (performance.now() - started) / 1_000;
    if (seconds < SECONDS) return false;
    if (isHeld) return (await server.metric(attack.metric)) > before.metric;
    // The attacker reports the number that it reached only at its end.
    return attack.harm === 'reached' ? seconds > 2 * SECONDS : measured() > boundAfter(SECONDS, attack);
  };
  const deadline = started + SECONDS * 1_000 + PATIENCE_MS;
  while (!(await isSeen()) && performance.now() < deadline) await pause(LOOK_INTERVAL_MS);
  const attacked = worst(pairs);
  const reached = new Promise<number>((done) => child.once('message', (number) => done(number as number)));
  child.send('stop');
  const toldAtEnd = await within(DEADLINE_MS, reached, 'the attacker stops');
  const harm = attack.harm === 'reached' ? toldAtEnd : measured();
  const outcome = {
    seconds: (performance.now() - started) / 1_000,
    calm,
    attacked,
    harm,
    growth: most.memory - before.memory,
    logLines: server.lineCount - before.lines,
    counted: (await server.metric(attack.metric)) - before.metric,
  };
  if (isHeld) {
    server.closeMetrics();
    await eventually(() => descriptorCount(server) <= descriptors, 'descriptors are back', RECOVERY_MS);
    const kept = (): number => server.memoryBytes - before.memory;
    const isBack = eventually(() => kept() <= KEPT_MAX, 'memory is back', RECOVERY_MS);
    await isBack.finally(() => t.diagnostic(`memory +${(kept() / 1e6).toFixed(1)} MB afterwards`));
  }
  return outcome;
}

function boundAfter(seconds: number, { bound, boundPerSecond = 0 }: Attack): number {
  return bound + boundPerSecond * seconds;
}

/** The worst p99 of a pair since the last call, in milliseconds. */
function worst(pairs: ControlPair[]): number {
  return Math.max(...pairs.map((pair) => pair.takeP99()));
}

function serverOptions(t: TestContext, { isEncrypted }: Attack, options: ServerOptions): ServerOptions {
  const own: ServerOptions = { shards: SHARDS, ...options };
  if (options.users) {
    const control = { password: hashPassword('control') };
    own.users = Object.fromEntries(Array.from({ length: 2 * SHARDS }, (_, i) => [`control${i}`, control]));
  }
  if (isEncrypted) {
    const files = new CertificateFiles(t, certify());
    own.tls = { certificate: files.certificate, key: files.key };
  }
  return own;
}

function attacker(t: TestContext, attack: Attack, server: Server): ChildProcess {
  const args = [attack.name, server.address, server.tlsAddress];
  const child = fork(resolve(import.meta.dirname, 'attacker.ts'), args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  atEnd(t, () => void child.kill('SIGKILL'));
  return child;
}

function descriptorCount(server: Server): number {
  return readdirSync(`/proc/${server.pid}/fd`).length;
}
