// One run of schemathesis against a server, with all its checks.

import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { installed } from '../harness/python.ts';

const FOLDER = resolve(import.meta.dirname, '../../target/schemathesis');

/** What is run. */
export interface Run {
  /** For the folder of its files under target/schemathesis. */
  name: string;
  /** `host:port` of the server. */
  address: string;
  /** Requests of an operation in each phase, at most. */
  examples: number;
  seed: number;
  /** The object of a login with user name and password; without one nobody is logged in. */
  login?: { username: string; password: string };
  /** The description. As a file: of the one behind an address schemathesis leaves out the operation that gave it. */
  description: object;
  /** More arguments. */
  args?: string[];
}

/** What came of it. */
export interface Outcome {
  /** Whether nothing was found. */
  isClean: boolean;
  output: string;
  /** Requests by operation, such as `GET /sse`. */
  requests: Record<string, number>;
}

/** Runs it to its end. */
export async function schemathesis(run: Run): Promise<Outcome> {
  const programs = await installed('schemathesis', join(import.meta.dirname, 'requirements.txt'));
  const folder = join(FOLDER, run.name);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const counts = join(folder, 'counts.json');
  const description = join(folder, 'openapi.json');
  writeFileSync(description, JSON.stringify(run.description));
  const base = `http://${run.address}`;
  const args = [
    '--config-file', join(import.meta.dirname, 'schemathesis.toml'),
    'run', description,
    '--url', base,
    '--checks', 'all',
    '--max-examples', String(run.examples),
    '--seed', String(run.seed),
    '--continue-on-failure',
    '--no-color',
    ...(run.login === undefined ? [] : ['--auth', `${run.login.username}:${run.login.password}`]),
    ...(run.args ?? []),
  ];
  const env = {
    ...process.env,
    SCHEMATHESIS_HOOKS: join(import.meta.dirname, 'hooks.py'),
    PYTHONDONTWRITEBYTECODE: '1',
    LOGIN: JSON.stringify(run.login ?? null),
    COUNTS: counts,
  };
  const { code, output } = await finish(join(programs, 'schemathesis'), args, { cwd: folder, env });
  // 0 is clean, 1 has findings; anything else did not test.
  if (code !== 0 && code !== 1) throw new Error(`schemathesis ended with ${code}:\n${output}`);
  const requests = JSON.parse(readFileSync(counts, 'utf8')) as Outcome['requests'];
  return { isClean: code === 0, output, requests };
}

function finish(program: string, args: string[], options: object): Promise<{ code: number | null; output: string }> {
  return new Promise((done, failed) => {
    const child = spawn(program, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (text: Buffer) => void (output += text.toString()));
    }
    child.once('error', failed);
    child.once('close', (code) => done({ code, output }));
  });
}
