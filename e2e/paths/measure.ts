// Runs a debug build of the server under callgrind and profiles turns without input, publishes, and acknowledged writes of a record.
// Each message is sent after the previous one has arrived, so each has its own turn.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type { TestContext } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import { C, type Message } from '../harness/client.ts';
import { run } from '../harness/program.ts';
import { RawPeer } from '../harness/raw.ts';
import { Server } from '../harness/server.ts';
import { DEADLINE_MS, eventually } from '../harness/wait.ts';
import { turnsOf } from './path.ts';
import { type Profile, merged, readProfile } from './profile.ts';

const BINARY = resolve(import.meta.dirname, '../../target/debug/tidewire');

/** Messages in each profile. */
export const MESSAGES = 100;
/** Messages before them, after which nothing happens for the first time. */
const WARM_UP = 20;
/** Turns without input. A shard has one at least every half second (`TURN_INTERVAL` in its conductor). */
const IDLE_TURNS = 10;

const NAME = 'news';
const { TOPIC, EVENT_ACTION, RECORD_ACTION } = C;

export interface Profiles {
  idle: Profile;
  publish: Profile;
  write: Profile;
}

/** Profiles a server with one shard, which allows everything and sends without `io_uring`, because valgrind does not support it. */
export async function measure(test: TestContext): Promise<Profiles> {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-paths-'));
  atEnd(test, () => rmSync(folder, { recursive: true }));
  const file = join(folder, 'profile');
  const names = ['--demangle=no', '--compress-strings=no', '--compress-pos=no'];
  const launcher = ['valgrind', '--tool=callgrind', `--callgrind-out-file=${file}`, ...names];
  // The admin page adds a check for its operators to each authorization.
  const server = await Server.during(test, { shards: 1, sends: 'plain', admin: { page: false }, binary: BINARY, launcher });
  let dumps = 0;
  /** The profile since the last dump. */
  const dump = (): Profile => {
    control(server, '--dump');
    dumps += 1;
    return readProfile(`${file}.${dumps}`);
  };

  const publisher = await login(test, server);
  const subscribers = [await login(test, server), await login(test, server)];
  for (const peer of subscribers) {
    peer.send({ topic: TOPIC.EVENT, action: EVENT_ACTION.SUBSCRIBE, names: [NAME], correlationId: '1' });
    await peer.expect(TOPIC.EVENT, EVENT_ACTION.SUBSCRIBE);
  }
  for (const peer of [publisher, ...subscribers]) {
    peer.send({ topic: TOPIC.RECORD, action: RECORD_ACTION.SUBSCRIBECREATEANDREAD, names: [NAME], correlationId: '1' });
    await peer.expect(TOPIC.RECORD, RECORD_ACTION.READ_RESPONSE);
  }
  const publish = async (): Promise<void> => {
    publisher.send({ topic: TOPIC.EVENT, action: EVENT_ACTION.EMIT, name: NAME, data: '{"n":1}' });
    for (const peer of subscribers) await arrives(peer, TOPIC.EVENT, EVENT_ACTION.EMIT);
  };
  let version = 0;
  const write = async (): Promise<void> => {
    version += 1;
    const update = { topic: TOPIC.RECORD, action: RECORD_ACTION.UPDATE, name: NAME, version, data: `{"n":${version}}` };
    publisher.send({ ...update, isWriteAck: true, correlationId: `${version}` });
    for (const peer of subscribers) await arrives(peer, TOPIC.RECORD, RECORD_ACTION.UPDATE);
    await arrives(publisher, TOPIC.RECORD, RECORD_ACTION.WRITE_ACKNOWLEDGEMENT);
  };
  const times = async (count: number, step: () => Promise<void>): Promise<void> => {
    for (let i = 0; i < count; i += 1) await step();
  };

  await times(WARM_UP, publish);
  await times(WARM_UP, write);
  dump();
  const idle = await silence(dump);
  await times(MESSAGES, publish);
  const publishing = dump();
  await times(MESSAGES, write);
  return { idle, publish: publishing, write: dump() };
}

async function login(test: TestContext, server: Server): Promise<RawPeer> {
  const peer = await RawPeer.login(server);
  atEnd(test, () => peer.close());
  return peer;
}

/** Waits for one message and takes it out of the inbox. */
async function arrives(peer: RawPeer, topic: number, action: number): Promise<void> {
  const isIt = (message: Message): boolean => message.topic === topic && message.action === action;
  await peer.received.until((seen) => seen.some(isIt), DEADLINE_MS, 'the message');
  peer.received.take();
}

/** The profile of turns without input. No event announces them, so this dumps until there were enough. */
async function silence(dump: () => Profile): Promise<Profile> {
  let idle = dump();
  const isEnough = (): boolean => {
    idle = merged(idle, dump());
    return turnsOf(idle) >= IDLE_TURNS;
  };
  await eventually(isEnough, `${IDLE_TURNS} turns without input`);
  return idle;
}

function control(server: Server, option: string): void {
  run('callgrind_control', [option, String(server.pid)]);
}
