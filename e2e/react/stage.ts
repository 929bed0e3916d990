// The built package `@tidewire/react` in one version of React, on a document of jsdom, with a record of all sent messages.

import type { TestContext } from 'node:test';
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { WebSocket } from 'ws';
import { decode } from '../../packages/client/src/codec.ts';
import type { Client, Schema, TidewireError, WebSocketClass } from '../../packages/client/src/index.ts';
import type { Message } from '../../packages/client/src/protocol.ts';
import type * as Hooks from '../../packages/react/src/index.ts';
import type * as Lists from '../../packages/react/src/lists.ts';
import type * as ReactTypes from '../../packages/react/node_modules/@types/react/index.d.ts';
import type * as DomTypes from '../../packages/react/node_modules/@types/react-dom/client.d.ts';
import type * as ServerTypes from '../../packages/react/node_modules/@types/react-dom/server.d.ts';
import { atEnd } from '../harness/cleanup.ts';
import { client as newClient } from '../harness/driver/tidewire.ts';
import { eventually, within, DEADLINE_MS } from '../harness/wait.ts';

const PACKAGE = resolve(import.meta.dirname, '../../packages/react');
const CLIENT = resolve(import.meta.dirname, '../../packages/client');

/** The folders of the tested React versions. */
export const VERSIONS: Record<string, string> = {
  'React 18': join(PACKAGE, 'tests/react-18/node_modules'),
  'React 19': join(PACKAGE, 'node_modules'),
};

/** The properties of an element that tests read. */
interface Drawn extends Element {
  innerHTML: string;
  readonly textContent: string | null;
  append(child: Drawn): void;
  remove(): void;
}
interface Window {
  navigator: object;
  document: { body: Drawn; createElement(tag: string): Drawn };
}

/** Loaded without types, because they would add a browser's types to all tests. */
const { JSDOM } = createRequire(import.meta.url)('jsdom') as { JSDOM: new (html: string, options: object) => { window: Window } };
const { window } = new JSDOM('<!doctype html>', { url: 'http://localhost/' });
// React reads these globals when it is loaded.
for (const [name, value] of Object.entries({ window, document: window.document, navigator: window.navigator })) {
  Object.defineProperty(globalThis, name, { value, configurable: true });
}

/** A value that React can render. */
export type Node = ReactTypes.ReactNode;

/** One version of React with the hooks. */
export interface Stage {
  React: typeof ReactTypes;
  createRoot: typeof DomTypes.createRoot;
  hydrateRoot: typeof DomTypes.hydrateRoot;
  server: typeof ServerTypes;
  hooks: typeof Hooks;
  lists: typeof Lists;
}

/** Loads the package with the React of `modules` and no other. */
export function stage(modules: string): Stage {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-react-'));
  const home = join(folder, 'node_modules/@tidewire/react');
  try {
    mkdirSync(home, { recursive: true });
    for (const part of ['package.json', 'dist']) cpSync(join(PACKAGE, part), join(home, part), { recursive: true });
    for (const name of ['react', 'react-dom']) symlinkSync(join(modules, name), join(folder, 'node_modules', name));
    symlinkSync(CLIENT, join(folder, 'node_modules/@tidewire/client'));
    const load = createRequire(join(folder, 'index.js'));
    const { createRoot, hydrateRoot } = load('react-dom/client');
    const server = load('react-dom/server');
    return { React: load('react'), createRoot, hydrateRoot, server, hooks: load('@tidewire/react'), lists: load('@tidewire/react/lists') };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** All messages that a client has sent, in order. */
export class Sent {
  readonly messages: Message[] = [];

  /** A socket class that records its messages here. */
  readonly webSocket: WebSocketClass = ((note: (data: Uint8Array) => void): WebSocketClass => {
    return class extends WebSocket {
      override send(data: Uint8Array): void {
        note(data);
        super.send(data);
      }
    };
  })((data) => this.messages.push(...decode(data)));

  /** The actions of the messages about `name` on a topic. */
  about(topic: number, name: string): number[] {
    return this.messages.filter((one) => one.topic === topic && (one.name === name || one.names?.includes(name))).map(({ action }) => action);
  }
}

/** The output of a component in the document. */
export class Shown {
  readonly element: Drawn = window.document.createElement('div');
  readonly #root: DomTypes.Root;

  constructor(
    test: TestContext,
    on: Stage,
    /** The initial node; hydrates `html`, the output of a server, if it is given. */
    node: Node,
    html?: string,
    errors: unknown[] = [],
  ) {
    window.document.body.append(this.element);
    const options = { onRecoverableError: (error: unknown) => void errors.push(error) };
    if (html === undefined) {
      this.#root = on.createRoot(this.element, options);
      this.#root.render(node);
    } else {
      this.element.innerHTML = html;
      this.#root = on.hydrateRoot(this.element, node, options);
    }
    atEnd(test, () => {
      this.#root.unmount();
      this.element.remove();
    });
  }

  draw(node: Node): void {
    this.#root.render(node);
  }

  get text(): string {
    return this.element.textContent ?? '';
  }

  /** Waits until the output is exactly `text`. */
  async reads(text: string): Promise<void> {
    await eventually(() => this.text === text, `"${text}" is shown`).catch((error: Error) => {
      throw new Error(`${error.message}; shown is "${this.text}"`);
    });
  }
}

/** A client for a component, and the messages that it sends. Only the hooks connect it. */
export function clientOfPage<App extends Schema = {}>(
  test: TestContext,
  address: string,
  options: { errors?: string[]; auth?: object } = {},
): { client: Client<App>; sent: Sent } {
  const sent = new Sent();
  return { client: newClient<App>(test, address, { ...options, webSocket: sent.webSocket }), sent };
}

/** The options of a page. */
export interface PageOptions {
  errors?: string[];
  auth?: object;
  keepMs?: number;
  autoConnect?: boolean;
}

/** A page that renders `node` below a provider, in StrictMode. */
export function page<App extends Schema = {}>(test: TestContext, on: Stage, address: string, node: Node, options: PageOptions = {}) {
  const { createElement, StrictMode } = on.React;
  const { TidewireProvider } = on.hooks.hooks<App>();
  const { client, sent } = clientOfPage<App>(test, address, options);
  const { keepMs = 0, autoConnect = true } = options;
  // React mounts components twice if StrictMode is at the root.
  const below = (child: Node): Node => createElement(StrictMode, null, createElement(TidewireProvider, { client, keepMs, autoConnect }, child));
  const shown = new Shown(test, on, below(node));
  return { client, sent, shown, draw: (child: Node) => shown.draw(below(child)) };
}

/** Another client, already connected. */
export async function other<App extends Schema = {}>(test: TestContext, address: string, auth: object = {}): Promise<Client<App>> {
  const made = newClient<App>(test, address, { auth });
  await within(DEADLINE_MS, made.connect(), 'login');
  return made;
}

/** Renders the error that a component below has thrown. */
export function boundaryOf({ React }: Stage): ReactTypes.ComponentClass<{ children?: Node }> {
  return class extends React.Component<{ children?: Node }, { error?: TidewireError }> {
    override state: { error?: TidewireError } = {};

    static getDerivedStateFromError(error: TidewireError): object {
      return { error };
    }

    override render(): Node {
      const { error } = this.state;
      return error ? `failed: ${error.code ?? error.message}` : this.props.children;
    }
  };
}
