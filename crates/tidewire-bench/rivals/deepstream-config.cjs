// deepstream's default configuration, on 127.0.0.1 and with the WebSocket endpoint alone. No login and no permissions, its defaults; records
// are in memory, its default too. Its faster HTTP service needs uWebSockets.js, which is not in the npm registry; package.json puts an empty
// package there.

'use strict';

exports.config = (port) => ({
  showLogo: false,
  logLevel: 2, // warnings
  httpServer: {
    type: 'default',
    options: { host: '127.0.0.1', port: port, healthCheckPath: '/health-check', allowAllOrigins: true },
  },
  connectionEndpoints: [
    {
      type: 'ws-binary',
      options: {
        urlPath: '/deepstream',
        heartbeatInterval: 30_000,
        outgoingBufferTimeout: 0,
        maxBufferByteSize: 100_000,
        headers: [],
        unauthenticatedClientTimeout: 180_000,
        maxAuthAttempts: 3,
        maxMessageSize: 1_048_576,
      },
    },
  ],
  auth: [{ type: 'none', options: {} }],
  permission: { type: 'none', options: {} },
});
