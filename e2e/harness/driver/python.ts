// A driver for the package `tidewire` of PyPI. The clients of a test file live in one Python process (`e2e/python/peer.py`), which talks
// in lines of JSON. A line to it is an operation of one client; lines from it are answers, values for an inbox, calls of a provider,
// messages of the server, and errors that no operation received.

import { spawn, type ChildProcessByStdio } from 'node:child_process';
import { resolve } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { atEnd } from '../cleanup.ts';
import { DEADLINE_MS, Inbox, within } from '../wait.ts';
import type { Change, Driver, Peer, Provider, SeenMessage } from './driver.ts';

const PROGRAM = resolve(import.meta.dirname, '../../python/peer.py');
/** Topics and actions of confirmations in the format of the vectors. */
const [EVENT, RPC, PRESENCE] = [4, 6, 7] as const;
const [EVENT_UNSUBSCRIBE, UNPROVIDE, PRESENCE_UNSUBSCRIBE, UNSUBSCRIBE_ALL] = [4, 9, 11, 13] as const;

/** An absent `value` is undefined, which differs from null. */
interface Line {
  answer?: number;
  error?: { code: string; text: string; data?: unknown };
  push?: number;
  call?: number;
  provider?: number;
  client?: number;
  message?: Confirmation;
  surprise?: { code: string; text: string };
  value?: unknown;
}

interface Confirmation extends SeenMessage {
  isAck?: boolean;
}

/** The error of an operation. */
class PeerError extends Error {
  constructor(
    readonly code: string,
    text: string,
    readonly data: unknown,
  ) {
    super(text);
  }
}

/** The Python process, and the requests that wait for its lines. */
class Process {
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;
  readonly #answers = new Map<number, { done: (value: unknown) => void; fail: (reason: unknown) => void }>();
  readonly inboxes = new Map<number, (value: any) => void>();
  readonly providers = new Map<number, Provider>();
  readonly watches = new Map<number, Set<(message: Confirmation) => void>>();
  readonly surprises = new Map<number, (code: string, text: string) => void>();
  #ids = 0;

  constructor(interpreter: string) {
    this.#child = spawn(interpreter, [PROGRAM], { stdio: ['pipe', 'pipe', 'inherit'] });
    createInterface({ input: this.#child.stdout }).on('line', (line) => this.#take(JSON.parse(line) as Line));
    this.#child.once('close', (code) => {
      this.#answers.forEach(({ fail }) => fail(new Error(`the Python process ended with ${code}`)));
    });
  }

  id(): number {
    this.#ids += 1;
    return this.#ids;
  }

  /** Starts an operation. */
  say(client: number, op: string, fields: object = {}): void {
    this.#child.stdin.write(`${JSON.stringify({ client, op, ...fields })}\n`);
  }

  /** Starts an operation, and waits for its answer. */
  ask(client: number, op: string, fields: object = {}): Promise<any> {
    const answer = this.id();
    const settled = new Promise((done, fail) => this.#answers.set(answer, { done, fail }));
    this.say(client, op, { answer, ...fields });
    return settled;
  }

  /** The process ends at the end of its input. */
  end(): void {
    this.#child.stdin.end();
  }

  #take({ answer, error, push, call, provider, client, message, surprise, value }: Line): void {
    if (answer !== undefined) {
      const waiting = this.#answers.get(answer);
      this.#answers.delete(answer);
      if (error) waiting?.fail(new PeerError(error.code, error.text, error.data));
      else waiting?.done(value);
    } else if (push !== undefined) this.inboxes.get(push)?.(value);
    else if (call !== undefined) this.#provide(call, provider as number, value);
    else if (message) [...(this.watches.get(client as number) ?? [])].forEach((look) => look(message));
    else if (surprise) this.surprises.get(client as number)?.(surprise.code, surprise.text);
  }

  #provide(call: number, provider: number, argument: unknown): void {
    this.providers.get(provider)?.(argument, {
      send: (value) => this.say(0, 'send', { call, value }),
      error: (value) => this.say(0, 'error', { call, value }),
      reject: () => this.say(0, 'reject', { call }),
    });
  }
}

