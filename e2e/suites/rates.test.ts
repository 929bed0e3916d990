// Rates as clients see them: the server slows down a client that is too fast, and loses none of its messages.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { C, connect, record, subscribed } from '../harness/client.ts';
import { fresh } from '../harness/names.ts';
import { Server, againstOriginal } from '../harness/server.ts';
import { isPending } from '../harness/wait.ts';

const RATE = 25;
const COUNT = 100;
/** The messages beyond the burst arrive at the rate. */
const EXPECTED_MS = ((COUNT - RATE) / RATE) * 1_000;

describe('rates', { skip: againstOriginal && 'deepstream has no rates', concurrency: 4 }, () => {
  test('all events of one connection arrive at its rate and in order', async (t) => {
    const server = await Server.during(t, { rates: { connection: { publish: `${RATE}/s` } } });
    const [fast, other, reader] = [await connect(t, server), await connect(t, server), await connect(t, server)];
    const name = fresh('event');
    const inbox = await subscribed(reader, name);
    const started = performance.now();
    for (let number = 0; number < COUNT; number += 1) fast.event.emit(name, number);
    await inbox.count(RATE);
    const others = await subscribed(reader, `${name}/other`);
    other.event.emit(`${name}/other`, 'at once');
    assert.equal(await others.next(), 'at once');
    const seen = await inbox.count(COUNT);
    const took = performance.now() - started;
    assert.deepEqual(seen, Array.from({ length: COUNT }, (_, number) => number));
    assert.ok(took > EXPECTED_MS * 0.9, `${COUNT} events took ${took.toFixed(0)} ms`);
    assert.ok((await server.metric('tidewire_refused_messages_total{cause="connection_rate"}')) > 0);
    assert.equal(fast.getConnectionState(), C.CONNECTION_STATE.OPEN);
  });

  test('all connections of a user share the rate of the user, on all shards', async (t) => {
    const server = await Server.during(t, { rates: { user: { write: `${RATE}/s` } } });
    const mine = await Promise.all([1, 2, 3, 4].map(() => connect(t, server, { login: { username: 'alice' } })));
    const other = await connect(t, server, { login: { username: 'bob' } });
    const theirs = await record(other, fresh('record'));
    const started = performance.now();
    const written = mine.flatMap((client) =>
      Array.from({ length: COUNT / mine.length }, () => client.record.setDataWithAck(fresh('record'), { by: 'alice' })),
    );
    const all = Promise.all(written);
    await theirs.setWithAck('by', 'bob');
    assert.ok(await isPending(all), 'another user does not wait');
    await all;
    const took = performance.now() - started;
    assert.ok(took > EXPECTED_MS * 0.9, `${COUNT} writes took ${took.toFixed(0)} ms`);
    assert.ok((await server.metric('tidewire_refused_messages_total{cause="user_rate"}')) > 0);
  });
});
