// A peer that sends almost valid messages: every field that the server forwards contains an awkward value, and half of the messages also
// have changed bytes.

import { getMessage } from '@deepstream/protobuf/dist/src/message-builder.js';
import { TARGETS } from './bystander.ts';
import { C, type Message } from './client.ts';
import { fresh } from './names.ts';
import type { Random } from './random.ts';
import { RawPeer } from './raw.ts';
import type { Server } from './server.ts';

/** Messages before the fuzzer waits for an answer of the server, which limits its rate. */
const BURST = 100;

const { EVENT, RECORD, RPC, PRESENCE } = C.TOPIC;
const E = C.EVENT_ACTION;
const R = C.RECORD_ACTION;
const P = C.RPC_ACTION;
const U = C.PRESENCE_ACTION;
/** An action that this version of the client's package does not name, but later versions send. */
const PATCH_MULTI = 35;

/** Texts that have broken parsers, valid JSON and invalid. */
const DATA = [
  ...['', ' ', '{', '}', '{"a":', '[1,]', "{'a':1}", 'undefined', 'NaN', 'Infinity', '01', '1.', '.5', '+1', '-', '1 2', '{}x'],
  ...['"\u0000"', '"\u2028"', '"\\ud800"', '"\\u0000"', '"\\x"', '"unterminated', '\ufeff1', 'nul', 'truefalse', '"\t"'],
  ...['null', 'true', '0', '-0', '1e400', '-1e-400', '9007199254740993', '""', '[]', '{}', '[[[[]]]]', '{"":{"":""}}'],
  ...['{"__proto__":{"polluted":1}}', '{"constructor":{"prototype":{"polluted":1}}}', '{"a":1,"a":2}', '{"toString":1}'],
  ...['{"length":-1}', '["__proto__","constructor"]', '[null,1,{}]', '{"h":{"n":"0","p":"0"},"0":{"d":"a","n":"","p":""}}'],
  ...[`${'['.repeat(63)}${']'.repeat(63)}`, '['.repeat(20_000), `${'{"a":'.repeat(100)}1${'}'.repeat(100)}`],
  `"${'x'.repeat(50_000)}"`,
];
const PATHS = [
  ...['a', 'a.b', 'a.b.c', 'a[0]', 'a[2].b', '[0]', '[1].x', 'a..b', '.', ' ', 'length', 'a.length', '0', '1.length', 'ü.🎉'],
  ...['__proto__', '__proto__.polluted', 'constructor.prototype.polluted', 'a.__proto__.x', 'prototype', 'a[__proto__]'],
  ...['a[x]', 'a[-1]', 'a[1.5]', 'a[1e9]', 'a[4294967295]', 'a[99999999999999999999]', 'a[', 'a]', 'a[0', 'a[][0]', 'a[0]b'],
  ...['toString', 'hasOwnProperty.call', 'x'.repeat(3_000), Array(200).fill('n').join('.'), ''],
];
const NAMES = ['', ' ', '\u0000', '.*', '(', '%_EVERYONE_%', 'ü🎉', '__proto__', 'constructor', 'x'.repeat(2_000), '"\\'];
/** Values for the user name of a login. Some are not names; none is refused for its length. */
const USERS = [...NAMES.filter(({ length }) => length < 1_000), 'fuzz-user', 5, null, { a: 1 }, ['b']];
const VERSIONS = [-1, 0, 1, 2, 3, 2_147_483_647, -2_147_483_648, -2];
const PATTERNS = ['fuzz/.*', '.*', '', '(', '(?=a)', '[', 'a{99999}', '(a+)+$', '\\', '^fuzz/record$', '(?<n>x)', '\u0000'];

const ANSWERS = [P.RESPONSE, P.REQUEST_ERROR, P.REJECT, P.ACCEPT];
const SUBSCRIPTIONS = [R.SUBSCRIBECREATEANDREAD, R.SUBSCRIBEANDHEAD, R.UNSUBSCRIBE];
/** All topics except RECORD, whose patches need special care. */
const ANY_TOPIC = [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 100];

type Draft = Partial<Message> & { topic: number; action: number };

/** Sends mutated messages over one connection at a time. */
export class Fuzzer {
  sent = 0;
  connections = 0;
  #peer: RawPeer | undefined;

  constructor(
    private readonly server: Server,
    private readonly random: Random,
  ) {}

  /** Sends messages until `deadline`, in milliseconds of the clock. */
  async run(deadline: number): Promise<void> {
    while (Date.now() < deadline) {
      const peer = await this.#connected();
      for (let i = 0; i < BURST && peer.isOpen; i += 1) {
        peer.sendBytes(this.#bytes(this.#answer(peer) ?? this.#draft()));
        this.sent += 1;
      }
      // If the connection is still open, the server's answer limits the rate.
      if (peer.isOpen) await Promise.race([peer.settle().catch(() => undefined), peer.closed]);
      if (this.random.once(20)) peer.abort();
    }
    this.#peer?.abort();
  }

  async #connected(): Promise<RawPeer> {
    if (this.#peer?.isOpen) return this.#peer;
    const username = this.random.of([...USERS, fresh('fuzz')]);
    this.#peer = await RawPeer.login(this.server, { username });
    this.connections += 1;
    const { TARGET_SUBSCRIPTIONS } = Fuzzer;
    for (const message of TARGET_SUBSCRIPTIONS) this.#peer.send({ ...message });
    return this.#peer;
  }

  /** The subscriptions of every connection, which make it a provider, a listener and a subscriber. */
  static readonly TARGET_SUBSCRIPTIONS: Draft[] = [
    { topic: RPC, action: P.PROVIDE, names: [TARGETS.provided], correlationId: '0' },
    { topic: RECORD, action: R.LISTEN, name: '^fuzz/' },
    { topic: EVENT, action: E.LISTEN, name: '^fuzz/' },
    { topic: RECORD, action: R.SUBSCRIBECREATEANDREAD, names: [TARGETS.record, TARGETS.list], correlationId: '0' },
  ];

  /** An answer to a call of a real client, if a call has arrived. */
  #answer(peer: RawPeer): Draft | undefined {
    const { random } = this;
    const call = peer.received.take().findLast(({ topic, action }) => topic === RPC && action === P.REQUEST);
    if (!call) return undefined;
    const { name, correlationId } = call;
    if (random.once(2)) peer.send({ topic: RPC, action: P.ACCEPT, name, correlationId });
    return { topic: RPC, action: random.of(ANSWERS), name, correlationId, data: random.of(DATA) };
  }

