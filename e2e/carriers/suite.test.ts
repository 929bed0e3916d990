// Runs the link suite (crates/tidewire-cluster/tests/links) over the carriers that need a broker, in order. The suite starts, kills
// and stops the brokers. CARRIERS=nats,kafka selects some of them, and CARRIER_KILLS is how often each broker is killed.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { resolve } from 'node:path';
import { test } from 'node:test';
import { mavenLibraries } from '../harness/maven.ts';

const REPOSITORY = resolve(import.meta.dirname, '../..');
const ALL = ['amqp', 'kafka', 'nats', 'redis', 'valkey'];
/** Valkey has the protocol of Redis; `make proof-links-valkey` runs it. */
const CARRIERS = process.env['CARRIERS']?.split(',') ?? ALL.filter((carrier) => carrier !== 'valkey');
// Test the whole workspace with all features, as the earlier suites do: the package alone would be built with other features.
const ARGS = ['test', '--locked', '--workspace', '--all-features', '--test', 'links', '--', '--include-ignored', '--exact', '--nocapture'];

/** Runs one test of the suite and returns its output. */
async function runTest(name: string): Promise<string> {
  const suite = spawn('cargo', [...ARGS, `bus::${name}`], { cwd: REPOSITORY });
  let output = '';
  for (const stream of [suite.stdout, suite.stderr]) stream.on('data', (text: Buffer) => (output += text.toString()));
  const code = await new Promise((done) => suite.once('close', done));
  assert.equal(code, 0, output);
  assert.match(output, /test result: ok\. 1 passed; 0 failed; 0 ignored/, output);
  return output;
}

for (const carrier of CARRIERS) {
  test(`the link suite passes over ${carrier}`, async () => {
    assert.ok(ALL.includes(carrier), `CARRIERS has ${carrier}, which is not one of ${ALL.join(', ')}`);
    if (carrier === 'kafka') mavenLibraries(import.meta.dirname);
    const output = await runTest(carrier);
    const killed = /\d+ kills, .*/.exec(output)?.[0];
    assert.ok(killed, output);
    console.log(`${carrier}: ${killed}`);
  });
}

test('the carriers check the certificates of encrypted brokers', async () => {
  await runTest('encrypted');
});
