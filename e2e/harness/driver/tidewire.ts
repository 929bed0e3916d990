// A driver for the package `@tidewire/client`, built from its source. It uses the sockets of `ws`, with a tap on received messages.

import type { TestContext } from 'node:test';
import { WebSocket } from 'ws';
import { decode } from '../../../packages/client/src/codec.ts';
import { openAnonymous } from '../../../packages/client/src/anonymous.ts';
import { listen, type Served } from '../../../packages/client/src/listen.ts';
import { openList } from '../../../packages/client/src/lists.ts';
import { presenceOf } from '../../../packages/client/src/presence.ts';
import { provide, RpcError, RpcReject } from '../../../packages/client/src/provide.ts';
import { Client, TidewireError } from '../../../packages/client/src/index.ts';
import type { ClientOptions, Schema, State, WebSocketClass } from '../../../packages/client/src/index.ts';
import { atEnd } from '../cleanup.ts';
import { DEADLINE_MS, Inbox, within } from '../wait.ts';
import type { Change, Driver, SeenMessage, WholePeer } from './driver.ts';

/** Short intervals, so that the suites do not wait for the client's defaults. */
const QUICK: ClientOptions = { reconnectMinMs: 20, reconnectMaxMs: 200, requestTimeoutMs: DEADLINE_MS };
/** Topics and actions of confirmations in the format of the vectors. */
const [EVENT, RECORD, RPC, PRESENCE] = [4, 5, 6, 7] as const;
const [EVENT_UNSUBSCRIBE, EVENT_UNLISTEN, UNPROVIDE, PRESENCE_UNSUBSCRIBE, UNSUBSCRIBE_ALL] = [4, 6, 9, 11, 13] as const;
const [RECORD_UNSUBSCRIBE, RECORD_UNLISTEN] = [26, 28] as const;

/** Sockets that pass on each message from the server after the client has handled it. */
function tapped(show: (message: SeenMessage) => void): WebSocketClass {
  return class extends WebSocket {
    constructor(url: string) {
      super(url);
      this.addEventListener('message', ({ data }) => decode(new Uint8Array(data as ArrayBuffer)).forEach(show));
    }
  };
}

/**
 * A client on Node that has not connected yet. A test may pass another class, with a planted fault. The client closes at the end of its
 * test, and errors that the test does not expect fail it.
 */
export function client<App extends Schema = {}>(
  test: TestContext,
  address: string,
  { errors = [], of = Client, ...options }: ClientOptions & { errors?: string[]; of?: typeof Client } = {},
): Client<App> {
  const made = new of<App>(address, { ...QUICK, webSocket: WebSocket, ...options });
  const surprises: TidewireError[] = [];
  made.onError((error) => errors.includes(error.code) || surprises.push(error));
  atEnd(test, () => {
    made.close();
    if (surprises.length > 0) throw new Error(`the client reported errors that the test did not expect: ${surprises.join(', ')}`);
  });
  return made;
}

/** Waits until `client` is in `state`. */
export async function inState(client: Pick<Client, 'state' | 'onState'>, state: State): Promise<void> {
  if (client.state === state) return;
  let stop = (): void => {};
  const reached = new Promise<void>((done) => {
    stop = client.onState((current) => current === state && done());
  });
  await within(DEADLINE_MS, reached, `the client is ${state}`).finally(() => stop());
}

