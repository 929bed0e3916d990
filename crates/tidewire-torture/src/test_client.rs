//! A client of the deepstream protocol that uses the wire crate directly: one WebSocket on one thread.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use tidewire_core::message::{Auth, Connection, Message};
use tidewire_wire::frame::websocket::{self, Decoded, Decoder, Event, Opcode, Role};
use tidewire_wire::protocol::deepstream::Deepstream;

/// Longer than any message of the load.
const MESSAGE_BYTES_MAX: usize = 1 << 22;
/// Longer than the answer to an upgrade request.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// A server that takes longer to accept a login is stuck.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(20);
/// The timeout of one read, short so that a client soon notices the end of its round.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The masking key. Any key is good between processes on one machine.
const MASK: [u8; 4] = [0x5A, 0xC3, 0x96, 0x0F];
/// The handshake's nonce, the example of RFC 6455.
const NONCE: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// A connection with a login.
#[derive(Debug)]
pub(super) struct TestClient {
    stream: TcpStream,
    decoder: Decoder,
    input: Vec<u8>,
    /// The bytes that the next flush sends.
    out: Vec<u8>,
}

/// The output buffer to which a peer appends messages while it handles others.
pub(super) struct Outbox<'a>(&'a mut Vec<u8>);

impl<'a> Outbox<'a> {
    /// An outbox that appends to these bytes.
    #[cfg(test)]
    pub(super) fn new(bytes: &'a mut Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Appends a message.
    pub(super) fn push(&mut self, message: &Message<'_>) {
        Deepstream::encode_masked_frame(message, MASK, self.0);
    }
}

impl TestClient {
    /// Connects, upgrades and logs in.
    ///
    /// # Errors
    /// The server refused the connection or the login, or ended before it answered.
    pub(super) fn open(address: SocketAddr) -> io::Result<Self> {
        Self::open_within(address, LOGIN_TIMEOUT)
    }

    /// Connects, upgrades and logs in within this time.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(super) fn open_within(address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        let mut peer = Self {
            stream,
            decoder: Decoder::new(Role::Client),
            input: Vec::new(),
            out: Vec::new(),
        };
        peer.upgrade()?;
        peer.push(&Message::Connection(Connection::challenge(false)));
        peer.push(&Message::Auth(Auth::Request { data: Some("{}") }));
        peer.flush()?;
        let mut is_in = false;
        let start = Instant::now();
        while !is_in {
            let is_open = peer.receive(&mut |message, _| {
                is_in |= matches!(message, Message::Auth(Auth::Successful { .. }));
            })?;
            if !is_open || start.elapsed() > timeout {
                return Err(io::Error::other("the server did not answer the login"));
            }
        }
        peer.stream.set_read_timeout(Some(POLL_INTERVAL))?;
        Ok(peer)
    }

    fn upgrade(&mut self) -> io::Result<()> {
        let request = format!(
            "GET /deepstream HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: {NONCE}\r\n\r\n"
        );
        self.stream.write_all(request.as_bytes())?;
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            self.stream.read_exact(&mut byte)?;
            head.push(byte[0]);
            if head.len() > HEAD_BYTES_MAX {
                return Err(io::Error::other("the response to the upgrade is too long"));
            }
        }
        let head = String::from_utf8_lossy(&head);
        if head.starts_with("HTTP/1.1 101") {
            return Ok(());
        }
        let status = head.lines().next().unwrap_or_default().to_owned();
        Err(io::Error::other(format!(
            "the server refused the upgrade: {status:?}"
        )))
    }

    /// Appends a message to the output of the next flush.
    pub(super) fn push(&mut self, message: &Message<'_>) {
        self.outbox().push(message);
    }

    /// The outbox of this connection.
    pub(super) fn outbox(&mut self) -> Outbox<'_> {
        Outbox(&mut self.out)
    }

    /// Sends all pushed messages.
    ///
    /// # Errors
    /// The connection has ended.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let sent = self.stream.write_all(&self.out);
        self.out.clear();
        sent
    }

    /// Reads once, passes each message to `take` and sends the messages that `take` appends. Returns false when the server has closed
    /// the connection.
    ///
    /// # Errors
    /// The connection has broken.
    pub(super) fn receive(
        &mut self,
        take: &mut dyn FnMut(&Message<'_>, &mut Outbox<'_>),
    ) -> io::Result<bool> {
        let mut chunk = [0; 1 << 16];
        match self.stream.read(&mut chunk) {
            Ok(0) => return Ok(false),
            Ok(count) => self.input.extend_from_slice(&chunk[..count]),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                return Ok(true);
            }
            Err(error) => return Err(error),
        }
        let mut start = 0;
        loop {
            let input = &mut self.input[start..];
            let Decoded { consumed, event } = self
                .decoder
                .decode(input, MESSAGE_BYTES_MAX)
                .map_err(io::Error::other)?;
            let is_last = match event {
                Event::Message { payload, .. } => {
                    let message = Deepstream::decode(&payload).map_err(io::Error::other)?;
                    match message {
                        Message::Connection(Connection::Ping) => {
                            Outbox(&mut self.out).push(&Message::Connection(Connection::Pong))
                        }
                        message => take(&message, &mut Outbox(&mut self.out)),
                    }
                    false
                }
                Event::Ping(payload) => {
                    websocket::encode_masked(Opcode::Pong, payload, MASK, &mut self.out);
                    false
                }
                Event::Close { code, .. } => {
                    let code = code.map(|code| code.number().to_be_bytes());
                    let payload = code.as_ref().map_or(&[][..], |code| &code[..]);
                    websocket::encode_masked(Opcode::Close, payload, MASK, &mut self.out);
                    // The server is closing the connection, so it does not matter whether it reads this answer.
                    let _ = self.flush();
                    return Ok(false);
                }
                Event::Pong(_) => false,
                Event::NeedMore { .. } => true,
            };
            start += consumed;
            if is_last {
                break;
            }
        }
        self.input.drain(..start);
        if !self.out.is_empty() {
            self.flush()?;
        }
        Ok(true)
    }
}
