// Attacks on the checks of new connections: origins, hosts, forged addresses, floods, TLS handshakes.

import { type Attack, MEBIBYTE, NO_LIMIT, attempts, hold, linger, refusedRequests, together } from '../attack.ts';
import { Peer, batch, request } from '../peer.ts';

export const CONNECTIONS: Attack[] = [
  {
    name: 'pages of a foreign origin',
    limit: 'network.origins',
    metric: 'tidewire_origin_refusals_total',
    off: { origins: ['*'] },
    harm: 'reached',
    bound: 0,
    run: (target) => hold(target, () => Peer.upgrade(target.address, { Origin: 'https://evil.example' }), 20),
  },
  {
    name: 'pages of a foreign origin that send HTTP requests',
    limit: 'network.origins',
    metric: 'tidewire_origin_refusals_total',
    off: { origins: ['*'] },
    harm: 'reached',
    bound: 0,
    run: (target) => attempts(target, async () => {
      const emit = batch([{ topic: 'event', action: 'emit', eventName: 'attack' }], { Origin: 'https://evil.example' });
      return (await Peer.ask(target.address, emit)) === 200;
    }),
  },
  {
    name: 'a domain of the attacker that points to the server',
    limit: 'network.hosts',
    metric: 'tidewire_origin_refusals_total',
    off: { hosts: ['evil.example'] },
    harm: 'reached',
    bound: 0,
    run: (target) => hold(target, () => Peer.upgrade(target.address, { Host: 'evil.example' }), 20),
  },
  {
    name: 'requests with two hosts or two origins',
    limit: 'a request has one Host, and one Origin at most',
    metric: refusedRequests('malformed_head'),
    off: { because: NO_LIMIT },
    harm: 'reached',
    bound: 0,
    run: (target) => attempts(target, async (round) => {
      const twice = ['Host: 127.0.0.1\r\nHost: evil.example', 'Host: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\nOrigin: https://evil.example'];
      const text = `GET /openapi.json HTTP/1.1\r\n${twice[round % 2]}\r\n\r\n`;
      return (await Peer.ask(target.address, text)) === 200;
    }),
  },
  {
    name: 'all connections for one address',
    limit: 'limits.connections_per_address_max',
    metric: 'tidewire_address_refusals_total',
    options: { limits: { connections_per_address_max: 50 } },
    off: {},
    harm: 'reached',
    bound: 50,
    run: (target) => hold(target, () => Peer.upgrade(target.address), 200),
  },
  {
    name: 'an address that forges those of others',
    limit: 'network.trusted_proxies',
    metric: 'tidewire_address_refusals_total',
    options: { limits: { connections_per_address_max: 50 } },
    off: { limits: { connections_per_address_max: 50 }, trustedProxies: ['127.0.0.0/8'] },
    harm: 'reached',
    bound: 50,
    run: (target) => {
      const forged = (index: number) => ({ 'X-Forwarded-For': `192.0.2.${index % 250}`, Forwarded: `for=192.0.2.${index % 250}` });
      return hold(target, (index) => Peer.upgrade(target.address, forged(index)), 200);
    },
  },
  {
    name: 'PROXY protocol heads from untrusted peers',
    limit: 'network.proxy_protocol',
    metric: refusedRequests('malformed_head'),
    off: { because: 'where it is on, every connection begins with such a head, the control pairs included' },
    harm: 'reached',
    bound: 0,
    run: (target) => attempts(target, async (round) => {
      const binary = Buffer.from('0d0a0d0a000d0a515549540a2111000cc0000201c000020200010002', 'hex');
      const head = round % 2 === 0 ? Buffer.from('PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n') : binary;
      return (await Peer.ask(target.address, Buffer.concat([head, Buffer.from(request('GET /openapi.json'))]))) === 200;
    }),
  },
  {
    name: 'all connections that there are',
    limit: 'limits.connections_max',
    metric: 'tidewire_connection_refusals_total',
    options: { limits: { connections_max: 100 } },
    off: {},
    harm: 'reached',
    bound: 100,
    run: (target) => hold(target, (index) => Peer.upgrade(target.address, {}, `127.0.1.${index % 200}`), 200),
  },
  {
    name: 'connections that come and go',
    limit: 'a connection leaves nothing behind',
    metric: 'tidewire_websockets_opened_total',
    off: { because: NO_LIMIT },
    harm: 'memory',
    bound: 64 * MEBIBYTE,
    run: (target) => together(8, () => attempts(target, async (round) => {
      const peer = round % 2 === 0 ? await Peer.login(target.address) : await Peer.upgrade(target.address);
      peer?.end();
      return false;
    })),
  },
  {
    name: 'TLS handshakes that never end',
    limit: 'http.head_timeout',
    metric: 'tidewire_tls_handshake_failures_total',
    isEncrypted: true,
    options: { http: { head_timeout: '300ms' } },
    off: { http: { head_timeout: '10m' } },
    harm: 'reached',
    bound: 1_500,
    run: (target) => {
      // The record of a handshake announces more bytes than the attacker sends.
      return linger(50, target, () => Peer.saying(target.tlsAddress, Uint8Array.of(0x16, 3, 1, 2, 0, 1)));
    },
  },
  {
    name: 'garbage in place of TLS handshakes',
    limit: 'a handshake is checked from its first byte',
    metric: 'tidewire_tls_handshake_failures_total',
    isEncrypted: true,
    off: { because: NO_LIMIT },
    harm: 'memory',
    bound: 64 * MEBIBYTE,
    run: async (target) => {
      while (!target.isOver()) {
        const peer = await Peer.dial(target.tlsAddress);
        await peer?.write(Buffer.concat([Uint8Array.of(0x16, 3, 1, 2, 0), Buffer.alloc(512, 7)]));
        await peer?.hears(/./s);
        peer?.end();
      }
      return 0;
    },
  },
];
