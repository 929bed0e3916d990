// The groups of Autobahn's cases: the subject and the number of cases of each in the installed version. A case that
// is missing in the report has failed, so the numbers are part of the test.

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
  12: { shows: 'compression of five kinds of data', count: 90 },
  13: { shows: 'offers of compression', count: 126 },
};

const COMPRESSION = ['12', '13'];
/** Cases of groups 12 and 13 for each kind of data and each offer; the first ones have the smallest messages. */
const SIZES = 18;
const SMALL_SIZES = 3;

/** Offers of group 13 that only allow a window of 2^9: the server declines them, see docs/decisions/0007. */
export const DECLINED = ['13.3', '13.5'];

/** The groups without large messages and without compression, and the smallest messages with it. `make proof-autobahn` runs all. */
export const QUICK = ['1', '2', '3', '4', '5', '6', '7', '10', '12-small', '13-small'];

/** All groups. */
export const ALL = Object.keys(CASES);

/** The cases that a server can pass that speaks its own protocol and echoes nothing. */
export const WITHOUT_ECHO = {
  cases: ['2.*', '3.*', '4.*', '5.*', '6.3.*', '6.4.*', '7.*'],
  /** These cases wait for an echo before they continue. */
  except: [
    ...['3.2', '3.3', '3.4', '4.1.3', '4.1.4', '4.1.5', '4.2.3', '4.2.4', '4.2.5'],
    ...['5.3', '5.4', '5.5', '5.6', '5.7', '5.8', '5.15', '5.19', '5.20', '7.1.1'],
  ],
  count: 72,
};

/**
 * The groups that a list of names selects: `6`, `12-small` for the smallest messages of a group with compression, or `12.3`
 * for one kind of data or one offer. `all` selects every group.
 */
export function groupsNamed(list: string): string[] {
  if (list === 'all') return ALL;
  const names = list.split(/[\s,]+/).filter((name) => name !== '');
  for (const name of names) {
    if (!(name in CASES) && !isSmall(name) && !isPart(name)) {
      throw new Error(`Autobahn has no group ${name}; there are ${ALL.join(', ')}, 12-small, 13-small`);
    }
  }
  return names;
}

/** The cases of one run: a group, or one kind of data or one offer of the long groups 12 and 13. */
export interface Part {
  name: string;
  /** The cases in Autobahn's syntax. */
  cases: string[];
}

/** The parts of a group, in order. */
export function partsOf(group: string): Part[] {
  if (isPart(group)) return [{ name: group, cases: [`${group}.*`] }];
  const number = group.replace('-small', '');
  if (!COMPRESSION.includes(number)) return [{ name: group, cases: [`${group}.*`] }];
  const names = partNames(number);
  if (!isSmall(group)) return names.map((name) => ({ name, cases: [`${name}.*`] }));
  return [{ name: group, cases: names.flatMap((name) => numbersTo(SMALL_SIZES).map((index) => `${name}.${index}`)) }];
}

/** The number of cases in `groups`. */
export function caseCount(groups: string[]): number {
  return groups.reduce((sum, group) => sum + countOf(group), 0);
}

function countOf(group: string): number {
  if (isPart(group)) return SIZES;
  if (!isSmall(group)) return CASES[group]?.count ?? 0;
  return partsOf(group).reduce((sum, { cases }) => sum + cases.length, 0);
}

function isPart(name: string): boolean {
  return COMPRESSION.some((number) => partNames(number).includes(name));
}

/** The kinds of data, or the offers, of a group with compression. */
function partNames(number: string): string[] {
  return numbersTo((CASES[number]?.count ?? 0) / SIZES).map((index) => `${number}.${index}`);
}

function numbersTo(last: number): number[] {
  return Array.from({ length: last }, (_, index) => index + 1);
}

function isSmall(group: string): boolean {
  return COMPRESSION.some((number) => group === `${number}-small`);
}
