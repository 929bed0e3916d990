// The suites of `make test`, in order. Each has a line on what it proves, its commands, and its time budget: about twice to three times what
// it takes on two quiet cores, so that a suite that hangs is found, and a busy machine fails none.

import type { Need, Suite } from './runner.ts';

const test = (...args: string[]): string[] => ['cargo', 'test', '--locked', ...args];
const npmOf = (folder: string, script: string): string[] => ['npm', '--prefix', folder, 'run', '--silent', script];
const npm = (script: string): string[] => npmOf('e2e', script);

/** The suites that test the transport of bytes. They also run where the kernel or a container restricts the server. */
const TRANSPORT = ['transport', 'tls', 'events', 'records', 'scale', 'limits', 'heartbeat', 'drain'];
const transport = (script: string, ...variables: string[]): string[] => {
  return ['env', 'SCALE_EVENTS=20000', ...variables, ...npm(script), '--', ...TRANSPORT];
};

/** The suites of clients that also run on three nodes, with clients and requests on all of them. */
const NODES = ['events', 'records', 'transactions', 'lists', 'rpc', 'presence', 'listening'];

/** A program from one or more Debian packages. Without `packages`, the package has the program's name. */
const apt = (program: string, ...packages: string[]): Need => {
  const wanted = packages.length > 0 ? packages : [program];
  return { program, install: ['apt-get', 'install', '-y', '--no-install-recommends', ...wanted] };
};

const BINUTILS = apt('objcopy', 'binutils');
const CHROMIUM = apt('chromium');
const FIU = apt('fiu-run', 'fiu-utils');
const HAPROXY = apt('haproxy');
const MKFS = apt('mkfs.ext4', 'e2fsprogs');
const NGINX = apt('nginx', 'nginx-light');
const NATS = apt('nats-server');
const OPENSSL = apt('openssl');
const POSTGRES = apt('pg_ctlcluster', 'postgresql');
const PYTHON = apt('python3', 'python3-venv');
const RABBITMQ = apt('rabbitmqctl', 'rabbitmq-server');
const REDIS = apt('redis-server');
const SYSTEMD = apt('systemd-analyze', 'systemd');
const VALGRIND = apt('valgrind');

const JAVA = apt('javac', 'default-jdk-headless');
const MAVEN = apt('mvn', 'maven');
const VALKEY: Need = {
  program: 'valkey-server',
  // Debian 12 has it only in its backports.
  install: [
    'sh',
    '-c',
    // Uses the mirror from the machine's own sources.
    "sed -n '1,/^$/p' /etc/apt/sources.list.d/debian.sources | sed 's/^Suites:.*/Suites: bookworm-backports/' " +
      '> /etc/apt/sources.list.d/bookworm-backports.sources && ' +
      'apt-get update -qq && apt-get install -y --no-install-recommends -t bookworm-backports valkey-server',
  ],
};

/** The database servers that can store records, and the programs that make their certificates and stand-ins. */
const DATABASES: Need[] = [
  POSTGRES,
  REDIS,
  VALKEY,
  OPENSSL,
  JAVA,
  MAVEN,
];

