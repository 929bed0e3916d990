// The states that the server has acknowledged, per record, and the comparison with later reads. Each record has one writer that
// waits for each answer. After a crash the record must therefore hold the last acknowledged state or the state of the one write
// that was in flight.

/** A record's state: missing, created but never written, or the number of its last write. */
export type State = 'missing' | 'created' | number;

/** A record as a client reads it. */
export interface Seen {
  state: State;
  /** -1 for a missing record. */
  version: number;
}

interface Entry {
  acknowledged: State;
  /** The lowest version of the acknowledged state; -1 if the writer does not know it. */
  version: number;
  /** States that the writer has requested since. */
  underWay: State[];
}

export class Ledger {
  readonly #entries = new Map<string, Entry>();
  #writeCount = 0;
  #deleteCount = 0;

  /** The names of all records that were ever written. */
  get names(): string[] {
    return [...this.#entries.keys()];
  }

  /** Acknowledged writes and deletes so far. */
  get counts(): { writes: number; deletes: number } {
    return { writes: this.#writeCount, deletes: this.#deleteCount };
  }

  /** Whether the last acknowledged state of `name` is `missing`. */
  isMissing(name: string): boolean {
    return this.#entry(name).acknowledged === 'missing';
  }

  /** Notes that the writer requests `state` for `name`. */
  begin(name: string, state: State): void {
    this.#entry(name).underWay.push(state);
  }

  /** Notes that the server acknowledged `state`, at `version` if the writer knows it. */
  acknowledge(name: string, state: State, version = -1): void {
    Object.assign(this.#entry(name), { acknowledged: state, version, underWay: [] });
    if (state === 'missing') this.#deleteCount += 1;
    else this.#writeCount += 1;
  }

  /** Compares `seen` with the ledger and returns the fault, if any. Then accepts `seen` as the acknowledged state. */
  compare(name: string, seen: Seen): string | undefined {
    const entry = this.#entry(name);
    const { acknowledged, version, underWay } = entry;
    Object.assign(entry, { acknowledged: seen.state, version: seen.version, underWay: [] });
    if (seen.state !== acknowledged && !underWay.includes(seen.state)) {
      return `${name} is ${seen.state}, but ${acknowledged} was acknowledged and [${underWay}] was in flight`;
    }
    if (seen.state === acknowledged && seen.version < version) {
      return `${name} has version ${seen.version}, but ${version} was acknowledged`;
    }
    return undefined;
  }

  #entry(name: string): Entry {
    let entry = this.#entries.get(name);
    if (!entry) {
      entry = { acknowledged: 'missing', version: -1, underWay: [] };
      this.#entries.set(name, entry);
    }
    return entry;
  }
}
