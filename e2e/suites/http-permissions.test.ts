// The table of permission cases over HTTP: what its rules let through goes through, and the opposite is refused with the
// same reason as for the client. What HTTP has no operation for is named below, and everything else must be there.

import assert from 'node:assert/strict';
import { after, before, describe, test, type TestContext } from 'node:test';
import { openStream } from '../harness/event-stream.ts';
import { command, post, url } from '../harness/http.ts';
import { againstOriginal, type Server } from '../harness/server.ts';
import { MARK, loginOf, startRuled } from '../permissions/start.ts';
import { ROWS, type Ask, type Operation } from '../permissions/table.ts';

/** What HTTP can't say, and why. */
const NOT_OVER_HTTP: Partial<Record<Operation, string>> = {
  provide: 'a request can not be asked anything',
  listenEvents: 'a request can not be asked anything',
  listenRecords: 'a request can not be asked anything',
  watchUser: 'a stream has events and records',
  erase: 'the batch has no command for it, and a patch is a write of the whole',
};
/** Rules whose two cases can both be asked over HTTP. */
const WHOLE_ROWS_MIN = 150;

/** The command of a batch for an operation; events are subscribed to by a stream. */
function commandOf({ operation, name, data, path }: Ask): object {
  switch (operation) {
    case 'publish':
      return { topic: 'event', action: 'emit', eventName: name, data };
    case 'request':
      return { topic: 'rpc', action: 'make', rpcName: name, data };
    case 'read':
    case 'head':
    case 'delete':
      return { topic: 'record', action: operation, recordName: name };
    // Writing a record that there is not asks whether it may be created, as opening it does.
    case 'open':
      return { topic: 'record', action: 'write', recordName: name, data: {} };
    case 'write':
      return { topic: 'record', action: 'write', recordName: name, data };
    case 'patch':
      return { topic: 'record', action: 'write', recordName: name, data, path };
    case 'readList':
      return { topic: 'list', action: 'read', listName: name };
    case 'writeList':
      return { topic: 'list', action: 'write', listName: name, data };
    case 'deleteList':
      return { topic: 'list', action: 'delete', listName: name };
    case 'notify':
      return { topic: 'record', action: 'notify', recordNames: [name] };
    case 'queryUser':
      return { topic: 'presence', action: 'query', names: [name] };
    case 'queryAll':
      return { topic: 'presence', action: 'query' };
    default:
      throw new Error(`${operation} is no command`);
  }
}

/** deepstream's numbers of a denial by topic, where it does not write the word. */
const DENIED: Record<string, unknown> = { record: 115, rpc: 107, presence: 102, event: 'MESSAGE_DENIED' };
/** What is answered to who may: there is no such record, nobody provides the rpc. */
const NOTHING_THERE: Record<string, unknown> = { record: 107, rpc: 100 };

function outcomeOf(result: Record<string, unknown>): string {
  const topic = String(result['errorTopic']);
  if (result['success'] === true || result['errorEvent'] === NOTHING_THERE[topic]) return 'allowed';
  if (result['errorEvent'] === DENIED[topic]) return 'MESSAGE_DENIED';
  return String(result['errorParams']);
}

describe('permission rules over http', { skip: againstOriginal && 'deepstream lets falsy rules pass and knows no merged patches' }, () => {
  let server: Server;
  let stop: () => Promise<void>;
  before(async () => {
    ({ server, stop } = await startRuled());
  });
  after(() => stop());

  /** Subscribes by a stream. The mark is asked for behind the event, so its piece comes after the refusal. */
  async function subscribe(t: TestContext, { by, name }: Ask): Promise<string> {
    const answer = await post(server, '/api/auth', loginOf(by));
    const { ticket } = (await answer.json()) as { ticket: string };
    const query = new URLSearchParams({ event: name, record: MARK, ticket });
    const stream = await openStream(t, url(server, `/sse?${query}`));
    const { event, data } = await stream.pieces.next();
    stream.close();
    return event === 'refused' ? data.code : 'allowed';
  }

  async function judge(t: TestContext, ask: Ask): Promise<string> {
    if (ask.operation === 'subscribe') return subscribe(t, ask);
    const login = ask.by === 'guest' ? {} : { authData: loginOf(ask.by) };
    return outcomeOf(await command(server, commandOf(ask), login));
  }

  const isThere = ({ operation }: Ask): boolean => NOT_OVER_HTTP[operation] === undefined;

  for (const { what, allowed, refused, refusal } of ROWS) {
    const missing = [allowed, refused].every((ask) => !isThere(ask)) && NOT_OVER_HTTP[allowed.operation];
    test(what, { skip: missing }, async (t) => {
      if (isThere(allowed)) assert.equal(await judge(t, allowed), 'allowed');
      if (isThere(refused)) assert.equal(await judge(t, refused), refusal);
    });
  }

  test('all but a few rules are asked over HTTP with their opposite', () => {
    const whole = ROWS.filter(({ allowed, refused }) => isThere(allowed) && isThere(refused)).length;
    assert.ok(whole >= WHOLE_ROWS_MIN, `${whole} of ${ROWS.length}`);
    // Each operation that is left out is in the table, else it would be left out for nothing.
    const operations = new Set(ROWS.flatMap(({ allowed, refused }) => [allowed.operation, refused.operation]));
    for (const operation of Object.keys(NOT_OVER_HTTP)) assert.ok(operations.has(operation as Operation), operation);
  });
});
