// Anonymous records against a fake server that sends exactly the messages of the test: switches at the worst moment, refusals, deletions.

import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { openAnonymous, type AnonymousRecord } from '../src/anonymous.js';
import { Client, type TidewireError } from '../src/index.js';
import { RecordAction, Topic } from '../src/protocol.js';
import { fakeSockets, settle } from './fake-socket.js';

const DENIED = 115;

interface Stage {
  record: AnonymousRecord;
  /** The records that the client has subscribed to and unsubscribed from since the last call. */
  asked(): Promise<string[]>;
  /** The server answers the subscription to a record. */
  reads(name: string, value: unknown, version?: number): void;
  refuses(name: string): void;
  deletes(name: string): void;
  /** The codes of the errors with which records have ended. */
  ends: string[];
  client: Client;
}

async function opened(t: TestContext, name?: string): Promise<Stage> {
  const { webSocket, last } = fakeSockets();
  const client = new Client('server:1', { webSocket });
  t.after(() => client.close());
  client.onError(({ code }) => assert.equal(code, 'CLOSED', 'an edit pending when the client is closed'));
  void client.connect();
  await last().logsIn();
  const ends: string[] = [];
  const record = openAnonymous(client.record, name, { onEnd: ({ code }) => ends.push(code) });
  const about = (name: string, action: number, fields: object): void => last().says({ topic: Topic.Record, action, name, ...fields });
  const ids = new Map<string, string>();
  return {
    record,
    client,
    ends,
    async asked() {
      await settle();
      const kinds = new Map<number, string>([[RecordAction.SubscribeCreateAndRead, '+'], [RecordAction.Unsubscribe, '-']]);
      return last().take().flatMap(({ action, names = [], correlationId = '' }) => {
        names.forEach((one) => ids.set(one, correlationId));
        return kinds.has(action) ? names.map((one) => `${kinds.get(action)}${one}`) : [];
      });
    },
    reads: (name, value, version = 1) => about(name, RecordAction.ReadResponse, { version, data: JSON.stringify(value) }),
    refuses: (name) => about(name, DENIED, { originalAction: RecordAction.SubscribeCreateAndRead, correlationId: ids.get(name), isError: true }),
    deletes: (name) => about(name, RecordAction.Deleted, {}),
  };
}

test('one record is open at a time, and callbacks receive the values of the last one', async (t) => {
  const { record, asked, reads } = await opened(t, 'one');
  const [values, titles, names]: [unknown[], unknown[], unknown[]] = [[], [], []];
  record.subscribe((value) => values.push(value));
  const stop = record.subscribe('title', (title) => titles.push(title));
  record.onName((name) => names.push(name));
  assert.deepEqual(await asked(), ['+one']);
  reads('one', { title: 'first' });
  await record.ready;
  await record.switchTo('one');
  const second = record.switchTo('two');
  assert.deepEqual([record.name, record.value, record.version], ['two', undefined, -1]);
  assert.deepEqual((await asked()).sort(), ['+two', '-one']);
  reads('two', { title: 'second' }, 7);
  await second;
  assert.deepEqual([record.value, record.get('title'), record.version, record.isSaved], [{ title: 'second' }, 'second', 7, true]);
  stop();
  void record.switchTo(undefined);
  await record.ready;
  assert.deepEqual([record.name, record.value, record.version], [undefined, undefined, -1]);
  assert.deepEqual(await asked(), ['-two']);
  assert.deepEqual([values, titles, names], [[{ title: 'first' }, { title: 'second' }], ['first', 'second'], ['two', undefined]]);
});

test('after a second switch before the value arrives, both promises settle with the last name', async (t) => {
  const { record, asked, reads } = await opened(t);
  const values: unknown[] = [];
  record.subscribe((value) => values.push(value));
  let isHere = false;
  const first = record.switchTo('one').then(() => (isHere = true));
  await asked();
  const second = record.switchTo('two');
  await asked();
  reads('one', { title: 'first' });
  await settle();
  assert.equal(isHere, false);
  reads('two', { title: 'second' });
  await Promise.all([first, second]);
  assert.deepEqual(values, [{ title: 'second' }]);
});

test('a refusal applies only to the refused name', async (t) => {
  const { record, asked, refuses, reads, ends } = await opened(t, 'one');
  await asked();
  refuses('one');
  await assert.rejects(record.ready, { code: 'MESSAGE_DENIED', subject: 'one' });
  assert.deepEqual(ends, ['MESSAGE_DENIED']);
  const second = record.switchTo('two');
  await asked();
  reads('two', {});
  await second;
  const again = record.switchTo('one');
  assert.deepEqual((await asked()).sort(), ['+one', '-two']);
  reads('one', { title: 'now' });
  await again;
  assert.deepEqual(record.value, { title: 'now' });
});

test('switching to the name of a deleted record creates it again', async (t) => {
  const { record, asked, reads, deletes, ends } = await opened(t, 'one');
  await asked();
  const values: unknown[] = [];
  record.subscribe((value) => values.push(value));
  reads('one', { title: 'first' });
  deletes('one');
  assert.deepEqual([record.value, ends], [undefined, ['RECORD_DELETED']]);
  const again = record.switchTo('one');
  assert.deepEqual(await asked(), ['+one']);
  reads('one', {});
  await again;
  assert.deepEqual(values, [{ title: 'first' }, undefined, {}]);
});

test('an edit stays with its record, and without a name an edit fails', async (t) => {
  const { record, asked, reads, client } = await opened(t);
  assert.throws(() => record.set({}), { code: 'INVALID_ARGUMENT', message: 'there is no record to edit: switchTo() gives the handle a name' });
  await assert.rejects(record.patch({ title: 'mine' }), { code: 'INVALID_ARGUMENT' });
  await record.saved();
  void record.switchTo('one');
  await asked();
  reads('one', {});
  record.set('title', 'mine');
  assert.deepEqual([record.value, record.isSaved], [{ title: 'mine' }, false]);
  void record.switchTo('two');
  assert.equal(record.isSaved, true);
  assert.deepEqual(client.record.documents.get('one')?.value, { title: 'mine' });
  assert.deepEqual(await asked(), ['+two'], 'the first record stays open until its edit is made');
});

test('a wrong name changes nothing, and a closed handle reports an error', async (t) => {
  const { record, asked, reads } = await opened(t, 'one');
  await asked();
  reads('one', {});
  await record.ready;
  assert.throws(() => void record.switchTo(''), { code: 'INVALID_ARGUMENT' });
  assert.deepEqual([record.name, record.value], ['one', {}]);
  const next = record.switchTo('two');
  record.close();
  record.close();
  const isClosed = (error: TidewireError): boolean => error.code === 'CLOSED';
  await assert.rejects(next, isClosed);
  assert.throws(() => void record.switchTo('one'), isClosed);
  assert.throws(() => record.subscribe(() => {}), isClosed);
  await assert.rejects(record.setWithAck({}), isClosed);
  assert.deepEqual(await asked(), ['-one']);
});
