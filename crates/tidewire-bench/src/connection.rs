//! The client's end of one connection: socket, upgrade, login, subscription, then messages.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use mio::net::TcpStream;
use tidewire_wire::frame::deflate::Inflater;
use tidewire_wire::frame::offer::DEFLATE;
use tidewire_wire::frame::websocket::{self, Decoder, Event as FrameEvent, Role};

use crate::driver::{Driver, Incoming, MASK, Unintelligible};
use crate::failure::Failure;
use crate::link::{DEFLATE_OFFER, Opening, Tls};
use crate::source;
use crate::target::Target;
use crate::template::Template;

/// The handshake's nonce, the example of RFC 6455.
const NONCE: &str = "dGhlIHNhbXBsZSBub25jZQ==";
/// The largest answer to the upgrade.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// The largest message of any scenario.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// The bit of a frame's first byte that marks compression (RFC 7692, section 6).
const COMPRESSED: u8 = 0x40;

/// The subscription of a connection before it counts as open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subscription {
    /// None; it is open after the login.
    Nothing,
    /// Names, all at once.
    Names(Vec<String>),
    /// A pattern of events.
    Pattern(String),
    /// A record, which is created if it is missing.
    Record(String),
    /// An rpc, as its provider.
    Rpc(String),
}

/// The request that opens a WebSocket at the target, the same for all connections.
pub(crate) fn request(target: &Target) -> Vec<u8> {
    let (path, address) = (&target.path, target.address);
    let headers = target.protocol.headers();
    let offer = match target.link.has_compression {
        true => DEFLATE_OFFER,
        false => "",
    };
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {NONCE}\r\n{headers}{offer}\r\n"
    );
    request.into_bytes()
}

/// The read buffers that all connections of a swarm share.
#[derive(Debug)]
pub(crate) struct Reading {
    buffer: Vec<u8>,
    /// Empty without TLS.
    opening: Opening,
    inflater: Inflater,
    template: Template,
    /// Bytes read so far, decrypted and still compressed.
    bytes: u64,
}

impl Reading {
    /// With buffers of this many bytes.
    pub(crate) fn new(bytes: usize, target: &Target) -> Self {
        let is_sealed = target.link.tls.is_some();
        Self {
            buffer: vec![0; bytes],
            opening: Opening::new(if is_sealed { bytes } else { 0 }),
            inflater: Inflater::default(),
            template: Template::default(),
            bytes: 0,
        }
    }

    /// Bytes read so far, decrypted and still compressed.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The progress of a connection. Each stage waits for the answer to the message sent at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Waits for the TCP connection.
    Connecting,
    /// Waits for the answer 101.
    Upgrading,
    /// Waits for the end of the login.
    LoggingIn,
    /// Waits for the ack of the subscription.
    Subscribing,
    /// Open: messages belong to the scenario.
    Open,
}

impl Stage {
    /// Handles an answer before the connection is open. Returns true after the login, so that the subscription
    /// follows.
    fn take(&mut self, incoming: Incoming<'_>) -> Result<bool, Unintelligible> {
        match (*self, incoming) {
            (Self::LoggingIn, Incoming::Ready) => {
                *self = Self::Subscribing;
                Ok(true)
            }
            (Self::Subscribing, Incoming::Subscribed) => {
                *self = Self::Open;
                Ok(false)
            }
            // Others may publish and patch before the ack arrives.
            (Self::Subscribing, Incoming::Delivery { .. } | Incoming::Patched { .. }) => Ok(false),
            (stage, incoming) => Err(Unintelligible(format!(
                "received {incoming:?} while {stage:?}"
            ))),
        }
    }
}

/// Why a message was not accepted.
enum Stop {
    /// The scenario's error.
    Scenario(Failure),
    /// The server's fault.
    Server(Unintelligible),
}

impl From<Unintelligible> for Stop {
    fn from(what: Unintelligible) -> Self {
        Self::Server(what)
    }
}

impl Stop {
    fn at(self, connection: usize) -> Failure {
        match self {
            Self::Scenario(failure) => failure,
            Self::Server(Unintelligible(what)) => peer(connection, what),
        }
    }
}

/// The client's end of one connection. It is driven by a [`crate::swarm::Swarm`].
#[derive(Debug)]
pub struct Connection {
    /// Its number in the swarm.
    number: usize,
    pub(crate) socket: TcpStream,
    tls: Option<Tls>,
    decoder: Decoder,
    driver: Driver,
    /// See [`crate::driver::Protocol::has_whole_frames`].
    has_whole_frames: bool,
    stage: Stage,
    /// For [`crate::swarm::Swarm::churn`]: its opening was counted.
    pub(crate) is_counted: bool,
    /// Received bytes of an incomplete frame.
    rest: Vec<u8>,
    /// Bytes that the socket has not accepted yet.
    outbox: Vec<u8>,
}

