// The built package `@tidewire/react` in one version of React, for tests of what only React has.

import type { TestContext } from 'node:test';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { Schema } from '../../packages/client/src/index.ts';
import type * as Hooks from '../../packages/react/src/index.ts';
import type * as Lists from '../../packages/react/src/lists.ts';
import type * as Queries from '../../packages/react/src/queries.ts';
import type * as Scopes from '../../packages/react/src/scopes.ts';
import type * as ReactTypes from '../../packages/react/node_modules/@types/react/index.d.ts';
import type * as DomTypes from '../../packages/react/node_modules/@types/react-dom/client.d.ts';
import type * as ServerTypes from '../../packages/react/node_modules/@types/react-dom/server.d.ts';
import { atEnd } from '../harness/cleanup.ts';
import { PACKAGES, Shown, clientOfPage, installed, type PageOptions } from './stage.ts';

const PACKAGE = join(PACKAGES, 'react');

/** The folders of the tested React versions. */
export const VERSIONS: Record<string, string> = {
  'React 18': join(PACKAGE, 'tests/react-18/node_modules'),
  'React 19': join(PACKAGE, 'node_modules'),
};

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
  queries: typeof Queries;
  scopes: typeof Scopes;
}

/** Loads the package with the React of `modules` and no other. */
export function stage(modules: string): Promise<Stage> {
  const frameworks = { react: join(modules, 'react'), 'react-dom': join(modules, 'react-dom') };
  return installed('react', frameworks, async (folder) => {
    const load = createRequire(join(folder, 'index.js'));
    const { createRoot, hydrateRoot } = load('react-dom/client');
    const server = load('react-dom/server');
    const hooks = load('@tidewire/react');
    const [lists, queries, scopes] = ['lists', 'queries', 'scopes'].map((entry) => load(`@tidewire/react/${entry}`));
    return { React: load('react'), createRoot, hydrateRoot, server, hooks, lists, queries, scopes };
  });
}

/** The output of a node in the document. */
export class ShownNode extends Shown {
  readonly #root: DomTypes.Root;

  constructor(
    test: TestContext,
    on: Stage,
    /** The initial node; hydrates `html`, the output of a server, if it is given. */
    node: Node,
    html?: string,
    errors: unknown[] = [],
  ) {
    super(test);
    const options = { onRecoverableError: (error: unknown) => void errors.push(error) };
    const element = this.element as unknown as Element;
    if (html === undefined) {
      this.#root = on.createRoot(element, options);
      this.#root.render(node);
    } else {
      this.element.innerHTML = html;
      this.#root = on.hydrateRoot(element, node, options);
    }
    atEnd(test, () => this.#root.unmount());
  }

  draw(node: Node): void {
    this.#root.render(node);
  }
}

/** A page that renders `node` below a provider, in StrictMode. */
export function pageOf<App extends Schema = {}>(test: TestContext, on: Stage, address: string, node: Node, options: PageOptions = {}) {
  const { createElement, StrictMode } = on.React;
  const { TidewireProvider } = on.hooks.hooks<App>();
  const { client, sent } = clientOfPage<App>(test, address, options);
  const { keepMs = 0, autoConnect = true } = options;
  // React mounts components twice if StrictMode is at the root.
  const below = (child: Node): Node => createElement(StrictMode, null, createElement(TidewireProvider, { client, keepMs, autoConnect }, child));
  const shown = new ShownNode(test, on, below(node));
  return { client, sent, shown, draw: (child: Node) => shown.draw(below(child)) };
}
