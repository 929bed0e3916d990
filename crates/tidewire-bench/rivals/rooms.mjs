// The common part of the Socket.IO rivals: rooms, publications to a room, requests to one provider. A publication
// excludes its sender (`socket.to`), as in deepstream, and has the room's name as the event's.

/** Serves every socket of `io`. */
export function serve(io) {
  /** The provider of each name: the last one that registered. */
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
