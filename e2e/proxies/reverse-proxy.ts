// nginx and haproxy as real processes in front of a server: started with a configuration on a free port, reloaded as their
// operators do it, and stopped at the end of their test.

import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import { freePort } from '../harness/ports.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';

/** If haproxy has not answered a signal within this time, the signal is sent again. */
const SIGNAL_INTERVAL_MS = 1_000;

/** A proxy in front of a server. */
export interface ReverseProxy {
  /** `host:port` on the clients' side. */
  readonly address: string;
  /** Starts new processes with the same configuration, and waits until they have taken over. */
  reload(): Promise<void>;
}

/** nginx with this content in its server block, which has a certificate if the connections are encrypted. */
export async function nginxDuring(test: TestContext, locations: string, isEncrypted = false): Promise<ReverseProxy> {
  const folder = temporaryFolder(test);
  const port = await freePort();
  const config = join(folder, 'nginx.conf');
  for (const name of ['body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']) mkdirSync(join(folder, name));
  writeFileSync(config, `
    daemon off;
    user root;
    pid ${folder}/nginx.pid;
    error_log ${folder}/error.log;
    events {}
    http {
      access_log off;
      client_body_temp_path ${folder}/body;
      proxy_temp_path ${folder}/proxy;
      fastcgi_temp_path ${folder}/fastcgi;
      uwsgi_temp_path ${folder}/uwsgi;
      scgi_temp_path ${folder}/scgi;
      server { listen 127.0.0.1:${port}${isEncrypted ? ' ssl' : ''}; ${locations} }
    }`);
  const { child } = start(test, 'nginx', ['-e', join(folder, 'error.log'), '-c', config]);
  const pid = child.pid as number;
  // nginx handles signals once it has workers.
  await eventually(async () => workers(pid).length > 0 && (await answers(port)), 'nginx listens');
  const reload = async (): Promise<void> => {
    const before = workers(pid);
    child.kill('SIGHUP');
    // The old workers stay for their connections and accept no new ones.
    await eventually(() => workers(pid).some((worker) => !before.includes(worker)), 'nginx has new workers');
  };
  return { address: `127.0.0.1:${port}`, reload };
}

/** haproxy with these lines in its backend. */
export async function haproxyDuring(test: TestContext, backend: string): Promise<ReverseProxy> {
  const folder = temporaryFolder(test);
  const port = await freePort();
  const config = join(folder, 'haproxy.cfg');
  writeFileSync(config, `
global
  maxconn 200
  stats socket ${folder}/admin.sock level admin expose-fd listeners
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  timeout tunnel 60s
frontend clients
  bind 127.0.0.1:${port}
  default_backend servers
backend servers
${backend}
`);
  const { child, output } = start(test, 'haproxy', ['-W', '-db', '-f', config]);
  const loadings = (): number => output().split('Loading success').length - 1;
  await eventually(async () => loadings() === 1 && (await answers(port)), 'haproxy listens');
  const reload = async (): Promise<void> => {
    const before = loadings();
    // A signal is lost until the master has installed its handler, and nothing announces that. So repeat the signal.
    let signalledAt = 0;
    const hasLoaded = (): boolean => {
      if (performance.now() - signalledAt > SIGNAL_INTERVAL_MS) {
        signalledAt = performance.now();
        child.kill('SIGUSR2');
      }
      return loadings() > before;
    };
    await eventually(hasLoaded, 'haproxy has loaded again');
  };
  return { address: `127.0.0.1:${port}`, reload };
}

function temporaryFolder(test: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-proxy-'));
  atEnd(test, () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** The running process and its output. */
interface Started {
  child: ChildProcess;
  output: () => string;
}

function start(test: TestContext, program: string, args: string[]): Started {
  const found = spawnSync('which', [program]).status === 0;
  if (!found) throw new Error(`${program} is missing: apt-get install -y ${program === 'nginx' ? 'nginx-light' : program}`);
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  const keep = (text: Buffer): void => void (output = (output + text.toString()).slice(-4_000));
  child.stdout.on('data', keep);
  child.stderr.on('data', keep);
  let isEnding = false;
  child.once('exit', (code) => {
    if (!isEnding) console.error(`${program} ended by itself (${code}):\n${output}`);
  });
  atEnd(test, async () => {
    isEnding = true;
    const children = workers(child.pid as number);
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGTERM');
    await within(DEADLINE_MS, ended, `${program} ends`);
    // Processes that survive a reload wait for their connections, so kill them.
    for (const pid of children) if (existsSync(`/proc/${pid}`)) kill(pid);
  });
  return { child, output: () => output };
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // The process has already ended.
  }
}

/** The child processes of a master. */
function workers(pid: number): number[] {
  const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
  return text === '' ? [] : text.split(' ').map(Number);
}

function answers(port: number): Promise<boolean> {
  return new Promise((done) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('connect', () => (socket.destroy(), done(true)));
    socket.once('error', () => done(false));
  });
}
