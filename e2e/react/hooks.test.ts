// The hooks in React 18 and 19 against the real server: the output of components, and the messages that reach the server.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { presenceOf } from '../../packages/client/src/presence.ts';
import { EventAction, PresenceAction, RecordAction, RpcAction, Topic } from '../../packages/client/src/protocol.ts';
import { provide } from '../../packages/client/src/provide.ts';
import { inState } from '../harness/driver/tidewire.ts';
import { fresh, freshUser } from '../harness/names.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, within } from '../harness/wait.ts';
import { Shown, VERSIONS, boundaryOf, other, page as pageOn, stage, type Node, type PageOptions } from './stage.ts';

interface App {
  records: { [name: `todo/${string}`]: { title?: string; done?: boolean; marks?: { [user: string]: number } } };
  events: { [name: `chat/${string}`]: string };
  rpcs: { [name: `add/${string}`]: (argument: { a: number; b: number }) => number };
}

const todo = (): `todo/${string}` => fresh('todo') as `todo/${string}`;
/** The rules: eve may not read records or subscribe to events, and no user may write `todo/kept`. */
const PERMISSIONS = `
presence: { '*': { allow: true } }
rpc: { '*': { provide: true, request: true } }
event: { '*': { publish: true, subscribe: "user.id !== 'eve'", listen: true } }
record:
  '*': { create: true, read: "user.id !== 'eve'", write: true, delete: true, listen: true, notify: true }
  'todo/kept': { create: true, read: true, write: "false", delete: true, listen: true, notify: true }
`;

