// The Pythons of this machine on which the package must run, each with an environment that has its dependencies.

import { readdirSync } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import { installed } from '../harness/python.ts';

/** The folder of the package. */
export const PACKAGE = resolve(import.meta.dirname, '../../packages/python');
/** The versions that the package supports. */
const VERSIONS = ['3.10', '3.11', '3.12', '3.13'];

export interface Python {
  version: string;
  program: string;
}

/** Folders with programs: first the folders of Debian, then the ones that pyenv has built. */
function folders(): string[] {
  const pyenv = join(process.env['PYENV_ROOT'] ?? join(homedir(), '.pyenv'), 'versions');
  const built = namesIn(pyenv).map((name) => join(pyenv, name, 'bin'));
  // The shims of pyenv exist for all versions, but run only the selected ones.
  const own = (process.env['PATH'] ?? '').split(delimiter).filter((folder) => !folder.includes('pyenv'));
  return ['/usr/bin', ...own, ...built];
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

/** The Pythons that this machine has, one of each supported version. */
export function pythons(): Python[] {
  const all = folders();
  return VERSIONS.flatMap((version) => {
    const name = `python${version}`;
    const folder = all.find((one) => namesIn(one).includes(name));
    return folder === undefined ? [] : [{ version, program: join(folder, name) }];
  });
}

/** The newest supported Python of this machine. */
export function newest(): Python {
  const found = pythons().at(-1);
  if (found === undefined) throw new Error('install python3 and python3-venv, version 3.10 or later');
  return found;
}

/** The folder with mypy and the programs that build a package. */
export function tools(): Promise<string> {
  return installed('python-tools', join(import.meta.dirname, 'tools.txt'), newest().program);
}

/** The interpreter of an environment with the dependencies of the package, and the variables with which it finds the package's source. */
export async function interpreter({ version, program }: Python): Promise<{ command: string; env: NodeJS.ProcessEnv }> {
  const folder = await installed(`python-${version}`, join(import.meta.dirname, 'requirements.txt'), program);
  return { command: join(folder, 'python'), env: { ...process.env, PYTHONPATH: join(PACKAGE, 'src'), PYTHONDONTWRITEBYTECODE: '1' } };
}
