// `make proof-NAME`: runs one part of what takes hours and adds its line to docs/proof.md. A part that is repeated starts
// afresh; parts are independent, so a proof that was interrupted goes on with the parts that have no line yet.

import { execFileSync, spawn } from 'node:child_process';
import { appendFileSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';
import { resolve } from 'node:path';
import { PROOFS, type Proof } from './proofs.ts';

/** An hour, and what building takes. */
const LONGEST_SECONDS = 4_200;

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
  const start = performance.now();
  const { code, output } = await run(proof);
  const minutes = ((performance.now() - start) / 60_000).toFixed(1);
  const figures = proof.figures.flatMap((pattern) => output.match(pattern)?.[0] ?? `no figure ${pattern}`);
  const state = code === 0 ? 'passed' : `FAILED with ${code}`;
  const cells = [
    new Date().toISOString().slice(0, 10),
    `\`make proof-${proof.name}\``,
    commit(),
    machine(),
    `${minutes} min`,
    `${state}: ${figures.join('; ')}`,
  ];
  const line = `| ${cells.map((cell) => cell.replaceAll('|', '\\|').replaceAll('\n', ' ')).join(' | ')} |\n`;
  appendFileSync('docs/proof.md', line);
  console.log(`\n${line}`);
  return code;
}

function run({ command, env }: Proof): Promise<{ code: number; output: string }> {
  const [program, ...args] = command as [string, ...string[]];
  return new Promise((done) => {
    const child = spawn(program, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
    const timer = setTimeout(() => child.kill('SIGKILL'), LONGEST_SECONDS * 1000);
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

function commit(): string {
  const git = (...args: string[]): string => execFileSync('git', args, { encoding: 'utf8' }).trim();
  const changed = git('status', '--porcelain', '--untracked-files=no', '--', '.', ':!docs/proof.md') === '' ? '' : ' and changes';
  return git('rev-parse', '--short', 'HEAD') + changed;
}

function machine(): string {
  return `${cpus().length} cores, ${Math.round(totalmem() / 2 ** 30)} GiB`;
}
