// The table of permission cases for records as HTTP resources: the server executes the requests that the rules allow, also with a
// condition, and denies their opposites with the same reasons as for the client, whatever the condition. Operations that `/records/NAME`
// lacks are listed below; the test covers all others about records.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { url } from '../harness/http.ts';
import { againstOriginal, type Server } from '../harness/server.ts';
import { PASSWORD, startRuled } from '../permissions/start.ts';
import { RECORDS, ROWS, type Ask, type Asker, type Operation, type Row } from '../permissions/table.ts';

/** The HTTP methods of the operations in the table. The other operations are not about records. */
const METHODS: Partial<Record<Operation, 'GET' | 'PUT' | 'PATCH' | 'DELETE'>> = {
  read: 'GET', readList: 'GET',
  open: 'PUT', write: 'PUT', writeList: 'PUT',
  patch: 'PATCH',
  delete: 'DELETE', deleteList: 'DELETE',
};
/** The operations on records that HTTP resources lack, and why. */
const NOT_OVER_REST: Partial<Record<Operation, string>> = {
  head: 'HEAD is a read without its body: rules see a read, and a denial has no text',
  erase: 'a patch that removes a member is a write of the whole record',
  listenRecords: 'the server can not send messages to a request',
  notify: 'it has no resource',
};
/** The rules that depend on a distinction that HTTP resources lack, and why. */
const OTHER_RULES: Record<string, string> = {
  'record: whole values, not patches': 'a patch is a write of the whole record, with the action of one',
  'record: patches, not whole values': 'a patch is a write of the whole record, with the action of one',
  'record: a deep patch of a missing record creates the value that the rule sees': 'a patch changes an existing record',
  'record: a user who sets an existing record may create it, too': 'the replacement of an existing record needs no right to create',
};

/** The least number of rules with both cases as requests. */
const WALKED_ROWS_MIN = 85;

const isAboutRecords = ({ operation }: Ask): boolean => operation in METHODS || operation in NOT_OVER_REST;
const isHere = ({ operation }: Ask): boolean => operation in METHODS;
const ABOUT_RECORDS = ROWS.filter(({ allowed, refused }) => isAboutRecords(allowed) || isAboutRecords(refused));
const missing = ({ what, allowed, refused }: Row): string | undefined =>
  OTHER_RULES[what] ?? NOT_OVER_REST[allowed.operation] ?? NOT_OVER_REST[refused.operation];

/** Converts a path in deepstream's syntax, such as `list[2]`, to a JSON patch. */
function patchOf({ name, path = '', data }: Ask): object[] {
  const steps = path.split(/[.[\]]+/).filter((step) => step !== '');
  let place: any = RECORDS[name];
  for (const step of steps) place = place?.[step];
  return [{ op: place === undefined ? 'add' : 'replace', path: `/${steps.join('/')}`, value: data }];
}

function bodyOf(ask: Ask): [body: unknown, type: string] | undefined {
  switch (METHODS[ask.operation]) {
    case 'PUT':
      return [ask.data ?? {}, 'application/json'];
    case 'PATCH':
      return [patchOf(ask), 'application/json-patch+json'];
    default:
      return undefined;
  }
}

const credentials = (asker: Asker): Record<string, string> => {
  const basic = Buffer.from(`${asker}:${PASSWORD}`).toString('base64');
  return asker === 'guest' ? {} : { authorization: `Basic ${basic}` };
};

async function outcomeOf(answer: Response): Promise<string> {
  if (answer.ok || answer.status === 404) return 'allowed';
  const { code } = (await answer.json()) as { code: string };
  return answer.status === 403 || answer.status === 412 ? code : `${answer.status} ${code}`;
}

describe('permission rules over rest', { concurrency: 8, skip: againstOriginal }, () => {
  let server: Server;
  let stop: () => Promise<void>;
  /** The entity tag of a different record, which never matches. */
  let foreign = '';

  const send = (method: string, { by, name }: Ask, headers: Record<string, string> = {}, body?: string): Promise<Response> => {
    const path = `/records/${encodeURIComponent(name)}`;
    return fetch(url(server, path), { method, headers: { ...credentials(by), ...headers }, ...(body !== undefined && { body }) });
  };
  const judged = async (ask: Ask, condition: Record<string, string> = {}): Promise<string> => {
    const body = bodyOf(ask);
    const headers = body ? { 'content-type': body[1], ...condition } : condition;
    return outcomeOf(await send(METHODS[ask.operation] as string, ask, headers, body && JSON.stringify(body[0])));
  };
  /** The entity tag of the record, or null if the user may not read it. */
  const tagFor = async (ask: Ask): Promise<string | null> => (await send('GET', ask)).headers.get('etag');

  before(async () => {
    ({ server, stop } = await startRuled());
    foreign = (await tagFor({ by: 'ann', operation: 'read', name: 'x/open' })) as string;
    assert.match(foreign, /^"/);
  });
  after(() => stop());

  for (const row of ABOUT_RECORDS) {
    const { what, allowed, refused, refusal } = row;
    test(what, { skip: missing(row) }, async () => {
      if (METHODS[allowed.operation] === 'GET') {
        assert.equal(await judged(allowed), 'allowed');
        assert.equal(await judged(refused), refusal);
        return;
      }
      // The server reads the record before it authorizes a patch, so it checks the condition of a patch first.
      const isPatch = refused.operation === 'patch';
      const before = await tagFor(refused);
      assert.equal(await judged(refused), refusal);
      if (before) assert.equal(await judged(refused, { 'if-match': before }), refusal);
      assert.equal(await judged(refused, { 'if-match': foreign }), isPatch ? 'PRECONDITION_FAILED' : refusal);
      assert.equal(await tagFor(refused), before, 'nothing has changed');

      const known = await tagFor(allowed);
      assert.equal(await judged(allowed, { 'if-match': foreign }), 'PRECONDITION_FAILED');
      assert.equal(await tagFor(allowed), known, 'nothing has changed');
      const condition: Record<string, string> = known ? { 'if-match': known } : { 'if-none-match': '*' };
      assert.equal(await judged(allowed, condition), 'allowed');
    });
  }

  test('HEAD is denied if reading is denied', async () => {
    const head = async (name: string): Promise<number> => (await send('HEAD', { by: 'ann', operation: 'head', name })).status;
    assert.deepEqual([await head('k/yes/head'), await head('k/no/head')], [404, 403]);
  });

  test('the test covers all rules about records except the listed ones', () => {
    const walked = ABOUT_RECORDS.filter((row) => missing(row) === undefined);
    assert.ok(walked.every(({ allowed, refused }) => isHere(allowed) && isHere(refused)));
    assert.ok(walked.length >= WALKED_ROWS_MIN, `${walked.length} of ${ABOUT_RECORDS.length}`);
    for (const name of Object.keys(OTHER_RULES)) assert.ok(ROWS.some(({ what }) => what === name), name);
    const operations = new Set(ROWS.flatMap(({ allowed, refused }) => [allowed.operation, refused.operation]));
    for (const operation of Object.keys(NOT_OVER_REST)) assert.ok(operations.has(operation as Operation), operation);
  });
});
