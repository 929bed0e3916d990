// UTF-8 for engines without TextEncoder or TextDecoder, such as older ones of React Native. Where those exist they are used.

/** The UTF-8 bytes of `text`; half a surrogate pair becomes U+FFFD, as everywhere. */
export function encodeText(text: string): Uint8Array {
  if (typeof TextEncoder !== 'undefined') return new TextEncoder().encode(text);
  const bytes: number[] = [];
  for (const character of text) {
    let code = character.codePointAt(0) as number;
    if (code >= 0xd800 && code < 0xe000) code = 0xfffd;
    if (code < 0x80) bytes.push(code);
    else {
      const more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
      bytes.push(((0xff00 >> (more + 1)) & 0xff) | (code >> (6 * more)));
      for (let left = more - 1; left >= 0; left -= 1) bytes.push(0x80 | ((code >> (6 * left)) & 0x3f));
    }
  }
  return Uint8Array.from(bytes);
}

/** The text of well-formed UTF-8, which is all that a server sends. */
export function decodeText(bytes: Uint8Array): string {
  if (typeof TextDecoder !== 'undefined') return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
  let text = '';
  for (let at = 0; at < bytes.length; ) {
    const first = bytes[at++] as number;
    const more = first < 0x80 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    let code = more === 0 ? first : first & (0x3f >> more);
    for (let left = more; left > 0; left -= 1) code = (code << 6) | ((bytes[at++] as number) & 0x3f);
    text += String.fromCodePoint(code);
  }
  return text;
}
