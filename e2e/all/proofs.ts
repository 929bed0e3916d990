// The proofs of `make proof`, which take longer than the tests of a commit. Each runs for at most an hour.

import { FAULTS } from '../faults/list.ts';

/** One target `make proof-NAME`. */
export interface Proof {
  /** The end of its make target. */
  name: string;
  command: string[];
  /** Runs first. Its time does not count as the proof's. */
  build?: string[];
  env?: Record<string, string>;
  /** The matches of these patterns in the output go into the line of docs/proof.md. */
  figures: RegExp[];
}

const npm = (...args: string[]): string[] => ['npm', '--prefix', 'e2e', 'run', '--silent', ...args];
const fuzz = (...args: string[]): string[] => [
  'cargo', 'run', '--release', '--manifest-path', 'fuzz/Cargo.toml', '--no-default-features', '--bin', 'proof', '--', ...args,
];
/** Fuzzes each of the targets for this many seconds. */
const fuzzed = (seconds: string, ...targets: string[]): Pick<Proof, 'build' | 'command' | 'env'> => ({
  build: fuzz('build', ...targets),
  command: fuzz('clean', seconds, ...targets),
  env: { RUSTC_BOOTSTRAP: '1' },
});

/** The fuzz targets other than the decoders, the entries, the links and the rules. */
const OUTSIDE = ['json', 'jwt', 'api', 'json_patch', 'config', 'client_address'];

/**
 * The suites of clients that run on several nodes. The others test one process, change rules or revoke users, which a cluster refuses, or
 * count logins, streams or tickets, which each node does for itself.
 */
const ON_NODES = [
  ...['events', 'event-history', 'records', 'anonymous-records', 'lists', 'merge', 'loss', 'restarts', 'rpc', 'presence', 'listening'],
  ...['permissions', 'rights-table', 'denials', 'rest-permissions', 'http-permissions', 'http-records', 'http-queries', 'protocol', 'before-login'],
];

