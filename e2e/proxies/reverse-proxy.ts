// nginx and haproxy as real processes before a server: started with a configuration on a free port, reloaded as their
// operators do it, stopped with their test.

import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import { freePort } from '../harness/server.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';

/** A program that stands before a server. */
export interface ReverseProxy {
  /** `host:port` of its clients' side. */
  readonly address: string;
  /** Starts new processes with the same configuration, which take over, and waits until they do. */
  reload(): Promise<void>;
}

/** nginx with a server block of this content. */
export async function nginxDuring(test: TestContext, locations: string): Promise<ReverseProxy> {
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
      server { listen 127.0.0.1:${port}; ${locations} }
    }`);
  const nginx = start(test, 'nginx', ['-e', join(folder, 'error.log'), '-c', config]);
  await eventually(() => answers(port), 'nginx listens');
  const reload = async (): Promise<void> => {
    const before = workers(nginx.pid as number);
    nginx.kill('SIGHUP');
    // The old ones stay for their connections; they take no new ones.
    await eventually(() => workers(nginx.pid as number).some((pid) => !before.includes(pid)), 'nginx has new workers');
  };
  return { address: `127.0.0.1:${port}`, reload };
}

/** haproxy with a backend of these lines. */
export async function haproxyDuring(test: TestContext, backend: string): Promise<ReverseProxy> {
  const folder = temporaryFolder(test);
  const port = await freePort();
  const [config, pidFile] = [join(folder, 'haproxy.cfg'), join(folder, 'haproxy.pid')];
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
  const haproxy = start(test, 'haproxy', ['-W', '-db', '-p', pidFile, '-f', config]);
  await eventually(() => answers(port), 'haproxy listens');
  const reload = async (): Promise<void> => {
    const before = workers(haproxy.pid as number);
    haproxy.kill('SIGUSR2');
    await eventually(() => workers(haproxy.pid as number).some((pid) => !before.includes(pid)), 'haproxy has a new worker');
  };
  return { address: `127.0.0.1:${port}`, reload };
}

function temporaryFolder(test: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-proxy-'));
  atEnd(test, () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

function start(test: TestContext, program: string, args: string[]): ChildProcess {
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
    // What outlives a reload waits for its connections.
    for (const pid of children) if (existsSync(`/proc/${pid}`)) kill(pid);
  });
  return child;
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended meanwhile.
  }
}

/** The processes of a master. */
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
