// The evaluation of reports, with hand-made reports: every outcome that is not good is a failure, and so is a case that did not run.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Report } from './fuzz.ts';
import { ALL, QUICK, caseCount, groupsNamed, partsOf } from './groups.ts';
import { requirePython27 } from './install.ts';
import { failures, summary } from './verdict.ts';

const OK = { behavior: 'OK', behaviorClose: 'OK' };
const UNIMPLEMENTED = { behavior: 'UNIMPLEMENTED', behaviorClose: 'OK' };
const NON_STRICT = { behavior: 'NON-STRICT', behaviorClose: 'OK' };

const REPORTS: Array<{ what: string; report: Report; bad?: string[] }> = [
  { what: 'good cases', report: { '1.1.1': OK, '7.1.6': { behavior: 'INFORMATIONAL', behaviorClose: 'INFORMATIONAL' } } },
  { what: 'a case that is not strict', report: { '6.4.3': NON_STRICT }, bad: ['6.4.3: NON-STRICT, close handshake OK'] },
  { what: 'a window that is declined', report: { '13.3.1': UNIMPLEMENTED, '13.5.18': UNIMPLEMENTED } },
  {
    what: 'another offer that is declined',
    report: { '13.4.1': UNIMPLEMENTED },
    bad: ['13.4.1: UNIMPLEMENTED, close handshake OK'],
  },
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

test('the summary counts behaviours and names the cases that are not strict', () => {
  const report = { '1.1.1': OK, '1.1.2': OK, '6.4.3': NON_STRICT };
  assert.equal(summary(report), '3 cases: 1 NON-STRICT (6.4.3), 2 OK');
});

test('groups that do not exist are refused', () => {
  assert.deepEqual(groupsNamed('1, 10 12-small'), ['1', '10', '12-small']);
  assert.deepEqual(groupsNamed('12.5 13.7'), ['12.5', '13.7']);
  assert.throws(() => groupsNamed('12.6'), /no group 12\.6/);
  assert.throws(() => groupsNamed('8'), /no group 8/);
});

test('the whole suite has 517 cases', () => {
  assert.equal(caseCount(ALL), 517);
});

test('the quick groups have the smallest messages with compression', () => {
  assert.deepEqual(partsOf('13.7'), [{ name: '13.7', cases: ['13.7.*'] }]);
  assert.equal(caseCount(['12.1', '13.7']), 36);
  assert.deepEqual(partsOf('9'), [{ name: '9', cases: ['9.*'] }]);
  assert.deepEqual(partsOf('12').map(({ name }) => name), ['12.1', '12.2', '12.3', '12.4', '12.5']);
  assert.deepEqual(partsOf('12-small')[0]?.cases.slice(0, 4), ['12.1.1', '12.1.2', '12.1.3', '12.2.1']);
  assert.equal(caseCount(QUICK), 247 + 12 * 3);
});

test('a machine without Python 2.7 reports what it needs', async () => {
  await assert.rejects(requirePython27({ PATH: import.meta.dirname }), /needs Python 2\.7, which this machine does not have/);
});
