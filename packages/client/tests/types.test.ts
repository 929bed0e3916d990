// Code that must not compile: `npm run check` fails where an expected error is missing. Nothing here is called.

import { test } from 'node:test';
import { WebSocket } from 'ws';
import { openAnonymous } from '../src/anonymous.js';
import { Client } from '../src/index.js';
import { listen } from '../src/listen.js';
import { openList } from '../src/lists.js';
import { fetchQuery, openQuery, type Collections } from '../src/live-query.js';
import { subscribePattern } from '../src/patterns.js';
import { provide } from '../src/provide.js';

interface Todo {
  title: string;
  done?: boolean;
  tags: string[];
  steps?: Array<{ text: string; by?: { name: string } }>;
}

/** A document that contains itself. */
interface Tree {
  name: string;
  children?: Tree[];
}

interface App {
  records: {
    [name: `todos/${string}`]: Todo;
    names: string[];
    order: Array<`todos/${string}`>;
    tree: Tree;
    settings: { theme: string; [key: string]: unknown };
    dotted: { 'a.b': number; 'a[0]': number; '': number; ' a': number; plain: number };
    board: { cards?: { [id: string]: { text: string; marks: number[] } } };
  };
  events: {
    [name: `chat/${string}`]: { from: string; text: string };
    tick: number;
    reload: undefined;
  };
  rpcs: {
    add(argument: { a: number; b: number }): number;
    now(): string;
    [name: `report/${number}`]: (argument: 'short' | 'long') => { lines: string[] };
  };
}

export function typed(client: Client<App>): void {
  client.event.emit('tick', 1);
  client.event.emit('reload');
  client.event.emit('chat/1', { from: 'ada', text: 'hello' });
  client.event.subscribe('chat/1', ({ from, text }) => `${from}: ${text}`.length);
  client.event.subscribe('tick', (count, { name, position }) => count + name.length + (position?.offset ?? 0));
  subscribePattern(client.event, 'chat/*', (name, payload, { traceparent }) => {
    // @ts-expect-error the payload of a pattern may be that of any event
    payload.text;
    return `${name}: ${typeof payload === 'number' ? payload : (payload?.text ?? '')} ${traceparent}`;
  });
  // @ts-expect-error no event has this name
  client.event.emit('tock', 1);
  // @ts-expect-error no event has this name
  client.event.subscribe('chats/1', () => {});
  // @ts-expect-error a payload of another event
  client.event.emit('tick', 'one');
  // @ts-expect-error a payload is missing
  client.event.emit('tick');
  // @ts-expect-error a key of the payload is missing
  client.event.emit('chat/1', { from: 'ada' });
  // @ts-expect-error the payload is a number
  client.event.subscribe('tick', (count: string) => count);

  const sum: Promise<number> = client.rpc.call('add', { a: 1, b: 2 });
  const now: Promise<string> = client.rpc.call('now');
  const lines: Promise<{ lines: string[] }> = client.rpc.call('report/7', 'short', { timeoutMs: 10 });
  client.rpc.call('now', undefined, { signal: new AbortController().signal });
  provide(client.rpc, 'add', ({ a, b }) => a + b);
  provide(client.rpc, 'now', async () => 'noon');
  // @ts-expect-error no rpc has this name
  client.rpc.call('sub', { a: 1, b: 2 });
  // @ts-expect-error the name needs a number
  client.rpc.call('report/x', 'short');
  // @ts-expect-error the argument is missing
  client.rpc.call('add');
  // @ts-expect-error the argument is not one of the allowed texts
  client.rpc.call('report/7', 'medium');
  // @ts-expect-error the result is a number
  const text: Promise<string> = client.rpc.call('add', { a: 1, b: 2 });
  // @ts-expect-error the result must be a number
  provide(client.rpc, 'add', ({ a, b }) => `${a + b}`);
  // @ts-expect-error the argument has no such key
  provide(client.rpc, 'add', ({ c }) => c);
  void [sum, now, lines, text];
}

