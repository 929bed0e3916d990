// How messages reach the kernel: the first screen and the metrics name the send path, and the server really uses it. `E2E_RING` sets the
// expected path (see `harness/ring.ts`).

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { connect, subscribed } from '../harness/client.ts';
import { DESCRIPTORS, USER, containerFolder } from '../harness/container.ts';
import { fresh } from '../harness/names.ts';
import { REFUSALS, refusal } from '../harness/ring.ts';
import { SHARD_COUNT, Server, againstOriginal } from '../harness/server.ts';

/** Enough for several receivers on each shard, so that a turn has many sends. */
const CLIENT_COUNT = 4 * SHARD_COUNT;
const EVENT_COUNT = 20;

describe('transport', { skip: againstOriginal && 'deepstream has only one send path' }, () => {
  test(`events are sent ${refusal() ? `without a ring (${refusal()})` : 'through the ring'}`, async (t) => {
    const server = await Server.during(t);
    await publish(t, server);
    const cause = refusal();
    await isSentBy(server, cause ? `plain, because io_uring_setup failed: ${REFUSALS[cause]}` : 'io_uring');
  });

  test('network.sends can select plain sends', async (t) => {
    const server = await Server.during(t, { sends: 'plain' });
    await publish(t, server);
    await isSentBy(server, 'plain, by network.sends');
  });

  const isContained = containerFolder() !== undefined;
  test('a container gives the server few rights', { skip: !isContained && 'not in a container' }, async (t) => {
    const server = await Server.during(t);
    const about = (file: string): string => readFileSync(`/proc/${server.pid}/${file}`, 'utf8');
    assert.match(about('status'), new RegExp(`^Uid:\\t${USER}\\t${USER}\\t`, 'm'));
    assert.match(about('status'), /^CapEff:\t0+$/m);
    assert.match(about('limits'), new RegExp(`^Max open files +${DESCRIPTORS} +${DESCRIPTORS} `, 'm'));
    assert.match(about('mountinfo'), /^\d+ \d+ \S+ \S+ \/ ro,/m);
    await server.prints(/^ {2}connections +up to 9\d\d, by the limit of open files/m);
  });
});

/** Publishes events from one client to all others. */
async function publish(t: Parameters<typeof connect>[0], server: Server): Promise<void> {
  const name = fresh('event');
  const publisher = await connect(t, server);
  const receivers = await Promise.all(Array.from({ length: CLIENT_COUNT }, () => connect(t, server)));
  const inboxes = await Promise.all(receivers.map((receiver) => subscribed(receiver, name)));
  for (let number = 0; number < EVENT_COUNT; number += 1) {
    publisher.event.emit(name, number);
    for (const inbox of inboxes) assert.equal(await inbox.next(), number);
  }
}

/** Asserts that the first screen, the gauge and the counter name the same send path. */
async function isSentBy(server: Server, shown: string): Promise<void> {
  await server.prints(new RegExp(`^  sends +${shown}`, 'm'));
  const hasRing = shown === 'io_uring';
  const shards = (path: string): Promise<number> => server.metric(`tidewire_sends_path{path="${path}"}`);
  assert.equal(await shards('io_uring'), hasRing ? SHARD_COUNT : 0);
  assert.equal(await shards('plain'), hasRing ? 0 : SHARD_COUNT);
  const submissions = await server.metric('tidewire_ring_submissions_total');
  assert.equal(submissions > 0, hasRing, `${submissions} submissions`);
  assert.ok((await server.metric('tidewire_sends_total')) >= CLIENT_COUNT * EVENT_COUNT);
}
