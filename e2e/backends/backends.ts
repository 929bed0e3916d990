// Backends and their clients as the suites use them.

import type { TestContext } from 'node:test';
import { Backend, type OpenedSession, type Payload, type SessionHandle } from '@tidewire/server';
import { io, type Socket } from 'socket.io-client';
import { atEnd } from '../harness/cleanup.ts';
import { Server, type ServerOptions } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, happens, within } from '../harness/wait.ts';

export const KEY = '0123456789abcdef0123456789abcdef';

/** The ways of a client to connect: one transport alone, and the change from one to the other. */
export const TRANSPORTS = [['polling'], ['websocket'], ['polling', 'websocket']];

/** A server whose namespaces backends serve. */
export function startServer(options: ServerOptions = {}): Promise<Server> {
  return Server.start({ ...options, backend: { key: KEY, namespaces: ['/*'], ...options.backend } });
}

/** An event of a client. */
export interface Received extends Payload {
  session: SessionHandle;
  id: string | undefined;
}

/** The messages that a backend has received. */
export interface Inboxes {
  opened: Inbox<OpenedSession>;
  events: Inbox<Received>;
  answers: Inbox<Received>;
  closed: Inbox<{ session: SessionHandle; reason: string }>;
  errors: Inbox<Error>;
}

/** A backend that serves these namespaces, and its inboxes. It accepts sessions with the ids `id-1`, `id-2` and so on. */
export async function backend(t: TestContext, server: Server, namespaces: string[], accepts = true): Promise<[Backend, Inboxes]> {
  const made = new Backend({ url: `http://${server.address}`, key: KEY });
  atEnd(t, () => made.close());
  const inboxes: Inboxes = {
    opened: new Inbox('opened'),
    events: new Inbox('events'),
    answers: new Inbox('answers'),
    closed: new Inbox('closed'),
    errors: new Inbox('errors'),
  };
  let count = 0;
  made.on('opened', (opened) => {
    if (accepts && opened.id === undefined) made.accept(opened.session, `id-${(count += 1)}`);
    inboxes.opened.push(opened);
  });
  made.on('event', (session, payload, id) => inboxes.events.push({ session, ...payload, id }));
  made.on('answered', (session, id, payload) => inboxes.answers.push({ session, ...payload, id }));
  made.on('closed', (session, reason) => inboxes.closed.push({ session, reason }));
  made.on('error', inboxes.errors.push);
  await within(DEADLINE_MS, made.serve(namespaces), 'the backend serves');
  return [made, inboxes];
}

/** A client that does not have to be connected yet. */
export function client(t: TestContext, port: number, options: object = {}, namespace = '/'): Socket {
  const socket = io(`http://127.0.0.1:${port}${namespace}`, { transports: ['websocket'], forceNew: true, reconnection: false, ...options });
  atEnd(t, () => {
    socket.io.reconnection(false);
    socket.disconnect();
    socket.io.engine?.close();
  });
  return socket;
}

/** A client that has joined. */
export async function joined(t: TestContext, port: number, options: object = {}, namespace = '/'): Promise<Socket> {
  const socket = client(t, port, options, namespace);
  await happens(socket, 'connect');
  return socket;
}

/** All events of a client: the name and the arguments. */
export function allOf(socket: Socket): Inbox<unknown[]> {
  const inbox = new Inbox<unknown[]>('events of the client');
  socket.onAny((...event: unknown[]) => inbox.push(event));
  return inbox;
}