export function records(client: Client<App>): void {
  const todo = client.record.open('todos/1', { merge: ({ remote, local }) => ({ ...remote, title: local.title }) });
  const title: string | undefined = todo.get('title');
  const text: string | undefined = todo.get('steps[2].text');
  const name: string | undefined = todo.get('steps[2].by.name');
  const tag: string | undefined = todo.get('tags[0]');
  const value: Todo | undefined = todo.value;
  todo.set('title', 'new');
  todo.set('tags[3]', 'tag');
  todo.set('done', undefined);
  todo.set({ title: 'whole', tags: [] });
  void todo.setWithAck('steps[0]', { text: 'first' });
  void todo.patch({ title: 'both', 'steps[0].text': 'at once' });
  void todo.update((before) => ({ ...before, done: !before.done }));
  todo.subscribe((now) => now?.title);
  todo.subscribe('steps[0].by', (by) => by?.name);
  client.record.open('names').set('0', 'first');
  client.record.open('tree').set('children[0].children[1].name', 'deep');
  const board = client.record.open('board');
  const id: string = title ?? 'c7';
  board.set(['cards', id], { text: 'whole', marks: [] });
  board.set(['cards', 'ann.lee@x.org', 'text'], 'inside');
  void board.setWithAck(['cards', id, 'marks', 0], 1);
  const card: { text: string; marks: number[] } | undefined = board.get(['cards', id]);
  const mark: number | undefined = board.get(['cards', id, 'marks', 0]);
  board.subscribe(['cards', id, 'text'], (inside) => inside?.length);
  void board.patch([
    [['cards', id], undefined],
    [['cards', id, 'marks', 1], 2],
  ]);
  void todo.patch([
    ['title', 'text and array'],
    [['steps', 0, 'text'], 'first'],
  ]);
  todo.set(['steps', 2, 'by', 'name'], 'ann');
  client.record.open('tree').set(['children', 0, 'children', 1, 'name'], 'deep');
  client.record.open('names').set([0], 'first');
  client.record.open('settings').set('theme', 'dark');
  client.record.open('settings').set(['any key', 1], 'value');
  const existing: Todo | undefined = client.record.open('todos/1', { create: false }).value;
  const got: Promise<Todo | undefined> = client.record.get('todos/1');
  void client.record.set('names', ['all']);
  // @ts-expect-error no record has this name
  client.record.open('todo/1');
  // @ts-expect-error the id is not a literal of the type: it may contain dots
  board.set(`cards.${id}.text`, 'elsewhere');
  // @ts-expect-error nor is this one
  board.get('cards.c7');
  // @ts-expect-error a text that is not a literal
  client.record.open('settings').set(id, 1);
  // @ts-expect-error a text can't spell this key
  client.record.open('dotted').set('a.b', 1);
  // @ts-expect-error nor this one
  client.record.open('dotted').set('a[0]', 1);
  // @ts-expect-error nor an empty one
  client.record.open('dotted').set('', 1);
  client.record.open('dotted').set(['a.b'], 1);
  client.record.open('dotted').set('plain', 1);
  // @ts-expect-error not a key of the document
  todo.set(['titel'], 'new');
  // @ts-expect-error the value at the array path has another type
  board.set(['cards', id, 'text'], 1);
  // @ts-expect-error an array has indices
  todo.get(['tags', 'first']);
  // @ts-expect-error a path needs a step
  todo.get([]);
  // @ts-expect-error one of the values has the wrong type
  void todo.patch([[['title'], 1]]);
  // @ts-expect-error the record may be missing
  const present: Todo = client.record.open('todos/1', { create: false }).value;
  // @ts-expect-error not a path of the document
  todo.set('titel', 'new');
  // @ts-expect-error not a path of the list's entries
  todo.get('steps[0].txt');
  // @ts-expect-error a list has indices
  todo.get('tags.first');
  // @ts-expect-error the value has the wrong type
  todo.set('done', 'yes');
  // @ts-expect-error the list's entries have another type
  void todo.setWithAck('tags[0]', 1);
  // @ts-expect-error a required key is missing
  todo.set({ title: 'whole' });
  // @ts-expect-error one of the values has the wrong type
  void todo.patch({ title: 1 });
  // @ts-expect-error the result of the update lacks a required key
  void todo.update(() => ({ title: 'only' }));
  // @ts-expect-error the value at the path is a text
  todo.subscribe('title', (count: number | undefined) => count);
  // @ts-expect-error the value inside the map has another type
  board.set('cards.c7.text', 7);
  // @ts-expect-error the record has another type of document
  void client.record.set('names', [1]);
  // @ts-expect-error not a merge strategy
  client.record.open('tree', { merge: 'newest' });
  void [title, text, name, tag, value, got, card, mark, existing, present];
}