export const TIDEWIRE: Driver<WholePeer> = {
  name: '@tidewire/client',
  lostReason: 'CONNECTION_LOST',
  confirmsMerges: true,
  async connect(test, server, { login = {}, errors = [], through = server.address } = {}) {
    const waiting = new Set<(message: SeenMessage) => void>();
    const webSocket = tapped((message) => [...waiting].forEach((look) => look(message)));
    const made = client(test, through, { webSocket, auth: login, errors });
    await within(DEADLINE_MS, made.connect(), 'login');
    const receives = (matches: (message: SeenMessage & { isAck?: boolean }) => boolean): Promise<SeenMessage> => {
      const found = new Promise<SeenMessage>((done) => {
        const look = (message: SeenMessage): void => {
          if (!matches(message)) return;
          waiting.delete(look);
          done(message);
        };
        waiting.add(look);
      });
      return within(DEADLINE_MS, found, 'a message of the server');
    };
    /** Calls `remove` and waits for the confirmation of `action`. */
    const removed = async (remove: () => void, topic: number, action: number): Promise<void> => {
      const confirmed = receives((message) => message.topic === topic && message.action === action && message.isAck === true);
      remove();
      await confirmed;
    };
    const peer: WholePeer = {
      emit: (name, payload) => made.event.emit(name, payload),
      async subscribe(name) {
        const inbox = new Inbox<unknown>(`event ${name}`);
        const subscription = made.event.subscribe(name, inbox.push);
        await within(DEADLINE_MS, subscription.ready, `subscription of ${name}`);
        return { inbox, stop: () => removed(subscription, EVENT, EVENT_UNSUBSCRIBE) };
      },
      call: (name, argument) =>
        made.rpc.call(name, argument).catch((error: TidewireError) => {
          throw error.code === 'REQUEST_ERROR' ? error.data : error.code;
        }),
      async provide(name, provider) {
        const provided = provide(made.rpc, name, (argument) => {
          return new Promise((send, fail) => {
            provider(argument, { send, error: (reason) => fail(new RpcError(reason)), reject: () => fail(new RpcReject()) });
          });
        });
        await within(DEADLINE_MS, provided.ready, `provider of ${name}`);
        return () => removed(provided, RPC, UNPROVIDE);
      },
      all: () => presenceOf(made).all(),
      query: (users) => presenceOf(made).query(users),
      async watch(users, one) {
        const inbox = new Inbox<Change>(`presence of ${users.join(', ')}`);
        // Users that are online at the beginning are not changes.
        let isReady = false;
        const note = (user: string, isOnline: boolean): void => {
          if (isReady && users.includes(user)) inbox.push([user, isOnline]);
        };
        const watching = one
          ? presenceOf(made).subscribe(one, (isOnline, user) => note(user, isOnline))
          : presenceOf(made).subscribeAll((_all, change) => change && note(change.user, change.isOnline));
        await within(DEADLINE_MS, watching.ready, 'presence is watched');
        isReady = true;
        return { inbox, stop: () => removed(watching, PRESENCE, one ? PRESENCE_UNSUBSCRIBE : UNSUBSCRIBE_ALL) };
      },
      async record(name) {
        const opened = made.record.open(name);
        await within(DEADLINE_MS, opened.ready, `record ${name}`);
        return {
          set: (value) => opened.set(value),
          setAt: (path, value) => opened.set(path, value),
          setWithAck: (value) => opened.setWithAck(value),
          setAtWithAck: (path, value) => opened.setWithAck(path, value),
          get: (path) => (path === undefined ? opened.value : opened.get(path)),
          version: () => opened.version,
          changes(path) {
            const inbox = new Inbox<unknown>(`values of ${name}`);
            // The current value is not a change.
            let isFirst = true;
            const note = (value: unknown): void => {
              if (!isFirst) inbox.push(value);
              isFirst = false;
            };
            if (path === undefined) opened.subscribe(note);
            else opened.subscribe(path, note);
            return inbox;
          },
        };
      },
      async list(name) {
        const opened = openList(made.record, name);
        await within(DEADLINE_MS, opened.ready, `list ${name}`);
        return {
          entries: () => opened.entries,
          set: (entries) => opened.set(entries),
          add: (entry, index) => opened.add(entry, index),
          remove: (entry, index) => opened.remove(entry, index),
          changes() {
            const inbox = new Inbox<readonly string[]>(`entries of ${name}`);
            // The current value is not a change.
            let isFirst = true;
            opened.subscribe((entries) => {
              if (!isFirst) inbox.push(entries);
              isFirst = false;
            });
            return inbox;
          },
          events() {
            const inbox = new Inbox<string>(`changes of ${name}`);
            opened.onEntry(({ kind, entry, index }) => inbox.push(`${kind} ${entry} ${index}`));
            return inbox;
          },
        };
      },
      anonymous() {
        const opened = openAnonymous<Schema, string>(made.record, undefined);
        return {
          switchTo: (name) => within(DEADLINE_MS, opened.switchTo(name), `record ${name}`),
          get: (path) => (path === undefined ? opened.value : opened.get(path)),
          setAt: (path, value) => opened.set(path, value),
          setAtWithAck: (path, value) => opened.setWithAck(path, value),
          changes(path) {
            const inbox = new Inbox<unknown>(`values at ${path}`);
            return Object.assign(inbox, { stop: opened.subscribe(path, inbox.push) });
          },
        };
      },
      snapshot: (name) => made.record.get(name),
      async hold(what, name) {
        if (what === 'EVENT') return (await peer.subscribe(name)).stop;
        const opened = made.record.open(name);
        await within(DEADLINE_MS, opened.ready, `record ${name}`);
        return () => removed(() => opened.close(), RECORD, RECORD_UNSUBSCRIBE);
      },
      async listen(what, pattern, requests) {
        const serve = (name: string): Promise<Served> => {
          return new Promise((answer) => {
            const stopped = new Inbox<string>(`end of ${name}`);
            /** The server has processed an answer once it has answered a later request of the same connection. */
            const known = async (served: Served): Promise<void> => {
              answer(served);
              await new Promise((done) => setImmediate(done));
              await presenceOf(made).query(['nobody']);
            };
            const accept = (): Promise<void> => known(() => stopped.push(name));
            requests.push({ name, provider: peer, stopped, accept, reject: () => known(false) });
          });
        };
        const stop = what === 'EVENT' ? listen(made.event, pattern, serve) : listen(made.record, pattern, serve);
        await within(DEADLINE_MS, stop.ready, `listening for ${pattern}`);
        return () => (what === 'EVENT' ? removed(stop, EVENT, EVENT_UNLISTEN) : removed(stop, RECORD, RECORD_UNLISTEN));
      },
      receives,
      lost: () => inState(made, 'waiting'),
      opened: () => inState(made, 'open'),
      close: () => made.close(),
    };
    return peer;
  },
};
