// Code that must not compile: `npm run check` fails where an expected error is missing, with the types of React 19 and of 18. Nothing here
// is called.

import { test } from 'node:test';
import { Client } from '@tidewire/client';
import { createElement, type ReactNode } from 'react';
import { TidewireProvider, hooks, useEvent, useRecord, useRpc } from '../src/index.js';
import { listHooks, useList } from '../src/lists.js';
import { queryHooks, useQuery } from '../src/queries.js';
import { scopeHooks, useMembers } from '../src/scopes.js';

interface Todo {
  title: string;
  done?: boolean;
  steps: Array<{ text: string }>;
}

interface App {
  records: {
    [name: `todos/${string}`]: Todo;
    names: string[];
    open: Array<`todos/${string}`>;
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

export function Provider({ client, other }: { client: Client<App>; other: Client<{ records: { other: object } }> }): ReactNode {
  createElement(app.TidewireProvider, { client }, 'below');
  createElement(app.TidewireProvider, { client, autoConnect: false, keepMs: 0 });
  createElement(TidewireProvider, { client });
  // @ts-expect-error the client is missing
  createElement(app.TidewireProvider, {});
  // @ts-expect-error the client of another app
  createElement(app.TidewireProvider, { client: other });
  return createElement(app.TidewireProvider, { client, children: 'below' });
}

export function Records(): void {
  const { value, isReady, error, set, patch, setWithAck, update, retry } = app.useRecord('todos/1');
  const todo: Todo | undefined = value;
  const code: string | undefined = error?.code;
  set('title', 'new');
  set({ title: 'whole', steps: [] });
  void setWithAck('steps[0]', { text: 'first' });
  void patch({ title: 'both', 'steps[0].text': 'at once' });
  void update((before) => ({ ...before, done: true }));
  retry();
  const title: string | undefined = app.useRecord('todos/1', { path: 'title' }).value;
  const text: string | undefined = app.useRecord('todos/1', { path: 'steps[0].text', initial: 'none', merge: 'remote' }).value;
  const here: Todo = app.useRecord('todos/1', { suspense: true }).value;
  const done: boolean | undefined = app.useRecord('todos/1', { suspense: true, path: 'done' }).value;
  const none: Todo | undefined = app.useRecord(todo ? 'todos/2' : undefined).value;
  const names: string[] | undefined = app.useRecord('names').value;
  set(['steps', 0, 'text'], 'first');
  const step: string | undefined = app.useRecord('todos/1', { path: ['steps', 0, 'text'], initial: 'none' }).value;
  const existing: Todo | undefined = app.useRecord('todos/1', { create: false, suspense: true }).value;
  const part: string | undefined = app.useRecord('todos/1', { create: false, suspense: true, path: ['title'] }).value;
  // @ts-expect-error a suspended record that is not created may be missing
  const present: Todo = app.useRecord('todos/1', { create: false, suspense: true }).value;
  // @ts-expect-error not an array path of the document
  app.useRecord('todos/1', { path: ['titel'] });
  // @ts-expect-error the value at the array path has another type
  app.useRecord('todos/1', { path: ['title'], initial: 1 });
  // @ts-expect-error the value at the array path has another type
  set(['steps', 0, 'text'], 1);
  // @ts-expect-error no record has this name
  app.useRecord('todo/1');
  // @ts-expect-error not a path of the document
  app.useRecord('todos/1', { path: 'titel' });
  // @ts-expect-error the value may be undefined
  const certain: Todo = app.useRecord('todos/1').value;
  // @ts-expect-error the value at the path is a text
  const count: number | undefined = app.useRecord('todos/1', { path: 'title' }).value;
  // @ts-expect-error the record has another type of document
  app.useRecord('names', { initial: [1] });
  // @ts-expect-error the value at the path has another type
  app.useRecord('todos/1', { path: 'title', initial: 1 });
  // @ts-expect-error without a name the hook does not suspend
  app.useRecord(undefined, { suspense: true }).value.title;
  // @ts-expect-error no option has this name
  app.useRecord('names', { suspended: true });
  // @ts-expect-error not a path of the document
  set('titel', 'new');
  // @ts-expect-error the value has the wrong type
  set('done', 'yes');
  // @ts-expect-error a required key is missing
  void setWithAck({ title: 'whole' });
  void [isReady, code, title, text, here, done, none, names, certain, count, step, existing, part, present];
}

export function Lists(): void {
  const { value, isReady, error, retry, add, remove, set } = app.useList('open');
  const entries: ReadonlyArray<`todos/${string}`> | undefined = value;
  const made: Promise<void> = add('todos/1', 0);
  void remove('todos/1');
  void set(['todos/2', 'todos/1']);
  retry();
  const here: readonly string[] = app.useList('names', { suspense: true }).value;
  const shown: readonly string[] | undefined = app.useList(isReady ? 'names' : undefined, { initial: ['milk'] }).value;
  // @ts-expect-error no record has this name
  app.useList('closed');
  // @ts-expect-error these documents are not lists
  app.useList('todos/1');
  // @ts-expect-error not an entry of this list
  void add('milk');
  // @ts-expect-error one of the entries is not the name of a todo
  void set(['todos/1', 'milk']);
  // @ts-expect-error an index is a number
  void remove('todos/1', 'first');
  // @ts-expect-error the value may be undefined
  const certain: readonly string[] = app.useList('names').value;
  // @ts-expect-error the entries are read-only
  here.push('milk');
  // @ts-expect-error not an entry of this list
  app.useList('open', { initial: ['milk'] });
  // @ts-expect-error a list has no option `path`
  app.useList('names', { path: '0' });
  // @ts-expect-error without a name the hook does not suspend
  app.useList(undefined, { suspense: true }).value.length;
  void [entries, error, made, here, shown, certain];
}

export function Queries(): void {
  const { value, isReady, error, retry } = app.useQuery('todos', { where: { done: false }, sort: ['title'], limit: 20 });
  const titles: string[] | undefined = value?.map(({ data }) => data.title);
  retry();
  const here: string[] = app.useQuery('todos', {}, { suspense: true }).value.map(({ id }) => id);
  const parts: string | undefined = app.useQuery('todos', { select: ['title'] }, { suspense: true }).value[0]?.data.title;
  const none: number | undefined = app.useQuery(isReady ? 'todos' : undefined, {}, { initial: [] }).value?.length;
  const untyped: unknown = useQuery('any').value?.[0]?.data;
  // @ts-expect-error no records are in this collection
  app.useQuery('todo');
  // @ts-expect-error the value may be undefined
  app.useQuery('todos').value.length;
  // @ts-expect-error a part of a document may lack each field
  app.useQuery('todos', { select: ['title'] }, { suspense: true }).value[0]?.data.title.length;
  // @ts-expect-error the rows are read-only
  app.useQuery('todos', {}, { suspense: true }).value.push();
  // @ts-expect-error a row has another document
  app.useQuery('todos', {}, { initial: [{ id: '1', version: 1, data: { title: 1 } }] });
  // @ts-expect-error without a collection the hook does not suspend
  app.useQuery(undefined, {}, { suspense: true }).value.length;
  void [titles, error, here, parts, none, untyped];
}

export function Scopes(): void {
  const { value, self, isReady, error, retry } = app.useMembers('board/1', { x: 1 }, { throttleMs: 20, initial: [] });
  const places: number[] | undefined = value?.map(({ state }) => state.x);
  retry();
  const here: number = app.useMembers('board/1', undefined, { suspense: true }).value.length;
  const own: number | undefined = self?.state.x;
  const none: string | undefined = app.useMembers(isReady ? 'board/1' : undefined).value?.[0]?.user;
  const untyped: unknown = useMembers('any', ['state']).value?.[0]?.state;
  // @ts-expect-error the app has no such scope
  app.useMembers('room/1');
  // @ts-expect-error the state has the wrong type
  app.useMembers('board/1', { x: 'one' });
  // @ts-expect-error a member has another state
  app.useMembers('board/1', { x: 1 }, { initial: [{ id: '1', state: 1 }] });
  // @ts-expect-error the value may be undefined
  app.useMembers('board/1').value.length;
  // @ts-expect-error without a scope the hook does not suspend
  app.useMembers(undefined, undefined, { suspense: true }).value.length;
  void [places, error, here, own, none, untyped];
}

export function Events(): void {
  const say = app.useEvent('chat/1', ({ text }, { name }) => text.length + name.length, { onGap: ({ missed }) => missed });
  say({ text: 'hello' });
  const reload = app.useEvent('reload', () => {});
  reload();
  // @ts-expect-error no event has this name
  app.useEvent('chats/1', () => {});
  // @ts-expect-error the payload is not a number
  app.useEvent('chat/1', (payload: number) => payload);
  // @ts-expect-error a payload is missing
  say();
  // @ts-expect-error the payload has the wrong type
  say({ words: 'hello' });
}

export function Presence(): void {
  const isOnline: boolean | undefined = app.usePresence('bob').value;
  const users: readonly string[] | undefined = app.usePresence().value;
  const both: [boolean, readonly string[]] = [app.usePresence('bob', { suspense: true }).value, app.usePresence({ suspense: true }).value];
  // @ts-expect-error a user id is a text
  app.usePresence(1);
  // @ts-expect-error the value may be undefined
  const certain: boolean = app.usePresence('bob').value;
  void [isOnline, users, both, certain];
}

export function Rpcs(): void {
  const add = app.useRpc('add');
  const sum: number | undefined = add.value;
  const answer: Promise<number> = add.call({ a: 1, b: 2 }, { timeoutMs: 10 });
  const now: Promise<string> = app.useRpc('now').call();
  app.useProvide('add', ({ a, b }) => a + b);
  app.useProvide('now', async () => 'noon');
  // @ts-expect-error no rpc has this name
  app.useRpc('sub');
  // @ts-expect-error the argument is missing
  add.call();
  // @ts-expect-error a key of the argument is missing
  add.call({ a: 1 });
  // @ts-expect-error the result is a number
  const text: Promise<string> = add.call({ a: 1, b: 2 });
  // @ts-expect-error the result must be a number
  app.useProvide('add', ({ a, b }) => `${a + b}`);
  void [sum, answer, now, text];
}

export function Untyped(): void {
  const { value, set } = useRecord('any record');
  set('any.path', { any: 'value' });
  const entries: readonly string[] | undefined = useList('any list').value;
  useEvent('any event', (payload: unknown) => payload)('any payload');
  const answer: Promise<unknown> = useRpc('any').call(1);
  // @ts-expect-error the type of the value is unknown
  const text: string = value;
  void [answer, text, entries];
}

test('the types of this file were checked', () => {});