export function listening(client: Client<App>, any: Client): void {
  listen(client.event, '^chat/', (name) => name === 'chat/1' && (() => {}));
  listen(client.record, '^todos/', async (name) => (client.record.open(name).close(), () => {}));
  listen(any.event, '', (name: string) => name !== '' && (() => {}));
  // @ts-expect-error no event has this name
  listen(client.event, '^chat/', (name) => name === 'chats/1' && (() => {}));
  // @ts-expect-error no record has this name
  listen(client.record, '^todos/', (name) => name === 'tick' && (() => {}));
  // @ts-expect-error the callback must return whether it serves the name
  listen(client.event, '^chat/', () => {});
  // @ts-expect-error rpcs are provided, not listened for
  listen(client.rpc, '^add$', () => false);
}

export function lists(client: Client<App>, any: Client): void {
  const order = openList(client.record, 'order');
  void order.add('todos/1', 0);
  const first: `todos/${string}` | undefined = order.entries[0];
  order.onEntry(({ kind, entry, index }) => `${kind === 'added'} ${client.record.open(entry).name} ${index + 1}`);
  void openList(client.record, 'names').set(['any']);
  void openList(any.record, 'any').add('text');
  // @ts-expect-error the record is not a list
  openList(client.record, 'todos/1');
  // @ts-expect-error no record has this name
  openList(client.record, 'ordre');
  // @ts-expect-error not an entry of this list
  void order.add('1');
  // @ts-expect-error one of them is not an entry of this list
  void order.set(['todos/1', '1']);
  // @ts-expect-error there is no such kind of change
  order.onEntry(({ kind }) => kind === 'replaced');
  void first;
}

export function anonymous(client: Client<App>, any: Client): void {
  const todo = openAnonymous(client.record, 'todos/1');
  void todo.switchTo('todos/2');
  void todo.switchTo(undefined);
  todo.onName((name: `todos/${string}` | undefined) => name);
  todo.set('title', 'new');
  void todo.setWithAck({ title: 'whole', tags: [] });
  void todo.patch({ title: 'both', 'tags[0]': 'at once' });
  void todo.update((before) => ({ ...before, done: true }));
  todo.subscribe('title', (title: string | undefined) => title);
  const value: Todo | undefined = todo.value;
  const later = openAnonymous<App, `todos/${string}`>(client.record, undefined);
  void later.switchTo('todos/2');
  void openAnonymous(any.record, 'any').switchTo('any other');
  // @ts-expect-error no record has this name
  openAnonymous(client.record, 'todo/1');
  // @ts-expect-error a record of another type
  void todo.switchTo('names');
  // @ts-expect-error a record of another type, also without a first name
  void later.switchTo('names');
  // @ts-expect-error not a path of the document
  todo.set('titel', 'new');
  // @ts-expect-error the value has the wrong type
  todo.set('title', 1);
  // @ts-expect-error the value may be undefined
  const certain: Todo = todo.value;
  // @ts-expect-error the value at the path is a text
  todo.subscribe('title', (title: number | undefined) => title);
  void [value, certain];
}

export function untyped(client: Client): void {
  client.event.emit('any name', { any: 'value' });
  client.event.subscribe('any name', (payload: unknown) => payload);
  // @ts-expect-error the type of the payload is unknown
  client.event.subscribe('any name', (payload: string) => payload);
  const result: Promise<unknown> = client.rpc.call('any', 1);
  client.record.open('any record').set('any.path', { any: 'value' });
  // @ts-expect-error a name must be a text
  client.event.emit(1);
  void result;
}

export function options(): void {
  new Client('server:1', { auth: ({ refusal, renewIn }) => (renewIn(1_000), { refusal }) });
  new Client('server:1', { webSocket: WebSocket });
  new Client('server:1', { auth: async () => ({ token: 'text' }) });
  // @ts-expect-error credentials are an object
  new Client('server:1', { auth: 'token' });
  // @ts-expect-error no option has this name
  new Client('server:1', { reconnectMin: 1 });
}

