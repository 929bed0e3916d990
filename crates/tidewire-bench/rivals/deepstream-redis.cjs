// A node of deepstream's own server, whose nodes share records and messages over a Redis, by deepstream's plugins. Without a Redis it is the
// only node. Usage: node deepstream-redis.cjs PORT [redis://HOST:PORT/DATABASE].

'use strict';

const { Deepstream } = require('@deepstream/server');
const { config } = require('./deepstream-config.cjs');

const [port, url] = process.argv.slice(2);
const options = () => {
  const { hostname, port, pathname } = new URL(url);
  return { host: hostname, port: Number(port), db: Number(pathname.slice(1)) };
};
const cluster = url === undefined ? {} : {
  clusterNode: { name: 'redis', options: options() },
  cache: { name: 'redis', options: options() },
};
new Deepstream({ ...config(Number(port)), ...cluster }).start();
