// Starts deepstream's own server with the configuration file given as the only argument.
// It has to be a file: required from `node -e` the server does not find its package.

const { readFileSync } = require('node:fs');
const { Deepstream } = require('@deepstream/server');

const server = new Deepstream(JSON.parse(readFileSync(process.argv[2], 'utf8')));
process.once('SIGTERM', () => {
  server.on('stopped', () => process.exit(0));
  server.stop();
});
server.start();
