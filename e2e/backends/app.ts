// The app of the tests that kill and deploy apps, as a separate process. It prints `ready`, and a line for each event `count`: the name of the
// client, the number of the event, and whether it came again. At SIGTERM it hands its sockets over and ends. Usage: `app URL KEY [again]`.

import { writeSync } from 'node:fs';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Server } from '@tidewire/socket.io';

/** The time after which every other event `say` is acknowledged, so that some acknowledgements wait at any moment. */
const SLOW_MS = 20;

const [url = '', key = '', again] = process.argv.slice(2);
const io = new Server({ url, key, delivery: again === 'again' ? 'again' : 'once' });
io.on('connection', (socket) => {
  const { name, room } = socket.handshake.auth as { name: string; room?: string };
  if (room !== undefined && !socket.recovered) socket.join(room);
  // At once, so that a kill loses no line.
  const print = (number: number, redelivered: boolean): void => void writeSync(1, `${name} ${number} ${redelivered}\n`);
  socket.on('count', (number: number) => print(number, socket.redelivered));
  // Events that a kill interrupts.
  socket.on('count later', async (number: number) => {
    const { redelivered } = socket;
    await nextTurn();
    print(number, redelivered);
  });
  socket.on('remember', (value: unknown) => void (socket.data.value = value));
  socket.on('data', (answer: (data: unknown) => void) => answer(socket.data));
  socket.on('throw', () => {
    throw new Error('planted');
  });
  socket.on('say', (number: number, ack: (number: number) => void) => {
    if (room !== undefined) socket.to(room).emit('said', number);
    if (number % 2 === 0) ack(number);
    else setTimeout(() => ack(number), SLOW_MS);
  });
});
process.once('SIGTERM', () => void io.handOver());
await io.ready;
writeSync(1, 'ready\n');
