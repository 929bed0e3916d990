// Starts deepstream's own server with the configuration file given as the only argument: its own format in YAML, or the harness's in JSON.
// It must be a file: with `node -e` the server does not find its package.

const { readFileSync } = require('node:fs');
const { Deepstream } = require('@deepstream/server');

const file = process.argv[2];
const server = new Deepstream(file.endsWith('.yml') ? file : JSON.parse(readFileSync(file, 'utf8')));
process.once('SIGTERM', () => {
  server.on('stopped', () => process.exit(0));
  server.stop();
});
server.start();
