// The tables of spec/rights.md against a server: for each action of each protocol, a denial has the same answers in the same order for
// existing and missing names. A row without a case fails, and so does a case without a row. The test of the same table in
// crates/tidewire-core/tests/behaviour/rights.rs checks the internal cost of a denial.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test, type TestContext } from 'node:test';
import { C } from '../harness/client.ts';
import { openStream } from '../harness/event-stream.ts';
import { batch, url } from '../harness/http.ts';
import { JsonPeer } from '../harness/json-peer.ts';
import { RawPeer } from '../harness/raw.ts';
import { Server, againstOriginal } from '../harness/server.ts';

const SPEC = readFileSync(new URL('../../spec/rights.md', import.meta.url), 'utf8');
const { EVENT, RECORD, RPC, PRESENCE } = C.TOPIC;
const R = C.RECORD_ACTION;
/** An action that only Tidewire has (`packages/client/src/protocol.ts`). */
const PATCH_MULTI = 35;
/** The same (`spec/deepstream.md`, "Scopes"). */
const SCOPE = { JOIN: 60, UPDATE: 62, SUBSCRIBE: 64 };

/** The indices of the existing names. The keys have the same length, so that all names have the same number of bytes. */
const SCENES = { none: [], each: [0, 1, 2, 3], some: [1, 3] } as const;
type Scene = keyof typeof SCENES;
const PLACES = [0, 1, 2, 3];
/** The kinds of denying rules: without a read, with a read of another record, and with a read of the record itself. */
const KINDS = ['no', 'gate', 'old'] as const;
type Kind = (typeof KINDS)[number];

const nameOf = (kind: Kind, scene: Scene, place: number): string => `${kind}/${scene}/${place}`;
const namesOf = (kind: Kind, scene: Scene): string[] => PLACES.map((place) => nameOf(kind, scene, place));
/** `value` with the names of `scene` replaced, so that the values of different scenes can be compared. */
const without = (scene: Scene, value: unknown): unknown => JSON.parse(JSON.stringify(value).replaceAll(`/${scene}/`, '/SCENE/').replaceAll(`%2F${scene}%2F`, '%2FSCENE%2F'));

const rules = (...actions: string[]): Record<string, object> => {
  const all = (rule: string | boolean): object => Object.fromEntries(actions.map((action) => [action, rule]));
  const owner = "user.id === 'owner'";
  return { '*': all(true), 'no/*': all(owner), 'gate/*': all(`${owner} || _('shut').open === true`) };
};
const PERMISSIONS = JSON.stringify({
  event: rules('publish', 'subscribe', 'listen'),
  rpc: rules('provide', 'request'),
  presence: { ...rules('allow', 'join', 'subscribe'), '*': { allow: "user.id === 'owner'", join: true, subscribe: true } },
  record: {
    ...rules('create', 'read', 'write', 'delete', 'listen', 'notify'),
    // The rules for `create` and `notify` can't read the record.
    'old/*': { create: "user.id === 'owner'", notify: "user.id === 'owner'", listen: "user.id === 'owner'", ...Object.fromEntries(['read', 'write', 'delete'].map((action) => [action, "user.id === 'owner' || oldData.open === true"])) },
  },
});

interface Said {
  topic: number;
  action: number;
  [field: string]: unknown;
}

/** The case of a row of messages: the message, and the number of answers to a denial of all names. */
interface Case {
  message: (names: string[]) => Said;
  answers?: number;
  /** The kinds of rules that are possible for the topic. */
  kinds?: readonly Kind[];
}

const NO_OLD: readonly Kind[] = ['no', 'gate'];
const one = (topic: number, action: number, fields: object = {}, kinds?: readonly Kind[]): Case => ({
  message: ([name]) => ({ topic, action, name, ...fields }),
  ...(kinds && { kinds }),
});
const many = (topic: number, action: number, kinds?: readonly Kind[], answers = PLACES.length): Case => ({
  message: (names) => ({ topic, action, names, correlationId: '1' }),
  answers,
  ...(kinds && { kinds }),
});
const write = (action: number, fields: object): Case => one(RECORD, action, { version: -1, isWriteAck: true, correlationId: '1', ...fields });
const listen = (topic: number, action: number): Case => ({ message: ([name]) => ({ topic, action, name: `^${name}` }), kinds: ['no'] });
const data = '{"open":false}';

