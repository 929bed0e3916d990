// Terminal blocks: commands after `$`, and below each its output.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import type { TestContext } from 'node:test';
import { Database } from '../harness/database.ts';
import { batch } from '../harness/http.ts';
import { Server, binary, environment } from '../harness/server.ts';
import { REPOSITORY, type Block } from './block.ts';
import { configurationFolder } from './folder.ts';

const RECORDS = 1_000;
/** The number of records in one request. */
const BATCH = 50;
/** The content of the deepstream database from which documents import. */
const DEEPSTREAM = { database: 'deepstream', records: 1_203, lists: 31, large: 'report/2019', bytes: 2_301_172 };

/** Runs the commands in order; the text below each command must equal its output. */
export async function checkTerminal(t: TestContext, { text, configuration, rules }: Block): Promise<void> {
  const folder = configurationFolder(t, configuration, rules);
  mkdirSync(join(folder, 'backup'));
  symlinkSync(join(REPOSITORY, 'examples'), join(folder, 'examples'));
  const places: [shown: string, real: string][] = [['/backup/', `${folder}/backup/`]];
  if (text.includes('/var/lib/tidewire')) {
    const server = await filledServer(t);
    places.push(['/var/lib/tidewire-new', join(folder, 'new')], ['/var/lib/tidewire', server.dataFolder]);
    if (!text.includes('store backup')) await server.stop();
  }
  if (text.includes('postgresql://')) {
    const { url } = await deepstreamDatabase(t);
    places.push(['postgresql://deepstream@db/deepstream', `${url}/${DEEPSTREAM.database}`]);
    places.push(['postgresql://tidewire@db/tidewire', `${url}/postgres`]);
  }
  writeFileSync(join(folder, 'password'), 'unused');
  const path = `${dirname(binary())}${delimiter}${process.env['PATH']}`;
  for (const part of text.split(/^\$ /m).slice(1)) {
    const [shown = '', ...lines] = part.trimEnd().split('\n');
    const command = places.reduce((line, [from, to]) => line.replaceAll(from, to), shown);
    const options = { cwd: folder, env: { ...environment(), PATH: path }, encoding: 'utf8', timeout: 30_000 } as const;
    const ran = spawnSync('bash', ['-c', `${command} 2>&1`], options);
    const printed = places.reduce((line, [from, to]) => line.replaceAll(to, from), ran.stdout);
    assert.equal(steady(printed.trimEnd()), steady(lines.join('\n')), shown);
  }
}

/** The text without durations and file sizes, which differ from run to run. */
function steady(text: string): string {
  return text.replace(/\d+\.\d s\b/g, '0.0 s').replace(/(, | in )\d+ bytes/g, '$10 bytes');
}

async function filledServer(t: TestContext): Promise<Server> {
  const server = await Server.during(t);
  for (let first = 0; first < RECORDS; first += BATCH) {
    const write = (_: unknown, i: number): object => {
      return { topic: 'record', action: 'write', recordName: `order/${first + i}`, data: { number: first + i } };
    };
    const { result } = await batch(server, Array.from({ length: BATCH }, write));
    assert.equal(result, 'SUCCESS');
  }
  return server;
}

/** PostgreSQL with an empty database, and a database as deepstream's connector writes it. */
async function deepstreamDatabase(t: TestContext): Promise<Database> {
  const database = await Database.during(t, 'postgres');
  const { database: name, records, lists, large, bytes } = DEEPSTREAM;
  database.newDatabase(name);
  const [table, id] = large.split('/');
  // The JSON text without the filling has eight bytes.
  const value = `('{"a":"' || repeat('x', ${bytes - 8}) || '"}')`;
  const tables = `
    CREATE SCHEMA ds;
    CREATE TABLE ds."order" (id text PRIMARY KEY, version integer NOT NULL, val text NOT NULL);
    CREATE TABLE ds.${table} (LIKE ds."order");
    INSERT INTO ds."order" SELECT i::text, 1, CASE WHEN i <= ${lists} THEN '["a"]' ELSE '{"a":1}' END
      FROM generate_series(1, ${records}) i;
    INSERT INTO ds.${table} VALUES ('${id}', 1, ${value});`;
  database.sql(tables, name);
  return database;
}

