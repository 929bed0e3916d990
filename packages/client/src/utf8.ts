// UTF-8 for engines without TextEncoder or TextDecoder, such as older versions of React Native. Where these classes exist, they are used.

/** The UTF-8 bytes of `text`; an unpaired surrogate becomes U+FFFD, as with TextEncoder. */
export function encodeText(text: string): Uint8Array {
  if (typeof TextEncoder !== 'undefined') return new TextEncoder().encode(text);
  const bytes = unescape(encodeURIComponent(text.replace(/[\ud800-\udfff]/gu, '\ufffd')));
  return Uint8Array.from(bytes, (character) => character.charCodeAt(0));
}

/** The text of well-formed UTF-8; the server sends nothing else. */
export function decodeText(bytes: Uint8Array): string {
  if (typeof TextDecoder !== 'undefined') return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
  return decodeURIComponent(escape(Array.from(bytes, (byte) => String.fromCharCode(byte)).join('')));
}
