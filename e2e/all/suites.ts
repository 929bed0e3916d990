// The suites of `make test`, in their order: what each shows, what it runs, and how long it may take on two cores.

import type { Need, Suite } from './runner.ts';

const test = (...args: string[]): string[] => ['cargo', 'test', '--locked', ...args];
const npmOf = (folder: string, script: string): string[] => ['npm', '--prefix', folder, 'run', '--silent', script];
const npm = (script: string): string[] => npmOf('e2e', script);

/** The suites that show how bytes move: again where the kernel or the container leaves the server less. */
const TRANSPORT = ['transport', 'tls', 'events', 'records', 'scale', 'limits', 'heartbeat', 'drain'];
const transport = (script: string, ...variables: string[]): string[] => {
  return ['env', 'SCALE_EVENTS=20000', ...variables, ...npm(script), '--', ...TRANSPORT];
};

/** A program of a Debian package, or of several; without any it has the package's name. */
const apt = (program: string, ...packages: string[]): Need => {
  const wanted = packages.length > 0 ? packages : [program];
  return { program, install: ['apt-get', 'install', '-y', '--no-install-recommends', ...wanted] };
};

const CHROMIUM = apt('chromium');
const FIU = apt('fiu-run', 'fiu-utils');
const HAPROXY = apt('haproxy');
const MKFS = apt('mkfs.ext4', 'e2fsprogs');
const NGINX = apt('nginx', 'nginx-light');
const OPENSSL = apt('openssl');
const POSTGRES = apt('pg_ctlcluster', 'postgresql');
const REDIS = apt('redis-server');
const SYSTEMD = apt('systemd-analyze', 'systemd');

/** The servers that records can be in, and what their certificates and stand-ins are made with. */
const DATABASES: Need[] = [
  POSTGRES,
  REDIS,
  {
    program: 'valkey-server',
    // Debian 12 has it among its backports only.
    install: [
      'sh',
      '-c',
      // The mirror is that of the machine's own sources.
      "sed -n '1,/^$/p' /etc/apt/sources.list.d/debian.sources | sed 's/^Suites:.*/Suites: bookworm-backports/' " +
        '> /etc/apt/sources.list.d/bookworm-backports.sources && ' +
        'apt-get update -qq && apt-get install -y --no-install-recommends -t bookworm-backports valkey-server',
    ],
  },
  OPENSSL,
  apt('javac', 'default-jdk-headless'),
  apt('mvn', 'maven'),
];

