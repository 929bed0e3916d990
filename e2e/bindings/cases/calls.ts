// Events, presence, rpc and the connection in components, and the subscriptions that all hooks leave.

import assert from 'node:assert/strict';
import { presenceOf } from '../../../packages/client/src/presence.ts';
import { EventAction, PresenceAction, RecordAction, RpcAction, Topic } from '../../../packages/client/src/protocol.ts';
import { provide } from '../../../packages/client/src/provide.ts';
import { inState } from '../../harness/driver/tidewire.ts';
import { fresh, freshUser } from '../../harness/names.ts';
import { Server } from '../../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, within } from '../../harness/wait.ts';
import type { Component } from '../binding.ts';
import { other, page } from '../stage.ts';
import type { Case } from '../suite.ts';
import { texts } from './records.ts';

interface Numbers {
  a: number;
  b: number;
}

export const CALLS: Record<string, Case> = {
  async 'a component creates one subscription of each kind, and none remains after the unmount'(t, on, server) {
    const bob = await other(t, server.address, { username: freshUser() });
    const [name, chat, add, user] = [fresh('todo'), fresh('chat'), fresh('add'), freshUser()];
    const All: Component = ({ useRecord, useEvent, useProvide, usePresence, useEveryone }) => {
      const record = useRecord(name);
      useEvent(chat, () => {});
      useProvide(add, ({ a, b }: Numbers) => a + b);
      const [one, everyone] = [usePresence(user), useEveryone()];
      return () => texts(record().isReady, one().value, everyone().isReady);
    };
    const { sent, shown, show, client } = page(t, on, server.address);
    show(All);
    await shown.reads('true false true');
    assert.equal(await bob.rpc.call(add, { a: 1, b: 2 }), 3);
    const asked = (): number[][] => [
      sent.about(Topic.Record, name),
      sent.about(Topic.Event, chat),
      sent.about(Topic.Rpc, add).filter((action) => action === RpcAction.Provide || action === RpcAction.Unprovide),
      sent.about(Topic.Presence, user).filter((action) => action !== PresenceAction.Query),
    ];
    const everyone = (which: number): number => sent.messages.filter(({ topic, action }) => topic === Topic.Presence && action === which).length;
    const once = [[RecordAction.SubscribeCreateAndRead], [EventAction.Subscribe], [RpcAction.Provide], [PresenceAction.Subscribe]];
    assert.deepEqual([asked(), everyone(PresenceAction.SubscribeAll)], [once, 1]);
    show();
    const gone = [RecordAction.Unsubscribe, EventAction.Unsubscribe, RpcAction.Unprovide, PresenceAction.Unsubscribe];
    await eventually(() => asked().flat().length === 8 && everyone(PresenceAction.UnsubscribeAll) === 1, 'all subscriptions are removed');
    assert.deepEqual(asked(), once.map((actions, i) => [...actions, gone[i]]));
    assert.deepEqual(client.event.names, []);
  },

  async 'events reach the callback, of the last name, and are published'(t, on, server) {
    const bob = await other(t, server.address);
    const [first, second] = [fresh('chat'), fresh('chat')];
    const name = on.variable<string | undefined>(first);
    const heard = new Inbox<string>('events of the page');
    const answers = new Inbox<unknown>('events of bob');
    let say: ((text: string) => void) | undefined;
    const Chat: Component = ({ useEvent, useConnection }) => {
      say = useEvent(name, heard.push);
      const connection = useConnection();
      return () => connection().state;
    };
    const { shown, show, client, sent } = page(t, on, server.address);
    /** Waits until the page is subscribed: the server answers the requests of a session in order. */
    const subscribed = async (to: string): Promise<void> => {
      await eventually(() => sent.about(Topic.Event, to).length === 1, 'the page subscribes');
      await within(DEADLINE_MS, client.event.subscribe(to, () => {}).ready, 'the page is subscribed');
    };
    show(Chat);
    await shown.reads('open');
    await within(DEADLINE_MS, bob.event.subscribe(second, answers.push).ready, 'subscription');
    await subscribed(first);
    bob.event.emit(first, 'one');
    assert.equal(await heard.next(), 'one');
    name.write(second);
    await subscribed(second);
    bob.event.emit(first, 'lost');
    bob.event.emit(second, 'two');
    assert.equal(await heard.next(), 'two');
    say?.('three');
    assert.equal(await answers.find((text) => text === 'three'), 'three');
    name.write(undefined);
    const refusal = (): string | undefined => {
      try {
        say?.('four');
        return undefined;
      } catch (error) {
        return (error as Error).message;
      }
    };
    await eventually(() => refusal() === 'there is no event to publish: useEvent has no name', 'there is nothing to publish');
  },

  async 'the end of a subscription is reported'(t, on, server) {
    const ends = new Inbox<string>('ends');
    const Chat: Component = ({ useEvent }) => {
      useEvent(fresh('chat'), () => {}, { onEnd: ({ code }) => ends.push(code) });
      return () => '';
    };
    const { show } = page(t, on, server.address, { auth: { username: 'eve' } });
    show(Chat);
    assert.equal(await ends.next(), 'MESSAGE_DENIED');
  },

  async 'presence of one user and of all others is followed'(t, on) {
    // All other users of a shared server would be counted.
    const server = await Server.during(t);
    const [alice, bob] = [freshUser('alice'), freshUser('bob')];
    const watcher = await other(t, server.address, { username: freshUser('carol') });
    const who = (suspense: boolean): Component => ({ usePresence, useEveryone }) => {
      const [one, everyone] = [usePresence(bob, { suspense }), useEveryone({ suspense })];
      return () => texts(one().value, everyone().value?.length);
    };
    const { client, shown, show } = page(t, on, server.address, { auth: { username: alice }, keepMs: 5_000 });
    await within(DEADLINE_MS, client.connect(), 'login');
    await eventually(async () => (await presenceOf(watcher).query([alice]))[alice], 'the user of the page is online');
    show(who(false));
    await shown.reads('false 1');
    const peer = await other(t, server.address, { username: bob });
    await shown.reads('true 2');
    peer.close();
    await shown.reads('false 1');
    const second = page(t, on, server.address, { auth: { username: alice }, keepMs: 5_000 });
    second.show(who(true));
    await second.shown.reads('false 1');
  },

  async 'an rpc shows its progress, its answer and its failure'(t, on, server) {
    const bob = await other(t, server.address);
    const name = fresh('add');
    let answer: (() => void) | undefined;
    const provided = provide(bob.rpc, name, (numbers: unknown) => {
      const { a, b } = numbers as Numbers;
      return new Promise<number>((done) => (answer = () => done(a + b)));
    });
    await within(DEADLINE_MS, provided.ready, 'provider');
    let add: ((argument: Numbers) => Promise<unknown>) | undefined;
    const Sum: Component = ({ useRpc, useConnection }) => {
      const [sum, connection] = [useRpc(name), useConnection()];
      return () => {
        const { value, error, isRunning, call } = sum();
        add = call;
        return texts(isRunning, value, (error as { code?: string } | undefined)?.code, connection().state);
      };
    };
    const { shown, show } = page(t, on, server.address);
    show(Sum);
    await shown.reads('false nothing nothing "open"');
    const sum = add?.({ a: 1, b: 2 });
    await shown.reads('true nothing nothing "open"');
    await eventually(() => answer, 'bob receives the call');
    answer?.();
    await shown.reads('false 3 nothing "open"');
    assert.equal(await sum, 3);
    provided();
    const another = provide(bob.rpc, name, () => 1);
    await within(DEADLINE_MS, another.ready, 'another provider');
    void add?.({ a: 2, b: 2 });
    await shown.reads('false 1 nothing "open"');
    another();
    // The promise is ignored, so the failure is only in the error.
    void add?.({ a: 2, b: 2 });
    await shown.reads('false nothing "NO_RPC_PROVIDER" "open"');
  },

  async 'the connection state is shown, and values return with the connection'(t, on, server) {
    const bob = await other(t, server.address);
    const name = fresh('todo');
    const Todo: Component = ({ useConnection, useRecord }) => {
      const [connection, record] = [useConnection(), useRecord(name)];
      return () => texts(connection().state, connection().error?.code, record().value);
    };
    const { shown, client, show } = page(t, on, server.address);
    show(Todo);
    await shown.reads('"open" nothing {}');
    client.close();
    await shown.reads('"closed" "CLOSED" {}');
    await bob.record.set(name, { title: 'meanwhile' });
    await within(DEADLINE_MS, client.connect(), 'login');
    await shown.reads('"open" nothing {"title":"meanwhile"}');
  },

  async 'a component mounted before the client connects receives its value afterwards'(t, on, server) {
    const bob = await other(t, server.address);
    const [name, chat] = [fresh('todo'), fresh('chat')];
    const heard = new Inbox<string>('events');
    const Todo: Component = ({ useRecord, useEvent }) => {
      const record = useRecord(name);
      useEvent(chat, heard.push);
      return () => texts(record().value, record().error?.code);
    };
    const { shown, client, show, sent } = page(t, on, server.address);
    await within(DEADLINE_MS, client.connect(), 'login');
    client.close();
    await inState(client, 'closed');
    show(Todo);
    await shown.reads('nothing "CLOSED"');
    await within(DEADLINE_MS, client.connect(), 'login');
    await shown.reads('{} nothing');
    await eventually(() => sent.about(Topic.Event, chat).length === 1, 'the page requests the event');
    await within(DEADLINE_MS, client.event.subscribe(chat, () => {}).ready, 'the event is subscribed');
    bob.event.emit(chat, 'hello');
    assert.equal(await heard.next(), 'hello');
  },
};
