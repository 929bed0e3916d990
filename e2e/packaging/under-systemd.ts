// The unit under a real systemd: a start that completes when the server serves, watchdog messages, a reload, a crash, a server that
// hangs, a stop. `npm run unit`, as in `make proof-unit`; it needs root and systemd-nspawn.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { provide } from '../../packages/client/src/provide.ts';
import { client } from '../harness/driver/tidewire.ts';
import { freePort } from '../harness/ports.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';
import { Booted } from './booted.ts';

/** Short timeouts, because the test would wait for half a minute with the unit's own. Everything else is as shipped. */
const TIMES = '[Service]\nWatchdogSec=2s\nTimeoutAbortSec=2s\n';
const NAME = 'written/before';

test('the unit under systemd', async (t) => {
  const port = await freePort();
  const address = `127.0.0.1:${port}`;
  const configuration = (more = ''): string => `network: { host: 127.0.0.1, port: ${port} }\nauth: { chain: [open] }\npermissions: allow_all\n${more}`;
  const systemd = await Booted.during(t, configuration(), TIMES);
  const health = async (): Promise<number> => (await fetch(`http://${address}/health`)).status;
  const record = (method: string): Promise<Response> => {
    const headers = { 'content-type': 'application/json' };
    return fetch(`http://${address}/records/${NAME}`, { method, headers, ...(method === 'PUT' && { body: '{"kept":true}' }) });
  };
  /** Milliseconds from `act` until the server serves again as another process. */
  const comesBack = async (act: (pid: string) => Promise<unknown>): Promise<number> => {
    const before = await systemd.state();
    assert.equal(before.ActiveState, 'active');
    const start = performance.now();
    await act(before.MainPID);
    const isNext = Number(before.NRestarts) + 1;
    const after = await systemd.until((state) => state.NRestarts === String(isNext) && state.ActiveState === 'active', 'it is started again');
    assert.notEqual(after.MainPID, before.MainPID);
    assert.deepEqual([await health(), await (await record('GET')).json()], [200, { kept: true }]);
    return performance.now() - start;
  };

  await t.test('a start completes when the server serves, as its own user', async (inner) => {
    const start = performance.now();
    await systemd.run('systemctl', 'start', 'tidewire');
    assert.equal(await health(), 200);
    const { ActiveState, StatusText, MainPID } = await systemd.state();
    assert.deepEqual([ActiveState, StatusText], ['active', `ready on http://${address}`]);
    console.log(`unit: ready after ${(performance.now() - start).toFixed(0)} ms`);
    inner.diagnostic(await systemd.run('systemctl', '--version'));
    assert.match(await systemd.run('ps', '-o', 'user=', '-p', MainPID), /^tidewire$/m);
    assert.equal((await systemd.run('stat', '--format=%U %a', '/var/lib/tidewire')).trim(), 'tidewire 700');
    assert.match(await systemd.run('journalctl', '--unit=tidewire', '--output=cat'), /^ready on /m);
    assert.ok((await record('PUT')).ok);
  });

  await t.test('it sends watchdog messages', async () => {
    const seen = new Set<string>();
    await systemd.until(({ WatchdogTimestampMonotonic }) => seen.add(WatchdogTimestampMonotonic).size >= 6, 'signs of life');
    assert.equal((await systemd.state()).NRestarts, '0');
  });

  await t.test('a reload applies changes, reports errors, and closes no connection', async (inner) => {
    const user = client(inner, address);
    await within(DEADLINE_MS, user.connect(), 'login');
    const { MainPID } = await systemd.state();
    systemd.write('/etc/tidewire/tidewire.yml', configuration('limits: { name_bytes_max: 20 }\n'));
    await systemd.run('systemctl', 'reload', 'tidewire');
    await systemd.until(({ StatusText }) => StatusText === 'reloaded', 'the new configuration is applied');
    systemd.write('/etc/tidewire/tidewire.yml', configuration('limits: { name_bites_max: 20 }\n'));
    await systemd.run('systemctl', 'reload', 'tidewire');
    const { StatusText } = await systemd.until((state) => state.StatusText.startsWith('not reloaded'), 'the wrong configuration is refused');
    assert.match(StatusText, /name_bites_max/);
    systemd.write('/etc/tidewire/tidewire.yml', configuration());
    assert.deepEqual([user.state, (await systemd.state()).MainPID], ['open', MainPID]);
  });

  await t.test('a server that is killed is started again', async () => {
    console.log(`unit: killed, back after ${(await comesBack((pid) => systemd.run('kill', '-KILL', pid))).toFixed(0)} ms`);
  });

  await t.test('a server that hangs is killed and started again', async () => {
    console.log(`unit: stopped in its tracks, back after ${(await comesBack((pid) => systemd.run('kill', '-STOP', pid))).toFixed(0)} ms`);
    assert.match(await systemd.run('journalctl', '--unit=tidewire', '--output=cat'), /Watchdog timeout/);
  });

  await t.test('a stop waits for pending requests', async (inner) => {
    const [caller, provider] = [client(inner, address), client(inner, address)];
    await within(DEADLINE_MS, Promise.all([caller.connect(), provider.connect()]), 'login');
    let answer = (_: string): void => {};
    let isAsked = false;
    const slow = new Promise<string>((done) => (answer = done));
    await provide(provider.rpc, 'slow', () => ((isAsked = true), slow)).ready;
    const call = caller.rpc.call('slow', null);
    await eventually(() => isAsked, 'the provider receives a call');
    const start = performance.now();
    const stopped = systemd.run('systemctl', 'stop', 'tidewire');
    await systemd.until(({ ActiveState, StatusText }) => ActiveState === 'deactivating' && StatusText === 'stopping', 'the server stops');
    answer('answered');
    assert.equal(await call, 'answered');
    await within(DEADLINE_MS, stopped, 'the stop has completed');
    console.log(`unit: stopped after ${(performance.now() - start).toFixed(0)} ms`);
    const { ActiveState, Result, ExecMainStatus } = await systemd.state();
    assert.deepEqual([ActiveState, Result, ExecMainStatus], ['inactive', 'success', '0']);
  });

  await t.test('a wrong configuration is reported, and not tried again', async () => {
    systemd.write('/etc/tidewire/tidewire.yml', configuration('limits: { name_bites_max: 20 }\n'));
    await assert.rejects(systemd.run('systemctl', 'start', 'tidewire'), /Job for tidewire.service failed/);
    const { ActiveState, ExecMainStatus, NRestarts } = await systemd.state();
    assert.deepEqual([ActiveState, ExecMainStatus, NRestarts], ['failed', '2', '0']);
    assert.match(await systemd.run('journalctl', '--unit=tidewire', '--output=cat'), /name_bites_max/);
  });
});
