// Random unique texts: keys of writes, ids of edits and tabs.

/**
 * A random text that no other client draws. Of `crypto`, only `getRandomValues` works without a secure context. Some runtimes have no
 * `crypto`.
 */
export function draw(): string {
  const random = new Uint32Array(4);
  return (typeof crypto === 'undefined' ? random.map(() => Math.random() * 2 ** 32) : crypto.getRandomValues(random)).join('-');
}