/** A driver whose clients run in `interpreter`. Their process ends when none of them is open. */
export function pythonDriver(interpreter: string): Driver {
  let running: { process: Process; clients: number } | undefined;
  return {
    name: 'tidewire for Python',
    lostReason: 'CONNECTION_LOST',
    confirmsMerges: true,
    async connect(test, server, { login = {}, errors = [], through = server.address } = {}) {
      running ??= { process: new Process(interpreter), clients: 0 };
      const used = running;
      const { process } = used;
      used.clients += 1;
      const client = process.id();
      const surprises: string[] = [];
      const expected = new Set(errors);
      process.surprises.set(client, (code, text) => expected.has(code) || surprises.push(`${code} (${text})`));
      atEnd(test, async () => {
        // A test may end after the others have an edit and before its client has the acknowledgement.
        expected.add('CLOSED');
        await within(DEADLINE_MS, process.ask(client, 'close'), 'the client closes');
        used.clients -= 1;
        if (used.clients === 0) {
          process.end();
          running = undefined;
        }
        if (surprises.length > 0) throw new Error(`the client reported errors that the test did not expect: ${surprises.join(', ')}`);
      });
      await within(DEADLINE_MS, process.ask(client, 'connect', { address: through, login }), 'login');
      return pythonPeer(process, client);
    },
  };
}

function pythonPeer(process: Process, client: number): Peer {
  const ask = (op: string, fields: object, what: string): Promise<any> => within(DEADLINE_MS, process.ask(client, op, fields), what);
  const receives = (matches: (message: Confirmation) => boolean): Promise<SeenMessage> => {
    const all = process.watches.get(client) ?? new Set();
    process.watches.set(client, all);
    const found = new Promise<SeenMessage>((done) => {
      const look = (message: Confirmation): void => {
        if (!matches(message)) return;
        all.delete(look);
        done(message);
      };
      all.add(look);
    });
    return within(DEADLINE_MS, found, 'a message of the server');
  };
  /** Removes what the inbox or provider `id` belongs to, and waits for the confirmation of `action`. */
  const removed = async (id: number, topic: number, action: number): Promise<void> => {
    const confirmed = receives((message) => message.topic === topic && message.action === action && message.isAck === true);
    process.say(client, 'remove', { id });
    await confirmed;
  };
  const inboxOf = <T>(what: string): { id: number; inbox: Inbox<T> } => {
    const id = process.id();
    const inbox = new Inbox<T>(what);
    process.inboxes.set(id, inbox.push);
    return { id, inbox };
  };
  return {
    emit: (name, value) => process.say(client, 'emit', { name, value }),
    async subscribe(name) {
      const { id, inbox } = inboxOf<unknown>(`event ${name}`);
      await ask('subscribe', { id, name }, `subscription of ${name}`);
      return { inbox, stop: () => removed(id, EVENT, EVENT_UNSUBSCRIBE) };
    },
    call: (name, value) =>
      process.ask(client, 'call', { name, value }).catch((error: PeerError) => {
        throw error.code === 'REQUEST_ERROR' ? error.data : error.code;
      }),
    async provide(name, provider) {
      const id = process.id();
      process.providers.set(id, provider);
      await ask('provide', { id, name }, `provider of ${name}`);
      return () => removed(id, RPC, UNPROVIDE);
    },
    all: () => process.ask(client, 'all'),
    query: (users) => process.ask(client, 'query', { users }),
    async watch(users, one) {
      const { id, inbox } = inboxOf<Change>(`presence of ${users.join(', ')}`);
      // Users that are online at the beginning are not changes.
      let isReady = false;
      process.inboxes.set(id, ([user, isOnline]: Change) => {
        if (isReady && users.includes(user)) inbox.push([user, isOnline]);
      });
      await ask('watch', { id, user: one }, 'presence is watched');
      isReady = true;
      return { inbox, stop: () => removed(id, PRESENCE, one ? PRESENCE_UNSUBSCRIBE : UNSUBSCRIBE_ALL) };
    },
    async record(name) {
      const id = process.id();
      await ask('record', { id, name }, `record ${name}`);
      return {
        set: (value) => process.say(client, 'replace', { id, value }),
        setAt: (path, value) => process.say(client, 'set', { id, path, value }),
        setWithAck: (value) => process.ask(client, 'replace', { id, value }),
        setAtWithAck: (path, value) => process.ask(client, 'set', { id, path, value }),
        get: (path) => process.ask(client, 'get', { id, path }),
        version: () => process.ask(client, 'version', { id }),
        changes(path) {
          const { id: to, inbox } = inboxOf<unknown>(`values of ${name}`);
          process.say(client, 'changes', { id, to, path });
          return inbox;
        },
      };
    },
    snapshot: (name) => process.ask(client, 'read', { name }),
    receives,
    lost: () => ask('state', { state: 'waiting' }, 'the client is waiting'),
    opened: () => ask('state', { state: 'open' }, 'the client is open'),
    close: () => process.say(client, 'close'),
  };
}
