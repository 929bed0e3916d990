// The code blocks of the repository's documents.

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

export const REPOSITORY = resolve(import.meta.dirname, '../..');

/** The document whose blocks are the files and commands of one app. */
export const TUTORIAL = 'docs/tutorial.md';

/** The document that contains the app for Next.js: all its blocks with the name of a file. */
export const NEXT_GUIDE = 'docs/react.md';

export interface Block {
  document: string;
  /** The document and the line. */
  place: string;
  /** The first word after the fence; `indented` if there is no fence. */
  language: string;
  /** The second word, which selects the kind of check for this language; in the tutorial the name of the file. */
  word: string;
  text: string;
  /** The program's output, if the next block contains it. */
  expected?: string;
  /** The last configuration before the block. */
  configuration: string;
  /** The last rules file before the block. */
  rules: string;
}

/** Languages of programs; a block of text with the output may follow. */
const PROGRAMS = ['js', 'ts', 'py', 'sh'];

/** All documents, relative to the repository's root. */
export function documents(): string[] {
  const args = ['ls-files', '--cached', '--others', '--exclude-standard', '--deduplicate', '*.md'];
  const { status, stdout, stderr } = spawnSync('git', args, { cwd: REPOSITORY, encoding: 'utf8' });
  if (status !== 0) throw new Error(`git: ${stderr}`);
  return stdout.split('\n').filter((path) => path !== '');
}

export function blocksOf(document: string, content = readFileSync(join(REPOSITORY, document), 'utf8')): Block[] {
  const found: Block[] = [];
  let [configuration, rules] = ['', ''];
  let open: Block | undefined;
  let fence = '';
  let isFree = true;
  let isInList = false;
  content.split('\n').forEach((line, i) => {
    const begins = /^( *(```+|~~~+)) *(\S*) *(\S*)/.exec(line);
    if (open !== undefined) {
      if (line === fence) {
        if (open.language === 'yaml') configuration = open.text;
        if (open.language === 'yml' && isRules(open.text)) rules = open.text;
        const before = found.at(-2);
        if (open.language === 'text' && before !== undefined && PROGRAMS.includes(before.language)) {
          before.expected = open.text;
          found.pop();
        }
        open = undefined;
      } else {
        open.text += `${line}\n`;
      }
    } else if (begins !== null) {
      const [, mark = '', , language = '', word = ''] = begins;
      fence = mark;
      open = { document, place: `${document}:${i + 1}`, language, word, text: '', configuration, rules };
      found.push(open);
    } else if (isFree && !isInList && /^( {4}|\t)\S/.test(line)) {
      found.push({ document, place: `${document}:${i + 1}`, language: 'indented', word: '', text: line, configuration, rules });
    } else if (/^\S/.test(line)) {
      isInList = /^([-*+]|\d+\.) /.test(line);
    }
    isFree = line.trim() === '';
  });
  if (open !== undefined) throw new Error(`${open.place}: the block has no end`);
  return found;
}

/** Whether this is a rules file, and not a file of test cases, users or keys. */
export function isRules(text: string): boolean {
  return /^(record|event|rpc|presence):/m.test(text);
}