// Suites of one group must not change the same files. Several may build the packages: only the first one does, and replaces them as a whole.
export const SUITES: Suite[] = [
  {
    name: 'tidy',
    shows: 'Rust is formatted, TypeScript is typed, prose has no more banned phrases than allowed, crates import downwards only, no build product is committed, the runner of this list works',
    commands: [
      ['cargo', 'fmt', '--all', '--check'],
      ['cargo', 'fmt', '--manifest-path', 'fuzz/Cargo.toml', '--check'],
      // The list of protocols is a macro, so `cargo fmt` does not find their files.
      ['sh', '-c', 'rustfmt --edition 2024 --check crates/tidewire-wire/src/protocol/*/mod.rs e2e/toy-protocol/*/mod.rs'],
      // No other suite builds it. Its lock file must be up to date for `make proof-fuzz`.
      ['cargo', 'tree', '--locked', '--manifest-path', 'fuzz/Cargo.toml', '--depth', '0'],
      npm('check'),
      npm('runner'),
    ],
    budgetSeconds: 300,
    group: 'sources',
  },
  {
    name: 'licences',
    shows: 'licences, sources and bans of all crates',
    // Unoptimized and without debug information, it builds in a quarter of the time and still runs in two seconds.
    needs: [{ program: 'cargo-deny', install: ['env', 'CARGO_PROFILE_DEV_DEBUG=false', 'cargo', 'install', '--locked', '--profile', 'dev', 'cargo-deny'] }],
    // cargo-deny checks the crates of all platforms, but a build fetches only the crates of this platform.
    commands: [
      ['cargo', 'fetch', '--locked'],
      ['cargo', 'deny', '--offline', 'check', 'licenses', 'bans', 'sources'],
    ],
    budgetSeconds: 240,
    group: 'sources',
  },
  {
    name: 'lint',
    shows: 'clippy has no warnings for all targets and features, nor for the server without its connectors',
    commands: [
      ['cargo', 'clippy', '--locked', '--workspace', '--all-targets', '--all-features', '--', '-D', 'warnings'],
      // The fuzz targets build the server with these features.
      ['cargo', 'clippy', '--locked', '--package', 'tidewire-server', '--no-default-features', '--features', 'fuzzing', '--', '-D', 'warnings'],
    ],
    budgetSeconds: 900,
    group: 'sources',
  },
  {
    name: 'types',
    shows: 'the packages and pages pass the type check',
    commands: [
      npmOf('packages/client', 'check'),
      // packages/react gets its types from the built client.
      ...['react', 'vue', 'svelte', 'solid'].map((binding) => npmOf(`packages/${binding}`, 'check')),
      npmOf('packages/client', 'bindings'),
      npmOf('examples/demo', 'check'),
      npmOf('packages/admin', 'check'),
    ],
    budgetSeconds: 400,
    group: 'sources',
  },
  {
    name: 'faults',
    shows: 'each patch that plants a fault applies to a copy of the tree, which compiles; no source of the product has one',
    commands: [npm('faults')],
    budgetSeconds: 240,
    group: 'sources',
  },
  {
    name: 'unit',
    shows: 'unit tests, properties, vectors, the fuzz corpus and the planted faults that its mutations find, seams, the simulation',
    // No documentation has code to test, so `--tests` omits the runs of rustdoc.
    commands: [test('--workspace', '--all-features', '--tests', '--no-fail-fast')],
    budgetSeconds: 1_800,
    group: 'compile',
  },
  {
    name: 'build',
    shows: 'the release binary',
    // Its last crates use only one core. At idle priority it uses the processor time that the unit tests do not need.
    commands: [['chrt', '--idle', '0', 'cargo', 'build', '--locked', '--release', '--workspace']],
    budgetSeconds: 1_800,
    group: 'compile',
  },
  {
    name: 'paths',
    shows: 'ARCHITECTURE.md names the files that a publish and a write cross, as callgrind lists them in a debug build, and they are few',
    needs: [VALGRIND],
    // The unit tests have built these programs already.
    commands: [['cargo', 'build', '--locked', '--workspace', '--all-features', '--bins'], npm('paths')],
    budgetSeconds: 360,
    group: 'servers',
  },
  {
    name: 'socketio',
    shows: 'the unmodified socket.io-client over WebSockets: joining, rooms shared with other protocols, acknowledgements, refusals, heartbeats',
    commands: [npm('socketio')],
    budgetSeconds: 180,
    group: 'servers',
  },
  {
    name: 'board',
    shows: 'the example of a board in Chromium: two members see each other, cut connections and a reload lose no edit, refused edits are taken back with their reason, its rules, axe-core',
    needs: [CHROMIUM],
    commands: [npm('board')],
    budgetSeconds: 120,
    group: 'servers',
  },
  {
    name: 'toy-protocol',
    shows: 'a protocol is one folder and one line: a copy of the tree with a toy protocol delivers events to its clients',
    commands: [npm('toy-protocol')],
    budgetSeconds: 360,
    group: 'servers',
  },
  {
    name: 'backends',
    shows: 'application logic in Node: @tidewire/server and @tidewire/socket.io serve the unmodified socket.io-client, as the npm package socket.io does; the loss of a backend keeps connections, rooms and events; a deployment loses no acknowledgement; sockets share the port of an app; apps on two nodes reach the sockets of both; an app serves the clients of three nodes, and keeps its sockets when its node is lost',
    commands: [...['server', 'socket.io'].map((name) => npmOf(`packages/${name}`, 'check')), npmOf('packages/server', 'test'), npm('backends')],
    needs: [REDIS, OPENSSL],
    budgetSeconds: 360,
    group: 'servers',
  },
  {
    name: 'socketio-clients',
    shows: 'the unmodified Socket.IO clients in Python and Java: transports, rooms, acknowledgements, bytes, refusals, and their return after kills of the server and of an app',
    needs: [PYTHON, JAVA, MAVEN],
    commands: [npm('socketio-clients')],
    budgetSeconds: 240,
    group: 'servers',
  },
  {
    name: 'clients',
    shows: 'the JavaScript codec against ours, patches, rules and queries against Node, queries against mingo and sift, the unmodified deepstream client against the binary',
    needs: [OPENSSL],
    commands: [
      npm('codec'),
      npm('parity'),
      npm('oracles'),
      npm('test'),
    ],
    budgetSeconds: 900,
    group: 'servers',
  },
  {
    name: 'client',
    shows: 'our own client: codec, connection, package and size; on Node and in Chromium against the binary, offline and in several tabs',
    needs: [CHROMIUM],
    commands: [npmOf('packages/client', 'test'), npm('client')],
    budgetSeconds: 600,
    group: 'servers',
  },
  {
    name: 'bindings',
    shows: 'the hooks in React 18 and 19, Vue, Svelte 4 and 5, and Solid: one suite against the binary, packages and sizes; in React also hydrated and mounted twice',
    commands: [npmOf('packages/client', 'test-bindings'), npm('bindings')],
    budgetSeconds: 400,
    group: 'servers',
  },
  {
    name: 'python',
    shows: "the Python client on Debian's Python and pyenv's: its tests, the behaviour suite, events and edits through kills, its types, its package",
    needs: [PYTHON],
    commands: [npm('python')],
    budgetSeconds: 400,
    group: 'servers',
  },
  {
    name: 'pages',
    shows: 'the web pages in the binary match their sources',
    commands: [npm('pages-fresh')],
    budgetSeconds: 120,
    group: 'servers',
  },
  {
    name: 'ringless',
    shows: 'the transport cases where io_uring_setup fails with EPERM, and a part of them where it fails with ENOSYS',
    needs: [OPENSSL],
    commands: [transport('test', 'E2E_RING=EPERM'), ['env', 'E2E_RING=ENOSYS', ...npm('test'), '--', 'transport']],
    budgetSeconds: 400,
    group: 'servers',
  },
  {
    name: 'proxies',
    shows: 'behind nginx and haproxy: addresses, the PROXY protocol, long silence, server-sent events, a path prefix, a reload',
    needs: [NGINX, HAPROXY],
    commands: [npm('proxies')],
    budgetSeconds: 300,
    group: 'servers',
  },
  {
    name: 'dashboard',
    shows: 'Prometheus scrapes a busy server, and every expression of the Grafana dashboard returns numbers',
    needs: [apt('prometheus')],
    commands: [npm('dashboard')],
    budgetSeconds: 120,
    group: 'servers',
  },
  {
    name: 'schemathesis',
    shows: 'the HTTP API conforms to /openapi.json, with and without a login, and the suite finds planted differences',
    needs: [PYTHON],
    commands: [npm('schemathesis')],
    budgetSeconds: 400,
    group: 'servers',
  },
  {
    name: 'packages',
    shows: 'the packages as npm installs them: on this Node and on Node 22, in an app that Vite builds for Chromium, drawn on a server, the command `tidewire`; a page without a build',
    needs: [CHROMIUM, BINUTILS],
    commands: [npm('packages')],
    budgetSeconds: 480,
    group: 'servers',
  },
  {
    name: 'packaging',
    shows: "systemd accepts the unit, its sandbox is tight, and its timeouts fit the server's; lintian accepts the Debian package; the list of a release's components",
    needs: [SYSTEMD, BINUTILS, apt('lintian')],
    commands: [npm('packaging')],
    budgetSeconds: 180,
    group: 'servers',
  },
  {
    name: 'manifests',
    shows: 'the types of Kubernetes and of Compose accept the files of a cluster, haproxy and the server their configurations, and three servers with these are a cluster',
    needs: [apt('go', 'golang-go'), HAPROXY, POSTGRES],
    commands: [npm('manifests')],
    budgetSeconds: 240,
    group: 'servers',
  },
  {
    name: 'container',
    shows: 'the image of the Dockerfile: a client, the health check, no shell, an open server does not start; the transport cases in it: user 1000, read-only root, no io_uring',
    needs: [apt('buildah'), apt('mmdebstrap'), OPENSSL],
    commands: [transport('container')],
    budgetSeconds: 240,
    group: 'servers',
  },
  {
    name: 'browser',
    shows: 'pages of loopback hosts may connect, others may not; large messages are compressed; EventSource reconnects; a part of the client and demo suites in Firefox and WebKit',
    needs: [CHROMIUM, OPENSSL, apt('firefox-esr'), apt('WebKitWebDriver', 'webkit2gtk-driver', 'xvfb', 'xauth')],
    commands: [npm('browser'), [...npm('browsers'), '--', 'smoke']],
    budgetSeconds: 400,
    group: 'servers',
  },
  {
    name: 'demo',
    shows: 'the demo and the documentation in Chromium: two tabs, denied edits, 1,000 entries, markup in names, a restart, a phone, axe-core, the keyboard, the search',
    needs: [CHROMIUM],
    commands: [npm('demo')],
    budgetSeconds: 600,
    group: 'servers',
  },
  {
    name: 'admin',
    shows: 'the admin page in Chromium: keys, figures, tables with 10,000 connections, records, on a phone, by keyboard, with axe-core, and names with markup shown as text',
    needs: [CHROMIUM],
    commands: [npm('admin')],
    budgetSeconds: 400,
    group: 'servers',
  },
  {
    name: 'documents',
    shows: 'each code block of the documents passes the check for its language, the tutorial works from its first step to the deployed page, generated references are up to date, no link is broken',
    needs: [OPENSSL, CHROMIUM, NGINX, HAPROXY, SYSTEMD, REDIS, POSTGRES, PYTHON, apt('promtool', 'prometheus'), apt('sqlite3')],
    commands: [npm('documents')],
    budgetSeconds: 300,
    group: 'servers',
  },
  {
    name: 'torture',
    shows: 'a minute of `tidewire torture` passes on one node, and twelve faults on three nodes with PostgreSQL; it detects the fault of each broken server',
    needs: [MKFS, FIU, POSTGRES],
    commands: [npm('torture')],
    budgetSeconds: 540,
    group: 'servers',
  },
  {
    name: 'crash',
    shows: 'kills and power cuts lose no acknowledged write',
    needs: [MKFS, apt('python3'), FIU],
    commands: [npm('crash')],
    budgetSeconds: 420,
    group: 'servers',
  },
  {
    name: 'autobahn',
    shows: "Autobahn's WebSocket cases against an echo over our frames and event loop, and against the server",
    commands: [npm('autobahn')],
    budgetSeconds: 600,
    group: 'servers',
  },
  {
    name: 'stores',
    shows: 'the store suite on real PostgreSQL, Redis and Valkey and on a reimplementation of MongoDB; records routed to them, migrated from deepstream, and sent over TLS',
    needs: DATABASES,
    commands: [npm('stores')],
    budgetSeconds: 360,
    group: 'servers',
  },
  {
    name: 'carriers',
    shows: 'the link suite over NATS, Redis, RabbitMQ and Kafka: links lose and double nothing while the network fails and the broker is killed',
    needs: [NATS, REDIS, VALKEY, RABBITMQ, JAVA, MAVEN],
    commands: [npm('carriers')],
    budgetSeconds: 900,
    group: 'servers',
  },
  {
    name: 'outages',
    shows: 'clients see the documented behavior when PostgreSQL, Redis, Valkey or the MongoDB stand-in is killed, frozen or full; no update of 64 clients is made twice when the server is killed',
    needs: DATABASES,
    commands: [npm('outages')],
    budgetSeconds: 360,
    group: 'servers',
  },
  {
    name: 'cluster',
    shows: 'three servers with one PostgreSQL or Redis, linked directly or over NATS, serve the clients of all nodes; a node joins late, one stops, one is killed; the broker is killed and frozen; the networks between the nodes and to the store are cut, and the store is restarted; a rolling restart fails no operation',
    needs: [POSTGRES, REDIS, NATS, HAPROXY],
    commands: [npm('cluster')],
    budgetSeconds: 1_080,
    group: 'servers',
  },
  {
    name: 'nodes',
    shows: 'records, events, transactions, lists, rpcs, presence, listening and backends are the same for the clients of three nodes as for the clients of one',
    needs: [REDIS],
    commands: [['env', 'E2E_NODES=3', ...npm('test'), '--', ...NODES], npm('backends-on-nodes')],
    budgetSeconds: 300,
    group: 'servers',
  },
  {
    name: 'attacks',
    shows: 'attacks with control pairs: each limit holds, a metric names it, and without it the attack does harm; bystanders detect planted faults',
    needs: [OPENSSL],
    commands: [npm('attacks')],
    budgetSeconds: 600,
    group: 'attacks',
  },
  {
    name: 'newcomer',
    shows: 'two tabs see each other within a minute after `make run`, and within ten seconds after `npx tidewire` on a machine with Node only',
    needs: [CHROMIUM, BINUTILS],
    // This reuses the workspace's release build; `features.test.ts` checks that the features of both builds agree.
    commands: [npm('newcomer-here')],
    budgetSeconds: 240,
    group: 'attacks',
  },
  {
    name: 'bench',
    shows: 'server CPU per delivery against a null server, latencies, 10,000 idle connections, new ones, fairness, records, stores, rpc, rooms, live queries, presence; one node against three, deepstream and Socket.IO likewise over Redis',
    needs: [REDIS],
    commands: [
      ['target/release/tidewire-bench', 'smoke'],
      ['target/release/tidewire-bench', 'pairs', '--seconds', '2'],
      ['target/release/tidewire-bench', 'rate', '--seconds', '2'],
      ['target/release/tidewire-bench', 'idle', '--seconds', '2', '--churn', '10000'],
      ['target/release/tidewire-bench', 'connect', '--connections', '10000'],
      ['target/release/tidewire-bench', 'fairness'],
      ['target/release/tidewire-bench', 'records'],
      // These bounds allow for other work on the machine and for a disk without delay. A store that commits for each write exceeds them.
      [
        'target/release/tidewire-bench', 'store', '--rounds', '2', '--seconds', '1',
        ...['--share-min', '0.05', '--latency-factor', '5', '--latency-slack-ms', '25'],
      ],
      ['target/release/tidewire-bench', 'rpc', '--requests', '20000'],
      ['target/release/tidewire-bench', 'queries', '--queries', '10000', '--templates', '100', '--records', '2000', '--writes', '1000', '--seconds', '2'],
      // The bound allows for other work on the machine.
      ['target/release/tidewire-bench', 'window', '--clients', '1000', '--rounds', '5', '--share-min', '0.4'],
      ['target/release/tidewire-bench', 'presence', '--members', '200', '--scopes', '4', '--seconds', '2'],
      ['target/release/tidewire-bench', 'rooms', '--connections', '2000', '--publishers', '200'],
      ['target/release/tidewire-bench', 'grid', '--subscribers', '1000', '--publishers', '500'],
      ['target/release/tidewire-bench', 'grid', '--tls', '--subscribers', '200', '--publishers', '50'],
      ['target/release/tidewire-bench', 'grid', '--compression', '--payload-bytes', '2500'],
      // The drivers of the rivals' protocols, against the rivals that npm installs.
      ['target/release/tidewire-bench', 'setup', '--only', 'socketio-ws,bun'],
      ...['socketio-ws', 'bun'].map((rival) =>
        ['target/release/tidewire-bench', 'grid', '--rival', rival, '--subscribers', '50', '--publishers', '5'],
      ),
      // The tolerance allows for other work on the machine.
      [
        'target/release/tidewire-bench', 'cluster', '--publications', '600', '--rates', '50', '--seconds', '1', '--turns', '1',
        ...['--tolerance', '0.7', '--rivals', 'socketio-redis', '--folder', 'target/bench/small'],
      ],
    ],
    budgetSeconds: 300,
  },
];
