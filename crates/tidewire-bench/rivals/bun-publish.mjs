// Bun's native publish/subscribe, which is uWebSockets inside. Usage: bun bun-publish.mjs PORT
// It keeps the bench's contract for plain WebSocket servers (docs/bench.md): `+NAME NAME ...` subscribes and is answered
// by `+`, `NAME PAYLOAD` is published to NAME as it is. `ws.publish` leaves the sender out. No compression, its default.

const PLUS = '+'.charCodeAt(0);

Bun.serve({
  hostname: '127.0.0.1',
  port: Number(process.argv[2]),
  fetch(request, server) {
    return server.upgrade(request) ? undefined : new Response(null, { status: 426 });
  },
  websocket: {
    perMessageDeflate: false,
    message(ws, message) {
      if (message.charCodeAt(0) === PLUS) {
        for (const name of message.slice(1).split(' ')) if (name !== '') ws.subscribe(name);
        ws.send('+');
      } else {
        ws.publish(message.slice(0, message.indexOf(' ')), message);
      }
    },
  },
});
