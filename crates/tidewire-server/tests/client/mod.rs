//! A test client that speaks to a server through the wire crate, and a helper that waits with a deadline.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tidewire_core::message::{Auth, Change, Connection, Event, EventBulk, Message, Record};
use tidewire_wire::frame::deflate::{Deflater, Inflater};
use tidewire_wire::frame::websocket::{
    self, CloseCode, Decoded, Decoder, Event as FrameEvent, Opcode, Role,
};
use tidewire_wire::protocol::deepstream::{Deepstream, Dialect};

/// Longer than anything here takes. An event that has not happened by then never will.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Longer than any test message.
const MESSAGE_BYTES_MAX: usize = 1 << 24;

/// Waits until another thread has made `is_done` true, with a deadline.
#[track_caller]
pub fn wait_until(mut is_done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_done() {
        assert!(start.elapsed() < DEADLINE, "it never happened");
        std::thread::yield_now();
    }
}

pub fn emit<'a>(name: &'a str, data: &'a str) -> Message<'a> {
    Message::Event(Event::publication(name, Some(data)))
}

/// A write of a whole value with an acknowledgement. It creates the record if it is missing.
pub fn write<'a>(name: &'a str, version: i32, data: &'a str) -> Message<'a> {
    let write = tidewire_core::message::Write {
        name,
        version,
        correlation: Some("9"),
        write_ack: true,
        key: None,
    };
    let change = Change::CreateAndUpdate { data: Some(data) };
    Message::Record(Record::Write(write, change))
}

/// The acknowledgement of [`write`].
pub fn acknowledged(name: &str) -> Message<'_> {
    Message::Record(Record::WriteAck {
        name,
        correlation: Some("9"),
    })
}

pub fn subscribe(name: &str) -> Message<'_> {
    Message::Event(Event::Subscribe {
        names: vec![name],
        correlation: Some("7"),
        positions: Vec::new(),
    })
}

/// The two messages of a login, as a client sends them.
pub fn encode_login(out: &mut Vec<u8>) {
    encode_login_as("7.0.5", out);
}

/// The same for a library of this version.
pub fn encode_login_as(sdk_version: &str, out: &mut Vec<u8>) {
    encode_introduction(sdk_version, false, false, "{}", out);
}

/// The same for a library that reads several messages in one frame.
pub fn encode_batching_login(out: &mut Vec<u8>) {
    encode_introduction("7.0.5", true, false, "{}", out);
}

/// The same for a library that coalesces.
pub fn encode_coalescing_login(out: &mut Vec<u8>) {
    encode_introduction("7.0.5", false, true, "{}", out);
}

fn encode_introduction(
    sdk_version: &str,
    batches: bool,
    coalesces: bool,
    login: &str,
    out: &mut Vec<u8>,
) {
    let challenge = Message::Connection(Connection::Challenge {
        url: Some("ws://test"),
        protocol_version: Some("0.1a"),
        sdk_version: Some(sdk_version),
        sdk_type: Some("javascript"),
        batches,
        coalesces,
    });
    Deepstream::encode_masked_frame(&challenge, [1, 2, 3, 4], out);
    let request = Message::Auth(Auth::Request { data: Some(login) });
    Deepstream::encode_masked_frame(&request, [5, 6, 7, 8], out);
}

/// An item that a client received.
#[derive(Debug)]
enum Received {
    Message(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<CloseCode>),
    End,
}

/// Splits the payload of a frame into messages. Without `batches` the whole payload is one message.
fn messages(mut payload: &[u8], batches: bool) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while !payload.is_empty() {
        let bytes = Deepstream::message_bytes(payload).filter(|_| batches);
        let (message, rest) = payload.split_at(bytes.unwrap_or(payload.len()));
        messages.push(message.to_vec());
        payload = rest;
    }
    messages
}

pub struct Client {
    pub stream: TcpStream,
    decoder: Decoder,
    deflater: Deflater,
    inflater: Inflater,
    /// Bytes received on the wire, with frame headers.
    pub bytes_in: usize,
    /// Message frames received.
    pub frames_in: usize,
    /// Whether a frame may contain several messages.
    batches: bool,
    /// Messages of the last frame that the test has not taken yet.
    ready: VecDeque<Vec<u8>>,
    input: Vec<u8>,
    start: usize,
}

impl Client {
    /// A client on a stream whose handshake is done.
    pub fn new(stream: TcpStream) -> Self {
        Self::with_decoder(stream, Decoder::new(Role::Client))
    }

    /// The same for a handshake that agreed on compression.
    pub fn with_deflate(stream: TcpStream) -> Self {
        Self::with_decoder(stream, Decoder::with_deflate(Role::Client))
    }

    fn with_decoder(stream: TcpStream, decoder: Decoder) -> Self {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        Self {
            stream,
            decoder,
            deflater: Deflater::default(),
            inflater: Inflater::default(),
            bytes_in: 0,
            frames_in: 0,
            batches: false,
            ready: VecDeque::new(),
            input: Vec::new(),
            start: 0,
        }
    }

