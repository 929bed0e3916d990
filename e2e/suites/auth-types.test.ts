// The same tests for every auth type: refusals, and the expiry and renewal of a login on the live connection.
// `revocation.test.ts` tests how fast a revocation is.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { AUTH_TYPES, enter, enterRaw, type Entrance, type Entry } from '../harness/auth-types.ts';
import { atEnd } from '../harness/cleanup.ts';
import { C, close, inState, open } from '../harness/client.ts';
import { againstOriginal } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, eventually, within } from '../harness/wait.ts';

/** Whether a login of the unmodified client succeeds. The server may refuse a certificate before the login. */
async function getsIn(test: TestContext, { server }: Entrance, { details, dialled }: Entry): Promise<boolean> {
  const client = open(dialled?.url ?? server.address, { socketOptions: dialled?.options as never });
  atEnd(test, () => close(client));
  const answer = new Promise<boolean>((done) => {
    client.login(details as C.JSONObject, (success: boolean) => done(success));
    client.on('error', (_: unknown, event: unknown) => event === 'CONNECTION_ERROR' && done(false));
  });
  return within(DEADLINE_MS, answer, 'an answer to the login');
}

describe('the ways to log in', { concurrency: 4, skip: againstOriginal }, () => {
  for (const [name, begin] of Object.entries(AUTH_TYPES)) {
    describe(`logins by ${name}`, { concurrency: 3 }, () => {
      test('are accepted, and refused with wrong credentials', async (t) => {
        const entrance = await begin(t, {});
        assert.equal(await getsIn(t, entrance, entrance.entry('first')), true);
        if (entrance.wrong) assert.equal(await getsIn(t, entrance, entrance.wrong), false);
      });

      test('end on the live connection, and a client of deepstream logs in again by itself', async (t) => {
        const entrance = await begin(t, { session_lifetime: '1s' });
        const client = await enter(t, entrance, entrance.entry('first'));
        const states = new Inbox<string>('states');
        client.on('connectionStateChanged', states.push);
        await states.find((state) => state === C.CONNECTION_STATE.RECONNECTING);
        await inState(client, C.CONNECTION_STATE.OPEN);
        const hasExpired = async (): Promise<boolean> => (await entrance.server.metric('tidewire_expired_sessions_total')) > 0;
        await eventually(hasExpired, 'the expiry is counted');
      });

      test('can be renewed in place, and only by the same user', async (t) => {
        const entrance = await begin(t, { session_lifetime: '3s', attempts_max: 100 });
        const [entry, { REQUEST, AUTH_UNSUCCESSFUL }] = [entrance.entry('first'), C.AUTH_ACTION];
        const peer = await enterRaw(entrance, entry);
        const renew = ({ details }: Entry): void => {
          peer.send({ topic: C.TOPIC.AUTH, action: REQUEST, data: JSON.stringify(details) });
        };
        // This connection can't present another user's certificate.
        if (name !== 'tls') {
          renew(entrance.entry('second'));
          await peer.expect(C.TOPIC.AUTH, AUTH_UNSUCCESSFUL);
        }
        // One at a time: a password takes long to verify.
        const answers = (): number => peer.received.seen.filter(({ topic }) => topic === C.TOPIC.AUTH).length;
        let asked = answers();
        const renewing = setInterval(() => {
          if (answers() < asked) return;
          asked += 1;
          renew(entry);
        }, 200);
        atEnd(t, () => clearInterval(renewing));
        // In sequence, so that the renewed session becomes older than two lifetimes.
        for (let i = 0; i < 2; i += 1) await (await enterRaw(entrance, entrance.entry('second'))).closed;
        await peer.settle();
        clearInterval(renewing);
        await within(DEADLINE_MS, peer.closed, 'the session ends after the last renewal');
      });
    });
  }
});