const CASES: Record<string, Case> = {
  'EVENT EMIT': one(EVENT, C.EVENT_ACTION.EMIT, { data }, NO_OLD),
  'EVENT SUBSCRIBE': many(EVENT, C.EVENT_ACTION.SUBSCRIBE, NO_OLD),
  'EVENT LISTEN': listen(EVENT, C.EVENT_ACTION.LISTEN),
  'RECORD READ': one(RECORD, R.READ),
  'RECORD HEAD': one(RECORD, R.HEAD),
  'RECORD SUBSCRIBE': many(RECORD, R.SUBSCRIBE),
  'RECORD SUBSCRIBEANDREAD': many(RECORD, R.SUBSCRIBEANDREAD, KINDS, PLACES.length + 1),
  'RECORD SUBSCRIBEANDHEAD': many(RECORD, R.SUBSCRIBEANDHEAD),
  'RECORD SUBSCRIBECREATEANDREAD': many(RECORD, R.SUBSCRIBECREATEANDREAD, KINDS, PLACES.length + 1),
  'RECORD CREATEANDUPDATE': write(R.CREATEANDUPDATE, { data }),
  'RECORD CREATEANDPATCH': write(R.CREATEANDPATCH, { path: 'list[0]', data: '1' }),
  'RECORD UPDATE': write(R.UPDATE, { data }),
  'RECORD PATCH': write(R.PATCH, { path: 'list[0]', data: '1' }),
  'RECORD PATCH_MULTI': write(PATCH_MULTI, { data: '[{"path":"list[0]","data":1}]' }),
  'RECORD ERASE': write(R.ERASE, { path: 'list[0]' }),
  'RECORD DELETE': one(RECORD, R.DELETE),
  'RECORD NOTIFY': many(RECORD, R.NOTIFY),
  'RECORD LISTEN': listen(RECORD, R.LISTEN),
  'RPC PROVIDE': many(RPC, C.RPC_ACTION.PROVIDE, NO_OLD),
  'RPC REQUEST': one(RPC, C.RPC_ACTION.REQUEST, { data, correlationId: '1' }, NO_OLD),
  'PRESENCE QUERY': many(PRESENCE, C.PRESENCE_ACTION.QUERY, NO_OLD),
  'PRESENCE SUBSCRIBE': many(PRESENCE, C.PRESENCE_ACTION.SUBSCRIBE, NO_OLD),
  'PRESENCE QUERY_ALL': { message: () => ({ topic: PRESENCE, action: C.PRESENCE_ACTION.QUERY_ALL }), kinds: ['no'] },
  'PRESENCE SUBSCRIBE_ALL': { message: () => ({ topic: PRESENCE, action: C.PRESENCE_ACTION.SUBSCRIBE_ALL }), kinds: ['no'] },
  'PRESENCE SCOPE_JOIN': one(PRESENCE, SCOPE.JOIN, { data }, NO_OLD),
  'PRESENCE SCOPE_UPDATE': one(PRESENCE, SCOPE.UPDATE, { data }, NO_OLD),
  'PRESENCE SCOPE_SUBSCRIBE': one(PRESENCE, SCOPE.SUBSCRIBE, {}, NO_OLD),
};

/** The first cells of the table under a heading. */
function firstCells(heading: string): string[] {
  const section = (SPEC.split(`\n## ${heading}\n`)[1] ?? '').split('\n## ')[0] as string;
  const rows = section.split('\n').filter((line) => line.startsWith('| '));
  return rows.slice(1).map((line) => (line.split('|')[1] as string).trim());
}

const ACTIONS = firstCells('Messages').flatMap((cell) => {
  const [topic, ...actions] = cell.split(/,? /);
  return actions.map((action) => `${topic} ${action}`);
});

/** The commands in the row of `POST /api`. */
const COMMANDS: Record<string, { command: (name: string) => object; kinds: readonly Kind[] }> = {
  'event emit': { command: (eventName) => ({ topic: 'event', action: 'emit', eventName, data: 1 }), kinds: NO_OLD },
  'rpc make': { command: (rpcName) => ({ topic: 'rpc', action: 'make', rpcName, data: 1 }), kinds: NO_OLD },
  'record read': { command: (recordName) => ({ topic: 'record', action: 'read', recordName }), kinds: KINDS },
  'record head': { command: (recordName) => ({ topic: 'record', action: 'head', recordName }), kinds: KINDS },
  'record delete': { command: (recordName) => ({ topic: 'record', action: 'delete', recordName }), kinds: KINDS },
  'record notify': { command: (recordName) => ({ topic: 'record', action: 'notify', recordNames: [recordName] }), kinds: KINDS },
  'record write': { command: (recordName) => ({ topic: 'record', action: 'write', recordName, data: {} }), kinds: KINDS },
  'record write of a version': { command: (recordName) => ({ topic: 'record', action: 'write', recordName, data: {}, version: 1 }), kinds: KINDS },
  'record write of a path': { command: (recordName) => ({ topic: 'record', action: 'write', recordName, path: 'list[0]', data: 1 }), kinds: KINDS },
  'presence query': { command: (name) => ({ topic: 'presence', action: 'query', names: [name] }), kinds: NO_OLD },
  'presence query of everyone': { command: () => ({ topic: 'presence', action: 'query' }), kinds: ['no'] },
};

