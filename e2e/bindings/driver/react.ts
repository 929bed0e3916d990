// The suite's driver for React, on the package in one version of React.

import { failure, isVariable, type Binding, type Component, type Entry, type Name, type ServerBinding, type Settings, type Uses, type Variable } from '../binding.ts';
import type { Node, Stage } from '../react-stage.ts';

export function reactBinding(on: Stage): { binding: Binding; server: ServerBinding } {
  const { Component: Base, StrictMode, Suspense, createElement: h, memo, useSyncExternalStore } = on.React;
  const { hooks, lists, queries, scopes } = on;

  const read = <Value,>({ source, read }: Variable<Value>): Value => useSyncExternalStore(source as (listener: () => void) => () => void, read, read);
  /** The current name. Like the hooks, it is called in each drawing. */
  const nameOf = (name: Name): string | undefined => (typeof name === 'string' ? name : read(name));
  const uses: Uses = {
    useRecord(name, options) {
      const live = hooks.useRecord(nameOf(name), options as object);
      return () => live as ReturnType<ReturnType<Uses['useRecord']>>;
    },
    useEdits: () => hooks.useEdits() as ReturnType<Uses['useEdits']>,
    useList(name, options) {
      const live = lists.useList(nameOf(name), options as object);
      return () => live;
    },
    useQuery(collection, query, options) {
      // A new object in each drawing.
      const live = queries.useQuery(nameOf(collection), { ...(isVariable(query) ? read(query) : query) }, options as object);
      return () => live;
    },
    useMembers(scope, state, options) {
      const now = typeof state === 'object' && isVariable(state) ? read(state) : state;
      // A new object in each drawing.
      const live = scopes.useMembers(nameOf(scope), now && { ...now }, options as object);
      return () => live;
    },
    usePresence(user, options) {
      const live = hooks.usePresence(user, options as object);
      return () => live;
    },
    useEveryone(options) {
      const live = hooks.usePresence(options as object);
      return () => live;
    },
    useEvent: (name, callback, options) => hooks.useEvent(nameOf(name), callback, options),
    useRpc(name) {
      const progress = hooks.useRpc(name);
      return () => progress;
    },
    useProvide: (name, answer) => hooks.useProvide(nameOf(name), answer),
    useSync() {
      const sync = hooks.useSync();
      return () => sync;
    },
    useConnection() {
      const connection = hooks.useConnection();
      return () => connection;
    },
  };

  class Boundary extends Base<{ children?: Node }, { text?: string }> {
    override state: { text?: string } = {};

    static getDerivedStateFromError(error: unknown): object {
      return { text: failure(error) };
    }

    override render(): Node {
      return this.state.text ?? this.props.children;
    }
  }

  const Shown = memo(({ component }: { component: Component }): Node => component(uses)());
  const shown = ({ id, component }: Entry): Node => h(Boundary, { key: id }, h(Suspense, { fallback: 'wait' }, h(Shown, { component })));

  // React mounts components twice if StrictMode is at the root.
  const page = ({ client, ...settings }: Settings, entries: readonly Entry[]): Node => {
    const below = entries.map(shown);
    return h(StrictMode, null, client ? h(hooks.TidewireProvider, { client, ...settings }, below) : below);
  };
  const binding: Binding = {
    missingProvider: 'no <TidewireProvider client={...}> is above this component',
    variable<Value>(initial: Value): Variable<Value> {
      let value = initial;
      const listeners = new Set<() => void>();
      const write = (next: Value): void => {
        value = next;
        listeners.forEach((listener) => listener());
      };
      const source = (listener: () => void): (() => void) => {
        listeners.add(listener);
        return () => void listeners.delete(listener);
      };
      return { read: () => value, write, source };
    },
    mount(element, settings) {
      const root = on.createRoot(element as Element, { onCaughtError: () => {} } as object);
      return { show: (entries) => root.render(page(settings, entries)), unmount: () => root.unmount() };
    },
  };
  return { binding, server: { render: (settings, entries) => on.server.renderToString(page(settings, entries)) } };
}
