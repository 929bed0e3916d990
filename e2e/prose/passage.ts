// The prose of the repository's files: comments, documents, and the texts that the programs print. Code is left out, also code
// within a sentence, and a passage is one line of text, so that a phrase is found across the breaks of lines.

export type Group = 'comments' | 'docs' | 'errors and help';

export interface Passage {
  path: string;
  /** Of the first word. */
  line: number;
  group: Group;
  text: string;
}

/** What stands for code within a sentence. It has no letters, so that it counts as no word. */
const CODE = '‹›';

/** A comment or a string of a source file. */
interface Token {
  kind: 'comment' | 'string';
  line: number;
  text: string;
  /** Where it begins and ends. */
  from: number;
  to: number;
}

/** Texts of fewer words are names, keys and addresses. */
const STRING_WORDS_MIN = 3;

/** The passages of a file; none if it is no kind of file that a person reads. */
export function passages(path: string, content: string): Passage[] {
  const file = path.split('/').at(-1) ?? path;
  const ending = file.includes('.') ? (file.split('.').at(-1) ?? '') : file;
  switch (ending) {
    case 'rs':
      return sourcePassages(path, content, 'rust');
    case 'ts':
    case 'tsx':
    case 'js':
    case 'mjs':
    case 'cjs':
    case 'java':
    case 'css':
      return sourcePassages(path, content, 'script');
    case 'md':
      return documentPassages(path, content);
    case 'html':
      return htmlPassages(path, content);
    case 'toml':
      return [...hashPassages(path, content), ...tomlTexts(path, content)];
    case 'yml':
    case 'py':
    case 'sh':
    case 'service':
    case 'Dockerfile':
    case 'Makefile':
      return hashPassages(path, content);
    case 'json':
      return file === 'openapi.json' ? describedPassages(path, content) : [];
    default:
      return [];
  }
}

