#!/usr/bin/env -S node --import tsx
// Firefox as Playwright starts it: the same arguments and output, with a relay before its WebDriver BiDi. Playwright asks of every
// context for media features, which Firefox 153 does not know yet; the relay answers that alone, with nothing done.

import { spawn } from 'node:child_process';
import type { AddressInfo } from 'node:net';
import { createInterface } from 'node:readline';
import { WebSocket, WebSocketServer, type RawData } from 'ws';

const UNKNOWN = 'emulation.setMediaFeaturesOverride';
const LISTENS = /^WebDriver BiDi listening on (ws:\S+)$/;

const firefox = spawn(process.env['FIREFOX_BIN'] ?? '/usr/bin/firefox-esr', process.argv.slice(2), { stdio: ['ignore', 'inherit', 'pipe'] });
firefox.once('error', ({ message }) => {
  console.error(message);
  process.exit(127);
});
firefox.once('exit', (code) => process.exit(code ?? 1));

createInterface({ input: firefox.stderr }).on('line', (line) => {
  const address = LISTENS.exec(line)?.[1];
  if (address === undefined) return console.error(line);
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0 }, () => {
    console.error(`WebDriver BiDi listening on ws://127.0.0.1:${(server.address() as AddressInfo).port}`);
  });
  server.on('connection', (asking, { url }) => relay(asking, new WebSocket(`${address}${url}`)));
});

/** Carries messages both ways, and ends one when the other has ended. */
function relay(asking: WebSocket, answering: WebSocket): void {
  asking.pause();
  answering.once('open', () => asking.resume());
  asking.on('message', (data: RawData) => {
    const { id, method } = JSON.parse(data.toString()) as { id: number; method: string };
    if (method === UNKNOWN) asking.send(JSON.stringify({ type: 'success', id, result: {} }));
    else answering.send(data.toString());
  });
  answering.on('message', (data: RawData) => asking.send(data.toString()));
  for (const [one, other] of [[asking, answering], [answering, asking]] as const) {
    one.on('close', () => other.close());
    one.on('error', () => other.close());
  }
}
