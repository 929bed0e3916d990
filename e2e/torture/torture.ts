// Runs `tidewire torture`, and reads the figures of its verdict.

import { spawn } from 'node:child_process';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { TestContext } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import type { Database } from '../harness/database.ts';
import { binary } from '../harness/server.ts';

export interface Outcome {
  code: number | null;
  text: string;
  seconds: number;
}

/** Runs the command and shows its verdict. */
export function torture(t: TestContext, args: string[], env: NodeJS.ProcessEnv = process.env): Promise<Outcome> {
  const start = performance.now();
  const child = spawn(binary(), ['torture', ...args], { stdio: ['ignore', 'pipe', 'pipe'], env });
  atEnd(t, () => void child.kill('SIGKILL'));
  let text = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (part: Buffer) => (text += part.toString()));
  return new Promise((done) => {
    child.once('error', (error) => done({ code: null, text: error.message, seconds: 0 }));
    child.once('close', (code) => {
      t.diagnostic(text.trim().split('\n').map((line) => line.replace(/ +/g, ' ')).join('; '));
      done({ code, text, seconds: (performance.now() - start) / 1000 });
    });
  });
}

export function figure(text: string, name: string): number {
  return Number(new RegExp(`^${name} +(\\d+)$`, 'm').exec(text)?.[1]);
}

/** The shell command with which `tidewire torture` restarts a database under load. It ends when the database serves again. */
export async function restartCommand(t: TestContext, database: Database): Promise<string> {
  const restart = async (): Promise<void> => {
    await database.crash();
    await database.start();
  };
  const door = createServer((_, answer) => {
    void restart().then(
      () => answer.end(),
      (error: unknown) => answer.writeHead(500).end(String(error)),
    );
  });
  await new Promise<void>((done) => door.listen(0, '127.0.0.1', done));
  atEnd(t, () => void door.close());
  const { port } = door.address() as AddressInfo;
  return `${process.execPath} -e 'fetch("http://127.0.0.1:${port}").then((answer) => process.exit(answer.ok ? 0 : 1))'`;
}
