// Texts that nobody else draws: keys of writes, ids of edits and tabs.

/** A text that no other client draws. Only `getRandomValues` is there without a secure context, and not everywhere else. */
export function draw(): string {
  const random = new Uint32Array(4);
  if (typeof crypto === 'undefined') random.forEach((_, i) => (random[i] = Math.random() * 2 ** 32));
  else crypto.getRandomValues(random);
  return random.join('-');
}
