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
/// A server's answer to the upgrade is shorter than this.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// No message that a scenario provokes is longer.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// The bit of a frame's first byte that says it is compressed (RFC 7692, section 6).
const COMPRESSED: u8 = 0x40;

/// What a connection subscribes to before it counts as open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subscription {
    /// Nothing; it is open when it is logged in.
    Nothing,
    /// Names, all at once.
    Names(Vec<String>),
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

/// What all connections of a swarm read with.
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
    /// With buffers of so many bytes.
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

/// How far a connection is. Each stage waits for the answer to what was sent when it was entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The TCP connection is not there yet.
    Connecting,
    /// For the answer 101.
    Upgrading,
    /// For the end of the login.
    LoggingIn,
    /// For the ack of the subscription.
    Subscribing,
    /// For nothing: messages are the scenario's.
    Open,
}

impl Stage {
    /// Takes an answer before the connection is open. True when the login is done, so that the subscription follows.
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
            // Others may publish and patch before the ack is here.
            (Self::Subscribing, Incoming::Delivery { .. } | Incoming::Patched { .. }) => Ok(false),
            (stage, incoming) => Err(Unintelligible(format!(
                "was answered {incoming:?} while {stage:?}"
            ))),
        }
    }
}

/// Why a message was not taken.
enum Stop {
    /// The scenario's reason.
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
    /// Received bytes that do not make a whole frame yet.
    rest: Vec<u8>,
    /// Bytes that the socket did not take yet.
    outbox: Vec<u8>,
}

impl Connection {
    /// Begins to connect.
    ///
    /// # Errors
    /// The system refuses: descriptors or ports have run out.
    pub fn connect(number: usize, target: &Target) -> Result<Self, Failure> {
        let socket = source::open(number, target.address)
            .map_err(Failure::system(format!("connection {number}")))?;
        Ok(Self {
            number,
            socket: TcpStream::from_std(socket),
            tls: match &target.link.tls {
                Some(config) => Some(Tls::new(config, target.address)?),
                None => None,
            },
            decoder: Decoder::new(Role::Client),
            driver: Driver::new(target.protocol, number, target.link.has_batches),
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

    /// Bytes that were sent and that the socket did not take yet.
    #[must_use]
    pub fn outbox_bytes(&self) -> usize {
        self.outbox.len()
    }

    /// Lets the driver append to what is to be sent, without sending it.
    pub fn push(&mut self, write: impl FnOnce(&mut Driver, &mut Vec<u8>)) {
        write(&mut self.driver, &mut self.outbox);
    }

    /// Sends what the socket takes.
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

    /// Socket and bytes of a send that somebody else makes and that [`Connection::complete`] ends; `None` with TLS, or if
    /// nothing waits.
    pub(crate) fn unsealed(&self) -> Option<(BorrowedFd<'_>, &[u8])> {
        let is_plain = self.tls.is_none() && !self.outbox.is_empty();
        is_plain.then(|| (self.socket.as_fd(), &self.outbox[..]))
    }

    /// Notes how that send ended. What the socket did not take waits until it is writable, or for the next flush.
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

    /// To be called when the socket became writable: finishes the connecting, goes on sending, unless it is being opened.
    /// Only a socket that `has_failed` is asked for its error, and only what waits is sent: this comes with every event
    /// of an edge-triggered poll.
    pub(crate) fn handle_writable(
        &mut self,
        request: &[u8],
        has_failed: bool,
    ) -> Result<(), Failure> {
        if self.stage == Stage::Connecting {
            if has_failed && let Ok(Some(error)) = self.socket.take_error() {
                return Err(self.broken(&format!("is refused: {error}")));
            }
            self.stage = Stage::Upgrading;
            self.outbox.extend_from_slice(request);
        }
        match self.stage {
            Stage::Open => self.flush(),
            _ => Ok(()),
        }
    }

    /// Reads all that the socket has into the buffer, which is grown where it must be, and gives messages to `handle`
    /// once the connection is open. A read that does not fill the buffer was the last one, unless the stream `is_ended`.
    /// The steps of opening wait in the outbox, for somebody who sends those of all connections together.
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
            // What TLS still holds of its last read is announced by nobody.
            if kept + count < buffer.len() && !is_ended && self.tls.is_none() {
                return Ok(());
            }
        }
    }

    /// Handles what is whole in `input` and says how much of it that was.
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
            // The decoder takes text piece by piece, and its next bytes then are no frame's beginning.
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
            // A compressed frame does not hold its payload as such.
            if let Some(header_bytes) = header_bytes
                && input[start] & COMPRESSED == 0
            {
                template.keep(&input[start..consumed], header_bytes);
            }
        }
    }

    /// The length of the answer to the upgrade, `None` while it is not whole.
    fn take_head(&mut self, input: &[u8]) -> Result<Option<usize>, Failure> {
        let Some(end) = input.windows(4).position(|window| window == b"\r\n\r\n") else {
            if input.len() > HEAD_BYTES_MAX {
                return Err(self.broken("has an endless answer to the upgrade"));
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
            return Err(self.broken(&format!("was not upgraded: {status:?}")));
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
