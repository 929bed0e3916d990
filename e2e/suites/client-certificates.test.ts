// Logins with client certificates: openssl issues real ones, and the unmodified client, HTTP requests and bare TLS sockets present them.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { renameSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, test, type TestContext } from 'node:test';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { ADMIN_KEY, admin } from '../harness/admin.ts';
import { Authority, CertificateFiles, certify, type Certified, type ClientCertificate } from '../harness/certificate.ts';
import { atEnd } from '../harness/cleanup.ts';
import { C, close, connect, inState, open, subscribed, type ConnectOptions, type TestClient } from '../harness/client.ts';
import { ask as askHttp2, openEvents, openSession } from '../harness/http2.ts';
import { fresh } from '../harness/names.ts';
import { Server, againstOriginal, type ServerOptions } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, within } from '../harness/wait.ts';

/** Lifetime of a short certificate in seconds: longer than a test needs for its steps before the expiry. */
const SHORT = 5;

interface Guarded {
  server: Server;
  shown: Certified;
  authority: Authority;
  /** Replaces the authorities that the server trusts. */
  believe(authority: Authority): void;
}

/** A server that accepts certificates from `authority`. */
async function guarded(test: TestContext, options: ServerOptions = {}, extra: object = {}): Promise<Guarded> {
  const [shown, authority] = [certify(), new Authority(test)];
  const files = new CertificateFiles(test, shown);
  const clientCa = join(files.certificate, '..', 'authorities.pem');
  const believe = ({ certificate }: Authority): void => {
    writeFileSync(`${clientCa}.new`, certificate);
    renameSync(`${clientCa}.new`, clientCa);
  };
  believe(authority);
  const tls = { certificate: files.certificate, key: files.key, reloadIntervalMs: 100, clientCa, ...extra };
  const server = await Server.during(test, { auth: { chain: ['tls'] }, tls, logLevel: 'debug', ...options });
  return { server, shown, authority, believe };
}

/** The TLS options of a client's socket. */
function socketOptions({ shown }: Guarded, certificate?: ClientCertificate): Record<string, unknown> {
  return { ca: shown.certificate, ...(certificate && { cert: certificate.cert, key: certificate.key }) };
}

/** A client that presents `certificate` if there is one. */
function shows(test: TestContext, guarded: Guarded, certificate?: ClientCertificate, options: ConnectOptions = {}): Promise<TestClient> {
  const through = `wss://${guarded.server.tlsAddress}`;
  return connect(test, guarded.server, { through, socketOptions: socketOptions(guarded, certificate) as never, ...options });
}

/** The answer to a login without data. */
async function outcome(test: TestContext, guarded: Guarded, certificate?: ClientCertificate): Promise<unknown> {
  const client = await shows(test, guarded, certificate, { login: false });
  const answer = new Promise<unknown>((done) => client.login({}, (success: boolean, data: unknown) => done(success || data)));
  return within(DEADLINE_MS, answer, 'an answer to the login');
}

const refusal = (error: string): object => ({ reason: { error } });

/** A request over TLS. */
async function ask(guarded: Guarded, certificate: ClientCertificate | undefined, method: string, path: string, body?: object): Promise<[number, string]> {
  const headers = { 'content-type': 'application/json' };
  const place = { host: '127.0.0.1', servername: 'localhost', port: guarded.server.tlsPort, path };
  const asked = request({ ...place, method, headers, agent: false, ...socketOptions(guarded, certificate) });
  asked.end(body && JSON.stringify(body));
  const [answer] = await within(DEADLINE_MS, once(asked, 'response'), `an answer to ${method} ${path}`);
  return [answer.statusCode, await text(answer)];
}

/** The reason for which a handshake is refused. With TLS 1.3, a client may complete its handshake before it receives the refusal. */
async function handshakeError(test: TestContext, guarded: Guarded, certificate?: ClientCertificate): Promise<string> {
  const socket = connectTls({ host: '127.0.0.1', servername: 'localhost', port: guarded.server.tlsPort, ...socketOptions(guarded, certificate) });
  atEnd(test, () => void socket.destroy());
  socket.resume();
  const [error] = await within(DEADLINE_MS, once(socket, 'error'), 'the handshake fails');
  return String(error);
}

