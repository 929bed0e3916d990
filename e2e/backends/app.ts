// The app of the tests that kill and deploy apps, as a separate process. It prints `ready`, and a line for each event `count`: the name of the
// client and the number of the event. At SIGTERM it hands its sockets over and ends. Usage: `app URL KEY`.

import { writeSync } from 'node:fs';
import { Server } from '@tidewire/socket.io';

/** The time after which every other event `say` is acknowledged, so that some acknowledgements wait at any moment. */
const SLOW_MS = 20;

const [url = '', key = ''] = process.argv.slice(2);
const io = new Server({ url, key });
io.on('connection', (socket) => {
  const { name, room } = socket.handshake.auth as { name: string; room?: string };
  if (room !== undefined && !socket.recovered) socket.join(room);
  // At once, so that a kill loses no line.
  socket.on('count', (number: number) => void writeSync(1, `${name} ${number}\n`));
  socket.on('say', (number: number, ack: (number: number) => void) => {
    if (room !== undefined) socket.to(room).emit('said', number);
    if (number % 2 === 0) ack(number);
    else setTimeout(() => ack(number), SLOW_MS);
  });
});
process.once('SIGTERM', () => void io.handOver());
await io.ready;
writeSync(1, 'ready\n');
