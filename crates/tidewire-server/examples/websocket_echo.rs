//! A WebSocket echo server for the Autobahn test suite (`ONLY=autobahn make test`). It uses compression offers, frames, read
//! buffer, event loop and outboxes as a shard does, with an echo in place of the engine. It compresses each message that gets
//! smaller.
//!
//! `websocket_echo [FAULT]` prints its address and serves until it is killed. A fault makes it break the RFC in one way, to
//! test the test suite. It has no deadlines, and its only limit is the size of a message.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use tidewire_net::connection::Key;
use tidewire_net::event_loop::{EventLoop, OutboxMarks, Settled};
use tidewire_net::mailbox::Mailbox;
use tidewire_net::memory_budget::MemoryBudget;
use tidewire_net::outbox::LogRange;
use tidewire_net::read_buffer::{ReadBuffer, ReadOutcome};
use tidewire_net::send_batch::Sender;
use tidewire_net::turn_log::TurnLogs;
use tidewire_wire::frame::deflate::{Deflater, Inflater};
use tidewire_wire::frame::offer;
use tidewire_wire::frame::websocket::{
    self, CloseCode, Decoded, Decoder, Event, Opcode, PayloadKind, Role,
};

/// Autobahn sends messages of up to 16 MiB.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// The ways in which the server can break the RFC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The server flips the last bit of every message.
    Payload,
    /// The server does not answer pings.
    Pong,
    /// The server always closes with the normal code, whatever error the peer made.
    CloseCode,
    /// The server flips a bit in the first byte of every message of a connection with compression.
    Inflate,
}

impl Fault {
    fn named(name: &str) -> Option<Self> {
        match name {
            "payload" => Some(Self::Payload),
            "pong" => Some(Self::Pong),
            "close-code" => Some(Self::CloseCode),
            "inflate" => Some(Self::Inflate),
            _ => None,
        }
    }
}

/// A connection whose upgrade request was answered.
struct Upgraded {
    stream: TcpStream,
    /// Whether both ends agreed on compression.
    is_deflated: bool,
    /// The bytes that were read after the request.
    unread: Vec<u8>,
}

fn main() -> io::Result<()> {
    let fault = match std::env::args().nth(1) {
        None => None,
        Some(name) => Some(Fault::named(&name).ok_or_else(|| {
            let usage = format!("unknown fault {name:?}; use payload, pong, close-code or inflate");
            io::Error::new(io::ErrorKind::InvalidInput, usage)
        })?),
    };
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (event_loop, waker) = EventLoop::new(&MemoryBudget::new(usize::MAX), Sender::detect())?;
    let mailbox = Arc::new(Mailbox::new(waker));
    println!("ws://{}", listener.local_addr()?);
    let echo = Echo {
        event_loop,
        mailbox: Arc::clone(&mailbox),
        logs: TurnLogs::new(1),
        buffer: ReadBuffer::default(),
        deflater: Deflater::default(),
        inflater: Inflater::default(),
        unsent_goodbyes: Vec::new(),
        fault,
    };
    thread::spawn(move || accept(&listener, &mailbox));
    echo.run()
}

fn accept(listener: &TcpListener, mailbox: &Mailbox<Upgraded>) {
    for stream in listener.incoming() {
        match stream.and_then(upgrade) {
            Ok(upgraded) => mailbox.push(upgraded),
            Err(error) => eprintln!("a connection could not be upgraded: {error}"),
        }
    }
}

fn upgrade(stream: TcpStream) -> io::Result<Upgraded> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let head = read_head(&mut reader)?;
    let extensions = offer::accept(&head.extensions)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let agreed = extensions
        .as_ref()
        .map(|answer| format!("Sec-WebSocket-Extensions: {answer}\r\n"));
    let unread = reader.buffer().to_vec();
    let mut stream = reader.into_inner();
    write!(
        stream,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {}\r\n{}\r\n",
        websocket::accept_key(&head.key),
        agreed.unwrap_or_default(),
    )?;
    stream.set_nonblocking(true)?;
    Ok(Upgraded {
        stream,
        is_deflated: extensions.is_some(),
        unread,
    })
}

/// The headers of an upgrade request that the server uses.
#[derive(Default)]
struct Head {
    key: String,
    extensions: String,
}

/// Reads the head of the next request.
fn read_head(reader: &mut impl BufRead) -> io::Result<Head> {
    let mut head = Head::default();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("sec-websocket-key") => {
                value.clone_into(&mut head.key);
            }
            Some((name, value)) if name.eq_ignore_ascii_case("sec-websocket-extensions") => {
                value.clone_into(&mut head.extensions);
            }
            None if line == "\r\n" => return Ok(head),
            _ => {}
        }
    }
}

/// The state of a connection, without its socket.
struct State {
    decoder: Decoder,
    /// Whether the server has queued its close frame. Until the peer closes too, the server discards all input.
    is_closing: bool,
}

struct Echo {
    event_loop: EventLoop<State>,
    mailbox: Arc<Mailbox<Upgraded>>,
    logs: TurnLogs,
    buffer: ReadBuffer,
    deflater: Deflater,
    inflater: Inflater,
    /// Connections whose close frame is queued but not sent.
    unsent_goodbyes: Vec<Key>,
    fault: Option<Fault>,
}

