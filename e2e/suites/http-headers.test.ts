// The security headers that restrict the use of an answer in browsers, on every kind of answer, and the headers for caching.

import assert from 'node:assert/strict';
import { request } from 'node:https';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { after, before, describe, test } from 'node:test';
import { ADMIN_KEY } from '../harness/admin.ts';
import { CertificateFiles, certify } from '../harness/certificate.ts';
import { command, post, url } from '../harness/http.ts';
import { fresh } from '../harness/names.ts';
import { openStream } from '../harness/event-stream.ts';
import { Server, againstOriginal } from '../harness/server.ts';

const ALWAYS: Record<string, string> = {
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'content-security-policy': "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'cross-origin-resource-policy': 'same-origin',
};
const ORIGIN = 'https://app.example';

describe('headers of answers', { skip: againstOriginal, concurrency: 4 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.start({ adminKey: ADMIN_KEY, origins: [ORIGIN] });
  });
  after(() => server.dispose());

  const get = (path: string, init: RequestInit = {}): Promise<Response> => fetch(url(server, path), init);
  const CASES: Array<[what: string, status: number, ask: () => Promise<Response>]> = [
    ['a health page', 200, () => get('/health')],
    ['readiness', 200, () => get('/ready')],
    ['metrics', 200, () => get('/metrics')],
    ['the description', 200, () => get('/openapi.json')],
    ['nothing', 404, () => get('/nothing')],
    ['a request from a foreign origin', 403, () => get('/metrics', { headers: { origin: 'https://evil.example' } })],
    ['a batch', 200, () => post(server, '/api', { body: [{ topic: 'presence', action: 'query' }] })],
    ['a wrong batch', 400, () => post(server, '/api', {})],
    ['a login', 200, () => post(server, '/api/auth', {})],
    ['a missing record', 404, () => get(`/records/${fresh('record')}`)],
    ['a wrong method', 405, () => get('/sse', { method: 'POST' })],
    ['options', 204, () => get('/api', { method: 'OPTIONS' })],
    ['a GET request for a WebSocket path', 426, () => get('/deepstream')],
    ['the admin API', 200, () => fetch(`http://127.0.0.1:${server.adminPort}/admin/v1/status`, { headers: { authorization: `Bearer ${ADMIN_KEY}` } })],
    ['the admin API without a key', 401, () => fetch(`http://127.0.0.1:${server.adminPort}/admin/v1/status`)],
  ];
  for (const [what, status, ask] of CASES) {
    test(`${what}: is not framed, sniffed, embedded or cached`, async () => {
      const answer = await ask();
      assert.equal(answer.status, status);
      for (const [name, value] of Object.entries(ALWAYS)) assert.equal(answer.headers.get(name), value, name);
      assert.equal(answer.headers.get('cache-control'), 'no-store');
      assert.equal(answer.headers.get('strict-transport-security'), null);
    });
  }

  test('a stream has the headers, and no proxy may transform it', async (t) => {
    const { answer } = await openStream(t, url(server, '/sse?event=e'));
    for (const [name, value] of Object.entries(ALWAYS)) assert.equal(answer.headers.get(name), value, name);
    assert.equal(answer.headers.get('cache-control'), 'no-store, no-transform');
  });

  test('a private cache may keep a record for each origin, and must revalidate it', async () => {
    const name = fresh('record');
    await command(server, { topic: 'record', action: 'write', recordName: name, data: { a: 1 } });
    const whole = await get(`/records/${name}`);
    const known = await get(`/records/${name}`, { headers: { 'if-none-match': whole.headers.get('etag') ?? '' } });
    assert.deepEqual([whole.status, known.status], [200, 304]);
    for (const answer of [whole, known]) {
      assert.equal(answer.headers.get('cache-control'), 'private, no-cache');
      assert.equal(answer.headers.get('vary'), 'Origin');
    }
    assert.equal(known.headers.get('etag'), whole.headers.get('etag'));
  });

  test('pages of allowed origins can read by CORS, but cannot embed', async () => {
    const answer = await get(`/records/${fresh('record')}`, { headers: { origin: ORIGIN } });
    assert.equal(answer.headers.get('access-control-allow-origin'), ORIGIN);
    assert.equal(answer.headers.get('cross-origin-resource-policy'), 'same-origin');
  });

  test('with the option, only answers over TLS send HSTS', async (t) => {
    const { certificate, key } = new CertificateFiles(t, certify());
    const own = await Server.during(t, { tls: { certificate, key, hstsMaxAge: '8760h' } });
    const asked = request(`https://${own.tlsAddress}/health`, { rejectUnauthorized: false }).end();
    const [encrypted] = (await once(asked, 'response')) as [IncomingMessage];
    encrypted.resume();
    assert.equal(encrypted.headers['strict-transport-security'], 'max-age=31536000');
    assert.equal((await own.get('/health')).headers.get('strict-transport-security'), null);
  });
});
