// The package `@tidewire/client`, from its source, as a driver. Its sockets are those of `ws`, with a tap on what arrives.

import type { TestContext } from 'node:test';
import { WebSocket } from 'ws';
import { decode } from '../../../packages/client/src/codec.ts';
import { Client, RpcError, RpcReject, TidewireError } from '../../../packages/client/src/index.ts';
import type { ClientOptions, Schema, State, WebSocketClass } from '../../../packages/client/src/index.ts';
import { atEnd } from '../cleanup.ts';
import { DEADLINE_MS, Inbox, within } from '../wait.ts';
import type { Change, Driver, SeenMessage } from './driver.ts';

/** Short times, so that the suites do not wait for the client's own patience. */
const QUICK: ClientOptions = { reconnectMinMs: 20, reconnectMaxMs: 200, requestTimeoutMs: DEADLINE_MS };
/** Topics and actions of confirmations, as the vectors have them. */
const [EVENT, RPC, PRESENCE] = [4, 6, 7];
const [EVENT_UNSUBSCRIBE, UNPROVIDE, PRESENCE_UNSUBSCRIBE, UNSUBSCRIBE_ALL] = [4, 9, 11, 13];

/** Sockets that show each message of the server after the client has handled it. */
function tapped(show: (message: SeenMessage) => void): WebSocketClass {
  return class extends WebSocket {
    constructor(url: string) {
      super(url);
      this.addEventListener('message', ({ data }) => decode(new Uint8Array(data as ArrayBuffer)).forEach(show));
    }
  };
}

/** A client on Node that has not connected yet. It is closed at the end of its test, and errors that are not expected fail that. */
export function client<App extends Schema = {}>(
  test: TestContext,
  address: string,
  { errors = [], ...options }: ClientOptions & { errors?: string[] } = {},
): Client<App> {
  const made = new Client<App>(address, { ...QUICK, webSocket: WebSocket, ...options });
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

export const TIDEWIRE: Driver = {
  name: '@tidewire/client',
  lostReason: 'CONNECTION_LOST',
  async connect(test, server, { login = {}, errors = [], through = server.address } = {}) {
    const waiting = new Set<(message: SeenMessage) => void>();
    const webSocket = tapped((message) => [...waiting].forEach((look) => look(message)));
    const peer = client(test, through, { webSocket, auth: login, errors });
    await within(DEADLINE_MS, peer.connect(), 'login');
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
    return {
      emit: (name, payload) => peer.event.emit(name, payload),
      async subscribe(name) {
        const inbox = new Inbox<unknown>(`event ${name}`);
        const subscription = peer.event.subscribe(name, inbox.push);
        await within(DEADLINE_MS, subscription.ready, `subscription of ${name}`);
        return { inbox, stop: () => removed(subscription, EVENT as number, EVENT_UNSUBSCRIBE as number) };
      },
      call: (name, argument) =>
        peer.rpc.call(name, argument).catch((error: TidewireError) => {
          throw error.code === 'REQUEST_ERROR' ? error.data : error.code;
        }),
      async provide(name, provider) {
        const provided = peer.rpc.provide(name, (argument) => {
          return new Promise((send, fail) => {
            provider(argument, { send, error: (reason) => fail(new RpcError(reason)), reject: () => fail(new RpcReject()) });
          });
        });
        await within(DEADLINE_MS, provided.ready, `provider of ${name}`);
        return () => removed(provided, RPC as number, UNPROVIDE as number);
      },
      all: () => peer.presence.all(),
      query: (users) => peer.presence.query(users),
      async watch(users, one) {
        const inbox = new Inbox<Change>(`presence of ${users.join(', ')}`);
        // What is known at first is no change.
        let isReady = false;
        const note = (user: string, isOnline: boolean): void => {
          if (isReady && users.includes(user)) inbox.push([user, isOnline]);
        };
        const watching = one
          ? peer.presence.subscribe(one, (isOnline, user) => note(user, isOnline))
          : peer.presence.subscribeAll((_all, change) => change && note(change.user, change.isOnline));
        await within(DEADLINE_MS, watching.ready, 'presence is watched');
        isReady = true;
        return { inbox, stop: () => removed(watching, PRESENCE as number, (one ? PRESENCE_UNSUBSCRIBE : UNSUBSCRIBE_ALL) as number) };
      },
      async record(name) {
        const opened = peer.record.open(name);
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
            // What is there now is no change.
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
      snapshot: (name) => peer.record.get(name),
      receives,
      lost: () => inState(peer, 'waiting'),
      opened: () => inState(peer, 'open'),
      close: () => peer.close(),
    };
  },
};
