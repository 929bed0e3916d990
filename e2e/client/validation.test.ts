// Schemas at one client, and none at the other one, against the real server: what is wrong does not leave, and does not reach the app.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ValidationError, validateWith, type StandardSchema } from '../../packages/client/src/validation.ts';
import { client } from '../harness/driver/tidewire.ts';
import { fresh } from '../harness/names.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, within } from '../harness/wait.ts';

/** A schema without a library: a text below a key. */
function hasText(key: string): StandardSchema {
  const validate = (value: unknown) => {
    const isRight = typeof (value as Record<string, unknown> | null)?.[key] === 'string';
    return isRight ? { value } : { issues: [{ message: 'no text', path: [key] }] };
  };
  return { '~standard': { version: 1, vendor: 'tidewire', validate } };
}

test('what is wrong does not leave a client with schemas, and is told when it comes', async (t) => {
  const server = await Server.during(t);
  const validate = validateWith({ records: { 'record*': hasText('title') }, events: { 'event*': hasText('say') }, rpcs: { 'rpc*': { argument: hasText('ask') } } });
  const told = new Inbox<string | undefined>('what alice is told');
  const alice = client(t, server.address, { validate, errors: ['VALIDATION_FAILED'] });
  alice.onError((error) => told.push(`${error instanceof ValidationError && error.kind} ${error.subject}`));
  const bob = client(t, server.address);
  await within(DEADLINE_MS, Promise.all([alice.connect(), bob.connect()]), 'login');

  const [record, event, rpc] = [fresh('record'), fresh('event'), fresh('rpc')];
  const [hers, his] = [alice.record.open(record), bob.record.open(record)];
  await within(DEADLINE_MS, Promise.all([hers.ready, his.ready]), 'record');
  await assert.rejects(hers.setWithAck({ titel: 'milk' }), { code: 'VALIDATION_FAILED', subject: record });
  await hers.setWithAck({ title: 'milk' });
  assert.equal(his.version, 1, 'only the right one was written');
  await his.setWithAck('title', 1);
  assert.equal(await told.next(), `record ${record}`);
  await assert.rejects(hers.setWithAck('done', true), { code: 'VALIDATION_FAILED' });
  await hers.setWithAck('title', 'bread');
  assert.deepEqual(await bob.record.get(record), { title: 'bread' });

  const [heard, said] = [new Inbox<unknown>('events of alice'), new Inbox<unknown>('events of bob')];
  await within(DEADLINE_MS, Promise.all([alice.event.subscribe(event, heard.push).ready, bob.event.subscribe(event, said.push).ready]), 'subscriptions');
  assert.throws(() => alice.event.emit(event, { sing: 'la' }), { code: 'VALIDATION_FAILED' });
  alice.event.emit(event, { say: 'hello' });
  assert.deepEqual(await said.next(), { say: 'hello' });
  bob.event.emit(event, { sing: 'la' });
  bob.event.emit(event, { say: 'hi' });
  assert.equal(await told.next(), `event ${event}`);
  await heard.find((payload) => (payload as { say?: string }).say === 'hi');
  assert.deepEqual(heard.seen, [{ say: 'hello' }, { say: 'hi' }]);

  await within(DEADLINE_MS, alice.rpc.provide(rpc, ({ ask }: any) => `answer to ${ask}`).ready, 'provider');
  assert.equal(await bob.rpc.call(rpc, { ask: 'why' }), 'answer to why');
  await assert.rejects(bob.rpc.call(rpc, { tell: 'why' }), { code: 'REQUEST_ERROR', data: { code: 'VALIDATION_FAILED', issues: [{ message: 'no text', path: 'ask' }] } });
});
