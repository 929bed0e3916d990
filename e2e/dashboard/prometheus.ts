// Debian's Prometheus as a real process, configured as in the documents, and the queries of a dashboard as Grafana sends them.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import { freePort } from '../harness/ports.ts';
import { DEADLINE_MS, eventually, within } from '../harness/wait.ts';

/** A short scrape interval for a fast test; Grafana's rates cover four intervals. */
const SCRAPE_INTERVAL = '1s';
const RATE_INTERVAL = '4s';

/** The parts of a dashboard that query data. */
export interface Dashboard {
  templating: { list: Array<{ name: string; type: string; query: string | { query: string } }> };
  panels: Panel[];
}

/** A panel, or a row, which has no queries. */
export interface Panel {
  id: number;
  type: string;
  title: string;
  gridPos: { x: number; y: number; w: number; h: number };
  targets?: Array<{ expr: string; legendFormat: string; datasource: { uid: string } }>;
}

/** One result of an instant query. */
interface Sample {
  metric: Record<string, string>;
  value: [number, string];
}

/** Values of a dashboard's variables. */
export type Variables = Record<string, string>;

export class Prometheus {
  private constructor(readonly url: string) {}

  /** Scrapes `target` until the end of the test, with the configuration in `documented` but a shorter interval. */
  static async during(test: TestContext, documented: string, target: string): Promise<Prometheus> {
    const folder = mkdtempSync(join(tmpdir(), 'tidewire-prometheus-'));
    atEnd(test, () => rmSync(folder, { recursive: true, force: true }));
    const config = join(folder, 'prometheus.yml');
    const scraped = documented.replaceAll('127.0.0.1:6020', target);
    writeFileSync(config, `global: { scrape_interval: ${SCRAPE_INTERVAL} }\n${scraped}`);
    const address = `127.0.0.1:${await freePort()}`;
    const args = [`--config.file=${config}`, `--storage.tsdb.path=${folder}/data`, `--web.listen-address=${address}`, '--log.level=warn'];
    const child = spawn('prometheus', args, { stdio: ['ignore', 'ignore', 'pipe'] });
    let output = '';
    child.stderr.on('data', (text: Buffer) => (output += text.toString()));
    const ended = once(child, 'exit');
    atEnd(test, async () => {
      if (child.exitCode === null) child.kill('SIGTERM');
      await within(DEADLINE_MS, ended, 'prometheus ends');
    });
    const isReady = async (): Promise<boolean> => {
      if (child.exitCode !== null) throw new Error(`prometheus ended with ${child.exitCode}:\n${output}`);
      return fetch(`http://${address}/-/ready`).then(({ ok }) => ok, () => false);
    };
    await eventually(isReady, 'prometheus is ready');
    return new Prometheus(`http://${address}`);
  }

  /** The current samples of an expression. */
  async query(expression: string): Promise<Sample[]> {
    const answer = await fetch(`${this.url}/api/v1/query`, { method: 'POST', body: new URLSearchParams({ query: expression }) });
    const body = (await answer.json()) as { status: string; error?: string; data: { result: Sample[] } };
    if (body.status !== 'success') throw new Error(body.error);
    return body.data.result;
  }

  /** For each query variable of `dashboard`, its first value; earlier variables are substituted in the query. */
  async variables(dashboard: Dashboard): Promise<Variables> {
    const chosen: Variables = { __rate_interval: RATE_INTERVAL };
    for (const { name, type, query } of dashboard.templating.list) {
      if (type !== 'query' || typeof query === 'string') continue;
      const [, series = '', label = ''] = /^label_values\((.+), (\w+)\)$/.exec(query.query) ?? [];
      const [sample] = await this.query(`count by (${label}) (${filled(series, chosen)})`);
      const value = sample?.metric[label];
      if (value === undefined) throw new Error(`the variable ${name} has no values: ${query.query}`);
      chosen[name] = value;
    }
    return chosen;
  }

  /** One line for each expression of `dashboard` that does not return a number. */
  async complaints(dashboard: Dashboard, variables: Variables): Promise<string[]> {
    const asked = dashboard.panels.flatMap(({ title, targets = [] }) => targets.map(({ expr }) => ({ title, expr })));
    const answers = asked.map(async ({ title, expr }) => {
      try {
        const samples = await this.query(filled(expr, variables));
        if (samples.some(({ value }) => Number.isFinite(Number(value[1])))) return [];
        return [`${title}: ${samples.length === 0 ? 'no data' : 'no number'}: ${expr}`];
      } catch (error) {
        return [`${title}: ${(error as Error).message}: ${expr}`];
      }
    });
    return (await Promise.all(answers)).flat();
  }
}

/** `expression` with substituted variables. An unknown variable stays and causes a syntax error. */
function filled(expression: string, variables: Variables): string {
  return expression.replaceAll(/\$(\w+)/g, (whole, name: string) => variables[name] ?? whole);
}
