// What only React has, in React 18 and 19: two mounts in StrictMode, suspension by a thrown promise, and callbacks of the last render.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { EventAction, PresenceAction, RecordAction, RpcAction, Topic } from '../../packages/client/src/protocol.ts';
import { fresh, freshUser } from '../harness/names.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, within } from '../harness/wait.ts';
import { VERSIONS, pageOf, stage, type Node } from './react-stage.ts';
import { other, type PageOptions } from './stage.ts';

interface App {
  records: { [name: `todo/${string}`]: { title?: string } };
  events: { [name: `chat/${string}`]: string };
  rpcs: { [name: `add/${string}`]: (argument: { a: number; b: number }) => number };
}

const todo = (): `todo/${string}` => fresh('todo') as `todo/${string}`;

for (const [version, modules] of Object.entries(VERSIONS)) {
  const on = await stage(modules);
  describe(version, { concurrency: true, timeout: 60_000 }, () => {
    const { createElement: h, Suspense } = on.React;
    const { useConnection, useRecord, useEvent, usePresence, useProvide } = on.hooks.hooks<App>();
    const page = (t: TestContext, server: Server, node: Node, options?: PageOptions) => pageOf<App>(t, on, server.address, node, options);

    const texts = (...parts: unknown[]): Node => parts.map((part) => JSON.stringify(part) ?? 'nothing').join(' ');

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
      // On a busy machine the value may replace the fallback before the test looks.
      let waits = 0;
      const Wait = (): Node => {
        waits += 1;
        return 'wait';
      };
      const bounded = page(t, server, h(Suspense, { fallback: h(Wait) }, h(Todo)), { keepMs: 5_000 });
      await bounded.shown.reads('milk');
      assert.ok(waits > 0, 'the fallback was shown');
      const bare = page(t, server, h(Todo), { keepMs: 5_000 });
      await bare.shown.reads('milk');
      assert.ok(drawn.every((title) => title === 'milk'));
      for (const { sent } of [bounded, bare]) assert.deepEqual(sent.about(Topic.Record, name), [RecordAction.SubscribeCreateAndRead]);
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
  });
}
