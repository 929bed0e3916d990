// A real systemd as the first process of a container: a temporary copy of this machine's system, with the server and its unit
// installed as docs/deployment.md describes. Needs root and systemd-nspawn; the container uses the machine's network.

import { execFile, execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import type { TestContext } from 'node:test';
import { promisify } from 'node:util';
import { atEnd } from '../harness/cleanup.ts';
import { binary } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';

const UNIT = resolve(import.meta.dirname, '../../packaging/tidewire.service');
const BOOT_MS = 60_000;

/** The state of the unit as systemd reports it. */
export interface UnitState {
  ActiveState: string;
  MainPID: string;
  NRestarts: string;
  Result: string;
  StatusText: string;
  ExecMainStatus: string;
  WatchdogTimestampMonotonic: string;
}

export class Booted {
  /** `first` is systemd's process id on the machine. */
  private constructor(private readonly first: number) {}

  /** Boots the container; it stops at the end of `test`. `configuration` is the server's, `dropIn` is added to the unit. */
  static async during(test: TestContext, configuration: string, dropIn: string): Promise<Booted> {
    const folder = mkdtempSync(join(tmpdir(), 'tidewire-systemd-'));
    const root = join(folder, 'root');
    mkdirSync(root);
    // nspawn writes to memory and changes none of the machine's own files.
    execFileSync('mount', ['--bind', '/', root]);
    const args = ['--quiet', '--boot', `--directory=${root}`, '--volatile=overlay', '--register=no', '--keep-unit', '--link-journal=no'];
    const names = [`--machine=tidewire-${process.pid}`, '--console=pipe', `--bind-ro=${binary()}:/usr/local/bin/tidewire`];
    const container = spawn('systemd-nspawn', [...args, ...names, '--', '--unit=basic.target'], { stdio: ['ignore', 'pipe', 'pipe'] });
    // If the program is missing, there is no process id, which the error below reports.
    container.once('error', () => undefined);
    let said = '';
    for (const stream of [container.stdout, container.stderr]) stream.on('data', (text: Buffer) => (said += text.toString()));
    const ended = new Promise<void>((done) => container.once('close', () => done()));
    atEnd(test, async () => {
      container.kill('SIGTERM');
      await ended;
      execFileSync('umount', [root]);
      rmSync(folder, { recursive: true });
    });
    if (container.pid === undefined) throw new Error('there is no systemd-nspawn: apt-get install -y systemd-container');
    const children = `/proc/${container.pid}/task/${container.pid}/children`;
    const first = await eventually(() => {
      if (container.exitCode !== null) throw new Error(`systemd-nspawn has ended with ${container.exitCode}: ${said}`);
      return Number(readFileSync(children, 'utf8').trim().split(' ')[0]);
    }, 'the container has a first process', BOOT_MS);
    const booted = new Booted(first);
    await eventually(() => booted.run('systemctl', 'is-active', 'basic.target').then(() => true, () => false), 'systemd has booted', BOOT_MS);
    await booted.run('useradd', '--system', '--home-dir', '/var/lib/tidewire', '--shell', '/usr/sbin/nologin', 'tidewire');
    booted.write('/etc/systemd/system/tidewire.service', readFileSync(UNIT, 'utf8'));
    booted.write('/etc/systemd/system/tidewire.service.d/test.conf', dropIn);
    booted.write('/etc/tidewire/tidewire.yml', configuration);
    await booted.run('systemctl', 'daemon-reload');
    return booted;
  }

  /** Runs a program in the container and returns its output. If the exit code is not 0, the error contains the program's messages. */
  async run(...command: string[]): Promise<string> {
    const entered = ['--target', String(this.first), '--mount', '--pid', '--ipc', '--uts', '--cgroup', `--root=/proc/${this.first}/root`, '--wd=/'];
    return (await promisify(execFile)('nsenter', [...entered, '--', ...command])).stdout;
  }

  /** Writes a file in the container. */
  write(path: string, content: string): void {
    const file = `/proc/${this.first}/root${path}`;
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, content, { mode: 0o644 });
  }

  async state(): Promise<UnitState> {
    const shown = await this.run('systemctl', 'show', 'tidewire');
    const pairs = shown.split('\n').map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]);
    return Object.fromEntries(pairs) as UnitState;
  }

  /** Waits until `holds` is true for the unit's state. */
  async until(holds: (state: UnitState) => boolean, what: string, ms?: number): Promise<UnitState> {
    let state: UnitState | undefined;
    await eventually(async () => holds((state = await this.state())), what, ms);
    return state as UnitState;
  }
}
