// A browser over wss: its TLS and WebSocket with the server's.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CertificateFiles, certify } from '../harness/certificate.ts';
import { Server } from '../harness/server.ts';
import { browserDuring, loginFrom, openPage, servePage } from './page.ts';

test('a page logs in over wss and receives the same message back', async (t) => {
  const { certificate, key } = new CertificateFiles(t, certify());
  const server = await Server.during(t, { tls: { certificate, key } });
  const browser = await browserDuring(t);
  const page = await openPage(browser, 'localhost', await servePage(t));
  assert.equal(await loginFrom(page, `wss://localhost:${server.tlsPort}`), 'open');
  const value = await page.evaluate(async () => {
    const record = await (globalThis as any).client.record.getRecord('browser/secure').whenReady();
    await record.setWithAck('text', 'x'.repeat(50_000));
    return (await (globalThis as any).client.record.snapshot('browser/secure')).text.length;
  });
  assert.equal(value, 50_000);
  assert.equal(await server.metric('tidewire_tls_handshakes_total'), 1);
});
