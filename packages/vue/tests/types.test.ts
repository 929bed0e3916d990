// Code that must not compile: `npm run check` fails where an expected error is missing. Nothing here is called.

import { test } from 'node:test';
import type { Client, TidewireError } from '@tidewire/client';
import { h, ref, type VNode } from 'vue';
import { TidewireProvider, hooks, listHooks, queryHooks, scopeHooks, useMembers, useRecord } from '../src/index.js';

interface Todo {
  title: string;
  done?: boolean;
  steps: Array<{ text: string }>;
}

interface App {
  records: {
    [name: `todos/${string}`]: Todo;
    names: string[];
  };
  events: {
    [name: `chat/${string}`]: { text: string };
    reload: undefined;
  };
  rpcs: {
    add(argument: { a: number; b: number }): number;
    now(): string;
  };
  scopes: {
    [board: `board/${string}`]: { x: number };
  };
}

const app = { ...hooks<App>(), ...listHooks<App>(), ...queryHooks<App>(), ...scopeHooks<App>() };

export function Provider({ client, other }: { client: Client<App>; other: Client<{ records: { other: object } }> }): VNode {
  h(app.TidewireProvider, { client });
  h(app.TidewireProvider, { client, autoConnect: false, keepMs: 0 }, { default: () => [] });
  h(TidewireProvider, { client: client as unknown as Client });
  // @ts-expect-error the client of another app
  const wrong: InstanceType<typeof app.TidewireProvider>['$props'] = { client: other };
  return h('p', String(wrong));
}

export function Records(): void {
  const { value, isReady, error, set, patch, retry, ready } = app.useRecord('todos/1');
  const todo: Todo | undefined = value.value;
  const isHere: boolean = isReady.value;
  const reason: TidewireError | undefined = error.value;
  const arrived: Promise<void> = ready();
  set('title', 'new');
  set(['steps', 0, 'text'], 'first');
  void patch({ title: 'both', done: true });
  retry();
  const id = ref('1');
  const title: string | undefined = app.useRecord(() => `todos/${id.value}`, { path: 'title', initial: 'none' }).value.value;
  const step: string | undefined = app.useRecord('todos/1', () => ({ path: ['steps', 0, 'text'] as const })).value.value;
  const none: Todo | string[] | undefined = app.useRecord(undefined).value.value;
  const titles: string[] | undefined = app.useQuery('todos', { sort: ['title'] }).value.value?.map(({ data }) => data.title);
  // @ts-expect-error no records are in this collection
  app.useQuery('todo');
  const names: readonly string[] | undefined = app.useList('names', { initial: ['milk'] }).value.value;
  // @ts-expect-error no record has this name
  app.useRecord('todo/1');
  // @ts-expect-error not a path of the document
  app.useRecord('todos/1', { path: 'titel' });
  // @ts-expect-error the value at the path has another type
  app.useRecord('todos/1', { path: 'title', initial: 1 });
  // @ts-expect-error the value has the wrong type
  set('done', 'yes');
  // @ts-expect-error the value is a read-only ref
  value.value = undefined;
  // @ts-expect-error these documents are not lists
  app.useList('todos/1');
  const untyped: unknown = useRecord('any record').value.value;
  void [todo, isHere, reason, arrived, title, step, none, names, titles, untyped];
}

export function Scopes(): void {
  const { value, self, isReady, error, retry, ready } = app.useMembers(() => 'board/1' as const, ref({ x: 1 }), { throttleMs: 20, initial: [] });
  const places: number[] | undefined = value.value?.map(({ state }) => state.x);
  const shown: [string | undefined, boolean, string | undefined] = [self.value?.id, isReady.value, error.value?.code];
  retry();
  void ready();
  const others: number | undefined = app.useMembers(undefined).value.value?.length;
  const untyped: unknown = useMembers('any', ['state']).value.value?.[0]?.state;
  // @ts-expect-error the app has no such scope
  app.useMembers('room/1');
  // @ts-expect-error the state has the wrong type
  app.useMembers('board/1', { x: 'one' });
  // @ts-expect-error a member has another state
  app.useMembers('board/1', { x: 1 }, { initial: [{ id: '1', state: 1 }] });
  // @ts-expect-error the value may be undefined
  const certain: number = app.useMembers('board/1').value.value.length;
  void [places, shown, others, untyped, certain];
}

export function Calls(): void {
  const say = app.useEvent('chat/1', ({ text }, { name }) => text.length + name.length, { onGap: ({ missed }) => missed });
  say({ text: 'hello' });
  app.useEvent('reload', () => {})();
  const isOnline: boolean | undefined = app.usePresence(() => 'bob').value.value;
  const users: readonly string[] | undefined = app.usePresence().value.value;
  const add = app.useRpc('add');
  const sum: number | undefined = add.value.value;
  const answer: Promise<number> = add.call({ a: 1, b: 2 }, { timeoutMs: 10 });
  app.useProvide('add', ({ a, b }) => a + b);
  const state: string = app.useConnection().state.value;
  // @ts-expect-error the payload has the wrong type
  say({ words: 'hello' });
  // @ts-expect-error a key of the argument is missing
  void add.call({ a: 1 });
  // @ts-expect-error the result must be a number
  app.useProvide('add', ({ a, b }) => `${a + b}`);
  void [isOnline, users, sum, answer, state];
}

test('the types of this file were checked', () => {});
