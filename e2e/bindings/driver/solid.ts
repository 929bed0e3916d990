// The suite's driver for Solid, without JSX: it calls the functions that a compiler would call.

import { TidewireProvider, useConnection, useEdits, useEvent, useList, useMembers, usePresence, useProvide, useQuery, useRecord, useRpc, useSync } from '@tidewire/solid';
import { createComponent, createSignal, type JSX } from 'solid-js';
import { ErrorBoundary, For, Suspense, insert, isServer, render, renderToString } from 'solid-js/web';
import { failure, isVariable, type Binding, type Component, type Entry, type Name, type Options, type Query, type ServerBinding, type Settings, type State, type Uses } from '../binding.ts';

const sourceOf = (name: Name | Query | State): any => (typeof name === 'object' && isVariable(name) ? name.source : name);
/** Options whose path is another array each time. */
const optionsOf = ({ path, ...options }: Options): any => () => ({ ...options, path: Array.isArray(path) ? [...path] : path });

const uses: Uses = {
  useRecord(name, options = {}) {
    const live = useRecord(sourceOf(name), optionsOf(options));
    return () => live as any;
  },
  useEdits: () => useEdits() as any,
  useList(name, options) {
    const live = useList(sourceOf(name), options as object);
    return () => live as any;
  },
  useQuery(collection, query, options) {
    const live = useQuery(sourceOf(collection), sourceOf(query), options as object);
    return () => live as any;
  },
  useMembers(scope, state, options) {
    const live = useMembers(sourceOf(scope), sourceOf(state), options as object);
    return () => live as any;
  },
  usePresence(user, options) {
    const live = usePresence(user, options as object);
    return () => live;
  },
  useEveryone(options) {
    const live = usePresence(options as object);
    return () => live;
  },
  useEvent: (name, callback, options) => useEvent(sourceOf(name), callback, options),
  useRpc(name) {
    const progress = useRpc(name);
    return () => progress;
  },
  useProvide: (name, answer) => useProvide(sourceOf(name), answer),
  useSync() {
    const sync = useSync();
    return () => sync;
  },
  useConnection() {
    const connection = useConnection();
    return () => connection;
  },
};

function Text({ component }: { component: Component }): JSX.Element {
  const draw = component(uses);
  if (isServer) return draw as unknown as JSX.Element;
  const element = document.createElement('span');
  insert(element, draw);
  return element;
}

function Shown({ component }: { component: Component }): JSX.Element {
  return createComponent(ErrorBoundary, {
    fallback: failure,
    get children() {
      return createComponent(Suspense, {
        fallback: 'wait',
        get children() {
          return createComponent(Text, { component });
        },
      });
    },
  });
}

function page({ client, ...settings }: Settings, entries: () => readonly Entry[]): JSX.Element {
  const below = (): JSX.Element =>
    createComponent(For<readonly Entry[], JSX.Element>, {
      get each() {
        return entries();
      },
      children: ({ component }) => createComponent(Shown, { component }),
    });
  if (!client) return below();
  return createComponent(TidewireProvider, {
    client,
    ...settings,
    get children() {
      return below();
    },
  });
}

export const binding: Binding = {
  missingProvider: 'no <TidewireProvider client={...}> is above this component',
  variable(initial) {
    const [read, write] = createSignal(initial);
    return { read, write: (value) => void write(() => value), source: read };
  },
  mount(element, settings) {
    const [entries, setEntries] = createSignal<readonly Entry[]>([]);
    const unmount = render(() => page(settings, entries), element as never);
    return { show: (next) => void setEntries(next), unmount };
  },
};

export const server: ServerBinding = {
  render: (settings, entries) => renderToString(() => page(settings, () => entries)),
};
