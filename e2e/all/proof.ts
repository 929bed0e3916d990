// `make proof-NAME`: runs one proof that takes minutes or hours. Its line replaces the earlier line of the same target in
// docs/proof.md. If the tree has uncommitted changes, the program only prints the line, because a reader could not repeat the run.
// Proofs are independent: after an interruption, run the ones that have no line.

import { execFileSync, spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';
import { resolve } from 'node:path';
import { withNewest } from './proof-page.ts';
import { PROOFS, type Proof } from './proofs.ts';

const PAGE = 'docs/proof.md';
/** An hour, and ten minutes for what a proof does before and after. */
const LONGEST_SECONDS = 4_200;
/** Builds take this long only while other programs keep the processors busy. */
const LONGEST_BUILD_SECONDS = 3_600;

process.chdir(resolve(import.meta.dirname, '../..'));
const [name] = process.argv.slice(2);
const proof = PROOFS.find((proof) => proof.name === name);
if (proof === undefined) {
  console.error(`usage: proof NAME, one of ${PROOFS.map((proof) => proof.name).join(', ')}`);
  process.exitCode = 2;
} else {
  process.exitCode = await prove(proof);
}

async function prove(proof: Proof): Promise<number> {
  // Checked before the run: the tree may change during the hour that a run can take.
  const isCommitted = git('status', '--porcelain', '--untracked-files=no', '--', '.', `:!${PAGE}`) === '';
  const commit = git('rev-parse', '--short', 'HEAD');
  if (proof.build !== undefined) {
    const { code } = await run(proof.build, proof.env, LONGEST_BUILD_SECONDS);
    if (code !== 0) {
      console.error(`the build failed with ${code}, so ${PAGE} was not changed`);
      return code;
    }
  }
  const start = performance.now();
  const { code, output } = await run(proof.command, proof.env, LONGEST_SECONDS);
  const minutes = ((performance.now() - start) / 60_000).toFixed(1);
  const figures = proof.figures.flatMap((pattern) => output.match(pattern)?.[0] ?? `no figure ${pattern}`);
  const state = code === 0 ? 'passed' : `FAILED with ${code}`;
  const target = `make proof-${proof.name}`;
  const cells = [
    new Date().toISOString().slice(0, 10),
    `\`${target}\``,
    commit,
    machine(),
    `${minutes} min`,
    `${state}: ${figures.join('; ')}`,
  ];
  const line = `| ${cells.map((cell) => cell.replaceAll('|', '\\|').replaceAll('\n', ' ')).join(' | ')} |`;
  console.log(`\n${line}\n`);
  if (isCommitted) {
    writeFileSync(PAGE, withNewest(readFileSync(PAGE, 'utf8'), target, line));
  } else {
    console.log(`${PAGE} was not changed: commit the changes of the tree and run the proof again`);
  }
  return code;
}

function run(command: string[], env: Proof['env'], seconds: number): Promise<{ code: number; output: string }> {
  const [program, ...args] = command as [string, ...string[]];
  return new Promise((done) => {
    const child = spawn(program, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
    const timer = setTimeout(() => child.kill('SIGKILL'), seconds * 1000);
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (text: Buffer) => {
        output += text.toString();
        process.stdout.write(text);
      });
    }
    child.once('error', (error) => done({ code: 127, output: error.message }));
    child.once('close', (code) => {
      clearTimeout(timer);
      done({ code: code ?? 1, output });
    });
  });
}

function git(...args: string[]): string {
  return execFileSync('git', args, { encoding: 'utf8' }).trim();
}

function machine(): string {
  return `${cpus().length} cores, ${Math.round(totalmem() / 2 ** 30)} GiB`;
}
