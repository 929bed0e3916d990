// Server-sent events: events and records as they change, reconnects with an id, tickets, refusals, and slow readers.

import assert from 'node:assert/strict';
import { connect as connectSocket } from 'node:net';
import { after, before, describe, test, type TestContext } from 'node:test';
import { admin, startWithAdmin, tokenOf } from '../harness/admin.ts';
import { command, post, url } from '../harness/http.ts';
import { openStream, type EventStream } from '../harness/event-stream.ts';
import { fresh } from '../harness/names.ts';
import { Server } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { eventually } from '../harness/wait.ts';

const write = (recordName: string, data: unknown, more: object = {}): object => {
  return { topic: 'record', action: 'write', recordName, data, ...more };
};
const emit = (eventName: string, data?: unknown): object => ({ topic: 'event', action: 'emit', eventName, data });

describe('server-sent events', { concurrency: 8 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start({ denials: true });
  });
  after(() => server.dispose());

  const open = (t: TestContext, parameters: Record<string, string[]>, headers = {}): Promise<EventStream> => {
    const pairs = Object.entries(parameters).flatMap(([key, values]) => values.map((value): [string, string] => [key, value]));
    return openStream(t, url(server, `/sse?${new URLSearchParams(pairs)}`), headers);
  };
  /** A stream with active subscriptions: it has received its record, and the server subscribes to events before it reads records. */
  const settled = async (t: TestContext, events: string[]): Promise<EventStream> => {
    const marker = fresh('marker');
    const stream = await open(t, { event: events, record: [marker] });
    assert.equal((await stream.pieces.next()).event, 'deleted');
    return stream;
  };

  test('no proxy may cache or transform a stream', async (t) => {
    const { answer, comments } = await open(t, { event: ['e'] });
    assert.equal(answer.status, 200);
    assert.equal(answer.headers.get('content-type'), 'text/event-stream');
    assert.equal(answer.headers.get('cache-control'), 'no-store, no-transform');
    assert.equal(answer.headers.get('x-accel-buffering'), 'no');
    assert.equal(await comments.next(), 'connected');
  });

  test('events arrive with their names and data', async (t) => {
    const [one, other] = [fresh('event'), fresh('ä&b c')];
    const { pieces } = await settled(t, [one, other]);
    await command(server, emit(one, { line: 'a\nb', deep: [1] }));
    assert.deepEqual(await pieces.next(), { event: 'event', data: { name: one, data: { line: 'a\nb', deep: [1] } } });
    await command(server, emit(other));
    assert.deepEqual(await pieces.next(), { event: 'event', data: { name: other } });
  });

  test('a record arrives as a whole, and again with each change', async (t) => {
    const name = fresh('record');
    await command(server, write(name, { a: 1 }));
    const { pieces } = await open(t, { record: [name] });
    const first = await pieces.next();
    assert.deepEqual([first.event, first.data], ['record', { name, version: 1, data: { a: 1 } }]);
    assert.ok(first.id);
    await command(server, write(name, 2, { path: 'b' }));
    assert.deepEqual((await pieces.next()).data, { name, version: 2, data: { a: 1, b: 2 } });
    await command(server, write(name, [1]));
    assert.deepEqual((await pieces.next()).data, { name, version: 3, data: [1] });
    await command(server, { topic: 'record', action: 'delete', recordName: name });
    const gone = await pieces.next();
    assert.deepEqual([gone.event, gone.data], ['deleted', { name }]);
    await command(server, write(name, { again: true }));
    assert.deepEqual((await pieces.next()).data, { name, version: 1, data: { again: true } });
  });

  test('a stream that reconnects receives only the changed records', async (t) => {
    const [same, changed] = [fresh('record'), fresh('record')];
    await command(server, write(same, { a: 1 }));
    await command(server, write(changed, { b: 1 }));
    const before = await open(t, { record: [same, changed] });
    const last = [await before.pieces.next(), await before.pieces.next()][1]?.id ?? '';
    before.close();
    await command(server, write(changed, { b: 2 }));
    const again = await open(t, { record: [same, changed] }, { 'last-event-id': last });
    assert.deepEqual((await again.pieces.next()).data, { name: changed, version: 2, data: { b: 2 } });
    // Web pages can't set the header, so they use the parameter.
    const page = await open(t, { record: [same, changed], last_event_id: [last] });
    assert.deepEqual((await page.pieces.next()).data, { name: changed, version: 2, data: { b: 2 } });
    await command(server, write(same, { a: 2 }));
    assert.deepEqual((await again.pieces.next()).data, { name: same, version: 2, data: { a: 2 } });
    const foreign = await open(t, { record: [same] }, { 'last-event-id': 'whatever' });
    assert.deepEqual((await foreign.pieces.next()).data, { name: same, version: 2, data: { a: 2 } });
  });

  test('the stream reports denied names and continues with the others', async (t) => {
    const [free, denied] = [fresh('event'), fresh('denied/event')];
    const [record, hidden] = [fresh('record'), fresh('noread/record')];
    await command(server, write(record, { a: 1 }));
    const { pieces } = await open(t, { event: [free, denied], record: [hidden, record] });
    const seen = [await pieces.next(), await pieces.next(), await pieces.next()];
    const refused = seen.filter(({ event }) => event === 'refused').map(({ data }) => [data.topic, data.name, data.code]);
    assert.deepEqual(refused.sort(), [
      ['event', denied, 'MESSAGE_DENIED'],
      ['record', hidden, 'MESSAGE_DENIED'],
    ]);
    assert.ok(seen.some(({ event, data }) => event === 'record' && data.name === record));
    await command(server, emit(free, 1));
    assert.deepEqual((await pieces.next()).data, { name: free, data: 1 });
  });

  test('wrong requests are refused with a code', async (t) => {
    const status = async (path: string): Promise<number> => (await openStream(t, url(server, path))).answer.status;
    const many = Array.from({ length: 101 }, (_, n) => `event=${n}`).join('&');
    for (const [query, code, named] of [
      ['', 'INVALID_QUERY', 'event, pattern and record'],
      ['?event=', 'INVALID_NAME', 'limits.name_bytes_max'],
      ['?event=%', 'INVALID_QUERY', 'percent-encoded'],
      [`?event=${'x'.repeat(1025)}`, 'INVALID_NAME', 'limits.name_bytes_max'],
      [`?${many}`, 'INVALID_QUERY', 'more than 100 times'],
    ] as const) {
      const { answer } = await openStream(t, url(server, `/sse${query}`));
      const problem = (await answer.json()) as { code: string; title: string };
      assert.deepEqual([answer.status, problem.code], [400, code], query);
      assert.ok(problem.title.includes(named), problem.title);
    }
    assert.equal(await status('/sse?event=e&ticket=unknown'), 401);
    const wrong = await fetch(url(server, '/sse?event=e'), { method: 'POST' });
    assert.deepEqual([wrong.status, wrong.headers.get('allow')], [405, 'GET, OPTIONS']);
    const foreign = await openStream(t, url(server, '/sse?event=e'), { origin: 'https://evil.example' });
    assert.equal(foreign.answer.status, 403);
  });

  test('a ticket is valid once', async (t) => {
    const own = await Server.during(t, { users: { alice: { password: hashPassword('abcdefgh') } }, logLevel: 'info' });
    const login = await post(own, '/api/auth', { username: 'alice', password: 'abcdefgh' });
    const { ticket } = (await login.json()) as { ticket: string };
    const path = `/sse?event=e&ticket=${ticket}`;
    assert.equal((await openStream(t, url(own, '/sse?event=e'))).answer.status, 401);
    assert.equal((await openStream(t, url(own, path))).answer.status, 200);
    assert.equal((await openStream(t, url(own, path))).answer.status, 401);
  });

  describe('rights that are lost while a stream is open', () => {
    /** Rules that allow everything. If `isRefused`, they deny names that begin with `secret/`. */
    const rules = (isRefused: boolean): string => {
      const right = isRefused ? "!name.startsWith('secret/')" : true;
      const record = { create: true, write: true, delete: true, listen: true, notify: true, read: right };
      return JSON.stringify({
        presence: { '*': { allow: true } },
        record: { '*': record },
        event: { '*': { publish: true, listen: true, subscribe: right } },
        rpc: { '*': { provide: true, request: true } },
      });
    };

    test('by new rules: the stream reports exactly the denied names, and the others continue', async (t) => {
      const own = await Server.during(t, { permissions: rules(false) });
      for (const name of ['secret/r', 'open/r']) await command(own, write(name, { n: 1 }));
      const { pieces } = await openStream(t, url(own, '/sse?event=secret/e&event=open/e&record=secret/r&record=open/r'));
      const first = [await pieces.next(), await pieces.next()];
      assert.deepEqual(first.map(({ event }) => event), ['record', 'record']);
      await command(own, emit('secret/e', 1));
      assert.deepEqual((await pieces.next()).data, { name: 'secret/e', data: 1 });
      own.setPermissions(rules(true));
      own.hangUp();
      const lost = [await pieces.next(), await pieces.next()];
      assert.deepEqual(lost.map(({ event, data }) => [event, data.topic, data.name, data.code]).sort(), [
        ['refused', 'event', 'secret/e', 'MESSAGE_DENIED'],
        ['refused', 'record', 'secret/r', 'MESSAGE_DENIED'],
      ]);
      await command(own, emit('secret/e', 2));
      await command(own, write('secret/r', { n: 2 }));
      await command(own, emit('open/e', 3));
      assert.deepEqual((await pieces.next()).data, { name: 'open/e', data: 3 });
      await command(own, write('open/r', { n: 4 }));
      assert.deepEqual((await pieces.next()).data, { name: 'open/r', version: 2, data: { n: 4 } });
    });

    test('by a revocation: the stream ends, and neither the token nor a ticket is valid again', async (t) => {
      const own = await startWithAdmin(t);
      const [alice, bob] = [tokenOf(own, 'alice'), tokenOf(own, 'bob')];
      const path = '/sse?record=r&event=e';
      const bearer = (token: string): Record<string, string> => ({ authorization: `Bearer ${token}` });
      const ticket = async (): Promise<string> => ((await (await post(own, '/api/auth', { token: alice })).json()) as { ticket: string }).ticket;
      const streams = [
        await openStream(t, url(own, path), bearer(alice)),
        await openStream(t, url(own, `${path}&ticket=${await ticket()}`)),
      ];
      const other = await openStream(t, url(own, path), bearer(bob));
      for (const { pieces } of [...streams, other]) assert.equal((await pieces.next()).event, 'deleted');
      const unused = await ticket();
      assert.equal((await admin(own, 'POST', '/revocations', { user: 'alice' }))[0], 201);
      for (const { pieces } of streams) assert.equal((await pieces.next()).event, 'end');
      assert.equal((await openStream(t, url(own, path), bearer(alice))).answer.status, 401);
      assert.equal((await openStream(t, url(own, `${path}&ticket=${unused}`))).answer.status, 401);
      await command(own, write('r', { n: 1 }), { token: bob });
      assert.deepEqual((await other.pieces.next()).data, { name: 'r', version: 1, data: { n: 1 } });
      for (const { pieces } of streams) assert.equal(pieces.seen.length, 2);
    });
  });

  test('streams outlive the timeout of ordinary connections, and send keep-alive comments', async (t) => {
    // An HTTP/2 client must answer a ping within this interval, even on a busy machine.
    const own = await Server.during(t, { http: { connection_timeout: '2s' }, heartbeatIntervalMs: 1_500 });
    const { pieces, comments } = await openStream(t, url(own, '/sse?record=r'));
    assert.equal((await pieces.next()).event, 'deleted');
    assert.deepEqual(await comments.count(3), ['connected', ...Array(2).fill('keep-alive')]);
    await command(own, write('r', { a: 1 }));
    assert.deepEqual((await pieces.next()).data, { name: 'r', version: 1, data: { a: 1 } });
  });

  test('the number of streams is limited, and a closed stream makes room', async (t) => {
    const own = await Server.during(t, { http: { streams_max: 1 } });
    const first = await openStream(t, url(own, '/sse?event=e'));
    assert.equal(first.answer.status, 200);
    assert.equal((await openStream(t, url(own, '/sse?event=e'))).answer.status, 503);
    first.close();
    const isOpen = async (): Promise<boolean> => (await openStream(t, url(own, '/sse?event=e'))).answer.status === 200;
    await eventually(isOpen, 'there is room again');
  });

  test('a stream that lags receives the gap and the newest value', async (t) => {
    const limits = { outbox_bytes_max: 1 << 20, outbox_lagging_bytes: 64 << 10, outbox_drained_bytes: 16 << 10 };
    const own = await Server.during(t, { limits });
    const socket = connectSocket(own.port, '127.0.0.1');
    t.after(() => socket.destroy());
    let text = '';
    socket.on('data', (bytes) => (text += bytes.toString('latin1')));
    socket.write('GET /sse?event=e&record=r HTTP/1.1\r\nhost: localhost\r\n\r\n');
    await eventually(() => text.includes('deleted'), 'the stream is open');
    socket.pause();
    const data = 'x'.repeat(100_000);
    const metric = async (name: string): Promise<number> => {
      const page = await (await fetch(url(own, '/metrics'))).text();
      return Number(new RegExp(`^tidewire_${name} (\\d+)`, 'm').exec(page)?.[1] ?? 0);
    };
    await eventually(async () => {
      await command(own, emit('e', data));
      return (await metric('lag_skipped_events_total')) > 3;
    }, 'the stream lags');
    await command(own, write('r', { last: true }));
    socket.resume();
    await eventually(() => text.includes('event: gap') && text.includes('"last":true'), 'the stream reports the gap and the newest value');
    assert.equal(await metric('slow_disconnects_total'), 0);
  });
});
