// Socket.IO on `ws`, the engine that it has by default. Usage: node socketio-ws.mjs PORT
// As its page on performance recommends: WebSocket alone, no compression (its default), the HTTP request not kept.

import { createServer } from 'node:http';
import { Server } from 'socket.io';
import { serve } from './rooms.mjs';

const http = createServer();
const io = new Server(http, { transports: ['websocket'], perMessageDeflate: false, serveClient: false });
io.engine.on('connection', (connection) => {
  connection.request = null;
});
serve(io);
http.listen(Number(process.argv[2]), '127.0.0.1', 4096);
