// The server's figures, and the rates between two of them.

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
  turns: Turns;
  residentBytes: number | null;
}

export interface Told {
  code: string;
  text: string;
}

export interface Turns {
  upTo: number[];
  counts: number[];
}

/** A point of the plots. Rates are per second. */
export interface Point {
  /** Seconds since 1970. */
  at: number;
  connections: number;
  messagesIn: number;
  deliveries: number;
  bytesIn: number;
  bytesOut: number;
  /** Milliseconds. */
  turnMedian: number;
  turn99: number;
  residentBytes: number;
  outboxBytes: number;
  dirtyRecords: number;
  writes: number;
  /** Milliseconds from the request for the figures to their arrival. */
  roundTrip: number;
}

const sum = (numbers: Iterable<number>): number => [...numbers].reduce((all, one) => all + one, 0);

/** The rates from `before` to `after`. A restarted server counts from 0 again. */
export function point(before: Figures, after: Figures, roundTrip: number): Point {
  const seconds = Math.max((after.at - before.at) / 1000, 0.001);
  const rate = (from: number | undefined, to: number | undefined): number => {
    const [first, last] = [from ?? 0, to ?? 0];
    return (last >= first ? last - first : last) / seconds;
  };
  const counter = (name: string): number => rate(before.counters[name], after.counters[name]);
  const counts = after.turns.counts.map((count, index) => Math.max(count - (before.turns.counts[index] ?? 0), 0));
  const turns = { upTo: after.turns.upTo, counts };
  return {
    at: after.at / 1000,
    connections: after.gauges['connections'] ?? 0,
    messagesIn: rate(sum(Object.values(before.topics.messages_received)), sum(Object.values(after.topics.messages_received))),
    deliveries: counter('deliveries'),
    bytesIn: counter('received_bytes'),
    bytesOut: counter('sent_bytes'),
    turnMedian: percentile(turns, 0.5) * 1000,
    turn99: percentile(turns, 0.99) * 1000,
    residentBytes: after.residentBytes ?? 0,
    outboxBytes: after.gauges['outbox_bytes'] ?? 0,
    dirtyRecords: after.gauges['dirty_records'] ?? 0,
    writes: rate(sum(before.stores.map((store) => store.store_writes)), sum(after.stores.map((store) => store.store_writes))),
    roundTrip,
  };
}

/** The percentile `share` of all turn times in seconds, as the upper end of its bucket; 0 without turns. */
export function percentile({ upTo, counts }: Turns, share: number): number {
  const wanted = sum(counts) * share;
  if (wanted === 0) return 0;
  let seen = 0;
  for (const [index, count] of counts.entries()) {
    seen += count;
    if (seen >= wanted) return upTo[index] ?? (upTo.at(-1) as number);
  }
  return upTo.at(-1) as number;
}

/** `1,234`, or `12.3 k` for a large number. */
export function count(value: number): string {
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  return value >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString('en') : value.toFixed(1);
}

/** `12.3 MB` */
export function bytes(value: number): string {
  const units = ['B', 'KB', 'MB', 'GB'];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}
