// The groups of Autobahn's cases: what each shows and how many cases it has in the version that is installed. A case that
// the report lacks has failed, so the numbers are part of the test.

/** Groups 8 and 11 do not exist. */
const CASES: Record<string, { shows: string; count: number }> = {
  1: { shows: 'framing', count: 16 },
  2: { shows: 'pings and pongs', count: 11 },
  3: { shows: 'reserved bits', count: 7 },
  4: { shows: 'opcodes', count: 10 },
  5: { shows: 'fragmentation', count: 20 },
  6: { shows: 'UTF-8', count: 145 },
  7: { shows: 'close handshake', count: 37 },
  9: { shows: 'messages of up to 16 MiB', count: 54 },
  10: { shows: 'automatic fragmentation', count: 1 },
};

/** Compression (permessage-deflate) is not negotiated, so their cases have nothing to test. */
const COMPRESSION = ['12', '13'];

/** All but the large messages: eleven seconds on two cores. */
export const QUICK = ['1', '2', '3', '4', '5', '6', '7', '10'];

/** What a server can pass that speaks its own protocol and echoes nothing. */
export const WITHOUT_ECHO = {
  cases: ['2.*', '3.*', '4.*', '5.*', '6.3.*', '6.4.*', '7.*'],
  /** They wait for an echo before they go on. */
  except: [
    ...['3.2', '3.3', '3.4', '4.1.3', '4.1.4', '4.1.5', '4.2.3', '4.2.4', '4.2.5'],
    ...['5.3', '5.4', '5.5', '5.6', '5.7', '5.8', '5.15', '5.19', '5.20', '7.1.1'],
  ],
  count: 72,
};

/** The groups that a list of numbers names. */
export function groupsNamed(list: string): string[] {
  const names = list.split(/[\s,]+/).filter((name) => name !== '');
  for (const name of names) {
    if (COMPRESSION.includes(name)) throw new Error(`group ${name} tests compression, which is not negotiated`);
    if (!(name in CASES)) throw new Error(`Autobahn has no group ${name}; there are ${Object.keys(CASES).join(', ')}`);
  }
  return names;
}

/** How many cases `groups` have. */
export function caseCount(groups: string[]): number {
  return groups.reduce((sum, group) => sum + (CASES[group]?.count ?? 0), 0);
}
