// The path of a message through the source files, from what callgrind counted.
//
// A message belongs to a turn of a shard, and a turn has work that does not depend on messages: deadlines, statistics, memory. So a part of
// a function is on the path if it ran more often in turns with a message than in the same number of turns without one, about once for each
// message or more.
//
// An *action* is a function that moves the message on: it reads the socket, takes a frame, decodes, authorizes, encodes, and so on. A *stop*
// is a file on a chain of calls that leads to an action: it has the action, or a function that calls, itself or through others, an
// action. Every other file on the path is *touched*: its functions return without having moved the message on, such as a table, a counter or
// the decoder of a field. A *border* is an ordered pair of crates if a function of a stop in the first calls one in the second, directly
// or through the standard library; a closure that another crate calls counts as well.

import { type Part, type Profile, callOf, isFunction, keyOf, partOf } from './profile.ts';

/** A function that moves a message on, with the file in which it must be. */
export interface Action {
  file: string;
  name: string;
}

export interface Path {
  stops: string[];
  touched: string[];
  /** Borders as `from > to`. */
  borders: string[];
}

/** One turn of a shard. */
const TURN: Action = { file: 'shard/src/conductor.rs', name: 'turn' };

/** `core/src/text.rs` for a file of this repository; undefined for all others. */
export function sourceFile(path: string): string | undefined {
  const [, crate, file] = /(?:^|\/)crates\/(?:tidewire-)?([a-z-]+)\/src\/(.+\.rs)$/.exec(path) ?? [];
  // The compiler assigns code that it generates to the first line of a crate. No function of a path is in such a file.
  return crate === undefined || file === 'lib.rs' ? undefined : `${crate}/src/${file}`;
}

/** The path of `count` messages, from turns with them (`busy`) and turns without (`idle`). */
export function pathOf(idle: Profile, busy: Profile, count: number, actions: Action[]): Path {
  const graph = new CallGraph(idle, busy, count);
  const stops = graph.leadingTo(actions.map((action) => graph.find(action)));
  const stopFiles = graph.filesOf(stops);
  const touched = graph.filesOf(graph.parts).filter((file) => !stopFiles.includes(file));
  return { stops: stopFiles, touched, borders: graph.bordersOf(stops) };
}

/** The functions of the path and their calls. */
class CallGraph {
  /** The called parts of each part. A part also "calls" what was inlined into it. */
  readonly #calls = new Map<string, Set<string>>();
  readonly #busy: Profile;

  constructor(idle: Profile, busy: Profile, count: number) {
    this.#busy = busy;
    const [idleTurns, busyTurns] = [turnsOf(idle), turnsOf(busy)];
    if (idleTurns < 4 || busyTurns < count) throw new Error(`${idleTurns} turns without and ${busyTurns} with messages are too few`);
    // A turn may have begun before a profile or end after it.
    const ratio = busyTurns / (idleTurns - 1);
    const more = (name: 'calls' | 'instructions', atLeast: number): string[] => {
      const entries = [...busy[name]].filter(([key, times]) => times - ratio * (idle[name].get(key) ?? 0) >= atLeast);
      return entries.map(([key]) => key);
    };
    const onPath = new Set<string>();
    const ran = new Set(more('instructions', count));
    for (const { caller, callee } of more('calls', count / 2).map(callOf)) {
      onPath.add(caller.symbol).add(callee);
      this.#add(caller, { symbol: callee, file: busy.files.get(callee) ?? '' });
      this.#addPart(caller, ran);
    }
    for (const part of [...ran].map(partOf)) if (onPath.has(part.symbol)) this.#addPart(part, ran);
  }

  get parts(): string[] {
    return [...new Set([...this.#calls].flatMap(([from, to]) => [from, ...to]))];
  }

  /** The part that has an action. */
  find({ file, name }: Action): string {
    const isIt = (part: Part): boolean => {
      return sourceFile(part.file) === file && part.file === this.#busy.files.get(part.symbol) && isFunction(part.symbol, name);
    };
    const found = this.parts.find((key) => isIt(partOf(key)));
    if (found === undefined) throw new Error(`no message called ${name} in ${file}; correct the list of actions`);
    return found;
  }

  /** The parts from which some call leads to one of these parts, these included. */
  leadingTo(parts: string[]): string[] {
    const callers = new Map<string, string[]>();
    for (const [from, to] of this.#calls) for (const part of to) callers.set(part, [...(callers.get(part) ?? []), from]);
    return reachable(parts, (part) => callers.get(part) ?? []);
  }

  filesOf(parts: string[]): string[] {
    const files = parts.map((part) => sourceFile(partOf(part).file));
    return [...new Set(files.filter((file) => file !== undefined))].sort();
  }

  bordersOf(parts: string[]): string[] {
    const known = new Set(parts);
    const found = new Set<string>();
    for (const part of parts) {
      const from = crateOf(part);
      if (from === undefined) continue;
      // Calls of our code through the standard library and others are calls, too.
      const next = [...(this.#calls.get(part) ?? [])];
      const through = reachable(next, (key) => (crateOf(key) === undefined ? [...(this.#calls.get(key) ?? [])] : []));
      for (const to of through.filter((key) => known.has(key)).map(crateOf)) {
        if (to !== undefined && to !== from) found.add(`${from} > ${to}`);
      }
    }
    return [...found].sort();
  }

  /**
   * Adds a part to its function. A function that runs in each turn may have a part that only messages reach, which the compiler has inlined
   * or not. Then the function itself is not on the path.
   */
  #addPart(part: Part, ran: Set<string>): void {
    const main = this.#main(part);
    if (ran.has(keyOf(main))) this.#add(main, part);
  }

  #main({ symbol, file }: Part): Part {
    return { symbol, file: this.#busy.files.get(symbol) ?? file };
  }

  #add(from: Part, to: Part): void {
    const key = keyOf(from);
    if (key === keyOf(to)) return;
    const known = this.#calls.get(key) ?? new Set();
    this.#calls.set(key, known.add(keyOf(to)));
  }
}

function crateOf(part: string): string | undefined {
  return sourceFile(partOf(part).file)?.split('/')[0];
}

/** All that can be reached from `start`, itself included. */
function reachable(start: string[], next: (part: string) => string[]): string[] {
  const seen = new Set(start);
  for (const part of seen) for (const following of next(part)) seen.add(following);
  return [...seen];
}

/** The turns of all shards in a profile. */
export function turnsOf(profile: Profile): number {
  const isTurn = (symbol: string): boolean => {
    return isFunction(symbol, TURN.name) && sourceFile(profile.files.get(symbol) ?? '') === TURN.file;
  };
  const counts = [...profile.calls].filter(([key]) => isTurn(callOf(key).callee)).map(([, count]) => count);
  return counts.reduce((sum, count) => sum + count, 0);
}
