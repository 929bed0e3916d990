// A store that is down, slow or weak, as clients and operators see it: acknowledged writes are never lost, cached records
// stay readable, writes wait until their deadline, and everything recovers by itself when the store is back.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { close, connect, record } from '../harness/client.ts';
import { Database, type DatabaseKind } from '../harness/database.ts';
import { isFailing, OUTAGE_OPTIONS, ready, seesOutage } from '../harness/outage.ts';
import { Server, type ServerOptions } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';

const STORES: Array<[kind: DatabaseKind, section: string, path: string]> = [
  ['mongodb', 'mongodb', '/tidewire'],
  ['postgres', 'postgres', '/postgres'],
  ['redis', 'redis', '/0'],
  ['valkey', 'redis', '/0'],
];

function options(database: Database, section: string, path: string, store: object = {}): ServerOptions {
  return {
    store: { kind: section, timeout: '3s', [section]: { url: database.url + path }, ...store },
    record: OUTAGE_OPTIONS.record,
    keepsOutput: true,
  };
}

for (const [kind, section, path] of STORES) {
  describe(`a store in ${kind}`, () => {
    async function started(t: TestContext, more: ServerOptions = {}): Promise<{ database: Database; server: Server }> {
      const database = await Database.during(t, kind);
      const server = await Server.during(t, { ...options(database, section, path), ...more });
      return { database, server };
    }

    test('keeps acknowledged writes when it and the server are killed', async (t) => {
      const { database, server } = await started(t);
      await server.prints(/on disk, synced: (MongoDB|PostgreSQL|Redis) with/);
      const client = await connect(t, server, { errors: ['CONNECTION_ERROR'] });
      for (let n = 0; n < 50; n += 1) await client.record.setDataWithAck(`kept/${n}`, { n });
      await client.record.setDataWithAck('gone', { n: 1 });
      const gone = await record(client, 'gone');
      await gone.delete();
      close(client);
      await database.crash();
      await server.kill();
      await database.start();
      await server.start();
      const reader = await connect(t, server);
      for (let n = 0; n < 50; n += 1) assert.deepEqual(await reader.record.snapshot(`kept/${n}`), { n });
      assert.equal(await reader.record.has('gone'), false);
    });

    test('that is killed, as clients and operators see it', async (t) => {
      const { database, server } = await started(t, OUTAGE_OPTIONS);
      const outage = { server, begin: () => database.crash(), end: () => database.start() };
      await seesOutage(t, outage, /the store can't commit/, /the store fails/);
    });

    test('that no longer answers, as clients and operators see it', async (t) => {
      const { database, server } = await started(t, OUTAGE_OPTIONS);
      const outage = { server, begin: () => database.freeze(), end: () => database.thaw() };
      await seesOutage(t, outage, /the store has not answered for/, /has not answered/);
    });

    test('that another server opens accepts no more writes from the first one', async (t) => {
      const { database, server } = await started(t);
      const client = await connect(t, server, { errors: ['CONNECTION_ERROR', 'RECORD_UPDATE_ERROR'] });
      await client.record.setDataWithAck('shared', { n: 1 });
      const second = await Server.during(t, options(database, section, path));
      await assert.rejects(async () => client.record.setDataWithAck('shared', { n: 2 }));
      await eventually(() => isFailing(server), '/ready names the other server');
      assert.match((await ready(server)).reasons[0]?.text ?? '', /another server has opened the store/);
      const other = await connect(t, second);
      assert.deepEqual(await other.record.snapshot('shared'), { n: 1 });
      await other.record.setDataWithAck('shared', { n: 3 });
    });
  });
}

test('a Redis whose memory is full, as clients and operators see it', async (t) => {
  const database = await Database.during(t, 'redis');
  const server = await Server.during(t, { ...options(database, 'redis', '/0'), ...OUTAGE_OPTIONS });
  const outage = {
    server,
    begin: () => database.command('CONFIG', 'SET', 'maxmemory', '1'),
    end: () => database.command('CONFIG', 'SET', 'maxmemory', '0'),
  };
  await seesOutage(t, outage, /the store can't commit.*make room/, /OOM|maxmemory/);
});

test('a Redis that does not sync is refused with the setting to change, unless an option allows it', async (t) => {
  const database = await Database.during(t, 'redis');
  await database.command('CONFIG', 'SET', 'appendfsync', 'everysec');
  await assert.rejects(
    Server.start(options(database, 'redis', '/0')),
    /ended with 4 while starting:\n(.*\n)*.*appendfsync is everysec; set it to always/,
  );
  const relaxed = await Server.during(t, options(database, 'redis', '/0', { durability: 'relaxed' }));
  assert.deepEqual((await ready(relaxed)).warnings.map(({ code }) => code), ['store_relaxed']);
  assert.match(await (await relaxed.get('/metrics')).text(), /^tidewire_store_relaxed 1$/m);
  await relaxed.prints(/not known to be on disk: .*appendfsync is everysec/);
  await relaxed.prints(/acknowledged writes may be lost/);
});

test('a MongoDB that does not report durability is refused, unless an option allows it', async (t) => {
  const database = await Database.during(t, 'silentMongodb');
  await assert.rejects(
    Server.start(options(database, 'mongodb', '/tidewire')),
    /ended with 4 while starting:\n(.*\n)*.*MongoDB does not report whether .*give the user the role clusterMonitor/,
  );
  const relaxed = await Server.during(t, options(database, 'mongodb', '/tidewire', { durability: 'relaxed' }));
  assert.deepEqual((await ready(relaxed)).warnings.map(({ code }) => code), ['store_relaxed']);
});

test('a password comes from a file and is never printed', async (t) => {
  const database = await Database.during(t, 'redis');
  const password = 'correct horse battery staple';
  await database.command('CONFIG', 'SET', 'requirepass', password);
  const file = join(database.folder, 'password');
  writeFileSync(file, `${password}\n`);
  const redis = { url: `${database.url}/0`, password_file: file };
  const server = await Server.during(t, { ...options(database, 'redis', '/0', { redis }), logLevel: 'trace' });
  const client = await connect(t, server);
  await client.record.setDataWithAck('secret', { n: 1 });
  assert.ok(!server.output.includes(password), 'it is printed');
  await assert.rejects(
    Server.start(options(database, 'redis', '/0')),
    /ended with 4 while starting:\n(.*\n)*.*can't be used: .*NOAUTH/,
  );
});
