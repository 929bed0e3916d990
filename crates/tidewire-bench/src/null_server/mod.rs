//! The null server: the minimum that a server which moves these bytes must do, on one shard's loop.
//!
//! It reads frames, collects the frames of a turn in a turn log, and sends each subscribed connection the log's ranges,
//! without its own messages, through Tidewire's sends. There is no session, no permission, no limit, no heartbeat and
//! no check of a payload. With [`Options::has_rooms`] it looks at names and counts versions of records.

mod connection;
mod room;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use mio::Waker;
use tidewire_net::connection::Key;
use tidewire_net::event_loop::{EventLoop, OutboxMarks, SLICE_SENDS_MAX, Settled};
use tidewire_net::flush_policy::{self, Owner, TURN_BYTES_MAX};
use tidewire_net::memory_budget::MemoryBudget;
use tidewire_net::outbox::LogRange;
use tidewire_net::read_buffer::{ReadBuffer, ReadOutcome};
use tidewire_net::send_batch::Sender as TurnSender;
use tidewire_net::turn_log::TurnLogs;
use tidewire_wire::frame::websocket::{self, Event as FrameEvent, Opcode};

use connection::{Closed, MessageHandler, NullConnection};
use room::{ROOM_OF_ALL, Rooms};

/// The one log.
const FORMAT: u8 = 0;
/// The largest message of any scenario.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Options of a null server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Names matter: only subscribers of a name get its publications. Otherwise all subscribed connections get
    /// everything.
    pub has_rooms: bool,
    /// Publishers get their own messages back.
    pub has_echo: bool,
    /// Faults for the tests of the generator's checks.
    pub faults: PlantedFaults,
}

/// Faults for the tests of the generator's checks.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlantedFaults {
    /// One in this many sends is skipped; 0 is never.
    pub lose_one_in: u64,
    /// One in this many sends is done twice; 0 is never.
    pub double_one_in: u64,
    /// After this many publications the whole server stalls before it sends; 0 is never.
    pub stall_one_in: u64,
    /// The duration of a stall.
    pub stall: Duration,
}

/// The null server.
pub struct NullServer {
    listener: TcpListener,
    waker: Waker,
    accepted: Sender<io::Result<TcpStream>>,
    turns: Turns,
}

/// Everything except the listener, which has a separate thread.
struct Turns {
    /// The accepted sockets of the listener's thread.
    sockets: Receiver<io::Result<TcpStream>>,
    event_loop: EventLoop<NullConnection>,
    buffer: ReadBuffer,
    logs: TurnLogs,
    rooms: Rooms,
    options: Options,
    /// Bytes read in this turn.
    turn_bytes: usize,
    /// Sends so far, for the faults.
    send_count: u64,
    /// Stalls so far.
    stall_count: u64,
    broken: Vec<Key>,
}

impl NullServer {
    /// Listens on `address`.
    ///
    /// # Errors
    /// The address is in use or not permitted.
    pub fn bind(address: SocketAddr, options: Options) -> io::Result<Self> {
        // No connection is disconnected: slow readers show in the figures.
        let (event_loop, waker) =
            EventLoop::new(&MemoryBudget::new(usize::MAX), TurnSender::detect())?;
        let (accepted, sockets) = channel();
        let turns = Turns {
            sockets,
            event_loop,
            buffer: ReadBuffer::default(),
            logs: TurnLogs::new(1),
            rooms: Rooms::new(options.has_echo),
            options,
            turn_bytes: 0,
            send_count: 0,
            stall_count: 0,
            broken: Vec::new(),
        };
        let listener = TcpListener::bind(address)?;
        Ok(Self {
            listener,
            waker,
            accepted,
            turns,
        })
    }

    /// Its address.
    ///
    /// # Errors
    /// The system does not report it.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the poll fails or connections can't be accepted.
    ///
    /// # Errors
    /// Either of these failures.
    pub fn run(self) -> io::Result<()> {
        let Self {
            listener,
            waker,
            accepted,
            turns,
        } = self;
        let accepting = std::thread::spawn(move || accept(&listener, &accepted, &waker));
        turns.run()?;
        // The turns ended without an error because the listener no longer accepts.
        accepting
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the accepting thread panicked")))
    }
}

/// Accepts until that fails. A separate thread, because the loop's poll knows connections only, as in Tidewire.
fn accept(
    listener: &TcpListener,
    accepted: &Sender<io::Result<TcpStream>>,
    waker: &Waker,
) -> io::Result<()> {
    loop {
        let socket = match listener.accept() {
            Ok((socket, _)) => socket,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                let sent = accepted.send(Err(error));
                waker.wake()?;
                return sent.map_err(io::Error::other);
            }
        };
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        if accepted.send(Ok(socket)).is_err() {
            return Ok(());
        }
        waker.wake()?;
    }
}

impl Owner for Turns {
    type State = NullConnection;

    fn event_loop(&mut self) -> &mut EventLoop<NullConnection> {
        &mut self.event_loop
    }

    fn owed_count(&self) -> usize {
        self.rooms.owed_count()
    }

    fn turn_bytes(&self) -> usize {
        self.turn_bytes
    }