/** The users that are online. */
async function online(client: TestClient): Promise<string[]> {
  return ((await client.presence.getAll()) as string[]).sort();
}

const failures = (server: Server): Promise<number> => server.metric('tidewire_tls_handshake_failures_total');

describe('a client certificate', { concurrency: 4, skip: againstOriginal && 'the original server speaks no TLS' }, () => {
  test('logs its user in, over WebSocket and over HTTP, under the rules of that user', async (t) => {
    const permissions = `
presence: { '*': { allow: true } }
event: { '*': { publish: true, subscribe: true, listen: true } }
rpc: { '*': { provide: true, request: true } }
record: { '*': { create: true, write: "user.id === 'anna'", read: true, delete: true, listen: true } }
`;
    const all = await guarded(t, { permissions });
    const [anna, bert] = [all.authority.issue('anna'), all.authority.issue('bert')];
    const client = await shows(t, all, anna);
    assert.deepEqual(await online(await shows(t, all, bert)), ['anna']);
    const name = fresh('record');
    const [status] = await ask(all, anna, 'PUT', `/records/${name}`, { by: 'anna' });
    assert.equal(status, 201);
    assert.equal((await ask(all, bert, 'PUT', `/records/${name}`, { by: 'bert' }))[0], 403);
    assert.deepEqual(await client.record.snapshot(name), { by: 'anna' });
    assert.equal((await ask(all, anna, 'POST', '/api/auth', {}))[0], 200);
    const body = [{ topic: 'record', action: 'read', recordName: name }];
    const [code, answer] = await ask(all, bert, 'POST', '/api', { body });
    assert.deepEqual([code, JSON.parse(answer).result], [200, 'SUCCESS']);
  });

  test('names its user by the field that auth.tls.user selects', async (t) => {
    for (const [user, name] of [['dns', 'sensor.example'], ['email', 'anna@example.com'], ['uri', 'spiffe://example/anna']] as const) {
      const all = await guarded(t, { auth: { chain: ['tls'], tls: { user } } });
      const names = 'DNS:sensor.example,email:anna@example.com,URI:spiffe://example/anna';
      await shows(t, all, all.authority.issue('somebody', { names }));
      const watcher = all.authority.issue('watcher', { names: 'DNS:watcher,email:watcher,URI:urn:watcher' });
      assert.deepEqual(await online(await shows(t, all, watcher)), [name]);
      assert.deepEqual(await outcome(t, all, all.authority.issue('somebody')), refusal('INVALID_CERTIFICATE'));
    }
  });

  test('that is missing where it is optional fails the login with a reason, also on unencrypted connections', async (t) => {
    const all = await guarded(t);
    assert.deepEqual(await outcome(t, all), refusal('MISSING_CERTIFICATE'));
    const clear = await connect(t, all.server, { login: false });
    const answer = new Promise((done) => clear.login({}, (_: boolean, data: unknown) => done(data)));
    assert.deepEqual(await within(DEADLINE_MS, answer, 'an answer'), refusal('MISSING_CERTIFICATE'));
    assert.equal((await ask(all, undefined, 'POST', '/api/auth', {}))[0], 401);
    assert.equal((await ask(all, undefined, 'GET', '/health'))[0], 200);
  });

  test('that is missing, of another authority, expired, or for servers is refused in the handshake', async (t) => {
    const all = await guarded(t, {}, { clientCertificates: 'required' });
    const other = new Authority(t);
    const over = all.authority.issue('anna', { seconds: -60 });
    assert.match(await handshakeError(t, all), /certificate required/);
    assert.match(await handshakeError(t, all, other.issue('anna')), /unknown ca/);
    assert.match(await handshakeError(t, all, over), /certificate expired/);
    assert.match(await handshakeError(t, all, all.authority.issue('anna', { usage: 'serverAuth' })), /alert/);
    assert.equal(await failures(all.server), 4);
    const client = open(`wss://${all.server.tlsAddress}`, { socketOptions: socketOptions(all, other.issue('anna')) as never });
    atEnd(t, () => close(client));
    await client.errors.find(({ event }) => event === 'CONNECTION_ERROR');
    assert.notEqual(client.getConnectionState(), C.CONNECTION_STATE.OPEN);
    assert.equal(await outcome(t, all, all.authority.issue('anna')), true);
  });

  test('ends the session when it expires; a client with another certificate by then continues', async (t) => {
    const all = await guarded(t);
    const [event, options] = [fresh('event'), socketOptions(all, all.authority.issue('anna', { seconds: SHORT }))];
    const renewed = await shows(t, all, undefined, { socketOptions: options as never, errors: ['CONNECTION_ERROR'] });
    const heard = await subscribed(renewed, event);
    const ended = await shows(t, all, all.authority.issue('bert', { seconds: SHORT }), { errors: ['CONNECTION_ERROR'] });
    const states = new Inbox<string>('states');
    renewed.on('connectionStateChanged', states.push);
    const { cert, key } = all.authority.issue('anna');
    Object.assign(options, { cert, key });
    await states.find((state) => state === C.CONNECTION_STATE.RECONNECTING);
    await inState(renewed, C.CONNECTION_STATE.OPEN);
    await eventually(async () => (await all.server.metric('tidewire_expired_sessions_total')) === 2, 'both sessions have expired');
    await eventually(async () => (await failures(all.server)) > 0, 'the server refuses the reconnect of the other client');
    assert.notEqual(ended.getConnectionState(), C.CONNECTION_STATE.OPEN);
    const publisher = await shows(t, all, all.authority.issue('publisher'));
    await renewed.wire.acknowledged('EVENT', C.EVENT_ACTION.SUBSCRIBE, event);
    publisher.event.emit(event, 'after');
    await heard.find((data) => data === 'after');
  });

  test('is checked again on a resumed connection', async (t) => {
    const all = await guarded(t);
    const certificate = all.authority.issue('anna', { seconds: SHORT });
    const login = async (socket: TLSSocket): Promise<string> => {
      const body = '{}';
      const head = `POST /api/auth HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n`;
      socket.write(`${head}content-length: ${body.length}\r\n\r\n${body}`);
      return (await within(DEADLINE_MS, text(socket), 'an answer')).split('\r\n')[0] as string;
    };
    const resumed = async (session: Buffer): Promise<string> => {
      const place = { host: '127.0.0.1', servername: 'localhost', port: all.server.tlsPort, session };
      const socket = connectTls({ ...place, ...socketOptions(all, certificate) });
      atEnd(t, () => void socket.destroy());
      await within(DEADLINE_MS, once(socket, 'secureConnect'), 'the handshake');
      assert.equal(socket.isSessionReused(), true);
      return login(socket);
    };
    const first = connectTls({ host: '127.0.0.1', servername: 'localhost', port: all.server.tlsPort, ...socketOptions(all, certificate) });
    const ticket = within(DEADLINE_MS, once(first, 'session'), 'a ticket');
    assert.match(await login(first), / 200 /);
    const [session] = await ticket;
    assert.match(await resumed(session), / 200 /);
    const watched = await shows(t, all, certificate, { errors: ['CONNECTION_ERROR'] });
    await inState(watched, C.CONNECTION_STATE.RECONNECTING);
    assert.match(await resumed(session), / 401 /);
  });

  test('is accepted as long as its authority is trusted', async (t) => {
    const all = await guarded(t);
    const [old, next] = [all.authority.issue('anna'), new Authority(t)];
    const stays = await shows(t, all, old);
    all.believe(next);
    const renewed = next.issue('anna');
    const isRefused = async (): Promise<boolean> => {
      return ask(all, old, 'POST', '/api/auth', {}).then(([status]) => status !== 200, () => true);
    };
    await eventually(isRefused, 'the server refuses the old certificate');
    assert.match(await handshakeError(t, all, old), /unknown ca/);
    assert.equal(await outcome(t, all, renewed), true);
    // A session that is logged in stays until its certificate expires or is revoked.
    assert.equal(await stays.record.has(fresh('record')), false);
    assert.equal(stays.getConnectionState(), C.CONNECTION_STATE.OPEN);
  });

  test('logs in requests and streams over HTTP/2, until it is revoked', async (t) => {
    const isAnna = "user.id === 'anna'";
    const record = { '*': { create: isAnna, read: isAnna, write: isAnna } };
    const nothing = { event: { '*': { publish: false } }, rpc: { '*': { request: false } }, presence: { '*': { allow: false } } };
    const permissions = JSON.stringify({ record, ...nothing });
    const all = await guarded(t, { adminKey: ADMIN_KEY, permissions });
    const { server, authority } = all;
    const session = (certificate?: ClientCertificate): ReturnType<typeof openSession> => openSession(t, server, socketOptions(all, certificate));
    const [anna, bert] = [authority.issue('anna'), authority.issue('bert')];
    const own = await session(anna);
    const put = { method: 'PUT', headers: { 'content-type': 'application/json' }, body: '{"a":1}' };
    assert.equal((await askHttp2(own, '/records/r', put)).status, 201);
    assert.equal((await askHttp2(await session(bert), '/records/r')).status, 403);
    assert.equal((await askHttp2(await session(), '/records/r')).status, 401);
    const { pieces, status } = await openEvents(own, '/sse?record=r');
    assert.equal(status, 200);
    assert.deepEqual((await pieces.next()).data, { name: 'r', version: 1, data: { a: 1 } });
    assert.equal((await admin(server, 'POST', '/revocations', { certificate: anna.serial }))[0], 201);
    assert.equal((await pieces.next()).event, 'end');
    assert.equal((await askHttp2(own, '/records/r')).status, 401, 'the revocation also applies to the open connection');
  });

  test('is revoked by its serial number, as a whole, or with its user, and a restart does not undo it', async (t) => {
    const all = await guarded(t, { adminKey: ADMIN_KEY });
    const { server, authority } = all;
    const errors = ['TOO_MANY_AUTH_ATTEMPTS', 'IS_CLOSED', 'CONNECTION_ERROR'];
    const [first, second, third] = [authority.issue('anna'), authority.issue('anna'), authority.issue('anna')];
    const clients = await Promise.all([first, second, third].map((one) => shows(t, all, one, { errors })));
    const isOut = (index: number): Promise<unknown> => {
      const gone = (): boolean => clients[index]?.getConnectionState() !== C.CONNECTION_STATE.OPEN;
      return eventually(gone, `client ${index} is disconnected`);
    };
    const [status, byNumber] = await admin(server, 'POST', '/revocations', { certificate: first.serial });
    assert.deepEqual([status, byNumber.kind, byNumber.until], [201, 'certificate', null]);
    assert.equal(BigInt(`0x${byNumber.name}`), BigInt(`0x${first.serial}`));
    await isOut(0);
    const [, whole] = await admin(server, 'POST', '/revocations', { certificate: second.cert });
    assert.ok(whole.until > Date.now() / 1_000, 'the server keeps the revocation until the certificate expires');
    await isOut(1);
    assert.equal(clients[2]?.getConnectionState(), C.CONNECTION_STATE.OPEN);
    assert.equal((await ask(all, first, 'POST', '/api/auth', {}))[0], 401);
    assert.equal((await admin(server, 'POST', '/revocations', { certificate: 'no number' }))[0], 400);
    await admin(server, 'POST', '/revocations', { user: 'anna' });
    await isOut(2);
    await server.stop();
    await server.start();
    for (const one of [first, second, third]) assert.equal((await ask(all, one, 'POST', '/api/auth', {}))[0], 401);
    assert.equal((await admin(server, 'DELETE', '/revocations/user/anna'))[0], 204);
    assert.equal((await admin(server, 'DELETE', `/revocations/certificate/${first.serial}`))[0], 204);
    assert.equal((await ask(all, first, 'POST', '/api/auth', {}))[0], 200);
    assert.equal((await ask(all, second, 'POST', '/api/auth', {}))[0], 401);
  });
});