  #draft(): Draft {
    const { random } = this;
    const data = random.once(8) ? undefined : random.of(DATA);
    const path = random.of(PATHS);
    const version = random.of(VERSIONS);
    const name = random.once(6) ? random.of(NAMES) : undefined;
    const names = [random.of(NAMES), fresh('fuzz/name'), random.of(NAMES)];
    const correlationId = random.of(['0', '1', '', ...NAMES]);
    const ack = random.once(3) ? { isWriteAck: true, correlationId } : {};
    const target = name ?? random.of([TARGETS.record, TARGETS.record, TARGETS.list]);
    const write = { topic: RECORD, name: target, version, ...ack };
    // Send patches to the record only. The client's lists treat every patch as a whole value, even their own, and then hold another
    // document than the one against which the server checks patches.
    const patch = { ...write, name: name ?? TARGETS.record, path, data };
    return random.of<() => Draft>([
      () => ({ topic: EVENT, action: E.EMIT, name: name ?? TARGETS.event, data }),
      () => ({ topic: EVENT, action: E.EMIT, name: name ?? TARGETS.event, data }),
      () => ({ topic: EVENT, action: random.of([E.SUBSCRIBE, E.UNSUBSCRIBE]), names, correlationId }),
      () => ({ topic: EVENT, action: random.of([E.LISTEN, E.UNLISTEN]), name: random.of(PATTERNS) }),
      () => ({ topic: RECORD, action: random.of([R.LISTEN, R.UNLISTEN]), name: random.of(PATTERNS) }),
      () => ({ topic: EVENT, action: random.of([E.LISTEN_ACCEPT, E.LISTEN_REJECT]), name: '^fuzz/', subscription: names[1] }),
      () => ({ topic: RECORD, action: random.of([R.LISTEN_ACCEPT, R.LISTEN_REJECT]), name: '^fuzz/', subscription: target }),
      () => ({ ...write, action: random.of([R.UPDATE, R.CREATEANDUPDATE]), data }),
      () => ({ ...patch, action: random.of([R.PATCH, R.CREATEANDPATCH]), version: random.of([-1, version]) }),
      () => ({ ...patch, action: R.CREATEANDPATCH, version: -1 }),
      () => ({ ...patch, action: random.of([R.ERASE, PATCH_MULTI]), version: -1 }),
      () => ({ topic: RECORD, action: random.of([R.READ, R.HEAD, R.DELETE, R.NOTIFY]), name: target, names: [target] }),
      () => ({ topic: RECORD, action: random.of(SUBSCRIPTIONS), names, correlationId }),
      () => ({ topic: RPC, action: P.REQUEST, name: TARGETS.rpc, correlationId: fresh('call') + correlationId, data }),
      () => ({ topic: RPC, action: random.of(ANSWERS), name: TARGETS.rpc, correlationId, data }),
      () => ({ topic: RPC, action: random.of([P.PROVIDE, P.UNPROVIDE]), names, correlationId }),
      () => ({ topic: PRESENCE, action: random.of([U.QUERY, U.SUBSCRIBE, U.UNSUBSCRIBE]), names, correlationId }),
      () => ({ topic: PRESENCE, action: random.of([U.QUERY_ALL, U.SUBSCRIBE_ALL, U.UNSUBSCRIBE_ALL]) }),
      () => ({ topic: random.of(ANY_TOPIC), action: random.below(120), name: name ?? TARGETS.record, data, names, version }),
    ])();
  }

  #bytes(draft: Draft): Uint8Array {
    let bytes = encoded(draft);
    if (this.random.once(2)) return bytes;
    bytes = Uint8Array.from(bytes);
    for (let change = this.random.below(3); change >= 0; change -= 1) bytes = this.#changed(bytes);
    return bytes;
  }

  #changed(bytes: Uint8Array): Uint8Array {
    const { random } = this;
    const at = random.below(bytes.length + 1);
    switch (random.below(4)) {
      case 0:
        if (at < bytes.length) bytes[at] = random.below(256);
        return bytes;
      case 1:
        return bytes.slice(0, at);
      case 2:
        return Uint8Array.from([...bytes.slice(0, at), random.below(256), ...bytes.slice(at)]);
      default:
        return Uint8Array.from([...bytes.slice(0, at), ...bytes.slice(Math.max(0, at - random.below(8)))]);
    }
  }
}

/** The bytes of `draft`; for topics without an encoder, the bytes of another message. */
function encoded(draft: Draft): Uint8Array {
  try {
    return getMessage(draft, false);
  } catch {
    return new Uint8Array([0x06, 0x10, draft.topic, 0x1a, 0x02, 0x08, draft.action]);
  }
}
