// One run of Autobahn's fuzzing client against a server, and its report.

import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { FOLDER, installed } from './install.ts';

/** The outcome of a case. Autobahn rates the messages and the close handshake separately. */
export interface CaseOutcome {
  behavior: string;
  behaviorClose: string;
}

/** Outcomes by case, such as `6.4.3`. */
export type Report = Record<string, CaseOutcome>;

/** The key of the one server in the report. */
const AGENT = 'tidewire';

/** The report of an earlier run under `name`, if it is newer than its program. */
export function earlierReport(name: string, program: string): Report | undefined {
  const path = join(FOLDER, name, 'index.json');
  const isNewer = existsSync(path) && statSync(path).mtimeMs > statSync(program).mtimeMs;
  return isNewer ? readReport(path) : undefined;
}

/** Runs `cases` (`1.*`, `2.2`) except `except` against the server at `url`. The pages stay in `target/autobahn/NAME`. */
export async function fuzz(name: string, url: string, cases: string[], except: string[] = []): Promise<Report> {
  const wstest = await installed();
  const outdir = join(FOLDER, name);
  rmSync(outdir, { recursive: true, force: true });
  mkdirSync(outdir);
  const spec = join(outdir, 'spec.json');
  const servers = [{ agent: AGENT, url }];
  writeFileSync(spec, JSON.stringify({ outdir, servers, cases, 'exclude-cases': except, 'exclude-agent-cases': {} }));
  await promisify(execFile)(wstest, ['--mode', 'fuzzingclient', '--spec', spec], { maxBuffer: Infinity });
  return readReport(join(outdir, 'index.json'));
}

function readReport(path: string): Report {
  const reports = JSON.parse(readFileSync(path, 'utf8')) as Record<string, Report>;
  return reports[AGENT] ?? {};
}
