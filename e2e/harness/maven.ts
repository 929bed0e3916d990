// The libraries of Java programs, which Maven fetches.

import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { run } from './program.ts';

/** The folder with the libraries that `pom.xml` in `folder` names. Fetches them, unless they are there. */
export function mavenLibraries(folder: string): string {
  const libraries = join(folder, 'target/lib');
  if (existsSync(libraries)) return libraries;
  mkdirSync(dirname(libraries), { recursive: true });
  // Fetch into a temporary name first: an interrupted run leaves no partial folder, and another suite may fetch at the same time.
  const fetched = mkdtempSync(`${libraries}-`);
  run('mvn', ['-q', '-B', '-f', join(folder, 'pom.xml'), 'dependency:copy-dependencies', `-Dlibraries=${fetched}`]);
  try {
    renameSync(fetched, libraries);
  } catch (error) {
    if (!existsSync(libraries)) throw error;
    rmSync(fetched, { recursive: true });
  }
  return libraries;
}
