// The ledger detects each kind of loss; otherwise the crash tests would prove nothing.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Ledger, type Seen } from './ledger.ts';

/** A record whose writes 1 and 2 were acknowledged, the second at version 7, while write 3 was in flight. */
function written(): Ledger {
  const ledger = new Ledger();
  for (const state of [1, 2]) {
    ledger.begin('a', state);
    ledger.acknowledge('a', state, state === 2 ? 7 : 6);
  }
  ledger.begin('a', 3);
  return ledger;
}

const CASES: Array<{ what: string; seen: Seen; fault?: RegExp }> = [
  { what: 'the acknowledged write', seen: { state: 2, version: 7 } },
  { what: 'the write in flight', seen: { state: 3, version: 8 } },
  { what: 'an older write', seen: { state: 1, version: 6 }, fault: /is 1, but 2 was acknowledged/ },
  { what: 'no record', seen: { state: 'missing', version: -1 }, fault: /is missing/ },
  { what: 'an empty record', seen: { state: 'created', version: 0 }, fault: /is created/ },
  { what: 'a lower version', seen: { state: 2, version: 6 }, fault: /version 6, but 7/ },
];

for (const { what, seen, fault } of CASES) {
  test(`after a write: ${what} is ${fault ? 'a fault' : 'in order'}`, () => {
    const found = written().compare('a', seen);
    if (fault) assert.match(found ?? 'nothing was found', fault);
    else assert.equal(found, undefined);
  });
}

test('an acknowledged delete must last', () => {
  const ledger = written();
  ledger.begin('a', 'missing');
  ledger.acknowledge('a', 'missing');
  assert.match(ledger.compare('a', { state: 2, version: 7 }) ?? '', /is 2, but missing was acknowledged/);
  assert.deepEqual(ledger.counts, { writes: 2, deletes: 1 });
});

test('a delete in flight may have happened or not', () => {
  for (const seen of [{ state: 'missing', version: -1 }, { state: 2, version: 7 }] as Seen[]) {
    const ledger = written();
    ledger.begin('a', 'missing');
    assert.equal(ledger.compare('a', seen), undefined);
  }
});

test('the state that was found counts as acknowledged afterwards', () => {
  const ledger = written();
  assert.equal(ledger.compare('a', { state: 3, version: 8 }), undefined);
  assert.match(ledger.compare('a', { state: 2, version: 7 }) ?? '', /is 2, but 3 was acknowledged/);
});
