// Clients of Socket.IO in other languages, as programs that read commands and print what happens.

import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { TestContext } from 'node:test';
import { atEnd } from '../../harness/cleanup.ts';
import { mavenLibraries } from '../../harness/maven.ts';
import { installed } from '../../harness/python.ts';
import { Inbox } from '../../harness/wait.ts';

/** A program starts slowly on a busy machine. */
const START_MS = 60_000;

/** One line of a program. */
export interface Said {
  on: 'connect' | 'refused' | 'failed' | 'disconnect' | 'event' | 'answer';
  id?: string;
  data?: unknown;
  name?: string;
  values?: unknown[];
  value?: unknown;
}

/** How to start a program with a client. */
export interface Language {
  name: string;
  command: () => Promise<string[]>;
}

const python = (kind: string): (() => Promise<string[]>) => async () => {
  const folder = await installed('python-socketio', join(import.meta.dirname, 'requirements.txt'));
  return [join(folder, 'python'), join(import.meta.dirname, 'client.py'), kind];
};

export const LANGUAGES: Language[] = [
  { name: 'python-socketio with threads', command: python('threads') },
  { name: 'python-socketio with asyncio', command: python('asyncio') },
  {
    name: 'the Java client',
    command: () => Promise.resolve(['java', '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-cp', join(mavenLibraries(import.meta.dirname), '*'), join(import.meta.dirname, 'Client.java')]),
  },
];

/** A running program with one client. Bytes are `{ bytes: BASE64 }` in all values. */
export class Driven {
  readonly said = new Inbox<Said>('what the client says');
  readonly #write: (line: string) => void;
  /** How many lines of each kind `next` has returned. */
  readonly #heard = new Map<Said['on'], number>();

  private constructor(t: TestContext, [program = '', ...args]: string[]) {
    const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    atEnd(t, () => void child.kill('SIGKILL'));
    createInterface({ input: child.stdout }).on('line', (line) => this.said.push(JSON.parse(line) as Said));
    this.#write = (line) => void child.stdin.write(`${line}\n`);
  }

  static async start(t: TestContext, { command }: Language): Promise<Driven> {
    return new Driven(t, await command());
  }

  connect(port: number, transports: string[], auth: Record<string, string>): void {
    this.#do({ do: 'connect', url: `http://127.0.0.1:${port}`, transports, auth });
  }

  emit(event: string, ...values: unknown[]): void {
    this.#do({ do: 'emit', event, values });
  }

  /** Emits an event and resolves with its acknowledgement. */
  async ask(event: string, ...values: unknown[]): Promise<unknown> {
    this.#do({ do: 'ask', event, values });
    return (await this.next('answer')).value;
  }

  /** The next thing of a kind that the client says. */
  async next(on: Said['on']): Promise<Said> {
    const from = this.#heard.get(on) ?? 0;
    const of = (said: Said[]): Said[] => said.filter((one) => one.on === on);
    await this.said.until((said) => of(said).length > from, START_MS, on);
    this.#heard.set(on, from + 1);
    return of(this.said.seen)[from] as Said;
  }

  #do(command: object): void {
    this.#write(JSON.stringify(command));
  }
}
