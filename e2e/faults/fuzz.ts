// `make proof-fuzz-faults`: each fuzz target finds its planted faults in the copy of the tree that has them. Usage: `fuzz SECONDS`, the
// longest time for one fault.

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { FAULTS } from './list.ts';
import { makeTree, patches, REPOSITORY } from './tree.ts';

const [seconds = '300'] = process.argv.slice(2);
const faults = FAULTS.flatMap(({ fuzzTarget, name }) => (fuzzTarget === undefined ? [] : [`${fuzzTarget}/${name}`]));
const folder = makeTree('faults', patches());
const args = ['run', '--release', '--locked', '--manifest-path', 'fuzz/Cargo.toml', '--no-default-features', '--bin', 'proof', '--', 'faults', seconds, ...faults];
const env = { ...process.env, RUSTC_BOOTSTRAP: '1', CARGO_TARGET_DIR: join(REPOSITORY, 'fuzz/target') };
process.exitCode = spawnSync('cargo', args, { cwd: folder, env, stdio: 'inherit' }).status ?? 1;
