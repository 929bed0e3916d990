// The suite's driver for Vue.

import { TidewireProvider, useConnection, useEdits, useEvent, useList, useMembers, usePresence, useProvide, useQuery, useRecord, useRpc, useSync } from '@tidewire/vue';
import { Suspense, createApp, createSSRApp, defineComponent, h, onErrorCaptured, shallowRef, unref, type App, type PropType, type VNode } from 'vue';
import { renderToString } from 'vue/server-renderer';
import { failure, isVariable, type Binding, type Component, type Entry, type Name, type Options, type Query, type ServerBinding, type Settings, type State, type Uses } from '../binding.ts';

const sourceOf = (name: Name | Query | State): any => (typeof name === 'object' && isVariable(name) ? name.source : name);
/** Options whose path is another array each time. */
const optionsOf = ({ suspense: _, path, ...options }: Options): any => () => ({ ...options, path: Array.isArray(path) ? [...path] : path });

function usesOf(waits: Array<Promise<void>>): Uses {
  const plain = <Shown extends object>(refs: Shown): any => () => Object.fromEntries(Object.entries(refs).map(([key, value]) => [key, unref(value)]));
  const live = <Shown extends { ready(): Promise<void> }>(refs: Shown, { suspense, initial }: Options): any => {
    if (suspense && initial === undefined) waits.push(refs.ready());
    return plain(refs);
  };
  return {
    useRecord: (name, options = {}) => live(useRecord(sourceOf(name), optionsOf(options)), options),
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

const Shown = defineComponent({
  props: { component: { type: Function as PropType<Component>, required: true } },
  setup({ component }) {
    const waits: Array<Promise<void>> = [];
    const draw = component(usesOf(waits));
    return waits.length > 0 ? Promise.all(waits).then(() => draw) : draw;
  },
});

const Boundary = defineComponent({
  setup(_, { slots }) {
    const failed = shallowRef<string>();
    onErrorCaptured((error) => {
      failed.value = failure(error);
      return false;
    });
    return () => failed.value ?? slots['default']?.();
  },
});

const shown = ({ id, component }: Entry): VNode =>
  h(Boundary, { key: id }, () => h(Suspense, null, { default: () => h(Shown, { component }), fallback: () => 'wait' }));

function appOf(create: typeof createApp, { client, ...settings }: Settings, entries: () => readonly Entry[]): App {
  const below = (): VNode[] => entries().map(shown);
  const app = create({ render: () => (client ? h(TidewireProvider, { client, ...settings }, { default: below }) : below()) });
  // Errors reach the boundary; warnings about them are not needed.
  app.config.warnHandler = () => {};
  return app;
}

export const binding: Binding = {
  missingProvider: 'no <TidewireProvider :client="..."> is above this component',
  variable(initial) {
    const source = shallowRef(initial);
    return { read: () => source.value, write: (value) => void (source.value = value), source };
  },
  mount(element, settings) {
    const entries = shallowRef<readonly Entry[]>([]);
    const app = appOf(createApp, settings, () => entries.value);
    app.mount(element as Element);
    return { show: (next) => void (entries.value = next), unmount: () => app.unmount() };
  },
};

export const server: ServerBinding = {
  render: (settings, entries) => renderToString(appOf(createSSRApp, settings, () => entries)),
};