impl Connection {
    /// Starts to connect.
    ///
    /// # Errors
    /// The system refuses: descriptors or ports have run out.
    pub fn connect(number: usize, target: &Target) -> Result<Self, Failure> {
        let socket = source::open(number, target.address_of(number))
            .map_err(Failure::system(format!("connection {number}")))?;
        let user = match target.link.has_one_user {
            true => 0,
            false => number,
        };
        Ok(Self {
            number,
            socket: TcpStream::from_std(socket),
            tls: match &target.link.tls {
                Some(config) => Some(Tls::new(config, target.address)?),
                None => None,
            },
            decoder: Decoder::new(Role::Client),
            driver: Driver::new(target.protocol, user, target.link.has_batches),
            has_whole_frames: target.protocol.has_whole_frames(),
            stage: Stage::Connecting,
            is_counted: false,
            rest: Vec::new(),
            outbox: Vec::new(),
        })
    }

    /// Whether login and subscription are done.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Sent bytes that the socket has not accepted yet.
    #[must_use]
    pub fn outbox_bytes(&self) -> usize {
        self.outbox.len()
    }

    /// Lets the driver append to the outbox, without sending it.
    pub fn push(&mut self, write: impl FnOnce(&mut Driver, &mut Vec<u8>)) {
        write(&mut self.driver, &mut self.outbox);
    }

