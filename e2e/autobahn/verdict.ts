// The evaluation of an Autobahn report: which outcomes are good. NON-STRICT, correct but later than possible, is not
// good; UNIMPLEMENTED is good only for cases with a window that the server declines.

import type { Report } from './fuzz.ts';
import { DECLINED } from './groups.ts';

const GOOD = ['OK', 'INFORMATIONAL'];

/** The failures of a report, one line for each case, in the report's order. */
export function failures(report: Report, expectedCount: number): string[] {
  const bad = Object.entries(report).filter(([name, { behavior, behaviorClose }]) => {
    const isDeclined = behavior === 'UNIMPLEMENTED' && DECLINED.some((offer) => name.startsWith(`${offer}.`));
    return !(GOOD.includes(behavior) || isDeclined) || !GOOD.includes(behaviorClose);
  });
  const lines = bad.map(([name, { behavior, behaviorClose }]) => `${name}: ${behavior}, close handshake ${behaviorClose}`);
  const count = Object.keys(report).length;
  return count === expectedCount ? lines : [...lines, `${count} cases ran, not ${expectedCount}`];
}

/** One line with the number of cases, the number of each behaviour, and the cases that are not strict. */
export function summary(report: Report): string {
  const names = Object.keys(report);
  const kinds = [...new Set(Object.values(report).map(({ behavior }) => behavior))].sort();
  const counts = kinds.map((kind) => {
    const ofKind = names.filter((name) => report[name]?.behavior === kind);
    return `${ofKind.length} ${kind}${kind === 'NON-STRICT' ? ` (${ofKind.join(', ')})` : ''}`;
  });
  return `${names.length} cases: ${counts.join(', ')}`;
}
