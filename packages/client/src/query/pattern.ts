// Regular expressions of queries: the dialect of `spec/query.md`, translated so that JavaScript matches as the server does. Each literal
// character becomes an escape, so no construct reaches the engine that this file does not know.

import { LIMITS, byteLength } from './error.js';

/** Throws a text with the correction. */
function fail(what: string): never {
  throw new SyntaxError(what);
}

const literal = (character: string): string => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`;
const CONTROLS: Record<string, string> = { n: '\n', r: '\r', t: '\t', f: '\f', v: '\v' };
const PUNCTUATION = '^$\\.*+?()[]{}|/-# ';
const BOUNDARY = '(?:(?<=[0-9A-Za-z_])(?![0-9A-Za-z_])|(?<![0-9A-Za-z_])(?=[0-9A-Za-z_]))';

/** Whether a text matches. */
export function parsePattern(pattern: string, options: string): (text: string) => boolean {
  if (byteLength(pattern) > LIMITS.regexBytes) fail(`has more than ${LIMITS.regexBytes} bytes; shorten it`);
  if (/[^imsxguy]/.test(options)) fail('has an unknown option; use i, m, s and x');
  const source = translate(pattern, options.includes('m'), options.includes('s'), options.includes('x'));
  const regex = new RegExp(source, options.includes('i') ? 'iu' : 'u');
  return (text) => byteLength(text) <= LIMITS.regexTextBytes && regex.test(text);
}

function translate(pattern: string, multiLine: boolean, dotAll: boolean, extended: boolean): string {
  const characters = [...pattern];
  let at = 0;
  let open = 0;
  let out = '';
  let canRepeat = false;
  const skip = (character: string): boolean => characters[at] === character && (at += 1) > 0;

  /** After a backslash: a literal character, or a class, or a boundary. */
  const escape = (): { literal?: string; set?: string; boundary?: string } => {
    const letter = characters[at] ?? fail('ends with a backslash; write "\\\\" for the character');
    at += 1;
    if (/^[dDwWsS]$/.test(letter)) return { set: `\\${letter}` };
    if (letter === 'b') return { boundary: BOUNDARY };
    if (letter === 'x' || letter === 'u') {
      const length = letter === 'x' ? 2 : 4;
      const digits = characters.slice(at, at + length).join('');
      if (!/^[0-9a-f]+$/i.test(digits) || digits.length !== length) fail(`has an escape without ${length} hexadecimal digits; add them`);
      at += length;
      const code = Number.parseInt(digits, 16);
      if ((code & 0xf800) === 0xd800) fail('has an escape of a surrogate; write the character');
      return { literal: String.fromCodePoint(code) };
    }
    const control = Object.hasOwn(CONTROLS, letter) ? CONTROLS[letter] : undefined;
    if (control !== undefined) return { literal: control };
    if (PUNCTUATION.includes(letter)) return { literal: letter };
    return fail(`has the escape "\\${letter}", which is not supported; remove it`);
  };

  const digits = (): number => {
    let text = '';
    while (/^[0-9]$/.test(characters[at] ?? '')) text += characters[at++];
    if (text === '' || Number(text) > 1000) fail('has a repetition whose count is not a number up to 1000; correct it');
    out += text;
    return Number(text);
  };

  const repetition = (first: string): void => {
    out += first;
    if (first === '{') {
      const least = digits();
      if (skip(',')) {
        out += ',';
        if (characters[at] !== '}' && digits() < least) fail('has a repetition whose maximum is below its minimum; exchange them');
      }
      if (!skip('}')) fail('has a "{" without "n}", "n,}" or "n,m}"; write "\\{" for the character');
      out += '}';
    }
    if (skip('?')) out += '?';
  };

  /** A character of a class, or a class within it. */
  const inClass = (): { literal?: string; set?: string } => {
    const character = characters[at] ?? fail('has an open class; close it with "]"');
    at += 1;
    if (character === '[') fail('has a "[" in a class; write "\\[" for the character');
    if (character !== '\\') return { literal: character };
    const escaped = escape();
    return escaped.boundary === undefined ? escaped : fail('has "\\b" in a class; remove it');
  };

  const characterClass = (): void => {
    out += '[';
    if (skip('^')) out += '^';
    if (characters[at] === ']') fail('has an empty class; write "\\]" for the character');
    while (!skip(']')) {
      const low = inClass();
      out += low.set ?? literal(low.literal ?? '');
      if (!skip('-')) continue;
      if (characters[at] === ']') {
        out += literal('-');
        continue;
      }
      if (low.set !== undefined) fail('has a range that begins with a class; write "\\-" for the character');
      const high = inClass();
      if (high.set !== undefined) fail('has a range that ends with a class; write "\\-" for the character');
      if ((high.literal?.codePointAt(0) ?? 0) < (low.literal?.codePointAt(0) ?? 0)) fail('has a range whose end is before its start; exchange them');
      out += `-${literal(high.literal ?? '')}`;
    }
    out += ']';
  };

  while (at < characters.length) {
    const character = characters[at++] as string;
    if (extended && /^[ \t\n\v\f\r]$/.test(character)) continue;
    if (extended && character === '#') {
      while (at < characters.length && characters[at++] !== '\n');
      continue;
    }
    switch (character) {
      case '^':
        out += multiLine ? '(?:^|(?<=\\n))' : '^';
        canRepeat = false;
        break;
      case '$':
        out += multiLine ? '(?=\\n|$)' : '$';
        canRepeat = false;
        break;
      case '.':
        out += dotAll ? '[^]' : '[^\\n]';
        canRepeat = true;
        break;
      case '(':
        if (skip('?') && !skip(':')) fail('has a group with "(?"; only "(?:" is supported');
        out += '(?:';
        open += 1;
        canRepeat = false;
        break;
      case ')':
        open -= 1;
        if (open < 0) fail('has a closing parenthesis too many; write "\\)" for the character');
        out += ')';
        canRepeat = true;
        break;
      case '|':
        out += '|';
        canRepeat = false;
        break;
      case '*':
      case '+':
      case '?':
      case '{':
        if (!canRepeat) fail(`has nothing that "${character}" repeats; write "\\${character}" for the character`);
        repetition(character);
        canRepeat = false;
        break;
      case '[':
        characterClass();
        canRepeat = true;
        break;
      case ']':
      case '}':
        fail(`has a "${character}" that closes nothing; write "\\${character}" for the character`);
        break;
      default: {
        const escaped = character === '\\' ? escape() : { literal: character };
        out += escaped.set ?? escaped.boundary ?? literal(escaped.literal ?? '');
        canRepeat = escaped.boundary === undefined;
      }
    }
  }
  if (open > 0) fail('has an open group; close it with ")"');
  return out;
}
