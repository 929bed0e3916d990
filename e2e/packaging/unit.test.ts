// The systemd unit in packaging/: systemd accepts it without warnings, it restricts an intruder, and its timeouts fit the server's.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { test, type TestContext } from 'node:test';
import { binary } from '../harness/server.ts';

const UNIT = readFileSync(resolve(import.meta.dirname, '../../packaging/tidewire.service'), 'utf8');
/** The path of the server in the unit. */
const INSTALLED = '/usr/local/bin/tidewire';
/** The highest allowed exposure, in tenths of the ten points of `systemd-analyze security`. */
const EXPOSURE_MAX = 25;

/** The output of `systemd-analyze` for a unit that starts the server under test. */
function analyze(t: TestContext, unit: string, ...args: string[]): { status: number | null; said: string } {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-unit-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'tidewire.service');
  writeFileSync(file, unit.replace(INSTALLED, binary()));
  const { status, stdout, stderr, error } = spawnSync('systemd-analyze', [...args, file], { encoding: 'utf8' });
  if (error !== undefined) throw new Error(`${error.message}: apt-get install -y systemd`);
  return { status, said: stdout + stderr };
}

/** The seconds of an option whose value has the unit s or min. */
function seconds(option: string): number {
  const [, number, scale] = new RegExp(`^${option}=(\\d+)(s|min)$`, 'm').exec(UNIT) ?? [];
  assert.ok(number !== undefined, option);
  return Number(number) * (scale === 'min' ? 60 : 1);
}

test('systemd reports no problem with the unit', (t) => {
  assert.deepEqual(analyze(t, UNIT, 'verify'), { status: 0, said: '' });
});

test('the test detects an option that systemd does not know', (t) => {
  assert.match(analyze(t, UNIT.replace('WatchdogSec', 'WatchdogSeconds'), 'verify').said, /WatchdogSeconds/);
});

test('the exposure is at most 2.5', (t) => {
  const judge = ['security', '--offline=true', `--threshold=${EXPOSURE_MAX}`];
  const { status, said } = analyze(t, UNIT, ...judge);
  const [exposure] = /Overall exposure level.*/.exec(said) ?? [];
  t.diagnostic(exposure ?? said);
  assert.equal(status, 0, said);
  const open = UNIT.replace('CapabilityBoundingSet=\n', '').replace(/^SystemCall.*\n/gm, '').replace('PrivateUsers=yes\n', '');
  assert.notEqual(analyze(t, open, ...judge).status, 0, 'one that leaves much is refused');
});

test('the unit gives the server more time to stop than it needs', () => {
  const { stdout } = spawnSync(binary(), ['config', 'print'], { encoding: 'utf8' });
  const [, drain] = /^drain_timeout: (\d+)s$/m.exec(stdout) ?? [];
  assert.ok(drain !== undefined, stdout);
  assert.ok(seconds('TimeoutStopSec') > Number(drain));
});
