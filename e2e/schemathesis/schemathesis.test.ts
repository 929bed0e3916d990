// Checks the API description against the server: schemathesis sends valid and invalid requests, and checks the
// responses. `SCHEMATHESIS_EXAMPLES` sets their number for each operation and phase, `SCHEMATHESIS_SEED` selects them.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Server, type ServerOptions } from '../harness/server.ts';
import { hashPassword } from '../harness/users.ts';
import { schemathesis, type Outcome, type Run } from './run.ts';

const EXAMPLES = Number(process.env['SCHEMATHESIS_EXAMPLES'] ?? 12);
const SEED = Number(process.env['SCHEMATHESIS_SEED'] ?? 1);
const LOGIN = { username: 'alice', password: 'a secret' };

/** Low limits, so that requests beyond them are small, too. */
const OPEN: ServerOptions = { http: { batch_commands_max: 20 }, limits: { name_bytes_max: 200 } };
const CLOSED: ServerOptions = {
  ...OPEN,
  users: { [LOGIN.username]: { password: hashPassword(LOGIN.password) } },
  authAttemptsMax: 1_000_000,
};

/** Operations without parameters: the description allows exactly one request of each. */
const FIXED = ['GET /api', 'GET /openapi.json', 'HEAD /openapi.json'];

interface Description {
  paths: Record<string, Record<string, any>>;
  components: { schemas: Record<string, any> };
}

async function description(server: Server): Promise<Description> {
  return (await (await server.get('/openapi.json')).json()) as Description;
}

function operations({ paths }: Description): string[] {
  return Object.entries(paths).flatMap(([path, item]) => {
    const methods = Object.keys(item).filter((key) => key !== 'parameters');
    return methods.map((method) => `${method.toUpperCase()} ${path}`);
  });
}

const KINDS: Array<{ name: string; options: ServerOptions; login?: Run['login'] }> = [
  { name: 'with open logins', options: OPEN },
  { name: 'logged in', options: CLOSED, login: LOGIN },
  { name: 'not logged in', options: CLOSED },
];

describe('schemathesis', () => {
  for (const { name, options, login } of KINDS) {
    test(`finds nothing ${name}`, async (t) => {
      const server = await Server.during(t, options);
      const described = await description(server);
      const run = { name: name.replaceAll(' ', '-'), address: server.address, examples: EXAMPLES, seed: SEED };
      const outcome = await schemathesis({ ...run, description: described, ...(login && { login }) });
      assert.ok(outcome.isClean, outcome.output);
      const all = operations(described);
      assert.deepEqual(Object.keys(outcome.requests).sort(), all.sort(), 'every operation was tried');
      for (const operation of all.filter((operation) => !FIXED.includes(operation))) {
        // Together with others an operation receives only the few records that they created; alone it receives generated names.
        if ((outcome.requests[operation] ?? 0) < EXAMPLES) {
          const args = ['--include-name', operation, '--phases', 'coverage,fuzzing'];
          const alone = await schemathesis({ ...run, name: `${run.name}-alone`, description: described, args, ...(login && { login }) });
          assert.ok(alone.isClean, alone.output);
          outcome.requests[operation] = (outcome.requests[operation] ?? 0) + (alone.requests[operation] ?? 0);
        }
        assert.ok((outcome.requests[operation] ?? 0) >= EXAMPLES, `${operation}: ${outcome.requests[operation]} requests`);
      }
      const total = Object.values(outcome.requests).reduce((sum, count) => sum + count, 0);
      console.log(`${name}: ${total} requests with seed ${SEED} of ${all.length} operations, at least ${fewest(outcome)} of each, none found`);
    });
  }

  /** Planted differences between a description and a server. */
  const FAULTS: Array<[what: string, finding: RegExp, operation: string, plant: (description: Description) => void]> = [
    [
      'a status that is not described',
      /ST103 /,
      'GET /records/{name}',
      ({ paths }) => delete paths['/records/{name}']?.['get'].responses['404'],
    ],
    [
      'an answer that is not as described',
      /ST108 /,
      'POST /api',
      ({ components }) => void (components.schemas['BatchAnswer'].properties.result.enum = ['SUCCESS']),
    ],
    [
      'a server that accepts more than is described',
      /ST201 /,
      'POST /api',
      ({ components }) => void (components.schemas['Name'].maxLength = 5),
    ],
    [
      'a server that accepts less than is described',
      /ST202 /,
      'POST /api',
      ({ components }) => void (components.schemas['Name'].minLength = 0),
    ],
    [
      'a method that is not described',
      /ST204 /,
      'GET /records/{name}',
      ({ paths }) => delete paths['/records/{name}']?.['delete'],
    ],
    [
      'an answer of another type',
      /ST105 /,
      'GET /openapi.json',
      ({ paths }) => void (paths['/openapi.json']!['get'].responses['200'].content = { 'text/html': {} }),
    ],
  ];
  for (const [index, [what, finding, operation, plant]] of FAULTS.entries()) {
    test(`finds ${what}`, async (t) => {
      const server = await Server.during(t, OPEN);
      const altered = await description(server);
      plant(altered);
      const args = ['--include-name', operation, '--phases', 'coverage,fuzzing', '--no-shrink'];
      const run = { name: `fault-${index}`, address: server.address, examples: 30, seed: SEED, description: altered, args };
      const outcome = await schemathesis(run);
      assert.match(outcome.output, finding);
      assert.ok(!outcome.isClean);
    });
  }
});

function fewest({ requests }: Outcome): number {
  return Math.min(...Object.entries(requests).flatMap(([operation, count]) => (FIXED.includes(operation) ? [] : [count])));
}
