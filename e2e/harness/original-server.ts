// deepstream's own server with the interface of the harness, to check that the suites also pass against the original:
// `npm ci` in `original-server/`, then E2E_SERVER=deepstream. Cases that need its documented defects fixed are skipped.

import { writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { DENIALS } from './denials.ts';
import type { ServerOptions } from './server.ts';
import { PASSWORD_HASH } from './users.ts';

const LAUNCHER = resolve(import.meta.dirname, '../original-server/start.cjs');

/** The command line that starts deepstream's server with `options`. */
export function originalServerCommand(options: ServerOptions, port: number, folder: string): string[] {
  const config = join(folder, 'deepstream.json');
  writeFileSync(config, JSON.stringify(deepstreamConfig(options, port)));
  return [process.execPath, LAUNCHER, config];
}

function deepstreamConfig(options: ServerOptions, port: number): object {
  return {
    showLogo: false,
    logLevel: 3,
    httpServer: {
      type: 'default',
      options: { host: '127.0.0.1', port, healthCheckPath: '/health-check', allowAllOrigins: true },
    },
    connectionEndpoints: [
      ['ws-binary', '/deepstream'],
      ...(options.jsonEndpoint ? [['ws-json', '/deepstream-json']] : []),
    ].map(([type, urlPath]) => ({
        type,
        options: {
          urlPath,
          heartbeatInterval: options.heartbeatIntervalMs ?? 30_000,
          outgoingBufferTimeout: 0,
          maxBufferByteSize: 100_000,
          headers: [],
          maxMessageSize: 1_048_576,
          unauthenticatedClientTimeout: options.loginTimeoutMs ?? 180_000,
          maxAuthAttempts: options.authAttemptsMax ?? 3,
        },
    })),
    auth: [options.users ? { type: 'file', options: { ...PASSWORD_HASH, users: options.users } } : { type: 'none', options: {} }],
    permission: permission(options),
    rpc: {
      ackTimeout: options.rpcAcceptTimeoutMs ?? 1_000,
      responseTimeout: options.rpcResponseTimeoutMs ?? 10_000,
      provideRequestorName: options.rpcRequestor ?? false,
      provideRequestorData: options.rpcRequestor ?? false,
    },
    listen: {
      shuffleProviders: true,
      responseTimeout: options.listenResponseTimeoutMs ?? 500,
      rematchInterval: 60_000,
      matchCooldown: 10_000,
    },
  };
}

/** The permission rules; deepstream does not start with a file that it can't read. */
function permission(options: ServerOptions): object {
  const permissions = options.permissions ? (JSON.parse(options.permissions) as object) : options.denials && DENIALS;
  return permissions
    ? { type: 'config', options: { permissions, maxRuleIterations: 3, cacheEvacuationInterval: 60_000 } }
    : { type: 'none', options: {} };
}