const CONDITIONS: Array<Record<string, string>> = [{}, { 'if-match': '*' }, { 'if-none-match': '*' }, { 'if-match': '"1-1-1"' }, { 'if-match': '"1-1-1", W/"2-2-2"' }];
const JSON_TYPE = { 'content-type': 'application/json' };
const PATCH_TYPE = { 'content-type': 'application/json-patch+json' };

/** A request about a record: to its own path, or with its name in the body. */
interface Request extends RequestInit {
  path?: string;
  bodyOf?: (name: string) => string;
}

/** The requests of each row of the HTTP table. */
const REQUESTS: Record<string, Request[]> = {
  'POST /api': [],
  GET: CONDITIONS.map((headers) => ({ method: 'GET', headers })),
  'HEAD /records/NAME': CONDITIONS.map((headers) => ({ method: 'HEAD', headers })),
  'PUT /records/NAME': CONDITIONS.map((headers) => ({ method: 'PUT', headers: { ...headers, ...JSON_TYPE }, body: '{}' })),
  'DELETE /records/NAME': CONDITIONS.map((headers) => ({ method: 'DELETE', headers })),
  'PATCH /records/NAME': CONDITIONS.map((headers) => ({ method: 'PATCH', headers: { ...headers, ...PATCH_TYPE }, body: '[{"op":"add","path":"/list/0","value":1}]' })),
  'POST /transactions': [{ data: {} }, { data: null }, { if: 'present' }, { if: 'missing' }, { if: '"1-1-1"', data: {} }].map((operation) => ({
    path: '/transactions',
    bodyOf: (name) => JSON.stringify([{ name, ...operation }]),
    method: 'POST',
    headers: JSON_TYPE,
  })),
  // The command `event emit` is the same message.
  'POST /events/NAME': [],
  'GET /sse': [],
};

