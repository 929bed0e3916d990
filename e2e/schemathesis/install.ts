// schemathesis in a Python environment under target/schemathesis, made once, with the versions of `requirements.txt`.

import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';

export const FOLDER = resolve(import.meta.dirname, '../../target/schemathesis');
const REQUIREMENTS = resolve(import.meta.dirname, 'requirements.txt');
const ENVIRONMENT = join(FOLDER, 'environment');
const MARK = join(FOLDER, 'installed');

/** The path of the program, which is installed if necessary. */
export async function installed(): Promise<string> {
  const wanted = readFileSync(REQUIREMENTS, 'utf8');
  if (!existsSync(MARK) || readFileSync(MARK, 'utf8') !== wanted) {
    await install();
    writeFileSync(MARK, wanted);
  }
  return join(ENVIRONMENT, 'bin/schemathesis');
}

async function install(): Promise<void> {
  rmSync(FOLDER, { recursive: true, force: true });
  mkdirSync(FOLDER, { recursive: true });
  try {
    await promisify(execFile)('python3', ['-m', 'venv', ENVIRONMENT]);
  } catch {
    throw new Error('schemathesis needs Python 3.10 or later with venv: apt-get install -y python3-venv');
  }
  await promisify(execFile)(join(ENVIRONMENT, 'bin/pip'), ['install', '--quiet', '--requirement', REQUIREMENTS]);
}
