// What a report of Autobahn means: which outcomes are good, and the two cases in which we are less strict than we could be.

import type { Report } from './fuzz.ts';

const GOOD = ['OK', 'INFORMATIONAL'];

/** Cases that may be NON-STRICT, and why. */
export const NON_STRICT: Record<string, string> = {
  '6.4.3': 'bad UTF-8 in an unfinished frame is refused when the frame is whole',
  '6.4.4': 'bad UTF-8 in an unfinished frame is refused when the frame is whole',
};

/** What is wrong with a report, one line for each case, in the report's order. */
export function failures(report: Report, expectedCount: number): string[] {
  const bad = Object.entries(report).filter(([name, { behavior, behaviorClose }]) => {
    const isExcused = behavior === 'NON-STRICT' && name in NON_STRICT;
    return !(GOOD.includes(behavior) || isExcused) || !GOOD.includes(behaviorClose);
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
