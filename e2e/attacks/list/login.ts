// Attacks on logins: guessing, early reconnects, forged and foreign tokens, used tickets.

import { createHmac } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { C } from '../../harness/client.ts';
import type { ServerOptions } from '../../harness/server.ts';
import { type Attack, type Target, NO_LIMIT, attempts, over, refusedRequests } from '../attack.ts';
import { Peer, request } from '../peer.ts';

const { TOPIC, CONNECTION_ACTION, AUTH_ACTION } = C;
/** A secret that an issuer shares with this server and with other services. */
const SECRET = 'a secret of the attacks, long enough for HMAC';
/** The public key of an issuer. The private key is not stored. */
const KEY_FILE = resolve(import.meta.dirname, 'issuer.pem');

/** Options of a server that authenticates the control pairs by password and other users by token. */
const trusting = (jwt: Record<string, unknown>): ServerOptions => {
  return { users: {}, authAttemptsMax: 1_000_000, auth: { chain: ['jwt', 'file'], jwt } };
};
const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
const soon = (seconds: number): number => Math.floor(Date.now() / 1_000) + seconds;

/** A token that is signed with `key`, independent of the algorithm in its head. */
function token(head: object, claims: object, key: string | undefined): string {
  const message = `${part({ typ: 'JWT', ...head })}.${part({ sub: 'admin', aud: 'tidewire', exp: soon(60), ...claims })}`;
  return `${message}.${key === undefined ? '' : createHmac('sha256', key).update(message).digest('base64url')}`;
}

/** Logs in with tokens, alternately over WebSocket and HTTP; returns the number of successes. */
function present(target: Target, forge: (round: number) => string): Promise<number> {
  return attempts(target, async (round) => {
    const forged = forge(round >> 1);
    if (round % 2 === 1) {
      // A user that is logged in receives 404, because the record does not exist.
      return (await Peer.ask(target.address, request('GET /records/attack', { Authorization: `Bearer ${forged}` }))) === 404;
    }
    const peer = await Peer.login(target.address, { token: forged });
    const isIn = peer?.messages.some(({ topic, action }) => topic === TOPIC.AUTH && action === AUTH_ACTION.AUTH_SUCCESSFUL) === true;
    peer?.end();
    return isIn;
  });
}

