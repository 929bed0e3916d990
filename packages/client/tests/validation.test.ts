// Validation by schemas: the client does not send invalid values, and reports invalid values that arrive. Some schemas come from a library,
// others are written by hand.

import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import * as v from 'valibot';
import { Client, TidewireError } from '../src/index.js';
import { RecordAction, RpcAction, Topic, type Message } from '../src/protocol.js';
import { provide } from '../src/provide.js';
import { ValidationError, validateWith, type Schemas, type StandardSchema } from '../src/validation.js';
import { fakeSockets, settle, type FakeSocket } from './fake-socket.js';

interface Todo {
  title: string;
  steps?: Array<{ text: string }> | undefined;
}
interface App {
  records: { [name: `todos/${string}`]: Todo; 'any.thing': unknown };
  events: { [name: `chat/${string}`]: { text: string }; free: string };
  rpcs: { add(argument: { a: number; b: number }): number; now(): string };
}

const todo = v.object({ title: v.pipe(v.string(), v.nonEmpty('a title is missing')), steps: v.optional(v.array(v.object({ text: v.string() }))) });
const schemas: Schemas<App> = {
  records: { 'todos/*': todo },
  events: { 'chat/*': v.object({ text: v.string() }) },
  rpcs: { add: { argument: v.object({ a: v.number(), b: v.number() }), result: v.number() } },
};

interface Stage {
  client: Client<App>;
  last(): FakeSocket;
  /** Errors that `onError` received. */
  errors: TidewireError[];
  /** The messages that were sent since the last call. */
  sent(): Promise<Message[]>;
}

async function opened(t: TestContext, validate = validateWith(schemas)): Promise<Stage> {
  const { webSocket, last } = fakeSockets();
  const client = new Client<App>('server:1', { webSocket, validate });
  t.after(() => client.close());
  const errors: TidewireError[] = [];
  client.onError((error) => error.code === 'CLOSED' || errors.push(error));
  void client.connect();
  await last().logsIn();
  const sent = async (): Promise<Message[]> => {
    await settle();
    return last().take();
  };
  return { client, last, errors, sent };
}

/** Checks the error of an invalid value: its kind, and the path of the first issue. */
const wrong = (kind: string, path?: string) => (error: object | undefined): boolean => {
  return error instanceof ValidationError && error instanceof TidewireError && error.code === 'VALIDATION_FAILED' && error.kind === kind && error.issues[0]?.path === path;
};

const read = (name: string, version: number, value: unknown): Message => {
  return { topic: Topic.Record, action: RecordAction.ReadResponse, name, version, data: JSON.stringify(value) };
};

test('an invalid record is not written, and a valid one is', async (t) => {
  const { client, last, errors, sent } = await opened(t);
  const record = client.record.open('todos/1');
  last().says(read('todos/1', 1, { title: 'milk' }));
  await sent();
  await assert.rejects(record.setWithAck('title', ''), wrong('record', 'title'));
  await assert.rejects(record.patch({ title: 'bread', 'steps[0].text': 1 as never }), wrong('record', 'steps[0].text'));
  await assert.rejects(record.update(() => ({ titel: 'bread' }) as never), wrong('record', 'title'));
  await assert.rejects(client.record.set('todos/2', {} as never), wrong('record', 'title'));
  record.set('title', '');
  await settle();
  assert.equal(errors.splice(0).filter(wrong('record', 'title')).length, 1);
  assert.deepEqual([record.value, await sent()], [{ title: 'milk' }, []]);
  record.set('steps[0].text', 'boil');
  const [write] = await sent();
  assert.equal(write?.action, RecordAction.Patch);
  const any = client.record.set('any.thing', { title: 1 });
  assert.equal((await sent()).length, 1, 'a name without a schema is not validated');
  void any.catch(() => undefined);
});