export const SUITES: Suite[] = [
  {
    name: 'tidy',
    shows: 'Rust is formatted, TypeScript is typed, prose has no more banned phrases than allowed, crates import downwards only, no build product is committed, the runner of this list works',
    commands: [
      ['cargo', 'fmt', '--all', '--check'],
      ['cargo', 'fmt', '--manifest-path', 'fuzz/Cargo.toml', '--check'],
      // Nothing else here builds it, and its proof must not find its lock file out of date.
      ['cargo', 'tree', '--locked', '--manifest-path', 'fuzz/Cargo.toml', '--depth', '0'],
      npm('check'),
      npm('runner'),
    ],
    budgetSeconds: 90,
  },
  {
    name: 'licences',
    shows: 'licences, sources and bans of all crates',
    // Unoptimized it is built in a third of the time, and runs for two seconds.
    needs: [{ program: 'cargo-deny', install: ['cargo', 'install', '--locked', '--profile', 'dev', 'cargo-deny'] }],
    // It looks at the crates of all platforms, and a build fetches only those of its own.
    commands: [
      ['cargo', 'fetch', '--locked'],
      ['cargo', 'deny', '--offline', 'check', 'licenses', 'bans', 'sources'],
    ],
    budgetSeconds: 120,
  },
  {
    name: 'lint',
    shows: 'clippy has nothing to say, all targets and test switches included, nor of the server without its connectors; the types of the packages and pages are right',
    commands: [
      ['cargo', 'clippy', '--locked', '--workspace', '--all-targets', '--all-features', '--', '-D', 'warnings'],
      // As the fuzz targets build it.
      ['cargo', 'clippy', '--locked', '--package', 'tidewire-server', '--no-default-features', '--features', 'fuzzing', '--', '-D', 'warnings'],
      npmOf('packages/client', 'check'),
      // Its types are those of the client as it is built.
      npmOf('packages/react', 'check'),
      npmOf('packages/client', 'build'),
      npmOf('examples/demo', 'check'),
      npmOf('packages/admin', 'check'),
    ],
    budgetSeconds: 900,
  },
  {
    name: 'unit',
    shows: 'unit tests, properties, vectors, the fuzz corpus and the faults that its mutations find, seams, the simulation',
    commands: [test('--workspace', '--all-features')],
    budgetSeconds: 1_800,
    group: 'compile',
  },
  {
    name: 'build',
    shows: 'the release binary',
    // Its last crates keep one core busy; it takes what the unit tests leave of the other.
    commands: [['chrt', '--idle', '0', 'cargo', 'build', '--locked', '--release', '--workspace']],
    budgetSeconds: 1_800,
    group: 'compile',
  },
  {
    name: 'clients',
    shows: 'the JavaScript codec against ours, patches and rules against Node, the unmodified deepstream client against the binary',
    needs: [OPENSSL],
    commands: [
      // The suite of denials needs the rule of the permission tests, which releases do not have.
      // It is the one that the unit tests have built; without the crates of tests some others would have fewer features.
      test('--workspace', '--all-features', '--no-run'),
      npm('codec'),
      npm('parity'),
      npm('test'),
    ],
    budgetSeconds: 600,
  },
  {
    name: 'client',
    shows: 'our own client: codec, connection, package and size; on Node and in Chromium against the binary, offline and in several tabs',
    needs: [CHROMIUM],
    commands: [npmOf('packages/client', 'test'), npm('client')],
    budgetSeconds: 240,
  },
  {
    name: 'react',
    shows: 'the hooks in React 18 and 19: types, package and size; against the binary, drawn on a server, mounted twice',
    commands: [npmOf('packages/react', 'test'), npm('react')],
    budgetSeconds: 90,
  },
  {
    name: 'packages',
    shows: 'both packages as npm installs them: on this Node and on Node 22, in an app that Vite builds for Chromium, drawn on a server',
    needs: [CHROMIUM],
    commands: [npm('packages')],
    budgetSeconds: 180,
  },
  {
    name: 'pages',
    shows: 'the web pages in the binary are what their sources give',
    commands: [npm('pages-fresh')],
    budgetSeconds: 60,
  },
  {
    name: 'ringless',
    shows: 'the transport cases where io_uring_setup fails with EPERM, and with ENOSYS',
    commands: [transport('test', 'E2E_RING=EPERM'), transport('test', 'E2E_RING=ENOSYS')],
    budgetSeconds: 240,
    group: 'silence',
  },
  {
    name: 'proxies',
    shows: 'behind nginx and haproxy: addresses, the PROXY protocol, long silence, server-sent events, a path prefix, a reload',
    needs: [NGINX, HAPROXY],
    commands: [npm('proxies')],
    budgetSeconds: 180,
    group: 'silence',
  },
  {
    name: 'dashboard',
    shows: 'Prometheus scrapes a busy server, and every expression of the dashboard for Grafana gives numbers',
    needs: [apt('prometheus')],
    commands: [npm('dashboard')],
    budgetSeconds: 60,
    group: 'silence',
  },
  {
    name: 'schemathesis',
    shows: 'the HTTP API does what /openapi.json says, logged in and not, and planted differences are found',
    needs: [apt('python3', 'python3-venv')],
    commands: [npm('schemathesis')],
    budgetSeconds: 180,
    group: 'silence',
  },
  {
    name: 'packaging',
    shows: "systemd takes the unit, which leaves an intruder little, and its times fit the server's; the list of a release's components",
    needs: [SYSTEMD],
    commands: [npm('packaging')],
    budgetSeconds: 30,
  },
  {
    name: 'container',
    shows: 'the image of the Dockerfile: a client, the health check, no shell, an open server is refused; the transport cases in it: user 1000, read-only root, no io_uring',
    needs: [apt('buildah'), apt('mmdebstrap')],
    commands: [transport('container')],
    budgetSeconds: 180,
  },
  {
    name: 'browser',
    shows: 'pages of loopback hosts may connect, others may not; large messages travel compressed; EventSource comes back; a part of what the client and the demo do, in Firefox and WebKit',
    needs: [CHROMIUM, apt('firefox-esr'), apt('WebKitWebDriver', 'webkit2gtk-driver', 'xvfb', 'xauth')],
    commands: [npm('browser'), [...npm('browsers'), '--', 'smoke']],
    budgetSeconds: 180,
    group: 'pages',
  },
  {
    name: 'demo',
    shows: 'the demo in Chromium: two tabs, refused edits, 1,000 entries, markup in names, a restart, a phone, axe-core, the keyboard',
    needs: [CHROMIUM],
    commands: [npm('demo')],
    budgetSeconds: 180,
    group: 'pages',
  },
  {
    name: 'admin',
    shows: 'the admin page in Chromium: keys, figures, records, on a phone, by keyboard, with axe-core, and names that are no markup',
    needs: [CHROMIUM],
    commands: [npm('admin')],
    budgetSeconds: 180,
    group: 'pages',
  },
  {
    name: 'attacks',
    shows: 'attacks beside control pairs: their limits hold, a metric names them, and without them the harm is seen; bystanders find planted faults',
    needs: [OPENSSL],
    commands: [npm('attacks')],
    budgetSeconds: 600,
  },
  {
    name: 'documents',
    shows: 'each code block of the documents is proved by its language, references are fresh, links lead somewhere',
    needs: [OPENSSL, NGINX, HAPROXY, SYSTEMD, REDIS, POSTGRES, apt('promtool', 'prometheus'), apt('sqlite3')],
    commands: [npm('documents')],
    budgetSeconds: 300,
  },
  {
    name: 'newcomer',
    shows: 'from `make run` to two tabs that see each other within a minute',
    needs: [CHROMIUM],
    // Nothing is built again: `features.test.ts` compares the features of this build with those of the workspace's release build.
    commands: [npm('newcomer-here')],
    budgetSeconds: 120,
  },
  {
    name: 'torture',
    shows: 'a minute of `tidewire torture` is green, and each of its broken servers is found out',
    needs: [MKFS, FIU],
    commands: [npm('torture')],
    budgetSeconds: 150,
  },
  {
    name: 'crash',
    shows: 'kills and power cuts lose no acknowledged write',
    needs: [MKFS, apt('python3'), FIU],
    commands: [npm('crash')],
    budgetSeconds: 420,
    group: 'outages',
  },
  {
    name: 'autobahn',
    shows: "Autobahn's WebSocket cases against an echo over our frames and event loop, and against the server",
    commands: [npm('autobahn')],
    budgetSeconds: 420,
    group: 'outages',
  },
  {
    name: 'stores',
    shows: 'the suite of stores on real PostgreSQL, Redis and Valkey and a re-implementation of MongoDB; records routed to them, taken over from deepstream, and sent by TLS',
    needs: DATABASES,
    commands: [npm('stores')],
    budgetSeconds: 360,
    group: 'outages',
  },
  {
    name: 'outages',
    shows: 'clients see what they should when PostgreSQL, Redis, Valkey and what stands for MongoDB are killed, frozen or full',
    needs: DATABASES,
    commands: [npm('outages')],
    budgetSeconds: 360,
    group: 'outages',
  },
  {
    name: 'bench',
    shows: 'server CPU per delivery against a null server, latencies, 10,000 idle connections, new ones, fairness, records, stores, rpc, rooms',
    commands: [
      ['target/release/tidewire-bench', 'smoke'],
      ['target/release/tidewire-bench', 'pairs', '--seconds', '2'],
      ['target/release/tidewire-bench', 'rate', '--seconds', '2'],
      ['target/release/tidewire-bench', 'idle', '--seconds', '2', '--churn', '10000'],
      ['target/release/tidewire-bench', 'connect', '--connections', '10000'],
      ['target/release/tidewire-bench', 'fairness'],
      ['target/release/tidewire-bench', 'records'],
      // Bounds that other work on the machine and a disk without delay do not reach; a commit for each write does.
      [
        'target/release/tidewire-bench', 'store', '--rounds', '2', '--seconds', '1',
        ...['--share-min', '0.05', '--latency-factor', '5', '--latency-slack-ms', '25'],
      ],
      ['target/release/tidewire-bench', 'rpc', '--requests', '20000'],
      ['target/release/tidewire-bench', 'rooms', '--connections', '2000', '--publishers', '200'],
      ['target/release/tidewire-bench', 'grid', '--subscribers', '1000', '--publishers', '500'],
      ['target/release/tidewire-bench', 'grid', '--tls', '--subscribers', '200', '--publishers', '50'],
      ['target/release/tidewire-bench', 'grid', '--compression', '--payload-bytes', '2500'],
      // The drivers of the rivals' protocols, against the rivals that npm brings.
      ['target/release/tidewire-bench', 'setup', '--only', 'socketio-ws,bun'],
      ...['socketio-ws', 'bun'].map((rival) =>
        ['target/release/tidewire-bench', 'grid', '--rival', rival, '--subscribers', '50', '--publishers', '5'],
      ),
    ],
    budgetSeconds: 240,
  },
];
