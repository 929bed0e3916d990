// Counts the phrases of `phrase.ts` in the files of the repository.

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { REPOSITORY } from '../documents/block.ts';
import { countWords, passages, type Group, type Passage } from './passage.ts';
import { BANNED, OBLIQUE, type Phrase } from './phrase.ts';

export const GROUPS: Group[] = ['comments', 'docs', 'errors and help'];

export interface Finding {
  passage: Passage;
  phrase: Phrase;
  isBanned: boolean;
  /** The phrase and its surroundings. */
  excerpt: string;
}

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

/** A finding as a line for a person. */
export function format({ passage, phrase, isBanned, excerpt }: Finding): string {
  return `${passage.path}:${passage.line}: ${isBanned ? 'banned' : 'oblique'} "${phrase.name}": ${excerpt}\n    write ${phrase.instead}`;
}

function git(...args: string[]): string {
  const { status, stdout, stderr } = spawnSync('git', args, { cwd: REPOSITORY, encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 });
  if (status !== 0) throw new Error(`git ${args.join(' ')}: ${stderr}`);
  return stdout;
}
