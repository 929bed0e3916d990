// The table of permission cases over HTTP: the server executes the requests that the rules allow, and denies their opposites with the
// same reasons as for the client. Operations that HTTP lacks are listed below; the test covers all others.

import assert from 'node:assert/strict';
import { after, before, describe, test, type TestContext } from 'node:test';
import { openStream } from '../harness/event-stream.ts';
import { command, post, url } from '../harness/http.ts';
import { againstOriginal, type Server } from '../harness/server.ts';
import { MARK, loginOf, startRuled } from '../permissions/start.ts';
import { ROWS, type Ask, type Operation } from '../permissions/table.ts';

/** The operations that HTTP lacks, and why. */
const NOT_OVER_HTTP: Partial<Record<Operation, string>> = {
  provide: 'the server can not send messages to a request',
  listenEvents: 'the server can not send messages to a request',
  listenRecords: 'the server can not send messages to a request',
  watchUser: 'a stream has only events and records',
  erase: 'the batch has no command for it, and a patch is a write of the whole record',
};
/** The least number of rules with both cases over HTTP. */
const WHOLE_ROWS_MIN = 150;

/** The command of a batch for an operation. Event subscriptions use a stream instead. */
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
    // A write to a missing record needs the right to create it, as opening it does.
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
      throw new Error(`the batch has no command for ${operation}`);
  }
}

/** deepstream's code of a denial, by topic: a number for all topics except events. */
const DENIED: Record<string, unknown> = { record: 115, rpc: 107, presence: 102, event: 'MESSAGE_DENIED' };
/** The errors of allowed requests that find nothing: the record does not exist, the rpc has no provider. */
const NOTHING_THERE: Record<string, unknown> = { record: 107, rpc: 100 };

function outcomeOf(result: Record<string, unknown>): string {
  const topic = String(result['errorTopic']);
  if (result['success'] === true || result['errorEvent'] === NOTHING_THERE[topic]) return 'allowed';
  if (result['errorEvent'] === DENIED[topic]) return 'MESSAGE_DENIED';
  return String(result['errorParams']);
}

describe('permission rules over http', { skip: againstOriginal && 'deepstream accepts falsy rules and has no merged patches' }, () => {
  let server: Server;
  let stop: () => Promise<void>;
  before(async () => {
    ({ server, stop } = await startRuled());
  });
  after(() => stop());

  /** Subscribes by a stream. The server reads the marker record after the event subscription, so its piece comes after a denial. */
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

  test('all but a few rules have both of their cases over HTTP', () => {
    const whole = ROWS.filter(({ allowed, refused }) => isThere(allowed) && isThere(refused)).length;
    assert.ok(whole >= WHOLE_ROWS_MIN, `${whole} of ${ROWS.length}`);
    // Each excluded operation must occur in the table; otherwise its exclusion has no purpose.
    const operations = new Set(ROWS.flatMap(({ allowed, refused }) => [allowed.operation, refused.operation]));
    for (const operation of Object.keys(NOT_OVER_HTTP)) assert.ok(operations.has(operation as Operation), operation);
  });
});