export const PROOFS: Proof[] = [
  {
    name: 'fuzz',
    ...fuzzed('3600', 'decode'),
    figures: [/decode: no finding in .*/],
  },
  {
    name: 'fuzz-entries',
    ...fuzzed('3600', 'entries'),
    figures: [/entries: no finding in .*/],
  },
  {
    name: 'fuzz-links',
    command: fuzz('clean', '1800', 'links'),
    env: { RUSTC_BOOTSTRAP: '1' },
    figures: [/links: no finding in .*/],
  },
  {
    name: 'fuzz-rules',
    ...fuzzed('1800', 'rules'),
    figures: [/rules: no finding in .*/],
  },
  {
    name: 'fuzz-outside',
    ...fuzzed('480', ...OUTSIDE),
    figures: OUTSIDE.map((target) => new RegExp(`${target}: no finding in .*`)),
  },
  {
    name: 'rules',
    command: [
      'cargo', 'test', '--locked', '--release', '--package', 'tidewire-rules', '--test', 'node_parity', '--', '--include-ignored', '--nocapture',
    ],
    env: { RULE_PAIRS: '1000000' },
    figures: [
      /\d+ pairs of rule and document agree .*/, /functions: .*/, /operators: .*/, /^pairs of types: .*/m, /operators with pairs .*/,
      /variables: .*/, /nesting: .*/,
    ],
  },
  {
    name: 'query',
    command: [
      'cargo', 'test', '--locked', '--release', '--package', 'tidewire-query', '--test', 'node_parity', '--test', 'window', '--',
      '--include-ignored', '--nocapture',
    ],
    env: { QUERY_PAIRS: '1000000', QUERY_SEEDS: '25000' },
    figures: [/\d+ pairs of query and record agree .*/, /\d+ seeds, \d+ steps, .*/],
  },
  {
    name: 'query-oracles',
    command: npm('oracles'),
    env: { ORACLE_PAIRS: '1000000' },
    figures: [/\d+ pairs of selector and record: .*/, /mingo agrees on the order .*/, /pass \d+/, /fail \d+/],
  },
  {
    name: 'fuzz-faults',
    command: npm('fuzz-faults', '--', '300'),
    figures: FAULTS.filter(({ fuzzTarget }) => fuzzTarget !== undefined).map(({ name }) => new RegExp(`${name}: .*`)),
  },
  {
    name: 'faults',
    command: npm('planted-faults'),
    figures: [...FAULTS.map(({ name }) => new RegExp(`${name}: found by .*`)), /pass \d+/, /fail \d+/],
  },
  {
    name: 'sim',
    command: [
      'cargo', 'test', '--locked', '--package', 'tidewire-core', '--test', 'sim', '--', '--nocapture',
    ],
    env: { SIM_SEEDS: '100000' },
    figures: [
      /\d+ seeds, .*/, /each seed at least: .*/, /met, trouble: .*/, /met, disk: .*/, /met, network: .*/, /met, store: .*/, /met, error: .*/,
      /met, close: .*/,
    ],
  },
  {
    name: 'live-queries',
    command: [
      'cargo', 'test', '--locked', '--release', '--package', 'tidewire-core', '--test', 'behaviour', 'live_results_equal', '--', '--nocapture',
    ],
    env: { SIM_SEEDS: '67000' },
    figures: [/\d+ seeds: \d+ live results .*/],
  },
  {
    name: 'cluster',
    command: npm('cluster'),
    // The first run on a machine builds the server of the earlier commit, too.
    env: { CLUSTER_SETUP: 'all', OLDER_SERVER: '1' },
    figures: [/rolling (restart|upgrade): .*/, /pass \d+/, /fail \d+/],
  },
  {
    name: 'resume',
    command: [
      'cargo', 'test', '--locked', '--package', 'tidewire-core', '--test', 'resume', '--', '--nocapture',
    ],
    env: { SIM_SEEDS: '100000' },
    figures: [/\d+ seeds: .*/],
  },
  {
    name: 'links',
    command: [
      'cargo', 'test', '--locked', '--package', 'tidewire-link', '--test', 'simulation', '--', '--nocapture',
    ],
    env: { SIM_SEEDS: '100000' },
    figures: [/\d+ seeds/, /Met \{.*/],
  },
  ...['amqp', 'kafka', 'nats', 'redis', 'valkey'].map((carrier) => ({
    name: `links-${carrier}`,
    command: npm('carriers'),
    env: { CARRIERS: carrier, CARRIER_KILLS: '100' },
    figures: [new RegExp(`${carrier}: \\d+ kills.*`), /pass \d+/, /fail \d+/],
  })),
  ...([['nats', 'NATS'], ['redis', 'links over Redis'], ['amqp', 'AMQP'], ['kafka', 'Kafka']] as const).map(([broker, setup]) => ({
    name: `broker-${broker}`,
    command: ['node', '--import', './e2e/node_modules/tsx/dist/loader.mjs', '--test', '--test-name-pattern', '3 nodes', 'e2e/cluster/broker.test.ts'],
    env: { CLUSTER_SETUP: setup, BROKER_KILLS: '100' },
    figures: [/\d+ kills: .*/, /pass \d+/, /fail \d+/],
  })),
  ...(['direct', 'nats', 'redis', 'amqp', 'kafka'] as const).map((link) => ({
    name: `nodes-${link}`,
    command: npm('test', '--', ...ON_NODES),
    env: { E2E_NODES: '3', ...(link !== 'direct' && { E2E_NODES_LINK: link }) },
    figures: [/e2e: .*/],
  })),
  {
    name: 'patterns',
    command: [
      'cargo', 'test', '--locked', '--release', '--package', 'tidewire-shard', '--test', 'event_patterns', '--', '--include-ignored', '--nocapture',
    ],
    figures: [/patterns: .*/],
  },
  {
    name: 'attacks',
    command: npm('attacks-alone'),
    env: { ATTACK_SECONDS: '10', ATTACK_SLACK_MS: '5', ATTACK_RESUME: '1' },
    figures: [/attacks: .*/, /pass \d+/, /fail \d+/],
  },
  {
    name: 'work',
    command: npm('work'),
    env: { ATTACK_RESUME: '1' },
    figures: [/work: .*/, /pass \d+/, /fail \d+/],
  },
  {
    name: 'schemathesis',
    command: npm('schemathesis'),
    // The time is the seed, so each run makes different requests. The program prints the seed, so a run can be repeated.
    env: { SCHEMATHESIS_EXAMPLES: '200', SCHEMATHESIS_SEED: String(Math.floor(Date.now() / 1_000)) },
    figures: [
      /with open logins: \d+ requests .*/, /(?<!not )logged in: \d+ requests .*/, /not logged in: \d+ requests .*/, /pass \d+/,
      /fail \d+/,
    ],
  },
  {
    name: 'crash',
    command: npm('crash'),
    env: { CRASH_ROUNDS: '50' },
    figures: [/\d+ acknowledged .* kills/, /\d+ acknowledged .* power cuts/, /power cut \d+ lost .*/, /fail \d+/],
  },
  {
    name: 'torture',
    command: ['target/release/tidewire', 'torture', '--minutes', '10'],
    figures: [
      /kills +\d+/, /power cuts +\d+/, /stops +\d+/, /drains +\d+/, /cut connections +\d+/, /failed syncs +\d+/, /full disks +\d+/,
      /acked writes +\d+/, /repeated writes +\d+/, /checked reads +\d+/, /seed +\d+/, /verdict: .*/,
    ],
  },
  ...(['direct', 'nats', 'redis', 'amqp', 'kafka'] as const).map((link) => ({
    name: link === 'direct' ? 'torture-nodes' : `torture-nodes-${link}`,
    command: npm('torture-nodes'),
    env: { TORTURE_FAULTS: link === 'direct' ? '500' : '50', ...(link !== 'direct' && { TORTURE_LINK: link }) },
    figures: [/nodes: \d+ faults, .*/, /writable again: .*/, /fail \d+/],
  })),
  {
    name: 'image',
    // The suites that test the wire. The other suites test the program itself, which the image does not change, or need the rule of the
    // permission tests, which no release contains.
    command: npm(
      'container', '--', 'transport', 'tls', 'events', 'records', 'lists', 'listening', 'presence', 'rpc', 'http-headers', 'json-endpoint',
      ...['scale', 'limits', 'heartbeat', 'drain'],
    ),
    figures: [/e2e: .*/],
  },
  {
    name: 'release',
    command: npm('release', '--', 'twice'),
    figures: [/release: \d+ bytes, .*components/, /two builds in two folders are the same: .*/],
  },
  {
    name: 'unit',
    command: npm('unit'),
    figures: [/unit: ready after \d+ ms/, /unit: killed, .*/, /unit: stopped in .*/, /unit: stopped after .*/, /fail \d+/],
  },
  {
    name: 'million',
    command: npm('million'),
    env: { MILLION_RECORDS: '1000000' },
    figures: [/a client has read .*/, /the process held .*/, /all clients were back .*/, /import of .*/, /backup of .*/, /export of .*/, /fail \d+/],
  },
  {
    name: 'million-queries',
    command: npm('million-queries'),
    env: { MILLION_RECORDS: '1000000' },
    figures: [/import of .*/, /the first \d+ of .*/, /a count of .*/, /a query without an index .*/, /the process held .*/, /fail \d+/],
  },
  {
    name: 'backend-kills',
    command: npm('backend-kills'),
    env: { BACKEND_KILLS: '1000' },
    figures: [/\d+ events, \d+ handed over and not handled in \d+ kills/, /\d+ events with delivery again, .*/, /fail \d+/],
  },
  {
    name: 'deployments',
    command: npm('deployments'),
    env: { DEPLOYMENTS: '100', DEPLOYMENT_CLIENTS: '2000', DEPLOYMENT_P99_MS: '250' },
    figures: [/\d+ deployments: .*/, /fail \d+/],
  },
  {
    name: 'upgrades',
    command: npm('upgrades'),
    env: { UPGRADES: '1000' },
    figures: [/loses, doubles and reorders none, \d+ times/, /fail \d+/],
  },
  {
    name: 'autobahn',
    command: npm('autobahn'),
    env: { AUTOBAHN_GROUPS: 'all', AUTOBAHN_RESUME: '1' },
    figures: [/autobahn: .*/, /autobahn without echo: .*/, /fail \d+/],
  },
  {
    name: 'scale',
    command: ['npm', '--prefix', 'e2e', 'test', '--', 'scale'],
    env: { SCALE_EVENTS: '1000000' },
    figures: [/\d+ deliveries .*/, /server: .*/, /grew by .*/, /pass \d+/, /fail \d+/],
  },
  {
    name: 'ringless',
    command: ['npm', '--prefix', 'e2e', 'test'],
    env: { E2E_RING: 'EPERM' },
    figures: [/e2e: .*/],
  },
  {
    name: 'bytes',
    command: ['npm', '--prefix', 'e2e', 'test', '--', 'bytes'],
    env: { BYTES_SECONDS: '60' },
    figures: [/\d+ messages over .*/, /\d+ checks of .*/, /pass \d+/, /fail \d+/],
  },
  {
    name: 'backoff',
    command: ['npm', '--prefix', 'e2e', 'test', '--', 'backoff'],
    env: { BACKOFF_MINUTE_MS: '60000' },
    figures: [/connects at .*/, /pass \d+/, /fail \d+/],
  },
  {
    name: 'offline',
    command: npm('offline'),
    env: { OFFLINE_EDITS: '10000', OFFLINE_DEVICES: '20' },
    figures: [/\d+ edits of 20 devices, .*/, /planted fault: .*/, /fail \d+/],
  },
  {
    name: 'python',
    command: npm('python-soak'),
    env: { SOAK_EVENTS: '100000', SOAK_RECORDS: '1000', SOAK_KILLS: '20' },
    figures: [/soak: .*/, /pass \d+/, /fail \d+/],
  },
  {
    name: 'next',
    command: npm('next'),
    env: { NEXT_BUILD: '1' },
    figures: [/the app of the guide for Next.js, built/, /pass \d+/, /fail \d+/],
  },
  {
    name: 'browsers',
    command: npm('browsers'),
    figures: [/firefox: \d+ passed.*/, /webkit: \d+ passed.*/],
  },
  {
    name: 'demo',
    command: npm('soak'),
    env: { SOAK_MINUTES: '10', SOAK_RESUME: '1' },
    figures: [/\d+ minutes: \d+ rounds.*/, /1,000 bots: .*/, /crashes: .*/, /frames of 1,000 entries: .*/, /memory of the pages: .*/, /fail \d+/],
  },
  {
    name: 'docs',
    command: npm('docs'),
    env: { DOCS_PAGES: 'all' },
    figures: [/\d+ pages in .*/, /fail \d+/],
  },
  {
    name: 'store-speed',
    command: npm('store-speed'),
    figures: [
      /fdatasync: .*/, /SQLite, \d.*/, /SQLite, one .*/, /PostgreSQL, \d.*/, /PostgreSQL, one .*/, /Redis, \d.*/, /Redis, one .*/,
    ],
  },
  {
    name: 'compression',
    command: npm('cost'),
    figures: [/one message of 2\.5 KB .*/, /20 messages of 155 bytes .*/, /fail \d+/],
  },
];