describe('the tables of rights', { skip: againstOriginal && 'only Tidewire has them' }, () => {
  let server: Server;
  const others: RawPeer[] = [];

  before(async () => {
    server = await Server.start({ permissions: PERMISSIONS });
    const owner = await RawPeer.login(server, { username: 'owner' });
    others.push(owner);
    const scenes = Object.entries(SCENES) as Array<[Scene, readonly number[]]>;
    const there = KINDS.flatMap((kind) => scenes.flatMap(([scene, places]) => places.map((place) => nameOf(kind, scene, place))));
    for (const name of [...there, 'shut']) {
      owner.send({ topic: RECORD, action: R.CREATEANDUPDATE, name, version: -1, data: '{"open":false,"list":[]}', isWriteAck: true, correlationId: name });
    }
    await owner.expectCount(RECORD, R.WRITE_ACKNOWLEDGEMENT, there.length + 1);
    owner.send({ topic: EVENT, action: C.EVENT_ACTION.SUBSCRIBE, names: there, correlationId: '1' });
    await owner.expect(EVENT, C.EVENT_ACTION.SUBSCRIBE);
    owner.send({ topic: RPC, action: C.RPC_ACTION.PROVIDE, names: there, correlationId: '1' });
    await owner.expect(RPC, C.RPC_ACTION.PROVIDE);
    for (const username of there) others.push(await RawPeer.login(server, { username }));
  });
  after(async () => {
    others.forEach((peer) => peer.close());
    await server.dispose();
  });

  /** Runs `ask` for the names of each scene, and asserts that all outcomes are the same. */
  async function isTheSame(what: string, kinds: readonly Kind[], ask: (names: string[]) => Promise<unknown>): Promise<void> {
    for (const kind of kinds) {
      const outcomes: unknown[] = [];
      for (const scene of Object.keys(SCENES) as Scene[]) outcomes.push(without(scene, await ask(namesOf(kind, scene))));
      for (const outcome of outcomes) assert.deepEqual(outcome, outcomes[0], `${what}, ${kind}`);
    }
  }

  test('each row has a case', () => {
    assert.deepEqual(Object.keys(CASES).sort(), [...ACTIONS].sort());
    const quoted = firstCells('HTTP').flatMap((cell) => [...cell.matchAll(/`([^`]*)`/g)].map(([, text]) => text));
    assert.deepEqual(Object.keys(REQUESTS).sort(), quoted.sort());
  });

  /** Sends a message and returns all answers to it, with all their fields. Each is a denial, except for an acknowledgement. */
  async function heard(peer: RawPeer | JsonPeer, said: Said, answers: number): Promise<unknown[]> {
    peer.received.take();
    peer.send(said as never);
    await peer.received.count(answers);
    await peer.settle();
    const seen = peer.received.seen as unknown as Said[];
    return seen.filter(({ topic }) => topic !== C.TOPIC.CONNECTION);
  }

  const DENIALS: Record<number, number[]> = { [EVENT]: [103, 104], [RECORD]: [114, 115], [RPC]: [106, 107], [PRESENCE]: [101, 102] };
  const isDenial = ({ topic, action }: Said): boolean => DENIALS[topic]?.includes(action) ?? false;

  for (const [protocol, login] of Object.entries({ protobuf: RawPeer.login, json: JsonPeer.login })) {
    describe(`over WebSocket in ${protocol}`, { concurrency: 4 }, () => {
      for (const [action, { message, answers = 1, kinds = KINDS }] of Object.entries(CASES)) {
        test(action, async () => {
          const peer = await login(server);
          await isTheSame(action, kinds, async (names) => {
            const seen = (await heard(peer, message(names), answers)) as Said[];
            assert.equal(seen.length, answers, JSON.stringify(seen));
            const denied = seen.filter(isDenial);
            assert.ok(denied.length >= Math.min(answers, PLACES.length), JSON.stringify(seen));
            if (answers > 1) assert.deepEqual(denied.map(({ name }) => name), names);
            return seen;
          });
          peer.close();
        });
      }
    });
  }

  describe('in batches', { concurrency: 4 }, () => {
    for (const [what, { command, kinds }] of Object.entries(COMMANDS)) {
      test(what, () =>
        isTheSame(what, kinds, async (names) => {
          const { result, body } = await batch(server, names.map(command));
          assert.equal(result, 'FAILURE', JSON.stringify(body));
          return body;
        }));
    }

    test('all commands in one batch', () =>
      isTheSame('all', NO_OLD, async (names) => {
        const commands = Object.values(COMMANDS).filter(({ kinds }) => kinds.includes('gate'));
        const { result, body } = await batch(server, names.flatMap((name) => commands.map(({ command }) => command(name))));
        assert.equal(result, 'FAILURE', JSON.stringify(body));
        return body;
      }));
  });

  describe('of records over HTTP', { concurrency: 4 }, () => {
    for (const [what, requests] of Object.entries(REQUESTS)) {
      if (requests.length === 0) continue;
      test(what, async () => {
        for (const { path, bodyOf, ...request } of requests) {
          await isTheSame(`${what} ${JSON.stringify(request.headers)}`, KINDS, async (names) => {
            const answers = [];
            for (const name of names) {
              const body = bodyOf ? { body: bodyOf(name) } : {};
              const answer = await fetch(url(server, path ?? `/records/${encodeURIComponent(name)}`), { ...request, ...body });
              assert.equal(answer.status, 403, `${name} ${JSON.stringify(body)}`);
              const headers = [...answer.headers].filter(([key]) => key !== 'date');
              answers.push({ headers, body: await answer.text() });
            }
            return answers;
          });
        }
      });
    }
  });

  test('over a stream', (t: TestContext) =>
    isTheSame('a stream', KINDS, async (names) => {
      // Rules for events can't read the record of the event's name, so these names have only records.
      const isAllowed = names[0]?.startsWith('old/') ?? false;
      const asked = names.flatMap((name) => [['record', name], ...(isAllowed ? [] : [['event', name]])]);
      const stream = await openStream(t, url(server, `/sse?${new URLSearchParams(asked as [string, string][])}`));
      const pieces = await stream.pieces.count(asked.length);
      stream.close();
      assert.ok(pieces.every(({ event }) => event === 'refused'), JSON.stringify(pieces));
      return pieces;
    }));
});
