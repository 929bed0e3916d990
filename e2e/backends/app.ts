// The app of the test of kills, as a separate process. It prints `ready`, and a line for each event: the name of the client and the number of
// the event. Usage: `app URL KEY`.

import { writeSync } from 'node:fs';
import { Server } from '@tidewire/socket.io';

const [url = '', key = ''] = process.argv.slice(2);
const io = new Server({ url, key });
io.on('connection', (socket) => {
  // At once, so that a kill loses no line.
  socket.on('count', (number: number) => void writeSync(1, `${socket.handshake.auth['name']} ${number}\n`));
});
await io.ready;
writeSync(1, 'ready\n');
