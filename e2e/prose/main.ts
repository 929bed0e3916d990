// `npm --prefix e2e run prose -- docs crates/tidewire-core/src/hub` prints the findings below these paths, or of all files, and the
// rates.

import { files, findings, format, GROUPS, rate, read } from './count.ts';

const paths = process.argv.slice(2);
const found = files(paths);
if (found.length === 0) throw new Error(`no file at or below ${paths.join(', ')}; paths start at the repository's root`);
const text = read(found);
const all = findings(text);

for (const finding of all) console.log(format(finding));
for (const group of GROUPS) {
  const { words, count, per10000 } = rate(text, all, group);
  if (words > 0) console.log(`${group}: ${per10000.toFixed(1)} phrases per 10,000 words (${count} in ${words})`);
}
