// WebKitGTK through WebDriver: a separate browser for each session, because its driver supports only one. Commands are HTTP requests.

import { spawn } from 'node:child_process';
import { freePort } from '../harness/ports.ts';
import { eventually, within } from '../harness/wait.ts';

const STOP_DEADLINE_MS = 10_000;
const SESSION = { capabilities: { alwaysMatch: { 'webkitgtk:browserOptions': { args: ['--automation'] } } } };

export class Session {
  #last: Promise<unknown> = Promise.resolve();

  private constructor(
    private readonly driver: string,
    private readonly id: string,
    private readonly stop: () => Promise<void>,
  ) {}

  static async open(): Promise<Session> {
    const port = await freePort();
    const command = ['--auto-servernum', 'WebKitWebDriver', `--port=${port}`];
    const child = spawn('xvfb-run', command, { stdio: 'ignore', detached: true });
    const ended = new Promise<void>((done) => child.once('close', () => done()));
    const failed = new Promise<never>((_, fail) => child.once('error', fail));
    const stop = async (): Promise<void> => {
      process.kill(-(child.pid as number), 'SIGTERM');
      await within(STOP_DEADLINE_MS, ended, 'WebKit ends');
    };
    const driver = `http://127.0.0.1:${port}`;
    const isReady = (): Promise<boolean> => fetch(`${driver}/status`).then(({ ok }) => ok, () => false);
    await Promise.race([failed, eventually(isReady, 'WebKitWebDriver answers')]);
    const { sessionId } = (await ask(driver, 'POST', '/session', SESSION)) as { sessionId: string };
    return new Session(driver, sessionId, stop);
  }

  /** Runs `act` with the commands of a window, after all earlier calls: the driver handles one window at a time. */
  async inWindow<T>(handle: string | undefined, act: (send: Send) => Promise<T>): Promise<T> {
    const send: Send = (method, path, body) => ask(this.driver, method, `/session/${this.id}${path}`, body);
    const turn = this.#last.then(async () => {
      if (handle !== undefined) await send('POST', '/window', { handle });
      return act(send);
    });
    this.#last = turn.catch(() => undefined);
    return turn;
  }

  async close(): Promise<void> {
    await this.inWindow(undefined, (send) => send('DELETE', ''));
    await this.stop();
  }
}

/** Sends a command and returns its result. */
export type Send = (method: 'GET' | 'POST' | 'DELETE', path: string, body?: object) => Promise<unknown>;

async function ask(driver: string, method: string, path: string, body?: object): Promise<unknown> {
  const answer = await fetch(driver + path, { method, ...(body && { body: JSON.stringify(body) }) });
  const { value } = (await answer.json()) as { value: any };
  if (!answer.ok) throw new Error(`WebKit: ${method} ${path}: ${value?.error}: ${value?.message}`);
  return value;
}
