// A server for a test: with the options and rules of the app, on a free port, with an empty data folder.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { TestContext } from 'node:test'

/** Starts a server that stops at the end of the test; returns its address. */
export async function startServer(t: TestContext): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'app-test-'))
  const child = spawn('tidewire', ['--port', '0', '--data', folder], { stdio: ['ignore', 'pipe', 'inherit'] })
  const ended = once(child, 'exit')
  t.after(async () => {
    child.kill()
    await ended
    rmSync(folder, { recursive: true })
  })
  for await (const line of createInterface(child.stdout)) {
    const address = /^ready on http:\/\/(.*)$/.exec(line)?.[1]
    if (address !== undefined) return address
  }
  throw new Error('the server ended before it was ready')
}
