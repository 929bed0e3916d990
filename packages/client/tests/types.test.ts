// What must not compile: `npm run check` fails where an expected error is missing. Nothing here is called.

import { test } from 'node:test';
import { WebSocket } from 'ws';
import { Client } from '../src/index.js';

interface App {
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
  // @ts-expect-error no event has this name
  client.event.emit('tock', 1);
  // @ts-expect-error nor this
  client.event.subscribe('chats/1', () => {});
  // @ts-expect-error a payload of another event
  client.event.emit('tick', 'one');
  // @ts-expect-error a payload is missing
  client.event.emit('tick');
  // @ts-expect-error a part of the payload is missing
  client.event.emit('chat/1', { from: 'ada' });
  // @ts-expect-error the payload is no text
  client.event.subscribe('tick', (count: string) => count);

  const sum: Promise<number> = client.rpc.call('add', { a: 1, b: 2 });
  const now: Promise<string> = client.rpc.call('now');
  const lines: Promise<{ lines: string[] }> = client.rpc.call('report/7', 'short', { timeoutMs: 10 });
  client.rpc.call('now', undefined, { signal: new AbortController().signal });
  client.rpc.provide('add', ({ a, b }) => a + b);
  client.rpc.provide('now', async () => 'noon');
  // @ts-expect-error nobody provides this
  client.rpc.call('sub', { a: 1, b: 2 });
  // @ts-expect-error the name has no number
  client.rpc.call('report/x', 'short');
  // @ts-expect-error the argument is missing
  client.rpc.call('add');
  // @ts-expect-error an argument that is not known
  client.rpc.call('report/7', 'medium');
  // @ts-expect-error the result is a number
  const text: Promise<string> = client.rpc.call('add', { a: 1, b: 2 });
  // @ts-expect-error the provider gives text
  client.rpc.provide('add', ({ a, b }) => `${a + b}`);
  // @ts-expect-error there is no such part of the argument
  client.rpc.provide('add', ({ c }) => c);
  void [sum, now, lines, text];
}

export function untyped(client: Client): void {
  client.event.emit('any name', { any: 'value' });
  client.event.subscribe('any name', (payload: unknown) => payload);
  // @ts-expect-error what comes is not known
  client.event.subscribe('any name', (payload: string) => payload);
  const result: Promise<unknown> = client.rpc.call('any', 1);
  // @ts-expect-error a name is no number
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

test('the types of this file were checked', () => {});
