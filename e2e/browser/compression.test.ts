// A browser offers permessage-deflate by default: a large message reaches its page compressed, and leaves it compressed.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DeepstreamClient } from '@deepstream/client';
import { FrameReader } from '../harness/frames.ts';
import { Proxy } from '../harness/proxy.ts';
import { Server } from '../harness/server.ts';
import { within } from '../harness/wait.ts';
import { browserDuring, loginFrom, openPage, servePage } from './page.ts';

const LARGE = 'the same words again and again '.repeat(100);

test('a large message reaches the page and leaves it compressed', async (t) => {
  const server = await Server.during(t, { compression: true });
  const proxy = await Proxy.during(t, server);
  const [answers, questions] = [new FrameReader(), new FrameReader()];
  proxy.onAnswer = answers.push;
  proxy.onQuestion = questions.push;
  const browser = await browserDuring(t);
  const page = await openPage(browser, 'localhost', await servePage(t));
  assert.equal(await loginFrom(page, `ws://${proxy.address}`), 'open');
  assert.match(answers.extensions ?? '', /^permessage-deflate/);

  const other = new DeepstreamClient(server.address);
  await other.login();
  const back = new Promise((done) => other.event.subscribe('back', done));
  const record = await other.record.getRecord('browser/large').whenReady();
  await record.setWithAck('text', LARGE);
  const read = await page.evaluate(async () => {
    const { client } = globalThis as any;
    const text = (await client.record.getRecord('browser/large').whenReady()).get('text');
    client.event.emit('back', text);
    return text;
  });
  assert.equal(read, LARGE);
  assert.equal(await within(10_000, back, 'the event of the page'), LARGE);
  const compressed = answers.frames.filter(({ isCompressed }) => isCompressed);
  assert.deepEqual(compressed.map(({ opcode }) => opcode), [2]);
  assert.ok(questions.frames.some(({ isCompressed, payloadBytes }) => isCompressed && payloadBytes < LARGE.length / 2));
  other.close();
});
