// Code that must not compile: `npm run check` fails where an expected error is missing. Nothing here is called.

import { test } from 'node:test';
import type { Client, TidewireError } from '@tidewire/client';
import { get, writable } from 'svelte/store';
import { hooks, listHooks, provideTidewire, queryHooks, scopeHooks, useMembers, useRecord } from '../src/index.js';

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

export function Provider({ client, other }: { client: Client<App>; other: Client<{ records: { other: object } }> }): void {
  app.provideTidewire(client);
  app.provideTidewire(client, { autoConnect: false, keepMs: 0 });
  provideTidewire(client as unknown as Client);
  // @ts-expect-error the client of another app
  app.provideTidewire(other);
}

export function Records(): void {
  const store = app.useRecord('todos/1');
  const { value, isReady, error, set, patch, retry } = get(store);
  const todo: Todo | undefined = value;
  const isHere: boolean = isReady;
  const reason: TidewireError | undefined = error;
  const arrived: Promise<void> = store.ready();
  set('title', 'new');
  set(['steps', 0, 'text'], 'first');
  void patch({ title: 'both', done: true });
  retry();
  const name = writable<`todos/${string}` | undefined>('todos/1');
  const title: string | undefined = get(app.useRecord(name, { path: 'title', initial: 'none' })).value;
  const step: string | undefined = get(app.useRecord('todos/1', { path: ['steps', 0, 'text'] })).value;
  const none: Todo | string[] | undefined = get(app.useRecord(undefined)).value;
  const titles: string[] | undefined = get(app.useQuery('todos', { sort: ['title'] })).value?.map(({ data }) => data.title);
  // @ts-expect-error no records are in this collection
  app.useQuery('todo');
  const names: readonly string[] | undefined = get(app.useList('names', { initial: ['milk'] })).value;
  // @ts-expect-error no record has this name
  app.useRecord('todo/1');
  // @ts-expect-error not a path of the document
  app.useRecord('todos/1', { path: 'titel' });
  // @ts-expect-error the value at the path has another type
  app.useRecord('todos/1', { path: 'title', initial: 1 });
  // @ts-expect-error the value has the wrong type
  set('done', 'yes');
  // @ts-expect-error a store of a record can't be set
  store.set(undefined);
  // @ts-expect-error these documents are not lists
  app.useList('todos/1');
  const untyped: unknown = get(useRecord('any record')).value;
  void [todo, isHere, reason, arrived, title, step, none, names, titles, untyped];
}

export function Scopes(): void {
  const members = app.useMembers(writable('board/1' as const), writable({ x: 1 }), { throttleMs: 20, initial: [] });
  const { value, self, isReady, error, retry } = get(members);
  const places: number[] | undefined = value?.map(({ state }) => state.x);
  retry();
  void members.ready();
  const others: number | undefined = get(app.useMembers(undefined)).value?.length;
  const untyped: unknown = get(useMembers('any', ['state'])).value?.[0]?.state;
  // @ts-expect-error the app has no such scope
  app.useMembers('room/1');
  // @ts-expect-error the state has the wrong type
  app.useMembers('board/1', { x: 'one' });
  // @ts-expect-error a member has another state
  app.useMembers('board/1', { x: 1 }, { initial: [{ id: '1', state: 1 }] });
  // @ts-expect-error the value may be undefined
  const certain: number = get(app.useMembers('board/1')).value.length;
  void [places, self?.id, isReady, error?.code, others, untyped, certain];
}

export function Calls(): void {
  const say = app.useEvent('chat/1', ({ text }, { name }) => text.length + name.length, { onGap: ({ missed }) => missed });
  say({ text: 'hello' });
  app.useEvent('reload', () => {})();
  const isOnline: boolean | undefined = get(app.usePresence('bob')).value;
  const users: readonly string[] | undefined = get(app.usePresence()).value;
  const add = get(app.useRpc('add'));
  const sum: number | undefined = add.value;
  const answer: Promise<number> = add.call({ a: 1, b: 2 }, { timeoutMs: 10 });
  app.useProvide('add', ({ a, b }) => a + b);
  const state: string = get(app.useConnection()).state;
  // @ts-expect-error the payload has the wrong type
  say({ words: 'hello' });
  // @ts-expect-error a key of the argument is missing
  void add.call({ a: 1 });
  // @ts-expect-error the result must be a number
  app.useProvide('add', ({ a, b }) => `${a + b}`);
  void [isOnline, users, sum, answer, state];
}

test('the types of this file were checked', () => {});
