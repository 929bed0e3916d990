// The unmodified npm client as a driver.

import { C, close, connect, discarded, inState, list, record, subscribed } from '../client.ts';
import { fresh } from '../names.ts';
import { DEADLINE_MS, Inbox, within } from '../wait.ts';
import type { Change, Driver, WholePeer } from './driver.ts';

const { EVENT_ACTION, RECORD_ACTION, RPC_ACTION, PRESENCE_ACTION, CONNECTION_STATE } = C;
/** Subscriptions are sent immediately, so that they are in flight when a connection is lost. */
const EAGER = { subscriptionInterval: 0 };

export const DEEPSTREAM: Driver<WholePeer> = {
  name: '@deepstream/client',
  lostReason: 'client offline',
  confirmsMerges: false,
  async connect(test, server, options = {}) {
    const client = await connect(test, server, { ...EAGER, ...options });
    const peer: WholePeer = {
      emit: (name, payload) => client.event.emit(name, payload as C.EventData),
      async subscribe(name) {
        const inbox = await subscribed(client, name);
        const stop = async (): Promise<void> => {
          client.event.unsubscribe(name, inbox.push);
          await client.wire.acknowledged('EVENT', EVENT_ACTION.UNSUBSCRIBE, name);
        };
        return { inbox, stop };
      },
      call: (name, argument) => client.rpc.make(name, argument as C.RPCResult),
      async provide(name, provider) {
        client.rpc.provide(name, provider);
        await client.wire.acknowledged('RPC', RPC_ACTION.PROVIDE, name);
        return async () => {
          client.rpc.unprovide(name);
          await client.wire.acknowledged('RPC', RPC_ACTION.UNPROVIDE, name);
        };
      },
      all: () => client.presence.getAll(),
      query: (users) => client.presence.getAll(users),
      async watch(users, one) {
        const inbox = new Inbox<Change>(`presence of ${users.join(', ')}`);
        const note = (user: string, isOnline: boolean): void => {
          if (users.includes(user)) inbox.push([user, isOnline]);
        };
        if (one) client.presence.subscribe(one, note);
        else client.presence.subscribe(note);
        await client.wire.acknowledged('PRESENCE', one ? PRESENCE_ACTION.SUBSCRIBE : PRESENCE_ACTION.SUBSCRIBE_ALL, one);
        const stop = async (): Promise<void> => {
          if (one) client.presence.unsubscribe(one, note);
          else client.presence.unsubscribe(note);
          await client.wire.acknowledged('PRESENCE', one ? PRESENCE_ACTION.UNSUBSCRIBE : PRESENCE_ACTION.UNSUBSCRIBE_ALL, one);
        };
        return { inbox, stop };
      },
      async record(name) {
        const opened = await record(client, name);
        return {
          set: (value) => opened.set(value as C.JSONObject),
          setAt: (path, value) => opened.set(path, value as C.RecordPathData),
          setWithAck: async (value) => void (await opened.setWithAck(value as C.JSONObject)),
          setAtWithAck: async (path, value) => void (await opened.setWithAck(path, value as C.RecordPathData)),
          get: (path) => (path === undefined ? opened.get() : opened.get(path)),
          version: () => opened.version as number,
          changes(path) {
            const inbox = new Inbox<unknown>(`values of ${name}`);
            if (path === undefined) opened.subscribe(inbox.push);
            else opened.subscribe(path, inbox.push);
            return inbox;
          },
        };
      },
      async list(name) {
        const opened = await list(client, name);
        const acknowledged = (change: (done: (error: string | null) => void) => void): Promise<void> => {
          return new Promise((done, fail) => change((error) => (error ? fail(new Error(error)) : done())));
        };
        return {
          entries: () => opened.getEntries(),
          set: async (entries) => void (await opened.setEntriesWithAck(entries)),
          add: (entry, index) => acknowledged((done) => opened.addEntry(entry, index, done as never)),
          remove: (entry, index) => acknowledged((done) => opened.removeEntry(entry, index, done as never)),
          changes() {
            const inbox = new Inbox<readonly string[]>(`entries of ${name}`);
            opened.subscribe(inbox.push);
            return inbox;
          },
          events() {
            const inbox = new Inbox<string>(`changes of ${name}`);
            for (const kind of ['added', 'moved', 'removed']) {
              opened.on(`entry-${kind}`, (entry: string, index: number) => inbox.push(`${kind} ${entry} ${index}`));
            }
            return inbox;
          },
        };
      },
      anonymous() {
        const opened = client.record.getAnonymousRecord();
        return {
          switchTo: async (name) => void (await within(DEADLINE_MS, Promise.resolve(opened.setName(name)), `record ${name}`)),
          get: (path) => opened.get(path),
          setAt: (path, value) => opened.set(path, value as never),
          setAtWithAck: async (path, value) => void (await opened.setWithAck(path, value as never)),
          changes(path) {
            const inbox = new Inbox<unknown>(`values at ${path}`);
            opened.subscribe(path, inbox.push, true);
            return Object.assign(inbox, { stop: () => opened.unsubscribe(path, inbox.push) });
          },
        };
      },
      snapshot: (name) => client.record.snapshot(name),
      async hold(what, name) {
        if (what === 'EVENT') return (await peer.subscribe(name)).stop;
        const opened = await record(client, name);
        return async () => {
          opened.discard();
          await discarded(client, name);
        };
      },
      async listen(what, pattern, requests) {
        const [handler, actions] = what === 'EVENT' ? [client.event, EVENT_ACTION] : [client.record, RECORD_ACTION];
        handler.listen(pattern, (name, response) => {
          const stopped = new Inbox<string>(`end of ${name}`);
          response.onStop(stopped.push);
          /** The server has processed an answer once it has answered a later request of the same connection. */
          const known = async (): Promise<void> => void (await client.record.has(fresh('record')));
          const accept = (): Promise<void> => (response.accept(), known());
          const reject = (): Promise<void> => (response.reject(), known());
          requests.push({ name, provider: peer, stopped, accept, reject });
        });
        await client.wire.acknowledged(what, actions.LISTEN, pattern);
        return async () => {
          handler.unlisten(pattern);
          await client.wire.acknowledged(what, actions.UNLISTEN, pattern);
        };
      },
      receives: (matches) => client.wire.receives((message) => matches(message as never)) as never,
      lost: () => inState(client, CONNECTION_STATE.RECONNECTING),
      opened: () => inState(client, CONNECTION_STATE.OPEN),
      close: () => close(client),
    };
    return peer;
  },
};
