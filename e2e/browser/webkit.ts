// WebKit behind the part of Playwright's interface that the suites use. Each context is a separate browser with its own data.

import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import type { Browser } from 'playwright-core';
import { Locator, type Actor } from './webkit-locator.ts';
import { Session, type Send } from './webkit-session.ts';

/** Milliseconds between two checks whether a promise in the page has settled. */
const POLL_INTERVAL_MS = 5;

/** The WebDriver codes of keys that are not letters, by Playwright's names. */
const KEYS: Record<string, string> = {
  Tab: '\uE004', Enter: '\uE007', Shift: '\uE008', Space: ' ', End: '\uE010', ArrowUp: '\uE013', ArrowDown: '\uE015',
};

/** A substitute for Playwright's browser with its types; a function that is missing fails when a suite calls it. */
export function webkit(): Browser {
  const contexts = new Set<Context>();
  const newContext = async (): Promise<Context> => {
    const context = new Context(await Session.open());
    contexts.add(context);
    return context;
  };
  return {
    newContext,
    newPage: async () => (await newContext()).newPage(),
    close: () => Promise.all([...contexts].map((context) => context.close())),
  } as unknown as Browser;
}

class Context {
  #first: Promise<string> | undefined;
  #closed: Promise<void> | undefined;

  constructor(private readonly session: Session) {}

  /** Opens an additional window; the browser would end with its first one. */
  async newPage(): Promise<Page> {
    this.#first ??= this.session.inWindow(undefined, async (send) => (await send('GET', '/window')) as string);
    const { handle } = await this.session.inWindow(await this.#first, async (send) => {
      return (await send('POST', '/window/new', { type: 'window' })) as { handle: string };
    });
    return new Page(this, this.session, handle);
  }

  close(): Promise<void> {
    return (this.#closed ??= this.session.close());
  }
}

class Page extends Locator implements Actor {
  #asked = 0;
  #closed: Promise<unknown> | undefined;
  readonly #scripts: string[] = [];

  constructor(
    private readonly of: Context,
    private readonly session: Session,
    private readonly handle: string,
  ) {
    super({ evaluate: (script) => this.evaluate(script), act: (commands) => this.act(commands) });
  }

  context(): Context {
    return this.of;
  }
  /** Ignored: WebDriver reports neither errors nor dialogs. */
  on(): void {}

  act<T>(commands: (send: Send) => Promise<T>): Promise<T> {
    return this.session.inWindow(this.handle, commands);
  }

  async addInitScript(script: string): Promise<void> {
    this.#scripts.push(script);
  }

  async goto(url: string): Promise<void> {
    await this.act((send) => send('POST', '/url', { url }));
    for (const script of this.#scripts) await this.evaluate(script);
  }

  async reload(): Promise<void> {
    await this.act((send) => send('POST', '/refresh', {}));
    for (const script of this.#scripts) await this.evaluate(script);
  }

  readonly keyboard = {
    press: (keys: string): Promise<void> => this.#press(keys.split('+').map((key) => KEYS[key] ?? assert.fail(`no key ${key}`))),
    type: async (text: string): Promise<void> => {
      for (const letter of text) await this.#press([letter]);
    },
  };

  /** Presses keys in order, and releases them in reverse order. */
  async #press(keys: string[]): Promise<void> {
    const down = keys.map((value) => ({ type: 'keyDown', value }));
    const up = [...keys].reverse().map((value) => ({ type: 'keyUp', value }));
    await this.act((send) => send('POST', '/actions', { actions: [{ type: 'key', id: 'keyboard', actions: [...down, ...up] }] }));
  }

  async title(): Promise<string> {
    return (await this.act((send) => send('GET', '/title'))) as string;
  }

  /** Runs a function or an expression in the page. Other calls may run while its promise is pending. */
  async evaluate(script: string | ((argument: any) => unknown), argument?: unknown): Promise<any> {
    const place = `__answers[${this.#asked++}]`;
    const expression = typeof script === 'string' ? script : `(${script})(...arguments)`;
    const begin = `
      globalThis.__answers ??= {};
      const told = (answer) => (${place} = JSON.stringify(answer));
      const run = async function () { return (${expression}) };
      run(...arguments).then((value) => told({ value }), (error) => told({ error: String(error?.stack ?? error) }));
    `;
    await this.#execute(begin, argument === undefined ? [] : [argument]);
    for (;;) {
      const told = (await this.#execute(`const told = globalThis.${place}; delete globalThis.${place}; return told`, [])) as string | null;
      if (told !== null) {
        const { value, error } = JSON.parse(told) as { value?: unknown; error?: string };
        if (error !== undefined) throw new Error(`in the page: ${error}`);
        return value;
      }
      await pause(POLL_INTERVAL_MS);
    }
  }

  #execute(script: string, args: unknown[]): Promise<unknown> {
    return this.act((send) => send('POST', '/execute/sync', { script, args }));
  }

  async close(): Promise<void> {
    await (this.#closed ??= this.act((send) => send('DELETE', '/window')));
  }
}
