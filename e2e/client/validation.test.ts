// One client with schemas and one without, against the real server: invalid values do not leave the client, and do not reach the app.
// With a planted fault in the client the test fails.

import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { Client } from '../../packages/client/src/index.ts';
import { provide } from '../../packages/client/src/provide.ts';
import { ValidationError, validateWith, type StandardSchema } from '../../packages/client/src/validation.ts';
import { client } from '../harness/driver/tidewire.ts';
import { fresh } from '../harness/names.ts';
import { isFound, planted, type Fault } from '../harness/planted.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, within } from '../harness/wait.ts';

/** A schema without a library: a text under a key. */
function hasText(key: string): StandardSchema {
  const validate = (value: unknown) => {
    const isRight = typeof (value as Record<string, unknown> | null)?.[key] === 'string';
    return isRight ? { value } : { issues: [{ message: 'no text', path: [key] }] };
  };
  return { '~standard': { version: 1, vendor: 'tidewire', validate } };
}

/** The parts of the client that are tested. */
interface Tested {
  Client: typeof Client;
  provide: typeof provide;
}

/** Checks all properties of a client with schemas. */
async function holds(t: TestContext, server: Server, tested: Tested): Promise<void> {
  const validate = validateWith({ records: { 'record*': hasText('title') }, events: { 'event*': hasText('say') }, rpcs: { 'rpc*': { argument: hasText('ask') } } });
  const told = new Inbox<string | undefined>('errors of alice');
  const alice = client(t, server.address, { of: tested.Client, validate, errors: ['VALIDATION_FAILED'] });
  alice.onError((error) => told.push(`${error instanceof ValidationError && error.kind} ${error.subject}`));
  const bob = client(t, server.address);
  await within(DEADLINE_MS, Promise.all([alice.connect(), bob.connect()]), 'login');

  const [record, event, rpc] = [fresh('record'), fresh('event'), fresh('rpc')];
  const [hers, his] = [alice.record.open(record), bob.record.open(record)];
  await within(DEADLINE_MS, Promise.all([hers.ready, his.ready]), 'record');
  await assert.rejects(hers.setWithAck({ titel: 'milk' }), { code: 'VALIDATION_FAILED', subject: record });
  await hers.setWithAck({ title: 'milk' });
  await eventually(() => (his.value as { title?: unknown }).title === 'milk', 'the write arrives');
  assert.equal(his.version, 1, 'only the valid value was written');
  await his.setWithAck('title', 1);
  await eventually(() => (hers.value as { title?: unknown }).title === 1, 'an invalid value is shown as the server has it');
  assert.deepEqual(told.seen, [`record ${record}`], 'an invalid record is reported');
  await assert.rejects(hers.setWithAck('done', true), { code: 'VALIDATION_FAILED' });
  await hers.setWithAck('title', 'bread');
  assert.deepEqual(await bob.record.get(record), { title: 'bread' });

  const [heard, said] = [new Inbox<unknown>('events of alice'), new Inbox<unknown>('events of bob')];
  await within(DEADLINE_MS, Promise.all([alice.event.subscribe(event, heard.push).ready, bob.event.subscribe(event, said.push).ready]), 'subscriptions');
  assert.throws(() => alice.event.emit(event, { sing: 'la' }), { code: 'VALIDATION_FAILED' }, 'an invalid event does not leave');
  alice.event.emit(event, { say: 'hello' });
  assert.deepEqual(await said.next(), { say: 'hello' });
  bob.event.emit(event, { sing: 'la' });
  bob.event.emit(event, { say: 'hi' });
  await heard.find((payload) => (payload as { say?: string }).say === 'hi');
  assert.deepEqual(heard.seen, [{ say: 'hello' }, { say: 'hi' }], 'an invalid event is not delivered');
  assert.deepEqual(told.seen, [`record ${record}`, `event ${event}`]);

  await within(DEADLINE_MS, tested.provide(alice.rpc, rpc, ({ ask }: any) => `answer to ${ask}`).ready, 'provider');
  assert.equal(await bob.rpc.call(rpc, { ask: 'why' }), 'answer to why');
  const refusal = { code: 'REQUEST_ERROR', data: { code: 'VALIDATION_FAILED', issues: [{ message: 'no text', path: 'ask' }] } };
  await assert.rejects(bob.rpc.call(rpc, { tell: 'why' }), refusal, 'an invalid argument is not passed to the provider');
}

test('invalid values do not leave a client with schemas, and are reported when they arrive', async (t) => {
  const server = await Server.during(t);
  await t.test('with the unmodified client', (inner) => holds(inner, server, { Client, provide }));

  const faults: Array<[what: string, fault: Fault, reason: RegExp]> = [
    [
      'sent values are not validated',
      { file: 'packages/client/src/connection.ts', text: 'this.validate?.(kind, name, valueOf(data))', instead: 'undefined' },
      /an invalid event does not leave/,
    ],
    [
      'received records are not validated',
      { file: 'packages/client/src/record.ts', text: "version > 0 && this.connection.validate?.('record', this.name, value)", instead: 'undefined' },
      /an invalid record is reported/,
    ],
    [
      'received events are not validated',
      { file: 'packages/client/src/event.ts', text: "this.connection.validate?.('event', name, valueOf(bytes ?? data))", instead: 'undefined' },
      /an invalid event is not delivered/,
    ],
    [
      'arguments of calls are not validated',
      { file: 'packages/client/src/provide.ts', text: "this.#connection.validate?.('argument', name, valueOf(data))", instead: 'undefined' },
      /an invalid argument is not passed/,
    ],
  ];
  for (const [what, fault, reason] of faults) {
    await t.test(`planted fault: ${what}`, async (inner) => {
      await import(await planted(inner, 'packages/client/src/page-all.ts', fault, 'esm'));
      const { Tidewire: broken } = globalThis as unknown as { Tidewire: Tested };
      await isFound(holds(inner, server, broken), reason);
    });
  }
});
