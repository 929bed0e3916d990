// Starts the server and Vite, and ends both as soon as one of them ends. If VITE_TIDEWIRE has the address of a server, it starts only Vite.

import { spawn } from 'node:child_process'

const { TIDEWIRE_NETWORK__PORT: port = '6020', VITE_TIDEWIRE: elsewhere } = process.env
const children = []

/** Signals each child once: the server ends at once at a second signal. */
function stop() {
  for (const child of children.splice(0)) child.kill('SIGTERM')
}

function start(command, args) {
  const env = { ...process.env, VITE_TIDEWIRE: elsewhere ?? `localhost:${port}` }
  const child = spawn(command, args, { stdio: 'inherit', shell: process.platform === 'win32', env })
  children.push(child)
  child.once('error', (error) => console.error(`${command}: ${error.message}`))
  child.once('close', (code) => {
    process.exitCode ??= code ?? 1
    stop()
  })
}

for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, stop)
if (elsewhere === undefined) start('tidewire', [])
start('vite', process.argv.slice(2))