export const LOGINS: Attack[] = [
  {
    name: 'guessing passwords',
    limit: 'auth.attempts_max and backoff',
    metric: 'tidewire_backoff_waits_total',
    options: { users: {}, authAttemptsMax: 3, backoff: { wait_min: '1s' } },
    off: { users: {}, authAttemptsMax: 1_000_000, backoff: { wait_max: '0s' } },
    harm: 'reached',
    bound: 100,
    run: async (target) => {
      let guesses = 0;
      while (!target.isOver()) {
        const peer = await Peer.upgrade(target.address);
        await peer?.say({ topic: TOPIC.CONNECTION, action: CONNECTION_ACTION.CHALLENGE, url: target.address });
        await Promise.race([peer?.hearsFrames(1), over(target)]);
        while (peer?.isOpen && !target.isOver()) {
          const before = peer.received.length;
          await peer.say({ topic: TOPIC.AUTH, action: AUTH_ACTION.REQUEST, data: JSON.stringify({ username: 'admin', password: `${guesses}` }) });
          const isAnswered = await Promise.race([peer.hearsBytes((bytes) => bytes.length > before), over(target)]);
          if (isAnswered) guesses += 1;
        }
        peer?.end();
      }
      return guesses;
    },
  },
  {
    name: 'coming back at once after being closed',
    limit: 'backoff',
    metric: 'tidewire_backoff_waits_total',
    options: { backoff: { wait_min: '1s' } },
    off: { backoff: { wait_max: '0s' } },
    harm: 'reached',
    bound: 20,
    run: async (target) => {
      let logins = 0;
      while (!target.isOver()) {
        const peer = await Promise.race([Peer.login(target.address), over(target)]);
        if (!(peer instanceof Peer)) continue;
        logins += 1;
        await peer.frame(Buffer.alloc(1), { reserved: 7 });
        await peer.hears(/$^/);
      }
      return logins;
    },
  },
  {
    name: 'tokens without a signature',
    limit: 'the algorithm is the key\'s, never the token\'s',
    metric: 'tidewire_logins_refused_total',
    options: trusting({ secret: SECRET }),
    off: { because: NO_LIMIT },
    harm: 'reached',
    bound: 0,
    run: (target) => present(target, (round) => token({ alg: ['none', 'None', 'NONE', '', 'HS256'][round % 5] }, {}, undefined)),
  },
  {
    name: 'tokens signed with the public key',
    limit: 'the algorithm is the key\'s, never the token\'s',
    metric: 'tidewire_logins_refused_total',
    options: trusting({ key_file: KEY_FILE }),
    off: { because: NO_LIMIT },
    harm: 'reached',
    bound: 0,
    run: (target) => {
      const key = readFileSync(KEY_FILE, 'utf8');
      const keys = [key, key.trim(), key.replace(/-----[A-Z ]+-----|\s/g, '')];
      return present(target, (round) => token({ alg: 'HS256' }, {}, keys[round % 3]));
    },
  },
  {
    name: 'tokens for another audience',
    limit: 'auth.jwt.audience',
    metric: 'tidewire_logins_refused_total',
    options: trusting({ secret: SECRET, audience: ['tidewire'] }),
    off: trusting({ secret: SECRET }),
    harm: 'reached',
    bound: 0,
    run: (target) => present(target, (round) => token({ alg: 'HS256' }, { aud: ['other', ['other', 'more'], '', { tidewire: true }][round % 4] }, SECRET)),
  },
  {
    name: 'tokens that are expired, not yet valid, or endless',
    limit: 'exp is required, and 30 s of difference between clocks are allowed for',
    metric: 'tidewire_logins_refused_total',
    options: trusting({ secret: SECRET }),
    off: { because: NO_LIMIT },
    harm: 'reached',
    bound: 0,
    run: (target) => present(target, (round) => {
      const claims = [{ exp: soon(-60) }, { nbf: soon(60) }, { exp: undefined }, { exp: 'never' }, { exp: -1 }, { exp: 1e300 }];
      return token({ alg: 'HS256' }, claims[round % 6] as object, SECRET);
    }),
  },
  {
    name: 'tokens that bring their own key',
    limit: 'a key is never taken from a token, and its name is no path',
    metric: 'tidewire_logins_refused_total',
    options: trusting({ key_file: KEY_FILE }),
    off: { because: NO_LIMIT },
    harm: 'reached',
    bound: 0,
    run: (target) => present(target, (round) => {
      const own = { kty: 'oct', k: Buffer.from('mine').toString('base64url'), alg: 'HS256' };
      const heads = [
        { jwk: own }, { jku: `http://${target.address}/records/keys` }, { kid: '../../../../dev/null' }, { kid: "' or 1=1 --" }, { x5u: 'file:///etc/passwd' },
      ];
      return token({ alg: 'HS256', ...heads[round % heads.length] }, {}, round % 2 === 0 ? 'mine' : '');
    }),
  },
  {
    name: 'tickets that were used',
    limit: 'a ticket is good once',
    metric: refusedRequests('ticket'),
    off: { because: NO_LIMIT },
    harm: 'reached',
    bound: 0,
    run: (target) => attempts(target, async () => {
      const peer = await Peer.saying(target.address, request('POST /api/auth', { 'Content-Type': 'application/json' }, '{}'));
      await peer?.hears(/"ticket":"\w+"/);
      const ticket = /"ticket":"(\w+)"/.exec(peer?.received.toString('latin1') ?? '')?.[1];
      peer?.end();
      const use = (): Promise<number> => Peer.ask(target.address, request(`GET /sse?event=attack&ticket=${ticket}`));
      return (await use()) === 200 && (await use()) === 200;
    }),
  },
];
