// Counts the phrases of `phrase.ts` in the files of the repository, and compares the banned ones with what `allowance.json` still
// allows each folder. The allowances only fall.

import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { REPOSITORY } from '../documents/block.ts';
import { countWords, passages, type Group, type Passage } from './passage.ts';
import { BANNED, OBLIQUE, type Phrase } from './phrase.ts';

export const GROUPS: Group[] = ['comments', 'docs', 'errors and help'];

/** How often each banned phrase may still occur in each top-level folder: `allowance[phrase][folder]`. */
export type Allowance = Record<string, Record<string, number>>;

export interface Finding {
  passage: Passage;
  phrase: Phrase;
  isBanned: boolean;
  /** The phrase and its surroundings. */
  excerpt: string;
}

const ALLOWANCE = 'e2e/prose/allowance.json';
/** Builds, inputs of programs, and the list itself. */
const EXCLUDED = /^fuzz\/corpus\/|^crates\/[^/]+\/pages\/|^spec\/(vectors|fixtures)\/|^e2e\/prose\//;
const EXCERPT_CHARACTERS = 45;

/** The files of the repository that are at or below one of `paths`; all without any. */
export function files(paths: string[] = []): string[] {
  const listed = git('ls-files', '--cached', '--others', '--exclude-standard', '--deduplicate', '--', ...paths);
  const deleted = new Set(git('ls-files', '--deleted').split('\n'));
  return listed.split('\n').filter((path) => path !== '' && !EXCLUDED.test(path) && !deleted.has(path));
}

export function read(paths: string[]): Passage[] {
  return paths.flatMap((path) => passages(path, readFileSync(join(REPOSITORY, path), 'utf8')));
}

export function findings(text: Passage[]): Finding[] {
  return text.flatMap((passage) => [...inPassage(passage, BANNED, true), ...inPassage(passage, OBLIQUE, false)]);
}

function inPassage(passage: Passage, phrases: Phrase[], isBanned: boolean): Finding[] {
  return phrases.flatMap((phrase) =>
    [...passage.text.matchAll(phrase.pattern)].map(({ index, 0: found }): Finding => {
      const from = Math.max(0, index - EXCERPT_CHARACTERS);
      const excerpt = passage.text.slice(from, index + found.length + EXCERPT_CHARACTERS);
      return { passage, phrase, isBanned, excerpt: `${from > 0 ? '…' : ''}${excerpt}` };
    }),
  );
}

/** Words and findings of a group. */
export function rate(text: Passage[], found: Finding[], group: Group): { words: number; count: number; per10000: number } {
  const words = text.filter((passage) => passage.group === group).reduce((sum, { text }) => sum + countWords(text), 0);
  const count = found.filter(({ passage }) => passage.group === group).length;
  return { words, count, per10000: words === 0 ? 0 : (count / words) * 10_000 };
}

/** What a run over all files found of the banned phrases, in the form of the allowance. */
export function counted(found: Finding[]): Allowance {
  const counts: Allowance = {};
  for (const { name } of BANNED) counts[name] = {};
  for (const { passage, phrase, isBanned } of found) {
    const folders = counts[phrase.name];
    if (!isBanned || folders === undefined) continue;
    const folder = topFolder(passage.path);
    folders[folder] = (folders[folder] ?? 0) + 1;
  }
  return counts;
}

/** Crates may be split and folders renamed: below the top folder an allowance moves with its files. */
function topFolder(path: string): string {
  return path.includes('/') ? (path.split('/')[0] ?? path) : '.';
}

export function allowance(): Allowance {
  return JSON.parse(readFileSync(join(REPOSITORY, ALLOWANCE), 'utf8')) as Allowance;
}

/** The allowance of an earlier commit; none where it has no such file. */
export function allowanceAt(commit: string): Allowance | undefined {
  const { status, stdout } = spawnSync('git', ['show', `${commit}:${ALLOWANCE}`], { cwd: REPOSITORY, encoding: 'utf8' });
  return status === 0 ? (JSON.parse(stdout) as Allowance) : undefined;
}

/** Each count of `counts` that is above that of `allowed`. A phrase that is new in the list has no limit yet. */
export function above(counts: Allowance, allowed: Allowance, isNewAllowed = false): string[] {
  return Object.entries(counts).flatMap(([name, folders]) => {
    const limits = allowed[name];
    if (limits === undefined && isNewAllowed) return [];
    return Object.entries(folders)
      .filter(([folder, count]) => count > (limits?.[folder] ?? 0))
      .map(([folder, count]) => `"${name}" occurs ${count} times in ${folder}, and ${limits?.[folder] ?? 0} are allowed`);
  });
}

/** Lowers the allowances to the counts, and adds phrases that are new in the list. Returns how many fewer are allowed. */
export function lower(counts: Allowance): number {
  const before = allowance();
  const after: Allowance = {};
  for (const { name } of BANNED) {
    const limits = before[name];
    const folders = Object.entries(counts[name] ?? {}).map(([folder, count]): [string, number] => {
      return [folder, limits === undefined ? count : Math.min(count, limits[folder] ?? 0)];
    });
    const left = folders.filter(([, count]) => count > 0).sort(([one], [other]) => (one < other ? -1 : 1));
    if (left.length > 0 || limits === undefined) after[name] = Object.fromEntries(left);
    else after[name] = {};
  }
  writeFileSync(join(REPOSITORY, ALLOWANCE), `${JSON.stringify(after, null, 2)}\n`);
  return total(before) - total(after);
}

export function total(counts: Allowance): number {
  return Object.values(counts).flatMap((folders) => Object.values(folders)).reduce((sum, count) => sum + count, 0);
}

function git(...args: string[]): string {
  const { status, stdout, stderr } = spawnSync('git', args, { cwd: REPOSITORY, encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 });
  if (status !== 0) throw new Error(`git ${args.join(' ')}: ${stderr}`);
  return stdout;
}