for (const [version, modules] of Object.entries(VERSIONS)) {
  describe(version, { concurrency: true, timeout: 60_000 }, () => {
    const on = stage(modules);
    const { createElement: h, Suspense, memo } = on.React;
    const { useConnection, useRecord, useEvent, usePresence, useRpc, useProvide } = on.hooks.hooks<App>();
    const Boundary = boundaryOf(on);

    const page = (t: TestContext, server: Server, node: Node, options?: PageOptions) => pageOn<App>(t, on, server.address, node, options);

    const texts = (...parts: unknown[]): Node => parts.map((part) => JSON.stringify(part) ?? 'nothing').join(' ');

    test('a record is shown, edited and followed', async (t) => {
      const server = await Server.during(t);
      const bob = await other<App>(t, server.address);
      const name = todo();
      await bob.record.set(name, { title: 'milk' });
      let edits: { set(path: 'done', value: boolean): void; patch(changes: { title: string }): Promise<void> } | undefined;
      const Todo = (): Node => {
        const { value, isReady, ...rest } = useRecord(name);
        edits = rest;
        return texts(isReady, value);
      };
      const { shown } = page(t, server, h(Todo));
      await shown.reads('true {"title":"milk"}');
      edits?.set('done', true);
      await shown.reads('true {"title":"milk","done":true}');
      await within(DEADLINE_MS, edits?.patch({ title: 'bread' }) ?? Promise.reject(), 'patch');
      assert.deepEqual(await bob.record.get(name), { title: 'bread', done: true });
      await bob.record.set(name, { title: 'eggs' });
      await shown.reads('true {"title":"eggs"}');
    });

    test('a part of a record is rendered again only when it changes', async (t) => {
      const server = await Server.during(t);
      const bob = await other<App>(t, server.address);
      const name = todo();
      await bob.record.set(name, { title: 'milk' });
      let draws = 0;
      const Title = memo((): Node => {
        draws += 1;
        return useRecord(name, { path: 'title' }).value ?? 'nothing';
      });
      const Done = (): Node => texts(useRecord(name, { path: 'done' }).value);
      const { shown } = page(t, server, [h(Title, { key: 1 }), h(Done, { key: 2 })]);
      await shown.reads('milknothing');
      const before = draws;
      const record = bob.record.open(name);
      await record.setWithAck('done', true);
      await shown.reads('milktrue');
      assert.equal(draws, before);
      await record.setWithAck('title', 'bread');
      await shown.reads('breadtrue');
    });

    test('an array path shows and edits a key with a dot, and subscribes once', async (t) => {
      const server = await Server.during(t);
      const bob = await other<App>(t, server.address);
      const name = todo();
      await bob.record.set(name, { title: 'milk', marks: { 'ann@x.org': 1, 'ann@x': 9 } });
      let edit: (() => void) | undefined;
      let draws = 0;
      const Mark = memo((): Node => {
        draws += 1;
        // Each render creates a new array.
        const { value, set } = useRecord(name, { path: ['marks', 'ann@x.org'] });
        edit = () => set(['marks', 'ann@x.org'], 2);
        return texts(value);
      });
      const { shown, sent } = page(t, server, h(Mark));
      await shown.reads('1');
      edit?.();
      await shown.reads('2');
      await eventually(async () => (await bob.record.get(name))?.marks?.['ann@x.org'] === 2, 'the server has the edit');
      assert.deepEqual(await bob.record.get(name), { title: 'milk', marks: { 'ann@x.org': 2, 'ann@x': 9 } });
      const before = draws;
      const record = bob.record.open(name);
      await record.setWithAck('title', 'bread');
      await record.setWithAck(['marks', 'ann@x.org'], 3);
      await shown.reads('3');
      // StrictMode calls a component twice for each render.
      assert.ok(draws - before <= 2, `${draws - before} calls: an edit elsewhere has rendered the component`);
      assert.equal(sent.about(Topic.Record, name).filter((action) => action === RecordAction.SubscribeCreateAndRead).length, 1);
    });

    test('a missing record is an error until another client writes it, also for a suspended component', async (t) => {
      const server = await Server.during(t);
      const bob = await other<App>(t, server.address);
      const name = todo();
      const Todo = ({ suspense }: { suspense: boolean }): Node => {
        const { value, isReady, error } = useRecord(name, { create: false, suspense });
        return texts(isReady, value, error?.code);
      };
      const plain = page(t, server, h(Todo, { suspense: false }));
      const suspended = page(t, server, h(Boundary, null, h(Suspense, { fallback: 'wait' }, h(Todo, { suspense: true }))), { keepMs: 5_000 });
      for (const { shown } of [plain, suspended]) await shown.reads('true nothing "RECORD_NOT_FOUND"');
      assert.equal(await bob.record.get(name), undefined);
      await bob.record.set(name, { title: 'milk' });
      for (const { shown } of [plain, suspended]) await shown.reads('true {"title":"milk"} nothing');
    });

    test('a missing record without the right to read is refused', async (t) => {
      const server = await Server.during(t, { permissions: PERMISSIONS });
      const name = todo();
      const Todo = (): Node => {
        const { error, isReady } = useRecord(name, { create: false });
        return texts(isReady, error?.code);
      };
      const { shown } = page(t, server, h(Todo), { auth: { username: 'eve' } });
      await shown.reads('false "MESSAGE_DENIED"');
    });

    test('an edit that is refused is shown and taken back', async (t) => {
      const server = await Server.during(t, { permissions: PERMISSIONS });
      const seen: Array<string | undefined> = [];
      let edit: (() => void) | undefined;
      const Todo = (): Node => {
        const { value, isReady, set } = useRecord('todo/kept');
        edit = () => set('title', 'mine');
        seen.push(value && JSON.stringify(value));
        return texts(isReady);
      };
      const { shown } = page(t, server, h(Todo), { errors: ['MESSAGE_DENIED'] });
      await shown.reads('true');
      edit?.();
      await eventually(() => seen.includes('{"title":"mine"}'), 'the edit is shown');
      await eventually(() => seen.at(-1) === '{}', 'the edit is taken back');
    });

    test('a double mount creates one subscription of each kind, and none remains after the unmount', async (t) => {
      const server = await Server.during(t);
      const bob = await other<App>(t, server.address, { username: freshUser() });
      const [name, chat, add, user] = [todo(), fresh('chat') as `chat/${string}`, fresh('add') as `add/${string}`, freshUser()];
      let mounts = 0;
      const All = (): Node => {
        on.React.useEffect(() => void (mounts += 1), []);
        const { isReady } = useRecord(name);
        useEvent(chat, () => {});
        useProvide(add, ({ a, b }) => a + b);
        return texts(isReady, usePresence(user).value, usePresence().isReady);
      };
      const { sent, shown, draw, client } = page(t, server, h(All));
      await shown.reads('true false true');
      assert.equal(mounts, 2, `StrictMode mounts ${mounts} times`);
      assert.equal(await bob.rpc.call(add, { a: 1, b: 2 }), 3);
      const asked = (): number[][] => [
        sent.about(Topic.Record, name),
        sent.about(Topic.Event, chat),
        sent.about(Topic.Rpc, add).filter((action) => action === RpcAction.Provide || action === RpcAction.Unprovide),
        sent.about(Topic.Presence, user).filter((action) => action !== PresenceAction.Query),
        sent.messages.filter(({ topic, action }) => topic === Topic.Presence && action === PresenceAction.SubscribeAll).map(({ action }) => action),
      ];
      const once = [[RecordAction.SubscribeCreateAndRead], [EventAction.Subscribe], [RpcAction.Provide], [PresenceAction.Subscribe], [PresenceAction.SubscribeAll]];
      assert.deepEqual(asked(), once);
      draw(null);
      await eventually(() => sent.messages.some(({ action, topic }) => topic === Topic.Presence && action === PresenceAction.UnsubscribeAll), 'all subscriptions are removed');
      await eventually(() => asked()[0]?.length === 2, 'the record is released');
      const gone = [RecordAction.Unsubscribe, EventAction.Unsubscribe, RpcAction.Unprovide, PresenceAction.Unsubscribe];
      assert.deepEqual(asked().slice(0, 4), once.slice(0, 4).map((actions, i) => [...actions, gone[i]]));
      assert.deepEqual(client.event.names, []);
    });

    test('many components share a subscription, and a component that is mounted again in time has its value', async (t) => {
      const server = await Server.during(t);
      const name = todo();
      const first: unknown[] = [];
      const Todo = (): Node => {
        const { isReady } = useRecord(name);
        if (first.length === 0) first.push(isReady);
        return texts(isReady);
      };
      const many = Array.from({ length: 50 }, (_, key) => h(Todo, { key }));
      const { sent, shown, draw } = page(t, server, many, { keepMs: 60_000 });
      await shown.reads('true'.repeat(50));
      draw('empty');
      await shown.reads('empty');
      first.length = 0;
      draw(h(Todo));
      await shown.reads('true');
      assert.deepEqual(first, [true], 'its first render has the value');
      assert.deepEqual(sent.about(Topic.Record, name), [RecordAction.SubscribeCreateAndRead]);
    });

    test('another name shows another record, and none without a name', async (t) => {
      const server = await Server.during(t);
      const bob = await other<App>(t, server.address);
      const [one, two] = [todo(), todo()];
      await bob.record.set(one, { title: 'one' });
      await bob.record.set(two, { title: 'two' });
      const Todo = ({ name }: { name: `todo/${string}` | undefined }): Node => texts(useRecord(name).value);
      const { shown, draw } = page(t, server, h(Todo, { name: one }));
      await shown.reads('{"title":"one"}');
      draw(h(Todo, { name: two }));
      await shown.reads('{"title":"two"}');
      draw(h(Todo, { name: undefined }));
      await shown.reads('nothing');
    });

    test('a suspended component appears with its value, also directly below the root', async (t) => {
      const server = await Server.during(t);
      const bob = await other<App>(t, server.address);
      const name = todo();
      await bob.record.set(name, { title: 'milk' });
      const drawn: unknown[] = [];
      const Todo = (): Node => {
        const { value } = useRecord(name, { suspense: true });
        drawn.push(value.title);
        return value.title;
      };
      const bounded = page(t, server, h(Suspense, { fallback: 'wait' }, h(Todo)), { keepMs: 5_000 });
      await bounded.shown.reads('wait');
      await bounded.shown.reads('milk');
      const bare = page(t, server, h(Todo), { keepMs: 5_000 });
      await bare.shown.reads('milk');
      assert.ok(drawn.every((title) => title === 'milk'));
      for (const { sent } of [bounded, bare]) assert.deepEqual(sent.about(Topic.Record, name), [RecordAction.SubscribeCreateAndRead]);
    });

    test('a record that a suspended component no longer needs is released', async (t) => {
      const server = await Server.during(t);
      const name = todo();
      const Todo = (): Node => texts(useRecord(name, { suspense: true }).value);
      const options = { keepMs: 100, autoConnect: false };
      const { client, sent, shown, draw } = page(t, server, h(Suspense, { fallback: 'wait' }, h(Todo)), options);
      await shown.reads('wait');
      draw('something else');
      await shown.reads('something else');
      assert.deepEqual([client.state, sent.messages], ['closed', []], 'only the app connects');
      await within(DEADLINE_MS, client.connect(), 'login');
      await eventually(() => sent.about(Topic.Record, name).length === 2, 'the record is released');
      assert.deepEqual(sent.about(Topic.Record, name), [RecordAction.SubscribeCreateAndRead, RecordAction.Unsubscribe]);
    });

    test('a refused record is an error, which a suspended component throws', async (t) => {
      const server = await Server.during(t, { permissions: PERMISSIONS });
      const name = todo();
      const auth = { username: 'eve' };
      const Todo = ({ suspense }: { suspense: boolean }): Node => {
        const { error, isReady } = useRecord(name, { suspense });
        return texts(isReady, error?.code);
      };
      const plain = page(t, server, h(Todo, { suspense: false }), { auth });
      await plain.shown.reads('false "MESSAGE_DENIED"');
      const thrown = page(t, server, h(Boundary, null, h(Suspense, { fallback: 'wait' }, h(Todo, { suspense: true }))), { auth, keepMs: 5_000 });
      await thrown.shown.reads('failed: MESSAGE_DENIED');
    });

    test('a deleted record is an error, and a retry creates it again', async (t) => {
      const server = await Server.during(t);
      const bob = await other<App>(t, server.address);
      const name = todo();
      let again: (() => void) | undefined;
      const Todo = (): Node => {
        const { value, error, retry } = useRecord(name, { initial: { title: 'first' } });
        again = retry;
        return texts(value, error?.code);
      };
      const { shown } = page(t, server, h(Todo));
      await shown.reads('{} nothing');
      await bob.record.delete(name);
      await shown.reads('nothing "RECORD_DELETED"');
      again?.();
      await shown.reads('{} nothing');
    });

    test('events reach the last callback, and are published', async (t) => {
      const server = await Server.during(t);
      const bob = await other<App>(t, server.address);
      const name = fresh('chat') as `chat/${string}`;
      const heard = new Inbox<string>('events of the page');
      const answers = new Inbox<string>('events of bob');
      let say: ((text: string) => void) | undefined;
      const Chat = ({ as }: { as: string }): Node => {
        say = useEvent(name, (text) => heard.push(`${as} hears ${text}`));
        return `${as} ${useConnection().state}`;
      };
      const { shown, draw, client, sent } = page(t, server, h(Chat, { as: 'first' }));
      await shown.reads('first open');
      await within(DEADLINE_MS, bob.event.subscribe(name, answers.push).ready, 'subscription');
      await eventually(() => sent.about(Topic.Event, name).length === 1, 'the page subscribes');
      await within(DEADLINE_MS, client.event.subscribe(name, () => {}).ready, 'the page is subscribed');
      bob.event.emit(name, 'one');
      assert.equal(await heard.next(), 'first hears one');
      draw(h(Chat, { as: 'second' }));
      await shown.reads('second open');
      bob.event.emit(name, 'two');
      assert.equal(await heard.next(), 'second hears two');
      say?.('three');
      assert.equal(await answers.find((text) => text === 'three'), 'three');
    });

    test('the end of a subscription is reported', async (t) => {
      const server = await Server.during(t, { permissions: PERMISSIONS });
      const ends = new Inbox<string>('ends');
      const name = fresh('chat') as `chat/${string}`;
      const Chat = (): Node => {
        useEvent(name, () => {}, { onEnd: ({ code }) => ends.push(code) });
        return null;
      };
      page(t, server, h(Chat), { auth: { username: 'eve' } });
      assert.equal(await ends.next(), 'MESSAGE_DENIED');
    });

    test('presence of one user and of all others is followed', async (t) => {
      const server = await Server.during(t);
      const [alice, bob] = [freshUser('alice'), freshUser('bob')];
      const watcher = await other<App>(t, server.address, { username: freshUser('carol') });
      const Who = ({ suspense }: { suspense: boolean }): Node => texts(usePresence(bob, { suspense }).value, usePresence({ suspense }).value?.length);
      const { client, shown, draw } = page(t, server, 'empty', { auth: { username: alice }, keepMs: 5_000 });
      await within(DEADLINE_MS, client.connect(), 'login');
      await eventually(async () => (await presenceOf(watcher).query([alice]))[alice], 'the user of the page is online');
      draw(h(Who, { suspense: false }));
      await shown.reads('false 1');
      const peer = await other<App>(t, server.address, { username: bob });
      await shown.reads('true 2');
      peer.close();
      await shown.reads('false 1');
      const second = page(t, server, h(Suspense, { fallback: 'wait' }, h(Who, { suspense: true })), { auth: { username: alice }, keepMs: 5_000 });
      await second.shown.reads('false 1');
    });

    test('an rpc shows its progress, its answer and its failure', async (t) => {
      const server = await Server.during(t);
      const bob = await other<App>(t, server.address);
      const name = fresh('add') as `add/${string}`;
      let answer: ((sum: number) => void) | undefined;
      const provided = provide(bob.rpc, name, ({ a, b }) => new Promise<number>((done) => (answer = () => done(a + b))));
      await within(DEADLINE_MS, provided.ready, 'provider');
      let add: ((argument: { a: number; b: number }) => Promise<number>) | undefined;
      const Sum = (): Node => {
        const { value, error, isRunning, call } = useRpc(name);
        add = call;
        return texts(isRunning, value, (error as { code?: string } | undefined)?.code, useConnection().state);
      };
      const { shown } = page(t, server, h(Sum));
      await shown.reads('false nothing nothing "open"');
      const sum = add?.({ a: 1, b: 2 });
      await shown.reads('true nothing nothing "open"');
      await eventually(() => answer, 'bob receives the call');
      answer?.(0);
      await shown.reads('false 3 nothing "open"');
      assert.equal(await sum, 3);
      provided();
      await within(DEADLINE_MS, provide(bob.rpc, name, () => 1).ready.then(() => undefined), 'another provider');
      void add?.({ a: 2, b: 2 });
      await shown.reads('false 1 nothing "open"');
    });

    test('an rpc that fails without a handler for its promise ends in its error only', async (t) => {
      const server = await Server.during(t);
      const name = fresh('add') as `add/${string}`;
      let add: ((argument: { a: number; b: number }) => Promise<number>) | undefined;
      const Sum = (): Node => {
        const { error, call } = useRpc(name);
        add = call;
        return texts((error as { code?: string } | undefined)?.code, useConnection().state);
      };
      const { shown } = page(t, server, h(Sum));
      await shown.reads('nothing "open"');
      void add?.({ a: 1, b: 2 });
      await shown.reads('"NO_RPC_PROVIDER" "open"');
    });

    test('the connection state is shown, and values return with the connection', async (t) => {
      const server = await Server.during(t);
      const bob = await other<App>(t, server.address);
      const name = todo();
      const Todo = (): Node => texts(useConnection().state, useRecord(name).value);
      const { shown, client } = page(t, server, h(Todo));
      await shown.reads('"open" {}');
      client.close();
      await shown.reads('"closed" {}');
      await bob.record.set(name, { title: 'meanwhile' });
      await within(DEADLINE_MS, client.connect(), 'login');
      await shown.reads('"open" {"title":"meanwhile"}');
    });

    test('a component mounted before the client connects receives its value afterwards', async (t) => {
      const server = await Server.during(t);
      const bob = await other<App>(t, server.address);
      const [name, chat] = [todo(), fresh('chat') as `chat/${string}`];
      const heard = new Inbox<string>('events');
      const Todo = (): Node => {
        const { value, error } = useRecord(name);
        useEvent(chat, heard.push);
        return texts(value, error?.code);
      };
      const { shown, client, draw, sent } = page(t, server, 'empty');
      await within(DEADLINE_MS, client.connect(), 'login');
      client.close();
      await inState(client, 'closed');
      draw(h(Todo));
      await shown.reads('nothing "CLOSED"');
      await within(DEADLINE_MS, client.connect(), 'login');
      await shown.reads('{} nothing');
      await eventually(() => sent.about(Topic.Event, chat).length === 1, 'the page requests the event');
      await within(DEADLINE_MS, client.event.subscribe(chat, () => {}).ready, 'the event is subscribed');
      bob.event.emit(chat, 'hello');
      assert.equal(await heard.next(), 'hello');
    });

    test('a hook without a provider reports the missing provider', async (t) => {
      const Todo = (): Node => texts(useRecord(todo()).value);
      const shown = new Shown(t, on, h(Boundary, null, h(Todo)));
      await shown.reads('failed: no <TidewireProvider client={...}> is above this component');
    });
  });
}
