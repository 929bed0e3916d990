#!/usr/bin/env -S node --import tsx
// Starts Firefox as Playwright does: the same arguments and output, with a relay before its WebDriver BiDi. Playwright sets media
// features for every context, which Firefox 153 does not support yet; the relay answers this command itself and does nothing.

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

/** Forwards messages in both directions, and closes one side when the other has closed. */
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
