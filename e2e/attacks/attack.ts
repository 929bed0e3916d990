// The type of an attack, and the loops and messages that attacks use. The attacks themselves are in `list`.

import { setTimeout as pause } from 'node:timers/promises';
import { C } from '../harness/client.ts';
import type { ServerOptions } from '../harness/server.ts';
import { Peer, type Said } from './peer.ts';

/** The arguments of an attacker's process. */
export interface Target {
  address: string;
  tlsAddress: string;
  isOver: () => boolean;
}

export interface Attack {
  name: string;
  /** The option or rule that bounds the attack. */
  limit: string;
  /** A server metric that grows during the attack, with its labels. */
  metric: string;
  /** Whether the server also listens for TLS. */
  isEncrypted?: boolean;
  options?: ServerOptions;
  /** The options that switch the limit off, or the reason why no option does. */
  off: ServerOptions | { because: string };
  /**
   * The measured harm: the number that `run` returns, the bytes by which the server grows, the events that reach other clients, or the
   * highest value of a gauge.
   */
  harm: 'reached' | 'memory' | 'floods' | `tidewire_${string}`;
  /** With the limit, the harm is at most this number; without the limit, it is larger. */
  bound: number;
  /** For limits of a rate: the bound grows by this with each second of the attack. */
  boundPerSecond?: number;
  /** Attacks until `isOver`; returns the harm if only the attacker can measure it. */
  run: (target: Target) => Promise<number>;
}

/** One second each on every commit; ten seconds for the proof. */
export const SECONDS = Number(process.env['ATTACK_SECONDS'] ?? 1);
export const MEBIBYTE = 1 << 20;
export const NO_LIMIT = 'no option turns the check off';
/** The event whose messages the control pairs count. */
export const CONTROL_FLOOD = 'control/flood';
export const TEXT = 'x'.repeat(10_000);

/** The metric of messages that the engine refuses. */
export const refused = (cause: string): string => `tidewire_refused_messages_total{cause="${cause}"}`;
/** The metric of requests that the front refuses. */
export const refusedRequests = (cause: string): string => `tidewire_refused_requests_total{cause="${cause}"}`;

const { TOPIC, EVENT_ACTION, RECORD_ACTION } = C;
export const emit = (name: string, data: string): Said => ({ topic: TOPIC.EVENT, action: EVENT_ACTION.EMIT, name, data });
export const subscribe = (names: string[]): Said => {
  return { topic: TOPIC.EVENT, action: EVENT_ACTION.SUBSCRIBE, names, correlationId: '1' };
};
/** Tidewire's action 122. */
export const subscribePatterns = (patterns: string[]): Said => ({ topic: TOPIC.EVENT, action: 122, names: patterns, correlationId: '1' });
export const listen = (name: string): Said => ({ topic: TOPIC.EVENT, action: EVENT_ACTION.LISTEN, name });
export const write = (name: string, data: string): Said => {
  return { topic: TOPIC.RECORD, action: RECORD_ACTION.CREATEANDUPDATE, name, version: -1, data };
};
export const patch = (name: string, path: string, data: string): Said => {
  return { topic: TOPIC.RECORD, action: RECORD_ACTION.CREATEANDPATCH, name, version: -1, path, data };
};
export const names = (count: number, prefix: string): string[] => Array.from({ length: count }, (_, i) => `${prefix}/${i}`);

/** Resolves with false when the attack ends. */
export async function over(target: Target): Promise<false> {
  while (!target.isOver()) await pause(20);
  return false;
}

/** Runs `attack` `count` times in parallel and returns the largest result. */
export async function together(count: number, attack: (index: number) => Promise<number>): Promise<number> {
  return Math.max(...(await Promise.all(Array.from({ length: count }, (_, index) => attack(index)))));
}

/** Repeats an attempt until the attack ends and counts the successes. */
export async function attempts(target: Target, attempt: (round: number) => Promise<boolean>): Promise<number> {
  const isOver = over(target);
  let worked = 0;
  for (let round = 0; !target.isOver(); round += 1) {
    if (await Promise.race([attempt(round), isOver])) worked += 1;
    await pause(1);
  }
  return worked;
}

/** Keeps up to `wanted` connections open; returns the largest number that was open at once. */
export async function hold(target: Target, open: (index: number) => Promise<Peer | undefined>, wanted: number): Promise<number> {
  const held: Peer[] = [];
  let most = 0;
  for (let index = 0; !target.isOver(); index += 1) {
    const peer = held.length < wanted ? await open(index) : (await pause(50), undefined);
    if (peer) held.push(peer);
    else await pause(1);
    held.splice(0, held.length, ...held.filter(({ isOpen }) => isOpen));
    most = Math.max(most, held.length);
  }
  held.forEach((peer) => peer.end());
  return most;
}

/**
 * Opens connections with `dial` and writes `piece` to them regularly; returns the longest life of a connection without an answer, in
 * milliseconds.
 */
export function linger(count: number, target: Target, dial: () => Promise<Peer | undefined>, piece?: string): Promise<number> {
  return together(count, async () => {
    let longest = 0;
    while (!target.isOver()) {
      const peer = await dial();
      if (!peer) {
        await pause(20);
        continue;
      }
      while (peer.isOpen && peer.received.length === 0 && !target.isOver()) {
        if (piece !== undefined) await Promise.race([peer.write(piece), pause(100)]);
        await pause(20);
      }
      longest = Math.max(longest, peer.lifeMs);
      peer.end();
    }
    return longest;
  });
}

/** Makes the server hold something for each of `count` connections, until it closes them; the harm is the memory that this takes. */
export function load(count: number, target: Target, begin: (peer: Peer) => Promise<void>): Promise<number> {
  const isOver = over(target);
  return together(count, async () => {
    while (!target.isOver()) {
      const peer = await Peer.dial(target.address);
      if (peer) await Promise.race([begin(peer), isOver]);
      while (peer?.isOpen && peer.received.length === 0 && !target.isOver()) await pause(50);
      peer?.end();
      await pause(50);
    }
    return 0;
  });
}

/** Repeats `act` on a connection that is logged in; logs in again when the connection ends. */
export async function keepOn(target: Target, act: (peer: Peer, round: number) => Promise<unknown>, details: object = {}): Promise<number> {
  const isOver = over(target);
  let done = 0;
  for (let round = 0; !target.isOver(); ) {
    const peer = await Promise.race([Peer.login(target.address, details), isOver]);
    while (peer && peer.isOpen && !target.isOver()) {
      // A server that delays this connection does not read from it, so a write may never finish.
      await Promise.race([act(peer, round), isOver]);
      round += 1;
      done += 1;
    }
    if (peer) peer.end();
    else await pause(10);
  }
  return done;
}

/** Repeats the same kind of message, `burst` messages at once. */
export function say(target: Target, message: (round: number) => Said, { pauseMs = 1, burst = 1, details = {} } = {}): Promise<number> {
  return keepOn(target, async (peer, round) => {
    for (let i = 0; i < burst; i += 1) await peer.say(message(round * burst + i));
    await pause(pauseMs);
  }, details);
}
