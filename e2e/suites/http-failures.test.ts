// The answers to requests that the server can't or must not execute: limits of the server, logins without a decision, and rules that
// fail.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect as connectSocket, type AddressInfo } from 'node:net';
import { describe, test, type TestContext } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import { C, connect } from '../harness/client.ts';
import { batch, command, post, url } from '../harness/http.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { Inbox, eventually } from '../harness/wait.ts';

const JSON_TYPE = { 'content-type': 'application/json' };
const emit = { topic: 'event', action: 'emit', eventName: 'e' };

/** The status, the code of a problem or the text before the option's name, and whether the answer allows a retry. */
async function outcome(asked: Promise<Response> | Response): Promise<[status: number, code: string, retryable: boolean]> {
  const answer = await asked;
  const text = await answer.text();
  const isProblem = answer.headers.get('content-type') === 'application/problem+json';
  const code = isProblem ? (JSON.parse(text) as { code: string }).code : (text.split('(')[0] ?? '').trim();
  return [answer.status, code, answer.headers.has('retry-after')];
}

/** Every kind of request, by its name. */
function requests(server: Server): Record<string, () => Promise<Response>> {
  const record = (method: string, body?: string): Promise<Response> =>
    fetch(url(server, '/records/r'), { method, headers: JSON_TYPE, ...(body !== undefined && { body }) });
  return {
    batch: () => post(server, '/api', { body: [emit] }),
    login: () => post(server, '/api/auth', {}),
    read: () => record('GET'),
    put: () => record('PUT', '{}'),
    remove: () => record('DELETE'),
    stream: () => fetch(url(server, '/sse?event=e')),
  };
}

/** The outcomes of all kinds of request, or only of `kinds`. */
async function outcomes(server: Server, kinds?: string[]): Promise<Record<string, unknown>> {
  const found: Record<string, unknown> = {};
  for (const [kind, ask] of Object.entries(requests(server))) {
    if (kinds === undefined || kinds.includes(kind)) found[kind] = await outcome(ask());
  }
  return found;
}

/** A webhook that accepts requests but never answers them. */
async function silentHook(test: TestContext): Promise<{ port: number; stop: () => Promise<void> }> {
  const hook = createServer(() => undefined);
  hook.listen(0, '127.0.0.1');
  await once(hook, 'listening');
  const stop = async (): Promise<void> => {
    if (!hook.listening) return;
    const closed = once(hook, 'close');
    hook.close();
    hook.closeAllConnections();
    await closed;
  };
  atEnd(test, stop);
  return { port: (hook.address() as AddressInfo).port, stop };
}

function webhook(port: number, more: object): object {
  return { auth: { chain: ['webhook'], webhook: { url: `http://127.0.0.1:${port}/login`, ...more } } };
}

