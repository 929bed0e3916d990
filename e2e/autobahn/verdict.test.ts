// The judgement of reports, with reports made by hand: whatever is not good is a failure, and so is what did not run.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Report } from './fuzz.ts';
import { groupsNamed } from './groups.ts';
import { requirePython27 } from './install.ts';
import { failures, summary } from './verdict.ts';

const OK = { behavior: 'OK', behaviorClose: 'OK' };
const NON_STRICT = { behavior: 'NON-STRICT', behaviorClose: 'OK' };

const REPORTS: Array<{ what: string; report: Report; bad?: string[] }> = [
  { what: 'good cases', report: { '1.1.1': OK, '7.1.6': { behavior: 'INFORMATIONAL', behaviorClose: 'INFORMATIONAL' } } },
  { what: 'a case that is not strict', report: { '6.4.3': NON_STRICT }, bad: ['6.4.3: NON-STRICT, close handshake OK'] },
  {
    what: 'a failed case',
    report: { '6.4.3': { behavior: 'FAILED', behaviorClose: 'OK' } },
    bad: ['6.4.3: FAILED, close handshake OK'],
  },
  {
    what: 'a wrong close code behind a right answer',
    report: { '3.1': { behavior: 'OK', behaviorClose: 'WRONG CODE' } },
    bad: ['3.1: OK, close handshake WRONG CODE'],
  },
];

for (const { what, report, bad = [] } of REPORTS) {
  test(`${bad.length === 0 ? 'passes' : 'fails'}: ${what}`, () => {
    assert.deepEqual(failures(report, Object.keys(report).length), bad);
  });
}

test('a case that did not run has failed', () => {
  assert.deepEqual(failures({ '1.1.1': OK }, 2), ['1 cases ran, not 2']);
});

test('the summary counts behaviours and names what is not strict', () => {
  const report = { '1.1.1': OK, '1.1.2': OK, '6.4.3': NON_STRICT };
  assert.equal(summary(report), '3 cases: 1 NON-STRICT (6.4.3), 2 OK');
});

test('groups that do not exist or test compression are refused', () => {
  assert.deepEqual(groupsNamed('1, 10'), ['1', '10']);
  assert.throws(() => groupsNamed('12'), /group 12 tests compression, which is not negotiated/);
  assert.throws(() => groupsNamed('8'), /no group 8/);
});

test('a machine without Python 2.7 is told what it needs', async () => {
  await assert.rejects(requirePython27({ PATH: import.meta.dirname }), /needs Python 2\.7, which this machine does not have/);
});
