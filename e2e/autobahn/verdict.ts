// What a report of Autobahn means: which outcomes are good. NON-STRICT, right but later than possible, is
// none of them; UNIMPLEMENTED is one where the case wants a window that we decline.

import type { Report } from './fuzz.ts';
import { DECLINED } from './groups.ts';

const GOOD = ['OK', 'INFORMATIONAL'];

/** What is wrong with a report, one line for each case, in the report's order. */
export function failures(report: Report, expectedCount: number): string[] {
  const bad = Object.entries(report).filter(([name, { behavior, behaviorClose }]) => {
    const isDeclined = behavior === 'UNIMPLEMENTED' && DECLINED.some((offer) => name.startsWith(`${offer}.`));
    return !(GOOD.includes(behavior) || isDeclined) || !GOOD.includes(behaviorClose);
  });
  const lines = bad.map(([name, { behavior, behaviorClose }]) => `${name}: ${behavior}, close handshake ${behaviorClose}`);
  const count = Object.keys(report).length;
  return count === expectedCount ? lines : [...lines, `${count} cases ran, not ${expectedCount}`];
}

/** One line: how many cases, how many of each behaviour, and which are not strict. */
export function summary(report: Report): string {
  const names = Object.keys(report);
  const kinds = [...new Set(Object.values(report).map(({ behavior }) => behavior))].sort();
  const counts = kinds.map((kind) => {
    const ofKind = names.filter((name) => report[name]?.behavior === kind);
    return `${ofKind.length} ${kind}${kind === 'NON-STRICT' ? ` (${ofKind.join(', ')})` : ''}`;
  });
  return `${names.length} cases: ${counts.join(', ')}`;
}
