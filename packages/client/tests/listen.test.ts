// Listening against a fake server that sends exactly the messages of the test, in orders that are too rare with a real server.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Client } from '../src/index.js';
import { listen } from '../src/listen.js';
import { ConnectionAction, Topic, type Message } from '../src/protocol.js';
import { opened, settle } from './fake-socket.js';

/** Both topics have the same messages, with different numbers. */
const KINDS = [
  { what: 'events', topic: Topic.Event, of: (client: Client) => client.event, numbers: [5, 6, 7, 8, 11, 12, 100, 101, 104] },
  { what: 'records', topic: Topic.Record, of: (client: Client) => client.record, numbers: [27, 28, 29, 30, 33, 34, 110, 111, 115] },
] as const;

for (const { what, topic, of, numbers } of KINDS) {
  const [LISTEN, UNLISTEN, ACCEPT, REJECT, FOUND, REMOVED, INVALID, TOO_LATE, DENIED] = numbers;
  const message = (action: number, fields: Partial<Message> = {}): Message => ({ topic, action, name: 'p', ...fields });
  const found = (name: string): Message => message(FOUND, { subscription: name });
  const removed = (name: string): Message => message(REMOVED, { subscription: name });
  const part = (client: Client): Client['event'] => of(client) as Client['event'];

  test(`${what}: a name is accepted, or declined for the next provider, and ended when no session holds it`, async (t) => {
    const { client, last, errors } = await opened(t);
    const log: string[] = [];
    const stop = listen(part(client), 'p', (name) => name === 'mine' && (() => log.push(`${name} ended`)));
    assert.deepEqual(last().take(), [message(LISTEN)]);
    last().says(message(LISTEN, { isAck: true }));
    await stop.ready;
    last().says(found('mine'), found('other'));
    await settle();
    assert.deepEqual(last().take(), [message(ACCEPT, { subscription: 'mine' }), message(REJECT, { subscription: 'other' })]);
    last().says(removed('other'), removed('mine'), removed('mine'));
    assert.deepEqual([log, errors], [['mine ended'], []]);
  });

  test(`${what}: serving ends with the listening, which may begin again`, async (t) => {
    const { client, last } = await opened(t);
    const log: string[] = [];
    const stop = listen(part(client), 'p', (name) => () => log.push(name));
    assert.throws(() => listen(part(client), 'p', () => false), { code: 'INVALID_ARGUMENT' });
    last().says(found('a'), found('b'));
    await settle();
    last().take();
    stop();
    stop();
    assert.deepEqual([log, last().take()], [['a', 'b'], [message(UNLISTEN)]]);
    last().says(message(UNLISTEN, { isAck: true }));
    listen(part(client), 'p', () => false);
    assert.deepEqual(last().take(), [message(LISTEN)]);
  });

  test(`${what}: a loss ends all serving, and the pattern is requested again only in the next session`, async (t) => {
    const { client, last, returns } = await opened(t);
    const log: string[] = [];
    let accept: (end: () => void) => void = () => {};
    listen(part(client), 'p', (name) => (name === 'slow' ? new Promise((done) => (accept = done)) : () => log.push(name)));
    last().says(found('quick'), found('slow'));
    await settle();
    await returns();
    assert.deepEqual(log, ['quick']);
    assert.deepEqual(last().take(), [message(LISTEN)]);
    // The answer for a request of the previous session is not sent, and the serving that it started ends at once.
    accept(() => log.push('slow'));
    await settle();
    assert.deepEqual([log, last().take()], [['quick', 'slow'], []]);
    client.check();
    last().pongs();
    await settle();
    assert.deepEqual(last().take(), [{ topic: Topic.Connection, action: ConnectionAction.Ping }]);
  });

  test(`${what}: an answer that is too late, or for a name without sessions, makes no provider`, async (t) => {
    const { client, last } = await opened(t);
    const log: string[] = [];
    const accept = new Map<string, (end: () => void) => void>();
    listen(part(client), 'p', (name) => new Promise((done) => accept.set(name, done)));
    last().says(found('late'), found('unwanted'));
    last().says({ topic, action: TOO_LATE, subscription: 'late' }, removed('unwanted'));
    last().take();
    for (const [name, done] of accept) done(() => log.push(name));
    await settle();
    assert.deepEqual([log, last().take()], [['late', 'unwanted'], []]);
  });

  test(`${what}: a function that fails declines, and the app receives the error`, async (t) => {
    const { client, last, errors } = await opened(t);
    listen(part(client), 'p', () => {
      throw new Error('no data');
    });
    last().says(found('a'));
    await settle();
    assert.equal(last().take().at(-1)?.action, REJECT);
    assert.deepEqual(errors.map(({ code, subject, message: text }) => [code, subject, /no data/.test(text)]), [['CALLBACK_FAILED', 'a', true]]);
  });

  for (const [why, refusal, code] of [
    ['no expression', message(INVALID), 'INVALID_LISTEN_REGEX'],
    ['not allowed', message(DENIED, { isError: true, originalAction: LISTEN }), 'MESSAGE_DENIED'],
  ] as const) {
    test(`${what}: a pattern that is ${why} is refused, and not requested again`, async (t) => {
      const { client, last, errors, returns } = await opened(t);
      const ends: string[] = [];
      const served: string[] = [];
      const stop = listen(part(client), 'p', (name) => () => served.push(name), { onEnd: ({ code: end }) => ends.push(end) });
      last().says(found('a'));
      await settle();
      last().says(refusal);
      await assert.rejects(stop.ready, { code, subject: 'p' });
      assert.deepEqual([ends, errors, served], [[code], [], ['a']]);
      await returns();
      assert.deepEqual(last().take(), []);
      listen(part(client), 'p', () => false);
      last().says(refusal);
      assert.deepEqual(errors.map((error) => error.code), [code]);
    });
  }

  test(`${what}: closing the client rejects waiting promises`, async (t) => {
    const { client } = await opened(t);
    const { ready } = listen(part(client), 'p', () => false);
    client.close();
    await assert.rejects(ready, { code: 'CLOSED' });
    assert.throws(() => listen(part(client), 'q', () => false), { code: 'CLOSED' });
    assert.throws(() => listen(part(new Client('server:1')), '', () => false), { code: 'INVALID_ARGUMENT' });
    assert.throws(() => listen(part(new Client('server:1')), 'p', undefined as never), { code: 'INVALID_ARGUMENT' });
  });
}

test('a record knows whether it has a provider, until the connection is lost', async (t) => {
  const { client, last, returns } = await opened(t);
  const record = client.record.open('a');
  const changes: boolean[] = [];
  const stop = record.onProvider((hasProvider) => changes.push(hasProvider));
  await settle();
  const note = (action: number): Message => ({ topic: Topic.Record, action, name: 'a' });
  last().says(note(31), note(31));
  assert.deepEqual([record.hasProvider, changes], [true, [true]]);
  last().says(note(32), note(31));
  assert.deepEqual(changes, [true, false, true]);
  await returns();
  assert.deepEqual([record.hasProvider, changes], [false, [true, false, true, false]]);
  stop();
  last().says(note(31));
  assert.deepEqual([record.hasProvider, changes.length], [true, 4]);
});
