// Edits docs/proof.md, which has one line for the newest run of each target `make proof-NAME`.

/** Returns the page with this target's line at its end and without the lines of the target's earlier runs. */
export function withNewest(page: string, target: string, line: string): string {
  const earlier = (other: string): boolean => other.split(' | ')[1]?.startsWith(`\`${target}\``) ?? false;
  const others = page.split('\n').filter((other) => !earlier(other));
  return `${others.join('\n').trimEnd()}\n${line}\n`;
}
