// A browser over HTTP/2: more concurrent streams than HTTP/1.1 allows connections, together with requests and a WebSocket.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CertificateFiles, certify } from '../harness/certificate.ts';
import { Server } from '../harness/server.ts';
import { browserDuring, loginFrom, openPage, servePage } from './page.ts';

/** HTTP/1.1 allows a browser six connections for each origin. */
const STREAMS = 10;

test('a page has more than six streams at a time, and requests and wss work at the same time', async (t) => {
  const { certificate, key } = new CertificateFiles(t, certify());
  const server = await Server.during(t, { tls: { certificate, key } });
  const browser = await browserDuring(t);
  const page = await openPage(browser, 'localhost', await servePage(t));
  const received = await page.evaluate(
    async ({ origin, count }) => {
      const heard: Array<Promise<string>> = [];
      const opened = Array.from({ length: count }, () => {
        const source = new EventSource(`${origin}/sse?event=news&record=browser/none`);
        heard.push(new Promise((done) => source.addEventListener('event', (told) => done((told as MessageEvent).data))));
        // The server handles the record after the events, so the event subscription is active.
        return new Promise((done) => source.addEventListener('deleted', done));
      });
      await Promise.all(opened);
      const body = JSON.stringify({ body: [{ topic: 'event', action: 'emit', eventName: 'news', data: 'to all' }] });
      const answer = await fetch(`${origin}/api`, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
      if (!answer.ok) throw new Error(await answer.text());
      return Promise.all(heard);
    },
    { origin: `https://localhost:${server.tlsPort}`, count: STREAMS },
  );
  assert.deepEqual(received, Array(STREAMS).fill('{"name":"news","data":"to all"}'));
  // Until the browser knows that the server supports HTTP/2, it may open as many connections as for HTTP/1.1.
  const connections = await server.metric('tidewire_http2_connections_total');
  assert.ok(connections >= 1 && connections <= 6, `${connections} connections`);
  assert.equal(await loginFrom(page, `wss://localhost:${server.tlsPort}`), 'open');
});
