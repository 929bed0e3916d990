// Socket.IO on Bun's own WebSocket server, by `@socket.io/bun-engine`. Usage: bun socketio-bun.mjs PORT
// As the package's page shows it; idleTimeout must exceed the heartbeat's 25 s, as that page says.

import { Server as Engine } from '@socket.io/bun-engine';
import { Server } from 'socket.io';
import { serve } from './rooms.mjs';

const io = new Server({ serveClient: false });
const engine = new Engine({ path: '/socket.io/' });
io.bind(engine);
serve(io);

const handler = engine.handler();
Bun.serve({ ...handler, hostname: '127.0.0.1', port: Number(process.argv[2]), idleTimeout: 30 });
