// The reports that the processes of bystanders and attackers send to the test, and percentiles.

/** Before the attack, during it, and after the attackers have left. */
export type Phase = 'calm' | 'attack' | 'after';

/** Times of one kind, in milliseconds. */
export interface Percentiles {
  count: number;
  p50: number;
  p99: number;
  max: number;
}

export interface LatencySummary {
  event: Percentiles;
  write: Percentiles;
}

/** Latencies of events and acknowledged writes. */
export class Latencies {
  readonly #times = { event: [] as number[], write: [] as number[] };

  add(kind: 'event' | 'write', milliseconds: number): void {
    this.#times[kind].push(milliseconds);
  }

  summary(): LatencySummary {
    return { event: percentiles(this.#times.event), write: percentiles(this.#times.write) };
  }
}

export interface BystanderReport extends Record<Phase, LatencySummary | undefined> {
  lost: number;
  doubled: number;
  /** Bystanders whose connection ended. */
  disconnected: number;
  /** Errors that bystanders received. */
  refused: number;
}

/** The counters of an attacker's connections. */
export interface AttackReport {
  /** Bytes that the server has touched for completed operations. */
  touchedBytes: number;
  operations: number;
  sentBytes: number;
  receivedBytes: number;
  /** Connections that the server has closed. */
  closed: number;
  /** Seconds from the first byte to the last completed operation. */
  seconds: number;
}

function percentiles(times: number[]): Percentiles {
  const sorted = times.sort((a, b) => a - b);
  const at = (share: number): number => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
  return { count: sorted.length, p50: at(0.5), p99: at(0.99), max: at(1) };
}
