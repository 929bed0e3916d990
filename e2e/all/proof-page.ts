// docs/proof.md as data: one line for each target of `make proof-NAME`, the newest run of it.

/** The page with this target's line at its end, and without the lines of earlier runs. */
export function withNewest(page: string, target: string, line: string): string {
  const earlier = (other: string): boolean => other.split(' | ')[1]?.startsWith(`\`${target}\``) ?? false;
  const others = page.split('\n').filter((other) => !earlier(other));
  return `${others.join('\n').trimEnd()}\n${line}\n`;
}
