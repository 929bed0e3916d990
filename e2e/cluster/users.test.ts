// Users that a cluster keeps in its store: created and changed on one node, known to all.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ADMIN_KEY, admin } from '../harness/admin.ts';
import { connect } from '../harness/client.ts';
import { openStream } from '../harness/event-stream.ts';
import { post, url } from '../harness/http.ts';
import { fresh } from '../harness/names.ts';
import type { Server, ServerOptions } from '../harness/server.ts';
import { Cluster, SETUPS } from './cluster.ts';

const OPTIONS: ServerOptions = {
  auth: { chain: ['store'], attempts_max: 100, store: { sign_up: true, sign_up_rate: 'none' } },
  adminKey: ADMIN_KEY,
};
const ROUNDS = 20;
/** A change of the password ends the sessions of the former one. */
const ENDED = ['TOO_MANY_AUTH_ATTEMPTS', 'IS_CLOSED', 'CONNECTION_ERROR'];

async function signUp(node: Server, username: string, password: string): Promise<number> {
  return (await post(node, '/api/auth/sign-up', { username, password })).status;
}

for (const setup of SETUPS.filter(({ broker }) => broker === undefined)) {
  test(`users of a cluster with ${setup.name}`, async (t) => {
    const cluster = await Cluster.during(t, setup);
    const nodes = await cluster.nodes(3, OPTIONS);
    const prefix = fresh('user');

    await t.test('of several sign-ups for a name on all nodes at once, one succeeds, and its password is the right one', async () => {
      for (let round = 0; round < ROUNDS; round += 1) {
        const name = `${prefix}-${round}`;
        const statuses = await Promise.all(nodes.map((node, index) => signUp(node, name, `the password ${index}`)));
        assert.deepEqual([...statuses].sort(), [201, 409, 409], name);
        const winner = statuses.indexOf(201);
        const reader = nodes[(winner + 1) % 3] as Server;
        await connect(t, reader, { login: { username: name, password: `the password ${winner}` }, errors: ENDED });
      }
    });

    await t.test('changes on all nodes at once are all made', async () => {
      for (let round = 0; round < ROUNDS; round += 1) {
        const name = encodeURIComponent(`${prefix}-${round}`);
        const changes = [{ serverData: round }, { clientData: round }, { password: 'another password' }];
        const answers = await Promise.all(changes.map((change, index) => admin(nodes[index] as Server, 'PUT', `/users/${name}`, change)));
        assert.deepEqual(answers.map(([status]) => status), [200, 200, 200]);
        const [, user] = await admin(nodes[0] as Server, 'GET', `/users/${name}`);
        assert.deepEqual([user.serverData, user.clientData], [round, round]);
        await connect(t, nodes[1] as Server, { login: { username: `${prefix}-${round}`, password: 'another password' } });
      }
    });

    await t.test('a ticket of one node opens one stream, on any node', async () => {
      const login = { username: `${prefix}-0`, password: 'another password' };
      for (const [index, issuer] of nodes.entries()) {
        const { ticket } = (await (await post(issuer, '/api/auth', login)).json()) as { ticket: string };
        const path = `/sse?event=e&ticket=${ticket}`;
        const opened = await Promise.all(nodes.map((node) => openStream(t, url(node, path))));
        assert.deepEqual(opened.map(({ answer }) => answer.status).sort(), [200, 401, 401], `issued by node ${index}`);
      }
    });
  });
}
