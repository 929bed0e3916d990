// A document of jsdom, pages on it with a record of all sent messages, and the drivers of the bindings, bundled like an app's code.

import { cpSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, symlinkSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import type { TestContext } from 'node:test';
import { WebSocket } from 'ws';
import { decode } from '../../packages/client/src/codec.ts';
import type { Client, Schema, WebSocketClass } from '../../packages/client/src/index.ts';
import type { Message } from '../../packages/client/src/protocol.ts';
import { atEnd } from '../harness/cleanup.ts';
import { client as newClient } from '../harness/driver/tidewire.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';
import type { Binding, Component, Entry, ServerBinding, Settings } from './binding.ts';

export const PACKAGES = resolve(import.meta.dirname, '../../packages');
export const CLIENT = join(PACKAGES, 'client');

/** The properties of an element that tests read. */
export interface Drawn {
  innerHTML: string;
  readonly textContent: string | null;
  append(child: Drawn): void;
  remove(): void;
}
interface Window {
  document: { body: Drawn; createElement(tag: string): Drawn };
}

/** Loaded without types, because they would add a browser's types to all tests. */
const { JSDOM } = createRequire(import.meta.url)('jsdom') as { JSDOM: new (html: string, options: object) => { window: Window } };
const { window } = new JSDOM('<!doctype html>', { url: 'http://localhost/', pretendToBeVisual: true } as object);
// The frameworks read these globals when they are loaded.
const GLOBALS = ['document', 'navigator', 'Element', 'HTMLElement', 'HTMLMediaElement', 'SVGElement', 'Node', 'Text', 'Comment', 'DocumentFragment'];
for (const [name, value] of [['window', window], ...GLOBALS.map((name) => [name, window[name as keyof Window]])] as Array<[string, unknown]>) {
  Object.defineProperty(globalThis, name, { value, configurable: true });
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

/** A client for a component, and the messages that it sends. Only the hooks connect it. */
export function clientOfPage<App extends Schema = {}>(
  test: TestContext,
  address: string,
  options: { errors?: string[]; auth?: object } = {},
): { client: Client<App>; sent: Sent } {
  const sent = new Sent();
  return { client: newClient<App>(test, address, { ...options, webSocket: sent.webSocket }), sent };
}

/** Another client, already connected. */
export async function other<App extends Schema = {}>(test: TestContext, address: string, auth: object = {}): Promise<Client<App>> {
  const made = newClient<App>(test, address, { auth });
  await within(DEADLINE_MS, made.connect(), 'login');
  return made;
}

/** An element in the document. */
export class Shown {
  readonly element: Drawn = window.document.createElement('div');

  constructor(test: TestContext) {
    window.document.body.append(this.element);
    atEnd(test, () => this.element.remove());
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

/** The options of a page. */
export interface PageOptions extends Settings {
  errors?: string[];
  auth?: object;
}

export interface Page {
  client: Client;
  sent: Sent;
  shown: Shown;
  /** Shows new instances of these components in place of all others. */
  show(...components: Component[]): void;
  unmount(): void;
}

let instances = 0;

export function entriesOf(components: readonly Component[]): Entry[] {
  return components.map((component) => ({ id: (instances += 1), component }));
}

/** A page of a binding, below a provider with a separate client. */
export function page(test: TestContext, on: Binding, address: string, { keepMs = 0, autoConnect = true, offline = false, ...options }: PageOptions = {}): Page {
  const { client, sent } = clientOfPage(test, address, options);
  const shown = new Shown(test);
  const { show, unmount } = on.mount(shown.element, { client, keepMs, autoConnect, offline });
  atEnd(test, unmount);
  return { client, sent, shown, unmount, show: (...components) => show(entriesOf(components)) };
}

/** A folder where `@tidewire/NAME` is installed with the frameworks in `modules` and no others. It is removed after `act`. */
export async function installed<Result>(name: string, modules: Record<string, string>, act: (folder: string) => Promise<Result>): Promise<Result> {
  const folder = mkdtempSync(join(tmpdir(), `tidewire-${name}-`));
  const home = join(folder, 'node_modules/@tidewire', name);
  try {
    mkdirSync(home, { recursive: true });
    for (const part of ['package.json', 'dist']) cpSync(join(PACKAGES, name, part), join(home, part), { recursive: true });
    for (const [module, target] of Object.entries(modules)) symlinkSync(realpathSync(target), join(folder, 'node_modules', module));
    symlinkSync(CLIENT, join(folder, 'node_modules/@tidewire/client'));
    return await act(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The parts of esbuild and of Svelte's compiler that are used here. */
interface Esbuild {
  build(options: object): Promise<unknown>;
}
interface Loads {
  onLoad(filter: { filter: RegExp }, load: (file: { path: string }) => object): void;
  onResolve(filter: { filter: RegExp }, resolve: () => object | undefined): void;
}
interface Compiler {
  VERSION: string;
  compile(source: string, options: object): { js: { code: string } };
}

/** Builds the driver of a binding for the browser and for a server, each with the modules that a bundler takes for it. */
export async function driver(name: string, modules: Record<string, string>): Promise<{ binding: Binding; server: ServerBinding }> {
  const esbuild = createRequire(join(CLIENT, 'package.json'))('esbuild') as Esbuild;
  return installed(name, modules, async (folder) => {
    const load = createRequire(join(folder, 'index.js'));
    const built = async (isServer: boolean): Promise<unknown> => {
      const outfile = join(folder, isServer ? 'server.cjs' : 'browser.cjs');
      await esbuild.build({
        entryPoints: [join(import.meta.dirname, 'driver', `${name}.ts`)],
        outfile,
        bundle: true,
        format: 'cjs',
        platform: isServer ? 'node' : 'browser',
        conditions: isServer ? ['node'] : ['browser'],
        nodePaths: [join(folder, 'node_modules')],
        // The paths of this folder's configuration lead to sources; an app gets the built package.
        tsconfigRaw: '{}',
        define: { 'process.env.NODE_ENV': '"development"' },
        plugins: name === 'svelte' ? [svelteFiles(load('svelte/compiler') as Compiler, isServer)] : [],
        logLevel: 'error',
      });
      return load(outfile);
    };
    const [browser, server] = await Promise.all([built(false), built(true)]);
    return { binding: (browser as { binding: Binding }).binding, server: (server as { server: ServerBinding }).server };
  });
}

function svelteFiles({ VERSION, compile }: Compiler, isServer: boolean): object {
  const isOld = VERSION.startsWith('4.');
  const generate = isOld ? (isServer ? 'ssr' : 'dom') : isServer ? 'server' : 'client';
  return {
    name: 'svelte',
    setup({ onLoad, onResolve }: Loads): void {
      onLoad({ filter: /\.svelte$/ }, ({ path }) => {
        const { js } = compile(readFileSync(path, 'utf8'), { generate, filename: basename(path) });
        return { contents: js.code, loader: 'js', resolveDir: import.meta.dirname + '/driver' };
      });
      if (!isOld) return;
      // A component of Svelte 4 renders itself.
      onResolve({ filter: /^svelte\/server$/ }, () => ({ path: 'svelte/server', namespace: 'old' }));
      (onLoad as (filter: object, load: () => object) => void)({ filter: /.*/, namespace: 'old' }, () => ({
        contents: 'export const render = (component, { props }) => ({ body: component.render(props).html })',
      }));
    },
  };
}
