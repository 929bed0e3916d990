// All types of authentication, each with the real system behind it and with the same interface, so that one test covers all types.

import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import type { TestContext } from 'node:test';
import { ADMIN_KEY, admin, tokenOf } from './admin.ts';
import { Authority, CertificateFiles, certify } from './certificate.ts';
import { atEnd } from './cleanup.ts';
import { connect, type ConnectOptions, type TestClient } from './client.ts';
import { RawPeer, type Dialled } from './raw.ts';
import { Server, type ServerOptions } from './server.ts';
import { hashPassword } from './users.ts';

/** The users that may log in. */
export const USERS = ['first', 'second', 'third', 'probe', 'publisher'];
const PASSWORD = 'correct horse battery';

/** The credentials and the connection of one login. */
export interface Entry {
  /** For `login()`. */
  details: Record<string, unknown>;
  /** How to dial the server, if the connection is encrypted. */
  dialled?: Dialled;
}

/** A server with one type of authentication. */
export interface Entrance {
  server: Server;
  entry(user: string): Entry;
  /** An entry that the server refuses, if the type has one. */
  wrong: Entry | undefined;
  /** The request to the admin API that revokes the user. */
  revocation(user: string): [method: string, path: string, body?: object];
}

const byUser = (user: string): [string, string, object] => ['POST', '/revocations', { user }];

function start(test: TestContext, auth: Record<string, unknown>, options: ServerOptions = {}): Promise<Server> {
  return Server.during(test, { auth, adminKey: ADMIN_KEY, logLevel: 'debug', ...options });
}

function folder(test: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), 'tidewire-auth-'));
  atEnd(test, () => rmSync(path, { recursive: true }));
  return path;
}

/** An HTTP server that decides logins and speaks the format of deepstream's HTTP authentication. */
async function hook(test: TestContext): Promise<string> {
  const server = createServer(async (request, response) => {
    const { authData } = (await json(request)) as { authData: { username: string; password: string } };
    response.writeHead(authData.password === PASSWORD ? 200 : 403).end(authData.username);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  atEnd(test, () => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const withPassword = (username: string, password = PASSWORD): Entry => ({ details: { username, password } });

/** The types by their names in `auth.chain`; each function starts a server with additional options of the section `auth`. */
export const AUTH_TYPES: Record<string, (test: TestContext, auth: Record<string, unknown>) => Promise<Entrance>> = {
  open: async (test, auth) => ({
    server: await start(test, { chain: ['open'], ...auth }),
    entry: (username) => ({ details: { username } }),
    wrong: undefined,
    revocation: byUser,
  }),
  file: async (test, auth) => {
    const users = Object.fromEntries(USERS.map((user) => [user, { password: hashPassword(PASSWORD) }]));
    const server = await start(test, auth, { users });
    return { server, entry: withPassword, wrong: withPassword('first', 'wrong'), revocation: byUser };
  },
  jwt: async (test, auth) => {
    const secret = 'a secret of the e2e suite, long enough for HMAC';
    const server = await start(test, { chain: ['jwt'], jwt: { secret }, ...auth });
    const entry = (user: string): Entry => ({ details: { token: tokenOf(server, user) } });
    return { server, entry, wrong: { details: { token: `${tokenOf(server, 'first')}x` } }, revocation: byUser };
  },
  webhook: async (test, auth) => {
    const server = await start(test, { chain: ['webhook'], webhook: { url: await hook(test) }, ...auth });
    return { server, entry: withPassword, wrong: withPassword('first', 'wrong'), revocation: byUser };
  },
  store: async (test, auth) => {
    const server = await start(test, { chain: ['store'], ...auth });
    for (const user of USERS) await admin(server, 'PUT', `/users/${user}`, { password: PASSWORD });
    const revocation = (user: string): [string, string] => ['DELETE', `/users/${user}`];
    return { server, entry: withPassword, wrong: withPassword('first', 'wrong'), revocation };
  },
  tls: async (test, auth) => {
    const [shown, authority, other] = [certify(), new Authority(test), new Authority(test)];
    const files = new CertificateFiles(test, shown);
    const clientCa = join(folder(test), 'authorities.pem');
    writeFileSync(clientCa, authority.certificate);
    const tls = { certificate: files.certificate, key: files.key, clientCa };
    const server = await start(test, { chain: ['tls'], ...auth }, { tls });
    const issued = new Map(USERS.map((user) => [user, authority.issue(user)]));
    const entry = ({ cert, key }: { cert: string; key: string }): Entry => {
      return { details: {}, dialled: { url: `wss://${server.tlsAddress}`, options: { ca: shown.certificate, cert, key } } };
    };
    const of = (user: string): { cert: string; key: string; serial: string } => issued.get(user) ?? authority.issue(user);
    const revocation = (user: string): [string, string, object] => ['POST', '/revocations', { certificate: of(user).serial }];
    return { server, entry: (user) => entry(of(user)), wrong: entry(other.issue('first')), revocation };
  },
  keys: async (test, auth) => {
    const [path, secret] = [join(folder(test), 'keys.yml'), randomBytes(32).toString('base64url')];
    const hash = `sha256:${createHash('sha256').update(secret).digest('base64url')}`;
    writeFileSync(path, JSON.stringify(Object.fromEntries(USERS.map((user) => [user, { hash }]))));
    const server = await start(test, { chain: ['keys'], keys: { path }, ...auth });
    const entry = (user: string): Entry => ({ details: { key: `${user}.${secret}` } });
    const revocation = (key: string): [string, string, object] => ['POST', '/revocations', { key }];
    return { server, entry, wrong: { details: { key: 'first.wrong' } }, revocation };
  },
};

/** Errors that a client reports after its session was revoked, or when the server refuses to let it reconnect. */
const ENDED = ['TOO_MANY_AUTH_ATTEMPTS', 'IS_CLOSED', 'CONNECTION_ERROR'];

/** A client of deepstream with this entry; with `login: false` it only connects. */
export function enter(test: TestContext, { server }: Entrance, { details, dialled }: Entry, options: ConnectOptions = {}): Promise<TestClient> {
  const socket = dialled && { through: dialled.url, socketOptions: dialled.options as never };
  return connect(test, server, { login: details, errors: ENDED, ...socket, ...options });
}

/** A peer without the client library that has logged in. */
export function enterRaw({ server }: Entrance, { details, dialled }: Entry): Promise<RawPeer> {
  return RawPeer.login(server, details, dialled);
}
