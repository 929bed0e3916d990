// A node of Socket.IO on `ws`, as socketio-ws.mjs, whose nodes share rooms over a Redis by its Redis adapter. Without a Redis it is the only
// node. Usage: node socketio-redis.mjs PORT [redis://HOST:PORT/DATABASE].

import { createServer } from 'node:http';
import { createAdapter } from '@socket.io/redis-adapter';
import { createClient } from 'redis';
import { Server } from 'socket.io';
import { serve } from './rooms.mjs';

const [port, url] = process.argv.slice(2);
const http = createServer();
const io = new Server(http, { transports: ['websocket'], perMessageDeflate: false, serveClient: false });
if (url !== undefined) {
  const publisher = createClient({ url });
  const subscriber = publisher.duplicate();
  await Promise.all([publisher.connect(), subscriber.connect()]);
  io.adapter(createAdapter(publisher, subscriber));
}
io.engine.on('connection', (connection) => {
  connection.request = null;
});
serve(io);
http.listen(Number(port), '127.0.0.1', 4096);