test('invalid edits made before the record arrives are refused then, and valid ones are written', async (t) => {
  const { client, last, errors, sent } = await opened(t);
  const record = client.record.open('todos/1');
  const bad = record.setWithAck('title', '');
  const good = record.setWithAck('steps', [{ text: 'boil' }]);
  await sent();
  last().says(read('todos/1', 1, { title: 'milk' }));
  await assert.rejects(bad, wrong('record', 'title'));
  const [write, ...more] = await sent();
  assert.deepEqual([write?.path, more], ['steps', []]);
  last().says({ topic: Topic.Record, action: RecordAction.WriteAcknowledgement, name: 'todos/1', correlationId: write?.correlationId as string });
  await good;
  assert.deepEqual([record.value, record.isSaved, errors], [{ title: 'milk', steps: [{ text: 'boil' }] }, true, []]);
});

test('a value merged with a write of another client is validated again', async (t) => {
  const noMore = v.check(({ a = 0, b = 0 }: { a?: number | undefined; b?: number | undefined }) => a + b <= 10, 'more than 10');
  const sums = v.pipe(v.object({ a: v.optional(v.number()), b: v.optional(v.number()) }), noMore);
  const { client, last, sent } = await opened(t, validateWith({ records: { 'any.thing': sums } }));
  const record = client.record.open('any.thing');
  last().says(read('any.thing', 1, { a: 1 }));
  await sent();
  const edit = record.setWithAck('b', 9);
  const [write] = await sent();
  last().says({ topic: Topic.Record, action: RecordAction.VersionExists, name: 'any.thing', correlationId: write?.correlationId as string, version: 2, data: '{"a":2}' });
  await assert.rejects(edit, wrong('record', undefined));
  assert.deepEqual([record.value, record.isSaved, await sent()], [{ a: 2 }, true, []]);
});

test('an invalid record that arrives is reported and shown as the server has it; a new record is not validated', async (t) => {
  const { client, last, errors } = await opened(t);
  const record = client.record.open('todos/1');
  last().says(read('todos/1', 0, {}));
  assert.equal(errors.length, 0);
  last().says({ topic: Topic.Record, action: RecordAction.Update, name: 'todos/1', version: 1, data: '{"title":1}' });
  assert.deepEqual(errors.map(wrong('record', 'title')), [true]);
  assert.deepEqual([record.value, errors[0]?.subject], [{ title: 1 }, 'todos/1']);
});

test('reading an invalid record once is an error', async (t) => {
  const { client, last, sent } = await opened(t);
  const reading = client.record.get('todos/1');
  const [question] = await sent();
  last().says({ topic: Topic.Record, action: RecordAction.Fetched, name: 'todos/1', correlationId: question?.correlationId as string, version: 1, data: '{}' });
  await assert.rejects(reading, wrong('record', 'title'));
});

test('an invalid event is not sent, and one that arrives does not reach callbacks', async (t) => {
  const { client, last, errors, sent } = await opened(t);
  const heard: unknown[] = [];
  client.event.subscribe('chat/1', (payload) => heard.push(payload));
  client.event.subscribe('free', (payload) => heard.push(payload));
  await sent();
  assert.throws(() => client.event.emit('chat/1', { text: 1 } as never), wrong('event', 'text'));
  assert.deepEqual([await sent(), heard], [[], []]);
  const event = (name: string, data: string): Message => ({ topic: Topic.Event, action: 2, name, data });
  last().says(event('chat/1', '{"text":1}'), event('chat/1', '{"text":"hello"}'), event('free', '1'));
  assert.deepEqual([heard, errors.length, wrong('event', 'text')(errors[0])], [[{ text: 'hello' }, 1], 1, true]);
});

test('an rpc is not called with an invalid argument, and an invalid result fails the call', async (t) => {
  const { client, last, sent } = await opened(t);
  await assert.rejects(client.rpc.call('add', { a: 1 } as never), wrong('argument', 'b'));
  assert.deepEqual(await sent(), []);
  const call = client.rpc.call('add', { a: 1, b: 2 });
  const [request] = await sent();
  last().says({ topic: Topic.Rpc, action: RpcAction.Response, name: 'add', correlationId: request?.correlationId as string, data: '"3"' });
  await assert.rejects(call, wrong('result', undefined));
});

