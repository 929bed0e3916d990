// What the Socket.IO rivals do, whatever carries them: rooms, publications to a room, requests to one provider.
// A publication leaves its sender out (`socket.to`), as in deepstream, and carries the room's name as the event's.

/** Serves every socket of `io`. */
export function serve(io) {
  /** Who answers requests of a name: the last that offered to. */
  const providers = new Map();

  io.on('connection', (socket) => {
    socket.on('join', (rooms, done) => {
      socket.join(rooms);
      done();
    });
    socket.on('publish', (room, value) => {
      socket.to(room).emit(room, value);
    });
    socket.on('provide', (name, done) => {
      providers.set(name, socket);
      done();
    });
    socket.on('request', (name, value, answer) => {
      providers.get(name).emit(name, value, answer);
    });
  });
}
