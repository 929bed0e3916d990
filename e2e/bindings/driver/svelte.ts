// The suite's driver for Svelte 4 and 5. Its components are in `Page.svelte` and `Shown.svelte`.

import { useConnection, useEdits, useEvent, useList, useMembers, usePresence, useProvide, useQuery, useRecord, useRpc, useSync } from '@tidewire/svelte';
import * as svelte from 'svelte';
import { render } from 'svelte/server';
import { derived, get, readable, writable, type Readable } from 'svelte/store';
import { failure, isVariable, type Binding, type Component, type Entry, type Name, type Options, type Query, type ServerBinding, type Settings, type State, type Uses } from '../binding.ts';
import Page from './Page.svelte';

const sourceOf = (name: Name | Query | State): any => (typeof name === 'object' && isVariable(name) ? name.source : name);

function usesOf(stores: Array<Readable<unknown>>, waits: Array<Promise<void>>): Uses {
  const plain = (store: Readable<any>): any => {
    stores.push(store);
    return () => get(store);
  };
  const live = (store: Readable<any> & { ready(): Promise<void> }, { suspense, initial }: Options): any => {
    if (suspense && initial === undefined) waits.push(store.ready());
    return plain(store);
  };
  return {
    useRecord: (name, options = {}) => live(useRecord(sourceOf(name), options as object), options),
    useEdits: () => useEdits() as any,
    useList: (name, options = {}) => live(useList(sourceOf(name), options as object), options),
    useQuery: (collection, query, options = {}) => live(useQuery(sourceOf(collection), sourceOf(query), options as object), options),
    useMembers: (scope, state, options = {}) => live(useMembers(sourceOf(scope), sourceOf(state), options as object), options),
    usePresence: (user, options = {}) => live(usePresence(user, options as object), options),
    useEveryone: (options = {}) => live(usePresence(options as object), options),
    useEvent: (name, callback, options) => useEvent(sourceOf(name), callback, options),
    useRpc: (name) => plain(useRpc(name)),
    useProvide: (name, answer) => useProvide(sourceOf(name), answer),
    useSync: () => plain(useSync()),
    useConnection: () => plain(useConnection()),
  };
}

/** The text of a component, which Shown.svelte calls while it is created. */
function textOf(component: Component): Readable<string> {
  const stores: Array<Readable<unknown>> = [];
  const waits: Array<Promise<void>> = [];
  try {
    const draw = component(usesOf(stores, waits));
    const text = derived(stores, draw);
    return waits.length > 0 ? after(Promise.all(waits), text) : text;
  } catch (error) {
    // Svelte 4 has no boundary for errors.
    return readable(failure(error));
  }
}

function after(ready: Promise<unknown>, text: Readable<string>): Readable<string> {
  return readable('wait', (set) => {
    let stop: (() => void) | undefined;
    let isOver = false;
    ready.then(
      () => {
        if (!isOver) stop = text.subscribe(set);
      },
      (error: unknown) => set(failure(error)),
    );
    return () => {
      isOver = true;
      stop?.();
    };
  });
}

const propsOf = ({ client, ...options }: Settings, entries: Readable<readonly Entry[]>): object => ({ client, options, entries, textOf });

export const binding: Binding = {
  missingProvider: 'no component above this one has called provideTidewire(client)',
  variable(initial) {
    const source = writable(initial);
    return { read: () => get(source), write: source.set, source };
  },
  mount(target, settings) {
    const entries = writable<readonly Entry[]>([]);
    const options = { target, props: propsOf(settings, entries) };
    const { mount, unmount } = svelte as Partial<{ mount(component: unknown, options: object): object; unmount(page: object): unknown }>;
    if (mount && unmount) {
      const page = mount(Page, options);
      return { show: entries.set, unmount: () => void unmount(page) };
    }
    const page = new (Page as unknown as new (options: object) => { $destroy(): void })(options);
    return { show: entries.set, unmount: () => page.$destroy() };
  },
};

export const server: ServerBinding = {
  render: (settings, entries) => render(Page as never, { props: propsOf(settings, readable(entries)) } as never).body,
};
