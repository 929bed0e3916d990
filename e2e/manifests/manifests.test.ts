// The files with which a cluster is deployed (packaging/cluster): the types of Kubernetes and of Compose accept them, the server and haproxy
// accept the configurations inside, and three servers with these configurations are a cluster.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, before, describe, test, type TestContext } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import { Database } from '../harness/database.ts';
import { freePort } from '../harness/ports.ts';
import { run } from '../harness/program.ts';
import { binary, environment, Server } from '../harness/server.ts';
import { eventually } from '../harness/wait.ts';

const MANIFESTS = resolve(import.meta.dirname, '../../packaging/cluster');
const SECONDS = /^(\d+)s$/;
/** The places of the configuration in the containers. */
const RULES_PLACE = '/etc/tidewire/permissions.yml';

interface Probe {
  httpGet: { path: string; port: string };
  periodSeconds: number;
}

/** The parts of the decoded files that the tests read. */
interface Deployment {
  kind: 'Deployment';
  spec: {
    replicas: number;
    template: {
      spec: {
        terminationGracePeriodSeconds: number;
        containers: Array<{
          args: string[];
          env: Array<{ name: string; value?: string }>;
          ports: Array<{ name: string; containerPort: number }>;
          startupProbe: Probe;
          livenessProbe: Probe;
          readinessProbe: Probe;
        }>;
      };
    };
  };
}
interface ConfigMap {
  kind: 'ConfigMap';
  data: Record<string, string>;
}
interface Project {
  services: Record<string, { command: string[] | null; deploy?: { replicas: number }; environment?: Record<string, string>; stop_grace_period?: string }>;
  configs: Record<string, { content: string }>;
}