    /// Sends as much as the socket accepts.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn flush(&mut self) -> Result<(), Failure> {
        if let Some(tls) = &mut self.tls {
            let written = tls.write(&mut self.socket, &mut self.outbox);
            return written
                .map_err(|error| peer(self.number, format!("broke while sending: {error}")));
        }
        let mut sent = 0;
        let result = loop {
            if sent == self.outbox.len() {
                break Ok(());
            }
            match self.socket.write(&self.outbox[sent..]) {
                Ok(0) => break Ok(()),
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(self.broken(&format!("broke while sending: {error}"))),
            }
        };
        self.outbox.drain(..sent);
        result
    }

    /// Socket and bytes of a send that the caller makes and that [`Connection::complete`] ends; `None` with TLS, or
    /// if the outbox is empty.
    pub(crate) fn unsealed(&self) -> Option<(BorrowedFd<'_>, &[u8])> {
        let is_plain = self.tls.is_none() && !self.outbox.is_empty();
        is_plain.then(|| (self.socket.as_fd(), &self.outbox[..]))
    }

    /// Records the result of that send. The rest waits until the socket is writable, or for the next flush.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn complete(&mut self, sent: io::Result<usize>) -> Result<(), Failure> {
        match sent {
            Ok(count) => drop(self.outbox.drain(..count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(self.broken(&format!("broke while sending: {error}"))),
        }
        Ok(())
    }

    /// Called when the socket becomes writable: finishes the connecting, and continues to send, unless the connection
    /// is being opened. It reads the error of a socket only if it `has_failed`, and sends only waiting bytes, because
    /// this comes with every event of an edge-triggered poll.
    pub(crate) fn handle_writable(
        &mut self,
        request: &[u8],
        has_failed: bool,
    ) -> Result<(), Failure> {
        if self.stage == Stage::Connecting {
            if has_failed && let Ok(Some(error)) = self.socket.take_error() {
                return Err(self.broken(&format!("can't connect: {error}")));
            }
            self.stage = Stage::Upgrading;
            self.outbox.extend_from_slice(request);
        }
        match self.stage {
            Stage::Open => self.flush(),
            _ => Ok(()),
        }
    }

    /// Reads all bytes of the socket into the buffer, which grows if necessary, and passes messages to `handle` once
    /// the connection is open. A read that does not fill the buffer was the last one, unless the stream `is_ended`.
    /// The steps of opening wait in the outbox, so that the swarm can send the steps of all connections together.
    pub(crate) fn handle_readable(
        &mut self,
        reading: &mut Reading,
        is_ended: bool,
        plan: &impl Fn(usize) -> Subscription,
        handle: &mut impl FnMut(usize, Incoming<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Reading {
            buffer,
            opening,
            inflater,
            template,
            bytes,
        } = reading;
        loop {
            let kept = self.rest.len();
            if buffer.len() < 2 * kept {
                buffer.resize(2 * kept, 0);
            }
            buffer[..kept].copy_from_slice(&self.rest);
            let read = match &mut self.tls {
                Some(tls) => tls.read(&mut self.socket, opening, &mut buffer[kept..]),
                None => self.socket.read(&mut buffer[kept..]),
            };
            let count = match read {
                Ok(0) => return Err(self.broken("was closed by the server")),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.broken(&format!("broke: {error}"))),
            };
            let input = &mut buffer[..kept + count];
            *bytes += count as u64;
            let consumed = self.take(input, inflater, template, plan, handle)?;
            if self.stage == Stage::Open && !self.outbox.is_empty() {
                self.flush()?;
            }
            self.rest.clear();
            self.rest.extend_from_slice(&input[consumed..]);
            // No event announces the bytes of the last read that TLS still holds.
            if kept + count < buffer.len() && !is_ended && self.tls.is_none() {
                return Ok(());
            }
        }
    }

    /// Handles the complete frames in `input` and returns their length.
    fn take(
        &mut self,
        input: &mut [u8],
        inflater: &mut Inflater,
        template: &mut Template,
        plan: &impl Fn(usize) -> Subscription,
        handle: &mut impl FnMut(usize, Incoming<'_>) -> Result<(), Failure>,
    ) -> Result<usize, Failure> {
        let mut consumed = 0;
        if self.stage == Stage::Upgrading {
            match self.take_head(input)? {
                Some(bytes) => consumed = bytes,
                None => return Ok(0),
            }
        }
        loop {
            // The decoder consumes text piece by piece, and its next bytes then do not start a frame.
            while self.stage == Stage::Open
                && !self.decoder.is_inside_message()
                && let Some((delivery, bytes)) = template.delivery(&input[consumed..])
            {
                handle(self.number, delivery)?;
                consumed += bytes;
            }
            let start = consumed;
            let mut header_bytes = None;
            let rest = &mut input[consumed..];
            let decoded = self
                .decoder
                .decode_inflated(rest, MESSAGE_BYTES_MAX, inflater);
            let decoded = decoded.map_err(|error| peer(self.number, error.to_string()))?;
            consumed += decoded.consumed;
            match decoded.event {
                FrameEvent::NeedMore { .. } => return Ok(consumed),
                FrameEvent::Message { kind, payload } => {
                    let (number, stage) = (self.number, &mut self.stage);
                    let mut is_logged_in = false;
                    let mut count = 0;
                    let taken = self
                        .driver
                        .take(kind, &payload, &mut self.outbox, |incoming| {
                            if *stage == Stage::Open {
                                count += 1;
                                template.note(&payload, incoming);
                                return handle(number, incoming).map_err(Stop::Scenario);
                            }
                            is_logged_in |= stage.take(incoming)?;
                            Ok(())
                        });
                    taken.map_err(|stop| stop.at(number))?;
                    if count == 1 && self.has_whole_frames && matches!(payload, Cow::Borrowed(_)) {
                        header_bytes = (consumed - start).checked_sub(payload.len());
                    }
                    if is_logged_in {
                        self.subscribe(&plan(number));
                    }
                }
                FrameEvent::Close { code, reason } => {
                    let code = code.map_or(1005, |code| code.number());
                    let what = format!("was closed by the server with {code} {reason:?}");
                    return Err(self.broken(&what));
                }
                FrameEvent::Ping(payload) => {
                    let opcode = websocket::Opcode::Pong;
                    websocket::encode_masked(opcode, payload, MASK, &mut self.outbox);
                }
                FrameEvent::Pong(_) => {}
            }
            // A compressed frame does not contain its payload in plain form.
            if let Some(header_bytes) = header_bytes
                && input[start] & COMPRESSED == 0
            {
                template.keep(&input[start..consumed], header_bytes);
            }
        }
    }

    /// The length of the answer to the upgrade, `None` while it is incomplete.
    fn take_head(&mut self, input: &[u8]) -> Result<Option<usize>, Failure> {
        let Some(end) = input.windows(4).position(|window| window == b"\r\n\r\n") else {
            if input.len() > HEAD_BYTES_MAX {
                return Err(self.broken("received a too long response to the upgrade"));
            }
            return Ok(None);
        };
        let head = String::from_utf8_lossy(&input[..end]);
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap_or_default();
        let (mut is_accepted, mut is_deflated) = (false, false);
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            if name.eq_ignore_ascii_case("sec-websocket-accept") {
                is_accepted = value.trim() == websocket::accept_key(NONCE);
            } else if name.eq_ignore_ascii_case("sec-websocket-extensions") {
                is_deflated = value.trim().starts_with(DEFLATE);
            }
        }
        if !status.starts_with("HTTP/1.1 101") || !is_accepted {
            return Err(self.broken(&format!("upgrade refused: {status:?}")));
        }
        if is_deflated {
            self.decoder = Decoder::with_deflate(Role::Client);
        }
        self.stage = Stage::LoggingIn;
        self.driver.hello(&mut self.outbox);
        Ok(Some(end + 4))
    }

    fn subscribe(&mut self, subscription: &Subscription) {
        let out = &mut self.outbox;
        match subscription {
            Subscription::Nothing => self.stage = Stage::Open,
            Subscription::Pattern(pattern) => self.driver.subscribe_pattern(pattern, out),
            Subscription::Names(names) => {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                self.driver.subscribe(&names, out);
            }
            Subscription::Record(name) => self.driver.open_record(name, out),
            Subscription::Rpc(name) => self.driver.provide(name, out),
        }
    }

    fn broken(&self, what: &str) -> Failure {
        peer(self.number, what.to_owned())
    }
}

fn peer(connection: usize, what: String) -> Failure {
    Failure::Peer { connection, what }
}
