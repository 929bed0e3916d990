// UTF-8 for engines without TextEncoder or TextDecoder, such as older ones of React Native. Where those exist they are used.

/** The UTF-8 bytes of `text`; half a surrogate pair becomes U+FFFD, as everywhere. */
export function encodeText(text: string): Uint8Array {
  if (typeof TextEncoder !== 'undefined') return new TextEncoder().encode(text);
  const escaped = encodeURIComponent(text.replace(/[\ud800-\udfff]/gu, '\ufffd'));
  const bytes = escaped.replace(/%(..)/g, (_, hex: string) => String.fromCharCode(parseInt(hex, 16)));
  return Uint8Array.from(bytes, (character) => character.charCodeAt(0));
}

/** The text of well-formed UTF-8, which is all that a server sends. */
export function decodeText(bytes: Uint8Array): string {
  if (typeof TextDecoder !== 'undefined') return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
  return decodeURIComponent(Array.from(bytes, (byte) => `%${(byte + 256).toString(16).slice(1)}`).join(''));
}
