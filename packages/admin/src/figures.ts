// The server's figures, its history of them, and numbers as text.

export interface Store {
  name: string;
  promise: string;
  store_commits: number;
  store_writes: number;
  store_failed_commits: number;
  store_dirty_records: number;
  store_commit_seconds: number;
  store_unanswered_seconds: number;
}

export interface Figures {
  /** Milliseconds since 1970. */
  at: number;
  ready: boolean;
  reasons: Told[];
  warnings: Told[];
  counters: Record<string, number>;
  gauges: Record<string, number>;
  topics: Record<'messages_received' | 'messages_encoded', Record<string, number>>;
  refused: Record<string, number>;
  stores: Store[];
  residentBytes: number | null;
}

export interface Told {
  code: string;
  text: string;
}

/** A point of the plots. Rates are per second, times are in seconds. A percentile of nothing is `null`. */
export interface Point {
  /** Seconds since 1970. */
  at: number;
  connections: number;
  messagesIn: number;
  deliveries: number;
  bytesIn: number;
  bytesOut: number;
  writes: number;
  turnMedian: number | null;
  turn99: number | null;
  deliveryMedian: number | null;
  delivery99: number | null;
  acknowledgementMedian: number | null;
  acknowledgement99: number | null;
  residentBytes: number;
  outboxBytes: number;
  dirtyRecords: number;
  /** From the request for the figures to their arrival. `null` for points from before the page was open. */
  roundTrip: number | null;
}

/** An answer with points of the server's history: the names of the values, and a row for each point, which begins with its time. */
export interface History {
  names: string[];
  points: Array<Array<number | null>>;
}

/** The points of an answer. The newest one gets the page's round trip. */
export function pointsOf({ names, points }: History, roundTrip: number): Point[] {
  return points.map(([at, ...values], index) => {
    const named = Object.fromEntries(names.map((name, place) => [name, values[place] ?? null]));
    return { ...named, at: (at as number) / 1000, roundTrip: index === points.length - 1 ? roundTrip : null } as Point;
  });
}

/** Decimal prefixes, from the smallest. */
const PREFIXES = ['µ', 'm', '', 'k', 'M', 'G', 'T'];
const ONE = PREFIXES.indexOf('');

/** A number with three digits, a decimal prefix and a unit, in the language of the browser: `12.3 kB`, `1.25 ms`. */
function scaled(value: number, unit: string, smallest: string): string {
  let prefix = ONE;
  let shown = value;
  while (shown >= 999.5 && prefix < PREFIXES.length - 1) [shown, prefix] = [shown / 1000, prefix + 1];
  while (shown > 0 && shown < 1 && PREFIXES[prefix] !== smallest) [shown, prefix] = [shown * 1000, prefix - 1];
  const digits = prefix === ONE && smallest === '' ? { maximumFractionDigits: shown < 100 ? 1 : 0 } : { maximumSignificantDigits: 3 };
  return `${new Intl.NumberFormat(undefined, digits).format(shown)} ${PREFIXES[prefix]}${unit}`.trimEnd();
}

/** `1,234`, or `12.3 k` for a large number. */
export function count(value: number): string {
  if (value >= 9_999.5) return scaled(value, '', '');
  return new Intl.NumberFormat(undefined, { maximumFractionDigits: value < 100 ? 1 : 0 }).format(value);
}

/** `12.3 kB` */
export function bytes(value: number): string {
  return scaled(value, 'B', '');
}

/** A time in seconds: `1.25 ms`, `820 µs`. */
export function seconds(value: number): string {
  return scaled(value, 's', 'µ');
}

/** A date with its time, in the language and the zone of the browser. */
export function date(unixSeconds: number): string {
  return new Date(unixSeconds * 1000).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
}

/** A time of day, in the language and the zone of the browser. */
export function timeOfDay(unixSeconds: number, withSeconds: boolean): string {
  const style = withSeconds ? 'medium' : 'short';
  return new Date(unixSeconds * 1000).toLocaleTimeString(undefined, { timeStyle: style });
}
