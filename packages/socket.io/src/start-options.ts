// The options of `socket.io` that are options of the Tidewire server. An app sets them for a server that it starts.

import { missing } from './types.js';

export interface StartedOptions {
  /** How often the server sends a heartbeat, in milliseconds. Default 30,000. */
  pingInterval: number;
  /** How long a client may take to answer one, in milliseconds. Default the interval. */
  pingTimeout: number;
  /** The largest message of a client, in bytes. Default 1 MiB. */
  maxHttpBufferSize: number;
  /** How long a connection may take to join a namespace, in milliseconds. Default 180,000. */
  connectTimeout: number;
  /** The pages that may connect, in addition to those of the server's own address: `origin` is one, a list, or `*` for all. */
  cors: { origin?: string | readonly string[] | boolean; methods?: string | readonly string[] } & Record<string, unknown>;
}

/** The option of a running server in place of each. */
const OF_SERVER: Record<keyof StartedOptions, string> = {
  pingInterval: 'network.heartbeat_interval',
  pingTimeout: 'network.heartbeat_timeout',
  maxHttpBufferSize: 'limits.message_bytes_max',
  connectTimeout: 'auth.login_timeout',
  cors: 'network.origins',
};

/** @throws if options are given that a running server has in its own configuration. */
export function checkRunning(options: Partial<StartedOptions>): void {
  for (const [name, option] of Object.entries(OF_SERVER)) {
    if (options[name as keyof StartedOptions] !== undefined) throw missing(`the option ${name} for a running server`, `set ${option} there`);
  }
}

/** The options for a server that starts, as its environment. */
export function environmentOf({ cors, ...options }: Partial<StartedOptions>): Record<string, string> {
  const environment: Record<string, string> = {};
  const set = (name: keyof StartedOptions, value: string): void => {
    environment[`TIDEWIRE_${OF_SERVER[name].replace('.', '__').toUpperCase()}`] = value;
  };
  for (const name of ['pingInterval', 'pingTimeout', 'connectTimeout'] as const) {
    if (options[name] !== undefined) set(name, `${options[name]}ms`);
  }
  if (options.maxHttpBufferSize !== undefined) set('maxHttpBufferSize', `${options.maxHttpBufferSize}`);
  if (cors) {
    for (const [name, value] of Object.entries(cors)) {
      if (!isCorsMember(name, value)) throw missing(`the member ${name} of the option cors`, 'send credentials in `auth`, and use no further headers over polling');
    }
    set('cors', originsOf(cors.origin).join(','));
  }
  return environment;
}

/** Whether the server answers as this member of `cors` demands: it allows GET and POST, and neither cookies nor other headers. */
function isCorsMember(name: string, value: unknown): boolean {
  if (name === 'origin' || value === undefined || value === false) return true;
  const methods: unknown[] = Array.isArray(value) ? value : `${String(value)}`.split(/ *, */);
  return name === 'methods' && methods.every((method) => method === 'GET' || method === 'POST');
}

function originsOf(origin: unknown): string[] {
  // Without a value `socket.io` allows all pages, and so it does with `true`.
  if (origin === undefined || origin === true) return ['*'];
  if (origin === false) return [];
  const origins: unknown[] = Array.isArray(origin) ? origin : [origin];
  return origins.map((text) => {
    if (typeof text !== 'string') throw missing('patterns and functions in the option cors', 'list the origins of your pages, or use `*`');
    return text;
  });
}
