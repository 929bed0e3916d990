// Random unique texts: keys of writes, ids of edits and tabs.

/**
 * A random text that no other client draws. Of `crypto`, only `getRandomValues` works without a secure context. Some runtimes have no
 * `crypto`.
 */
export function draw(): string {
  const random = new Uint32Array(4);
  if (typeof crypto === 'undefined') random.forEach((_, i) => (random[i] = Math.random() * 2 ** 32));
  else crypto.getRandomValues(random);
  return random.join('-');
}
