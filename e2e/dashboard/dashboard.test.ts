// The dashboard file for Grafana: a real Prometheus scrapes a server under load, and each expression of each panel must return a
// number. Debian has no package of Grafana, so the checks below replace Grafana's own validation of the file.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { atEnd } from '../harness/cleanup.ts';
import { connect, record, subscribed } from '../harness/client.ts';
import { fresh } from '../harness/names.ts';
import { Server } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';
import { Prometheus, type Dashboard, type Panel } from './prometheus.ts';

const DOCS = resolve(import.meta.dirname, '../../docs');
const read = (): Dashboard => JSON.parse(readFileSync(`${DOCS}/grafana/tidewire.json`, 'utf8')) as Dashboard;
const COLUMNS = 24;
/** Milliseconds between two rounds of the load. */
const ROUND_MS = 20;

/** The configuration of Prometheus in the documents. */
function documentedConfiguration(): string {
  const [, found] = /^```prometheus\n(scrape_configs:\n[\s\S]*?)^```$/m.exec(readFileSync(`${DOCS}/operations.md`, 'utf8')) ?? [];
  assert.ok(found, 'docs/operations.md has a configuration of Prometheus');
  return found;
}

/** Clients that publish, write and call until the end of the test. */
async function load(t: TestContext, server: Server): Promise<void> {
  const [client, other] = [await connect(t, server), await connect(t, server)];
  const event = fresh('event');
  const call = fresh('call');
  const inbox = await subscribed(other, event);
  other.rpc.provide(call, (argument, response) => response.send(argument));
  const written = await record(client, fresh('record'));
  const over = new AbortController();
  const busy = (async () => {
    for (let round = 0; !over.signal.aborted; round += 1) {
      client.event.emit(event, round);
      assert.equal(await inbox.next(), round);
      await Promise.all([written.setWithAck('round', round), client.rpc.make(call, round)]);
      await pause(ROUND_MS);
    }
  })();
  // The end of the load rethrows an earlier error.
  busy.catch(() => {});
  atEnd(t, () => (over.abort(), busy));
}

test('every expression of every panel returns numbers for a server under load, and the test detects an unknown metric', async (t) => {
  const server = await Server.during(t);
  await load(t, server);
  const prometheus = await Prometheus.during(t, documentedConfiguration(), server.address);
  const dashboard = read();
  await eventually(async () => (await prometheus.query('count_over_time(up[4s]) >= 3')).length > 0, 'the server was scraped three times');
  const variables = await prometheus.variables(dashboard);
  assert.deepEqual([variables['job'], variables['instance']], ['tidewire', server.address]);
  // A late scrape leaves a rate without numbers for a while.
  let without: string[] = [];
  const hasNumbers = async (): Promise<boolean> => (without = await prometheus.complaints(dashboard, variables)).length === 0;
  await eventually(hasNumbers, 'every expression returns a number').catch(() => undefined);
  assert.deepEqual(without, []);

  const planted = {
    ...panels(dashboard)[0]!,
    title: 'planted',
    targets: ['sum(tidewire_unheard_of{job="$job"})', 'sum(tidewire_connections{job="$work"})', 'sum(tidewire_connections', 'vector(0) / 0'].map(asked),
  };
  const complaints = await prometheus.complaints({ ...dashboard, panels: [planted] }, variables);
  const expected = [/no data: .*unheard_of/, /no data: .*\$work/, /parse error/, /no number/];
  assert.equal(complaints.length, expected.length, complaints.join('\n'));
  expected.forEach((pattern, i) => assert.match(complaints[i] as string, pattern));
});

test('promtool finds no problem in the metrics, and reports one in others', async (t) => {
  const server = await Server.during(t);
  await load(t, server);
  const answer = await fetch(`http://${server.address}/metrics`);
  assert.equal(answer.headers.get('content-type'), 'text/plain; version=0.0.4; charset=utf-8');
  const checked = (input: string): unknown[] => {
    const { status, stdout, stderr } = spawnSync('promtool', ['check', 'metrics'], { input, encoding: 'utf8' });
    return [status, stdout, stderr];
  };
  assert.deepEqual(checked(await answer.text()), [0, '', '']);
  // With the counter names of OpenMetrics, which promtool rejects.
  const accept = { accept: 'application/openmetrics-text;version=1.0.0' };
  const open = await fetch(`http://${server.address}/metrics`, { headers: accept });
  assert.equal(open.headers.get('content-type'), 'application/openmetrics-text; version=1.0.0; charset=utf-8');
  assert.notEqual(checked(await open.text())[0], 0);
});

test('the panels have unique ids, query the chosen source, and do not overlap', () => {
  const { panels: all, templating } = read();
  assert.equal(new Set(all.map(({ id }) => id)).size, all.length);
  const cells = new Map<string, string>();
  for (const { title, gridPos: { x, y, w, h } } of all) {
    assert.ok(x >= 0 && x + w <= COLUMNS, title);
    for (let cell = 0; cell < w * h; cell += 1) {
      const place = `${x + (cell % w)} ${y + Math.floor(cell / w)}`;
      assert.equal(cells.get(place), undefined, `${title} lies over ${cells.get(place)}`);
      cells.set(place, title);
    }
  }
  const names = templating.list.map(({ name }) => name);
  assert.deepEqual(names, ['datasource', 'job', 'instance']);
  for (const { title, targets = [] } of panels(read())) {
    assert.ok(targets.length > 0, `${title} asks nothing`);
    for (const { datasource } of targets) assert.equal(datasource.uid, '${datasource}', title);
  }
});

/** The panels that are not rows. */
function panels(dashboard: Dashboard): Panel[] {
  return dashboard.panels.filter(({ type }) => type !== 'row');
}

function asked(expr: string): NonNullable<Panel['targets']>[number] {
  return { expr, legendFormat: '', datasource: { uid: '${datasource}' } };
}
