//! The yardstick: the least that a server which moves these bytes can do, on one thread.
//!
//! It reads frames, gathers those of a turn, and gives the same buffer to one plain send for each subscribed connection.
//! There is no name, no session, no permission, no limit, no heartbeat and no check of a payload. A publisher gets its
//! own messages back, because cutting them out is work; so it delivers a little more than it must.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::SocketAddr;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use tidewire_wire::frame::websocket::{self, Decoder, Event as FrameEvent, Opcode, Role};
use tidewire_wire::message::{Auth, Connection as ConnectionMessage, Event, Message};
use tidewire_wire::protocol::deepstream::{Deepstream, Dialect};

use crate::driver::subscribe_ack;

const LISTENER: Token = Token(usize::MAX);
const EVENTS_MAX: usize = 4096;
const READ_BYTES: usize = 256 << 10;
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Faults for the tests of the generator's checks.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlantedFaults {
    /// Every so many sends one is left out; 0 is never.
    pub lose_one_in: u64,
    /// Every so many sends one is done twice; 0 is never.
    pub double_one_in: u64,
}

/// The null server.
#[derive(Debug)]
pub struct NullServer {
    poll: Poll,
    listener: TcpListener,
    /// By token; a closed connection's place is used again.
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    subscribed: Vec<usize>,
    /// The frames of this turn, as they leave.
    turn: Vec<u8>,
    faults: PlantedFaults,
    sends: u64,
}

#[derive(Debug)]
struct Connection {
    socket: TcpStream,
    stage: Stage,
    decoder: Decoder,
    /// Received bytes that are not whole yet.
    rest: Vec<u8>,
    /// Bytes that the socket did not take.
    outbox: VecDeque<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Upgrading,
    LoggingIn,
    Subscribed,
}

/// The connection is to be closed, for whatever reason.
struct Closed;

impl From<io::Error> for Closed {
    fn from(_: io::Error) -> Self {
        Self
    }
}

impl NullServer {
    /// Listens on `address`.
    ///
    /// # Errors
    /// The address is in use or not permitted.
    pub fn bind(address: SocketAddr, faults: PlantedFaults) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listener = TcpListener::bind(address)?;
        poll.registry()
            .register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self {
            poll,
            listener,
            connections: Vec::new(),
            free: Vec::new(),
            subscribed: Vec::new(),
            turn: Vec::new(),
            faults,
            sends: 0,
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system does not say.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the poll fails.
    ///
    /// # Errors
    /// The poll failed, or connections can't be accepted.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            }
            for event in &events {
                if event.token() == LISTENER {
                    self.accept()?;
                    continue;
                }
                let index = event.token().0;
                if event.is_writable() && self.with(index, Connection::flush).is_none() {
                    continue;
                }
                let is_ended = event.is_read_closed() || event.is_error();
                if event.is_readable() || is_ended {
                    self.read(index, &mut buffer, is_ended);
                }
            }
            self.send_turn();
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let mut socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            socket.set_nodelay(true)?;
            let index = self.free.pop().unwrap_or(self.connections.len());
            self.poll.registry().register(
                &mut socket,
                Token(index),
                Interest::READABLE | Interest::WRITABLE,
            )?;
            let connection = Some(Connection::new(socket));
            match self.connections.get_mut(index) {
                Some(place) => *place = connection,
                None => self.connections.push(connection),
            }
        }
    }

    /// Does something with a connection, and ends the connection if that fails; then `None`.
    fn with<T>(
        &mut self,
        index: usize,
        action: impl FnOnce(&mut Connection) -> Result<T, Closed>,
    ) -> Option<T> {
        let place = self.connections.get_mut(index)?;
        match action(place.as_mut()?) {
            Ok(value) => Some(value),
            Err(Closed) => {
                *place = None;
                self.free.push(index);
                self.subscribed.retain(|&other| other != index);
                None
            }
        }
    }

    fn read(&mut self, index: usize, buffer: &mut Vec<u8>, is_ended: bool) {
        let mut turn = std::mem::take(&mut self.turn);
        let stages = self.with(index, |connection| {
            let before = connection.stage;
            connection.read(buffer, is_ended, &mut turn)?;
            Ok((before, connection.stage))
        });
        self.turn = turn;
        if let Some((before, after)) = stages
            && before != after
            && after == Stage::Subscribed
        {
            self.subscribed.push(index);
        }
    }

    fn send_turn(&mut self) {
        if self.turn.is_empty() {
            return;
        }
        let turn = std::mem::take(&mut self.turn);
        let mut broken = Vec::new();
        for &index in &self.subscribed {
            self.sends += 1;
            // No positive count is a multiple of 0, so 0 is never.
            if self.sends.is_multiple_of(self.faults.lose_one_in) {
                continue;
            }
            let Some(connection) = &mut self.connections[index] else {
                continue;
            };
            let mut result = connection.send(&turn);
            if self.sends.is_multiple_of(self.faults.double_one_in) {
                result = result.and_then(|()| connection.send(&turn));
            }
            if result.is_err() {
                broken.push(index);
            }
        }
        for index in broken {
            self.with(index, |_| Err::<(), _>(Closed));
        }
        self.turn = turn;
        self.turn.clear();
    }
}

