// Reads a dump of callgrind: which functions ran, the file of each of their lines, and how often one called another. A line of an
// inlined function has its own file, so inlining hides no file.

import { readFileSync } from 'node:fs';

/** A function as far as its lines are in one file. An inlined function is a second part of the function that contains it. */
export interface Part {
  symbol: string;
  file: string;
}

export interface Profile {
  /** The file in which each function begins, by symbol. */
  files: Map<string, string>;
  /** Executed instructions of each part. */
  instructions: Map<string, number>;
  /** Calls, by the calling part and the called function. */
  calls: Map<string, number>;
}

const SEPARATOR = '\n';

export const keyOf = ({ symbol, file }: Part): string => symbol + SEPARATOR + file;
export const callKey = (caller: Part, callee: string): string => keyOf(caller) + SEPARATOR + callee;

export function partOf(key: string): Part {
  const [symbol = '', file = ''] = key.split(SEPARATOR);
  return { symbol, file };
}

export function callOf(key: string): { caller: Part; callee: string } {
  const [symbol = '', file = '', callee = ''] = key.split(SEPARATOR);
  return { caller: { symbol, file }, callee };
}

/** Reads a dump that was written with full names and positions (`--compress-strings=no --compress-pos=no`) and symbols as in the binary. */
export function readProfile(path: string): Profile {
  return parseProfile(readFileSync(path, 'utf8'));
}

/** The format is described in the manual of valgrind, chapter "Callgrind Format Specification". */
export function parseProfile(text: string): Profile {
  const profile: Profile = { files: new Map(), instructions: new Map(), calls: new Map() };
  let begins = '';
  let part: Part = { symbol: '', file: '' };
  let callee = '';
  let isCostOfCall = false;
  for (const line of text.split('\n')) {
    const [, name = '', value = ''] = /^(fl|fn|fi|fe|cfn|calls)=(.*)$/.exec(line) ?? [];
    if (name === 'fl') begins = value;
    else if (name === 'fn') {
      part = { symbol: value, file: begins };
      profile.files.set(value, begins);
    } else if (name === 'fi' || name === 'fe') part = { ...part, file: value };
    else if (name === 'cfn') callee = value;
    else if (name === 'calls') {
      add(profile.calls, callKey(part, callee), parseInt(value, 10));
      isCostOfCall = true;
    } else if (/^\d/.test(line)) {
      // The line after `calls` has the cost of the called function.
      if (!isCostOfCall) add(profile.instructions, keyOf(part), Number(line.split(' ')[1] ?? 0));
      isCostOfCall = false;
    }
  }
  return profile;
}

/** The sum of two profiles. */
export function merged(first: Profile, second: Profile): Profile {
  const instructions = new Map(first.instructions);
  const calls = new Map(first.calls);
  for (const [key, count] of second.instructions) add(instructions, key, count);
  for (const [key, count] of second.calls) add(calls, key, count);
  return { files: new Map([...first.files, ...second.files]), instructions, calls };
}

function add(counts: Map<string, number>, key: string, count: number): void {
  counts.set(key, (counts.get(key) ?? 0) + count);
}

/** Whether a symbol is the function `name` itself, with or without the hash at its end, and not a closure in it. */
export function isFunction(symbol: string, name: string): boolean {
  return new RegExp(`(?<!\\d)${name.length}${name}(17h[0-9a-f]{16}E)?$`).test(symbol);
}
