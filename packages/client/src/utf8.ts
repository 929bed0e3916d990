// UTF-8 for engines without TextEncoder or TextDecoder, such as older versions of React Native. Where these classes exist, they are used.

/** The UTF-8 bytes of `text`; an unpaired surrogate becomes U+FFFD, as with TextEncoder. */
export function encodeText(text: string): Uint8Array {
  if (typeof TextEncoder !== 'undefined') return new TextEncoder().encode(text);
  const escaped = encodeURIComponent(text.replace(/[\ud800-\udfff]/gu, '\ufffd'));
  const bytes = escaped.replace(/%(..)/g, (_, hex: string) => String.fromCharCode(parseInt(hex, 16)));
  return Uint8Array.from(bytes, (character) => character.charCodeAt(0));
}

/** The text of well-formed UTF-8; the server sends nothing else. */
export function decodeText(bytes: Uint8Array): string {
  if (typeof TextDecoder !== 'undefined') return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
  return decodeURIComponent(Array.from(bytes, (byte) => `%${(byte + 256).toString(16).slice(1)}`).join(''));
}
