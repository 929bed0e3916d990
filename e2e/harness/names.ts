// Names that no other test uses, so that tests can share a server and run in parallel.

let counter = 0;

/** A fresh name that starts with `prefix`; unique among all processes of a run. */
export function fresh(prefix: string): string {
  counter += 1;
  return `${prefix}/${process.pid}-${counter}`;
}

/** A fresh user id. */
export function freshUser(prefix = 'user'): string {
  counter += 1;
  return `${prefix}-${process.pid}-${counter}`;
}

/** A regular expression that matches exactly `text`. */
export function literally(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}
