// A socket whose server is the test: it sees the client's messages and sends any messages that it needs.

import { mock, type TestContext } from 'node:test';
import { decode, encode } from '../src/codec.js';
import type { WebSocketClass, WebSocketLike } from '../src/environment.js';
import { Client, type Schema, type TidewireError } from '../src/index.js';
import { AuthAction, ConnectionAction, Topic, type Message } from '../src/protocol.js';

export class FakeSocket implements WebSocketLike {
  binaryType = '';
  bufferedAmount = 0;
  onopen: ((event: never) => void) | null = null;
  onmessage: ((event: never) => void) | null = null;
  onclose: ((event: never) => void) | null = null;
  onerror: ((event: never) => void) | null = null;
  isClosed = false;
  readonly sent: Message[] = [];

  constructor(readonly url: string) {}

  send(data: Uint8Array): void {
    this.sent.push(...decode(data));
  }

  close(): void {
    this.isClosed = true;
  }

  /** Returns all sent messages and clears the list. */
  take(): Message[] {
    return this.sent.splice(0);
  }

  opens(): void {
    this.onopen?.({} as never);
  }

  says(...messages: Message[]): void {
    const bytes = messages.map((message) => encode(message));
    const batch = new Uint8Array(bytes.reduce((sum, { length }) => sum + length, 0));
    let at = 0;
    for (const one of bytes) {
      batch.set(one, at);
      at += one.length;
    }
    this.onmessage?.({ data: batch.buffer } as never);
  }

  /** The server closes the connection. */
  ends(code = 1006): void {
    this.onclose?.({ code, reason: '' } as never);
  }

  /** The server accepts the login, and may announce its limit for a message. */
  async logsIn(messageBytesMax?: number): Promise<void> {
    this.opens();
    const limits = messageBytesMax === undefined ? {} : { data: JSON.stringify({ messageBytesMax }) };
    this.says({ topic: Topic.Connection, action: ConnectionAction.Accept, ...limits });
    await settle();
    this.says({ topic: Topic.Auth, action: AuthAction.Successful });
    await settle();
    this.take();
  }

  pongs(): void {
    this.says({ topic: Topic.Connection, action: ConnectionAction.Pong });
  }
}

/** A class of sockets, and all sockets that were created from it. */
export function fakeSockets(): { sockets: FakeSocket[]; webSocket: WebSocketClass; last(): FakeSocket } {
  const sockets: FakeSocket[] = [];
  const webSocket = class extends FakeSocket {
    constructor(url: string) {
      super(url);
      sockets.push(this);
    }
  };
  const last = (): FakeSocket => {
    const socket = sockets.at(-1);
    if (!socket) throw new Error('no socket was made');
    return socket;
  };
  return { sockets, webSocket, last };
}

/** Runs all promise callbacks that are due. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
}

/** A client with one open connection, whose timers the test moves. */
export interface Opened<App extends Schema> {
  client: Client<App>;
  last(): FakeSocket;
  errors: TidewireError[];
  /** Loses the connection and opens another session. */
  returns(): Promise<void>;
}

export async function opened<App extends Schema = {}>(t: TestContext): Promise<Opened<App>> {
  mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  t.after(() => mock.timers.reset());
  t.mock.method(Math, 'random', () => 0);
  const { webSocket, last } = fakeSockets();
  const client = new Client<App>('server:1', { webSocket });
  const errors: TidewireError[] = [];
  client.onError((error) => errors.push(error));
  t.after(() => client.close());
  const connected = client.connect();
  await last().logsIn();
  await connected;
  const returns = async (): Promise<void> => {
    last().ends();
    mock.timers.tick(0);
    last().opens();
    last().says({ topic: Topic.Connection, action: ConnectionAction.Accept });
    await settle();
    last().take();
    last().says({ topic: Topic.Auth, action: 3 });
    await settle();
  };
  return { client, last, errors, returns };
}
