// The brokers of links that are more than one program: RabbitMQ, an Erlang VM with a daemon, and Kafka, a JVM with libraries from Maven.

import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { Kind } from './database.ts';
import { mavenLibraries } from './maven.ts';
import { run } from './program.ts';

const CARRIERS_FOLDER = resolve(import.meta.dirname, '../carriers');
const TOPIC = 'tidewire-links';

/** The further ports are of Erlang's distribution, and of the daemon that knows the ports of Erlang programs. */
export const RABBITMQ: Kind = {
  morePorts: 2,
  command: (folder, port, [distribution, daemon]) => [
    'env',
    ...[`RABBITMQ_NODENAME=links${port}@localhost`, `RABBITMQ_CONFIG_FILE=${join(folder, 'rabbitmq.conf')}`],
    ...[`RABBITMQ_DIST_PORT=${distribution}`, `ERL_EPMD_PORT=${daemon}`, `RABBITMQ_ENABLED_PLUGINS_FILE=${join(folder, 'plugins')}`],
    // Without it the daemon does not end while it knows a killed program.
    'ERL_EPMD_RELAXED_COMMAND_CHECK=1',
    // The script becomes the Erlang VM, instead of its parent, so that a signal reaches the VM.
    'RUNNING_UNDER_SYSTEMD=true',
    ...[`RABBITMQ_MNESIA_BASE=${join(folder, 'data')}`, `RABBITMQ_LOG_BASE=${join(folder, 'logs')}`, `HOME=${folder}`],
    '/usr/lib/rabbitmq/bin/rabbitmq-server',
  ],
  prepare: (folder, port) => writeFileSync(join(folder, 'rabbitmq.conf'), `listeners.tcp.1 = 127.0.0.1:${port}\n`),
  // The daemon leaves the server's processes.
  dispose: ([, daemon]) => spawnSync('epmd', ['-port', String(daemon), '-kill']),
  crash: 'SIGKILL',
  url: (port) => `amqp://guest:guest@127.0.0.1:${port}/%2f`,
};

/** The further port is the controller's. */
export const KAFKA: Kind = {
  morePorts: 1,
  command: (folder) => java('-Xmx512m', 'kafka.Kafka', join(folder, 'server.properties')),
  prepare: (folder, port, [controller]) => {
    const properties = join(folder, 'server.properties');
    const lines = [
      ...['process.roles=broker,controller', 'node.id=1', `controller.quorum.voters=1@127.0.0.1:${controller}`],
      ...['controller.listener.names=CONTROLLER', `listeners=CONTROLLER://127.0.0.1:${controller},PLAINTEXT://127.0.0.1:${port}`],
      ...[`advertised.listeners=PLAINTEXT://127.0.0.1:${port}`, 'offsets.topic.replication.factor=1', `log.dirs=${join(folder, 'data')}`],
      // After a kill, a broker cannot register again before the session of its earlier life has ended.
      ...['broker.session.timeout.ms=3000', 'broker.heartbeat.interval.ms=500'],
    ];
    writeFileSync(properties, `${lines.join('\n')}\n`);
    const [program = '', ...args] = java('kafka.tools.StorageTool', 'format', '-t', 'MkU3OEVBNTcwNTJENDM2Qg', '-c', properties);
    run(program, args);
  },
  started: (port) => {
    const [program = '', ...args] = java(join(CARRIERS_FOLDER, 'Topic.java'), `127.0.0.1:${port}`, TOPIC);
    run(program, args);
  },
  crash: 'SIGKILL',
  url: (port) => `kafka://127.0.0.1:${port}/${TOPIC}`,
};

/** A program with Kafka's libraries. Its fast start matters more than its throughput. */
function java(...args: string[]): string[] {
  return ['java', '-XX:TieredStopAtLevel=1', '-cp', join(mavenLibraries(CARRIERS_FOLDER), '*'), ...args];
}
