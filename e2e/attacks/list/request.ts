// Attacks with HTTP requests: slow, too large, too many, ambiguous, or with malicious paths and bodies.

import { setTimeout as pause } from 'node:timers/promises';
import { C } from '../../harness/client.ts';
import { type Attack, MEBIBYTE, NO_LIMIT, attempts, linger, load, refused, refusedRequests } from '../attack.ts';
import { Peer, batch, request } from '../peer.ts';

const { TOPIC, RPC_ACTION } = C;
const JSON_TYPE = { 'Content-Type': 'application/json' };
const CHUNK = Buffer.alloc(65_536, 'x');
const isTaken = (status: number): boolean => status >= 200 && status < 300;
/** A request that names its real address, so that the server does not treat it as local. */
const foreign = (path: string): string => request(`GET ${path}`, { 'X-Forwarded-For': '192.0.2.1' });

export const REQUESTS: Attack[] = [
  {
    name: 'heads that come a byte at a time',
    limit: 'http.head_timeout',
    metric: refusedRequests('slow_head'),
    options: { http: { head_timeout: '300ms' } },
    off: { http: { head_timeout: '10m' } },
    harm: 'reached',
    bound: 1_500,
    run: (target) => linger(50, target, () => Peer.saying(target.address, 'GET /deepstream HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: '), 'x'),
  },
  {
    name: 'bodies that come a byte at a time',
    limit: 'http.body_timeout',
    metric: refusedRequests('slow_body'),
    options: { http: { body_timeout: '300ms' } },
    off: { http: { body_timeout: '10m' } },
    harm: 'reached',
    bound: 1_500,
    run: (target) => {
      const head = request('POST /api', { ...JSON_TYPE, 'Content-Length': '100000' });
      return linger(50, target, () => Peer.saying(target.address, head), ' ');
    },
  },
  {
    name: 'heads that are too large',
    limit: 'http.head_bytes_max',
    metric: refusedRequests('large_head'),
    off: { http: { head_bytes_max: '64MiB', head_timeout: '10m' } },
    harm: 'memory',
    bound: 32 * MEBIBYTE,
    run: (target) => load(60, target, async (peer) => {
      await peer.write('GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Large: ');
      for (let part = 0; part < 16 && peer.isOpen; part += 1) await peer.write(CHUNK);
    }),
  },
  {
    name: 'heads with too many fields',
    limit: 'a head has a hundred fields',
    metric: refusedRequests('large_head'),
    off: { because: NO_LIMIT },
    harm: 'reached',
    bound: 0,
    run: (target) => attempts(target, async () => {
      const many = Object.fromEntries(Array.from({ length: 200 }, (_, i) => [`X-${i}`, '1']));
      return (await Peer.ask(target.address, request('GET /health-check', many))) === 200;
    }),
  },
  {
    name: 'bodies that are too large',
    limit: 'http.body_bytes_max',
    metric: refusedRequests('large_body'),
    options: { http: { body_bytes_max: 65_536 } },
    off: { http: { body_bytes_max: '8MiB', bodies_bytes_max: '2GiB', body_timeout: '10m' } },
    harm: 'memory',
    bound: 32 * MEBIBYTE,
    run: (target) => load(60, target, async (peer) => {
      await peer.write(request('POST /api', { ...JSON_TYPE, 'Transfer-Encoding': 'chunked' }));
      for (let part = 0; part < 16 && peer.isOpen; part += 1) {
        await peer.write(Buffer.concat([Buffer.from('10000\r\n'), CHUNK, Buffer.from('\r\n')]));
      }
    }),
  },
  {
    name: 'many bodies that are half sent',
    limit: 'http.bodies_bytes_max',
    metric: refusedRequests('body_share'),
    options: { http: { bodies_bytes_max: '4MiB', body_timeout: '10m' } },
    off: { http: { bodies_bytes_max: '8GiB', body_timeout: '10m' } },
    harm: 'memory',
    bound: 32 * MEBIBYTE,
    run: (target) => load(80, target, async (peer) => {
      await peer.write(request('POST /api', { ...JSON_TYPE, 'Content-Length': '1000000' }));
      for (let part = 0; part < 14 && peer.isOpen; part += 1) await peer.write(CHUNK);
    }),
  },
  {
    name: 'requests that are never done',
    limit: 'http.requests_max',
    metric: refusedRequests('request_share'),
    options: { http: { requests_max: 20 }, rpcAcceptTimeoutMs: 60_000 },
    off: { rpcAcceptTimeoutMs: 60_000 },
    harm: 'tidewire_http_sessions',
    bound: 20,
    run: async (target) => {
      const provider = await Peer.login(target.address);
      await provider?.say({ topic: TOPIC.RPC, action: RPC_ACTION.PROVIDE, names: ['attack/rpc'], correlationId: '1' });
      await provider?.hearsFrames(3);
      const call = batch([{ topic: 'rpc', action: 'make', rpcName: 'attack/rpc', data: 1 }]);
      await load(60, target, (peer) => peer.write(call));
      provider?.end();
      return 0;
    },
  },
  {
    name: 'streams without end',
    limit: 'http.streams_max',
    metric: refusedRequests('stream_share'),
    options: { http: { streams_max: 20 } },
    off: {},
    harm: 'tidewire_http_sessions',
    bound: 20,
    run: (target) => load(60, target, async (peer) => {
      await peer.write(request('GET /sse?event=attack'));
      // The server keeps a stream that it has accepted.
      while (peer.isOpen && (peer.statuses[0] ?? 200) === 200 && !target.isOver()) await pause(50);
    }),
  },
  {
    name: 'requests that hide another one',
    limit: 'a head that can be read in two ways is refused, or the last of its connection',
    metric: refusedRequests('malformed_head'),
    off: { because: NO_LIMIT },
    harm: 'reached',
    bound: 0,
    run: (target) => attempts(target, async (round) => {
      const hidden = request('GET /health-check', { Connection: 'close' });
      const bodies: Array<[string, string]> = [
        ['Content-Length: 1\r\nContent-Length: 2', '{}'],
        [`Content-Length: ${5 + hidden.length}\r\nTransfer-Encoding: chunked`, '0\r\n\r\n'],
        [`Transfer-Encoding: chunked\r\nContent-Length: ${5 + hidden.length}`, '0\r\n\r\n'],
        ['Transfer-Encoding: chunked, identity', '0\r\n\r\n'],
        ['Transfer-Encoding: xchunked', '0\r\n\r\n'],
        ['Transfer-Encoding : chunked', '0\r\n\r\n'],
        ['Transfer-Encoding:\r\n chunked', '0\r\n\r\n'],
        ['X-Bare: a\rTransfer-Encoding: chunked', '0\r\n\r\n'],
        ['Content-Length: +2', '{}'],
        ['Content-Length: 0x2', '{}'],
      ];
      const [fields, body] = bodies[round % bodies.length] as [string, string];
      const head = `POST /api HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n${fields}\r\n\r\n`;
      const peer = await Peer.saying(target.address, `${head}${body}${hidden}`);
      await peer?.hears(/$^/);
      return (peer?.statuses.length ?? 0) > 1;
    }),
  },
  {
    name: 'paths that lead elsewhere',
    limit: 'escapes of a name are undone once, and dots mean nothing',
    metric: refusedRequests('names'),
    off: { because: NO_LIMIT },
    harm: 'reached',
    bound: 0,
    run: (target) => attempts(target, async (round) => {
      const paths = [
        '/records/..%2fmetrics', '/records/%2e%2e/metrics', '/records/../metrics', '/records/..%252f..%252fetc%252fpasswd', '//metrics', '/./metrics',
        '/metrics%00', '/metrics/..;/', '/%6detrics/', 'http://127.0.0.1/metrics', '/records/%00%', '/records/%ff', '/records/', '/records/%c0%ae%c0%ae/x',
        `/records/${'a/../'.repeat(400)}`, '/records/%',
      ];
      return (await Peer.ask(target.address, foreign(paths[round % paths.length] as string))) === 200;
    }),
  },
  {
    name: 'JSON that nests, over HTTP',
    limit: 'limits.nesting_max',
    metric: refused('too_deep'),
    off: { limits: { nesting_max: 1_000_000 } },
    harm: 'reached',
    bound: 0,
    run: (target) => attempts(target, async (round) => {
      const deep = `${'['.repeat(2_000)}${']'.repeat(2_000)}`;
      return isTaken(await Peer.ask(target.address, request(`PUT /records/attack/${round % 100}`, JSON_TYPE, deep)));
    }),
  },
  {
    name: 'batches of too many commands',
    limit: 'http.batch_commands_max',
    metric: refusedRequests('commands'),
    options: { http: { batch_commands_max: 100 } },
    off: {},
    harm: 'reached',
    bound: 0,
    run: (target) => attempts(target, async () => {
      const commands = Array.from({ length: 1_000 }, () => ({ topic: 'event', action: 'emit', eventName: 'attack' }));
      return (await Peer.ask(target.address, batch(commands))) === 200;
    }),
  },
  {
    name: 'numbers that nothing can hold',
    limit: 'patches accept only numbers that can be represented',
    metric: refusedRequests('malformed'),
    off: { because: NO_LIMIT },
    harm: 'reached',
    bound: 0,
    run: (target) => attempts(target, async (round) => {
      const number = ['1e400', `1${'0'.repeat(100_000)}`, `-${'9'.repeat(50_000)}e${'9'.repeat(50_000)}`][round % 3];
      const body = `[{"op":"add","path":"/n","value":${number}}]`;
      const status = await Peer.ask(target.address, request('PATCH /records/attack', { 'Content-Type': 'application/json-patch+json' }, body));
      return isTaken(status) || status >= 500;
    }),
  },
  {
    name: 'patches that double a record',
    limit: 'limits.record_bytes_max, also within a patch',
    metric: refusedRequests('value'),
    options: { limits: { record_bytes_max: 65_536 } },
    off: { limits: { record_bytes_max: 512 * MEBIBYTE, memory_bytes_max: 16_384 * MEBIBYTE } },
    harm: 'memory',
    bound: 32 * MEBIBYTE,
    run: (target) => attempts(target, async (round) => {
      const name = `/records/attack/${round}`;
      await Peer.ask(target.address, request(`PUT ${name}`, JSON_TYPE, JSON.stringify({ text: 'x'.repeat(100) })));
      const doubled = Array.from({ length: 17 }, (_, i) => ({ op: 'copy', from: '', path: `/copy${i}` }));
      const type = { 'Content-Type': 'application/json-patch+json' };
      return isTaken(await Peer.ask(target.address, request(`PATCH ${name}`, type, JSON.stringify(doubled))));
    }),
  },
];