describe('requests that fail', { skip: againstOriginal, concurrency: 4 }, () => {
  test('because rules fail, in every topic', async (t) => {
    const server = await Server.during(t, { denials: true });
    const name = 'broken/x';
    const { result, body } = await batch(server, [
      { ...emit, eventName: name },
      { topic: 'rpc', action: 'make', rpcName: name },
      { topic: 'record', action: 'read', recordName: name },
      { topic: 'record', action: 'head', recordName: name },
      { topic: 'record', action: 'write', recordName: name, data: {} },
      { topic: 'record', action: 'write', recordName: name, path: 'a', data: 1 },
      { topic: 'record', action: 'delete', recordName: name },
      { topic: 'list', action: 'write', listName: name, data: [] },
      { topic: 'presence', action: 'query', names: [name] },
    ]);
    assert.equal(result, 'FAILURE');
    const numbers = { event: 103, rpc: 106, record: 114, presence: 101 } as const;
    for (const [index, topic] of (['event', 'rpc', 'record', 'record', 'record', 'record', 'record', 'record', 'presence'] as const).entries()) {
      assert.deepEqual(body[index], {
        success: false,
        errorTopic: topic,
        errorEvent: numbers[topic],
        error: 'An error occurred: MESSAGE_PERMISSION_ERROR.',
        errorParams: 'MESSAGE_PERMISSION_ERROR',
      });
    }
    const answer = await outcome(fetch(url(server, `/records/${name}`)));
    assert.deepEqual(answer, [403, 'MESSAGE_PERMISSION_ERROR', false]);
  });

  test('because rules deny a list and a presence query', async (t) => {
    const server = await Server.during(t, { denials: true });
    const { body } = await batch(server, [
      { topic: 'list', action: 'read', listName: 'denied/l' },
      { topic: 'list', action: 'write', listName: 'denied/l', data: [] },
      { topic: 'list', action: 'delete', listName: 'denied/l' },
      { topic: 'presence', action: 'query', names: ['denied/u'] },
    ]);
    const told = body.map(({ errorTopic, errorEvent, error, action }) => [errorTopic, errorEvent, error, action]);
    const words = (action: string): string => `Message denied. Action "${action}" is not permitted.`;
    assert.deepEqual(told, [
      ['record', 115, words('READ'), 3],
      ['record', 115, words('CREATEANDUPDATE'), 16],
      ['record', 115, words('DELETE'), 9],
      ['presence', 102, words('QUERY'), 4],
    ]);
  });

  test('because the server already works on the maximum number of requests', async (t) => {
    const server = await Server.during(t, { http: { requests_max: 1 }, rpcAcceptTimeoutMs: 15_000, rpcResponseTimeoutMs: 15_000 });
    const provider = await connect(t, server);
    const calls = new Inbox<() => void>('calls');
    provider.rpc.provide('slow', (_data, response) => calls.push(() => response.send('done' as never)));
    await provider.wire.acknowledged('RPC', C.RPC_ACTION.PROVIDE, 'slow');
    const running = command(server, { topic: 'rpc', action: 'make', rpcName: 'slow' });
    const answer = await calls.next();
    const busy = [503, 'the server has reached its limit of requests', true];
    const problem = [503, 'BUSY', true];
    const kinds = ['batch', 'login', 'read', 'put', 'remove'];
    assert.deepEqual(await outcomes(server, kinds), { batch: busy, login: busy, read: problem, put: problem, remove: problem });
    answer();
    assert.deepEqual(await running, { data: 'done', success: true });
    assert.equal((await post(server, '/api', { body: [emit] })).status, 200);
  });

  test('because the server already holds the maximum of body bytes', async (t) => {
    const server = await Server.during(t, { http: { body_bytes_max: '4KiB', bodies_bytes_max: '4KiB', body_timeout: '60s' } });
    const data = 'x'.repeat(2_000);
    const put = (): Promise<Response> => fetch(url(server, '/records/r'), { method: 'PUT', headers: JSON_TYPE, body: JSON.stringify({ data }) });
    const socket = connectSocket(server.port, '127.0.0.1').setEncoding('utf8');
    t.after(() => socket.destroy());
    const head = ['POST /api HTTP/1.1', 'host: localhost', 'content-type: application/json', 'expect: 100-continue', 'content-length: 4000'];
    socket.write(`${head.join('\r\n')}\r\n\r\n`);
    const [answer] = (await once(socket, 'data')) as [string];
    assert.match(answer, /^HTTP\/1\.1 100 /, 'the server waits for the announced body, which has reserved its room');
    assert.deepEqual(await outcome(put()), [503, 'BUSY', true]);
    const batched = await outcome(post(server, '/api', { body: [{ ...emit, data }] }));
    assert.deepEqual(batched, [503, 'the server has no room for the body', true]);
    socket.destroy();
    await eventually(async () => (await put()).ok, 'there is room again');
  });

  test('because the body is too large, also for a client that reads only after its last byte', async (t) => {
    const server = await Server.during(t, { http: { body_bytes_max: '64KiB' } });
    const part = 'x'.repeat(40 << 10);
    for (const [framing, encoded, end] of [
      [`content-length: ${3 * part.length}`, part, ''],
      ['transfer-encoding: chunked', `${part.length.toString(16)}\r\n${part}\r\n`, '0\r\n\r\n'],
    ] as const) {
      const socket = connectSocket(server.port, '127.0.0.1').setEncoding('utf8');
      const answer = new Promise<string>((done, fail) => {
        let text = '';
        socket.on('data', (read: string) => (text += read)).once('close', () => done(text)).once('error', fail);
      });
      socket.write(`POST /api HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n${framing}\r\n\r\n`);
      for (let count = 0; count < 3; count += 1) {
        socket.write(encoded);
        // By the second part the server has read the head. If it had closed the connection, the third part would fail.
        await server.get('/health');
      }
      if (end !== '') socket.write(end);
      assert.match(await answer, /^HTTP\/1\.1 413 [^]*http\.body_bytes_max/, framing);
    }
  });

  test('because the answer has reached its size limit', async (t) => {
    const server = await Server.during(t, { http: { answer_bytes_max: '64KiB' } });
    const data = { text: 'x'.repeat(20_000) };
    const names = Array.from({ length: 12 }, (_, index) => `large/${index}`);
    const writes = names.map((recordName) => ({ topic: 'record', action: 'write', recordName, data }));
    for (const write of writes) assert.equal((await batch(server, [write])).result, 'SUCCESS');
    const read = (count: number): object[] =>
      Array.from({ length: count }, (_, index) => ({ topic: 'record', action: 'read', recordName: names[index % names.length] }));
    const { result, body } = await batch(server, read(100));
    const isDone = ({ success }: { success?: unknown }): boolean => success === true;
    const done = body.findIndex((answer) => !isDone(answer));
    assert.ok(done > 0 && done < 10, `${done} of the answers had room`);
    assert.deepEqual([body.length, result], [100, 'PARTIAL_SUCCESS']);
    for (const answer of body.slice(0, done)) assert.deepEqual(answer, { success: true, version: 1, data });
    for (const { error, ...failure } of body.slice(done) as Array<Record<string, unknown>>) {
      assert.deepEqual(failure, { success: false, errorTopic: 'connection', errorEvent: 'ANSWER_TOO_LARGE', retryable: true });
      assert.match(String(error), /http\.answer_bytes_max/);
    }
    assert.equal((await batch(server, read(1))).result, 'SUCCESS');
  });

  test('because the webhook does not decide the login in time', async (t) => {
    const { port } = await silentHook(t);
    const server = await Server.during(t, { ...webhook(port, { timeout: '10s' }), http: { request_timeout: '300ms' } });
    const problem = [504, 'TIMEOUT', true];
    const found = await outcomes(server);
    for (const kind of ['read', 'put', 'remove', 'stream']) assert.deepEqual(found[kind], problem, kind);
    for (const kind of ['batch', 'login']) assert.equal((found[kind] as unknown[])[0], 504, kind);
  });

  test('because the webhook is down', async (t) => {
    const { port, stop } = await silentHook(t);
    const server = await Server.during(t, webhook(port, { retry_attempts: 0 }));
    await stop();
    const problem = [503, 'AUTH_UNAVAILABLE', true];
    const found = await outcomes(server);
    for (const kind of ['read', 'put', 'remove', 'stream']) assert.deepEqual(found[kind], problem, kind);
    for (const kind of ['batch', 'login']) {
      const [status, , retryable] = found[kind] as [number, string, boolean];
      assert.deepEqual([status, retryable], [503, true], kind);
    }
  });
});
