#!/usr/bin/env node
// Starts the server's program, which is in the optional dependency for this platform, with the same arguments. It passes signals on and
// ends as the program ends.

import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { constants } from 'node:os';

const PACKAGE = '@tidewire/bin-linux-x64';
/** A terminal signals each process of a command, and npm signals its child once more: within this time both are one request to stop. */
const REPEAT_MS = 500;
const WAYS = `
  a container      docker load --input tidewire-image-amd64.tar (a file of each release), then
                   docker run --rm --publish 127.0.0.1:6020:6020 --env TIDEWIRE_DEV=true --env TIDEWIRE_AUTH__OPEN_ON_PUBLIC_ADDRESS=true \\
                     --env TIDEWIRE_PERMISSIONS=allow_all localhost/tidewire
  WSL, on Windows  wsl --install, then npx tidewire in its terminal
  another machine  start the server on Linux and pass its address to your clients: new Client('HOST:6020')
`;

/** Ends with one sentence and the other ways to run a server. */
function refuse(sentence) {
  console.error(`tidewire: ${sentence}\n${WAYS}`);
  process.exit(1);
}

/** The path of the program. */
function program() {
  const { platform, arch } = process;
  if (platform !== 'linux' || arch !== 'x64') {
    refuse(`the server's program is for Linux x64 with glibc, and this is ${platform} ${arch}; use one of these instead:`);
  }
  try {
    return createRequire(import.meta.url).resolve(`${PACKAGE}/bin/tidewire`);
  } catch {
    return refuse(
      `the optional dependency ${PACKAGE} is missing, which npm omits without glibc or with --omit=optional; install it, or use one of these:`,
    );
  }
}

// The program has a process group for itself, so that Ctrl-C reaches it once and only from here: at a second signal a server ends at once.
const child = spawn(program(), process.argv.slice(2), { stdio: 'inherit', detached: true });
let stopped = -Infinity;
for (const signal of ['SIGINT', 'SIGTERM']) {
  process.on(signal, () => {
    const now = performance.now();
    if (now - stopped < REPEAT_MS) return;
    stopped = now;
    child.kill(signal);
  });
}
process.on('SIGHUP', () => child.kill('SIGHUP'));
child.once('error', (error) => refuse(`the server's program could not be started (${error.message}); reinstall it, or use one of these:`));
child.once('exit', (code, signal) => {
  // A shell reports the end by a signal as this code. Raising the signal here again would write a core dump of Node.
  process.exit(code ?? 128 + constants.signals[signal]);
});