    /// New connections first. The loop checks for them after every poll, because each poll may have consumed the
    /// listener's wake-up.
    fn take_input(&mut self) -> io::Result<()> {
        for socket in self.sockets.try_iter() {
            self.event_loop
                .add(socket?, &[], NullConnection::default())?;
        }
        self.read_sockets();
        Ok(())
    }

    fn send_slice(&mut self) {
        self.list_sends(SLICE_SENDS_MAX);
        self.event_loop.submit_slice(&self.logs, &mut self.broken);
    }
}

impl Turns {
    fn run(mut self) -> io::Result<()> {
        loop {
            // Input between two slices of sends must be sent even if no other input follows.
            let has_work = self.rooms.owed_count() > 0
                || self.event_loop.has_sends()
                || self.event_loop.readable_count() > 0;
            self.event_loop.poll(has_work.then_some(Duration::ZERO))?;
            self.turn()?;
        }
    }

    /// The same turn as a shard's: take input, then send in slices, and poll the sockets between two slices.
    fn turn(&mut self) -> io::Result<()> {
        self.take_input()?;
        flush_policy::flush(self)?;
        self.end_input();
        loop {
            self.event_loop.submit_slice(&self.logs, &mut self.broken);
            if !self.event_loop.has_sends() {
                break;
            }
            self.event_loop.poll_again()?;
            self.take_input()?;
        }
        // There are no outbox limits, so nothing is cut.
        let (marks, mut settled) = (OutboxMarks::limit(usize::MAX), Settled::default());
        self.event_loop.settle(&mut self.logs, &marks, &mut settled);
        for key in self.broken.drain(..) {
            self.event_loop.remove(key);
        }
        Ok(())
    }

    fn read_sockets(&mut self) {
        for _ in 0..self.event_loop.readable_count() {
            if self.turn_bytes >= TURN_BYTES_MAX {
                return;
            }
            let Some((key, outcome)) = self.event_loop.read_next(&mut self.buffer) else {
                return;
            };
            let result = match outcome {
                ReadOutcome::Drained(count) | ReadOutcome::More(count) => {
                    self.turn_bytes += count;
                    self.decode(key)
                }
                ReadOutcome::End | ReadOutcome::Failed(_) => Err(Closed),
            };
            if let Err(Closed) = result {
                self.buffer.discard();
                self.event_loop.remove(key);
            }
        }
    }

    fn decode(&mut self, key: Key) -> Result<(), Closed> {
        let mut needed = 0;
        while let Some(connection) = self.event_loop.connections_mut().get_mut(key) {
            let peer = &mut connection.state;
            let unread = self.buffer.unread();
            if unread.is_empty() {
                break;
            }
            if peer.is_upgrading() {
                let Some(answer) = peer.upgrade(unread)? else {
                    break;
                };
                let bytes = unread.len();
                self.buffer.consume(bytes);
                self.event_loop.push_bytes(key, answer.as_bytes());
                continue;
            }
            let decoded = peer.decoder.decode(unread, MESSAGE_BYTES_MAX);
            let decoded = decoded.map_err(|_| Closed)?;
            let consumed = decoded.consumed;
            match decoded.event {
                FrameEvent::NeedMore { bytes } => {
                    needed = bytes;
                    self.buffer.consume(consumed);
                    break;
                }
                FrameEvent::Message { payload, .. } => {
                    let log = self.logs.log_mut(FORMAT);
                    if peer.is_subscribed && !self.options.has_rooms {
                        // A publication reads the same in both directions.
                        let span =
                            log.append(|out| websocket::encode(Opcode::Binary, &payload, out));
                        self.rooms.publish(ROOM_OF_ALL, key, &mut peer.due, span);
                    } else {
                        let has_rooms = self.options.has_rooms;
                        let mut handler = MessageHandler::new(&mut self.rooms, log, has_rooms);
                        handler.take(key, peer, &payload)?;
                        let answer = handler.answer;
                        if !answer.is_empty() {
                            self.event_loop.push_bytes(key, &answer);
                        }
                    }
                }
                FrameEvent::Close { .. } => return Err(Closed),
                FrameEvent::Ping(_) | FrameEvent::Pong(_) => {}
            }
            self.buffer.consume(consumed);
        }
        self.event_loop.store_rest(key, &mut self.buffer, needed);
        Ok(())
    }

    fn end_input(&mut self) {
        self.list_sends(usize::MAX);
        self.turn_bytes = 0;
        self.logs.begin_turn();
        let publications = self.rooms.publication_count();
        let due = publications.checked_div(self.options.faults.stall_one_in);
        if due.is_some_and(|due| due > self.stall_count) {
            self.stall_count += 1;
            std::thread::sleep(self.options.faults.stall);
        }
    }

    /// Lists `count` sends at most.
    fn list_sends(&mut self, count: usize) {
        let faults = self.options.faults;
        let send_count = &mut self.send_count;
        self.rooms
            .flush_some(count, &mut self.event_loop, |event_loop, key, spans| {
                *send_count += 1;
                let ranges = || {
                    spans.iter().map(|range| LogRange {
                        format: FORMAT,
                        range: range.clone(),
                    })
                };
                // No positive count is a multiple of 0, so 0 is never.
                if !send_count.is_multiple_of(faults.lose_one_in) {
                    event_loop.push_ranges(key, ranges());
                }
                if send_count.is_multiple_of(faults.double_one_in) {
                    event_loop.push_ranges(key, ranges());
                }
            });
    }
}