test('a provider is not called with an invalid argument, and its invalid result is its own failure', async (t) => {
  const { client, last, errors, sent } = await opened(t);
  const asked: unknown[] = [];
  provide(client.rpc, 'add', (argument) => (asked.push(argument), argument.a === 0 ? ('none' as never) : argument.a + argument.b));
  await sent();
  const answers = async (data: string): Promise<unknown> => {
    last().says({ topic: Topic.Rpc, action: RpcAction.Request, name: 'add', correlationId: data, data });
    const answer = (await sent()).find(({ action }) => action !== RpcAction.Accept);
    return [answer?.action, JSON.parse(answer?.data ?? 'null')];
  };
  const [action, told] = (await answers('{"a":1}')) as [number, { code: string; issues: Array<{ path: string }> }];
  assert.deepEqual([action, told.code, told.issues[0]?.path, asked], [RpcAction.RequestError, 'VALIDATION_FAILED', 'b', []]);
  assert.deepEqual(await answers('{"a":1,"b":2}'), [RpcAction.Response, 3]);
  assert.deepEqual(await answers('{"a":0,"b":2}'), [RpcAction.RequestError, 'PROVIDER_FAILED']);
  assert.equal(errors.length, 1);
});

const byHand = (validate: (value: unknown) => unknown): StandardSchema => ({ '~standard': { version: 1, vendor: 'test', validate } }) as StandardSchema;

test('names match patterns in their order, with all other characters literally', () => {
  const refuses = (message: string): StandardSchema => byHand(() => ({ issues: [{ message }] }));
  const validate = validateWith({ records: { 'a.b/*': refuses('first'), 'a.b/c': refuses('second'), '*/end': refuses('third'), 'x[*]': refuses('fourth') } });
  const found = (name: string): string | undefined => (validate('record', name, 1) as ValidationError | undefined)?.issues[0]?.message;
  assert.deepEqual(['a.b/c', 'a.b/', 'a.b/x\ny/end', 'axb/c', 'q/end', 'x[1]', 'x1', 'end'].map(found), ['first', 'first', 'first', undefined, 'third', 'fourth', undefined, undefined]);
  assert.equal(validate('event', 'a.b/c', 1), undefined);
});

test('paths are reported in the format of the client, and a schema that fails or is asynchronous is reported', async () => {
  const said = (validate: (value: unknown) => unknown): string => {
    const error = validateWith({ events: { e: byHand(validate) } })('event', 'e', 1);
    assert.ok(error instanceof ValidationError);
    return error.message;
  };
  assert.equal(said(() => ({ issues: [{ message: 'no', path: ['a', { key: 0 }, 'b'] }] })), 'the event "e" does not match its schema: a[0].b: no');
  assert.equal(said(() => ({ issues: [{ message: 'no' }, { message: 'nor this' }] })), 'the event "e" does not match its schema: no, and 1 more');
  assert.equal(said(() => ({ issues: [] })), 'the event "e" does not match its schema');
  assert.equal(
    said(() => {
      throw new Error('broken');
    }),
    'the event "e" does not match its schema: its schema failed: Error: broken',
  );
  const text = 'the event "e" does not match its schema: its schema gives a promise; only schemas that answer at once can be used';
  assert.equal(said(() => Promise.reject(new Error('later'))), text);
  assert.equal(validateWith({ events: { e: byHand((value) => ({ value })) } })('event', 'e', 1), undefined);
});

export function types(): void {
  validateWith<App>({ records: { 'todos/*': todo }, rpcs: { add: { result: v.number() } } });
  // @ts-expect-error no record has this name
  validateWith<App>({ records: { 'todo/*': todo } });
  // @ts-expect-error the schema has another type
  validateWith<App>({ events: { 'chat/*': todo } });
  // @ts-expect-error the result is a number
  validateWith<App>({ rpcs: { add: { result: v.string() } } });
  // @ts-expect-error an rpc has two schemas
  validateWith<App>({ rpcs: { add: v.number() } });
}
