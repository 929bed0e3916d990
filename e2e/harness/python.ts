// Programs from PyPI. Each has its own Python environment below target/, created once, with the versions of a `requirements.txt`.

import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';

const TARGET = resolve(import.meta.dirname, '../../target');
/** The environments of this process by name. Tests that run at the same time share the installation. */
const environments = new Map<string, Promise<string>>();

/**
 * The folder with the environment's programs; installs them if necessary. `name` is the folder below target/, `python` the interpreter of
 * the environment.
 */
export function installed(name: string, requirements: string, python = 'python3'): Promise<string> {
  const found = environments.get(name) ?? prepared(name, requirements, python);
  environments.set(name, found);
  return found;
}

async function prepared(name: string, requirements: string, python: string): Promise<string> {
  const folder = join(TARGET, name);
  const environment = join(folder, 'environment');
  const mark = join(folder, 'installed');
  const wanted = readFileSync(requirements, 'utf8');
  if (!existsSync(mark) || readFileSync(mark, 'utf8') !== wanted) {
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { recursive: true });
    await install(name, environment, requirements, python);
    writeFileSync(mark, wanted);
  }
  return join(environment, 'bin');
}

async function install(name: string, environment: string, requirements: string, python: string): Promise<void> {
  try {
    await promisify(execFile)(python, ['-m', 'venv', environment]);
  } catch {
    throw new Error(`${name} needs Python 3.10 or later with venv: apt-get install -y python3-venv`);
  }
  await promisify(execFile)(join(environment, 'bin/pip'), ['install', '--quiet', '--requirement', requirements]);
}
