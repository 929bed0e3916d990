// The other backends of a namespace: their sockets, and events between the apps. All are messages of the server between backends, whose data
// are an array with an event of the app, or an object with a request of this package.

import { randomBytes } from 'node:crypto';
import { AskError, type Payload } from '@tidewire/server';
import type { Namespace } from './namespace.js';
import { payloadOf, valuesOf } from './payload.js';
import type { Handshake, Socket } from './socket.js';
import type { Ack, Room, SocketId } from './types.js';

/** Sockets in some rooms, or in all, and not in others. */
export interface Selection {
  rooms: Room[];
  except: Room[];
}

/** What other backends know of a socket. */
export interface SocketDetails {
  id: SocketId;
  handshake: Handshake;
  rooms: Room[];
  data: unknown;
}

type Command = { socketsJoin: Room[] } | { socketsLeave: Room[] } | { disconnectSockets: boolean };
/** `after` has the serial number of the last socket that each backend has sent. */
type Request = Selection & ({ fetchSockets: { after: Record<string, number> } } | Command);

/** The answer of a backend: some of its sockets, and the serial number of the last one if it has more. */
interface Page {
  backend: string;
  sockets: SocketDetails[];
  last?: number;
  error?: string;
}

/** How long other backends may take, as in the adapters of `socket.io`. */
const TIMEOUT_MS = 5_000;
/** A message has at most `limits.message_bytes_max`, 1 MiB by default. */
const PAGE_LENGTH = 100_000;
const SOCKET_LENGTH_MAX = 500_000;

/** The other backends of a namespace. */
export class Siblings {
  readonly #namespace: Namespace;
  /** The name of this backend among the others. */
  readonly #id = randomBytes(9).toString('base64url');

  constructor(namespace: Namespace) {
    this.#namespace = namespace;
  }

  /** The matching sockets of the other backends. */
  async fetchSockets(selection: Selection): Promise<SocketDetails[]> {
    const found: SocketDetails[] = [];
    const after: Record<string, number> = {};
    for (;;) {
      const pages = await this.#request({ ...selection, fetchSockets: { after } });
      for (const { backend, sockets, last, error } of pages) {
        if (error !== undefined) throw new Error(error);
        // The backends that have sent all of theirs send none for a number that no socket reaches.
        after[backend] = last ?? Number.MAX_SAFE_INTEGER;
        found.push(...sockets);
      }
      if (pages.every(({ last }) => last === undefined)) return found;
    }
  }

  /** Whether other backends serve the namespace. If the server does not answer, there may be some. */
  async areThere(): Promise<boolean> {
    try {
      // No socket is in a room without a name, so the answers are short.
      return (await this.#request({ rooms: [''], except: [], fetchSockets: { after: {} } })).length > 0;
    } catch {
      return true;
    }
  }

  /** Requests that the other backends do this with their matching sockets. */
  command(selection: Selection, command: Command): void {
    this.#send({ data: JSON.stringify({ ...selection, ...command }) });
  }

  /** Sends an event to the apps of the other backends. */
  emit(event: string, args: readonly unknown[]): void {
    this.#send(payloadOf([event, ...args]));
  }

  /** The same, and resolves with their answers. The error has `responses`, the answers that have arrived. */
  async emitWithAck(event: string, args: readonly unknown[]): Promise<unknown[]> {
    const first = (replies: readonly Payload[]): unknown[] => replies.map((reply) => valuesOf(reply)).filter(({ length }) => length > 0).map(([value]) => value);
    try {
      return first(await this.#namespace.link.tell(this.#namespace.name, payloadOf([event, ...args]), TIMEOUT_MS));
    } catch (error) {
      if (!(error instanceof AskError)) throw error;
      const responses = first(error.answers);
      throw Object.assign(shownOf(error, responses.length), { responses });
    }
  }

  #send(payload: Payload): void {
    const { link, name } = this.#namespace;
    // Without a connection it is lost, as an event for clients.
    link.tell(name, payload).catch((error: AskError) => (error.reason === 'lost' ? undefined : link.report(error)));
  }

  async #request(request: Request): Promise<Page[]> {
    const { link, name } = this.#namespace;
    try {
      const replies = await link.tell(name, { data: JSON.stringify(request) }, TIMEOUT_MS);
      return replies.flatMap(({ data }) => JSON.parse(data) as Page[]);
    } catch (error) {
      throw error instanceof AskError ? shownOf(error, error.answers.length) : error;
    }
  }

  /** Handles a message of another backend. */
  told(payload: Payload, id: string | undefined): void {
    this.#namespace.recovery?.noteOthers(true);
    const reply = (answer: Payload): void => {
      if (id !== undefined) this.#namespace.link.reply(id, answer);
    };
    if (payload.data.startsWith('[')) {
      const [event, ...args] = valuesOf(payload) as [string, ...unknown[]];
      let isSent = false;
      const ack: Ack = (...answers) => {
        if (isSent) return;
        isSent = true;
        // Only the first argument, as in `socket.io`.
        reply(payloadOf([answers[0] ?? null]));
      };
      this.#namespace.dispatch(event, id === undefined ? args : [...args, ack]);
      return;
    }
    const request = JSON.parse(payload.data) as Request;
    const sockets = this.#namespace.matching(request);
    if ('fetchSockets' in request) return reply({ data: JSON.stringify([this.#page(sockets, request.fetchSockets.after[this.#id] ?? -1)]) });
    for (const socket of sockets) perform(socket, request);
  }

  #page(sockets: Socket[], after: number): Page {
    const page: Page = { backend: this.#id, sockets: [] };
    let length = 0;
    for (const socket of sockets) {
      if (socket.serial <= after) continue;
      if (length > PAGE_LENGTH) return page;
      const { id, handshake, rooms, data } = socket;
      try {
        const details = { id, handshake, rooms: [...rooms], data: data as unknown };
        const added = JSON.stringify(details).length;
        if (added > SOCKET_LENGTH_MAX) return { ...page, error: `socket.data of ${id} is too large for other apps` };
        if (length + added > SOCKET_LENGTH_MAX) return page;
        page.sockets.push(details);
        page.last = socket.serial;
        length += added;
      } catch (error) {
        return { ...page, error: `socket.data of ${id} has no JSON for other apps: ${(error as Error).message}` };
      }
    }
    delete page.last;
    return page;
  }
}

/** The error that apps get, with the text of `socket.io`. */
function shownOf(error: AskError, received: number): Error {
  if (error.reason !== 'timeout') return error;
  const missing = error.asked === undefined ? 'the server is silent' : `missing ${error.asked - received} responses`;
  return new Error(`timeout reached: ${missing}`);
}

/** Does this with a socket. */
export function perform(socket: Socket, command: Command): void {
  if ('socketsJoin' in command) socket.join(command.socketsJoin);
  else if ('socketsLeave' in command) for (const room of command.socketsLeave) socket.leave(room);
  else socket.disconnect(command.disconnectSockets);
}
