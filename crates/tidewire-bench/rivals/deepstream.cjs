// deepstream's own server, as its default configuration starts it. Usage: node deepstream.cjs PORT.

'use strict';

const { Deepstream } = require('@deepstream/server');
const { config } = require('./deepstream-config.cjs');

new Deepstream(config(Number(process.argv[2]))).start();
