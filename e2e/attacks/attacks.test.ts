// Each attack for some seconds, beside control pairs that have nothing to do with it: with its limit, which must hold it, and
// with the limit switched off, which must show that the harm would have been seen.

import assert from 'node:assert/strict';
import { fork, spawnSync, type ChildProcess } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { resolve } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { certify, CertificateFiles } from '../harness/certificate.ts';
import { atEnd } from '../harness/cleanup.ts';
import { Server, type ServerOptions } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';
import { ControlPair } from './control.ts';
import { ATTACKS, SECONDS, type Attack } from './list.ts';

/** What the pairs may feel beyond twice what they feel alone. On a commit the machine is shared and the time is short. */
const SLACK_MS = Number(process.env['ATTACK_SLACK_MS'] ?? 200);
const SHARDS = 2;
const GROWTH_MAX = 64 * (1 << 20);
const LOG_LINES_MAX = 100;
/** Memory and descriptors are back within this time. */
const RECOVERY_MS = 10_000;
const LOOK_INTERVAL_MS = 50;
/** How much longer an attack may need until something is seen of it; its process has the lowest priority. */
const PATIENCE_MS = 15_000;

interface Felt {
  /** Worst p99 of a pair before and during the attack. */
  calm: number;
  attacked: number;
  /** Bytes by which the server grew, at most. */
  growth: number;
  logLines: number;
  /** By how much the metric of the limit grew. */
  counted: number;
  harm: number;
}

for (const attack of ATTACKS) {
  test(`${attack.name}: ${attack.limit} holds`, async (t) => {
    const felt = await suffer(t, attack, attack.options ?? {}, true);
    t.diagnostic(shown(felt));
    assert.ok(felt.harm <= attack.bound, `the harm is ${felt.harm}, more than ${attack.bound}`);
    assert.ok(felt.counted > 0, `${attack.metric} does not name the attack`);
    assert.ok(felt.growth <= GROWTH_MAX, `the server grew by ${felt.growth} bytes`);
    assert.ok(felt.logLines <= LOG_LINES_MAX, `the log grew by ${felt.logLines} lines`);
    const most = 2 * felt.calm + SLACK_MS;
    assert.ok(felt.attacked <= most, `p99 ${felt.attacked.toFixed(1)} ms, alone ${felt.calm.toFixed(1)} ms`);
  });

  const { off } = attack;
  if ('because' in off) continue;
  test(`${attack.name}: without its limit the harm is seen`, async (t) => {
    const felt = await suffer(t, attack, off, false);
    t.diagnostic(shown(felt));
    assert.ok(felt.harm > attack.bound, `the harm is ${felt.harm}, at most ${attack.bound}`);
  });
}

/**
 * Runs the attack against a server of its own: for its seconds, and longer until the metric says so, or without a limit the
 * harm is seen.
 */
async function suffer(t: TestContext, attack: Attack, options: ServerOptions, isHeld: boolean): Promise<Felt> {
  const server = await Server.during(t, serverOptions(t, attack, options));
  const pairs = await ControlPair.onEach(t, server, SHARDS);
  // The store opens its files with the first write, and the first events pay for what is made on first use.
  await pairs[0]?.write();
  await pause(200);
  worst(pairs);
  await pause(SECONDS * 1_000);
  const calm = worst(pairs);
  const before = { memory: server.memoryBytes, lines: server.lineCount, metric: await server.metric(attack.metric) };
  const descriptors = descriptorCount(server);

  const started = performance.now();
  const child = attacker(t, attack, server);
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
    // What an attacker has reached it tells at its end only.
    return attack.harm === 'reached' ? seconds > 2 * SECONDS : measured() > attack.bound;
  };
  const deadline = started + SECONDS * 1_000 + PATIENCE_MS;
  while (!(await isSeen()) && performance.now() < deadline) await pause(LOOK_INTERVAL_MS);
  const attacked = worst(pairs);
  const reached = new Promise<number>((done) => child.once('message', (number) => done(number as number)));
  child.send('stop');
  const toldAtEnd = await within(DEADLINE_MS, reached, 'the attacker stops');
  const harm = attack.harm === 'reached' ? toldAtEnd : measured();
  const felt = {
    calm,
    attacked,
    harm,
    growth: most.memory - before.memory,
    logLines: server.lineCount - before.lines,
    counted: (await server.metric(attack.metric)) - before.metric,
  };
  if (isHeld) {
    await eventually(() => descriptorCount(server) <= descriptors, 'descriptors are back', RECOVERY_MS);
    const isBack = (): boolean => server.memoryBytes - before.memory <= GROWTH_MAX;
    await eventually(isBack, 'memory is back', RECOVERY_MS);
  }
  return felt;
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

/** Starts the attacker at the lowest priority. */
function attacker(t: TestContext, attack: Attack, server: Server): ChildProcess {
  const args = [attack.name, server.address, server.tlsAddress];
  const child = fork(resolve(import.meta.dirname, 'attacker.ts'), args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  spawnSync('renice', ['-n', '19', '-p', String(child.pid)]);
  atEnd(t, () => void child.kill('SIGKILL'));
  return child;
}

function descriptorCount(server: Server): number {
  return readdirSync(`/proc/${server.pid}/fd`).length;
}

function shown({ calm, attacked, growth, logLines, counted, harm }: Felt): string {
  const megabytes = (growth / 1e6).toFixed(1);
  const p99 = `p99 ${calm.toFixed(1)} -> ${attacked.toFixed(1)} ms`;
  return `harm ${Math.round(harm)}, counted ${counted}, ${p99}, memory +${megabytes} MB, log +${logLines} lines`;
}
