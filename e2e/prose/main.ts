// `npm --prefix e2e run prose -- docs crates/tidewire-core/src/hub` prints the findings below these paths, `--banned` only those that
// fail the tests. Without paths it prints the rates of all files. `--lower` writes the lower allowances.

import { allowance, counted, files, findings, GROUPS, lower, rate, read, total } from './count.ts';

const args = process.argv.slice(2);
const flags = args.filter((arg) => arg.startsWith('--'));
const paths = args.filter((arg) => !arg.startsWith('--'));
const unknown = flags.filter((flag) => flag !== '--banned' && flag !== '--lower');
if (unknown.length > 0) throw new Error(`unknown ${unknown.join(' ')}; the options are --banned and --lower`);

const found = paths.length > 0 ? files(paths) : files();
if (found.length === 0) throw new Error(`no file at or below ${paths.join(', ')}; paths start at the repository's root`);
const text = read(found);
const all = findings(text);

if (paths.length > 0) {
  for (const { passage, phrase, isBanned, excerpt } of all) {
    if (isBanned || !flags.includes('--banned')) {
      console.log(`${passage.path}:${passage.line}: ${isBanned ? 'banned' : 'oblique'} "${phrase.name}": ${excerpt}\n    write ${phrase.instead}`);
    }
  }
}
for (const group of GROUPS) {
  const { words, count, per10000 } = rate(text, all, group);
  if (words > 0) console.log(`${group}: ${per10000.toFixed(1)} phrases per 10,000 words (${count} in ${words})`);
}
if (paths.length === 0) {
  const counts = counted(all);
  for (const [name, folders] of Object.entries(counts)) {
    const parts = Object.entries(folders).map(([folder, count]) => `${folder} ${count}`);
    console.log(`banned "${name}": ${parts.length > 0 ? parts.join(', ') : 'none'}`);
  }
  if (flags.includes('--lower')) console.log(`the allowances fall by ${lower(counts)} to ${total(allowance())}`);
  else console.log(`banned: ${total(counts)}, allowed ${total(allowance())}; --lower writes the lower allowances`);
}
