// Autobahn's test suite in a Python 2.7 environment under target/autobahn, created once. It runs only on Python 2.7; on
// a machine without it, the installation fails with a message.

import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';

/** The last virtualenv that supports Python 2.7. */
const VIRTUALENV = 'virtualenv==20.15.1';
const SUITE = 'autobahntestsuite==25.10.1';

export const FOLDER = resolve(import.meta.dirname, '../../target/autobahn');
const ENVIRONMENT = join(FOLDER, 'environment');
const MARK = join(FOLDER, 'installed');

/** The path of `wstest`; installs it if necessary. */
export async function installed(): Promise<string> {
  const wanted = `${VIRTUALENV} ${SUITE}\n`;
  if (!existsSync(MARK) || readFileSync(MARK, 'utf8') !== wanted) {
    await requirePython27(process.env);
    await install();
    writeFileSync(MARK, wanted);
  }
  return join(ENVIRONMENT, 'bin/wstest');
}

/** Fails with a message if Python 2.7 is missing. */
export async function requirePython27(env: NodeJS.ProcessEnv): Promise<void> {
  try {
    await python(env, '-c', 'import sys; assert sys.version_info[:2] == (2, 7)');
  } catch {
    throw new Error("Autobahn's test suite needs Python 2.7, which this machine does not have: pyenv install 2.7.18");
  }
}

async function install(): Promise<void> {
  rmSync(FOLDER, { recursive: true, force: true });
  mkdirSync(FOLDER, { recursive: true });
  const tool = join(FOLDER, 'virtualenv');
  await python(process.env, '-m', 'pip', 'install', '--quiet', '--target', tool, VIRTUALENV);
  await python({ ...process.env, PYTHONPATH: tool }, '-m', 'virtualenv', '--quiet', ENVIRONMENT);
  await promisify(execFile)(join(ENVIRONMENT, 'bin/pip'), ['install', '--quiet', SUITE]);
}

async function python(env: NodeJS.ProcessEnv, ...args: string[]): Promise<void> {
  // pyenv's python2.7 works only if a version is selected.
  await promisify(execFile)('python2.7', args, { env: { PYENV_VERSION: '2.7.18', ...env } });
}
