// Starts the server with the options of this folder, and serves the page, which is built again after each change. `TIDEWIRE_BIN` names a
// built server; without it, cargo builds one.

import { context } from 'esbuild';
import { spawn } from 'node:child_process';
import { options, target } from './build.ts';

const [program = '', ...args] = process.env['TIDEWIRE_BIN'] ? [process.env['TIDEWIRE_BIN']] : ['cargo', 'run', '--locked', '--release', '--package', 'tidewire', '--'];
const server = spawn(program, [...args, 'start', '--config', 'tidewire.yml'], { cwd: import.meta.dirname, stdio: 'inherit' });
server.once('error', ({ message }) => console.error(`${program}: ${message}`));
server.once('close', (code) => process.exit(code ?? 1));
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => server.kill('SIGTERM'));

const page = await context(options);
await page.watch();
const { port } = await page.serve({ servedir: target, host: '127.0.0.1', port: 8020 });
console.log(`the board is at http://localhost:${port}`);
