// Checks that the bystanders detect faults: of null servers with planted faults, and not of a null server without any.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SHAPES } from './attack.ts';
import { p99 } from './judge.ts';
import { measureNull } from './measure.ts';
import type { BystanderReport } from './report.ts';

/** Tests that the bystanders detect the faults of a null server. */
function testFault(name: string, faults: string[], isFound: (report: BystanderReport) => boolean): void {
  test(`bystanders detect a server that ${name}`, async () => {
    const report = await measureNull({ sent: 1_000, received: 1_000 }, SHAPES[0]!, { calmMs: 300, attackMs: 700, aloneMs: 0 }, faults);
    assert.ok(isFound(report), JSON.stringify(report));
  });
}

testFault('does nothing wrong', [], ({ lost, doubled, disconnected }) => lost + doubled + disconnected === 0);
testFault('loses messages', ['--lose-one-in', '20'], ({ lost }) => lost > 0);
testFault('sends messages twice', ['--double-one-in', '20'], ({ doubled }) => doubled > 0);
testFault('stands still', ['--stall-one-in', '100', '--stall-ms', '150'], (report) => p99(report, 'attack') > 100);