describe('the files of a cluster', () => {
  let folder = '';
  let decoder = '';
  before(() => {
    folder = mkdtempSync(join(tmpdir(), 'tidewire-manifests-'));
    decoder = join(folder, 'decode');
    run('go', ['build', '-o', decoder, '.'], { cwd: join(import.meta.dirname, 'decode') });
  });
  after(() => rmSync(folder, { recursive: true, force: true }));

  const decode = (form: string, file: string): unknown[] => run(decoder, [form, file]).trim().split('\n').map((line) => JSON.parse(line) as unknown);
  const kubernetes = (): [ConfigMap, Deployment] => {
    const documents = decode('kubernetes', join(MANIFESTS, 'kubernetes.yaml')) as Array<{ kind: string }>;
    assert.deepEqual(documents.map(({ kind }) => kind), ['ConfigMap', 'Deployment', 'Service', 'PodDisruptionBudget']);
    return documents.slice(0, 2) as unknown as [ConfigMap, Deployment];
  };
  const compose = (): Project => decode('compose', join(MANIFESTS, 'compose.yaml'))[0] as Project;

  for (const [form, file, field] of [['kubernetes', 'kubernetes.yaml', 'terminationGracePeriodSeconds'], ['compose', 'compose.yaml', 'stop_grace_period']] as const) {
    test(`the types of ${form} accept them, and no unknown field`, () => {
      decode(form, join(MANIFESTS, file));
      const text = readFileSync(join(MANIFESTS, file), 'utf8');
      const planted = join(folder, file);
      writeFileSync(planted, text.replace(`${field}:`, `${field}s:`));
      const { status, stderr } = spawnSync(decoder, [form, planted], { encoding: 'utf8' });
      assert.equal(status, 1);
      assert.match(stderr, new RegExp(`${field}s`));
    });
  }

  test('a stop has the time that it needs', () => {
    const [{ data }, { spec }] = kubernetes();
    const ofKubernetes = drained(data['tidewire.yml'] as string);
    assert.ok(spec.template.spec.terminationGracePeriodSeconds >= ofKubernetes.seconds + 5);
    const [container] = spec.template.spec.containers;
    assert.ok(ofKubernetes.delay > 2 * (container?.readinessProbe.periodSeconds ?? Infinity), 'two probes fit into the delay');
    const { services, configs } = compose();
    const ofCompose = drained(configs['tidewire']?.content as string);
    const grace = SECONDS.exec(services['tidewire']?.stop_grace_period ?? '')?.[1];
    assert.ok(Number(grace) >= ofCompose.seconds + 5);
    const interval = /inter (\d+)s/.exec(configs['haproxy']?.content ?? '')?.[1];
    assert.ok(ofCompose.delay > 2 * Number(interval), 'two checks fit into the delay');
  });

  test('the probes request pages of the server', async (t) => {
    const [, { spec }] = kubernetes();
    const [container] = spec.template.spec.containers;
    assert.ok(container);
    const server = await Server.during(t);
    for (const { httpGet } of [container.startupProbe, container.livenessProbe, container.readinessProbe]) {
      assert.equal(container.ports.find(({ name }) => name === httpGet.port)?.containerPort, 6020);
      assert.equal((await server.get(httpGet.path)).status, 200);
    }
  });

  test('haproxy accepts its configuration', () => {
    const file = join(folder, 'haproxy.cfg');
    writeFileSync(file, compose().configs['haproxy']?.content as string);
    run('haproxy', ['-c', '-q', '-f', file]);
  });

  test('three servers with the configuration for Kubernetes are a cluster', async (t) => {
    const [{ data }, { spec }] = kubernetes();
    const [container] = spec.template.spec.containers;
    const values = container?.env.filter(({ value }) => value !== undefined).map(({ name }) => name);
    assert.deepEqual(values, ['TIDEWIRE_STORE__PATH']);
    assert.deepEqual(container?.args.slice(0, 2), ['start', '--config']);
    await areCluster(t, spec.replicas, data['tidewire.yml'] as string, data['permissions.yml'] as string);
  });

  test('three servers with the configuration for Compose are a cluster', async (t) => {
    const { services, configs } = compose();
    const { command, deploy, environment: variables } = services['tidewire'] ?? {};
    assert.deepEqual(Object.keys(variables ?? {}), ['TIDEWIRE_STORE__POSTGRES__URL']);
    assert.deepEqual(command?.slice(0, 2), ['start', '--config']);
    await areCluster(t, deploy?.replicas ?? 0, configs['tidewire']?.content as string, configs['permissions']?.content as string);
  });

  /** Starts `count` servers with a configuration and rules, and a PostgreSQL, and waits until each knows all of them. */
  async function areCluster(t: TestContext, count: number, configuration: string, rules: string): Promise<void> {
    const database = await Database.during(t, 'postgres');
    const ports: number[] = [];
    for (let node = 0; node < count; node += 1) {
      const place = mkdtempSync(join(folder, 'node-'));
      mkdirSync(join(place, 'data'), { mode: 0o700 });
      writeFileSync(join(place, 'permissions.yml'), rules);
      assert.ok(configuration.includes(RULES_PLACE));
      writeFileSync(join(place, 'tidewire.yml'), configuration.replace(RULES_PLACE, join(place, 'permissions.yml')));
      const port = await freePort();
      ports.push(port);
      const options = ['--config', join(place, 'tidewire.yml'), '--host', '127.0.0.1', '--port', String(port), '--data', join(place, 'data')];
      const child = spawn(binary(), ['start', ...options, '--set', 'cluster.port=0', '--set', 'cluster.host=127.0.0.1', '--set', 'drain_delay=0s'], {
        env: { ...environment(), TIDEWIRE_STORE__POSTGRES__URL: `${database.url}/postgres` },
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      let output = '';
      for (const stream of [child.stdout, child.stderr]) stream.on('data', (text: Buffer) => (output += text.toString()));
      const ended = new Promise((done) => child.once('close', done));
      atEnd(t, async () => {
        child.kill('SIGTERM');
        assert.equal(await ended, 0, output);
      });
    }
    const active = `tidewire_cluster_members{state="active"} ${count}`;
    for (const port of ports) {
      const knowsAll = async (): Promise<boolean> => {
        const answer = await fetch(`http://127.0.0.1:${port}/metrics`).catch(() => undefined);
        return (await answer?.text())?.includes(active) ?? false;
      };
      await eventually(knowsAll, `the node on port ${port} knows all ${count}`, 30_000);
    }
  }
});

/** The time in which a server with this configuration stops, and the part of it in which it still accepts connections. */
function drained(configuration: string): { delay: number; seconds: number } {
  const seconds = (name: string): number => Number(new RegExp(`^${name}: (\\d+)s$`, 'm').exec(configuration)?.[1]);
  const delay = seconds('drain_delay');
  return { delay, seconds: delay + seconds('drain_timeout') };
}