    pub fn send(&mut self, message: &Message<'_>) {
        let mut bytes = Vec::new();
        Deepstream::encode_masked_frame(message, [0xA, 0xB, 0xC, 0xD], &mut bytes);
        self.stream.write_all(&bytes).unwrap();
    }

    /// The same for a server that may be killed in the meantime. Returns whether the bytes were passed to the kernel.
    pub fn try_send(&mut self, message: &Message<'_>) -> bool {
        let mut bytes = Vec::new();
        Deepstream::encode_masked_frame(message, [0xA, 0xB, 0xC, 0xD], &mut bytes);
        self.stream.write_all(&bytes).is_ok()
    }

    /// Sends all messages from another thread, so that this thread can read while the server is slow to take them.
    pub fn send_all<'a>(&mut self, messages: impl Iterator<Item = Message<'a>>) {
        let mut bytes = Vec::new();
        for message in messages {
            Deepstream::encode_masked_frame(&message, [0xA, 0xB, 0xC, 0xD], &mut bytes);
        }
        let mut stream = self.stream.try_clone().unwrap();
        std::thread::spawn(move || stream.write_all(&bytes).unwrap());
    }

    /// Sends a message as JSON.
    pub fn send_text(&mut self, text: &str) {
        self.send_frame(Opcode::Text, text.as_bytes());
    }

    pub fn send_frame(&mut self, opcode: Opcode, payload: &[u8]) {
        let mut bytes = Vec::new();
        websocket::encode_masked(opcode, payload, [1, 2, 3, 4], &mut bytes);
        self.stream.write_all(&bytes).unwrap();
    }

    /// Sends a message compressed.
    pub fn send_deflated(&mut self, message: &Message<'_>) {
        let mut payload = Vec::new();
        Deepstream::encode(Dialect::Server, message, &mut payload);
        self.send_deflated_frame(&payload);
    }

    /// Sends bytes compressed, as one binary message.
    pub fn send_deflated_frame(&mut self, payload: &[u8]) {
        let mut bytes = Vec::new();
        let key = [1, 2, 3, 4];
        let is_smaller =
            self.deflater
                .encode_masked_frame(Opcode::Binary, payload, key, &mut bytes);
        assert!(is_smaller, "compression does not make it smaller");
        self.stream.write_all(&bytes).unwrap();
    }

    fn receive(&mut self) -> Received {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Received::Message(message);
            }
            let input = &mut self.input[self.start..];
            let decoded =
                self.decoder
                    .decode_inflated(input, MESSAGE_BYTES_MAX, &mut self.inflater);
            let Decoded { consumed, event } = decoded.unwrap();
            let received = match event {
                FrameEvent::Message { payload, .. } => {
                    self.frames_in += 1;
                    self.ready.extend(messages(&payload, self.batches));
                    None
                }
                FrameEvent::Pong(payload) => Some(Received::Pong(payload.to_vec())),
                FrameEvent::Close { code, .. } => Some(Received::Close(code)),
                FrameEvent::Ping(_) => None,
                FrameEvent::NeedMore { .. } => {
                    self.start += consumed;
                    if !self.read_more() {
                        return Received::End;
                    }
                    continue;
                }
            };
            self.start += consumed;
            if let Some(received) = received {
                return received;
            }
        }
    }

    fn read_more(&mut self) -> bool {
        self.input.drain(..self.start);
        self.start = 0;
        let mut chunk = [0; 1 << 16];
        match self.stream.read(&mut chunk) {
            Ok(0) => false,
            Ok(count) => {
                self.input.extend_from_slice(&chunk[..count]);
                self.bytes_in += count;
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("received nothing within the deadline: {error}"),
        }
    }

    #[track_caller]
    pub fn expect(&mut self, expected: &Message<'_>) {
        match self.receive() {
            Received::Message(payload) => {
                assert_eq!(Deepstream::decode(&payload).as_ref(), Ok(expected))
            }
            other => panic!("{other:?} instead of {expected:?}"),
        }
    }

    /// Expects a JSON message, byte for byte.
    #[track_caller]
    pub fn expect_text(&mut self, expected: &str) {
        match self.receive() {
            Received::Message(payload) => {
                assert_eq!(String::from_utf8_lossy(&payload), expected);
            }
            other => panic!("{other:?} instead of {expected}"),
        }
    }

    /// Receives messages until one satisfies `is_last`.
    #[track_caller]
    pub fn receive_until(&mut self, mut is_last: impl FnMut(&Message<'_>) -> bool) {
        loop {
            match self.receive() {
                Received::Message(payload) => {
                    if is_last(&Deepstream::decode(&payload).unwrap()) {
                        return;
                    }
                }
                other => panic!("{other:?} instead of a message"),
            }
        }
    }

    /// The same for a server that may be killed in the meantime. Returns false if the connection ends before.
    pub fn try_receive_until(&mut self, mut is_last: impl FnMut(&Message<'_>) -> bool) -> bool {
        while let Received::Message(payload) = self.receive() {
            if is_last(&Deepstream::decode(&payload).unwrap()) {
                return true;
            }
        }
        false
    }

    /// The same, with the number of bytes received up to the end of each message.
    #[track_caller]
    pub fn receive_with_bytes(&mut self, mut is_last: impl FnMut(&Message<'_>, usize) -> bool) {
        loop {
            let Received::Message(payload) = self.receive() else {
                panic!("no message");
            };
            let bytes = self.bytes_in - (self.input.len() - self.start);
            if is_last(&Deepstream::decode(&payload).unwrap(), bytes) {
                return;
            }
        }
    }

    /// Sends a ping and receives up to its answer, including earlier messages.
    #[track_caller]
    pub fn ping_through(&mut self) {
        self.send(&Message::Connection(Connection::Ping));
        self.receive_until(|message| *message == Message::Connection(Connection::Pong));
    }

    /// Receives messages until the connection ends, even in the middle of a message.
    #[track_caller]
    pub fn receive_all(&mut self, mut take: impl FnMut(&Message<'_>)) {
        while let Received::Message(payload) = self.receive() {
            take(&Deepstream::decode(&payload).unwrap());
        }
    }

    /// Receives messages until `is_last`. If a close frame comes first, returns its code.
    #[track_caller]
    pub fn receive_until_closed(
        &mut self,
        mut is_last: impl FnMut(&Message<'_>) -> bool,
    ) -> Result<(), CloseCode> {
        loop {
            match self.receive() {
                Received::Message(payload) if is_last(&Deepstream::decode(&payload).unwrap()) => {
                    return Ok(());
                }
                Received::Message(_) => {}
                Received::Close(Some(code)) => return Err(code),
                other => panic!("{other:?} instead of a message"),
            }
        }
    }

    /// Logs in: sends and receives the first messages of a client.
    #[track_caller]
    pub fn log_in(&mut self) {
        self.log_in_as("7.0.5");
    }

    /// The same for a library of this version.
    #[track_caller]
    pub fn log_in_as(&mut self, sdk_version: &str) {
        let mut bytes = Vec::new();
        encode_login_as(sdk_version, &mut bytes);
        self.stream.write_all(&bytes).unwrap();
        self.expect_login();
    }

    /// The same with this login data.
    #[track_caller]
    pub fn log_in_with(&mut self, data: &str) {
        let mut bytes = Vec::new();
        encode_introduction("7.0.5", false, false, data, &mut bytes);
        self.stream.write_all(&bytes).unwrap();
        self.expect_login();
    }

    /// The same for a library that reads several messages in one frame.
    #[track_caller]
    pub fn log_in_batching(&mut self) {
        self.batches = true;
        let mut bytes = Vec::new();
        encode_batching_login(&mut bytes);
        self.stream.write_all(&bytes).unwrap();
        self.expect_login();
    }

    /// The same for a library that coalesces.
    #[track_caller]
    pub fn log_in_coalescing(&mut self) {
        let mut bytes = Vec::new();
        encode_coalescing_login(&mut bytes);
        self.stream.write_all(&bytes).unwrap();
        let limits = r#"{"messageBytesMax":1048576}"#;
        self.expect(&Message::Connection(Connection::AcceptWithin { limits }));
        self.expect(&Message::Auth(Auth::Successful { data: None }));
    }

    #[track_caller]
    pub fn expect_login(&mut self) {
        self.expect(&Message::Connection(Connection::Accept));
        self.expect(&Message::Auth(Auth::Successful { data: None }));
    }

    #[track_caller]
    pub fn expect_ack(&mut self, action: EventBulk) {
        self.expect(&Message::Event(Event::Ack {
            action,
            correlation: Some("7"),
        }));
    }

    /// Sends a ping and expects its answer next. The server has then handled all earlier messages.
    #[track_caller]
    pub fn ping(&mut self) {
        self.send(&Message::Connection(Connection::Ping));
        self.expect(&Message::Connection(Connection::Pong));
    }

    #[track_caller]
    pub fn expect_pong(&mut self) -> Vec<u8> {
        match self.receive() {
            Received::Pong(payload) => payload,
            other => panic!("{other:?} instead of a pong"),
        }
    }

    #[track_caller]
    pub fn expect_close(&mut self) -> Option<CloseCode> {
        match self.receive() {
            Received::Close(code) => code,
            other => panic!("{other:?} instead of a close frame"),
        }
    }

    #[track_caller]
    pub fn expect_end(&mut self) {
        match self.receive() {
            Received::End => {}
            other => panic!("{other:?} instead of the end"),
        }
    }
}