impl Echo {
    /// Runs turns until the poll fails.
    fn run(mut self) -> io::Result<()> {
        loop {
            let has_work = self.event_loop.readable_count() > 0 || self.event_loop.has_sends();
            self.event_loop
                .poll(has_work.then_some(std::time::Duration::ZERO))?;
            for Upgraded {
                stream,
                is_deflated,
                unread,
            } in self.mailbox.take()
            {
                let state = State {
                    decoder: match is_deflated {
                        true => Decoder::with_deflate(Role::Server),
                        false => Decoder::new(Role::Server),
                    },
                    is_closing: false,
                };
                self.event_loop.add(stream, &unread, state)?;
            }
            self.read_sockets();
            self.send();
        }
    }

    fn read_sockets(&mut self) {
        for _ in 0..self.event_loop.readable_count() {
            match self.event_loop.read_next(&mut self.buffer) {
                Some((key, ReadOutcome::Drained(_) | ReadOutcome::More(_))) => self.echo(key),
                Some((key, ReadOutcome::End | ReadOutcome::Failed(_))) => {
                    self.event_loop.remove(key);
                }
                None => return,
            }
        }
    }

    /// Answers all complete frames in the read buffer.
    fn echo(&mut self, key: Key) {
        let mut needed = 0;
        while let Some(connection) = self.event_loop.connections_mut().get_mut(key) {
            let State {
                decoder,
                is_closing,
            } = &mut connection.state;
            if *is_closing {
                return self.buffer.discard();
            }
            let Decoded { consumed, event } = match decoder.decode_inflated(
                self.buffer.unread(),
                MESSAGE_BYTES_MAX,
                &mut self.inflater,
            ) {
                Ok(decoded) => decoded,
                Err(error) => {
                    self.close(key, error.close_code());
                    continue;
                }
            };
            let mut goodbye = None;
            match event {
                Event::Message { kind, payload } => {
                    let mut payload = payload.into_owned();
                    if self.fault == Some(Fault::Payload)
                        && let Some(last) = payload.last_mut()
                    {
                        *last ^= 1;
                    }
                    let opcode = match kind {
                        PayloadKind::Text => Opcode::Text,
                        PayloadKind::Binary => Opcode::Binary,
                    };
                    if self.fault == Some(Fault::Inflate)
                        && decoder.has_deflate()
                        && let Some(first) = payload.first_mut()
                    {
                        *first ^= 1;
                    }
                    let is_deflated = decoder.has_deflate();
                    let deflater = &mut self.deflater;
                    let range = self.logs.log_mut(0).append(|out| {
                        if !is_deflated || !deflater.encode_frame(opcode, &payload, out) {
                            websocket::encode(opcode, &payload, out);
                        }
                    });
                    let range = LogRange { format: 0, range };
                    self.event_loop.push_ranges(key, std::iter::once(range));
                }
                Event::Ping(payload) if self.fault != Some(Fault::Pong) => {
                    let mut pong = Vec::new();
                    websocket::encode(Opcode::Pong, payload, &mut pong);
                    self.event_loop.push_bytes(key, &pong);
                }
                Event::Ping(_) | Event::Pong(_) => {}
                Event::Close { code, .. } => goodbye = Some(code.unwrap_or(CloseCode::NORMAL)),
                Event::NeedMore { bytes } => {
                    needed = bytes;
                    self.buffer.consume(consumed);
                    break;
                }
            }
            self.buffer.consume(consumed);
            if let Some(code) = goodbye {
                self.close(key, code);
            }
        }
        self.event_loop.store_rest(key, &mut self.buffer, needed);
    }

    fn close(&mut self, key: Key, code: CloseCode) {
        let code = match self.fault {
            Some(Fault::CloseCode) => CloseCode::NORMAL,
            _ => code,
        };
        let mut frame = Vec::new();
        websocket::encode(
            Opcode::Close,
            &websocket::close_payload(code, ""),
            &mut frame,
        );
        self.event_loop.push_bytes(key, &frame);
        if let Some(connection) = self.event_loop.connections_mut().get_mut(key) {
            connection.state.is_closing = true;
        }
        self.unsent_goodbyes.push(key);
    }

    /// Sends the output of the turn, and shuts down the sending half of each connection whose close frame has left.
    fn send(&mut self) {
        let (mut broken, mut settled) = (Vec::new(), Settled::default());
        self.logs.begin_turn();
        while self.event_loop.has_sends() {
            self.event_loop.submit_slice(&self.logs, &mut broken);
        }
        let marks = OutboxMarks::limit(usize::MAX);
        self.event_loop.settle(&mut self.logs, &marks, &mut settled);
        debug_assert!(settled.cut.is_empty(), "outboxes have no limit here");
        for key in broken {
            self.event_loop.remove(key);
        }
        let connections = self.event_loop.connections();
        self.unsent_goodbyes.retain(|key| {
            let Some(connection) = connections.get(*key) else {
                return false;
            };
            if connection.is_flushed() {
                connection.shut_down_sending();
            }
            !connection.is_flushed()
        });
    }
}
