// Feathers 5 with its memory adapter and its real-time events over Socket.IO. Usage: node feathers.mjs PORT
// It takes the events of rooms.mjs: `publish` writes a record of the service with that name, and the service's event goes to the
// connections in the service's channel, as the guide to channels shows. Its clients filter: Feathers knows no live query.

import { feathers } from '@feathersjs/feathers';
import { MemoryService } from '@feathersjs/memory';
import socketio from '@feathersjs/socketio';

const app = feathers();
const known = new Set();

function serviceOf(name) {
  if (!known.has(name)) {
    known.add(name);
    app.use(name, new MemoryService({ id: 'r' }));
    app.service(name).publish(() => app.channel(name));
  }
  return app.service(name);
}

const write = async (name, value) => {
  const service = serviceOf(name);
  if (service.store[value.r] === undefined) await service.create(value);
  else await service.update(value.r, value);
};

app.configure(
  socketio({ transports: ['websocket'], perMessageDeflate: false, serveClient: false }, (io) => {
    io.engine.on('connection', (connection) => {
      connection.request = null;
    });
    io.on('connection', (socket) => {
      socket.on('join', (names, done) => {
        for (const name of names) {
          serviceOf(name);
          app.channel(name).join(socket.feathers);
        }
        done();
      });
      socket.on('publish', (name, value) => void write(name, value));
    });
  }),
);
await app.listen({ port: Number(process.argv[2]), host: '127.0.0.1' });
