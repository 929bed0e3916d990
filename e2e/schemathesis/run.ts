// One run of schemathesis against a server, with all its checks.

import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { installed } from '../harness/python.ts';

const FOLDER = resolve(import.meta.dirname, '../../target/schemathesis');

/** The parameters of a run. */
export interface Run {
  /** The name of the folder for its files under target/schemathesis. */
  name: string;
  /** `host:port` of the server. */
  address: string;
  /** The most requests of an operation in each phase. */
  examples: number;
  seed: number;
  /** The user name and password of a login; without it the requests are not authenticated. */
  login?: { username: string; password: string };
  /** The API description, as a file: if schemathesis fetches it from an address, it skips the operation of that address. */
  description: object;
  /** Additional arguments. */
  args?: string[];
}

/** The result of a run. */
export interface Outcome {
  /** Whether schemathesis found no problem. */
  isClean: boolean;
  output: string;
  /** Requests by operation, such as `GET /sse`. */
  requests: Record<string, number>;
}

/** Runs schemathesis and waits for its end. */
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
  // 0 means clean, 1 means findings; with any other code schemathesis did not test.
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