impl Connection {
    fn new(socket: TcpStream) -> Self {
        Self {
            socket,
            stage: Stage::Upgrading,
            decoder: Decoder::new(Role::Server),
            rest: Vec::new(),
            outbox: VecDeque::new(),
        }
    }

    /// Reads all that the socket has; frames of a subscribed connection go to `turn`. A read that does not fill the
    /// buffer was the last one, unless the stream `is_ended`.
    fn read(
        &mut self,
        buffer: &mut Vec<u8>,
        is_ended: bool,
        turn: &mut Vec<u8>,
    ) -> Result<(), Closed> {
        loop {
            let kept = self.rest.len();
            if buffer.len() < 2 * kept {
                buffer.resize(2 * kept, 0);
            }
            buffer[..kept].copy_from_slice(&self.rest);
            let count = match self.socket.read(&mut buffer[kept..]) {
                Ok(0) => return Err(Closed),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            let input = &mut buffer[..kept + count];
            let consumed = match self.stage {
                Stage::Upgrading => self.upgrade(input)?,
                _ => self.take_frames(input, turn)?,
            };
            self.rest.clear();
            self.rest.extend_from_slice(&input[consumed..]);
            if kept + count < buffer.len() && !is_ended {
                return Ok(());
            }
        }
    }

    /// Answers the request for the upgrade once its head is whole. A client says nothing more before the answer.
    fn upgrade(&mut self, input: &[u8]) -> Result<usize, Closed> {
        if !input.ends_with(b"\r\n\r\n") {
            return Ok(0);
        }
        let head = std::str::from_utf8(input).map_err(|_| Closed)?;
        let key = head
            .split("\r\n")
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-key"))
            .map(|(_, value)| value.trim())
            .ok_or(Closed)?;
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: {}\r\n\r\n",
            websocket::accept_key(key)
        );
        self.stage = Stage::LoggingIn;
        self.send(answer.as_bytes())?;
        Ok(input.len())
    }

    fn take_frames(&mut self, input: &mut [u8], turn: &mut Vec<u8>) -> Result<usize, Closed> {
        let mut consumed = 0;
        loop {
            let decoded = self
                .decoder
                .decode(&mut input[consumed..], MESSAGE_BYTES_MAX)
                .map_err(|_| Closed)?;
            consumed += decoded.consumed;
            match decoded.event {
                FrameEvent::NeedMore { .. } => return Ok(consumed),
                FrameEvent::Message { payload, .. } if self.stage == Stage::Subscribed => {
                    // A publication reads the same in both directions.
                    websocket::encode(Opcode::Binary, &payload, turn);
                }
                FrameEvent::Message { payload, .. } => {
                    let message = Deepstream::decode(&payload).map_err(|_| Closed)?;
                    self.answer(&message)?;
                }
                FrameEvent::Close { .. } => return Err(Closed),
                FrameEvent::Ping(_) | FrameEvent::Pong(_) => {}
            }
        }
    }

    fn answer(&mut self, message: &Message<'_>) -> Result<(), Closed> {
        let answer = match message {
            Message::Connection(ConnectionMessage::Challenge { .. }) => {
                Message::Connection(ConnectionMessage::Accept)
            }
            Message::Auth(Auth::Request { .. }) => Message::Auth(Auth::Successful { data: None }),
            Message::Event(Event::Subscribe { correlation, .. }) => {
                self.stage = Stage::Subscribed;
                subscribe_ack(*correlation)
            }
            _ => return Err(Closed),
        };
        let mut frame = Vec::new();
        Deepstream::encode_frame(Dialect::Client, &answer, &mut frame);
        self.send(&frame)
    }

    /// Sends `bytes`, and keeps what the socket does not take.
    fn send(&mut self, bytes: &[u8]) -> Result<(), Closed> {
        let sent = match self.outbox.is_empty() {
            true => send_some(&mut self.socket, bytes)?,
            false => 0,
        };
        self.outbox.extend(&bytes[sent..]);
        Ok(())
    }

    /// Sends more of what was kept.
    fn flush(&mut self) -> Result<(), Closed> {
        while !self.outbox.is_empty() {
            let sent = send_some(&mut self.socket, self.outbox.as_slices().0)?;
            if sent == 0 {
                return Ok(());
            }
            self.outbox.drain(..sent);
        }
        // The memory of a burst is not kept by every connection.
        self.outbox = VecDeque::new();
        Ok(())
    }
}

/// One send; 0 when the socket is full.
fn send_some(socket: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    match socket.write(bytes) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ) =>
        {
            Ok(0)
        }
        result => result,
    }
}