interface Board {
  title: string;
}
interface Card {
  text: string;
  done?: boolean;
}

/** Names below names: the narrowest key counts. */
interface Hierarchy {
  records: { [name: `board/${string}`]: Board; all: Board } & { [name: `board/${string}/card/${string}`]: Card } & {
    [name: `board/${string}/card/${string}/tags`]: string[];
  };
  events: { [name: `room/${string}`]: 'opened' | null } & { [name: `room/${string}/typing`]: { by: string } | null };
  rpcs: { [name: `math/${string}`]: (argument: number) => number } & { [name: `math/${string}/text`]: (argument: string) => string };
}

export async function hierarchical(client: Client<Hierarchy>, id: string): Promise<void> {
  const board = client.record.open(`board/${id}`);
  const card = client.record.open(`board/${id}/card/1`);
  board.set('title', 'plans');
  card.set('done', true);
  card.set({ text: 'milk' });
  openList(client.record, 'board/1/card/2/tags');
  client.record.open('all').set('title', 'all');
  const [boards, cards]: [Board | undefined, Card | undefined] = [await client.record.get('board/1'), await client.record.get('board/1/card/2')];
  client.event.emit('room/1', 'opened');
  client.event.emit('room/1/typing', { by: 'ada' });
  client.event.subscribe('room/1/typing', (typing) => typing?.by);
  const answers: [number, string] = [await client.rpc.call('math/double', 1), await client.rpc.call('math/double/text', 'one')];
  const card2 = openAnonymous(client.record, 'board/1/card/2');
  void card2.switchTo('board/2/card/3');
  void [boards, cards, answers];
  // @ts-expect-error a board has no text
  board.set('text', 'milk');
  // @ts-expect-error a card has no title, although its name also matches that of a board
  card.set('title', 'plans');
  // @ts-expect-error a card is not a board
  client.record.set('board/1/card/2', { title: 'plans' });
  // @ts-expect-error a board is not a list
  openList(client.record, 'board/1');
  // @ts-expect-error this event has another payload
  client.event.emit('room/1/typing', 'opened');
  // @ts-expect-error this event has no payload `{ by }`
  client.event.emit('room/1', { by: 'ada' });
  // @ts-expect-error this rpc takes a text
  await client.rpc.call('math/double/text', 1);
  // @ts-expect-error no record has this name
  client.record.open('boards/1');
}

export async function queried(client: Client<Hierarchy>, app: Client<App>, untyped: Client, id: string): Promise<void> {
  const boards = openQuery(client.record, 'board', { where: { title: 'plans' } });
  const titles: string[] | undefined = boards.rows?.map(({ data }) => data.title);
  const cards = openQuery(client.record, `board/${id}/card`, { sort: { text: 1, done: -1 }, limit: 1 });
  cards.subscribe((rows, changes) => [rows[0]?.data.text.length, changes[0]?.row.data.done]);
  const parts = openQuery(client.record, 'board/1/card', { select: ['text'] });
  const text: string | undefined = parts.rows?.[0]?.data.text;
  const { count }: { count: number } = await fetchQuery(client.record, 'board', {}, { count: true });
  const { rows, count: none } = await fetchQuery(client.record, 'board');
  const todos = openQuery(app.record, 'todos');
  const collections: Array<Collections<App>> = ['todos'];
  const anything = openQuery(untyped.record, 'any/thing');
  void [titles, text, count, rows[0]?.data.title, todos.rows?.[0]?.data.tags[0], collections];
  // @ts-expect-error the count was not requested
  none.toFixed();
  // @ts-expect-error a part of a document may lack each field
  parts.rows?.[0]?.data.text.length;
  // @ts-expect-error a board has no text
  boards.rows?.[0]?.data.text;
  // @ts-expect-error no record is in this collection
  openQuery(client.record, 'boards');
  // @ts-expect-error a name without a slash belongs to no collection
  openQuery(app.record, 'names');
  // @ts-expect-error a query has no member with this name
  openQuery(client.record, 'board', { order: ['title'] });
  // @ts-expect-error a direction is 1 or -1
  openQuery(client.record, 'board', { sort: { title: 'asc' } });
  // @ts-expect-error the type of the document is unknown
  anything.rows?.[0]?.data.title;
}

test('the types of this file were checked', () => {});