export function countWords(text: string): number {
  return text.match(/\p{L}[\p{L}'’-]*/gu)?.length ?? 0;
}

function sourcePassages(path: string, content: string, language: 'rust' | 'script'): Passage[] {
  const isTest = /(^|\/)(tests?|e2e|benches|fuzz_targets)\/|\.test\.tsx?$|(^|\/)tests\.rs$/.test(path);
  const found: Passage[] = [];
  let open: { passage: Passage; to: number } | undefined;
  const tests = language === 'rust' ? content.search(/^#\[cfg\(test\)\]\s*\n\s*mod /m) : -1;
  const strings: Token[] = [];
  let isCode = false;
  for (const token of tokens(content, language)) {
    if (token.kind === 'string') {
      const isProduct = !isTest && (tests < 0 || token.from < tests);
      if (isProduct && isSentence(token.text)) strings.push(token);
      continue;
    }
    // Comments on lines that follow each other are one passage; an empty line of a comment ends it, as a list's new item does.
    const gap = open === undefined ? '' : content.slice(open.to, token.from);
    const follows = open !== undefined && /^\s*$/.test(gap) && gap.split('\n').length <= 2;
    let first = true;
    if (!follows) isCode = false;
    for (const [i, line] of commentLines(token.text).entries()) {
      if (/^\s*```/.test(line)) isCode = !isCode;
      const text = isCode || /^\s*```/.test(line) ? '' : plain(line);
      const begins = text === '' || /^\s*([-*]|\d+\.|@\w+|#+) /.test(line);
      if (begins || (first && !follows) || open === undefined) {
        open = { passage: { path, line: token.line + i, group: 'comments', text }, to: token.to };
        found.push(open.passage);
      } else {
        open.passage.text = `${open.passage.text} ${text}`.trim();
      }
      open.to = token.to;
      first = false;
    }
  }
  for (const { line, text } of strings) found.push({ path, line, group: 'errors and help', text: plain(text) });
  if (path.endsWith('.tsx') && !isTest) found.push(...elementTexts(path, content));
  return found.filter(({ text }) => text !== '');
}

/** Whether a string is a text for people. */
function isSentence(text: string): boolean {
  if (countWords(text) < STRING_WORDS_MIN || !text.includes(' ')) return false;
  // Queries, paths, lists of classes and programs.
  return !/^\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|PRAGMA|WITH|DROP|BEGIN)\b/.test(text) && !/[{};]\s*\n/.test(text);
}

/** The lines of a comment without its marks. */
function commentLines(comment: string): string[] {
  if (comment.startsWith('//')) return [comment.replace(/^\/\/[/!]?/, '')];
  return comment.replace(/^\/\*+!?/, '').replace(/\*+\/$/, '').split('\n').map((line) => line.replace(/^\s*\*(?!\*) ?/, ' '));
}

/** Comments and strings, in their order. */
function* tokens(content: string, language: 'rust' | 'script'): Generator<Token> {
  let line = 1;
  let lineAt = 0;
  const lineOf = (at: number): number => {
    for (; lineAt < at; lineAt += 1) if (content[lineAt] === '\n') line += 1;
    return line;
  };
  /** The templates around this place, each with its text so far and the braces that are open within its `${`. */
  const templates: { from: number; text: string; braces: number }[] = [];
  let at = 0;
  /** The last character that is no space. */
  let before = '';
  while (at < content.length) {
    const rest = content.slice(at, at + 2);
    const here = rest[0] ?? '';
    let to = at + 1;
    if (rest === '//') {
      to = content.indexOf('\n', at);
      if (to < 0) to = content.length;
      yield { kind: 'comment', line: lineOf(at), text: content.slice(at, to), from: at, to };
      at = to;
      continue;
    }
    if (rest === '/*') {
      to = content.indexOf('*/', at + 2) + 2;
      if (to < 2) to = content.length;
      yield { kind: 'comment', line: lineOf(at), text: content.slice(at, to), from: at, to };
      at = to;
      continue;
    }
    const raw = language === 'rust' && here === 'r' && !/\w/.test(content[at - 1] ?? '') ? /^r(#*)"/.exec(content.slice(at, at + 8)) : null;
    if (raw !== null) {
      const end = `"${raw[1] ?? ''}`;
      const found = content.indexOf(end, at + raw[0].length);
      to = found < 0 ? content.length : found + end.length;
      yield { kind: 'string', line: lineOf(at), text: content.slice(at + raw[0].length, to - end.length), from: at, to };
    } else if (here === '"' || (here === "'" && language === 'script')) {
      to = afterString(content, at, here);
      yield { kind: 'string', line: lineOf(at), text: unescaped(content.slice(at + 1, to - 1)), from: at, to };
    } else if (here === "'" && language === 'rust') {
      to = at + (/^'(\\(u\{\w+\}|x\w\w|.)|[^'\\])'/u.exec(content.slice(at, at + 14))?.[0].length ?? 1);
    } else if (language === 'script' && (here === '`' || (here === '}' && templates.at(-1)?.braces === 0))) {
      const template = here === '}' ? templates.pop() : undefined;
      to = at + 1;
      while (to < content.length && content[to] !== '`' && content.slice(to, to + 2) !== '${') to += content[to] === '\\' ? 2 : 1;
      const from = template?.from ?? at;
      const text = `${template?.text ?? ''}${unescaped(content.slice(at + 1, to))}`;
      if (content[to] === '$') {
        templates.push({ from, text: `${text}${CODE}`, braces: 0 });
        to += 2;
      } else {
        to += 1;
        yield { kind: 'string', line: lineOf(at), text, from, to };
      }
    } else if (language === 'script' && here === '/' && (before === '' || '(,=:[!&|?{};>'.includes(before) || /\breturn\s*$/.test(content.slice(at - 8, at)))) {
      const regex = /^\/(\\.|\[(\\.|[^\]\\\n])*\]|[^/\\[\n])+\//.exec(content.slice(at, at + 400));
      if (regex !== null && before !== '>') to = at + regex[0].length;
    } else if (here === '{' || here === '}') {
      const template = templates.at(-1);
      if (template !== undefined) template.braces += here === '{' ? 1 : -1;
    }
    if (here.trim() !== '') before = here;
    at = to;
  }
}

function afterString(content: string, from: number, quote: string): number {
  let at = from + 1;
  while (at < content.length && content[at] !== quote) at += content[at] === '\\' ? 2 : 1;
  return at + 1;
}

function unescaped(text: string): string {
  return text.replace(/\\\r?\n\s*/g, '').replace(/\\[nrt]/g, ' ').replace(/\\(["'`\\])/g, '$1').replace(/\\u\{?\w+\}?/g, ' ');
}

/** Texts between the tags of a page's elements. */
function elementTexts(path: string, content: string): Passage[] {
  const found: Passage[] = [];
  const code = content.replace(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, (comment) => comment.replace(/[^\n]/g, ' '));
  for (const match of code.matchAll(/(?<=[\w"'}/]>|^\s*)([A-Z‹]?[^<>{}=;()`]{12,}?)(?=<|\{)/gm)) {
    const text = plain(match[1] ?? '');
    if (countWords(text) >= STRING_WORDS_MIN && !/^(import|export|const|return|type|interface)\b/.test(text) && !/['"]/.test(text)) {
      found.push({ path, line: code.slice(0, match.index + match[0].search(/\S/)).split('\n').length, group: 'errors and help', text });
    }
  }
  return found;
}

/** A line without its code, addresses and marks. */
function plain(line: string): string {
  return line
    .replace(/``[^`]+``|`[^`]*`/g, CODE)
    .replace(/!?\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])?/g, '$1')
    .replace(/https?:\S+/g, CODE)
    .replace(/<\/?[a-zA-Z][^>]*>/g, ' ')
    .replace(/\*\*|__|(?<=\s)[*_](?=\w)|(?<=\w)[*_](?=[\s.,:;])/g, '')
    .replace(/\s+/g, ' ')
    .trim();
}

function documentPassages(path: string, content: string): Passage[] {
  const found: Passage[] = [];
  let open: Passage | undefined;
  let fence = '';
  const close = (): void => {
    if (open !== undefined) found.push({ ...open, text: plain(open.text) });
    open = undefined;
  };
  content.split('\n').forEach((line, i) => {
    const mark = /^\s*(```+|~~~+)/.exec(line)?.[1] ?? '';
    if (fence !== '') {
      if (mark.startsWith(fence)) fence = '';
      return;
    }
    if (mark !== '') {
      close();
      fence = mark;
      return;
    }
    // A cell of a table, a heading and an item of a list are passages of their own.
    if (/^\s*\|/.test(line)) {
      close();
      for (const cell of line.replaceAll('\\|', ' ').split('|')) found.push({ path, line: i + 1, group: 'docs', text: plain(cell) });
      return;
    }
    if (line.trim() === '' || /^\s*([-*+]|\d+\.|#+|>) /.test(line)) close();
    const text = line.replace(/^\s*([-*+]|\d+\.|#+|>) /, '');
    if (text.trim() === '') return;
    if (open === undefined) open = { path, line: i + 1, group: 'docs', text };
    else open.text += ` ${text}`;
    if (/^#+ /.test(line)) close();
  });
  close();
  return found.filter(({ text }) => countWords(text) > 0);
}

function htmlPassages(path: string, content: string): Passage[] {
  const bare = content.replace(/<(script|style)\b[\s\S]*?<\/\1>|<!--[\s\S]*?-->/g, (found) => found.replace(/[^\n]/g, ' '));
  return [...bare.matchAll(/>([^<]+)|(?:content|title|alt|aria-label|placeholder)="([^"]+)"/g)]
    .map((match): Passage => ({ path, line: bare.slice(0, match.index).split('\n').length, group: 'errors and help', text: plain(match[1] ?? match[2] ?? '') }))
    .filter(({ text }) => countWords(text) >= STRING_WORDS_MIN);
}

/** Comments that begin with `#`, and the helps behind the commands of a Makefile. */
function hashPassages(path: string, content: string): Passage[] {
  const found: Passage[] = [];
  let open: Passage | undefined;
  content.split('\n').forEach((line, i) => {
    const comment = /^\s*#+!?\s?(.*)$/.exec(line);
    const help = /^[a-z-]+:.*## (.*)$/.exec(line);
    if (help !== null) found.push({ path, line: i + 1, group: 'errors and help', text: plain(help[1] ?? '') });
    if (comment === null || comment[1] === '') {
      open = undefined;
      return;
    }
    const text = plain(comment[1] ?? '');
    if (open === undefined) {
      open = { path, line: i + 1, group: 'comments', text };
      found.push(open);
    } else {
      open.text += ` ${text}`;
    }
  });
  return found.filter(({ text }) => countWords(text) > 0);
}

/** The texts of `spec/errors.toml`. */
function tomlTexts(path: string, content: string): Passage[] {
  return content.split('\n').flatMap((line, i): Passage[] => {
    const text = /^(?:cause|remedy|name|description) = "(.*)"$/.exec(line)?.[1];
    if (text === undefined || countWords(text) === 0 || !/[ ]/.test(text)) return [];
    return [{ path, line: i + 1, group: 'errors and help', text: plain(unescaped(text)) }];
  });
}

/** The texts of the description of the HTTP API, which its reference shows. */
function describedPassages(path: string, content: string): Passage[] {
  return content.split('\n').flatMap((line, i) =>
    [...line.matchAll(/"(?:description|summary|title)": *"((?:\\.|[^"\\])*)"/g)].map(
      (match): Passage => ({ path, line: i + 1, group: 'errors and help', text: plain(unescaped(match[1] ?? '')) }),
    ),
  );
}
