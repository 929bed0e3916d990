// Attacks over HTTP: batches of reads, streams that the client does not read, and logins with large bodies.

import { Agent, request, type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import type { Seat, WorkAttack } from '../attack.ts';
import { WITHOUT_MEMORY_LIMIT, WITHOUT_WORK_LIMITS } from '../limit.ts';
import { records } from '../seed.ts';

/** Repeats a request over one connection and counts the bytes of the responses. */
async function ask(seat: Seat, path: string, body: string, touchedBytes: (answered: number) => number): Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  void seat.over().then(() => agent.destroy());
  while (!seat.isOver) {
    const answered = await new Promise<number>((done) => {
      let bytes = 0;
      const headers = { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) };
      const asked = request(`http://${seat.address}${path}`, { method: 'POST', agent, headers }, (answer: IncomingMessage) => {
        answer.on('data', (part: Buffer) => (bytes += part.length));
        answer.once('close', () => done(answer.statusCode === 200 ? bytes : 0));
      });
      asked.once('error', () => done(0));
      asked.end(body);
    });
    seat.done.sentBytes += body.length;
    seat.done.receivedBytes += answered;
    if (answered > 0) seat.complete(1, touchedBytes(answered));
    // If the server refuses immediately, wait: a busy loop would occupy the core that the bystanders use.
    else await new Promise((wake) => setTimeout(wake, 10));
  }
}

export const HTTP: WorkAttack[] = [
  {
    name: 'batches of 10,000 reads of a record of 1 MB',
    harm: 'memory',
    off: WITHOUT_MEMORY_LIMIT,
    seed: records('large', 1, 1_000_000),
    prepare: (seat) => {
      const commands = Array.from({ length: 10_000 }, () => ({ topic: 'record', action: 'read', recordName: 'large/0' }));
      const body = JSON.stringify({ authData: seat.login, body: commands });
      return () => ask(seat, '/api', body, (answered) => answered);
    },
  },
  {
    name: 'streams of 100 records of 0.9 MB that are not read',
    harm: 'memory',
    off: WITHOUT_WORK_LIMITS,
    seed: records('streamed', 100, 900_000),
    prepare: (seat) => async () => {
      const { username, password } = seat.login;
      const authorization = Buffer.from(`${username}:${password}`).toString('base64');
      const query = Array.from({ length: 100 }, (_, index) => `record=streamed%2F${index}`).join('&');
      const [host, port] = seat.address.split(':') as [string, string];
      const open = (): void => {
        if (seat.isOver) return;
        const socket = connect({ host, port: Number(port) });
        socket.on('error', () => {});
        // The kernel buffers as much as fits; the rest waits in the server.
        socket.pause();
        socket.write(`GET /sse?${query} HTTP/1.1\r\nHost: ${seat.address}\r\nAuthorization: Basic ${authorization}\r\n\r\n`);
        seat.complete(1, 90_000_000);
        socket.once('close', () => setTimeout(open, 50));
        void seat.over().then(() => socket.resetAndDestroy());
      };
      for (let index = 0; index < 20; index += 1) open();
      await seat.over();
    },
  },
  {
    name: 'logins over HTTP with bodies of 1 MB',
    options: { auth: { chain: ['file', 'open'] } },
    harm: 'either',
    off: { auth: { chain: ['file', 'open'], login_bytes_max: 2_000_000 }, ...WITHOUT_MEMORY_LIMIT },
    prepare: (seat) => {
      const body = `{"a":[${Array.from({ length: 145_000 }, () => '{"":1}').join(',')}]}`.slice(0, 1_000_000);
      const whole = body.endsWith(']}') ? body : `{"a":[${Array.from({ length: 140_000 }, () => '{"":1}').join(',')}]}`;
      return () => ask(seat, '/api/auth', whole, () => whole.length);
    },
  },
];
