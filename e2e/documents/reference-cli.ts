// `docs/cli.md`, generated from the program's `--help` output.

import { spawnSync } from 'node:child_process';
import { binary } from '../harness/server.ts';

/** An argument or option with its text. */
type Row = [name: string, text: string];

interface Command {
  words: string[];
  about: string;
  usage: string;
  arguments: Row[];
  options: Row[];
}

/** Options that every command has. */
const COMMON = ['-h, --help', '-V, --version'];

export function cliReference(): string {
  const page = [
    '# The command line',
    '',
    '`npm --prefix e2e run references` generates this page from `tidewire COMMAND --help`.',
    '',
    'Every command also takes `--config FILE` (the configuration, by default `tidewire.yml` if it exists), `--set NAME=VALUE` for any option of',
    '[configuration.md](configuration.md), and the flag of each option. `tidewire help options` lists the options, `tidewire help COMMAND` explains a',
    'command. [errors.md](errors.md#exit-codes) lists the exit codes.',
  ];
  for (const command of commands([])) {
    page.push('', `## \`${['tidewire', ...command.words].join(' ')}\``, '', `${command.about}.`, '', `Usage: \`${command.usage}\``);
    const rows = [...command.arguments, ...command.options];
    if (rows.length > 0) page.push('', '| Argument | Means |', '|---|---|', ...rows.map(([name, text]) => `| \`${name.replaceAll('|', '\\|')}\` | ${text.replaceAll('|', '\\|')} |`));
  }
  return `${page.join('\n')}\n`;
}

/** The command with these words and its subcommands, without `help`. */
function commands(words: string[]): Command[] {
  const { stdout, status, stderr } = spawnSync(binary(), [...words, '--help'], { encoding: 'utf8' });
  if (status !== 0) throw new Error(`tidewire ${words.join(' ')} --help: ${stderr}`);
  const below = rows(stdout, 'Commands').map(([name]) => name).filter((name) => name !== 'help');
  const deeper = below.flatMap((name) => commands([...words, name]));
  if (words.length > 0 && below.length > 0) return deeper;
  const options = rows(stdout, 'Options').filter(([name]) => !COMMON.includes(name));
  if (words.length === 0) options.push(...rows(stdout, 'Configuration'));
  const command: Command = {
    words,
    about: stdout.slice(0, stdout.indexOf('\n')),
    usage: /^Usage: (.*)$/m.exec(stdout)?.[1] ?? '',
    arguments: rows(stdout, 'Arguments'),
    options,
  };
  return [command, ...deeper];
}

/** The entries below a heading: names with their texts, which follow the name or are below it. */
function rows(help: string, heading: string): Row[] {
  const found: Row[] = [];
  const start = help.indexOf(`\n${heading}:\n`);
  if (start < 0) return found;
  for (const line of help.slice(start + heading.length + 3).split('\n')) {
    const entry = /^ {2,6}(\S.*?)(?: {2,}(.*))?$/.exec(line);
    if (/^\S/.test(line)) break;
    const last = found.at(-1);
    if (entry?.[1] !== undefined) found.push([entry[1], entry[2] ?? '']);
    else if (last !== undefined && line.trim() !== '') last[1] = `${last[1]} ${line.trim()}`.trim();
  }
  return found;
}
